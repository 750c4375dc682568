/* The list of operations. */
#include "tests/kncheck/checks.h"

const struct kc_op *const kc_ops[] = {
    &kc_gemm,          &kc_grouped,    &kc_attn_fwd,   &kc_attn_bwd,   &kc_rmsnorm_fwd,
    &kc_rmsnorm_bwd,   &kc_rope,       &kc_swiglu_fwd, &kc_swiglu_bwd, &kc_embed_fwd,
    &kc_embed_bwd,     &kc_xent_max,   &kc_xent_sum,   &kc_xent_loss,  &kc_xent_grad,
    &kc_router_fwd,    &kc_router_bwd, &kc_sort,       &kc_permute,    &kc_unpermute,
    &kc_unpermute_bwd, &kc_zero,       &kc_convert,    &kc_add,        &kc_sumsq,
    &kc_adamw,         NULL,
};
