/*
 * Strings: a growing buffer, and functions on plain C strings.
 *
 * A zeroed struct str is empty and valid; text is then NULL and str_text() gives "". text is always
 * NUL-terminated. str_done() frees; str_take() hands the buffer to the caller, who frees it.
 */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct str {
    char *text;
    size_t len, cap;
};

void str_add(struct str *str, const char *text);
void str_addn(struct str *str, const void *bytes, size_t size);
void str_addc(struct str *str, char ch);
void str_addf(struct str *str, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_vaddf(struct str *str, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void str_trunc(struct str *str, size_t len); /* keep the first LEN bytes */
char *str_take(struct str *str);             /* never NULL; STR is empty afterwards */
void str_done(struct str *str);
const char *str_text(const struct str *str); /* never NULL */

#define AUTO_STR __attribute__((cleanup(str_done))) struct str

bool str_starts(const char *text, const char *prefix);
bool str_ends(const char *text, const char *suffix);
/* Is WORD one of the words of TEXT (NULL: none), which blanks separate? */
bool str_has_word(const char *text, const char *word);
bool str_eq(const char *left, const char *right); /* false when either is NULL */

/* Whole decimal number in [MIN, MAX], nothing before or after it; -EINVAL or -ERANGE otherwise. */
int str_to_i64(int64_t *ret, const char *text, int64_t min, int64_t max);
/* Finite number, nothing before or after it; -EINVAL otherwise. */
int str_to_f64(double *ret, const char *text);
/* "512", "64k", "1.5GiB", "2g" as bytes (k, m, g, t are powers of 1024); -EINVAL or -ERANGE. */
int str_to_bytes(uint64_t *ret, const char *text);

/* The name in the NULL-terminated list NAMES nearest to WORD, or NULL if each is farther away than
 * one edit for four letters: then it is another word, not a typo. */
const char *str_nearest(const char *word, const char *const *names);
/* The same, of those that at most MOST edits make of WORD. */
const char *str_within(const char *word, const char *const *names, int most);

/* "12.3 GiB" and the like, into a caller's buffer; returns BUF. */
char *str_human_bytes(char buf[24], double bytes);
/* "1 h 02 min", "42 s", "130 ms" and the like; returns BUF. */
char *str_human_seconds(char buf[24], double seconds);

/* FNV-1a of SIZE bytes, whole blocks of 256 by words of eight, continuing from SEED (0 to
 * start). */
uint64_t str_hash(const void *bytes, size_t size, uint64_t seed);

/* True if the SIZE bytes are well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). */
bool str_is_utf8(const char *text, size_t size);

#endif
