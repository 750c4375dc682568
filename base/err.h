/*
 * Errors that a person may have to act on.
 *
 * A function that can fail returns 0 or a negative errno. Where someone may read the reason, its
 * last parameter is a caller-owned struct err, fixed in size so that failing never allocates.
 * NULL is accepted everywhere: the code is still returned. A text is one line, lower case, without
 * a full stop.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

struct err {
    int code;          /* 0, or a negative errno */
    char text[960];    /* what went wrong */
    char pointer[128]; /* RFC 6901 pointer of the field that is wrong in a JSON input, or "" */
};

/* Record CODE and a formatted text; returns CODE. The pointer is cleared. */
int err_set(struct err *error, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a wrong field of a JSON input. */
int err_at(struct err *error, int code, const char *pointer, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Put the caller's context before the text ("restore x: short read"); returns error->code. */
int err_wrap(struct err *error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put PREFIX ("/workload") before the pointer; returns error->code. */
int err_under(struct err *error, const char *prefix);

#endif
