/* Token streams: the order of samples, data sets made from files, Megatron's index, and what is
 * refused. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <zlib.h>

#include "trainer/megatron.h"
#include "trainer/prepare.h"
#include "trainer/tokens.h"

static char *write_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char *path = mem_printf("%s/%s", dir, name);
    struct err e = {0};

    if (file_mkdirs(dir, 0700, &e) < 0 || file_write_atomic(path, bytes, n, 0600, &e) < 0)
        fail_msg("%s", e.text);
    return path;
}

/* What TEXT names, opened. */
static int open_tokens(struct tr_tokens **ret, const char *dir, const char *text, int vocab,
                       int seq, uint64_t seed, struct err *e)
{
    struct tr_sources sources;
    int r = tr_sources_text(&sources, text, e);

    if (r < 0)
        return r;
    r = tr_tokens_open(ret, dir, &sources, vocab, seq, seed, e);
    tr_sources_done(&sources);
    return r;
}

/* ---- order --------------------------------------------------------------- */

static void the_order_is_a_permutation(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        for (uint64_t key = 0; key < 3; key++) {
            AUTO_FREE unsigned char *hit = mem_alloc(sizes[k]);

            for (uint64_t i = 0; i < sizes[k]; i++) {
                uint64_t j = tr_permute_index(i, sizes[k], key);

                assert_true(j < sizes[k]);
                assert_int_equal(hit[j], 0);
                hit[j] = 1;
            }
        }
    }
}

/* Neighbors of a random permutation of n are n / 3 apart on average; within 5 standard errors of n
 * / sqrt(18 n). */
static void the_order_looks_random(void **state)
{
    enum { N = 10000 };
    double sum = 0, expected = N / 3.0, error = (double)N / sqrt(18.0 * N);

    (void)state;
    for (uint64_t i = 0; i + 1 < N; i++)
        sum += fabs((double)tr_permute_index(i, N, 42) - (double)tr_permute_index(i + 1, N, 42));
    assert_true(fabs(sum / (N - 1) - expected) < 5 * error);
}

static void large_orders_stay_inside(void **state)
{
    static const uint64_t sizes[] = {(UINT64_C(1) << 32) + 1, UINT64_C(1) << 40,
                                     UINT64_C(999999999989)};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
        for (uint64_t i = 0; i < 200; i++)
            assert_true(tr_permute_index(sizes[k] - 1 - i, sizes[k], i) < sizes[k]);
}

/* ---- synthetic ----------------------------------------------------------- */

static void the_synthetic_language_is_the_same_everywhere_and_not_constant(void **state)
{
    AUTO(tr_tokens) *a = NULL, *b = NULL;
    struct err e = {0};
    int32_t x[65], y[65], other[65];
    int follows = 0, different = 0;

    (void)state;
    assert_int_equal(open_tokens(&a, "/nowhere", "synthetic", 97, 64, 5, &e), 0);
    assert_int_equal(open_tokens(&b, "/elsewhere", "synthetic", 97, 64, 5, &e), 0);
    assert_true(tr_tokens_synthetic(a));
    for (uint64_t s = 0; s < 200; s++) {
        assert_int_equal(tr_tokens_sample(x, a, TR_SPLIT_TRAIN, s, &e), 0);
        assert_int_equal(tr_tokens_sample(y, b, TR_SPLIT_TRAIN, s, &e), 0);
        assert_memory_equal(x, y, sizeof(x));
        assert_int_equal(tr_tokens_sample(other, a, TR_SPLIT_VALIDATION, s, &e), 0);
        assert_true(memcmp(x, other, sizeof(x)) != 0);
        for (int i = 0; i < 65; i++)
            assert_true(x[i] >= 0 && x[i] < 97);
        for (int i = 1; i < 65; i++) {
            follows += x[i] == (5 * x[i - 1] + 7) % 97;
            different += x[i] != x[0];
        }
    }
    assert_true(follows >= 200 * 64 * 7 / 10); /* three of four, and chance */
    assert_true(follows <= 200 * 64 * 8 / 10);
    assert_true(different > 200 * 64 * 9 / 10);
}

/* ---- data sets ----------------------------------------------------------- */

static struct tr_prepare plan_of(const char *folder, const char *const *path, int n)
{
    return (struct tr_prepare){.folder = folder,
                               .name = "t",
                               .path = path,
                               .npaths = n,
                               .id = TR_ID_U8,
                               .vocab = 256,
                               .validation = 0.1,
                               .seed = 1};
}

static void text_comes_back_as_it_was(void **state)
{
    AUTO_FREE char *dir = unit_folder("tokens"), *in = mem_printf("%s/in put", dir),
                   *out = mem_printf("%s/set", dir);
    AUTO_FREE char *a = write_file(in, "a.txt", "hello", 5),
                   *b = write_file(in, "b.txt", "world!", 6);
    const char *path[] = {in};
    struct tr_prepare p = plan_of(out, path, 1);
    struct tr_prepared done;
    struct err e = {0};
    AUTO(tr_tokens) *t = NULL;
    int32_t x[13];
    char text[14] = "";

    (void)state;
    p.validation = 0;
    if (tr_prepare(&done, &p, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(done.files, 2);
    assert_int_equal(done.tokens[TR_SPLIT_TRAIN], 13);
    if (open_tokens(&t, dir, out, 256, 12, 1, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(tr_tokens_samples(t, TR_SPLIT_TRAIN), 1);
    assert_int_equal(tr_tokens_sample(x, t, TR_SPLIT_TRAIN, 77, &e), 0);
    for (int i = 0; i < 13; i++)
        text[i] = (char)x[i];
    assert_memory_equal(text, "hello\0world!\0", 13);
    file_remove_tree(dir, NULL);
}

static void packed_files_are_unpacked_and_binaries_skipped(void **state)
{
    AUTO_FREE char *dir = unit_folder("tokens"), *in = mem_printf("%s/in", dir),
                   *out = mem_printf("%s/set", dir);
    AUTO_FREE char *binary = write_file(in, "image", "\x89PNG\0\1\2", 7),
                   *packed = mem_printf("%s/z.gz", in);
    AUTO_FREE char *loop = mem_printf("%s/loop", in);
    gzFile z = gzopen(packed, "wb");
    const char *path[] = {in};
    struct tr_prepare p = plan_of(out, path, 1);
    struct tr_prepared done;
    struct err e = {0};

    (void)state;
    assert_int_equal(gzwrite(z, "packed text", 11), 11);
    gzclose(z);
    assert_int_equal(symlink(in, loop), 0);
    p.validation = 0;
    if (tr_prepare(&done, &p, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(done.files, 1);
    assert_int_equal(done.skipped, 1);
    assert_int_equal(done.tokens[TR_SPLIT_TRAIN], 12);
    assert_int_equal(truncate(packed, 20), 0);
    p.replace = true;
    assert_true(tr_prepare(&done, &p, &e) < 0);
    assert_non_null(strstr(e.text, "z.gz"));
    file_remove_tree(dir, NULL);
}

/* A data set of one file of N bytes of text; returns its folder. */
static char *make_set(const char *dir, size_t n, struct tr_prepared *done)
{
    AUTO_FREE char *text = mem_alloc(n), *in = NULL;
    char *out = mem_printf("%s/datasets/t", dir);
    AUTO_FREE char *parent = mem_printf("%s/datasets", dir);
    const char *path[1];
    struct tr_prepare p = plan_of(out, path, 1);
    struct rng r;
    struct err e = {0};

    rng_seed(&r, 4);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + rng_below(&r, 26));
    path[0] = in = write_file(dir, "in.txt", text, n);
    file_mkdirs(parent, 0700, NULL);
    p.replace = true;
    if (tr_prepare(done, &p, &e) < 0)
        fail_msg("%s", e.text);
    return out;
}

static void the_split_is_near_its_share_and_always_the_same(void **state)
{
    AUTO_FREE char *dir = unit_folder("tokens"), *out = NULL, *again = NULL;
    struct tr_prepared a, b;
    size_t n = 8 << 20; /* 2048 runs: a standard deviation of 0.0066 around the share */

    (void)state;
    out = make_set(dir, n, &a);
    again = make_set(dir, n, &b);
    assert_int_equal(a.tokens[0] + a.tokens[1], n + 1);
    assert_true(fabs((double)a.tokens[1] / (double)n - 0.1) < 5 * 0.0066);
    assert_memory_equal(a.tokens, b.tokens, sizeof(a.tokens));
    file_remove_tree(dir, NULL);
}

static void an_epoch_visits_every_sample_once_and_epochs_differ(void **state)
{
    AUTO_FREE char *dir = unit_folder("tokens"), *out = NULL;
    AUTO(tr_tokens) *t = NULL;
    struct tr_prepared done;
    struct err e = {0};
    uint64_t n, sum[2] = {0, 0}, same = 0;
    int32_t x[17], y[17];

    (void)state;
    out = make_set(dir, 200000, &done);
    if (open_tokens(&t, dir, "t", 256, 16, 3, &e) < 0)
        fail_msg("%s", e.text);
    n = tr_tokens_samples(t, TR_SPLIT_TRAIN);
    assert_int_equal(n, (done.tokens[0] - 1) / 16);
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(tr_tokens_sample(x, t, TR_SPLIT_TRAIN, i, &e), 0);
        assert_int_equal(tr_tokens_sample(y, t, TR_SPLIT_TRAIN, n + i, &e), 0);
        sum[0] += str_hash(x, sizeof(x), 0) % 1000003; /* a sum does not see the order */
        sum[1] += str_hash(y, sizeof(y), 0) % 1000003;
        same += !memcmp(x, y, sizeof(x));
    }
    assert_int_equal(sum[0], sum[1]);
    assert_true(same < 20); /* one is expected of a random order */
    file_remove_tree(dir, NULL);
}

static void damage(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char c;

    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

static int read_all(const char *dir, const char *name, int vocab, struct err *e)
{
    AUTO(tr_tokens) *t = NULL;
    int32_t x[17];
    int r = open_tokens(&t, dir, name, vocab, 16, 3, e);

    for (uint64_t i = 0; r == 0 && i < tr_tokens_samples(t, TR_SPLIT_TRAIN); i++)
        r = tr_tokens_sample(x, t, TR_SPLIT_TRAIN, i, e);
    return r;
}

static void damaged_files_are_refused_by_name_and_offset(void **state)
{
    AUTO_FREE char *dir = unit_folder("tokens"), *out = NULL, *bin = NULL, *sum = NULL,
                   *meta = NULL;
    struct tr_prepared done;
    struct err e = {0};
    struct stat st;

    (void)state;
    out = make_set(dir, 300000, &done);
    bin = mem_printf("%s/train.bin", out);
    sum = mem_printf("%s/train.sum", out);
    meta = mem_printf("%s/meta.json", out);
    assert_int_equal(read_all(dir, "t", 256, &e), 0);

    damage(bin, 70000);
    assert_int_equal(read_all(dir, "t", 256, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "train.bin is damaged"));
    assert_non_null(strstr(e.text, "offset 65536"));
    damage(bin, 70000);

    damage(sum, 5);
    assert_int_equal(read_all(dir, "t", 256, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "train.sum"));
    damage(sum, 5);

    stat(bin, &st);
    assert_int_equal(truncate(bin, st.st_size - 1), 0);
    assert_int_equal(read_all(dir, "t", 256, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "truncated"));

    assert_int_equal(truncate(meta, 40), 0);
    assert_true(read_all(dir, "t", 256, &e) < 0);
    assert_non_null(strstr(e.text, "meta.json: not JSON"));
    file_remove_tree(dir, NULL);
}

static void what_does_not_fit_the_model_is_refused(void **state)
{
    AUTO_FREE char *dir = unit_folder("tokens"), *out = NULL;
    AUTO(tr_tokens) *t = NULL;
    struct tr_prepared done;
    struct err e = {0};

    (void)state;
    out = make_set(dir, 1000, &done);
    assert_int_equal(open_tokens(&t, dir, "t", 255, 16, 1, &e), -EINVAL);
    assert_non_null(strstr(e.text, "vocabulary of 255"));
    assert_int_equal(open_tokens(&t, dir, "t", 256, 2000, 1, &e), -EINVAL);
    assert_non_null(strstr(e.text, "one sample"));
    assert_int_equal(open_tokens(&t, dir, "nothing", 256, 16, 1, &e), -ENOENT);
    assert_non_null(strstr(e.text, "nothing"));
    file_remove_tree(dir, NULL);
}

static void ids_over_the_vocabulary_are_refused_with_their_offset(void **state)
{
    AUTO_FREE char *dir = unit_folder("tokens"), *out = mem_printf("%s/set", dir);
    uint32_t ids[40] = {0};
    AUTO_FREE char *in = NULL;
    const char *path[1];
    struct tr_prepare p = plan_of(out, path, 1);
    struct tr_prepared done;
    struct err e = {0};

    (void)state;
    ids[33] = 70000;
    path[0] = in = write_file(dir, "ids", ids, sizeof(ids));
    p.id = TR_ID_U32;
    p.vocab = 70000;
    assert_int_equal(tr_prepare(&done, &p, &e), -ERANGE);
    assert_non_null(strstr(e.text, "id 70000 at byte 132"));
    assert_false(file_exists(out));
    assert_int_equal(truncate(in, 159), 0);
    p.vocab = 70001;
    assert_int_equal(tr_prepare(&done, &p, &e), -EINVAL);
    assert_non_null(strstr(e.text, "whole ids"));
    file_remove_tree(dir, NULL);
}

/* ---- Megatron ------------------------------------------------------------ */

static void put(struct str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(s, (char)(v >> 8 * i & 0xff));
}

/* An index of N sequences of 10, 11, 12 … tokens of u16, two a document. */
static void index_make(struct str *s, uint64_t n, int code)
{
    uint64_t at = 0;

    str_addn(s, "MMIDIDX\0\0", 9);
    put(s, 1, 8);
    put(s, (uint64_t)code, 1);
    put(s, n, 8);
    put(s, n / 2 + 1, 8);
    for (uint64_t i = 0; i < n; i++)
        put(s, 10 + i, 4);
    for (uint64_t i = 0; i < n; i++) {
        put(s, at, 8);
        at += 2 * (10 + i);
    }
    for (uint64_t i = 0; i <= n / 2; i++)
        put(s, 2 * i, 8);
}

static void megatron_files_are_read_directly(void **state)
{
    AUTO_FREE char *dir = unit_folder("tokens"),
                   *prefix = mem_printf("%s/corpus_text_document", dir), *idx = NULL, *bin = NULL;
    AUTO_STR index = {0}, ids = {0};
    AUTO(tr_tokens) *t = NULL;
    struct err e = {0};
    int32_t x[6];
    uint64_t tokens = 0;

    (void)state;
    index_make(&index, 100, 8);
    for (uint64_t i = 0; i < 100; i++)
        tokens += 10 + i;
    for (uint64_t i = 0; i < tokens; i++)
        put(&ids, 300 + i % 700, 2);
    idx = write_file(dir, "corpus_text_document.idx", index.text, index.len);
    bin = write_file(dir, "corpus_text_document.bin", ids.text, ids.len);
    if (open_tokens(&t, dir, prefix, 1000, 5, 1, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(tr_tokens_count(t, TR_SPLIT_TRAIN) + tr_tokens_count(t, TR_SPLIT_VALIDATION),
                     tokens);
    assert_true(tr_tokens_count(t, TR_SPLIT_VALIDATION) >= tokens / 20);
    assert_true(tr_tokens_count(t, TR_SPLIT_VALIDATION) < tokens / 20 + 110);
    for (uint64_t k = 0; k < 20; k++) {
        assert_int_equal(tr_tokens_sample(x, t, TR_SPLIT_VALIDATION, k, &e), 0);
        for (int i = 0; i < 6; i++)
            assert_int_equal(
                x[i], 300 + (tr_tokens_count(t, TR_SPLIT_TRAIN) + 5 * k + (uint64_t)i) % 700);
    }
    t = tr_tokens_free(t);
    assert_int_equal(read_all(dir, prefix, 999, &e), -ERANGE);
    assert_non_null(strstr(e.text, "id 999"));
    assert_int_equal(truncate(bin, (off_t)ids.len - 2), 0);
    assert_int_equal(read_all(dir, prefix, 1000, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "truncated"));
    file_remove_tree(dir, NULL);
}

static void a_wrong_index_is_refused(void **state)
{
    static const struct {
        size_t at;
        const char *says;
    } cases[] = {
        {0, "begin"},
        {9, "version"},
        {17, "type code"},
        {18, "hold"},
        {26, "hold"},
        {34 + 4 * 3 + 3, "tokens"},              /* sign of a size */
        {34 + 4 * 3, "begins at byte"},          /* a size */
        {34 + 4 * 10 + 8 * 4, "begins at byte"}, /* an offset */
        {34 + 12 * 10 + 8 * 2 + 3, "document"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_STR s = {0};
        struct tr_megatron_index x;
        struct err e = {0};

        index_make(&s, 10, 8);
        s.text[cases[i].at] = (char)(s.text[cases[i].at] ^ 0xC0);
        assert_int_equal(tr_megatron_index(&x, (unsigned char *)s.text, s.len, 0.1, "x.idx", &e),
                         -EBADMSG);
        if (!strstr(e.text, cases[i].says))
            fail_msg("%zu: %s", i, e.text);
    }
    for (size_t n = 0; n < 34 + 20 * 10; n += 7) {
        AUTO_STR s = {0};
        struct tr_megatron_index x;
        struct err e = {0};

        index_make(&s, 10, 8);
        assert_int_equal(tr_megatron_index(&x, (unsigned char *)s.text, n, 0.1, "x.idx", &e),
                         -EBADMSG);
    }
}

/* The page that the file no longer has raises SIGBUS in the reader. */
static void a_file_that_is_truncated_while_mapped_is_an_error(void **state)
{
    enum { N = 16384 };
    AUTO_FREE char *dir = unit_folder("tokens"), *path = NULL;
    AUTO_FREE unsigned char *bytes = mem_alloc(N);
    struct tr_stream s;
    int32_t ids[8];
    struct err e = {0};

    (void)state;
    path = write_file(dir, "ids", bytes, N);
    assert_int_equal(tr_stream_map(&s, path, TR_ID_U8, N, &e), 0);
    assert_int_equal(truncate(path, N / 2), 0);
    for (int i = 0; i < 2; i++) { /* also a second time */
        assert_int_equal(tr_stream_read(ids, &s, N - 8, 8, 256, &e), -EBADMSG);
        assert_non_null(strstr(e.text, "truncated"));
    }
    assert_int_equal(tr_stream_read(ids, &s, 0, 8, 256, &e), 0);
    file_remove_tree(dir, NULL);
    tr_stream_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_truncated_while_mapped_is_an_error),
        cmocka_unit_test(the_order_is_a_permutation),
        cmocka_unit_test(the_order_looks_random),
        cmocka_unit_test(large_orders_stay_inside),
        cmocka_unit_test(the_synthetic_language_is_the_same_everywhere_and_not_constant),
        cmocka_unit_test(text_comes_back_as_it_was),
        cmocka_unit_test(packed_files_are_unpacked_and_binaries_skipped),
        cmocka_unit_test(the_split_is_near_its_share_and_always_the_same),
        cmocka_unit_test(an_epoch_visits_every_sample_once_and_epochs_differ),
        cmocka_unit_test(damaged_files_are_refused_by_name_and_offset),
        cmocka_unit_test(what_does_not_fit_the_model_is_refused),
        cmocka_unit_test(ids_over_the_vocabulary_are_refused_with_their_offset),
        cmocka_unit_test(megatron_files_are_read_directly),
        cmocka_unit_test(a_wrong_index_is_refused),
    };

    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
