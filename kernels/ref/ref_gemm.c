/*
 * Matrix multiplication as it is defined: each element is a sum in double, in the order of k. Some
 * elements of a row are summed side by side, so that none waits for another.
 */
#include "kernels/ops.h"
#include "kernels/ref/ref.h"

enum { SIDE_BY_SIDE = 16 };

/* What is added to N of the elements from (I, J) on. The types are arguments so that each pair has
 * a loop of its own. */
static inline __attribute__((always_inline)) void add_up(double *sum, const struct kn_gemm *gemm,
                                                         size_t i, size_t j, size_t n,
                                                         enum kn_type at, enum kn_type bt)
{
    size_t from_a = gemm->ta ? i : i * gemm->lda, step_a = gemm->ta ? gemm->lda : 1;
    size_t next_b = gemm->tb ? gemm->ldb : 1, step_b = gemm->tb ? 1 : gemm->ldb;

    for (size_t l = 0; l < gemm->k; l++) {
        double a = (double)kn_at(at, gemm->a, from_a + l * step_a);

        for (size_t c = 0; c < n; c++)
            sum[c] += a * (double)kn_at(bt, gemm->b, (j + c) * next_b + l * step_b);
    }
}

static void add_products(double *sum, const struct kn_gemm *gemm, size_t i, size_t j, size_t n)
{
    if (gemm->at == KN_F32 && gemm->bt == KN_F32)
        add_up(sum, gemm, i, j, n, KN_F32, KN_F32);
    else if (gemm->at == KN_F32)
        add_up(sum, gemm, i, j, n, KN_F32, KN_BF16);
    else if (gemm->bt == KN_F32)
        add_up(sum, gemm, i, j, n, KN_BF16, KN_F32);
    else
        add_up(sum, gemm, i, j, n, KN_BF16, KN_BF16);
}

void kn_ref_gemm(const struct kn_gemm *gemm)
{
    for (size_t i = 0; i < gemm->m; i++)
        for (size_t j = 0; j < gemm->n; j += SIDE_BY_SIDE) {
            size_t n = gemm->n - j < SIDE_BY_SIDE ? gemm->n - j : SIDE_BY_SIDE;
            size_t ij = i * gemm->ldc + j;
            double sum[SIDE_BY_SIDE];

            for (size_t c = 0; c < n; c++)
                sum[c] = gemm->beta != 0
                             ? (double)gemm->beta * (double)kn_at(gemm->ct, gemm->c, ij + c)
                             : 0;
            add_products(sum, gemm, i, j, n);
            for (size_t c = 0; c < n; c++)
                kn_put(gemm->ct, gemm->c, ij + c, (float)sum[c]);
        }
}
