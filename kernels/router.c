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

struct z_call {
    float *log_z, *dlogits;
    const float *logits;
    size_t experts;
    float scale;
};

/* Maximum and sum of exponentials of a row, of which this is log Z. */
static float log_z(float *ret_max, float *ret_sum, const float *logits, size_t experts)
{
    *ret_max = kn_ops()->max_row(logits, experts);
    *ret_sum = kn_ops()->sumexp_row(logits, experts, *ret_max);
    return (float)(log((double)*ret_sum) + (double)*ret_max);
}

static void z_fwd_rows(void *arg, const struct kn_share *share)
{
    const struct z_call *c = arg;
    float max, sum;

    for (size_t r = share->lo; r < share->hi; r++)
        c->log_z[r] = log_z(&max, &sum, c->logits + r * c->experts, c->experts);
}

void kn_host_router_z_fwd(struct kn_pool *pool, float *log_z, const float *logits, size_t rows,
                          size_t experts)
{
    struct z_call c = {.log_z = log_z, .logits = logits, .experts = experts};

    assert(experts >= 1);
    kn_parallel(pool, rows, 1, GRAIN, z_fwd_rows, &c);
}

static void z_bwd_rows(void *arg, const struct kn_share *share)
{
    const struct z_call *c = arg;

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *logits = c->logits + r * c->experts;
        float *mine = share->scratch, max, sum;
        float by = 2 * c->scale * log_z(&max, &sum, logits, c->experts);

        kn_ops()->softmax_row(mine, logits, c->experts, max, by / sum);
        kn_ops()->axpy(c->dlogits + r * c->experts, 1, mine, c->experts);
    }
}

void kn_host_router_z_bwd(struct kn_pool *pool, float *dlogits, const float *logits, size_t rows,
                          size_t experts, float scale)
{
    struct z_call c = {.dlogits = dlogits, .logits = logits, .experts = experts, .scale = scale};

    assert(experts >= 1 && experts * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, GRAIN, z_bwd_rows, &c);
}
