/* Router: softmax over the experts, the K best, and the way back. */
#include "kernels/ref/ref.h"

static void softmax(float *p, const float *x, size_t count)
{
    double max = (double)kn_ref_max_row(x, count), sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += exp((double)x[i] - max);
    for (size_t i = 0; i < count; i++)
        p[i] = (float)(exp((double)x[i] - max) / sum);
}

static bool taken(const int32_t *idx, size_t count, size_t expert)
{
    for (size_t i = 0; i < count; i++)
        if ((size_t)idx[i] == expert)
            return true;
    return false;
}

/* The largest P that is not among the first COUNT of IDX; the lowest index wins ties, a NaN loses
 * to all. */
static size_t best(const float *p, size_t experts, const int32_t *idx, size_t count)
{
    size_t found = experts;

    for (size_t e = 0; e < experts; e++) {
        if (taken(idx, count, e))
            continue;
        if (found == experts || p[e] > p[found] || (isnan(p[found]) && !isnan(p[e])))
            found = e;
    }
    return found;
}

void kn_ref_router_fwd(float *probs, int32_t *idx, float *w, const float *logits, size_t rows,
                       size_t experts, size_t k, bool renorm)
{
    for (size_t r = 0; r < rows; r++, probs += experts, logits += experts, idx += k, w += k) {
        double sum = 0;

        softmax(probs, logits, experts);
        for (size_t j = 0; j < k; j++) {
            idx[j] = (int32_t)best(probs, experts, idx, j);
            sum += probs[idx[j]];
        }
        for (size_t j = 0; j < k; j++)
            w[j] = (float)(probs[idx[j]] / (renorm ? sum : 1));
    }
}

/* w_j = p_j / S over the chosen, so dp_j = (dw_j - sum_i dw_i w_i) / S; then dl = p (dp - sum p
 * dp). */
void kn_ref_router_bwd(float *dlogits, const float *dw, const float *dprobs, const float *probs,
                       const int32_t *idx, const float *w, size_t rows, size_t experts, size_t k,
                       bool renorm)
{
    for (size_t r = 0; r < rows;
         r++, dlogits += experts, probs += experts, idx += k, w += k, dw += k) {
        double sum = 0, mean = 0, inner = 0;

        for (size_t j = 0; j < k; j++) {
            sum += probs[idx[j]];
            mean += (double)dw[j] * w[j];
        }
        for (size_t i = 0; i < experts; i++) {
            double dp = dprobs ? dprobs[r * experts + i] : 0;

            for (size_t j = 0; j < k; j++)
                if ((size_t)idx[j] == i)
                    dp += renorm ? (dw[j] - mean) / sum : dw[j];
            dlogits[i] = (float)dp;
            inner += dp * probs[i];
        }
        for (size_t i = 0; i < experts; i++)
            dlogits[i] = (float)(probs[i] * (dlogits[i] - inner));
    }
}
