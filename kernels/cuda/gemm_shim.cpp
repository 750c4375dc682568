/* Where there is no library for matrix multiplication, the kernel of gemm_plain.cu does it. */
#include "kernels/cuda/ops.cuh"

extern "C" void cu_gemm(struct kn_pool *pool, const struct kn_gemm *gemm)
{
    cu_gemm_plain(cu_stream_of(pool), gemm);
}
