/* Router of a mixture of experts, split over rows. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 256 };

struct router {
    float *probs, *w, *dlogits;
    int32_t *idx;
    const float *logits, *dw, *dprobs, *cprobs, *cw;
    const int32_t *cidx;
    size_t e, k;
    bool renorm;
};

static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct router *r = arg;
    size_t re = share->lo * r->e, rk = share->lo * r->k;

    kn_ops()->router_fwd(r->probs + re, r->idx + rk, r->w + rk, r->logits + re,
                         share->hi - share->lo, r->e, r->k, r->renorm);
}

void kn_host_router_fwd(struct kn_pool *pool, float *probs, int32_t *idx, float *w,
                        const float *logits, size_t rows, size_t experts, size_t k, bool renorm)
{
    struct router r = {.probs = probs,
                       .idx = idx,
                       .w = w,
                       .logits = logits,
                       .e = experts,
                       .k = k,
                       .renorm = renorm};

    assert(k >= 1 && k <= experts);
    kn_parallel(pool, rows, 1, GRAIN, fwd_rows, &r);
}

static void bwd_rows(void *arg, const struct kn_share *share)
{
    const struct router *r = arg;
    size_t re = share->lo * r->e, rk = share->lo * r->k;

    kn_ops()->router_bwd(r->dlogits + re, r->dw + rk, r->dprobs ? r->dprobs + re : NULL,
                         r->cprobs + re, r->cidx + rk, r->cw + rk, share->hi - share->lo, r->e,
                         r->k, r->renorm);
}

void kn_host_router_bwd(struct kn_pool *pool, float *dlogits, const float *dw, const float *dprobs,
                        const float *probs, const int32_t *idx, const float *w, size_t rows,
                        size_t experts, size_t k, bool renorm)
{
    struct router r = {.dlogits = dlogits,
                       .dw = dw,
                       .dprobs = dprobs,
                       .cprobs = probs,
                       .cidx = idx,
                       .cw = w,
                       .e = experts,
                       .k = k,
                       .renorm = renorm};

    assert(k >= 1 && k <= experts);
    kn_parallel(pool, rows, 1, GRAIN, bwd_rows, &r);
}
