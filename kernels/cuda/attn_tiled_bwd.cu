/*
 * FlashAttention-2 backward by matrix instructions, without atomics: one kernel with a block for 64
 * keys of a key/value head, which meets all queries of its heads in order, and one with a block for
 * 64 queries of a head, which meets the keys. Both compute the scores again, so the gradients are
 * bit for bit the same in every run, for two more products of seven than with atomics.
 *
 * The first works on transposed scores (keys, queries): then keys are the warp's rows, and what
 * belongs to queries, lse and delta, to columns.
 */
#include "kernels/cuda/attn_tile.cuh"

/* Rows of the tile that a block meets: as many as the registers hold without spilling. */
static constexpr int KEYS = 32;
template <int D> static constexpr int QUERIES = D == 64 ? 32 : 16;

/* The largest finite number would do: where there is no query, its exponential must be 0. */
static constexpr float NONE = INFINITY;

struct scales {
    float score, exponent; /* of s; of s and lse, in units of log2 */
};

/* p = 2^(c s - lse') where SEEN, and ds = scale p (dp - delta). */
static __device__ __forceinline__ void weigh(float &s, float &dp, bool seen, scales by, float lse,
                                             float delta)
{
    s = seen ? exp2f(s * by.exponent - lse) : 0.0f;
    dp = by.score * s * (dp - delta);
}

template <bool WINDOW>
static __device__ __forceinline__ bool seen(const kn_attn &a, size_t key, size_t query)
{
    return key <= query && (!WINDOW || query - key < a.window);
}

/* lse and delta of COUNT queries from Q0 on, in shared memory, lse in units of log2. */
template <int COUNT>
static __device__ __forceinline__ void load_rows(float *to, const kn_attn &a, const float *lse,
                                                 const float *delta, size_t at, size_t q0)
{
    int i = (int)threadIdx.x;

    if (i < COUNT) {
        bool in = q0 + (size_t)i < a.seq;

        to[i] = in ? lse[at + q0 + (size_t)i] * 1.44269504088896341f : NONE;
        to[COUNT + i] = in ? delta[at + q0 + (size_t)i] : 0.0f;
    }
}

/* Block (tile of keys, key/value head, sample). */
template <int D, bool WINDOW>
static __global__ void CU_BOUNDS(TILE_THREADS)
    grad_kv(kn_attn a, kn_attn_grad g, const float *delta, scales by)
{
    CU_SHARED(bf16, k);
    bf16 *v = k + TILE_ROWS * tile<D>::ld, *q = v + TILE_ROWS * tile<D>::ld;
    bf16 *y = q + QUERIES<D> * tile<D>::ld;
    float *row = (float *)(y + QUERIES<D> * tile<D>::ld);
    size_t k0 = (size_t)blockIdx.x * TILE_ROWS, kv = blockIdx.y, first = blockIdx.z * a.seq;
    size_t group = a.heads / a.kv_heads, end = a.seq;
    int lane = (int)threadIdx.x % 32, mine = (int)threadIdx.x / 32 * 16;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};

    if (WINDOW && k0 + TILE_ROWS - 1 + a.window < end)
        end = k0 + TILE_ROWS - 1 + a.window; /* later queries have forgotten the last key */
    tile_load<D, TILE_ROWS>(k, (const bf16 *)a.k + (first + k0) * a.ldk + kv * D, a.ldk,
                            a.seq - k0);
    tile_load<D, TILE_ROWS>(v, (const bf16 *)a.v + (first + k0) * a.ldv + kv * D, a.ldv,
                            a.seq - k0);
    for (size_t h = kv * group; h < (kv + 1) * group; h++) {
        for (size_t q0 = k0; q0 < end; q0 += QUERIES<D>) {
            float s[QUERIES<D> / 8][4] = {}, dp[QUERIES<D> / 8][4] = {};

            __syncthreads(); /* the tile before may still be read */
            tile_load<D, QUERIES<D>>(q, (const bf16 *)a.q + (first + q0) * a.ldq + h * D, a.ldq,
                                     a.seq - q0);
            tile_load<D, QUERIES<D>>(y, (const bf16 *)g.d_o + (first + q0) * g.lddo + h * D, g.lddo,
                                     a.seq - q0);
            load_rows<QUERIES<D>>(row, a, g.lse, delta, (blockIdx.z * a.heads + h) * a.seq, q0);
            __syncthreads();
            tile_product<D, QUERIES<D>>(s, k, mine, q);
            tile_product<D, QUERIES<D>>(dp, v, mine, y);
            CU_UNROLL
            for (int n = 0; n < QUERIES<D> / 8; n++) {
                CU_UNROLL
                for (int i = 0; i < 4; i++) {
                    int col = 8 * n + lane % 4 * 2 + i % 2, key = mine + lane / 4 + i / 2 * 8;

                    weigh(s[n][i], dp[n][i], seen<WINDOW>(a, k0 + (size_t)key, q0 + (size_t)col),
                          by, row[col], row[QUERIES<D> + col]);
                }
            }
            tile_weigh<D, QUERIES<D>>(dv, s, y);
            tile_weigh<D, QUERIES<D>>(dk, dp, q);
        }
    }
    __syncthreads(); /* the tiles become room for the results */
    k0 += (size_t)mine;
    tile_store<D>((bf16 *)g.dk + (first + k0) * g.lddk + kv * D, g.lddk,
                  a.seq > k0 ? a.seq - k0 : 0, dk, 1, 1, k + mine * tile<D>::ld);
    tile_store<D>((bf16 *)g.dv + (first + k0) * g.lddv + kv * D, g.lddv,
                  a.seq > k0 ? a.seq - k0 : 0, dv, 1, 1, k + mine * tile<D>::ld);
}

/* Block (tile of queries from the last, head, sample). */
template <int D, bool WINDOW>
static __global__ void CU_BOUNDS(TILE_THREADS)
    grad_q(kn_attn a, kn_attn_grad g, const float *delta, scales by)
{
    CU_SHARED(bf16, q);
    bf16 *y = q + TILE_ROWS * tile<D>::ld, *k = y + TILE_ROWS * tile<D>::ld;
    bf16 *v = k + KEYS * tile<D>::ld;
    size_t q0 = (size_t)(gridDim.x - 1 - blockIdx.x) * TILE_ROWS, h = blockIdx.y;
    size_t first = blockIdx.z * a.seq, kv = h / (a.heads / a.kv_heads);
    size_t at = (blockIdx.z * a.heads + h) * a.seq;
    int lane = (int)threadIdx.x % 32, mine = (int)threadIdx.x / 32 * 16;
    float dq[D / 8][4] = {}, lse[2], sum[2];
    size_t begin = WINDOW ? tile_begin(a, q0, KEYS) : 0;

    tile_load<D, TILE_ROWS>(q, (const bf16 *)a.q + (first + q0) * a.ldq + h * D, a.ldq, a.seq - q0);
    tile_load<D, TILE_ROWS>(y, (const bf16 *)g.d_o + (first + q0) * g.lddo + h * D, g.lddo,
                            a.seq - q0);
    CU_UNROLL
    for (int half = 0; half < 2; half++) {
        size_t t = q0 + (size_t)(mine + lane / 4 + 8 * half);

        lse[half] = t < a.seq ? g.lse[at + t] * 1.44269504088896341f : NONE;
        sum[half] = t < a.seq ? delta[at + t] : 0.0f;
    }
    for (size_t k0 = begin; k0 < q0 + TILE_ROWS && k0 < a.seq; k0 += KEYS) {
        float s[KEYS / 8][4] = {}, dp[KEYS / 8][4] = {};

        __syncthreads(); /* the tile before may still be read */
        tile_load<D, KEYS>(k, (const bf16 *)a.k + (first + k0) * a.ldk + kv * D, a.ldk, a.seq - k0);
        tile_load<D, KEYS>(v, (const bf16 *)a.v + (first + k0) * a.ldv + kv * D, a.ldv, a.seq - k0);
        __syncthreads();
        tile_product<D, KEYS>(s, q, mine, k);
        tile_product<D, KEYS>(dp, y, mine, v);
        CU_UNROLL
        for (int n = 0; n < KEYS / 8; n++) {
            CU_UNROLL
            for (int i = 0; i < 4; i++) {
                int key = 8 * n + lane % 4 * 2 + i % 2, col = mine + lane / 4 + i / 2 * 8;

                weigh(s[n][i], dp[n][i], seen<WINDOW>(a, k0 + (size_t)key, q0 + (size_t)col), by,
                      lse[i / 2], sum[i / 2]);
            }
        }
        tile_weigh<D, KEYS>(dq, dp, k);
    }
    __syncthreads();
    q0 += (size_t)mine;
    tile_store<D>((bf16 *)g.dq + (first + q0) * g.lddq + h * D, g.lddq, a.seq > q0 ? a.seq - q0 : 0,
                  dq, 1, 1, q + mine * tile<D>::ld);
}

template <int D, bool WINDOW>
static void launch(cu_stream *stream, const struct kn_attn *attn, const struct kn_attn_grad *grad,
                   const float *delta)
{
    kn_attn a = *attn;
    kn_attn_grad g = *grad;
    unsigned tiles = (unsigned)cu_blocks(a.seq, TILE_ROWS);
    dim3 for_kv(tiles, (unsigned)a.kv_heads, (unsigned)a.batch);
    dim3 for_q(tiles, (unsigned)a.heads, (unsigned)a.batch);
    size_t kv_bytes =
        tile<D>::bytes(2 * TILE_ROWS + 2 * QUERIES<D>) + 2 * QUERIES<D> * sizeof(float);
    size_t q_bytes = tile<D>::bytes(2 * TILE_ROWS + 2 * KEYS);
    scales by = {a.scale, (float)((double)a.scale * 1.4426950408889634)};

    cu_allow_shared((const void *)grad_kv<D, WINDOW>, kv_bytes);
    cu_allow_shared((const void *)grad_q<D, WINDOW>, q_bytes);
    CU_LAUNCH((grad_kv<D, WINDOW>), for_kv, TILE_THREADS, kv_bytes, stream, a, g, delta, by);
    CU_LAUNCH((grad_q<D, WINDOW>), for_q, TILE_THREADS, q_bytes, stream, a, g, delta, by);
}

template <int D>
static void choose(cu_stream *stream, const struct kn_attn *attn, const struct kn_attn_grad *grad,
                   const float *delta)
{
    attn->window ? launch<D, true>(stream, attn, grad, delta)
                 : launch<D, false>(stream, attn, grad, delta);
}

void cu_attn_bwd_tiled(cu_stream *stream, const struct kn_attn *attn,
                       const struct kn_attn_grad *grad, const float *delta)
{
    attn->d == 64 ? choose<64>(stream, attn, grad, delta) : choose<128>(stream, attn, grad, delta);
}
