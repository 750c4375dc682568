/* The backend as its caller sees it. */
#ifndef KERNELS_CUDA_BACKEND_CUH
#define KERNELS_CUDA_BACKEND_CUH

#include "kernels/cuda/ops.cuh"

extern "C" {
#include "kernels/plugin.h"
}

/* The backend of GPU INDEX, or NULL if the device refuses; its pools are HOST's. */
const struct kn_backend *cu_backend(struct kn_plugin_refusal *ret_why,
                                    const struct kn_plugin_host *host, int index);

/* Whether UNUSED bytes of the GPU suffice; if not, why. */
bool cu_has_room(struct kn_plugin_refusal *ret_why, size_t unused);

#endif
