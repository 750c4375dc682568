/* Matrix multiplication without a library: tiles of 64 x 64 in fp32, for shapes that the library
 * refuses and for the host, where there is none. */
#include "kernels/cuda/ops.cuh"

static constexpr unsigned SIDE = 64;
static constexpr unsigned DEPTH = 16;
static constexpr unsigned EACH = 4;
static constexpr unsigned THREADS = 256;

struct side {
    const void *at;
    size_t ld;
    bool turned; /* element (i, l) is at l ld + i */
};

template <typename T>
static __device__ __forceinline__ float element(const side &s, size_t i, size_t l)
{
    return cu_float(((const T *)s.at)[s.turned ? l * s.ld + i : i * s.ld + l]);
}

/* SIDE x DEPTH elements of S from (i0, l0), zeros outside (COUNT, K), as tile[l][i]. */
template <typename T>
static __device__ __forceinline__ void fetch(float *tile, const side &s, size_t i0, size_t l0,
                                             size_t count, size_t k)
{
    for (unsigned n = threadIdx.x; n < SIDE * DEPTH; n += THREADS) {
        unsigned i = s.turned ? n % SIDE : n / DEPTH, l = s.turned ? n / SIDE : n % DEPTH;
        bool in = i0 + i < count && l0 + l < k;

        tile[l * (SIDE + 1) + i] = in ? element<T>(s, i0 + i, l0 + l) : 0.0f;
    }
}

template <typename A, typename B, typename C>
static __global__ void CU_BOUNDS(THREADS)
    gemm(C *c, size_t ldc, side a, side b, size_t m, size_t n, size_t k, bool add)
{
    CU_SHARED(float, ta);
    float *tb = ta + DEPTH * (SIDE + 1), sum[EACH][EACH] = {};
    size_t i0 = blockIdx.x * (size_t)SIDE, j0 = blockIdx.y * (size_t)SIDE;
    unsigned ti = threadIdx.x / (SIDE / EACH), tj = threadIdx.x % (SIDE / EACH);

    for (size_t l0 = 0; l0 < k; l0 += DEPTH) {
        fetch<A>(ta, a, i0, l0, m, k);
        fetch<B>(tb, b, j0, l0, n, k);
        __syncthreads();
        for (unsigned l = 0; l < DEPTH; l++) {
            CU_UNROLL
            for (unsigned i = 0; i < EACH; i++) {
                CU_UNROLL
                for (unsigned j = 0; j < EACH; j++)
                    sum[i][j] +=
                        ta[l * (SIDE + 1) + ti * EACH + i] * tb[l * (SIDE + 1) + tj * EACH + j];
            }
        }
        __syncthreads();
    }
    CU_UNROLL
    for (unsigned i = 0; i < EACH; i++) {
        CU_UNROLL
        for (unsigned j = 0; j < EACH; j++) {
            size_t row = i0 + ti * EACH + i, col = j0 + tj * EACH + j;

            if (row < m && col < n)
                c[row * ldc + col] =
                    cu_round<C>(sum[i][j] + (add ? cu_float(c[row * ldc + col]) : 0.0f));
        }
    }
}

template <typename A, typename B, typename C>
static void launch(cu_stream *stream, const struct kn_gemm *g)
{
    side a = {g->a, g->lda, g->ta}, b = {g->b, g->ldb, !g->tb};
    dim3 grid((unsigned)cu_blocks(g->m, SIDE), (unsigned)cu_blocks(g->n, SIDE));
    size_t shared = 2 * DEPTH * (SIDE + 1) * sizeof(float);

    CU_LAUNCH((gemm<A, B, C>), grid, THREADS, shared, stream, (C *)g->c, g->ldc, a, b, g->m, g->n,
              g->k, g->beta != 0);
}

template <typename A, typename B> static void by_result(cu_stream *stream, const struct kn_gemm *g)
{
    g->ct == KN_F32 ? launch<A, B, float>(stream, g) : launch<A, B, bf16>(stream, g);
}

void cu_gemm_plain(cu_stream *stream, const struct kn_gemm *gemm)
{
    assert(gemm->beta == 0 || gemm->beta == 1);
    if (gemm->m == 0 || gemm->n == 0)
        return;
    if (gemm->at == KN_F32)
        gemm->bt == KN_F32 ? by_result<float, float>(stream, gemm)
                           : by_result<float, bf16>(stream, gemm);
    else
        gemm->bt == KN_F32 ? by_result<bf16, float>(stream, gemm)
                           : by_result<bf16, bf16>(stream, gemm);
}
