#include "plan/plan.h"

#include <errno.h>

#include "base/base.h"

struct search {
    const struct pl_problem *p;
    int max_world;
    double headroom;
};

/* The largest legal dp with the other keys of L; false if there is none or it does not fit. */
static bool fill(const struct search *s, struct pl_layout *l)
{
    const struct pl_problem *p = s->p;
    int share = l->tp * l->pp;

    for (int dp = s->max_world / share; dp >= 1; dp--) {
        l->world = dp * share;
        if (pl_layout_derive(l) &&
            pl_layout_check(NULL, p->model, p->cluster, l, p->workload, p->trainer))
            return pl_fits(p, l, s->headroom);
    }
    return false;
}

/* tp x pp = SHARE without zero, then with it; the smaller pp first. */
static bool try_share(const struct search *s, struct pl_layout *l, int share)
{
    struct pl_layout start = *l;

    for (int zero = 0; zero <= 1 && zero <= s->p->trainer->max_zero; zero++)
        for (int pp = 1; pp <= share && pp <= s->p->model->layers; pp++) {
            if (share % pp)
                continue;
            *l = start;
            l->pp = pp;
            l->tp = share / pp;
            l->sp = l->tp > 1 && s->p->model->moe.experts;
            l->zero = zero;
            l->zero_scope = zero ? PL_SCOPE_EP_AWARE : PL_SCOPE_NONE;
            if (fill(s, l))
                return true;
        }
    return false;
}

int pl_baseline(struct pl_layout *ret, const struct pl_problem *p, int max_world, double headroom,
                struct err *e)
{
    int devices = pl_cluster_devices(p->cluster);
    int experts = p->model->moe.experts ? p->model->moe.experts : 1;
    struct search s = {p, max_world > 0 ? max_world : devices, headroom};
    static const int recompute[] = {PL_RECOMPUTE_NONE, PL_RECOMPUTE_FULL};

    /* What does not fit at any tp x pp is tried with recompute, then with experts spread. */
    for (int ep = 1; ep <= experts && ep <= s.max_world; ep++)
        for (size_t i = 0; i < ARRAY_LEN(recompute); i++)
            for (int share = 1; experts % ep == 0 && share <= s.max_world; share++) {
                struct pl_layout l;

                pl_layout_default(&l, p->workload);
                l.ep = ep;
                l.recompute = recompute[i];
                if (try_share(&s, &l, share)) {
                    *ret = l;
                    return 0;
                }
            }
    return err_set(e, -ENOENT,
                   "no legal layout with micro_batch 1 fits in %.3g GiB a device on %d ranks",
                   p->cluster->device.memory_gib, s.max_world);
}
