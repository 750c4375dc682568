/*
 * Files that gzip may have packed: others are read as they are.
 */
#ifndef TRAINER_GZIP_H
#define TRAINER_GZIP_H

#include <stdbool.h>
#include <zlib.h>

#include "base/err.h"

struct tr_gzip {
    gzFile file;
    const char *path; /* the caller's */
    bool truncated;   /* packed data have ended too early */
};

/* -errno: it cannot be opened. */
int tr_gzip_open(struct tr_gzip *ret, const char *path, struct err *error);
void tr_gzip_close(struct tr_gzip *gzip);

/* The next bytes of what was packed, at most SIZE; returns how many, 0 at the end, where packed
 * data may be truncated. -EIO: they are damaged, or cannot be read. */
int tr_gzip_read(void *ret, struct tr_gzip *gzip, unsigned size, struct err *error);
/* -EIO where the end that was read is not the end of what was packed. */
int tr_gzip_check_end(const struct tr_gzip *gzip, struct err *error);

#endif
