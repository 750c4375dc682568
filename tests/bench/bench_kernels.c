/*
 * Speed of the kernels, one JSON object a line: {"bench", "case", "value", "unit", "reference",
 * "ratio"}; where the ratio has a bar (on one core), also "least" and whether it is "met", and the
 * last lines, on the error output, name the bars that are missed.
 *
 * A kernel and what it is compared with run interleaved in one process, so that both meet the same
 * machine; value is the median of the kernel, ratio the median of the quotients of neighbors.
 * References: oneDNN for GEMM, the dense GEMM for the grouped one, the measured multiply-add peak
 * of one core for attention, and for what is bound by memory the rate of a STREAM triad over arrays
 * larger than the caches. Bytes are those that must move (each input once, each output once, no
 * read for ownership), as STREAM counts them.
 *
 * Options: --bench=GLOB, --repeats=N, --isa=NAME, --threads=N.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifdef HAVE_DNNL
#include <dnnl.h>
#endif

#include "base/base.h"
#include "kernels/kernels.h"

enum { MAX_REPEATS = 201 };

static struct {
    const char *glob;
    int repeats;
    struct kn_pool *pool;
    double peak; /* FLOP/s of one core */
} opt = {.glob = "*", .repeats = 15};

/* ---- measuring ----------------------------------------------------------- */

typedef void work_fn(void *arg);

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* With one thread, time on the processor: it leaves out what other programs take on a shared
 * machine, and is the same as time on the clock where there are none. */
static double now(void)
{
    struct timespec t;

    clock_gettime(kn_pool_threads(opt.pool) == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(work_fn *fn, void *arg, int times)
{
    double start = now();

    for (int i = 0; i < times; i++)
        fn(arg);
    return (now() - start) / times;
}

/* How often to call so that one measurement takes about 5 ms. */
static int calibrate(work_fn *fn, void *arg)
{
    double once = seconds(fn, arg, 1);

    return once > 5e-3 ? 1 : (int)(5e-3 / (once + 1e-9)) + 1;
}

struct result {
    double kernel;   /* seconds, median */
    double quotient; /* reference's seconds over the kernel's, median of neighbors */
};

static struct result measure(work_fn *kernel, work_fn *reference, void *arg, void *ref_arg)
{
    double a[MAX_REPEATS], q[MAX_REPEATS];
    int na = calibrate(kernel, arg), nb = reference ? calibrate(reference, ref_arg) : 0;
    struct result r;

    for (int i = 0; i < opt.repeats; i++) {
        a[i] = seconds(kernel, arg, na);
        q[i] = reference ? seconds(reference, ref_arg, nb) / a[i] : 0;
    }
    r.kernel = median(a, opt.repeats);
    r.quotient = median(q, opt.repeats);
    return r;
}

static bool wanted(const char *bench)
{
    return fnmatch(opt.glob, bench, 0) == 0;
}

static struct {
    int all, missed;
    char names[2048]; /* of those that are missed, a line each */
} bars;

static bool judge(const char *bench, const char *what, double ratio, double least)
{
    size_t n = strlen(bars.names);

    bars.all++;
    if (ratio >= least)
        return true;
    bars.missed++;
    snprintf(bars.names + n, sizeof(bars.names) - n, "\n  %s %s: %.3f of %g", bench, what, ratio,
             least);
    return false;
}

/* LEAST: what the ratio must reach, or 0. */
static void print(const char *bench, const char *what, double value, const char *unit,
                  const char *reference, double ratio, double least)
{
    printf("{\"bench\":\"%s\",\"case\":\"%s\",\"value\":%.4g,\"unit\":\"%s\"", bench, what, value,
           unit);
    if (reference)
        printf(",\"reference\":\"%s\",\"ratio\":%.3f", reference, ratio);
    if (reference && least > 0 && kn_pool_threads(opt.pool) == 1)
        printf(",\"least\":%g,\"met\":%s", least,
               judge(bench, what, ratio, least) ? "true" : "false");
    printf(",\"isa\":\"%s\",\"threads\":%d}\n", kn_isa_name(kn_isa()), kn_pool_threads(opt.pool));
    fflush(stdout);
}

/* The summary of several ratios of one benchmark. */
static void print_summary(const char *bench, const char *reference, double *ratios, int n,
                          double least_median, double least_worst)
{
    double mid;

    if (n == 0)
        return;
    mid = median(ratios, n);
    print(bench, "median", mid, "ratio", reference, mid, least_median);
    print(bench, "worst", ratios[0], "ratio", reference, ratios[0], least_worst);
}

/* ---- memory -------------------------------------------------------------- */

/* N floats of about unit size, in large pages where the system gives them. */
static float *floats(size_t n)
{
    size_t bytes = (n * sizeof(float) + 4095) / 4096 * 4096;
    float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        abort();
    madvise(p, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)((i * 2654435761u % 1000) / 1000.0 - 0.5);
    return p;
}

static void release(float *p, size_t n)
{
    munmap(p, (n * sizeof(float) + 4095) / 4096 * 4096);
}

/* ---- the machine --------------------------------------------------------- */

static void peak_work(void *arg)
{
    *(double *)arg = kn_fma_loop(20000);
}

static void bench_peak(void)
{
    double flops = 0, best = 0;

    for (int i = 0; i < opt.repeats; i++) {
        double t = seconds(peak_work, &flops, 20);

        best = fmax(best, flops / t);
    }
    opt.peak = best;
    if (wanted("fma_peak"))
        print("fma_peak", "one core", best / 1e9, "GFLOP/s", NULL, 0, 0);
}

enum { STREAM = 8 << 20 }; /* floats an array: 32 MiB */

/* The loop of STREAM; as vectors, since not every compiler makes them of plain C at -O2. */
typedef float lanes __attribute__((vector_size(32)));

static float *stream[3];

static void triad(void *arg)
{
    lanes *a = (lanes *)(void *)stream[0];
    const lanes *b = (lanes *)(void *)stream[1], *c = (lanes *)(void *)stream[2];

    (void)arg;
    for (size_t i = 0; i < STREAM / 8; i++)
        a[i] = b[i] + 3 * c[i];
}

static void open_stream(void)
{
    for (int i = 0; i < 3 && !stream[i]; i++)
        stream[i] = floats(STREAM);
}

/* ---- GEMM ---------------------------------------------------------------- */

struct gemm_case {
    size_t m, n, k;
    bool ta, tb, add;
    const char *what;
};

/* A dense layer of 512, 8 heads, ffn 1536, vocabulary 4096, 1024 tokens; a wide one; an expert. */
static const struct gemm_case gemm_cases[] = {
    {1024, 1536, 512, false, true, false, "qkv forward"},
    {1024, 512, 512, false, true, true, "attention out forward"},
    {1024, 3072, 512, false, true, false, "gate-up forward"},
    {1024, 512, 1536, false, true, true, "down forward"},
    {1024, 4096, 512, false, true, false, "logits forward"},
    {1024, 512, 3072, false, false, false, "gate-up dgrad"},
    {1024, 1536, 512, false, false, false, "down dgrad"},
    {1024, 512, 4096, false, false, false, "logits dgrad"},
    {3072, 512, 1024, true, false, true, "gate-up wgrad"},
    {512, 1536, 1024, true, false, true, "down wgrad"},
    {4096, 512, 1024, true, false, true, "logits wgrad"},
    {192, 768, 256, false, true, false, "expert forward, 192 tokens"},
};

struct gemm_work {
    struct kn_gemm g;
    float *a, *b, *c;
};

static void gemm_work(void *arg)
{
    kn_gemm(opt.pool, &((struct gemm_work *)arg)->g);
}

#ifdef HAVE_DNNL
static void dnnl_work(void *arg)
{
    const struct kn_gemm *g = &((struct gemm_work *)arg)->g;

    dnnl_sgemm(g->ta ? 'T' : 'N', g->tb ? 'T' : 'N', (dnnl_dim_t)g->m, (dnnl_dim_t)g->n,
               (dnnl_dim_t)g->k, 1, g->a, (dnnl_dim_t)g->lda, g->b, (dnnl_dim_t)g->ldb, g->beta,
               g->c, (dnnl_dim_t)g->ldc);
}
static work_fn *const gemm_reference = dnnl_work;
#else
static work_fn *const gemm_reference = NULL;
#endif

static struct gemm_work gemm_new(const struct gemm_case *c)
{
    struct gemm_work w = {
        .a = floats(c->m * c->k), .b = floats(c->k * c->n), .c = floats(c->m * c->n)};

    w.g = (struct kn_gemm){.m = c->m,
                           .n = c->n,
                           .k = c->k,
                           .a = w.a,
                           .b = w.b,
                           .c = w.c,
                           .lda = c->ta ? c->m : c->k,
                           .ldb = c->tb ? c->k : c->n,
                           .ldc = c->n,
                           .ta = c->ta,
                           .tb = c->tb,
                           .beta = c->add};
    return w;
}

static void gemm_free(struct gemm_work *w, const struct gemm_case *c)
{
    release(w->a, c->m * c->k);
    release(w->b, c->k * c->n);
    release(w->c, c->m * c->n);
}

static void bench_gemm(void)
{
    double ratios[32];
    int n = 0;

    for (size_t i = 0; i < sizeof(gemm_cases) / sizeof(gemm_cases[0]); i++) {
        const struct gemm_case *c = &gemm_cases[i];
        struct gemm_work w = gemm_new(c);
        struct result r = measure(gemm_work, gemm_reference, &w, &w);
        char what[96];

        snprintf(what, sizeof(what), "%zux%zux%zu %c%c %s", c->m, c->n, c->k, c->ta ? 'T' : 'N',
                 c->tb ? 'T' : 'N', c->what);
        print("gemm_f32", what, 2.0 * (double)(c->m * c->n * c->k) / r.kernel / 1e9, "GFLOP/s",
              gemm_reference ? "onednn" : NULL, r.quotient, 0);
        ratios[n++] = r.quotient;
        gemm_free(&w, c);
    }
    if (gemm_reference)
        print_summary("gemm_f32", "onednn", ratios, n, 0.97, 0.85);
}

/* ---- grouped GEMM -------------------------------------------------------- */

enum { EXPERTS = 8, ROWS = 2048 };

static const int32_t offsets[EXPERTS + 1] = {0, 410, 500, 860, 980, 1300, 1420, 1900, ROWS};

static void grouped_work(void *arg)
{
    const struct kn_gemm *g = &((struct gemm_work *)arg)->g;

    kn_gemm_grouped(opt.pool, g, EXPERTS, offsets, g->ta ? g->m * g->n : g->n * g->k);
}

static void bench_grouped(void)
{
    static const struct gemm_case cases[] = {
        {ROWS, 2048, 512, false, true, false, "forward"},
        {ROWS, 512, 2048, false, false, false, "dgrad"},
        {2048, 512, ROWS, true, false, true, "wgrad"},
        {ROWS, 768, 256, false, true, false, "forward, small"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct gemm_case *c = &cases[i];
        struct gemm_work dense = gemm_new(c), grouped = dense;
        size_t weights = EXPERTS * (c->ta ? c->m * c->n : c->n * c->k);
        float *w = floats(weights);
        char what[96];
        struct result r;

        if (c->ta)
            grouped.g.c = w;
        else
            grouped.g.b = w;
        r = measure(grouped_work, gemm_work, &grouped, &dense);
        snprintf(what, sizeof(what), "8 uneven experts, %zux%zux%zu %s", c->m, c->n, c->k, c->what);
        print("grouped_gemm_f32", what, 2.0 * (double)(c->m * c->n * c->k) / r.kernel / 1e9,
              "GFLOP/s", "dense gemm", r.quotient, 0.90);
        release(w, weights);
        gemm_free(&dense, c);
    }
}

/* ---- attention ----------------------------------------------------------- */

struct attn_work {
    struct kn_attn a;
    struct kn_attn_grad g;
    float *o, *lse, *work;
};

static void attn_fwd_work(void *arg)
{
    struct attn_work *w = arg;

    kn_attn_fwd(opt.pool, &w->a, w->o, w->a.heads * w->a.d, w->lse);
}

static void attn_bwd_work(void *arg)
{
    struct attn_work *w = arg;

    kn_attn_bwd(opt.pool, &w->a, &w->g, w->work);
}

static void attn_both_work(void *arg)
{
    attn_fwd_work(arg);
    attn_bwd_work(arg);
}

static void bench_attn(void)
{
    enum { BATCH = 2, HEADS = 8, KV = 4 };

    for (size_t t = 512; t <= 2048; t *= 2) {
        for (size_t d = 64; d <= 128; d *= 2) {
            size_t n = BATCH * t, ld = (HEADS + 2 * KV) * d, wide = HEADS * d;
            float *qkv = floats(n * ld), *dqkv = floats(n * ld), *o = floats(n * wide),
                  *d_o = floats(n * wide);
            float *lse = floats(n * HEADS), *work = floats(n * HEADS);
            /* of the visible half: 2 products forward, 5 backward */
            double pairs = BATCH * HEADS * (double)t * ((double)t + 1) / 2 * 2 * (double)d;
            double share[3];
            char what[96];

            struct attn_work w = {.o = o, .lse = lse, .work = work};
            w.a = (struct kn_attn){.batch = BATCH,
                                   .seq = t,
                                   .heads = HEADS,
                                   .kv_heads = KV,
                                   .d = d,
                                   .dv = d,
                                   .scale = 1 / sqrtf((float)d),
                                   .q = qkv,
                                   .k = qkv + wide,
                                   .v = qkv + wide + KV * d,
                                   .ldq = ld,
                                   .ldk = ld,
                                   .ldv = ld};
            w.g = (struct kn_attn_grad){.o = o,
                                        .d_o = d_o,
                                        .ldo = wide,
                                        .lddo = wide,
                                        .lse = lse,
                                        .dq = dqkv,
                                        .dk = dqkv + wide,
                                        .dv = dqkv + wide + KV * d,
                                        .lddq = ld,
                                        .lddk = ld,
                                        .lddv = ld};
            share[0] = 2 * pairs / measure(attn_fwd_work, NULL, &w, NULL).kernel;
            share[1] = 5 * pairs / measure(attn_bwd_work, NULL, &w, NULL).kernel;
            share[2] = 7 * pairs / measure(attn_both_work, NULL, &w, NULL).kernel;
            for (int i = 0; i < 3; i++) {
                static const char *const part[] = {"forward", "backward", "forward+backward"};

                snprintf(what, sizeof(what), "T %zu, d %zu, %s", t, d, part[i]);
                print("attention", what, share[i] / 1e9, "GFLOP/s", "fma_peak",
                      share[i] / opt.peak / kn_pool_threads(opt.pool), i == 2 ? 0.55 : 0);
            }
            release(qkv, n * ld);
            release(dqkv, n * ld);
            release(o, n * wide);
            release(d_o, n * wide);
            release(lse, n * HEADS);
            release(work, n * HEADS);
        }
    }
}

/* ---- what memory bounds -------------------------------------------------- */

enum { N = 8 << 20, D = 1024, TOKENS = N / D, VOCAB = 8192, HEAD = 64 };

struct arrays {
    float *x, *y, *z, *w;
    float *vec, *row;
    int32_t *idx;
    size_t bytes;
};

static void w_add(void *p)
{
    struct arrays *a = p;
    kn_add(opt.pool, KN_F32, a->z, a->x, a->y, N);
}

static void w_sumsq(void *p)
{
    struct arrays *a = p;
    a->row[0] = (float)kn_sumsq(opt.pool, KN_F32, a->x, N);
}

static void w_to_bf16(void *p)
{
    struct arrays *a = p;
    kn_convert(opt.pool, KN_BF16, a->z, KN_F32, a->x, N);
}

static void w_from_bf16(void *p)
{
    struct arrays *a = p;
    kn_convert(opt.pool, KN_F32, a->y, KN_BF16, a->z, N);
}

static void w_rmsnorm_fwd(void *p)
{
    struct arrays *a = p;
    kn_rmsnorm_fwd(opt.pool, KN_F32, a->y, a->row, a->x, a->vec, TOKENS, D, 1e-5f, 0);
}

static void w_rmsnorm_bwd(void *p)
{
    struct arrays *a = p;
    kn_rmsnorm_bwd(opt.pool, KN_F32, a->z, a->vec + D, a->y, a->x, a->vec, a->row, TOKENS, D, false,
                   0);
}

static void w_rope(void *p)
{
    struct arrays *a = p;
    kn_rope(opt.pool, KN_F32, a->x, D, TOKENS, D / HEAD, HEAD, HEAD, a->vec, a->vec + D, NULL, 32,
            false);
}

static void w_swiglu_fwd(void *p)
{
    struct arrays *a = p;
    kn_swiglu_fwd(opt.pool, KN_F32, a->z, D, a->x, D, a->y, D, TOKENS, D);
}

static void w_swiglu_bwd(void *p)
{
    struct arrays *a = p;
    kn_swiglu_bwd(opt.pool, KN_F32, a->z, D, a->w, D, a->z, D, a->x, D, a->y, D, TOKENS, D);
}

static void w_embed_fwd(void *p)
{
    struct arrays *a = p;
    kn_embed_fwd(opt.pool, KN_F32, a->y, a->x, a->idx, TOKENS, D, 0, TOKENS, 1);
}

static void w_embed_bwd(void *p)
{
    struct arrays *a = p;
    kn_embed_bwd(opt.pool, KN_F32, KN_F32, a->x, a->y, a->idx, TOKENS, D, 0, TOKENS, 1);
}

static void w_xent_max(void *p)
{
    struct arrays *a = p;
    kn_xent_max(opt.pool, KN_F32, a->row, a->x, VOCAB, N / VOCAB, VOCAB);
}

static void w_xent_sum(void *p)
{
    struct arrays *a = p;
    kn_xent_sum(opt.pool, KN_F32, a->row, a->row + TOKENS, a->x, VOCAB, N / VOCAB, VOCAB, a->row,
                a->idx, 0);
}

static void w_xent_grad(void *p)
{
    struct arrays *a = p;
    kn_xent_grad(opt.pool, KN_F32, a->z, VOCAB, N / VOCAB, VOCAB, VOCAB, a->row, a->vec, a->idx, 0,
                 1e-3f, 0, 0);
}

static void w_permute(void *p)
{
    struct arrays *a = p;
    kn_permute(opt.pool, KN_F32, a->y, a->x, a->idx, TOKENS, 1, D);
}

static void w_unpermute(void *p)
{
    struct arrays *a = p;
    kn_unpermute(opt.pool, KN_F32, a->y, a->x, a->idx, a->vec, TOKENS / 2, 2, D, false);
}

static void w_adamw(void *p)
{
    struct arrays *a = p;
    struct kn_adamw h = {.lr = 1e-4f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-8f,
                         .weight_decay = 0.1f,
                         .grad_scale = 1,
                         .step = 10};
    kn_adamw(opt.pool, &h, a->x, NULL, a->y, a->w, a->z, N);
}

static void bench_memory(void)
{
    static const struct {
        const char *name;
        work_fn *fn;
        double floats; /* moved, for each of N elements */
    } rows[] = {
        {"add", w_add, 3},
        {"sumsq", w_sumsq, 1},
        {"to_bf16", w_to_bf16, 1.5},
        {"from_bf16", w_from_bf16, 1.5},
        {"rmsnorm_fwd", w_rmsnorm_fwd, 2},
        {"rmsnorm_bwd", w_rmsnorm_bwd, 3},
        {"rope", w_rope, 2},
        {"swiglu_fwd", w_swiglu_fwd, 3},
        {"swiglu_bwd", w_swiglu_bwd, 5},
        {"embed_fwd", w_embed_fwd, 2},
        {"embed_bwd", w_embed_bwd, 3},
        {"xent_max", w_xent_max, 1},
        {"xent_sum", w_xent_sum, 1},
        {"xent_grad", w_xent_grad, 2},
        {"permute", w_permute, 2},
        {"unpermute", w_unpermute, 1.5},
        {"adamw", w_adamw, 7},
    };
    struct arrays a = {floats(N), floats(N), floats(N), floats(N), floats(N), floats(N), NULL, 0};
    double ratios[32], base = 3.0 * sizeof(float) * STREAM;
    int n = 0;

    open_stream();
    a.idx = mem_alloc(N * sizeof(*a.idx));
    for (size_t i = 0; i < TOKENS; i++) {
        a.idx[i] = (int32_t)(i * 7919 % TOKENS);
        a.vec[i] = 1;
    }
    kn_zero(opt.pool, a.w, N * sizeof(*a.w));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double bytes = rows[i].floats * sizeof(float) * N;
        struct result r = measure(rows[i].fn, triad, &a, NULL);
        double ratio = r.quotient * bytes / base;

        print("memory", rows[i].name, bytes / r.kernel / 1e9, "GB/s", "stream triad", ratio, 0.8);
        ratios[n++] = ratio;
    }
    print_summary("memory", "stream triad", ratios, n, 0, 0);
    release(a.x, N);
    release(a.y, N);
    release(a.z, N);
    release(a.w, N);
    release(a.vec, N);
    release(a.row, N);
    free(a.idx);
}

static int parse(int argc, char **argv)
{
    int64_t n = 1;
    enum kn_isa isa;

    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];

        if (str_starts(a, "--bench="))
            opt.glob = a + 8;
        else if (str_starts(a, "--repeats=") && str_to_i64(&n, a + 10, 1, MAX_REPEATS) == 0)
            opt.repeats = (int)n;
        else if (str_starts(a, "--threads=") && str_to_i64(&n, a + 10, 1, 256) == 0)
            opt.pool = kn_pool_new((int)n);
        else if (!str_starts(a, "--isa=") || !kn_isa_parse(&isa, a + 6) || !kn_isa_set(isa)) {
            fprintf(
                stderr,
                "usage: bench_kernels [--bench=GLOB] [--repeats=N] [--isa=NAME] [--threads=N]\n");
            return 2;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    int r = parse(argc, argv);

    if (r)
        return r;
    if (!opt.pool)
        opt.pool = kn_pool_new(1);
    bench_peak();
    if (wanted("gemm_f32"))
        bench_gemm();
    if (wanted("grouped_gemm_f32"))
        bench_grouped();
    if (wanted("attention"))
        bench_attn();
    if (wanted("memory"))
        bench_memory();
    if (bars.all > 0)
        fprintf(stderr, "%d of %d bars are missed%s%s\n", bars.missed, bars.all,
                bars.missed ? ":" : "", bars.names);
    kn_pool_free(opt.pool);
    return 0;
}
