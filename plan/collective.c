/*
 * Seconds of collectives by link and algorithm.
 *
 * A ring over a group passes (n - 1) / n of the tensor through each member for a gather or a
 * scatter, twice that for an all-reduce, in as many steps as it has members. Where the group has
 * several members in each fast domain (a node, or the nodes that share its link, as in an NVL72),
 * a ring runs through each of their network interfaces: the domain's traffic is shared by all of
 * them, so that a group with r members a domain sees r interfaces (and in a node of 8 devices,
 * 8 / r such groups share the node's 8). Where every pair of devices has a link of its own
 * (per_pair), members exchange with all others at once: an all-to-all by definition, gathers and
 * reductions because each member can fetch every other's part itself. An all-reduce over many
 * nodes runs as a tree, whose latency grows with the logarithm (NCCL 2.4); gathers and scatters
 * have no tree and pay each step.
 *
 * Oversubscription: S devices (the span below) share uplinks of S g / o, where g is a device's
 * interface and o the ratio. A ring enters and leaves a block once, however many members it has
 * there; of groups with stride t there are min(t, S) in a block, each with r rings of rate g. So
 * they share S / (o min(t r, S)) of g each, or all of it. An exchange sends what is for members
 * beyond the block at g / o. With rails the members of one rank in their nodes do not need the
 * uplinks: rings and messages pass around them, and of an exchange what is for other ranks either
 * crosses them, or first changes to the right rank inside the domain (NCCL's PXN).
 */
#include "plan/cost_parts.h"

#include <math.h>

#include "base/base.h"

static double min(double left, double right)
{
    return left < right ? left : right;
}

static double max(double left, double right)
{
    return left > right ? left : right;
}

/* A core moves what it reduces: a copy in and a copy out by the processor that also computes. */
static const double CPU_SHARE = 0.5;

static double share_of(const struct pl_link *link, const struct pl_rates *rates, double usual)
{
    return link->share > 0 ? link->share : rates->cpu ? CPU_SHARE : usual;
}

/* Members of a group that lie in one domain. In one of many nodes all domains hold equally many:
 * jobs are placed in equal segments, of 64 devices of 72 for groups of powers of two. */
static int members_inside(const struct pl_cluster *cluster, int size, int stride)
{
    int domain = pl_cluster_domain(cluster), inside = domain / stride;

    if (inside < 1)
        return 1;
    if (inside >= size)
        return size;
    while (domain > cluster->devices_per_node && size % inside)
        inside--;
    return inside;
}

/* The uplinks that a group crosses by its link FAR. */
static void spine_of(struct pl_group *group, const struct pl_cluster *cluster,
                     const struct pl_link *far, int stride)
{
    int block, apart;
    double rings;

    group->rings = group->oversubscription = 1;
    if (far->oversubscription <= 1 || group->per_node == group->size)
        return;
    block = pl_cluster_domain(cluster);
    for (int i = 0; i < cluster->nlinks && &cluster->link[i] != far; i++)
        block = cluster->link[i].span;
    group->oversubscription = far->oversubscription;
    group->rails = far->rails;
    apart = block / stride < 1 ? 1 : block / stride;
    group->beyond = apart < group->size ? 1 - (double)apart / group->size : 0;
    rings = min((double)stride * group->per_node, block);
    if (!far->rails)
        group->rings = min(1, block / (far->oversubscription * rings));
}

void pl_group_of(struct pl_group *ret, const struct pl_op_ctx *op, int size, int stride)
{
    const struct pl_cluster *cluster = op->problem.cluster;
    const struct pl_rates *rates = op->rates;
    const struct pl_link *near, *far;

    *ret = (struct pl_group){.size = size};
    ret->per_node = members_inside(cluster, size, stride);
    near = pl_cluster_link(cluster, ret->per_node, ret->per_node > 1 ? stride : 1);
    far = pl_cluster_link(cluster, size, stride);
    spine_of(ret, cluster, far, stride);
    ret->pairs = near->per_pair && ret->per_node > 1 ? ret->per_node - 1 : 1;
    ret->near_bps = near->gbs * 1e9 * share_of(near, rates, op->constants->near) * ret->pairs;
    ret->far_bps = far->gbs * 1e9 * share_of(far, rates, op->constants->far) * ret->per_node;
    if (ret->per_node == size)
        ret->far_bps = ret->near_bps;
    else if (op->constants->spread > 0)
        ret->far_bps *= pow((double)size / ret->per_node, -op->constants->spread);
    ret->near_s = near->latency_us * 1e-6;
    ret->far_s = far->latency_us * 1e-6;
    ret->start_s = rates->collective_s;
}

static double ring_bps(const struct pl_group *group)
{
    return min(group->near_bps, group->far_bps * group->rings);
}

static double nodes(const struct pl_group *group)
{
    return ceil((double)group->size / group->per_node);
}

/* Hops of a ring: all members, those to other nodes at the network's latency. */
static double ring_latency(const struct pl_group *group)
{
    double across = nodes(group) > 1 ? nodes(group) : 0;

    return (group->size - across) * group->near_s + across * group->far_s;
}

double pl_gather_s(const struct pl_group *group, double bytes)
{
    double n = group->size;

    if (group->size <= 1)
        return 0;
    return group->start_s + ring_latency(group) + bytes * (n - 1) / n / ring_bps(group);
}

double pl_all_reduce_s(const struct pl_group *group, double bytes)
{
    double n = group->size,
           tree = 2 * (group->per_node * group->near_s + log2(nodes(group)) * group->far_s);

    if (group->size <= 1)
        return 0;
    return group->start_s + min(2 * ring_latency(group), tree) +
           2 * bytes * (n - 1) / n / ring_bps(group);
}

/* Seconds of an exchange between domains, of which OUTSIDE bytes leave each rank by its own
 * interface, while INSIDE bytes go to members of its domain. */
static double exchange_s(const struct pl_group *group, double inside, double outside, double bytes)
{
    double own = group->far_bps / group->per_node, direct = outside / own;
    double other = outside * (group->per_node - 1) / group->per_node; /* for ranks of other rails */
    double near = inside / group->near_bps, relayed;

    if (!group->rails)
        return max(near, max(direct, bytes * group->beyond * group->oversubscription / own));
    relayed = max((inside + other) / group->near_bps, direct);
    return min(relayed, max(near, max(direct, other * group->oversubscription / own)));
}

double pl_all_to_all_s(const struct pl_group *group, double bytes)
{
    double n = group->size, inside = bytes * (group->per_node - 1) / n,
           outside = bytes * (n - group->per_node) / n;

    if (group->size <= 1)
        return 0;
    return group->start_s + group->near_s * (group->per_node - 1) +
           (outside > 0 ? group->far_s * (n - group->per_node) : 0) +
           exchange_s(group, inside, outside, bytes);
}

double pl_dispatch_s(const struct pl_group *group, double bytes, double ranks, double domains)
{
    double own = group->far_bps / group->per_node, many = nodes(group);
    double near = bytes * ranks * (group->per_node - 1) / group->per_node / group->near_bps;
    double far = bytes * domains * (many - 1) / many / own;

    if (group->size <= 1)
        return 0;
    if (!group->rails)
        far *= max(1, group->beyond * group->oversubscription);
    return group->start_s + group->near_s * (group->per_node - 1) +
           (many > 1 ? group->far_s * (many - 1) : 0) + max(near, far);
}

double pl_send_s(const struct pl_group *group, double bytes)
{
    double own = group->per_node == group->size ? group->near_bps / group->pairs
                                                : group->far_bps / group->per_node * group->rings;

    return group->size <= 1 ? 0 : group->start_s + group->far_s + bytes / own;
}
