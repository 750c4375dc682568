#include "plan/plan.h"

#include <assert.h>

int pl_axis_size(const struct pl_layout *layout, enum pl_axis axis)
{
    switch (axis) {
    case PL_TP:
        return layout->tp;
    case PL_CP:
        return layout->cp;
    case PL_DP:
        return layout->dp;
    case PL_PP:
        return layout->pp;
    case PL_ETP:
        return layout->etp;
    case PL_EP:
        return layout->ep;
    case PL_EDP:
        return layout->edp;
    case PL_DP_CP:
        return layout->dp * layout->cp;
    default:
        return 1;
    }
}

/* A stage holds tp*cp*dp = etp*ep*edp consecutive ranks, in either mesh. */
int pl_axis_stride(const struct pl_layout *layout, enum pl_axis axis)
{
    switch (axis) {
    case PL_CP:
    case PL_DP_CP:
        return layout->tp;
    case PL_DP:
        return layout->tp * layout->cp;
    case PL_PP:
        return layout->tp * layout->cp * layout->dp;
    case PL_EP:
        return layout->etp;
    case PL_EDP:
        return layout->etp * layout->ep;
    default:
        return 1;
    }
}

int pl_axis_coord(const struct pl_layout *layout, enum pl_axis axis, int rank)
{
    return rank / pl_axis_stride(layout, axis) % pl_axis_size(layout, axis);
}

int pl_axis_peer(const struct pl_layout *layout, enum pl_axis axis, int rank, int coord)
{
    assert(coord >= 0 && coord < pl_axis_size(layout, axis));
    return rank + (coord - pl_axis_coord(layout, axis, rank)) * pl_axis_stride(layout, axis);
}

int pl_gcd(int left, int right)
{
    assert(left >= 0 && right >= 0 && (left || right));
    while (right) {
        int r = left % right;

        left = right;
        right = r;
    }
    return left;
}

/* With etp = tp the expert coordinate of a rank is (r / tp) % ep: all ep of them occur along dp x
 * cp. With etp = 1 it is r % ep while the group steps by tp, so that ep / gcd(ep, tp) of them
 * occur. */
int pl_layout_expert_replicas(const struct pl_layout *layout)
{
    return layout->etp == layout->tp ? layout->ep : layout->ep / pl_gcd(layout->ep, layout->tp);
}

int pl_shard_copies(const struct pl_layout *layout)
{
    int64_t replicas = (int64_t)layout->dp * layout->cp;

    return layout->shard > 0 && replicas > layout->shard ? (int)(replicas / layout->shard) : 1;
}
