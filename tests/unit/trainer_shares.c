/*
 * Checksums of what several ranks write, made from memory, are those of the bytes that are read
 * back; and writes past the page cache are the bytes of ordinary ones, also on file systems that
 * refuse them.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "tests/unit/unit.h"
#include "trainer/bounce.h"
#include "trainer/crc.h"
#include "trainer/shares.h"

/* ---- a file system of a kind --------------------------------------------- */

static enum { AS_IT_IS, NO_FLAG, NO_WRITE, NO_MEMORY, SHORT } kind;
static bool direct;      /* F_SETFL has said so */
static long asked, done; /* for direct writes; of them, bytes */

int __real_fcntl(int fd, int cmd, long arg);
int __wrap_fcntl(int fd, int cmd, long arg);
int __wrap_fcntl(int fd, int cmd, long arg)
{
    if (cmd == F_SETFL && arg & O_DIRECT) {
        asked++;
        if (kind == NO_FLAG) {
            errno = EINVAL;
            return -1;
        }
    }
    if (cmd == F_SETFL)
        direct = arg & O_DIRECT;
    return __real_fcntl(fd, cmd, arg);
}

int __wrap_fcntl64(int fd, int cmd, long arg);
int __wrap_fcntl64(int fd, int cmd, long arg)
{
    return __wrap_fcntl(fd, cmd, arg);
}

ssize_t __real_pwrite(int fd, const void *in, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *in, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *in, size_t size, off_t at)
{
    if (direct && (kind == NO_WRITE || kind == NO_MEMORY)) {
        errno = kind == NO_WRITE ? EINVAL : EFAULT;
        return -1;
    }
    if (direct) {
        assert_int_equal((uintptr_t)in % TR_BOUNCE_ALIGN, 0);
        assert_int_equal(size % TR_BOUNCE_ALIGN, 0);
        assert_int_equal(at % TR_BOUNCE_ALIGN, 0);
        done += (long)size;
    }
    return __real_pwrite(fd, in, direct && kind == SHORT ? size / 2 + 512 : size, at);
}

static struct rng random_of;

static size_t below(size_t n)
{
    return (size_t)rng_below(&random_of, n);
}

static void fill(void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t word = rng_u64(&random_of);

        memcpy((char *)bytes + i, &word, size - i < sizeof(word) ? size - i : sizeof(word));
    }
}

static struct tr_bounce bounce_new(void)
{
    struct tr_bounce bounce = {.refused = false};

    assert_int_equal(posix_memalign(&bounce.buffer, TR_BOUNCE_ALIGN, TR_BOUNCE_BYTES), 0);
    return bounce;
}

/* ---- shares -------------------------------------------------------------- */

enum { RANKS = 4, TENSORS = 6, FILES = 2 };

/* How a tensor is divided over the ranks. */
enum split { ROWS, COLUMNS, SLICES, SLICES_OF_COLUMNS, SPLITS };

struct drawn {
    enum split split;
    int64_t rows, cols;
    int64_t cut[RANKS + 1]; /* of slices */
};

static void draw(struct drawn *ret)
{
    int64_t size;

    ret->split = (enum split)below(SPLITS);
    ret->rows = 1 + (int64_t)below(below(2) ? 9 : 900);
    ret->cols = RANKS + 1 + (int64_t)below(below(2) ? 9 : 900);
    size = ret->rows * ret->cols;
    ret->cut[0] = 0;
    for (int i = 1; i < RANKS; i++)
        ret->cut[i] = ret->cut[i - 1] + (int64_t)below((size_t)(size - ret->cut[i - 1]) + 1);
    ret->cut[RANKS] = size;
}

/* What RANK has of a tensor, with random numbers, which the caller frees. */
static struct tr_part part_of(const struct drawn *drawn, int rank)
{
    struct tr_part part = {.rows = drawn->rows, .cols = drawn->cols, .dtype = TR_F32};
    int64_t half, from = 0, to;

    if (drawn->split == ROWS) {
        part.rows = (drawn->rows + RANKS - 1) / RANKS;
        part.row0 = rank * part.rows;
    } else if (drawn->split == COLUMNS) {
        part.cols = (drawn->cols + RANKS - 1) / RANKS;
        part.col0 = rank * part.cols;
    } else if (drawn->split == SLICES_OF_COLUMNS) {
        part.cols = (drawn->cols + 1) / 2;
        part.col0 = rank / 2 * part.cols;
    }
    to = part.rows * part.cols;
    half = to < drawn->cut[1] ? to : drawn->cut[1];
    if (drawn->split == SLICES) {
        from = drawn->cut[rank];
        to = drawn->cut[rank + 1];
    } else if (drawn->split == SLICES_OF_COLUMNS) {
        from = rank % 2 ? half : 0;
        to = rank % 2 ? to : half;
    }
    part.first = from;
    part.count = to - from;
    part.data = mem_alloc((size_t)part.count * sizeof(float) + 1);
    fill(part.data, (size_t)part.count * sizeof(float));
    return part;
}

static void describe(struct tr_archive *archive, const char *folder, const struct drawn *drawn)
{
    archive->file = mem_alloc(sizeof(*archive->file) * FILES);
    for (int f = 0; f < FILES; f++) {
        AUTO_FREE char *path = mem_printf("%s/f%d", folder, f);
        struct tr_st *file = archive->file[archive->count++] = tr_st_new(path, NULL);

        for (int i = f; i < TENSORS; i += FILES) {
            char name[16];
            int64_t shape[2] = {drawn[i].rows, drawn[i].cols};

            snprintf(name, sizeof(name), "t%d", i);
            tr_st_add(file, name, TR_F32, 2, shape);
        }
    }
}

/* What RANK does of a save. */
static void put(const char *folder, const struct drawn *drawn, int rank, struct tr_bounce *bounce)
{
    struct tr_archive archive = {0};
    struct err e = {0};
    int first = (int)below(TENSORS);

    describe(&archive, folder, drawn);
    archive.shares = tr_shares_new(&archive);
    assert_int_equal(rank ? tr_archive_attach(&archive, &e) : tr_archive_create(&archive, &e), 0);
    for (size_t f = 0; f < archive.count; f++)
        archive.file[f]->bounce = bounce;
    for (int i = 0; i < TENSORS; i++) { /* in another order than theirs in the files */
        int which = (first + 5 * i) % TENSORS;
        struct tr_part part = part_of(&drawn[which], rank);
        char name[8];

        snprintf(name, sizeof(name), "t%d", which);
        if (tr_archive_put(&archive, name, &part, &e) < 0)
            fail_msg("%s", e.text);
        free(part.data);
    }
    if (rank == 0)
        tr_shares_headers(archive.shares, &archive);
    assert_int_equal(tr_shares_leave(archive.shares, folder, rank, &e), 0);
    tr_archive_done(&archive);
}

static void flip(const char *path, off_t at)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);

    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void sums_of_shares_are_those_of_the_bytes(void **state)
{
    struct tr_bounce bounce = bounce_new();

    (void)state;
    for (uint64_t round = 0; round < 24; round++) {
        AUTO_FREE char *folder = unit_folder("shares");
        AUTO_FREE uint32_t *sums = NULL;
        struct drawn drawn[TENSORS];
        struct tr_archive archive = {0};
        struct err e = {0};
        const struct tr_st *file;

        rng_seed(&random_of, round);
        for (int i = 0; i < TENSORS; i++)
            draw(&drawn[i]);
        for (int rank = 0; rank < RANKS; rank++)
            put(folder, drawn, rank, round % 2 ? &bounce : NULL);
        describe(&archive, folder, drawn);
        assert_int_equal(tr_archive_attach(&archive, &e), 0);
        sums = mem_alloc(tr_archive_pieces(&archive) * sizeof(*sums));
        if (tr_shares_collect(sums, &archive, folder, RANKS, &e) < 0 ||
            tr_archive_verify(&archive, sums, 0, 1, &e) < 0)
            fail_msg("round %d: %s", (int)round, e.text);
        file = archive.file[round % FILES];
        flip(file->path, (off_t)below((size_t)(file->data_at + file->data_bytes)));
        assert_int_equal(tr_archive_verify(&archive, sums, 0, 1, &e), -EBADMSG);
        tr_archive_done(&archive);
        file_remove_tree(folder, NULL);
    }
    free(bounce.buffer);
}

static void a_damaged_or_missing_share_is_an_error(void **state)
{
    AUTO_FREE char *folder = unit_folder("damaged");
    AUTO_FREE char *path = mem_printf("%s/shares.00002", folder);
    AUTO_FREE uint32_t *sums = NULL;
    struct drawn drawn[TENSORS];
    struct tr_archive archive = {0};
    struct err e = {0};

    (void)state;
    for (int i = 0; i < TENSORS; i++)
        draw(&drawn[i]);
    for (int rank = 0; rank < RANKS; rank++)
        put(folder, drawn, rank, NULL);
    describe(&archive, folder, drawn);
    assert_int_equal(tr_archive_attach(&archive, &e), 0);
    sums = mem_alloc(tr_archive_pieces(&archive) * sizeof(*sums));
    flip(path, 5);
    assert_int_equal(tr_shares_collect(sums, &archive, folder, RANKS, &e), -EBADMSG);
    for (int rank = 0; rank < RANKS - 1; rank++)
        put(folder, drawn, rank, NULL);
    unlink(path);
    assert_int_equal(tr_shares_collect(sums, &archive, folder, RANKS, &e), -ENOENT);
    tr_archive_done(&archive);
    file_remove_tree(folder, NULL);
}

/* ---- direct writes ------------------------------------------------------- */

enum { SPACE = 4 << 20 };

/* Random writes of FOLDER's file, each also into IMAGE; then they are compared. */
static void write_some(const char *folder, struct tr_bounce *bounce)
{
    AUTO_FREE char *path = mem_printf("%s/direct", folder);
    AUTO_FREE char *image = mem_alloc(SPACE), *in = mem_alloc(SPACE), *got = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    size_t n = 0;
    struct err e = {0};

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, SPACE), 0);
    for (int i = 0; i < 24; i++) {
        size_t at = below(SPACE), size = below((i % 3 ? 300000 : SPACE) + 1);

        size = size < SPACE - at ? size : SPACE - at;
        fill(in, size);
        memcpy(image + at, in, size);
        assert_int_equal(tr_bounce_write(bounce, fd, in, size, at), 0);
        assert_false(__real_fcntl(fd, F_GETFL, 0) & O_DIRECT);
    }
    close(fd);
    if (file_read_all(&got, &n, path, SPACE, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(n, SPACE);
    assert_memory_equal(got, image, SPACE);
    unlink(path);
}

static void direct_writes_are_the_bytes_of_ordinary_ones(void **state)
{
    AUTO_FREE char *folder = unit_folder("bounce");
    const char *folders[] = {folder, "/dev/shm"};

    (void)state;
    rng_seed(&random_of, 7);
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        for (kind = AS_IT_IS; kind <= SHORT; kind++) {
            AUTO_FREE char *own = mem_printf("%s/shares-test.%ld", folders[i], (long)getpid());
            struct tr_bounce bounce = bounce_new();

            if (mkdir(own, 0755) < 0) /* no such file system here */
                continue;
            asked = done = 0;
            write_some(own, &bounce);
            assert_true(asked > 0);
            if (kind != AS_IT_IS && kind != SHORT) /* it asks once */
                assert_true(bounce.refused && asked == 1 && done == 0);
            file_remove_tree(own, NULL);
            free(bounce.buffer);
        }
    kind = AS_IT_IS;
    file_remove_tree(folder, NULL);
}

/* In pieces of any length at any address. */
static void crc_is_zlibs(void **state)
{
    enum { MOST = 1 << 16 };
    AUTO_FREE unsigned char *bytes = mem_alloc(MOST);

    (void)state;
    rng_seed(&random_of, 11);
    for (size_t i = 0; i < MOST; i++)
        bytes[i] = (unsigned char)rng_u64(&random_of);
    for (int round = 0; round < 500; round++) {
        size_t from = (size_t)rng_below(&random_of, MOST),
               n = (size_t)rng_below(&random_of, round % 2 ? 300 : MOST - from) % (MOST - from),
               head = (size_t)rng_below(&random_of, n + 1);
        uint32_t want = (uint32_t)crc32_z(0, bytes + from, n),
                 first = tr_crc32(0, bytes + from, head),
                 last = tr_crc32(0, bytes + from + head, n - head);

        assert_int_equal(tr_crc32(0, bytes + from, n), want);
        assert_int_equal(tr_crc32(first, bytes + from + head, n - head), want);
        assert_int_equal(tr_crc32_combine(first, last, n - head), want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_is_zlibs),
        cmocka_unit_test(sums_of_shares_are_those_of_the_bytes),
        cmocka_unit_test(a_damaged_or_missing_share_is_an_error),
        cmocka_unit_test(direct_writes_are_the_bytes_of_ordinary_ones),
    };

    return cmocka_run_group_tests_name("checksums of shares", tests, NULL, NULL);
}
