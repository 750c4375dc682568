/* The reference: plain C, sums in double, every function as close to its formula as C allows. */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "kernels/ops.h"

void kn_ref_gemm(const struct kn_gemm *gemm);

float kn_ref_rmsnorm_row(float *y, const float *x, const float *w, size_t dim, float eps);
void kn_ref_rmsnorm_bwd(float *dx, float *dw, const float *dy, const float *x, const float *w,
                        const float *rrms, size_t rows, size_t dim, bool add);
void kn_ref_rope_row(float *x, size_t heads, size_t dim, const float *c, const float *s,
                     bool backward);
void kn_ref_swiglu_row(float *y, const float *gate, const float *up, size_t count);
void kn_ref_swiglu_bwd_row(float *dgate, float *dup, const float *dy, const float *gate,
                           const float *up, size_t count);
float kn_ref_max_row(const float *x, size_t count);
float kn_ref_sumexp_row(const float *x, size_t count, float max);
void kn_ref_softmax_row(float *y, const float *x, size_t count, float max, float factor);
float kn_ref_dot(const float *x, const float *y, size_t count);

void kn_ref_attn_fwd(const struct kn_attn_job *job, void *out, size_t ldo, float *lse);
void kn_ref_attn_bwd(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                     const float *delta);

void kn_ref_router_fwd(float *probs, int32_t *idx, float *w, const float *logits, size_t rows,
                       size_t experts, size_t k, bool renorm);
void kn_ref_router_bwd(float *dlogits, const float *dw, const float *dprobs, const float *probs,
                       const int32_t *idx, const float *w, size_t rows, size_t experts, size_t k,
                       bool renorm);

void kn_ref_to_f32(float *y, const kn_bf16 *x, size_t count);
void kn_ref_to_bf16(kn_bf16 *y, const float *x, size_t count);
void kn_ref_add(float *y, const float *a, const float *b, size_t count);
void kn_ref_scale(float *y, const float *x, float alpha, size_t count);
void kn_ref_axpy(float *y, float alpha, const float *x, size_t count);
void kn_ref_combine(float *y, float a, const float *x, float b, const float *z, size_t count);
double kn_ref_sumsq(const float *x, size_t count);
void kn_ref_adamw(const struct kn_adamw *hyper, float *w, float *m, float *v, const float *g,
                  size_t count);

double kn_ref_fma_loop(size_t rounds);

#endif
