/*
 * FlashAttention-2 forward by matrix instructions: a block of four warps for 64 queries of a head,
 * the keys in tiles of 64, softmax with a running maximum. Scores are kept in units of log2.
 */
#include "kernels/cuda/attn_tile.cuh"

static constexpr int KEYS = 64;

/* What a warp knows of its rows: [0] for g, [1] for g + 8. */
struct rows {
    float max[2], sum[2];
};

/* The largest and the sum over the four lanes that share a row. */
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(CU_ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(CU_ALL, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(CU_ALL, x, 1);
    return x + __shfl_xor_sync(CU_ALL, x, 2);
}

/* s = 2^(scale s - max) with the new maximum; o and the sums are scaled to it. Key 2 t + 8 n of the
 * tile is seen by row g if it is not above g + DIAG, and with a WINDOW, if it is above g + DIAG -
 * WINDOW. */
template <int D, bool WINDOW>
static __device__ __forceinline__ void softmax(float (&s)[KEYS / 8][4], float (&o)[D / 8][4],
                                               rows &r, float scale, int diag, int window)
{
    int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;

    CU_UNROLL
    for (int half = 0; half < 2; half++) {
        float top = r.max[half], keep, sum = 0;

        CU_UNROLL
        for (int n = 0; n < KEYS / 8; n++) {
            CU_UNROLL
            for (int i = 0; i < 2; i++) {
                float &x = s[n][2 * half + i];

                int key = 8 * n + 2 * t + i, own = g + 8 * half + diag;

                x = key <= own && (!WINDOW || key > own - window) ? x * scale : -INFINITY;
                top = fmaxf(top, x);
            }
        }
        top = quad_max(top);
        keep = exp2f(r.max[half] - top);
        CU_UNROLL
        for (int n = 0; n < KEYS / 8; n++) {
            CU_UNROLL
            for (int i = 0; i < 2; i++) {
                float &x = s[n][2 * half + i];

                x = exp2f(x - top);
                sum += x;
            }
        }
        r.sum[half] = r.sum[half] * keep + quad_sum(sum);
        r.max[half] = top;
        CU_UNROLL
        for (int n = 0; n < D / 8; n++) {
            o[n][2 * half] *= keep;
            o[n][2 * half + 1] *= keep;
        }
    }
}

/* Block (tile of queries from the last, head, sample). */
template <int D, bool WINDOW>
static __global__ void CU_BOUNDS(TILE_THREADS)
    fwd(kn_attn a, bf16 *out, size_t ldo, float *lse, float scale)
{
    CU_SHARED(bf16, k);
    bf16 *v = k + KEYS * tile<D>::ld, *q = v + KEYS * tile<D>::ld;
    size_t q0 = (size_t)(gridDim.x - 1 - blockIdx.x) * TILE_ROWS, h = blockIdx.y;
    size_t first = blockIdx.z * a.seq, kv = h / (a.heads / a.kv_heads);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    /* with a window a tile may hold no key of a row */
    constexpr float NONE = WINDOW ? -FLT_MAX : -INFINITY;
    rows r = {{NONE, NONE}, {0, 0}};
    size_t begin = WINDOW ? tile_begin(a, q0, KEYS) : 0;
    float o[D / 8][4] = {};

    tile_load<D, TILE_ROWS>(q, (const bf16 *)a.q + (first + q0) * a.ldq + h * D, a.ldq, a.seq - q0);
    for (size_t k0 = begin; k0 <= q0; k0 += KEYS) {
        float s[KEYS / 8][4] = {};

        __syncthreads(); /* the tile before may still be read */
        tile_load<D, KEYS>(k, (const bf16 *)a.k + (first + k0) * a.ldk + kv * D, a.ldk, a.seq - k0);
        tile_load<D, KEYS>(v, (const bf16 *)a.v + (first + k0) * a.ldv + kv * D, a.ldv, a.seq - k0);
        __syncthreads();
        tile_product<D, KEYS>(s, q, 16 * warp, k);
        softmax<D, WINDOW>(s, o, r, scale, (int)(q0 - k0) + 16 * warp, tile_window(a));
        tile_weigh<D, KEYS>(o, s, v);
    }
    for (int half = 0; half < 2; half++) {
        size_t row = q0 + (size_t)(16 * warp + 8 * half + lane / 4);

        if (lane % 4 == 0 && row < a.seq)
            lse[(blockIdx.z * a.heads + h) * a.seq + row] =
                r.max[half] * 0.693147180559945309f + logf(r.sum[half]);
    }
    q0 += (size_t)(16 * warp);
    tile_store<D>(out + (first + q0) * ldo + h * D, ldo, a.seq > q0 ? a.seq - q0 : 0, o,
                  1.0f / r.sum[0], 1.0f / r.sum[1], q + 16 * warp * tile<D>::ld);
}

template <int D, bool WINDOW>
static void launch(cu_stream *stream, const struct kn_attn *attn, void *out, size_t ldo, float *lse)
{
    kn_attn a = *attn;
    dim3 grid((unsigned)cu_blocks(a.seq, TILE_ROWS), (unsigned)a.heads, (unsigned)a.batch);
    size_t shared = tile<D>::bytes(2 * KEYS + TILE_ROWS);
    float scale = (float)((double)a.scale * 1.4426950408889634);

    cu_allow_shared((const void *)fwd<D, WINDOW>, shared);
    CU_LAUNCH((fwd<D, WINDOW>), grid, TILE_THREADS, shared, stream, a, (bf16 *)out, ldo, lse,
              scale);
}

template <int D>
static void choose(cu_stream *stream, const struct kn_attn *attn, void *out, size_t ldo, float *lse)
{
    attn->window ? launch<D, true>(stream, attn, out, ldo, lse)
                 : launch<D, false>(stream, attn, out, ldo, lse);
}

void cu_attn_fwd_tiled(cu_stream *stream, const struct kn_attn *attn, void *out, size_t ldo,
                       float *lse)
{
    attn->d == 64 ? choose<64>(stream, attn, out, ldo, lse)
                  : choose<128>(stream, attn, out, ldo, lse);
}
