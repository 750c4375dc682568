/* The objectives, and the watts of a job; the formula is in objective.h. */
#include "plan/objective.h"

#include <assert.h>

#include "base/base.h"

const char *const pl_objective_names[] = {"tokens_per_s", "tokens_per_s_per_device",
                                          "tokens_per_joule", "tokens_per_cost", NULL};

enum pl_objective pl_objective_of(const char *name)
{
    int i = 0;

    while (pl_objective_names[i] && !str_eq(pl_objective_names[i], name))
        i++;
    return pl_objective_names[i] ? (enum pl_objective)i : PL_TOKENS_PER_S;
}

const char *pl_objective_unit(enum pl_objective objective)
{
    static const char *const units[] = {"tokens/s", "tokens/s per device", "tokens/J",
                                        "tokens per unit of price"};

    return units[objective];
}

double pl_objective_value(enum pl_objective objective, double tokens_per_s, int devices,
                          double watts, double price)
{
    assert(devices > 0);
    switch (objective) {
    case PL_TOKENS_PER_JOULE:
        return tokens_per_s / watts;
    case PL_TOKENS_PER_COST:
        return 3600 * tokens_per_s / (devices * price);
    case PL_TOKENS_PER_S_PER_DEVICE:
        return tokens_per_s / devices;
    default:
        return tokens_per_s;
    }
}

bool pl_watts_known(const struct pl_cluster *cluster)
{
    return cluster->device.busy_watts > 0;
}

/* Devices whose energy the counters of LAYOUT's job see. */
static double metered(const struct pl_cluster *cluster, const struct pl_layout *layout)
{
    int devices = pl_layout_devices(layout), node = cluster->devices_per_node;
    int hosts = (devices + node - 1) / node;

    if (!cluster->device.cpu)
        return devices;
    return (double)(hosts < cluster->nodes ? hosts : cluster->nodes) * node;
}

static bool computes(enum pl_cost_class class)
{
    return class == PL_COST_FORWARD || class == PL_COST_BACKWARD || class == PL_COST_RECOMPUTE ||
           class == PL_COST_OPTIMIZER;
}

double pl_watts(double ret_joules[PL_COST_CLASSES], const struct pl_cluster *cluster,
                const struct pl_layout *layout, const struct pl_cost *cost)
{
    bool known = pl_watts_known(cluster);
    double busy = known ? cluster->device.busy_watts : 1, joules = 0,
           idle = known && cluster->device.idle_watts > 0 ? cluster->device.idle_watts : busy;
    double all = metered(cluster, layout), devices = pl_layout_devices(layout);

    if (devices > all) /* ranks that share cores */
        devices = all;
    for (int i = 0; i < PL_COST_CLASSES; i++) {
        double watts = all * idle + (computes((enum pl_cost_class)i) ? devices * (busy - idle) : 0);

        if (ret_joules)
            ret_joules[i] = watts * cost->seconds[i];
        joules += watts * cost->seconds[i];
    }
    return joules / cost->total;
}

double pl_objective_expected(enum pl_objective objective, const struct pl_cluster *cluster,
                             const struct pl_layout *layout, const struct pl_cost *cost)
{
    return pl_objective_value(
        objective, cost->tokens_per_s, pl_layout_devices(layout),
        objective == PL_TOKENS_PER_JOULE ? pl_watts(NULL, cluster, layout, cost) : 0,
        cluster->price);
}

void pl_objective_cost(struct pl_cost *ret, enum pl_objective objective,
                       const struct pl_cluster *cluster, const struct pl_layout *layout,
                       const struct pl_cost *cost)
{
    double unit = objective == PL_TOKENS_PER_S_PER_DEVICE ? pl_layout_devices(layout) : 1;

    if (objective == PL_TOKENS_PER_COST)
        unit = pl_layout_devices(layout) * cluster->price / 3600;

    *ret = *cost;
    ret->tokens_per_s = pl_objective_expected(objective, cluster, layout, cost);
    if (objective == PL_TOKENS_PER_JOULE)
        pl_watts(ret->seconds, cluster, layout, cost);
    ret->total = 0;
    for (int i = 0; i < PL_COST_CLASSES; i++)
        ret->total += ret->seconds[i] *= unit;
}
