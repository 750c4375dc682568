/* The operations of this folder (cu_gemm, cu_rmsnorm_fwd, ...: kernels.h has what they do), and
 * what their host halves share. */
#ifndef KERNELS_CUDA_OPS_CUH
#define KERNELS_CUDA_OPS_CUH

#include <assert.h>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/runtime.cuh"

extern "C" {
#include "kernels/backend.h"

#define CU_OP(op) __typeof__(kn_##op) cu_##op;
KN_BACKEND_OPS(CU_OP)
#undef CU_OP
}

/* The stream that POOL is. */
cu_stream *cu_stream_of(const struct kn_pool *pool);

/* y[i] += sum over p of part[p ld + i], i < dim, in the order of p < PARTS. */
void cu_add_parts(cu_stream *stream, float *y, const float *part, size_t parts, size_t dim,
                  size_t ld);

/* C = beta C + op(A) op(B) without a library, in fp32 arithmetic: for what the library refuses. */
void cu_gemm_plain(cu_stream *stream, const struct kn_gemm *gemm);
/* Attention: any width and type by the definition (plain); bf16 with d 64 or 128, all on multiples
 * of 16 bytes, by matrix instructions (tiled). delta (batch, heads, seq): sum over d of o d_o. */
void cu_attn_delta(cu_stream *stream, const struct kn_attn *attn, size_t q_rows,
                   const struct kn_attn_grad *grad, float *delta);
void cu_attn_fwd_plain(cu_stream *stream, const struct kn_attn *attn, void *out, size_t ldo,
                       float *lse);
void cu_attn_bwd_plain(cu_stream *stream, const struct kn_attn *attn,
                       const struct kn_attn_grad *grad, const float *delta);
void cu_attn_part_fwd_plain(cu_stream *stream, const struct kn_attn *attn,
                            const struct kn_attn_part *part, float *out, size_t ldo, float *lse);
void cu_attn_part_bwd_plain(cu_stream *stream, const struct kn_attn *attn,
                            const struct kn_attn_part *part, const struct kn_attn_grad *grad,
                            const float *delta);
void cu_attn_fwd_tiled(cu_stream *stream, const struct kn_attn *attn, void *out, size_t ldo,
                       float *lse);
void cu_attn_bwd_tiled(cu_stream *stream, const struct kn_attn *attn,
                       const struct kn_attn_grad *grad, const float *delta);

/* A storage type with the width of its packs. */
template <typename Type, int Width> struct cu_form {
    typedef Type T;
    static constexpr int V = Width;
};

/* F(form) for storage TYPE: packs of 16 bytes if WIDE, of one element otherwise. */
template <typename F> static inline void cu_typed(enum kn_type type, bool wide, F f)
{
    if (type == KN_F32 && wide)
        f(cu_form<float, 4>());
    else if (type == KN_F32)
        f(cu_form<float, 1>());
    else if (wide)
        f(cu_form<bf16, 8>());
    else
        f(cu_form<bf16, 1>());
}

/* Whether all of BITS, addresses and sizes of rows in bytes joined by |, are multiples of 16. */
static inline bool cu_on16(uintptr_t bits)
{
    return bits % 16 == 0;
}

static inline uintptr_t cu_addr(const void *p)
{
    return (uintptr_t)p;
}

static inline size_t cu_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t cu_blocks(size_t count, size_t each)
{
    return (count + each - 1) / each;
}

/* Threads of a block that works on COUNT packs, whole warps, at most MOST. */
static inline unsigned cu_threads(size_t count, unsigned most)
{
    size_t warps = cu_blocks(count, CU_WARP);

    return (unsigned)cu_least(warps ? warps * CU_WARP : (size_t)CU_WARP, most);
}

#endif
