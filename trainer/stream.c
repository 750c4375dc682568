/* Token ids in a mapped file: any type of id, checked block by block and id by id as they are read.
 */
#include "trainer/dataset.h"

#include "base/base.h"

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
#include <zlib.h>

const char *const tr_id_names[TR_IDS + 1] = {"u8", "i8", "u16", "i16", "u32", "i32", "i64", NULL};
const char *const tr_split_names[TR_SPLITS + 1] = {"train", "validation", NULL};

size_t tr_id_bytes(enum tr_id t)
{
    static const size_t bytes[TR_IDS] = {1, 1, 2, 2, 4, 4, 8};

    return bytes[t];
}

static int map_fd(struct tr_stream *s, int fd, const char *path, uint64_t whole, struct err *e)
{
    size_t each = tr_id_bytes(s->id);
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    s->bytes = (size_t)st.st_size;
    s->tokens = s->bytes / each;
    if (whole && whole != s->tokens)
        return err_set(e, -EBADMSG, "%s is %s: %zu bytes where %" PRIu64 " ids of %zu bytes belong",
                       path, whole > s->tokens ? "truncated" : "too long", s->bytes, whole, each);
    if (s->bytes % each)
        return err_set(e, -EBADMSG, "%s: %zu bytes are not whole ids of %zu bytes", path, s->bytes,
                       each);
    if (s->bytes == 0)
        return 0;
    s->map = mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (s->map == MAP_FAILED) {
        s->map = NULL;
        return err_set(e, -errno, "map %s: %s", path, strerror(errno));
    }
    return 0;
}

int tr_stream_map(struct tr_stream *s, const char *path, enum tr_id id, uint64_t whole,
                  struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), r;

    *s = (struct tr_stream){.id = id};
    if (fd < 0)
        return err_set(e, -errno, "open %s: %s", path, strerror(errno));
    s->path = mem_strdup(path);
    r = map_fd(s, fd, path, whole, e);
    close(fd);
    if (r < 0)
        tr_stream_done(s);
    return r;
}

void tr_stream_done(struct tr_stream *s)
{
    if (s->map)
        munmap((void *)(uintptr_t)s->map, s->bytes);
    free(s->path);
    free(s->sum);
    free(s->seen);
    *s = (struct tr_stream){0};
}

/*
 * Reading a page of the mapping that the file no longer has raises SIGBUS, whose default is death
 * without a word. Here it ends the read instead. A thread reads one stream at a time.
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

static int check_block(const struct tr_stream *s, size_t block, struct err *e)
{
    size_t at = block * TR_BLOCK, n = s->bytes - at < TR_BLOCK ? s->bytes - at : TR_BLOCK;
    uint32_t sum = (uint32_t)crc32(0, s->map + at, (uInt)n);

    if (sum != s->sum[block])
        return err_set(e, -EBADMSG, "%s is damaged in the %zu bytes at offset %zu", s->path, n, at);
    __atomic_store_n(&s->seen[block], 1,
                     __ATOMIC_RELAXED); /* threads may both check it: harmless */
    return 0;
}

static int check_blocks(const struct tr_stream *s, size_t from, size_t to, struct err *e)
{
    for (size_t b = from / TR_BLOCK; s->sum && b * TR_BLOCK < to; b++) {
        int r = __atomic_load_n(&s->seen[b], __ATOMIC_RELAXED) ? 0 : check_block(s, b, e);

        if (r < 0)
            return r;
    }
    return 0;
}

static int64_t id_at(const struct tr_stream *s, const unsigned char *p)
{
    union {
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
    } v = {0};

    if (s->id == TR_ID_U8)
        return *p;
    memcpy(&v, p, tr_id_bytes(s->id)); /* ids of a prefix may be unaligned */
    switch (s->id) {
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

static int read_ids(const struct tr_stream *s, int32_t *out, uint64_t at, size_t n, int vocab,
                    struct err *e)
{
    size_t each = tr_id_bytes(s->id), from = (size_t)(s->first + at) * each;
    int r;

    assert(at <= s->tokens && n <= s->tokens - at);
    r = check_blocks(s, from, from + n * each, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        int64_t id = id_at(s, s->map + from + i * each);

        if (id < 0 || id >= vocab)
            return err_set(e, -ERANGE,
                           "%s: token %" PRIu64 " (byte %zu) has the id %" PRId64
                           ", outside the vocabulary of %d",
                           s->path, s->first + at + i, from + i * each, id, vocab);
        out[i] = (int32_t)id;
    }
    return 0;
}

int tr_stream_read(const struct tr_stream *s, int32_t *out, uint64_t at, size_t n, int vocab,
                   struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigjmp_buf back;
    int r;

    pthread_once(&once, catch_bus_errors);
    if (sigsetjmp(back, 1)) {
        reading = NULL;
        return err_set(e, -EBADMSG, "%s was truncated while it was read: it had %zu bytes", s->path,
                       s->bytes);
    }
    reading = &back;
    r = read_ids(s, out, at, n, vocab, e);
    reading = NULL;
    return r;
}
