/* The backend as its caller sees it. */
#ifndef KERNELS_CUDA_BACKEND_CUH
#define KERNELS_CUDA_BACKEND_CUH

#include "kernels/cuda/ops.cuh"

/* What the backend, which may be a plug-in, needs of the program. */
struct cu_host {
    void (*pool_set_stream)(struct kn_pool *pool, void *stream);
    void *(*pool_stream)(const struct kn_pool *pool);
};

/* Operations go to HOST from here on. */
const struct kn_backend *cu_backend(const struct cu_host *host);

#endif
