/* Attention: shared by the driver (attention.c), the tiled version and the instruction sets. */
#ifndef KERNELS_ATTN_H
#define KERNELS_ATTN_H

#include <stdatomic.h>

#include "kernels/gemm.h"

/* Queries and keys of a tile, whose scores fit into L2, and the distance between rows of scores:
 * not a power of two, so that a column maps to all sets of the L1 cache. */
enum { KN_ATTN_TILE = 128, KN_ATTN_LD = KN_ATTN_TILE + 16 };

/* One block of queries [q0, q1) of a head; the query head in the forward pass, the key/value head
 * with all its queries in the backward pass. SUMS: fp32 sums of dk (seq, d), then of dv (seq, dv),
 * used only with bf16 storage. */
void kn_attn_tiled_fwd(const struct kn_attn_job *job, void *out, size_t ldo, float *lse);
void kn_attn_tiled_bwd(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                       const float *delta, float *sums);

/*
 * The backward pass of one key/value head by several threads, deterministic. A row is a block of
 * queries of one query head; its thread adds to dk and dv of key block k only after all earlier
 * rows of the head that see these keys. Sums are thus in the order of kn_attn_tiled_bwd and bit for
 * bit the same.
 */
struct kn_attn_order {
    atomic_uint *done; /* key blocks that a row (q head in the group, block) has added to */
    size_t blocks;     /* of queries in a head */
    bool causal;       /* block q sees key blocks 0 to q only */
    size_t stride;     /* row r of this key/value head is done[r stride] */
};

/* Row ROW of JOB's key/value head; then, once for all rows, rounding of the sums to bf16. */
void kn_attn_tiled_bwd_row(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                           const float *delta, float *sums, const struct kn_attn_order *order,
                           size_t row);
void kn_attn_tiled_bwd_end(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                           const float *sums);

#endif
