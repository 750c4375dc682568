#include "trainer/bounce.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { LEAST = 64 << 10 }; /* bytes: a direct write waits for the disk, whatever its size */

int tr_write_at(int fd, const void *in, size_t size, uint64_t at)
{
    const char *p = in;

    while (size) {
        ssize_t put = pwrite(fd, p, size, (off_t)at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        p += put;
        at += (uint64_t)put;
        size -= (size_t)put;
    }
    return 0;
}

/* A file's blocks, and its pages in the cache, lie in these. A file system whose blocks are larger
 * refuses. */
static uint64_t block_bytes(void)
{
    long page = sysconf(_SC_PAGESIZE);

    return page > TR_BOUNCE_ALIGN ? (uint64_t)page : TR_BOUNCE_ALIGN;
}

/* A direct write failed since it is one. EFAULT: the buffer's memory, which a driver may have
 * mapped, is none that a disk can read. */
static bool refuses(int code)
{
    return code == EINVAL || code == EOPNOTSUPP || code == EFAULT;
}

/* Whole blocks, as many as the file system takes; RET_WRITTEN bytes of them. FD is direct. */
static int write_blocks(size_t *ret_written, struct tr_bounce *bounce, int fd, const char *in,
                        size_t size, uint64_t at)
{
    size_t written = 0;
    int r = 0;

    while (written < size && !bounce->refused && r == 0) {
        size_t some = size - written < TR_BOUNCE_BYTES ? size - written : TR_BOUNCE_BYTES;
        ssize_t put;

        memcpy(bounce->buffer, in + written, some);
        put = pwrite(fd, bounce->buffer, some, (off_t)(at + written));
        if (put < 0 && errno != EINTR && !refuses(errno))
            r = -errno;
        /* What is left of a short write may begin anywhere. */
        bounce->refused = put < 0 ? refuses(errno) : (size_t)put < some;
        written += put > 0 ? (size_t)put : 0;
    }
    *ret_written = written;
    return r;
}

int tr_bounce_write(struct tr_bounce *bounce, int fd, const void *in, size_t size, uint64_t at)
{
    uint64_t block = block_bytes(), from = (at + block - 1) / block * block,
             to = (at + size) / block * block;
    size_t head, direct = 0;
    const char *p = in;
    int r;

    assert((uintptr_t)bounce->buffer % TR_BOUNCE_ALIGN == 0);
    if (bounce->refused || to < from + LEAST)
        return tr_write_at(fd, in, size, at);
    head = (size_t)(from - at);
    if (fcntl(fd, F_SETFL, O_DIRECT) < 0) {
        bounce->refused = true;
        return tr_write_at(fd, in, size, at);
    }
    r = write_blocks(&direct, bounce, fd, p + head, (size_t)(to - from), from);
    if (fcntl(fd, F_SETFL, 0) < 0 && r == 0)
        r = -errno;
    if (r == 0)
        r = tr_write_at(fd, p, head, at);
    if (r == 0)
        r = tr_write_at(fd, p + head + direct, size - head - direct, from + direct);
    return r;
}
