/*
 * Seconds of the CUDA backend's operations on arrays in the device's own memory, by CUDA events
 * (compiled for the host: by the clock, to try the program out).
 *
 *   bench_device [--repeats=N] < CASES
 *
 * Each line of CASES is an operation and its sizes (table `cases`, below); the answer is one JSON
 * line, flushed: {"seconds": S, "flops": F, "bytes": B}, S the median over N (15) batches of calls,
 * F and B what the operation must do and move: each input read once, each output written once.
 * Arrays are random, no case follows another's cache. A case that is wrong or does not fit answers
 * {"error": TEXT}.
 */
#include "kernels/cuda/backend.cuh"

#include <algorithm>
#include <functional>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <vector>

static constexpr double BATCH_S = 4e-3; /* a batch of calls lasts about so long */
static constexpr unsigned MOST_SIZES = 6, FILL_BLOCK = 256;
static int repeats = 15;

/* ---- the device ---------------------------------------------------------- */

static __global__ void fill(uint32_t *to, size_t words, uint32_t seed, bool bf16_pairs)
{
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (; at < words; at += (size_t)gridDim.x * blockDim.x) {
        uint32_t x = (uint32_t)at * 2654435761u ^ seed;

        x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
        /* Uniform in (-1, 1): a sign, the exponents of 0.5 to 1, random digits. */
        to[at] = bf16_pairs ? (x & 0x807f807fu) | 0x3f003f00u : (x & 0x807fffffu) | 0x3f000000u;
    }
}

static void fill_random(cu_stream *stream, uint32_t *to, size_t words, uint32_t number, bool pairs)
{
    dim3 blocks((unsigned)cu_least(cu_blocks(words, FILL_BLOCK), 4096));

    if (words)
        CU_LAUNCH(fill, blocks, dim3(FILL_BLOCK), 0, stream, to, words, number * 40503u, pairs);
}

#ifdef __CUDACC__
static void *device_alloc(size_t bytes)
{
    void *at = NULL;

    return cudaMalloc(&at, bytes) == cudaSuccess ? at : (cudaGetLastError(), (void *)NULL);
}

static void device_free(void *at)
{
    cudaFree(at);
}
#else
static void *device_alloc(size_t bytes)
{
    return aligned_alloc(256, (bytes + 255) / 256 * 256);
}

static void device_free(void *at)
{
    free(at);
}
#endif

/* ---- one case ------------------------------------------------------------ */

/* Its arrays and how much it does; freed at its end. */
struct bench {
    struct kn_pool *pool;
    cu_stream *stream;
    size_t size[MOST_SIZES];
    std::vector<void *> owned;
    bool full; /* an array did not fit */
    double flops, bytes;
    std::function<void(struct kn_pool *pool)> call;

    void *array(size_t count, size_t width)
    {
        size_t words = (count * width + 3) / 4;
        void *at = device_alloc(words * 4);

        full |= !at;
        if (!at)
            return NULL;
        owned.push_back(at);
        fill_random(stream, (uint32_t *)at, words, (uint32_t)owned.size(), width == 2);
        return at;
    }
    kn_bf16 *half(size_t count)
    {
        return (kn_bf16 *)array(count, 2);
    }
    float *single(size_t count)
    {
        return (float *)array(count, 4);
    }
    /* Integers that the host computes. */
    int32_t *ints(size_t count, const std::function<size_t(size_t)> &value)
    {
        std::vector<int32_t> host(count);
        int32_t *at = (int32_t *)array(count, 4);

        for (size_t i = 0; i < count; i++)
            host[i] = (int32_t)value(i);
        if (at) {
            cu_copy(stream, at, host.data(), count * 4);
            cu_stream_wait(stream);
        }
        return at;
    }
};

/* A fixed sequence that looks like no order: the numbers below COUNT. */
static size_t scattered(size_t i, size_t count)
{
    return (size_t)(i * 2654435761u % 4294967291u) % count;
}

/* m n k ta tb wgrad: WGRAD adds up fp32, else C is bf16. */
static void gemm(bench &b)
{
    size_t m = b.size[0], n = b.size[1], k = b.size[2];
    bool ta = b.size[3], tb = b.size[4], wgrad = b.size[5];
    struct kn_gemm g = {};

    g.m = m, g.n = n, g.k = k, g.ta = ta, g.tb = tb, g.beta = wgrad;
    g.a = b.half(m * k), g.b = b.half(k * n);
    g.c = wgrad ? (void *)b.single(m * n) : (void *)b.half(m * n);
    g.lda = ta ? m : k, g.ldb = tb ? k : n, g.ldc = n;
    g.at = g.bt = KN_BF16, g.ct = wgrad ? KN_F32 : KN_BF16;
    b.flops = 2.0 * (double)m * (double)n * (double)k;
    b.bytes = 2.0 * (double)(m * k + k * n) + (wgrad ? 8.0 : 2.0) * (double)(m * n);
    b.call = [=](struct kn_pool *pool) { cu_gemm(pool, &g); };
}

/* experts rows n k: equally many rows of each. */
static void gemm_grouped(bench &b)
{
    size_t experts = b.size[0], rows = b.size[1], n = b.size[2], k = b.size[3];
    std::vector<int32_t> offsets;
    struct kn_gemm g = {};

    for (size_t e = 0; e <= experts; e++)
        offsets.push_back((int32_t)(rows * e / (experts ? experts : 1)));
    g.n = n, g.k = k, g.tb = true;
    g.a = b.half(rows * k), g.b = b.half(experts * k * n), g.c = b.half(rows * n);
    g.lda = k, g.ldb = k, g.ldc = n, g.at = g.bt = g.ct = KN_BF16;
    b.flops = 2.0 * (double)rows * (double)n * (double)k;
    b.bytes = 2.0 * (double)(rows * k + experts * k * n + rows * n);
    b.call = [=](struct kn_pool *pool) {
        cu_gemm_grouped(pool, &g, experts, offsets.data(), k * n);
    };
}

/* batch seq heads kv_heads d. FLOPs are those of the causal half. */
static struct kn_attn attn_of(bench &b, double flops_per_score)
{
    size_t batch = b.size[0], seq = b.size[1], heads = b.size[2], kv = b.size[3], d = b.size[4];
    struct kn_attn a = {};

    a.batch = batch, a.seq = seq, a.heads = heads, a.kv_heads = kv, a.d = a.dv = d;
    a.scale = 1 / sqrtf((float)d), a.type = KN_BF16;
    a.q = b.half(batch * seq * heads * d), a.k = b.half(batch * seq * kv * d);
    a.v = b.half(batch * seq * kv * d), a.ldq = heads * d, a.ldk = a.ldv = kv * d;
    b.flops = flops_per_score * (double)(batch * heads * d) * (double)seq * (double)seq / 2;
    b.bytes = 2.0 * (double)(batch * seq * d) * (double)(2 * heads + 2 * kv);
    return a;
}

static void attn_fwd(bench &b)
{
    struct kn_attn a = attn_of(b, 4);
    void *out = b.half(a.batch * a.seq * a.ldq);
    float *lse = b.single(a.batch * a.heads * a.seq);

    b.call = [=](struct kn_pool *pool) { cu_attn_fwd(pool, &a, out, a.ldq, lse); };
}

static void attn_bwd(bench &b)
{
    struct kn_attn a = attn_of(b, 10);
    size_t rows = a.batch * a.seq;
    struct kn_attn_grad g = {};
    float *lse = b.single(a.batch * a.heads * a.seq);
    void *out = b.half(rows * a.ldq), *work = b.array(kn_attn_bwd_bytes(&a), 1);

    g.o = out, g.d_o = b.half(rows * a.ldq), g.ldo = g.lddo = a.ldq, g.lse = lse;
    g.dq = b.half(rows * a.ldq), g.dk = b.half(rows * a.ldk), g.dv = b.half(rows * a.ldv);
    g.lddq = a.ldq, g.lddk = g.lddv = a.ldk;
    b.bytes *= 2;
    if (!b.full)
        cu_attn_fwd(b.pool, &a, out, a.ldq, lse);
    b.call = [=](struct kn_pool *pool) { cu_attn_bwd(pool, &a, &g, work); };
}

/* bytes: what the device's own copy moves. */
static void copy(bench &b)
{
    size_t bytes = b.size[0];
    void *to = b.array(bytes, 1), *from = b.array(bytes, 1);

    b.bytes = 2.0 * (double)bytes;
    b.call = [=](struct kn_pool *pool) { cu_copy(cu_stream_of(pool), to, from, bytes); };
}

/* rows dim */
static void rmsnorm_fwd(bench &b)
{
    size_t rows = b.size[0], dim = b.size[1];
    kn_bf16 *y = b.half(rows * dim), *x = b.half(rows * dim), *w = b.half(dim);
    float *rrms = b.single(rows);

    b.bytes = 4.0 * (double)(rows * dim) + 4.0 * (double)rows;
    b.call = [=](struct kn_pool *pool) {
        cu_rmsnorm_fwd(pool, KN_BF16, y, rrms, x, w, rows, dim, 1e-5f, 0);
    };
}

static void rmsnorm_bwd(bench &b)
{
    size_t rows = b.size[0], dim = b.size[1];
    kn_bf16 *dx = b.half(rows * dim), *dy = b.half(rows * dim), *x = b.half(rows * dim);
    kn_bf16 *w = b.half(dim);
    float *dw = b.single(dim), *rrms = b.single(rows);

    b.bytes = 8.0 * (double)(rows * dim); /* the residual branch's gradient is read, too */
    b.call = [=](struct kn_pool *pool) {
        cu_rmsnorm_bwd(pool, KN_BF16, dx, dw, dy, x, w, rrms, rows, dim, true, 0);
    };
}

/* rows ffn: gate and up side by side, as the trainer has them */
static void swiglu_fwd(bench &b)
{
    size_t rows = b.size[0], ffn = b.size[1];
    kn_bf16 *y = b.half(rows * ffn), *gate = b.half(rows * 2 * ffn);

    b.bytes = 6.0 * (double)(rows * ffn);
    b.call = [=](struct kn_pool *pool) {
        cu_swiglu_fwd(pool, KN_BF16, y, ffn, gate, 2 * ffn, gate + ffn, 2 * ffn, rows, ffn);
    };
}

static void swiglu_bwd(bench &b)
{
    size_t rows = b.size[0], ffn = b.size[1], ld = 2 * ffn;
    kn_bf16 *d = b.half(rows * ld), *dy = b.half(rows * ffn), *gate = b.half(rows * ld);

    b.bytes = 10.0 * (double)(rows * ffn);
    b.call = [=](struct kn_pool *pool) {
        cu_swiglu_bwd(pool, KN_BF16, d, ld, d + ffn, ld, dy, ffn, gate, ld, gate + ffn, ld, rows,
                      ffn);
    };
}

/* rows heads d seq */
static void rope(bench &b)
{
    size_t rows = b.size[0], heads = b.size[1], d = b.size[2], seq = b.size[3];
    kn_bf16 *x = b.half(rows * heads * d);
    float *cosines = b.single(seq * d / 2), *sines = b.single(seq * d / 2);

    b.bytes = 4.0 * (double)(rows * heads * d) + 4.0 * (double)(seq * d);
    b.call = [=](struct kn_pool *pool) {
        cu_rope(pool, KN_BF16, x, heads * d, rows, heads, d, d, cosines, sines, NULL, seq, false);
    };
}

/* rows vocab: the three passes of cross-entropy over the logits */
static void xent(bench &b)
{
    size_t rows = b.size[0], vocab = b.size[1];
    kn_bf16 *logits = b.half(rows * vocab);
    float *max = b.single(rows), *sum = b.single(rows), *target = b.single(rows);
    int32_t *ids = b.ints(rows, [=](size_t i) { return scattered(i, vocab); });

    b.bytes = 8.0 * (double)(rows * vocab); /* read thrice, written once */
    b.call = [=](struct kn_pool *pool) {
        cu_xent_max(pool, KN_BF16, max, logits, vocab, rows, vocab);
        cu_xent_sum(pool, KN_BF16, sum, target, logits, vocab, rows, vocab, max, ids, 0);
        cu_xent_grad(pool, KN_BF16, logits, vocab, rows, vocab, vocab, max, sum, ids, 0, 1, 0, 0);
    };
}

/* rows dim vocab */
static void embed_fwd(bench &b)
{
    size_t rows = b.size[0], dim = b.size[1], vocab = b.size[2];
    kn_bf16 *y = b.half(rows * dim), *table = b.half(vocab * dim);
    int32_t *ids = b.ints(rows, [=](size_t i) { return scattered(i, vocab); });

    b.bytes = 4.0 * (double)(rows * dim);
    b.call = [=](struct kn_pool *pool) {
        cu_embed_fwd(pool, KN_BF16, y, table, ids, rows, dim, 0, vocab, 1);
    };
}

/* rows k dim: tokens to experts, and their weighted sum */
static void permute(bench &b)
{
    size_t rows = b.size[0], k = b.size[1], dim = b.size[2], count = rows * k;
    kn_bf16 *y = b.half(count * dim), *x = b.half(rows * dim);
    int32_t *src = b.ints(count, [=](size_t i) { return i * 7919 % (count ? count : 1); });

    b.bytes = 4.0 * (double)(count * dim);
    b.call = [=](struct kn_pool *pool) { cu_permute(pool, KN_BF16, y, x, src, count, k, dim); };
}

static void unpermute(bench &b)
{
    size_t rows = b.size[0], k = b.size[1], dim = b.size[2], count = rows * k;
    kn_bf16 *y = b.half(rows * dim), *x = b.half(count * dim);
    float *w = b.single(count);
    int32_t *place = b.ints(count, [=](size_t i) { return i * 7919 % (count ? count : 1); });

    b.bytes = 2.0 * (double)(count * dim + rows * dim);
    b.call = [=](struct kn_pool *pool) {
        cu_unpermute(pool, KN_BF16, y, x, place, w, rows, k, dim, false);
    };
}

/* count */
static void add(bench &b)
{
    size_t count = b.size[0];
    kn_bf16 *y = b.half(count), *x = b.half(count), *z = b.half(count);

    b.bytes = 6.0 * (double)count;
    b.call = [=](struct kn_pool *pool) { cu_add(pool, KN_BF16, y, x, z, count); };
}

static void adamw(bench &b)
{
    size_t count = b.size[0];
    float *w = b.single(count), *m = b.single(count), *v = b.single(count), *g = b.single(count);
    kn_bf16 *low = b.half(count);
    struct kn_adamw hyper = {};

    hyper.lr = 1e-4f, hyper.beta1 = 0.9f, hyper.beta2 = 0.95f, hyper.eps = 1e-8f;
    hyper.weight_decay = 0.1f, hyper.grad_scale = 1, hyper.step = 1;
    b.bytes = 30.0 * (double)count;
    if (v)
        cu_clear(b.stream, v, count * 4); /* a second moment is not negative */
    b.call = [=](struct kn_pool *pool) { cu_adamw(pool, &hyper, w, low, m, v, g, count); };
}

static const struct {
    const char *name;
    unsigned sizes;
    void (*set)(bench &b);
} cases[] = {
    {"gemm", 6, gemm},
    {"gemm_grouped", 4, gemm_grouped},
    {"attn_fwd", 5, attn_fwd},
    {"attn_bwd", 5, attn_bwd},
    {"copy", 1, copy},
    {"rmsnorm_fwd", 2, rmsnorm_fwd},
    {"swiglu_fwd", 2, swiglu_fwd},
    {"swiglu_bwd", 2, swiglu_bwd},
    {"rmsnorm_bwd", 2, rmsnorm_bwd},
    {"rope", 4, rope},
    {"xent", 2, xent},
    {"embed_fwd", 3, embed_fwd},
    {"permute", 3, permute},
    {"unpermute", 3, unpermute},
    {"add", 1, add},
    {"adamw", 1, adamw},
};

/* ---- time ----------------------------------------------------------------- */

#ifdef __CUDACC__
static double seconds_of(const bench &b, int times)
{
    static cudaEvent_t from, to;
    cudaStream_t handle = (cudaStream_t)cu_stream_handle(b.stream);
    float milliseconds = 0;

    if (!from && (cudaEventCreate(&from) != cudaSuccess || cudaEventCreate(&to) != cudaSuccess))
        abort();
    cudaEventRecord(from, handle);
    for (int i = 0; i < times; i++)
        b.call(b.pool);
    cudaEventRecord(to, handle);
    if (cudaEventSynchronize(to) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, from, to) != cudaSuccess) {
        fprintf(stderr, "bench_device: %s\n", cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
    return milliseconds * 1e-3 / times;
}
#else
static double seconds_of(const bench &b, int times)
{
    struct timespec from, to;

    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < times; i++)
        b.call(b.pool);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec)) / times;
}
#endif

/* ---- the program --------------------------------------------------------- */

static double measure(const bench &b)
{
    std::vector<double> samples;
    double once;
    int times;

    seconds_of(b, 1); /* loads code, chooses algorithms */
    once = seconds_of(b, 1);
    times = once >= BATCH_S ? 1 : (int)(BATCH_S / (once + 1e-9)) + 1;
    for (int i = 0; i < repeats; i++)
        samples.push_back(seconds_of(b, times));
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
}

static void answer(struct kn_pool *pool, const char *line)
{
    bench b = {};
    char name[32] = "";
    int read = 0;
    unsigned count = 0;

    b.pool = pool;
    b.stream = cu_stream_of(pool);
    if (sscanf(line, "%31s%n", name, &read) != 1)
        return;
    line += read;
    while (count < MOST_SIZES && sscanf(line, "%zu%n", &b.size[count], &read) == 1) {
        line += read;
        count++;
    }
    for (const auto &known : cases)
        if (strcmp(known.name, name) == 0 && known.sizes == count)
            known.set(b);
    if (!b.call)
        printf("{\"error\": \"no such case: %s with %u sizes\"}\n", name, count);
    else if (b.full)
        printf("{\"error\": \"%s does not fit the device's memory\"}\n", name);
    else
        printf("{\"seconds\": %.6e, \"flops\": %.6e, \"bytes\": %.6e}\n", measure(b), b.flops,
               b.bytes);
    fflush(stdout);
    cu_stream_wait(b.stream);
    for (void *at : b.owned)
        device_free(at);
}

int main(int argc, char **argv)
{
    static const struct kn_plugin_host host = {kn_pool_set_stream, kn_pool_stream, kn_pool_threads,
                                               nullptr};
    struct kn_plugin_refusal why = {};
    const struct kn_backend *backend = cu_backend(&why, &host, 0);
    struct kn_pool *pool;
    char line[256];

    if (argc > 1 && (sscanf(argv[1], "--repeats=%d", &repeats) != 1 || repeats < 1)) {
        fprintf(stderr, "bench_device: unknown option %s\n", argv[1]);
        return 2;
    }
    if (!backend) {
        fprintf(stderr, "bench_device: GPU 0: %s\n", why.text);
        return 1;
    }
    kn_backend_use(backend);
    pool = kn_pool_new(1);
    if (!pool)
        return 1;
    while (fgets(line, sizeof(line), stdin))
        answer(pool, line);
    kn_pool_free(pool);
    return 0;
}
