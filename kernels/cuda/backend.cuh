/* The backend as its caller sees it. */
#ifndef KERNELS_CUDA_BACKEND_CUH
#define KERNELS_CUDA_BACKEND_CUH

#include "kernels/cuda/ops.cuh"

extern "C" {
#include "kernels/plugin.h"
}

/* The backend of GPU INDEX, or NULL if the device refuses; its pools are HOST's. */
const struct kn_backend *cu_backend(const struct kn_plugin_host *host, int index);

#endif
