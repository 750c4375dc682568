/* The backend as a shared library. */
#include "kernels/cuda/backend.cuh"

#ifndef PACKAGE_VERSION
#error "the build names partune's version"
#endif

extern "C" __attribute__((visibility("default"))) const struct kn_plugin *kn_plugin(void)
{
    static const struct kn_plugin plugin = {KN_PLUGIN_ABI, PACKAGE_VERSION, CU_RUNTIME_VERSION,
                                            CU_OLDEST_GPU, cu_backend};

    return &plugin;
}
