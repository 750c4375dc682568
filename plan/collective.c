/*
 * Seconds of collectives by link and algorithm.
 *
 * A ring over a group passes (n - 1) / n of the tensor through each member for a gather or a
 * scatter, twice that for an all-reduce, in as many steps as it has members. Where the group has
 * several members on each node, a ring runs through each of their network interfaces: the node's
 * traffic is shared by all of them, so that a group with r members a node sees r interfaces (and 8
 * / r such groups share the node's 8). Where every pair of devices has a link of its own
 * (per_pair), members exchange with all others at once: an all-to-all by definition, gathers and
 * reductions because each member can fetch every other's part itself. An all-reduce over many
 * nodes runs as a tree, whose latency grows with the logarithm (NCCL 2.4); gathers and scatters
 * have no tree and pay each step.
 */
#include "plan/cost.h"

#include <math.h>

#include "base/base.h"

static double min(double a, double b)
{
    return a < b ? a : b;
}

/* A core moves what it reduces: a copy in and a copy out by the processor that also computes. */
static const double CPU_SHARE = 0.5;

static double share_of(const struct pl_link *l, const struct pl_rates *r, double usual)
{
    return l->share > 0 ? l->share : r->cpu ? CPU_SHARE : usual;
}

void pl_group_of(struct pl_group *ret, const struct pl_constants *k, const struct pl_cluster *c,
                 const struct pl_rates *r, int size, int stride)
{
    int node = c->devices_per_node, inside = node / stride;
    const struct pl_link *near, *far;

    if (inside < 1)
        inside = 1;
    ret->size = size;
    ret->per_node = inside < size ? inside : size;
    near = pl_cluster_link(c, ret->per_node, ret->per_node > 1 ? stride : 1);
    far = pl_cluster_link(c, size, stride);
    ret->pairs = near->per_pair && ret->per_node > 1 ? ret->per_node - 1 : 1;
    ret->near_bps = near->gbs * 1e9 * share_of(near, r, k->near) * ret->pairs;
    ret->far_bps = far->gbs * 1e9 * share_of(far, r, k->far) * ret->per_node;
    if (ret->per_node == size)
        ret->far_bps = ret->near_bps;
    ret->near_s = near->latency_us * 1e-6;
    ret->far_s = far->latency_us * 1e-6;
    ret->start_s = r->collective_s;
}

static double ring_bps(const struct pl_group *g)
{
    return min(g->near_bps, g->far_bps);
}

static double nodes(const struct pl_group *g)
{
    return ceil((double)g->size / g->per_node);
}

/* Hops of a ring: all members, those to other nodes at the network's latency. */
static double ring_latency(const struct pl_group *g)
{
    double across = nodes(g) > 1 ? nodes(g) : 0;

    return (g->size - across) * g->near_s + across * g->far_s;
}

double pl_gather_s(const struct pl_group *g, double bytes)
{
    double n = g->size;

    if (g->size <= 1)
        return 0;
    return g->start_s + ring_latency(g) + bytes * (n - 1) / n / ring_bps(g);
}

double pl_all_reduce_s(const struct pl_group *g, double bytes)
{
    double n = g->size, tree = 2 * (g->per_node * g->near_s + log2(nodes(g)) * g->far_s);

    if (g->size <= 1)
        return 0;
    return g->start_s + min(2 * ring_latency(g), tree) + 2 * bytes * (n - 1) / n / ring_bps(g);
}

double pl_all_to_all_s(const struct pl_group *g, double bytes)
{
    double n = g->size, inside = bytes * (g->per_node - 1) / n,
           outside = bytes * (n - g->per_node) / n;
    double far_one = g->far_bps / g->per_node; /* every member sends: each has its own interface */
    double near = inside / g->near_bps, far = outside / far_one;

    if (g->size <= 1)
        return 0;
    return g->start_s + g->near_s * (g->per_node - 1) +
           (outside > 0 ? g->far_s * (n - g->per_node) : 0) + (near > far ? near : far);
}

double pl_send_s(const struct pl_group *g, double bytes)
{
    double own = g->per_node == g->size ? g->near_bps / g->pairs : g->far_bps / g->per_node;

    return g->size <= 1 ? 0 : g->start_s + g->far_s + bytes / own;
}
