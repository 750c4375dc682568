/* Matrix multiplication as it is defined. */
#include "kernels/ops.h"
#include "kernels/ref/ref.h"

void kn_ref_gemm(const struct kn_gemm *g)
{
    for (size_t i = 0; i < g->m; i++) {
        for (size_t j = 0; j < g->n; j++) {
            size_t ij = i * g->ldc + j;
            double sum = g->beta != 0 ? (double)g->beta * (double)kn_at(g->ct, g->c, ij) : 0;

            for (size_t l = 0; l < g->k; l++) {
                size_t il = g->ta ? l * g->lda + i : i * g->lda + l;
                size_t lj = g->tb ? j * g->ldb + l : l * g->ldb + j;

                sum += (double)kn_at(g->at, g->a, il) * (double)kn_at(g->bt, g->b, lj);
            }
            kn_put(g->ct, g->c, ij, (float)sum);
        }
    }
}
