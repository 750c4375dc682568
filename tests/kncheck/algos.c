/*
 * Algorithms of a backend's library of matrix products: algos PLUGIN. Prints TAP; what the library
 * itself saw is checked by algos.sh.
 */
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "kernels/kernels.h"

enum { M = 48, N = 40, K = 32, MOST = 8 };

static int n, failed;

static void ok(bool good, const char *name)
{
    printf("%sok %d - %s\n", good ? "" : "not ", ++n, name);
    failed += !good;
}

struct arrays {
    struct kn_pool *pool;
    float *own, *host, *want, *got; /* A, B and C in a row, each a float off 16 bytes if OFF */
    size_t floats;
};

static struct kn_gemm gemm_at(float *at, size_t off)
{
    return (struct kn_gemm){.m = M,
                            .n = N,
                            .k = K,
                            .a = at + off,
                            .b = at + M * K + off,
                            .c = at + M * K + K * N + off,
                            .lda = K,
                            .ldb = K,
                            .ldc = N,
                            .tb = true};
}

/* Is the product of the current choice the host's? Both sum K products of magnitude up to 1/4 in
 * fp32, each in an order of its own: K roundings of at most 2^-24 K/4 on either side. */
static bool right(struct arrays *arrays, size_t off)
{
    struct kn_gemm there = gemm_at(arrays->own, off), here = gemm_at(arrays->host, off);
    const float *c = here.c;
    float worst = 0;

    kn_gemm(NULL, &here);
    kn_copy(arrays->pool, arrays->own, arrays->host, arrays->floats * sizeof(float));
    kn_copy(arrays->pool, (float *)there.c, arrays->want, M * N * sizeof(float));
    kn_gemm(arrays->pool, &there);
    kn_copy(arrays->pool, arrays->got, there.c, M * N * sizeof(float));
    kn_wait(arrays->pool);
    for (size_t i = 0; i < M * N; i++)
        worst = fmaxf(worst, fabsf(arrays->got[i] - c[i]));
    return worst <= 2.0f * K * 0x1p-24f * 0.25f * K;
}

static void open_arrays(struct arrays *arrays)
{
    arrays->floats = M * K + K * N + M * N + 1;
    arrays->pool = kn_pool_new(1);
    arrays->own = kn_alloc_own(arrays->floats * sizeof(float));
    arrays->host = mem_alloc(arrays->floats * sizeof(float));
    arrays->want = mem_alloc(M * N * sizeof(float)); /* zeros: what C has before */
    arrays->got = mem_alloc(M * N * sizeof(float));
    for (size_t i = 0; i < arrays->floats; i++)
        arrays->host[i] = (float)(rng_mix(i) % 1001) / 1000.0f - 0.5f;
}

static void close_arrays(struct arrays *arrays)
{
    kn_free_own(arrays->own, arrays->floats * sizeof(float));
    kn_pool_free(arrays->pool);
    free(arrays->host);
    free(arrays->want);
    free(arrays->got);
}

/* Products that nobody computes, so that the table of measured ones fills up. */
static size_t fill_table(const struct kn_gemm *gemm)
{
    size_t taken = 0;

    for (size_t i = 0; i < KN_ALGOS; i++) {
        struct kn_gemm other = *gemm;
        struct kn_algo algo;

        other.m = 1000 + i;
        if (kn_gemm_algos(&algo, 1, &other) == 1)
            taken += kn_gemm_use(&algo);
    }
    return taken;
}

/* More shapes than the cache of answers has room for. */
static void run_many(struct arrays *arrays)
{
    struct kn_gemm one = gemm_at(arrays->own, 0);

    for (size_t m = 1; m <= M; m++)
        for (size_t k = 1; k <= K; k++) {
            one.m = m;
            one.k = k;
            kn_gemm(arrays->pool, &one);
        }
    kn_wait(arrays->pool);
}

static void choose(struct arrays *arrays)
{
    struct kn_gemm gemm = gemm_at(arrays->own, 0);
    struct kn_algo algo[MOST], foreign;
    size_t count = kn_gemm_algos(algo, MOST, &gemm);
    bool all = true;

    ok(strchr(kn_gemm_library(), '.') != NULL, "the library has a name and a version");
    ok(count > 1 && count <= MOST, "it has several algorithms for a product");
    ok(kn_gemm_algos(&foreign, 1, &gemm) == 1 && !memcmp(&foreign, algo, sizeof(foreign)),
       "the heuristic's first one comes first");
    ok(right(arrays, 0), "by itself the product is right");
    for (size_t i = 0; i < count; i++)
        all &= kn_gemm_use(&algo[i]) && right(arrays, 0);
    ok(all, "each algorithm can be used, and gives the product");
    foreign.word[0] ^= 1;
    ok(!kn_gemm_use(&foreign), "an algorithm of another version is refused");
    ok(right(arrays, 1), "arrays off 16 bytes go by the heuristic");
    run_many(arrays);
    ok(right(arrays, 0), "and the choice outlives the cache of answers");
    ok(fill_table(&gemm) == KN_ALGOS - 1, "so many can be kept");
    gemm.m = 999;
    (void)kn_gemm_algos(&foreign, 1, &gemm);
    ok(!kn_gemm_use(&foreign), "and no more");
    ok(kn_gemm_use(&algo[count - 1]) && right(arrays, 0), "but one that is kept can change");
}

int main(int argc, char **argv)
{
    const struct kn_backend *backend;
    struct arrays arrays;
    struct err error = {0};
    struct kn_algo algo;
    struct kn_gemm gemm = {.m = 1, .n = 1, .k = 1};
    struct kn_gpu gpu;

    if (argc != 2)
        return 2;
    ok(!*kn_gemm_library() && kn_gemm_algos(&algo, 1, &gemm) == 0, "the host has no library");
    if (kn_plugin_load(&backend, &gpu, argv[1], 0, &error) < 0) {
        printf("Bail out! %s\n", error.text);
        return 1;
    }
    kn_backend_use(backend);
    open_arrays(&arrays);
    choose(&arrays);
    close_arrays(&arrays);
    printf("1..%d\n", n);
    return failed > 0;
}
