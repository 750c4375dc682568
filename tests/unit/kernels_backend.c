/* Backends: the host's, and an asynchronous one that runs its operations in kn_wait. */
#include "tests/unit/unit.h"

#include "tests/unit/async_backend.h"

enum { ROWS = 37, D = 24, F = 40 };

/* Arrays of a block x + swiglu(x W1) W2 in the memory of a backend. */
struct block {
    float x[ROWS * D], w1[D * 2 * F], w2[F * D];
    float gu[ROWS * 2 * F], a[ROWS * F], y[ROWS * D];
};

/* Launch the block on P, whichever backend that is. */
static void block(struct kn_pool *p, struct block *k, const struct block *in, float *out)
{
    kn_copy(p, k, in, offsetof(struct block, gu));
    kn_gemm_f32(p, false, false, ROWS, 2 * F, D, k->x, D, k->w1, 2 * F, 0, k->gu, 2 * F);
    kn_swiglu_fwd(p, KN_F32, k->a, F, k->gu, 2 * F, k->gu + F, 2 * F, ROWS, F);
    kn_gemm_f32(p, false, false, ROWS, D, F, k->a, F, k->w2, D, 0, k->y, D);
    kn_add(p, KN_F32, k->y, k->y, k->x, (size_t)ROWS * D);
    kn_copy(p, out, k->y, sizeof(k->y));
}

static struct block *inputs(void)
{
    static struct block in;
    float *v = in.x;
    struct rng r;

    rng_seed(&r, 5);
    for (size_t i = 0; i < offsetof(struct block, gu) / sizeof(*v); i++) {
        float f = (float)rng_normal(&r);

        memcpy((char *)&in + i * sizeof(f), &f, sizeof(f));
    }
    return &in;
}

static void the_same_calls_give_the_same_bits_on_an_asynchronous_backend(void **state)
{
    static float want[ROWS * D], got[ROWS * D], untouched[ROWS * D];
    struct kn_pool *here = kn_pool_new(1), *there;
    struct block *k[2];

    (void)state;
    k[0] = kn_alloc(sizeof(struct block));
    kn_backend_use(async_backend(false));
    there = kn_pool_new(1);
    k[1] = kn_alloc(sizeof(struct block));
    assert_int_equal(async_live(), 1);

    block(here, k[0], inputs(), want);
    block(there, k[1], inputs(), got);
    assert_int_equal(async_pending(there), 6);
    assert_memory_equal(got, untouched, sizeof(got));
    assert_memory_not_equal(want, untouched, sizeof(want));
    kn_wait(there);
    assert_int_equal(async_pending(there), 0);
    assert_memory_equal(got, want, sizeof(got));

    kn_pool_backend(here)->free(k[0], sizeof(struct block));
    kn_pool_backend(there)->free(k[1], sizeof(struct block));
    assert_int_equal(async_live(), 0);
    kn_pool_free(here);
    kn_pool_free(there);
    kn_backend_use(kn_backend_host());
}

static void an_operation_that_returns_a_value_waits_for_what_it_reads(void **state)
{
    float x[3] = {1, 2, 3}, y[3] = {0};
    struct kn_pool *p;

    (void)state;
    kn_backend_use(async_backend(false));
    p = kn_pool_new(1);
    kn_add(p, KN_F32, y, x, x, 3);
    assert_int_equal(async_waits(p), 0);
    assert_true(kn_sumsq(p, KN_F32, y, 3) == 4 + 16 + 36);
    assert_int_equal(async_waits(p), 1);
    kn_pool_free(p);
    kn_backend_use(kn_backend_host());
}

static void stamps_are_reached_when_the_operations_before_them_are_done(void **state)
{
    float x[3] = {1, 2, 3}, y[3];
    struct kn_pool *p;
    uint64_t ns = 0, begun;

    (void)state;
    kn_backend_use(async_backend(false));
    p = kn_pool_new(1);
    assert_true(kn_stamps(p));
    begun = clock_mono_ns();
    kn_stamp(p, 0);
    kn_add(p, KN_F32, y, x, x, 3);
    kn_stamp(p, KN_STAMPS - 1);
    assert_false(kn_stamped(&ns, p, 0, KN_STAMPS - 1));
    usleep(1000);
    kn_wait(p);
    assert_true(kn_stamped(&ns, p, 0, KN_STAMPS - 1));
    assert_in_range(ns, 1000000, clock_mono_ns() - begun);
    kn_stamp(p, 1); /* at once */
    assert_true(kn_stamped(&ns, p, KN_STAMPS - 1, 1));
    kn_pool_free(p);
    kn_backend_use(kn_backend_host());
}

static void the_host_has_no_stamps(void **state)
{
    struct kn_pool *p = kn_pool_new(1);

    (void)state;
    assert_false(kn_stamps(p));
    assert_false(kn_stamps(NULL));
    kn_pool_free(p);
}

static void without_a_pool_an_operation_is_the_hosts_and_done_when_it_returns(void **state)
{
    float x[3] = {1, 2, 3}, y[3] = {0};

    (void)state;
    kn_backend_use(async_backend(false));
    kn_add(NULL, KN_F32, y, x, x, 3);
    assert_true(y[0] == 2 && y[1] == 4 && y[2] == 6);
    kn_wait(NULL);
    kn_backend_use(kn_backend_host());
}

static bool refuse(struct kn_pool *p)
{
    (void)p;
    return false;
}

static void no_pool_on_a_device_that_refuses(void **state)
{
    struct kn_backend backend = *async_backend(false);

    (void)state;
    backend.open = refuse;
    kn_backend_use(&backend);
    assert_null(kn_pool_new(2));
    kn_backend_use(kn_backend_host());
}

static void the_host_has_every_operation_and_is_the_default_backend(void **state)
{
    struct kn_pool *p = kn_pool_new(2);
    const struct kn_backend *host = kn_backend_host();

    (void)state;
    assert_ptr_equal(kn_backend(), host);
    assert_ptr_equal(kn_pool_backend(NULL), host);
    assert_ptr_equal(kn_pool_backend(p), host);
#define IS_THERE(op) assert_true(host->op == kn_host_##op);
    KN_BACKEND_OPS(IS_THERE)
#undef IS_THERE
    kn_pool_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_host_has_every_operation_and_is_the_default_backend),
    cmocka_unit_test(the_same_calls_give_the_same_bits_on_an_asynchronous_backend),
    cmocka_unit_test(an_operation_that_returns_a_value_waits_for_what_it_reads),
    cmocka_unit_test(stamps_are_reached_when_the_operations_before_them_are_done),
    cmocka_unit_test(the_host_has_no_stamps),
    cmocka_unit_test(without_a_pool_an_operation_is_the_hosts_and_done_when_it_returns),
    cmocka_unit_test(no_pool_on_a_device_that_refuses),
};

UNIT_MAIN(tests)
