/*
 * Large writes past the page cache, through a buffer that is aligned as O_DIRECT needs it.
 *
 * An ordinary write of a checkpoint fills the page cache with bytes that nobody reads, in place of
 * the data set's, and costs the rank's cores more than the copy: the kernel has to find, clear and
 * later write back as many pages. Of a direct write they do little but wait.
 *
 * Only blocks that lie wholly inside a write go directly, so a block is never written in both ways,
 * nor directly by two ranks. The ends are ordinary writes, as is everything on a file system that
 * refuses.
 */
#ifndef TRAINER_BOUNCE_H
#define TRAINER_BOUNCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TR_BOUNCE_BYTES = 1 << 20, /* of the buffer: what is written at a time */
    TR_BOUNCE_ALIGN = 4096     /* of its address */
};

struct tr_bounce {
    void *buffer; /* borrowed */
    bool refused; /* by the file system: all writes are ordinary from then on */
};

/* Write SIZE bytes at byte AT of the file, ordinarily; 0 or a negative errno. */
int tr_write_at(int fd, const void *in, size_t size, uint64_t at);

/* The same, directly where it is worth it. The flags of FD but for access and closing on exec are
 * none before and after. BOUNCE and FD are not in use by another thread. */
int tr_bounce_write(struct tr_bounce *bounce, int fd, const void *in, size_t size, uint64_t at);

#endif
