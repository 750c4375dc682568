/*
 * A library of matrix products as gemm.cu drives it: cuBLASLt (gemm_lt.cu), or what takes its place
 * on the host (gemm_shim.cpp). A product that it does not take goes to gemm_plain.cu.
 */
#ifndef KERNELS_CUDA_GEMM_CUH
#define KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/runtime.cuh"

extern "C" {
#include "kernels/backend.h"
}

struct cu_algo {
    uint64_t word[KN_ALGO_WORDS];
};

/* Multiples of 16 bytes: what an algorithm that is kept needs of the addresses of arrays, at most.
 */
enum { CU_ALGO_ALIGN = 16 };

/* Powers of two that divide the addresses of A, B and C. */
struct cu_aligned {
    unsigned a, b, c;
};

/* Its name and version. */
const char *cu_lib_name(void);
/* Up to MOST algorithms, the heuristic's choice first, that need CU_SCRATCH_BYTES of workspace at
 * most and no more than ALIGNED; 0: it does not take PRODUCT. */
unsigned cu_lib_find(cu_algo *ret, unsigned most, const struct kn_product &product,
                     const cu_aligned &aligned);
/* Can it run ALGO for PRODUCT in that workspace? */
bool cu_lib_takes(const struct kn_product &product, const cu_algo &algo);
/* False: it does not support that, and nothing was launched. */
bool cu_lib_run(cu_stream *stream, const struct kn_gemm *gemm, const cu_algo &algo);

/* As kn_gemm_algos and kn_gemm_use (gemm.cu). */
size_t cu_gemm_algos(struct kn_algo *ret, size_t most, const struct kn_gemm *gemm);
bool cu_gemm_use(const struct kn_algo *algo);

#endif
