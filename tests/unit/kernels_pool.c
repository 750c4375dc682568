/* The pool of threads: every share runs once, sleeping workers wake, and results do not depend on
 * it. */
#include "tests/unit/unit.h"

#include <stdatomic.h>

#include "kernels/kernels.h"

static void count_run(void *arg, int thread, int threads)
{
    atomic_int *seen = arg;

    (void)threads;
    atomic_fetch_add(&seen[thread], 1);
}

static void every_thread_runs_each_job_once(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        struct kn_pool *p = kn_pool_new(n);
        atomic_int seen[5] = {0};

        assert_non_null(p);
        assert_int_equal(kn_pool_threads(p), n);
        for (int i = 0; i < 1000; i++)
            kn_pool_run(p, count_run, seen);
        for (int i = 0; i < n; i++)
            assert_int_equal(seen[i], 1000);
        kn_pool_free(p);
    }
}

static void sleeping_workers_wake(void **state)
{
    struct kn_pool *p = kn_pool_new(3);
    atomic_int seen[3] = {0};

    (void)state;
    for (int i = 0; i < 20; i++) {
        kn_pool_set_spin(p, i % 2 ? 0 : 10);
        usleep(2000);
        kn_pool_run(p, count_run, seen);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(seen[i], 20);
    kn_pool_free(p);
}

static void a_pool_of_many_gives_the_result_of_one(void **state)
{
    enum { M = 70, N = 65, K = 33, D = 100003 };
    static float a[M * K], b[N * K], c1[M * N], c2[M * N], x[D];
    struct kn_pool *p = kn_pool_new(4);
    struct rng r;

    (void)state;
    rng_seed(&r, 7);
    for (int i = 0; i < M * K; i++)
        a[i] = (float)rng_normal(&r);
    for (int i = 0; i < N * K; i++)
        b[i] = (float)rng_normal(&r);
    for (int i = 0; i < D; i++)
        x[i] = (float)rng_unit(&r);
    kn_gemm_f32(NULL, false, true, M, N, K, a, K, b, K, 0, c1, N);
    kn_gemm_f32(p, false, true, M, N, K, a, K, b, K, 0, c2, N);
    assert_memory_equal(c1, c2, sizeof(c1));

    /* D terms of at most 1, summed in double in two orders */
    double one = kn_sumsq(NULL, KN_F32, x, D), four = kn_sumsq(p, KN_F32, x, D);
    assert_true(one - four <= 0x1p-52 * D * one && four - one <= 0x1p-52 * D * one);
    kn_pool_free(p);
}

/* dq, dk, dv of SEQ tokens, of both storage types, computed by THREADS threads. */
enum { AD = 40, AHEADS = 6, ASEQ = 300, ALD = 3 * AHEADS * AD };

static void attention_backward(int threads, enum kn_type t, size_t kv, char *ret)
{
    static _Alignas(64) char qkv[ASEQ * ALD * 4], o[ASEQ * ALD * 4], d_o[ASEQ * ALD * 4];
    static float lse[ASEQ * AHEADS], work[ASEQ * (AHEADS + ALD)];
    struct kn_pool *p = kn_pool_new(threads);
    size_t ld = (AHEADS + 2 * kv) * AD, wide = AHEADS * AD, w = kn_type_size(t);
    struct kn_attn a = {.batch = 1,
                        .seq = ASEQ,
                        .heads = AHEADS,
                        .kv_heads = kv,
                        .d = AD,
                        .dv = AD,
                        .scale = 0.2f,
                        .type = t,
                        .q = qkv,
                        .k = qkv + wide * w,
                        .v = qkv + (wide + kv * AD) * w,
                        .ldq = ld,
                        .ldk = ld,
                        .ldv = ld};
    struct kn_attn_grad g = {.o = o,
                             .d_o = d_o,
                             .ldo = wide,
                             .lddo = wide,
                             .lse = lse,
                             .dq = ret,
                             .dk = ret + wide * w,
                             .dv = ret + (wide + kv * AD) * w,
                             .lddq = ld,
                             .lddk = ld,
                             .lddv = ld};
    struct rng r;

    rng_seed(&r, 11);
    for (size_t i = 0; i < ASEQ * ALD; i++) {
        float x = (float)rng_normal(&r), y = (float)rng_normal(&r);

        kn_convert(NULL, t, qkv + i * w, KN_F32, &x, 1);
        kn_convert(NULL, t, d_o + i * w, KN_F32, &y, 1);
    }
    assert_true(kn_attn_bwd_bytes(&a) <= sizeof(work));
    kn_attn_fwd(p, &a, o, wide, lse);
    kn_attn_bwd(p, &a, &g, work);
    kn_pool_free(p);
}

static void attention_backward_is_the_same_bit_for_bit_with_any_number_of_threads(void **state)
{
    static const size_t kv[] = {1, 3, 6};
    static char one[ASEQ * ALD * 4], many[ASEQ * ALD * 4];

    (void)state;
    for (size_t i = 0; i < sizeof(kv) / sizeof(kv[0]); i++) {
        for (int t = KN_F32; t <= KN_BF16; t++) {
            attention_backward(1, (enum kn_type)t, kv[i], one);
            for (int threads = 2; threads <= 5; threads++) {
                attention_backward(threads, (enum kn_type)t, kv[i], many);
                assert_memory_equal(one, many, sizeof(one));
            }
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_thread_runs_each_job_once),
    cmocka_unit_test(sleeping_workers_wake),
    cmocka_unit_test(a_pool_of_many_gives_the_result_of_one),
    cmocka_unit_test(attention_backward_is_the_same_bit_for_bit_with_any_number_of_threads),
};

UNIT_MAIN(tests)
