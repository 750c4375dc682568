/* Attention: between the driver (attention.c), the tiled version and the instruction sets. */
#ifndef KERNELS_ATTN_H
#define KERNELS_ATTN_H

#include "kernels/gemm.h"

/* Queries and keys of a tile, whose scores fit into L2 with room to spare, and the distance between
 * rows of scores: not a power of two, so that a column of them spreads over all sets of the
 * first-level cache. */
enum { KN_ATTN_TILE = 128, KN_ATTN_LD = KN_ATTN_TILE + 16 };

/* One block of queries [q0, q1) of a head; the query head in the forward pass, the key/value head
 * with all its queries in the backward pass. SUMS: fp32 sums of dk and dv, 2 (seq, d), used only
 * with bf16 storage. */
void kn_attn_tiled_fwd(const struct kn_attn_job *j, void *o, size_t ldo, float *lse);
void kn_attn_tiled_bwd(const struct kn_attn_job *j, const struct kn_attn_grad *g,
                       const float *delta, float *sums);

#endif
