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

void pl_group_of(struct pl_group *ret, const struct pl_op_ctx *op, int size, int stride)
{
    const struct pl_cluster *cluster = op->problem.cluster;
    const struct pl_rates *rates = &op->rates;
    const struct pl_link *near, *far;

    *ret = (struct pl_group){.size = size};
    ret->per_node = members_inside(cluster, size, stride);
    near = pl_cluster_link(cluster, ret->per_node, ret->per_node > 1 ? stride : 1);
    far = pl_cluster_link(cluster, size, stride);
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
    return min(group->near_bps, group->far_bps);
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

double pl_all_to_all_s(const struct pl_group *group, double bytes)
{
    double n = group->size, inside = bytes * (group->per_node - 1) / n,
           outside = bytes * (n - group->per_node) / n;
    double far_one =
        group->far_bps / group->per_node; /* every member sends: each has its own interface */

    if (group->size <= 1)
        return 0;
    return group->start_s + group->near_s * (group->per_node - 1) +
           (outside > 0 ? group->far_s * (n - group->per_node) : 0) +
           max(inside / group->near_bps, outside / far_one);
}

double pl_send_s(const struct pl_group *group, double bytes)
{
    double own = group->per_node == group->size ? group->near_bps / group->pairs
                                                : group->far_bps / group->per_node;

    return group->size <= 1 ? 0 : group->start_s + group->far_s + bytes / own;
}
