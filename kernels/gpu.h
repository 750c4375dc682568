/*
 * GPUs, and the algorithms of their library of matrix products. A part of kernels.h.
 */
#ifndef KERNELS_GPU_H
#define KERNELS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err; /* base/base.h */
struct kn_backend;
struct kn_gemm;
struct kn_pool;

/* A GPU as the driver says. */
struct kn_gpu {
    char name[96];
    char bus[32];  /* its PCI bus address; instances of one GPU (MIG) have the same */
    char uuid[40]; /* its own, or the instance's, in hexadecimal digits in groups */
    int count;     /* of GPUs that the driver has, where it was asked */
    size_t memory; /* its bytes in all */
    int cuda;      /* the newest that the driver supports: 1000 major + 10 minor */
};

/* Load the CUDA backend in the shared library PATH for GPU INDEX, which is *RET_GPU. Driver,
 * library and GPU are checked in this order; the error says what is missing or too old, and what is
 * needed. -ERANGE: the driver has fewer GPUs; -EBUSY: other processes fill its memory. */
int kn_plugin_load(const struct kn_backend **ret_backend, struct kn_gpu *ret_gpu, const char *path,
                   int index, struct err *error);
/* A GPU that is lost in the middle (its memory, its bus or its driver fails) ends the program by
 * FN(what), in one line, which does not return; without FN, by a line on stderr and abort(). */
void kn_on_lost(void (*fn)(const char *what));

/* ---- algorithms of matrix products --------------------------------------- */

/*
 * The library of a backend (cuBLASLt) has several algorithms for a product, and by itself takes the
 * one that its heuristic names first. Calibration measures the first few and keeps the fastest. An
 * algorithm is a few words that mean something only to the same version of the library on the same
 * kind of GPU.
 */
enum { KN_ALGO_WORDS = 8 };

/* A product by what its algorithm depends on: kn_gemm's sizes, orders and types. */
struct kn_product {
    uint64_t m, n, k, lda, ldb, ldc;
    uint8_t ta, tb, add, at, bt, ct; /* ADD: beta is 1; types are enum kn_type */
    uint8_t zero[2];                 /* no holes: products are compared byte by byte */
};

struct kn_algo {
    struct kn_product product;
    uint64_t word[KN_ALGO_WORDS];
};

/* The current backend's library with its version, "cuBLASLt 13.1.0"; empty: it has none. */
const char *kn_gemm_library(void);

/* Up to MOST algorithms for GEMM, the heuristic's choice first, of arrays on multiples of 16 bytes;
 * 0: the library takes no such product, or there is none. */
size_t kn_gemm_algos(struct kn_algo *ret, size_t most, const struct kn_gemm *gemm);

/* Products like that of ALGO use it from now on wherever their arrays are on multiples of 16 bytes,
 * on all pools of the current backend. False, without a change: its library refuses ALGO, or has no
 * room for more (KN_ALGOS). */
enum { KN_ALGOS = 4096 };
bool kn_gemm_use(const struct kn_algo *algo);

/* ---- graphs -------------------------------------------------------------- */

/*
 * Operations that a device starts as one. What is launched on POOL between kn_graph_begin and
 * kn_graph_end is kept, not done: operations and copies within the backend's memory that return
 * nothing, without waits, marks or stamps. kn_graph_launch does it, as often as it is called, with
 * the arrays and sizes of that time.
 */
struct kn_graph;
bool kn_graphs(const struct kn_pool *pool); /* POOL's backend has them */
void kn_graph_begin(struct kn_pool *pool);
struct kn_graph *kn_graph_end(struct kn_pool *pool); /* kn_graph_free() frees it, before POOL */
void kn_graph_launch(struct kn_pool *pool, struct kn_graph *graph);
struct kn_graph *kn_graph_free(struct kn_pool *pool, struct kn_graph *graph); /* returns NULL */

#endif
