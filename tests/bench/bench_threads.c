/*
 * What threads gain: each kernel with a pool of N threads over the same kernel with one,
 * interleaved in one process, as JSON lines {"bench":"threads", "case", "value", "unit",
 * "threads"}: value is the median of the quotients of wall-clock times. On a machine with other
 * work the quotient is low, since the work waits for the thread that was kept from its core.
 *
 * Options: --threads=N (2), --repeats=N (15), --case=TEXT (only cases that contain it).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "kernels/kernels.h"

enum {
    MAX_REPEATS = 201,
    TOKENS = 1024,
    DIM = 512,
    FFN = 1536,
    VOCAB = 4096,
    EXPERTS = 8,
    HEADS = 8,
    HEAD = 64
};

/* A dense layer's sizes; every array holds the largest matrix of them. */
static struct {
    struct kn_pool *pool;
    float *x, *y, *z, *w, *m, *v, *vec;
    int32_t *idx;
} on;

static const size_t FLOATS = (size_t)TOKENS * VOCAB;
static const int32_t offsets[EXPERTS + 1] = {0, 205, 250, 430, 490, 650, 710, 950, TOKENS};

static void gemm_forward(void)
{
    kn_gemm_f32(on.pool, false, true, TOKENS, FFN, DIM, on.x, DIM, on.w, DIM, 0, on.y, FFN);
}

static void gemm_wgrad(void)
{
    kn_gemm_f32(on.pool, true, false, FFN, DIM, TOKENS, on.x, FFN, on.w, DIM, 1, on.y, DIM);
}

static void grouped(bool ta)
{
    struct kn_gemm g = {.m = ta ? FFN / 4 : TOKENS,
                        .n = ta ? DIM : FFN / 4,
                        .k = DIM,
                        .a = on.x,
                        .b = on.w,
                        .c = on.y,
                        .lda = ta ? FFN / 4 : DIM,
                        .ldb = DIM,
                        .ldc = ta ? DIM : FFN / 4,
                        .ta = ta,
                        .tb = !ta,
                        .beta = ta};

    kn_gemm_grouped(on.pool, &g, EXPERTS, offsets, (size_t)FFN / 4 * DIM);
}

static void grouped_forward(void)
{
    grouped(false);
}

static void grouped_wgrad(void)
{
    grouped(true);
}

/* BATCH samples of TOKENS / BATCH tokens with KV key/value heads; dq, dk, dv in y, o in z, d_o in
 * w. */
static void attention(size_t batch, size_t kv, bool backward)
{
    size_t ld = (HEADS + 2 * kv) * HEAD, wide = (size_t)HEADS * HEAD, at = (HEADS + kv) * HEAD;
    struct kn_attn a = {.batch = batch,
                        .seq = TOKENS / batch,
                        .heads = HEADS,
                        .kv_heads = kv,
                        .d = HEAD,
                        .dv = HEAD,
                        .scale = 0.125f,
                        .q = on.x,
                        .k = on.x + wide,
                        .v = on.x + at,
                        .ldq = ld,
                        .ldk = ld,
                        .ldv = ld};
    struct kn_attn_grad g = {.o = on.z,
                             .d_o = on.w,
                             .ldo = wide,
                             .lddo = wide,
                             .lse = on.vec,
                             .dq = on.y,
                             .dk = on.y + wide,
                             .dv = on.y + at,
                             .lddq = ld,
                             .lddk = ld,
                             .lddv = ld};

    if (backward)
        kn_attn_bwd(on.pool, &a, &g, on.m);
    else
        kn_attn_fwd(on.pool, &a, on.z, wide, on.vec);
}

static void attn_forward(void)
{
    attention(2, 4, false);
}

static void attn_backward(void)
{
    attention(2, 4, true);
}

static void attn_backward_one_head(void)
{
    attention(1, 1, true);
}

static void rmsnorm_forward(void)
{
    kn_rmsnorm_fwd(on.pool, KN_F32, on.y, on.vec, on.x, on.w, TOKENS, DIM, 1e-5f, 0);
}

static void rmsnorm_backward(void)
{
    kn_rmsnorm_bwd(on.pool, KN_F32, on.z, on.m, on.y, on.x, on.w, on.vec, TOKENS, DIM, false, 0);
}

static void swiglu(void)
{
    kn_swiglu_fwd(on.pool, KN_F32, on.y, FFN, on.x, 2 * FFN, on.x + FFN, 2 * FFN, TOKENS, FFN);
}

static void cross_entropy(void)
{
    float *max = on.vec, *sum = max + TOKENS, *target = sum + TOKENS;

    kn_xent_max(on.pool, KN_F32, max, on.x, VOCAB, TOKENS, VOCAB);
    kn_xent_sum(on.pool, KN_F32, sum, target, on.x, VOCAB, TOKENS, VOCAB, max, on.idx, 0);
}

static void permute(void)
{
    kn_permute(on.pool, KN_F32, on.y, on.x, on.idx, 2 * TOKENS, 2, DIM);
}

static void unpermute(void)
{
    kn_unpermute(on.pool, KN_F32, on.y, on.x, on.idx, NULL, TOKENS, 2, DIM, false);
}

static void adamw(void)
{
    struct kn_adamw h = {.lr = 1e-4f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-8f,
                         .weight_decay = 0.1f,
                         .grad_scale = 1,
                         .step = 10};

    kn_adamw(on.pool, &h, on.w, NULL, on.m, on.v, on.z, FLOATS);
}

/* What the memory has for more than one core. */
static void stream(void)
{
    kn_add(on.pool, KN_F32, on.y, on.y, on.x, FLOATS);
}

static double seconds(struct kn_pool *p, void (*fn)(void), int times)
{
    double start;

    on.pool = p;
    start = (double)clock_mono_ns();
    for (int i = 0; i < times; i++)
        fn();
    return ((double)clock_mono_ns() - start) * 1e-9 / times;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void bench(const char *what, void (*fn)(void), struct kn_pool *one, struct kn_pool *many,
                  int repeats)
{
    double q[MAX_REPEATS], once = seconds(one, fn, 2);
    int times = 1 + (int)(3e-3 / once);

    for (int i = 0; i < repeats; i++)
        q[i] = seconds(one, fn, times) / seconds(many, fn, times);
    qsort(q, (size_t)repeats, sizeof(*q), by_value);
    printf("{\"bench\":\"threads\",\"case\":\"%s\",\"value\":%.2f,\"unit\":\"times\",\"reference\":"
           "\"one thread\","
           "\"isa\":\"%s\",\"threads\":%d}\n",
           what, q[repeats / 2], kn_isa_name(kn_isa()), kn_pool_threads(many));
    fflush(stdout);
}

static float *floats(float first)
{
    float *p = mem_alloc(FLOATS * sizeof(*p));

    for (size_t i = 0; i < FLOATS; i++)
        p[i] = first + (float)(i * 2654435761u % 1000) / 1000;
    return p;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *what;
        void (*fn)(void);
    } rows[] = {
        {"gemm 1024x1536x512 forward", gemm_forward},
        {"gemm 1536x512x1024 wgrad", gemm_wgrad},
        {"grouped gemm, 8 uneven experts, forward", grouped_forward},
        {"grouped gemm, 8 uneven experts, wgrad", grouped_wgrad},
        {"attention forward, 2 samples, 4 key/value heads", attn_forward},
        {"attention backward, 2 samples, 4 key/value heads", attn_backward},
        {"attention backward, 1 sample, 1 key/value head", attn_backward_one_head},
        {"rmsnorm forward", rmsnorm_forward},
        {"rmsnorm backward", rmsnorm_backward},
        {"swiglu", swiglu},
        {"cross-entropy, vocabulary 4096", cross_entropy},
        {"permute", permute},
        {"unpermute", unpermute},
        {"adamw, 4 million weights", adamw},
        {"stream of 32 MiB", stream},
    };
    int64_t threads = 2, repeats = 15;
    const char *only = "";
    struct kn_pool *one, *many;

    for (int i = 1; i < argc; i++) {
        if (str_starts(argv[i], "--threads=") && str_to_i64(&threads, argv[i] + 10, 2, 256) == 0)
            continue;
        if (str_starts(argv[i], "--repeats=") &&
            str_to_i64(&repeats, argv[i] + 10, 1, MAX_REPEATS) == 0)
            continue;
        if (str_starts(argv[i], "--case=")) {
            only = argv[i] + 7;
            continue;
        }
        fprintf(stderr, "usage: bench_threads [--threads=N] [--repeats=N] [--case=TEXT]\n");
        return 2;
    }
    one = kn_pool_new(1);
    many = kn_pool_new((int)threads);
    on.x = floats(-0.5f);
    on.y = floats(0);
    on.z = floats(-0.5f);
    on.w = floats(-0.5f);
    on.m = floats(0);
    on.v = floats(0);
    on.vec = floats(0);
    on.idx = mem_alloc(2 * TOKENS * sizeof(*on.idx));
    for (int32_t i = 0; i < 2 * TOKENS; i++)
        on.idx[i] = i * 797 % (2 * TOKENS);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strstr(rows[i].what, only))
            bench(rows[i].what, rows[i].fn, one, many, (int)repeats);
    kn_pool_free(one);
    kn_pool_free(many);
    free(on.x);
    free(on.y);
    free(on.z);
    free(on.w);
    free(on.m);
    free(on.v);
    free(on.vec);
    free(on.idx);
    return 0;
}
