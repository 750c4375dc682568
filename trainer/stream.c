/* Token ids in a mapped file: any type of id, checked block by block and id by id as they are read.
 */
#include "trainer/dataset.h"

#include "base/base.h"
#include "trainer/crc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const tr_id_names[TR_IDS + 1] = {"u8", "i8", "u16", "i16", "u32", "i32", "i64", NULL};
const char *const tr_split_names[TR_SPLITS + 1] = {"train", "validation", NULL};

size_t tr_id_bytes(enum tr_id id)
{
    static const size_t bytes[TR_IDS] = {1, 1, 2, 2, 4, 4, 8};

    return bytes[id];
}

static int map_fd(struct tr_stream *stream, int fd, const char *path, uint64_t whole,
                  struct err *error)
{
    size_t each = tr_id_bytes(stream->id);
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_set(error, -errno, "%s: %s", path, strerror(errno));
    stream->bytes = (size_t)st.st_size;
    stream->tokens = stream->bytes / each;
    if (whole && whole != stream->tokens)
        return err_set(
            error, -EBADMSG, "%s is %s: %zu bytes where %" PRIu64 " ids of %zu bytes belong", path,
            whole > stream->tokens ? "truncated" : "too long", stream->bytes, whole, each);
    if (stream->bytes % each)
        return err_set(error, -EBADMSG, "%s: %zu bytes are not whole ids of %zu bytes", path,
                       stream->bytes, each);
    if (stream->bytes == 0)
        return 0;
    stream->map = mmap(NULL, stream->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (stream->map == MAP_FAILED) {
        stream->map = NULL;
        return err_set(error, -errno, "map %s: %s", path, strerror(errno));
    }
    return 0;
}

int tr_stream_map(struct tr_stream *stream, const char *path, enum tr_id id, uint64_t whole,
                  struct err *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), r;

    *stream = (struct tr_stream){.id = id};
    if (fd < 0)
        return err_set(error, -errno, "open %s: %s", path, strerror(errno));
    stream->path = mem_strdup(path);
    r = map_fd(stream, fd, path, whole, error);
    close(fd);
    if (r < 0)
        tr_stream_done(stream);
    return r;
}

void tr_stream_done(struct tr_stream *stream)
{
    if (stream->map)
        munmap((void *)(uintptr_t)stream->map, stream->bytes);
    free(stream->path);
    free(stream->sum);
    free(stream->seen);
    *stream = (struct tr_stream){0};
}

/*
 * Reading a page of the mapping that the file no longer has raises SIGBUS, which by default ends
 * the process without a message. Here it ends the read instead. A thread reads one stream at a
 * time.
 */
static _Thread_local sigjmp_buf *reading;

static void on_bus_error(int sig)
{
    if (reading)
        siglongjmp(*reading, 1);
    signal(sig, SIG_DFL); /* not ours: the instruction is tried again and ends the process */
}

static void catch_bus_errors(void)
{
    struct sigaction act = {.sa_handler = on_bus_error};

    sigaction(SIGBUS, &act, NULL);
}

static int check_block(const struct tr_stream *stream, size_t block, struct err *error)
{
    size_t at = block * TR_BLOCK, n = stream->bytes - at < TR_BLOCK ? stream->bytes - at : TR_BLOCK;
    uint32_t sum = tr_crc32(0, stream->map + at, n);

    if (sum != stream->sum[block])
        return err_set(error, -EBADMSG, "%s is damaged in the %zu bytes at offset %zu",
                       stream->path, n, at);
    __atomic_store_n(&stream->seen[block], 1,
                     __ATOMIC_RELAXED); /* threads may both check it: harmless */
    return 0;
}

static int check_blocks(const struct tr_stream *stream, size_t from, size_t to, struct err *error)
{
    for (size_t b = from / TR_BLOCK; stream->sum && b * TR_BLOCK < to; b++) {
        int r =
            __atomic_load_n(&stream->seen[b], __ATOMIC_RELAXED) ? 0 : check_block(stream, b, error);

        if (r < 0)
            return r;
    }
    return 0;
}

static int64_t id_at(const struct tr_stream *stream, const unsigned char *bytes)
{
    union {
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
    } v = {0};

    if (stream->id == TR_ID_U8)
        return *bytes;
    memcpy(&v, bytes, tr_id_bytes(stream->id)); /* ids of a prefix may be unaligned */
    switch (stream->id) {
    case TR_ID_I8:
        return v.i8;
    case TR_ID_U16:
        return v.u16;
    case TR_ID_I16:
        return v.i16;
    case TR_ID_U32:
        return v.u32;
    case TR_ID_I32:
        return v.i32;
    default:
        return v.i64;
    }
}

static int read_ids(int32_t *ret, const struct tr_stream *stream, uint64_t at, size_t count,
                    int vocab, struct err *error)
{
    size_t each = tr_id_bytes(stream->id), from = (size_t)(stream->first + at) * each;
    int r;

    assert(at <= stream->tokens && count <= stream->tokens - at);
    assert(from + count * each <= stream->bytes);
    r = check_blocks(stream, from, from + count * each, error);
    if (r < 0)
        return r;
    for (size_t i = 0; i < count; i++) {
        int64_t id = id_at(stream, stream->map + from + i * each);

        if (id < 0 || id >= vocab)
            return err_set(error, -ERANGE,
                           "%s: token %" PRIu64 " (byte %zu) has the id %" PRId64
                           ", outside the vocabulary of %d",
                           stream->path, stream->first + at + i, from + i * each, id, vocab);
        ret[i] = (int32_t)id;
    }
    return 0;
}

int tr_stream_read(int32_t *ret, const struct tr_stream *stream, uint64_t at, size_t count,
                   int vocab, struct err *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigjmp_buf back;
    int r;

    pthread_once(&once, catch_bus_errors);
    if (sigsetjmp(back, 1)) {
        reading = NULL;
        return err_set(error, -EBADMSG, "%s was truncated while it was read: it had %zu bytes",
                       stream->path, stream->bytes);
    }
    reading = &back;
    r = read_ids(ret, stream, at, count, vocab, error);
    reading = NULL;
    return r;
}

void tr_stream_ahead(const struct tr_stream *stream, uint64_t at, size_t count)
{
    size_t each = tr_id_bytes(stream->id), from = (size_t)(stream->first + at) * each;
    size_t to = from + count * each;

    assert(at <= stream->tokens && count <= stream->tokens - at);
    from -= from % TR_BLOCK; /* the mapping begins with the file: a multiple of the page, too */
    to = to + TR_BLOCK - 1 - (to + TR_BLOCK - 1) % TR_BLOCK;
    if (to > stream->bytes)
        to = stream->bytes;
    madvise((void *)(uintptr_t)(stream->map + from), to - from, MADV_WILLNEED);
}
