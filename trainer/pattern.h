/*
 * Regular expressions of tokenizer.json, by PCRE2.
 *
 * The files are written for Oniguruma with Ruby's syntax, which Hugging Face's tokenizers use. What
 * means the same there and in PCRE2 is passed on, what has another spelling is translated (\s, \S
 * and \w as Unicode properties, names of scripts, {,n}, a set inside a set), and the rest is
 * refused: an interval followed by +, which Ruby repeats and PCRE2 makes possessive; options but
 * (?i:...); POSIX classes, intersections, back references, and patterns that match nothing.
 */
#ifndef TRAINER_PATTERN_H
#define TRAINER_PATTERN_H

#include <stddef.h>

#include "base/err.h"
#include "base/mem.h"

struct tr_pattern;

/* REGEX as it is in the file. -EINVAL says what of it is refused, -ENOTSUP that this build has no
 * PCRE2. */
int tr_pattern_new(struct tr_pattern **ret, const char *regex, struct err *error);
/* The text itself, without special characters. It is not empty. */
int tr_pattern_literal(struct tr_pattern **ret, const char *text, struct err *error);
struct tr_pattern *tr_pattern_free(struct tr_pattern *pattern);

AUTO_DEFINE(tr_pattern)

/* The first match in TEXT (len bytes of well-formed UTF-8) at or after byte FROM: 1 with its bytes
 * [*RET_START, *RET_END), which are not empty, or 0. -E2BIG where the search takes more than 10^9
 * steps. Not safe to call from two threads with one pattern. */
int tr_pattern_find(size_t *ret_start, size_t *ret_end, const struct tr_pattern *pattern,
                    const char *text, size_t len, size_t from, struct err *error);

#endif
