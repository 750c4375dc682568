/* The thread that reads samples before they are needed: that it does, that nothing depends on it,
 * and that it survives files that shrink and requests that come too fast. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "trainer/prefetch.h"
#include "trainer/prepare.h"

enum { SEQ = 64, BYTES = 32 << 20, MOST = 8, TRIES = 2000 };

/* A data set of random bytes; the path of its training tokens. */
static char *make_set(const char *dir, size_t bytes)
{
    AUTO_FREE char *text = mem_alloc(bytes), *parent = mem_printf("%s/datasets", dir),
                   *out = mem_printf("%s/t", parent), *in = mem_printf("%s/ids", dir);
    const char *path[] = {in};
    struct tr_prepare plan = {.folder = out,
                              .name = "t",
                              .path = path,
                              .npaths = 1,
                              .id = TR_ID_U16,
                              .vocab = 65536,
                              .seed = 1};
    struct tr_prepared done;
    struct rng r;
    struct err e = {0};

    rng_seed(&r, 8);
    for (size_t i = 0; i < bytes; i++)
        text[i] = (char)rng_u64(&r);
    file_mkdirs(parent, 0700, NULL);
    if (file_write_atomic(in, text, bytes, 0600, &e) < 0)
        fail_msg("%s", e.text);
    if (tr_prepare(&done, &plan, &e) < 0)
        fail_msg("%s", e.text);
    return mem_printf("%s/train.bin", out);
}

static struct tr_tokens *open_set(const char *dir)
{
    struct tr_tokens *tokens = NULL;
    struct tr_sources sources;
    struct err e = {0};

    if (tr_sources_text(&sources, "t", &e) < 0 ||
        tr_tokens_open(&tokens, dir, &sources, 65536, SEQ, 1, &e) < 0)
        fail_msg("%s", e.text);
    tr_sources_done(&sources);
    return tokens;
}

static void drop(const char *path)
{
    int fd = open(path, O_RDONLY);

    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* Pages of the file that are in memory, without reading any. */
static size_t resident(const char *path)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0, pages;
    int fd = open(path, O_RDONLY);
    struct stat st;
    void *map;

    assert_int_equal(fstat(fd, &st), 0);
    pages = ((size_t)st.st_size + page - 1) / page;
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    AUTO_FREE unsigned char *in = mem_alloc(pages);
    assert_int_equal(mincore(map, (size_t)st.st_size, in), 0);
    for (size_t i = 0; i < pages; i++)
        n += in[i] & 1;
    munmap(map, (size_t)st.st_size);
    close(fd);
    return n;
}

static void pages_come_without_a_reader(void **state)
{
    AUTO_FREE char *dir = unit_folder("prefetch"), *path = make_set(dir, BYTES);
    struct tr_tokens *tokens = open_set(dir);
    AUTO(tr_prefetch) *prefetch = tr_prefetch_new(tokens, SEQ, MOST);
    uint64_t index[MOST];
    size_t before, tries = 0;

    (void)state;
    assert_non_null(prefetch);
    for (uint64_t i = 0; i < MOST; i++)
        index[i] = 1000 + i;
    drop(path);
    before = resident(path);
    if (before) /* a file system that is memory */
        skip();
    tr_prefetch_ask(prefetch, index, MOST);
    /* The blocks of a checksum, of which two samples rarely share one. */
    while (resident(path) < MOST / 2 * (size_t)(TR_BLOCK / sysconf(_SC_PAGESIZE)) &&
           tries++ < TRIES)
        usleep(5000);
    assert_true(tries < TRIES);
    prefetch = tr_prefetch_free(prefetch);
    tr_tokens_free(tokens);
    file_remove_tree(dir, NULL);
}

/* With a thread that is asked for these and for others, the bytes are those without one. */
static void samples_are_the_same_with_and_without(void **state)
{
    AUTO_FREE char *dir = unit_folder("prefetch"), *path = make_set(dir, 1 << 20);
    struct tr_tokens *alone = open_set(dir), *ahead = open_set(dir);
    AUTO(tr_prefetch) *prefetch = tr_prefetch_new(ahead, SEQ, MOST);
    int32_t x[SEQ + 1], y[SEQ + 1];
    struct err e = {0};

    (void)state;
    drop(path);
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t index[MOST];
        int n = (int)(i % (MOST + 1));

        for (int k = 0; k < n; k++)
            index[k] = i + (uint64_t)k * 7919;
        tr_prefetch_ask(prefetch, index, n);
        assert_int_equal(tr_tokens_sample(x, alone, TR_SPLIT_TRAIN, i, &e), 0);
        assert_int_equal(tr_tokens_sample(y, ahead, TR_SPLIT_TRAIN, i, &e), 0);
        assert_memory_equal(x, y, sizeof(x));
    }
    prefetch = tr_prefetch_free(prefetch);
    tr_tokens_free(alone);
    tr_tokens_free(ahead);
    file_remove_tree(dir, NULL);
}

/* The pages that the file has no more raise SIGBUS in both threads; the reader has the error. */
static void a_truncated_file_is_the_readers_error(void **state)
{
    AUTO_FREE char *dir = unit_folder("prefetch"), *path = make_set(dir, 1 << 20);
    struct tr_tokens *tokens = open_set(dir);
    AUTO(tr_prefetch) *prefetch = tr_prefetch_new(tokens, SEQ, MOST);
    uint64_t index[MOST];
    int32_t x[SEQ + 1];
    struct err e = {0};

    (void)state;
    assert_int_equal(truncate(path, 4096), 0);
    for (uint64_t i = 0; i < 200; i++) {
        for (uint64_t k = 0; k < MOST; k++)
            index[k] = i * MOST + k;
        tr_prefetch_ask(prefetch, index, MOST);
        assert_int_equal(tr_tokens_sample(x, tokens, TR_SPLIT_TRAIN, i, &e), -EBADMSG);
        assert_non_null(strstr(e.text, "truncated while it was read"));
    }
    prefetch = tr_prefetch_free(prefetch);
    tr_tokens_free(tokens);
    file_remove_tree(dir, NULL);
}

static void it_ends_at_any_time(void **state)
{
    AUTO_FREE char *dir = unit_folder("prefetch"), *path = make_set(dir, 1 << 20);
    struct tr_tokens *tokens = open_set(dir);
    static const uint64_t index[MOST] = {1, 2, 3, 4, 5, 6, 7, 8};

    (void)state;
    for (int i = 0; i < 300; i++) {
        struct tr_prefetch *prefetch = tr_prefetch_new(tokens, SEQ, MOST);

        drop(path);
        for (int k = 0; k < i % 4; k++)
            tr_prefetch_ask(prefetch, index, MOST);
        assert_null(tr_prefetch_free(prefetch));
    }
    tr_tokens_free(tokens);
    file_remove_tree(dir, NULL);
}

static void nothing_is_fetched_of_what_has_no_files(void **state)
{
    struct tr_sources sources;
    struct tr_tokens *tokens = NULL;
    static const uint64_t index[] = {1};
    struct err e = {0};

    (void)state;
    assert_int_equal(tr_sources_text(&sources, "synthetic", &e), 0);
    assert_int_equal(tr_tokens_open(&tokens, "/nowhere", &sources, 97, SEQ, 1, &e), 0);
    assert_null(tr_prefetch_new(tokens, SEQ, MOST));
    tr_prefetch_ask(NULL, index, 1);
    tr_tokens_free(tokens);
    tr_sources_done(&sources);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: cmocka takes SIGBUS again for each test, and the reader only once. */
        cmocka_unit_test(a_truncated_file_is_the_readers_error),
        cmocka_unit_test(pages_come_without_a_reader),
        cmocka_unit_test(samples_are_the_same_with_and_without),
        cmocka_unit_test(it_ends_at_any_time),
        cmocka_unit_test(nothing_is_fetched_of_what_has_no_files),
    };

    return cmocka_run_group_tests_name("prefetch", tests, NULL, NULL);
}
