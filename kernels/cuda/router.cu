/* Router: a warp for each row, experts spread over its lanes. */
#include "kernels/cuda/ops.cuh"

static constexpr int LANES = 32, WARPS = 4;
static constexpr unsigned MAX_EXPERTS = 32 * LANES; /* a lane keeps a bit for each of its experts */
static constexpr float LEAST = 1e-20f; /* added to sums of sigmoids, which may all be zero */

/* The row of this warp. Whole warps leave the kernel when there is none. */
static __device__ __forceinline__ size_t row_of_warp(void)
{
    return (size_t)blockIdx.x * WARPS + threadIdx.x / LANES;
}

/* Whether (P, EXPERT) comes before (Q, OTHER): larger first, NaN last, then the lower expert. */
static __device__ __forceinline__ bool before(float p, int expert, float q, int other)
{
    if (p > q || (q != q && p == p))
        return true;
    if (p < q || (p != p && q == q))
        return false;
    return expert < other;
}

/* By what experts are chosen. */
static __device__ __forceinline__ float score_of(const struct kn_router &router, const float *probs,
                                                 int e)
{
    return router.bias ? probs[e] + router.bias[e] : probs[e];
}

/* The best expert of [lo, hi) whose bit is not in USED, and which is in a group of MET; every lane
 * gets it. HI: none. */
static __device__ __forceinline__ int choose(const struct kn_router &router, const float *probs,
                                             int lo, int hi, unsigned used, uint64_t met)
{
    int lane = (int)threadIdx.x % LANES, best = hi;
    int each = (int)(router.experts / router.groups);
    float top = NAN;

    for (int i = 0; i * LANES + lane < hi; i++) {
        int e = i * LANES + lane;

        if (e < lo || (used >> i & 1) || !(met >> e / each & 1))
            continue;
        if (best == hi || before(score_of(router, probs, e), e, top, best)) {
            top = score_of(router, probs, e);
            best = e;
        }
    }
    for (int d = 16; d; d >>= 1) {
        float p = __shfl_xor_sync(CU_ALL, top, d);
        int e = __shfl_xor_sync(CU_ALL, best, d);

        if (e < hi && (best == hi || before(p, e, top, best))) {
            top = p;
            best = e;
        }
    }
    return best;
}

/* The sum of the best scores of a group. */
static __device__ __forceinline__ float group_score(const struct kn_router &router,
                                                    const float *probs, int group)
{
    int lane = (int)threadIdx.x % LANES, each = (int)(router.experts / router.groups);
    int many = (int)(router.k / router.met), lo = group * each;
    unsigned used = 0;
    float sum = 0;

    if (many < 1)
        many = 1;
    for (int i = 0; i < many && i < each; i++) {
        int e = choose(router, probs, lo, lo + each, used, ~UINT64_C(0));

        if (e % LANES == lane)
            used |= 1u << e / LANES;
        sum += score_of(router, probs, e);
    }
    return sum;
}

/* The groups that the row meets, as bits; every lane gets them. */
static __device__ __forceinline__ uint64_t groups_met(const struct kn_router &router,
                                                      const float *probs)
{
    uint64_t met = 0;

    for (size_t i = 0; i < router.met && router.groups > 1; i++) {
        int best = (int)router.groups;
        float top = 0;

        for (int g = 0; g < (int)router.groups; g++) {
            float score;

            if (met >> g & 1)
                continue;
            score = group_score(router, probs, g);
            if (best == (int)router.groups || before(score, g, top, best)) {
                top = score;
                best = g;
            }
        }
        met |= UINT64_C(1) << best;
    }
    return router.groups > 1 ? met : 1;
}

/* The scores of the row. */
static __device__ __forceinline__ void scores(const struct kn_router &router, float *probs,
                                              const float *logits)
{
    int lane = (int)threadIdx.x % LANES, experts = (int)router.experts;
    float max = -INFINITY, sum = 0;

    if (router.score == KN_SIGMOID) {
        for (int e = lane; e < experts; e += LANES)
            probs[e] = 1.0f / (1.0f + expf(-logits[e]));
        return;
    }
    for (int e = lane; e < experts; e += LANES)
        max = fmaxf(max, logits[e]);
    max = cu_warp_max(max);
    for (int e = lane; e < experts; e += LANES)
        sum += expf(logits[e] - max);
    sum = cu_warp_sum(sum);
    for (int e = lane; e < experts; e += LANES)
        probs[e] = expf(logits[e] - max) / sum;
}

static __global__ void CU_BOUNDS(WARPS *LANES, 1)
    router_fwd(const struct kn_router router, float *probs, int32_t *idx, float *w,
               const float *logits, size_t rows)
{
    size_t row = row_of_warp();
    int lane = (int)threadIdx.x % LANES, k = (int)router.k;
    float top = router.score == KN_SIGMOID ? LEAST : 0.0f;
    unsigned used = 0;
    uint64_t met;

    if (row >= rows)
        return;
    probs += row * router.experts;
    logits += row * router.experts;
    idx += row * router.k;
    w += row * router.k;
    scores(router, probs, logits);
    __syncwarp(); /* every lane may read every probability below */
    met = router.dealt ? 0 : groups_met(router, probs);
    for (int j = 0; j < k && !router.dealt; j++) {
        int e = choose(router, probs, 0, (int)router.experts, used, met);

        if (e % LANES == lane)
            used |= 1u << e / LANES;
        if (lane == 0)
            idx[j] = e;
    }
    __syncwarp();
    for (int j = 0; j < k; j++)
        top += probs[idx[j]];
    for (int j = lane; j < k; j += LANES)
        w[j] = router.scale * probs[idx[j]] / (router.renorm ? top : 1.0f);
}

extern "C" void cu_router_fwd(struct kn_pool *pool, const struct kn_router *router, float *probs,
                              int32_t *idx, float *w, const float *logits, size_t rows)
{
    assert(router->experts <= MAX_EXPERTS && router->k <= router->experts &&
           router->groups <= KN_MAX_GROUPS);
    if (rows == 0)
        return;
    CU_LAUNCH(router_fwd, (unsigned)cu_blocks(rows, WARPS), WARPS * LANES, 0, cu_stream_of(pool),
              *router, probs, idx, w, logits, rows);
}

/* Sums over a row, as in the reference. */
struct row_sums {
    float chosen, mean, all, shared;
};

static __device__ __forceinline__ struct row_sums sums_of(const struct kn_router &router,
                                                          const float *dw, const float *dshare,
                                                          const float *probs, const int32_t *idx,
                                                          const float *w)
{
    bool sigmoid = router.score == KN_SIGMOID;
    struct row_sums s = {sigmoid ? LEAST : 0.0f, 0, 1, 0};

    for (size_t j = 0; j < router.k; j++) {
        s.chosen += probs[idx[j]];
        s.mean += router.renorm ? dw[j] * w[j] : 0.0f;
    }
    s.chosen = router.renorm ? s.chosen : 1.0f;
    if (!sigmoid)
        return s;
    s.all = 0;
    for (size_t e = threadIdx.x % LANES; e < router.experts; e += LANES)
        s.all += probs[e];
    s.all = cu_warp_sum(s.all) + LEAST;
    for (size_t e = threadIdx.x % LANES; e < router.experts && dshare; e += LANES)
        s.shared += dshare[e] * (probs[e] / s.all);
    s.shared = cu_warp_sum(s.shared);
    return s;
}

/* The gradient of the row's probability of expert E. */
static __device__ __forceinline__ float dprob(const struct kn_router &router,
                                              const struct row_sums &s, const float *dw,
                                              const float *dshare, const int32_t *idx, int e)
{
    float dp = dshare ? (dshare[e] - s.shared) / s.all : 0.0f;

    for (size_t j = 0; j < router.k; j++)
        if (idx[j] == e)
            dp += (router.scale * dw[j] - s.mean) / s.chosen;
    return dp;
}

static __global__ void CU_BOUNDS(WARPS *LANES)
    router_bwd(const struct kn_router router, float *dlogits, const float *dw, const float *dshare,
               const float *probs, const int32_t *idx, const float *w, size_t rows)
{
    size_t row = row_of_warp();
    int lane = (int)threadIdx.x % LANES, experts = (int)router.experts;
    float inner = 0;
    struct row_sums s;

    if (row >= rows)
        return;
    dlogits += row * router.experts;
    probs += row * router.experts;
    if (dshare)
        dshare += row * router.experts;
    idx += row * router.k;
    w += row * router.k;
    dw += row * router.k;
    s = sums_of(router, dw, dshare, probs, idx, w);
    for (int e = lane; e < experts && router.score == KN_SOFTMAX; e += LANES)
        inner += probs[e] * dprob(router, s, dw, dshare, idx, e);
    inner = cu_warp_sum(inner);
    for (int e = lane; e < experts; e += LANES) {
        float dp = dprob(router, s, dw, dshare, idx, e), p = probs[e];

        dlogits[e] = router.score == KN_SIGMOID ? p * (1.0f - p) * dp : p * (dp - inner);
    }
}

extern "C" void cu_router_bwd(struct kn_pool *pool, const struct kn_router *router, float *dlogits,
                              const float *dw, const float *dshare, const float *probs,
                              const int32_t *idx, const float *w, size_t rows)
{
    if (rows == 0)
        return;
    CU_LAUNCH(router_bwd, (unsigned)cu_blocks(rows, WARPS), WARPS * LANES, 0, cu_stream_of(pool),
              *router, dlogits, dw, dshare, probs, idx, w, rows);
}

/* ---- z-loss -------------------------------------------------------------- */

/* Maximum and sum of exponentials of a row, of which this is log Z; every lane gets them. */
static __device__ __forceinline__ float log_z_of(float *max, float *sum, const float *logits,
                                                 int experts)
{
    int lane = (int)threadIdx.x % LANES;

    *max = -INFINITY;
    *sum = 0;
    for (int e = lane; e < experts; e += LANES)
        *max = fmaxf(*max, logits[e]);
    *max = cu_warp_max(*max);
    for (int e = lane; e < experts; e += LANES)
        *sum += expf(logits[e] - *max);
    *sum = cu_warp_sum(*sum);
    return logf(*sum) + *max;
}

static __global__ void CU_BOUNDS(WARPS *LANES)
    router_z_fwd(float *log_z, const float *logits, size_t rows, int experts)
{
    size_t row = row_of_warp();
    float max, sum, z;

    if (row >= rows)
        return;
    z = log_z_of(&max, &sum, logits + row * experts, experts);
    if (threadIdx.x % LANES == 0)
        log_z[row] = z;
}

extern "C" void cu_router_z_fwd(struct kn_pool *pool, float *log_z, const float *logits,
                                size_t rows, size_t experts)
{
    assert(experts >= 1);
    if (rows == 0)
        return;
    CU_LAUNCH(router_z_fwd, (unsigned)cu_blocks(rows, WARPS), WARPS * LANES, 0, cu_stream_of(pool),
              log_z, logits, rows, (int)experts);
}

static __global__ void CU_BOUNDS(WARPS *LANES)
    router_z_bwd(float *dlogits, const float *logits, size_t rows, int experts, float scale)
{
    size_t row = row_of_warp();
    float max, sum, by;

    if (row >= rows)
        return;
    dlogits += row * experts;
    logits += row * experts;
    by = 2.0f * scale * log_z_of(&max, &sum, logits, experts);
    by /= sum;
    for (int e = (int)threadIdx.x % LANES; e < experts; e += LANES)
        dlogits[e] += expf(logits[e] - max) * by;
}

extern "C" void cu_router_z_bwd(struct kn_pool *pool, float *dlogits, const float *logits,
                                size_t rows, size_t experts, float scale)
{
    assert(experts >= 1);
    if (rows == 0)
        return;
    CU_LAUNCH(router_z_bwd, (unsigned)cu_blocks(rows, WARPS), WARPS * LANES, 0, cu_stream_of(pool),
              dlogits, logits, rows, (int)experts, scale);
}
