/* The reference level of the table. */
#include "kernels/ref/ref.h"

void kn_ops_ref(struct kn_ops *ops)
{
    *ops = (struct kn_ops){
        .gemm = kn_ref_gemm,
        .rmsnorm_row = kn_ref_rmsnorm_row,
        .rmsnorm_bwd = kn_ref_rmsnorm_bwd,
        .rope_row = kn_ref_rope_row,
        .swiglu_row = kn_ref_swiglu_row,
        .swiglu_bwd_row = kn_ref_swiglu_bwd_row,
        .max_row = kn_ref_max_row,
        .sumexp_row = kn_ref_sumexp_row,
        .softmax_row = kn_ref_softmax_row,
        .dot = kn_ref_dot,
        .attn_fwd = kn_ref_attn_fwd,
        .attn_bwd = kn_ref_attn_bwd,
        .router_fwd = kn_ref_router_fwd,
        .router_bwd = kn_ref_router_bwd,
        .to_f32 = kn_ref_to_f32,
        .to_bf16 = kn_ref_to_bf16,
        .add = kn_ref_add,
        .scale = kn_ref_scale,
        .axpy = kn_ref_axpy,
        .combine = kn_ref_combine,
        .sumsq = kn_ref_sumsq,
        .adamw = kn_ref_adamw,
        .fma_loop = kn_ref_fma_loop,
    };
}
