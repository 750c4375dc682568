/* Texts as characters. */
#ifndef TRAINER_UTF8_H
#define TRAINER_UTF8_H

#include <stddef.h>

#include "base/str.h"

/* Append TEXT with U+FFFD for each ill-formed part, as bytes.decode(errors="replace") of Python
 * does it: one for each maximal part of a character (Unicode 15, section 3.9, table 3-8). */
void tr_utf8_repair(struct str *out, const char *text, size_t len);

/* Bytes of the character that TEXT, which is well formed, begins with. */
size_t tr_utf8_length(const char *text);

#endif
