/* Rotary positions, SwiGLU and the clamped SwiGLU. */
#include "kernels/cuda/gated.cuh"

static constexpr unsigned THREADS = 256;

/* ---- rotary positions ---------------------------------------------------- */

/* A block for each row, a thread for V pairs of each head. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    rope(T *x, size_t ldx, size_t heads, size_t dim, size_t turned, const float *cos_t,
         const float *sin_t, const int32_t *pos, size_t seq, bool backward)
{
    size_t row = blockIdx.x, half = turned / 2, packs = half / V;
    size_t at = (pos ? (size_t)pos[row] : row % seq) * half;

    x += row * ldx;
    for (size_t p = threadIdx.x; p < heads * packs; p += blockDim.x) {
        size_t i = p % packs * V;
        T *lo = x + p / packs * dim + i, *hi = lo + half;
        float a[V], b[V];

        cu_load(a, lo);
        cu_load(b, hi);
        CU_UNROLL
        for (int j = 0; j < V; j++) {
            float c = cos_t[at + i + j], s = backward ? -sin_t[at + i + j] : sin_t[at + i + j];
            float was = a[j];

            a[j] = was * c - b[j] * s;
            b[j] = b[j] * c + was * s;
        }
        cu_store(lo, a);
        cu_store(hi, b);
    }
}

extern "C" void cu_rope(struct kn_pool *pool, enum kn_type type, void *x, size_t ldx, size_t rows,
                        size_t heads, size_t dim, size_t turned, const float *cos_t,
                        const float *sin_t, const int32_t *pos, size_t seq, bool backward)
{
    size_t elem = kn_type_size(type);
    bool wide = cu_on16(cu_addr(x) | ldx * elem | dim * elem | turned / 2 * elem);

    assert(turned % 2 == 0 && turned <= dim && (pos || seq > 0));
    if (rows == 0 || turned == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(heads * (turned / 2 / V), THREADS);

        CU_LAUNCH((rope<T, V>), (unsigned)rows, threads, 0, cu_stream_of(pool), (T *)x, ldx, heads,
                  dim, turned, cos_t, sin_t, pos, seq, backward);
    });
}

/* ---- SwiGLU and the clamped SwiGLU ---------------------------------------- */

struct swiglu {
    static __device__ __forceinline__ float forward(float gate, float up)
    {
        return gate * cu_sigmoid(gate) * up;
    }
    static __device__ __forceinline__ void backward(float &gate, float &up, float dy)
    {
        float s = cu_sigmoid(gate), k = dy * up;

        up = dy * (gate * s);
        gate = k * s * (1.0f + gate * (1.0f - s));
    }
};

CU_GATED(swiglu, swiglu)

static __device__ __forceinline__ float clamped(float gate)
{
    return fminf(gate, KN_CLAMP_LIMIT);
}

static __device__ __forceinline__ float clamped_up(float up)
{
    return fmaxf(fminf(up, KN_CLAMP_LIMIT), -KN_CLAMP_LIMIT) + 1.0f;
}

struct swiglu_clamped {
    static __device__ __forceinline__ float forward(float gate, float up)
    {
        float a = clamped(gate);

        return clamped_up(up) * (a * cu_sigmoid(KN_CLAMP_ALPHA * a));
    }
    static __device__ __forceinline__ void backward(float &gate, float &up, float dy)
    {
        float a = clamped(gate), x = KN_CLAMP_ALPHA * a, s = cu_sigmoid(x), k = dy * clamped_up(up);

        up = fabsf(up) <= KN_CLAMP_LIMIT ? dy * (a * s) : 0.0f;
        gate = gate <= KN_CLAMP_LIMIT ? k * s * (1.0f + x * (1.0f - s)) : 0.0f;
    }
};

CU_GATED(swiglu_clamped, swiglu_clamped)
