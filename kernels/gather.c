/*
 * Gathers of indexed rows: the embedding's forward pass, tokens to their experts.
 *
 * The hardware cannot predict such rows. Two rows are copied at a time, and each line copied comes
 * with a prefetch of a line of the next two: a burst of prefetches would fill the queue of
 * outstanding misses and stall the copy.
 */
#include "kernels/ops.h"

enum { LINE = 64 };

static void copy_two(char *y0, char *y1, const char *x0, const char *x1, const char *next0,
                     const char *next1, size_t bytes)
{
    size_t b = 0;

    for (; b + LINE <= bytes; b += LINE) {
        __builtin_prefetch(next0 + b);
        __builtin_prefetch(next1 + b);
        memcpy(y0 + b, x0 + b, LINE);
        memcpy(y1 + b, x1 + b, LINE);
    }
    memcpy(y0 + b, x0 + b, bytes - b);
    memcpy(y1 + b, x1 + b, bytes - b);
}

static void copy_one(char *to, const char *from, size_t bytes)
{
    if (from)
        memcpy(to, from, bytes);
    else
        memset(to, 0, bytes);
}

void kn_gather_rows(void *y, const void *(*from)(const void *arg, size_t row), const void *arg,
                    size_t bytes, const struct kn_share *share)
{
    char *to = (char *)y + share->lo * bytes;
    size_t r = share->lo;

    for (; r + 2 <= share->hi; r += 2, to += 2 * bytes) {
        const char *x0 = from(arg, r), *x1 = from(arg, r + 1);

        if (x0 && x1) {
            const char *next0 = r + 2 < share->hi ? from(arg, r + 2) : NULL;
            const char *next1 = r + 3 < share->hi ? from(arg, r + 3) : NULL;

            copy_two(to, to + bytes, x0, x1, next0 ? next0 : x0, next1 ? next1 : x1, bytes);
        } else {
            copy_one(to, x0, bytes);
            copy_one(to + bytes, x1, bytes);
        }
        kn_row_done(share, r);
        kn_row_done(share, r + 1);
    }
    if (r < share->hi)
        copy_one(to, from(arg, r), bytes);
}
