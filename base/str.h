/*
 * Strings: a growing buffer, and questions about plain C strings.
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

void str_add(struct str *s, const char *text);
void str_addn(struct str *s, const void *bytes, size_t n);
void str_addc(struct str *s, char c);
void str_addf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_vaddf(struct str *s, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void str_trunc(struct str *s, size_t len); /* keep the first LEN bytes */
char *str_take(struct str *s);             /* never NULL; S is empty afterwards */
void str_done(struct str *s);
const char *str_text(const struct str *s); /* never NULL */

#define AUTO_STR __attribute__((cleanup(str_done))) struct str

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
bool str_eq(const char *a, const char *b); /* false when either is NULL */

/* Whole decimal number in [MIN, MAX], nothing before or after it; -EINVAL or -ERANGE otherwise. */
int str_to_i64(int64_t *ret, const char *s, int64_t min, int64_t max);
/* Finite number, nothing before or after it; -EINVAL otherwise. */
int str_to_f64(double *ret, const char *s);
/* "512", "64k", "1.5GiB", "2g" as bytes (k, m, g, t are powers of 1024); -EINVAL or -ERANGE. */
int str_to_bytes(uint64_t *ret, const char *s);

/* The name in the NULL-terminated list NAMES nearest to S, or NULL where each is farther than one
 * edit for four letters: then it is another word, not a slip. */
const char *str_nearest(const char *s, const char *const *names);
/* The same, of those that at most MOST edits make of S. */
const char *str_within(const char *s, const char *const *names, int most);

/* "12.3 GiB" and the like, into a caller's buffer; returns BUF. */
char *str_human_bytes(char buf[24], double bytes);
/* "1 h 02 min", "42 s", "130 ms" and the like; returns BUF. */
char *str_human_seconds(char buf[24], double seconds);

/* FNV-1a of N bytes, whole blocks of 256 by words of eight, continuing from SEED (0 to start). */
uint64_t str_hash(const void *bytes, size_t n, uint64_t seed);

/* True if the N bytes are well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). */
bool str_is_utf8(const char *s, size_t n);

#endif
