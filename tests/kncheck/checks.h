/* The operations that kncheck knows. */
#ifndef TESTS_KNCHECK_CHECKS_H
#define TESTS_KNCHECK_CHECKS_H

#include "tests/kncheck/kncheck.h"

extern const struct kc_op kc_gemm;
extern const struct kc_op kc_grouped;
extern const struct kc_op kc_attn_fwd;
extern const struct kc_op kc_attn_bwd;
extern const struct kc_op kc_rmsnorm_fwd;
extern const struct kc_op kc_rmsnorm_bwd;
extern const struct kc_op kc_rope;
extern const struct kc_op kc_swiglu_fwd;
extern const struct kc_op kc_swiglu_bwd;
extern const struct kc_op kc_embed_fwd;
extern const struct kc_op kc_embed_bwd;
extern const struct kc_op kc_xent_max;
extern const struct kc_op kc_xent_sum;
extern const struct kc_op kc_xent_loss;
extern const struct kc_op kc_xent_grad;
extern const struct kc_op kc_router_fwd;
extern const struct kc_op kc_router_bwd;
extern const struct kc_op kc_sort;
extern const struct kc_op kc_permute;
extern const struct kc_op kc_unpermute;
extern const struct kc_op kc_unpermute_bwd;
extern const struct kc_op kc_zero;
extern const struct kc_op kc_convert;
extern const struct kc_op kc_add;
extern const struct kc_op kc_sumsq;
extern const struct kc_op kc_adamw;

#endif
