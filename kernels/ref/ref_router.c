/* Router: scores of the experts, the K best, and the way back. */
#include "kernels/choose.h"
#include "kernels/ref/ref.h"

/* What keeps the sum of sigmoids that are all zero from dividing by it. */
#define LEAST 1e-20

static void softmax(float *p, const float *x, size_t count)
{
    double max = (double)kn_ref_max_row(x, count), sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += exp((double)x[i] - max);
    for (size_t i = 0; i < count; i++)
        p[i] = (float)(exp((double)x[i] - max) / sum);
}

static void sigmoid(float *p, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        p[i] = (float)(1 / (1 + exp(-(double)x[i])));
}

/* What the probabilities of the chosen are divided by. */
static double divisor(const struct kn_router *router, const float *probs, const int32_t *idx)
{
    double sum = router->score == KN_SIGMOID ? LEAST : 0;

    for (size_t j = 0; j < router->k; j++)
        sum += (double)probs[idx[j]];
    return router->renorm ? sum : 1;
}

void kn_ref_router_fwd(const struct kn_router *router, float *probs, int32_t *idx, float *w,
                       const float *logits, size_t rows)
{
    size_t e = router->experts, k = router->k;

    for (size_t r = 0; r < rows; r++, probs += e, logits += e, idx += k, w += k) {
        double sum;

        if (router->score == KN_SIGMOID)
            sigmoid(probs, logits, e);
        else
            softmax(probs, logits, e);
        if (!router->dealt)
            kn_choose(idx, router, probs);
        sum = divisor(router, probs, idx);
        for (size_t j = 0; j < k; j++)
            w[j] = (float)((double)router->scale * (double)probs[idx[j]] / sum);
    }
}

/* Sums over a row: what its parts have in common. */
struct row {
    double chosen; /* what the weights are divided by */
    double mean;   /* sum of dw w, if they are */
    double all;    /* of the probabilities: 1 of a softmax */
    double shared; /* sum of dshare x share; 0 of a softmax, whose way back takes it off anyway */
};

static struct row sums(const struct kn_router *router, const float *dw, const float *dshare,
                       const float *probs, const int32_t *idx, const float *w)
{
    struct row row = {.chosen = divisor(router, probs, idx), .all = 1};

    for (size_t j = 0; router->renorm && j < router->k; j++)
        row.mean += (double)dw[j] * (double)w[j];
    if (router->score == KN_SOFTMAX)
        return row;
    row.all = LEAST;
    for (size_t i = 0; i < router->experts; i++)
        row.all += (double)probs[i];
    for (size_t i = 0; dshare && i < router->experts; i++)
        row.shared += (double)dshare[i] * (double)probs[i] / row.all;
    return row;
}

/* The gradient by the probability of EXPERT. w_j = s p_j / S over the chosen, so dp_j = (s dw_j -
 * sum_i dw_i w_i) / S, without renorm s dw_j; of the shares q = p / sum p, dp = (dq - sum q dq) /
 * sum p. */
static double by_prob(const struct kn_router *router, const struct row *row, const float *dw,
                      const float *dshare, const int32_t *idx, size_t expert)
{
    double dp = dshare ? ((double)dshare[expert] - row->shared) / row->all : 0;

    for (size_t j = 0; j < router->k; j++)
        if ((size_t)idx[j] == expert)
            dp += ((double)router->scale * (double)dw[j] - row->mean) / row->chosen;
    return dp;
}

/* dl = p (dp - sum p dp) of a softmax, p (1 - p) dp of a sigmoid. */
void kn_ref_router_bwd(const struct kn_router *router, float *dlogits, const float *dw,
                       const float *dshare, const float *probs, const int32_t *idx, const float *w,
                       size_t rows)
{
    size_t e = router->experts, k = router->k;

    for (size_t r = 0; r < rows; r++, dlogits += e, probs += e, idx += k, w += k, dw += k) {
        const float *share = dshare ? dshare + r * e : NULL;
        struct row row = sums(router, dw, share, probs, idx, w);
        double inner = 0;

        for (size_t i = 0; i < e && router->score == KN_SOFTMAX; i++)
            inner += (double)probs[i] * by_prob(router, &row, dw, share, idx, i);
        for (size_t i = 0; i < e; i++) {
            double p = (double)probs[i], dp = by_prob(router, &row, dw, share, idx, i);

            dlogits[i] = (float)(router->score == KN_SIGMOID ? p * (1 - p) * dp : p * (dp - inner));
        }
    }
}
