/* Matrix multiplication: the checks, grouped products, and the choice between driver and reference. */
#include "kernels/ops.h"

void kn_gemm(struct kn_pool *p, const struct kn_gemm *g)
{
    assert(g->beta == 0 || g->beta == 1);
    assert(g->ldc >= g->n && g->lda >= (g->ta ? g->m : g->k) && g->ldb >= (g->tb ? g->k : g->n));
    if (g->m == 0 || g->n == 0)
        return;
    (void)p;
    kn_ops()->gemm(g);
}

void kn_gemm_grouped(struct kn_pool *p, const struct kn_gemm *g, size_t groups, const int32_t *offsets,
                     size_t wstride)
{
    assert(!(g->ta && g->tb));
    for (size_t e = 0; e < groups; e++) {
        size_t         row = (size_t)offsets[e], rows = (size_t)(offsets[e + 1] - offsets[e]);
        struct kn_gemm one = *g;

        one.a = kn_ptr(g->at, g->a, row * g->lda);
        if (g->ta) {
            one.k = rows;
            one.b = kn_ptr(g->bt, g->b, row * g->ldb);
            one.c = kn_ptr(g->ct, g->c, e * wstride);
        } else {
            one.m = rows;
            one.b = kn_ptr(g->bt, g->b, e * wstride);
            one.c = kn_ptr(g->ct, g->c, row * g->ldc);
        }
        kn_gemm(p, &one);
    }
}
