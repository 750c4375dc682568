#include "plan/plan.h"

int pl_axis_size(const struct pl_layout *l, enum pl_axis axis)
{
    switch (axis) {
    case PL_TP:
        return l->tp;
    case PL_CP:
        return l->cp;
    case PL_DP:
        return l->dp;
    case PL_PP:
        return l->pp;
    case PL_ETP:
        return l->etp;
    case PL_EP:
        return l->ep;
    case PL_EDP:
        return l->edp;
    default:
        return 1;
    }
}

/* A stage holds tp*cp*dp = etp*ep*edp consecutive ranks, in either mesh. */
int pl_axis_stride(const struct pl_layout *l, enum pl_axis axis)
{
    switch (axis) {
    case PL_CP:
        return l->tp;
    case PL_DP:
        return l->tp * l->cp;
    case PL_PP:
        return l->tp * l->cp * l->dp;
    case PL_EP:
        return l->etp;
    case PL_EDP:
        return l->etp * l->ep;
    default:
        return 1;
    }
}

int pl_axis_coord(const struct pl_layout *l, enum pl_axis axis, int rank)
{
    return rank / pl_axis_stride(l, axis) % pl_axis_size(l, axis);
}

int pl_axis_peer(const struct pl_layout *l, enum pl_axis axis, int rank, int coord)
{
    return rank + (coord - pl_axis_coord(l, axis, rank)) * pl_axis_stride(l, axis);
}

int pl_stage_layers(const struct pl_layout *l, int layers, int stage, int chunk, int *first)
{
    int runs = l->pp * l->vp, run = chunk * l->pp + stage;
    int each = layers / runs, longer = layers % runs;

    if (first)
        *first = run * each + (run < longer ? run : longer);
    return each + (run < longer);
}

int pl_gcd(int a, int b)
{
    while (b) {
        int r = a % b;

        a = b;
        b = r;
    }
    return a;
}

/* With etp = tp the expert coordinate of a rank is (r / tp) % ep: all ep of them occur along dp x
 * cp. With etp = 1 it is r % ep while the group steps by tp, so that ep / gcd(ep, tp) of them
 * occur. */
int pl_layout_expert_replicas(const struct pl_layout *l)
{
    return l->etp == l->tp ? l->ep : l->ep / pl_gcd(l->ep, l->tp);
}
