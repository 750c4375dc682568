/* Grouped products: one for each group, in order; the offsets are the host's. */
#include "kernels/cuda/ops.cuh"

static const void *moved(enum kn_type type, const void *array, size_t elements)
{
    return (const char *)array + elements * kn_type_size(type);
}

extern "C" void cu_gemm_grouped(struct kn_pool *pool, const struct kn_gemm *gemm, size_t groups,
                                const int32_t *offsets, size_t wstride)
{
    for (size_t e = 0; e < groups; e++) {
        size_t first = (size_t)offsets[e], rows = (size_t)offsets[e + 1] - first;
        struct kn_gemm g = *gemm;

        g.a = moved(g.at, gemm->a, first * g.lda);
        if (gemm->ta) {
            g.k = rows;
            g.b = moved(g.bt, gemm->b, first * g.ldb);
            g.c = (void *)moved(g.ct, gemm->c, e * wstride);
        } else {
            g.m = rows;
            g.b = moved(g.bt, gemm->b, e * wstride);
            g.c = (void *)moved(g.ct, gemm->c, first * g.ldc);
        }
        cu_gemm(pool, &g);
    }
}
