/* Router of a mixture of experts, split over rows. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 256 };

struct call {
    const struct kn_router *router;
    float *probs, *w, *dlogits;
    int32_t *idx;
    const float *logits, *dw, *dshare, *cprobs, *cw;
    const int32_t *cidx;
};

static void check(const struct kn_router *router)
{
    assert(router->k >= 1 && router->k <= router->experts && router->groups >= 1 &&
           router->groups <= KN_MAX_GROUPS && router->met >= 1 && router->met <= router->groups);
    assert(router->experts % router->groups == 0 &&
           router->k <= router->experts / router->groups * router->met);
}

static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct call *c = arg;
    size_t re = share->lo * c->router->experts, rk = share->lo * c->router->k;

    kn_ops()->router_fwd(c->router, c->probs + re, c->idx + rk, c->w + rk, c->logits + re,
                         share->hi - share->lo);
}

void kn_host_router_fwd(struct kn_pool *pool, const struct kn_router *router, float *probs,
                        int32_t *idx, float *w, const float *logits, size_t rows)
{
    struct call c = {.router = router, .probs = probs, .idx = idx, .w = w, .logits = logits};

    check(router);
    kn_parallel(pool, rows, 1, GRAIN, fwd_rows, &c);
}

static void bwd_rows(void *arg, const struct kn_share *share)
{
    const struct call *c = arg;
    size_t re = share->lo * c->router->experts, rk = share->lo * c->router->k;

    kn_ops()->router_bwd(c->router, c->dlogits + re, c->dw + rk, c->dshare ? c->dshare + re : NULL,
                         c->cprobs + re, c->cidx + rk, c->cw + rk, share->hi - share->lo);
}

void kn_host_router_bwd(struct kn_pool *pool, const struct kn_router *router, float *dlogits,
                        const float *dw, const float *dshare, const float *probs,
                        const int32_t *idx, const float *w, size_t rows)
{
    struct call c = {.router = router,
                     .dlogits = dlogits,
                     .dw = dw,
                     .dshare = dshare,
                     .cprobs = probs,
                     .cidx = idx,
                     .cw = w};

    check(router);
    kn_parallel(pool, rows, 1, GRAIN, bwd_rows, &c);
}
