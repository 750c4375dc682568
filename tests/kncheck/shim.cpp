/* kncheck of the CUDA backend's kernels on the host. */
#include "kernels/cuda/backend.cuh"

extern "C" const struct kn_backend *kc_backend(bool reverse)
{
    static const struct kn_plugin_host host = {kn_pool_set_stream, kn_pool_stream, kn_pool_threads,
                                               nullptr};
    struct kn_plugin_refusal why;

    shim_reverse(reverse);
    return cu_backend(&why, &host, 0);
}
