/* Matrix multiplication as it is defined. */
#include "kernels/ops.h"
#include "kernels/ref/ref.h"

void kn_ref_gemm(const struct kn_gemm *gemm)
{
    for (size_t i = 0; i < gemm->m; i++) {
        for (size_t j = 0; j < gemm->n; j++) {
            size_t ij = i * gemm->ldc + j;
            double sum =
                gemm->beta != 0 ? (double)gemm->beta * (double)kn_at(gemm->ct, gemm->c, ij) : 0;

            for (size_t l = 0; l < gemm->k; l++) {
                size_t il = gemm->ta ? l * gemm->lda + i : i * gemm->lda + l;
                size_t lj = gemm->tb ? j * gemm->ldb + l : l * gemm->ldb + j;

                sum += (double)kn_at(gemm->at, gemm->a, il) * (double)kn_at(gemm->bt, gemm->b, lj);
            }
            kn_put(gemm->ct, gemm->c, ij, (float)sum);
        }
    }
}
