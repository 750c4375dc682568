/*
 * A backend in a shared library, which kn_plugin_load opens.
 *
 * The library exports one function, kn_plugin. It and the program are of one version and one layout
 * of struct kn_backend, or the program refuses it: the two are built together, and KN_PLUGIN_ABI
 * catches what a version under development does not.
 */
#ifndef KERNELS_PLUGIN_H
#define KERNELS_PLUGIN_H

#include "kernels/backend.h"

enum { KN_PLUGIN_ABI = 8 << 16 | sizeof(struct kn_backend) };

/* What the library needs of the program. */
struct kn_plugin_host {
    void (*pool_set_stream)(struct kn_pool *pool, void *stream);
    void *(*pool_stream)(const struct kn_pool *pool);
    int (*pool_threads)(const struct kn_pool *pool);
    void (*lost)(const char *what); /* as kn_on_lost; NULL, or returns: abort() */
};

/* Why a GPU is refused. */
struct kn_plugin_refusal {
    bool full; /* too little of its memory is free */
    char text[200];
};

struct kn_plugin {
    uint32_t abi;
    const char *version; /* of partune */
    int cuda;            /* of the CUDA runtime that it was built with: 1000 major + 10 minor */
    int capability;      /* the lowest compute capability that it has code for: 10 major + minor */
    /* For GPU INDEX. NULL: it refuses. */
    const struct kn_backend *(*open)(struct kn_plugin_refusal *ret_why,
                                     const struct kn_plugin_host *host, int index);
};

typedef const struct kn_plugin *kn_plugin_fn(void);

#endif
