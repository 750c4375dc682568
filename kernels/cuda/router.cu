/* Router: a warp for each row, experts spread over its lanes. */
#include "kernels/cuda/ops.cuh"

static constexpr int LANES = 32, WARPS = 4;
static constexpr unsigned MAX_EXPERTS = 32 * LANES; /* a lane keeps a bit for each of its experts */

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

/* The best expert of the row whose bit is not in USED; every lane gets it. */
static __device__ __forceinline__ int choose(const float *probs, int experts, unsigned used)
{
    int lane = (int)threadIdx.x % LANES, best = experts;
    float top = NAN;

    for (int i = 0; i * LANES + lane < experts; i++) {
        int e = i * LANES + lane;

        if (!(used >> i & 1) && before(probs[e], e, top, best)) {
            top = probs[e];
            best = e;
        }
    }
    for (int d = 16; d; d >>= 1) {
        float p = __shfl_xor_sync(CU_ALL, top, d);
        int e = __shfl_xor_sync(CU_ALL, best, d);

        if (before(p, e, top, best)) {
            top = p;
            best = e;
        }
    }
    return best;
}

static __global__ void CU_BOUNDS(WARPS *LANES)
    router_fwd(float *probs, int32_t *idx, float *w, const float *logits, size_t rows, int experts,
               int k, bool renorm)
{
    size_t row = row_of_warp();
    int lane = (int)threadIdx.x % LANES;
    float max = -INFINITY, sum = 0, top = 0;
    unsigned used = 0;

    if (row >= rows)
        return;
    probs += row * (size_t)experts;
    logits += row * (size_t)experts;
    idx += row * (size_t)k;
    w += row * (size_t)k;
    for (int e = lane; e < experts; e += LANES)
        max = fmaxf(max, logits[e]);
    max = cu_warp_max(max);
    for (int e = lane; e < experts; e += LANES)
        sum += expf(logits[e] - max);
    sum = cu_warp_sum(sum);
    for (int e = lane; e < experts; e += LANES)
        probs[e] = expf(logits[e] - max) / sum;
    __syncwarp(); /* every lane may read every probability below */
    for (int j = 0; j < k; j++) {
        int e = choose(probs, experts, used);

        if (e % LANES == lane)
            used |= 1u << e / LANES;
        if (lane == 0)
            idx[j] = e;
        top += probs[e];
    }
    __syncwarp();
    for (int j = lane; j < k; j += LANES)
        w[j] = probs[idx[j]] / (renorm ? top : 1.0f);
}

extern "C" void cu_router_fwd(struct kn_pool *pool, float *probs, int32_t *idx, float *w,
                              const float *logits, size_t rows, size_t experts, size_t k,
                              bool renorm)
{
    assert(experts <= MAX_EXPERTS && k <= experts);
    if (rows == 0)
        return;
    CU_LAUNCH(router_fwd, (unsigned)cu_blocks(rows, WARPS), WARPS * LANES, 0, cu_stream_of(pool),
              probs, idx, w, logits, rows, (int)experts, (int)k, renorm);
}

/* The gradient of the row's probability of expert E. */
static __device__ __forceinline__ float
dprob(const float *dw, const float *dprobs, const int32_t *idx, int k, int e, float mean, float by)
{
    float dp = dprobs ? dprobs[e] : 0.0f;

    for (int j = 0; j < k; j++)
        if (idx[j] == e)
            dp += (dw[j] - mean) * by;
    return dp;
}

/* w_j = p_j / S over the chosen, so dp_j = (dw_j - sum_i dw_i w_i) / S; then dl = p (dp - sum p
 * dp). Without RENORM, S is 1 and w_j is p_j. */
static __global__ void CU_BOUNDS(WARPS *LANES)
    router_bwd(float *dlogits, const float *dw, const float *dprobs, const float *probs,
               const int32_t *idx, const float *w, size_t rows, int experts, int k, bool renorm)
{
    size_t row = row_of_warp();
    int lane = (int)threadIdx.x % LANES;
    float sum = 0, mean = 0, inner = 0, by;

    if (row >= rows)
        return;
    dlogits += row * (size_t)experts;
    probs += row * (size_t)experts;
    if (dprobs)
        dprobs += row * (size_t)experts;
    idx += row * (size_t)k;
    w += row * (size_t)k;
    dw += row * (size_t)k;
    for (int j = 0; j < k; j++) {
        sum += probs[idx[j]];
        mean += dw[j] * w[j];
    }
    by = renorm ? 1.0f / sum : 1.0f;
    mean = renorm ? mean : 0.0f;
    for (int e = lane; e < experts; e += LANES)
        inner += probs[e] * dprob(dw, dprobs, idx, k, e, mean, by);
    inner = cu_warp_sum(inner);
    for (int e = lane; e < experts; e += LANES)
        dlogits[e] = probs[e] * (dprob(dw, dprobs, idx, k, e, mean, by) - inner);
}

extern "C" void cu_router_bwd(struct kn_pool *pool, float *dlogits, const float *dw,
                              const float *dprobs, const float *probs, const int32_t *idx,
                              const float *w, size_t rows, size_t experts, size_t k, bool renorm)
{
    if (rows == 0)
        return;
    CU_LAUNCH(router_bwd, (unsigned)cu_blocks(rows, WARPS), WARPS * LANES, 0, cu_stream_of(pool),
              dlogits, dw, dprobs, probs, idx, w, rows, (int)experts, (int)k, renorm);
}
