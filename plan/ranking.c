/* What layouts of a ranking are worth, and how much time is left. */
#include "plan/ranking.h"

double pl_ranking_spent(const struct pl_ranking *ranking)
{
    return ranking->patience ? ranking->patience->spent(ranking->patience->arg) : 0;
}

double pl_ranking_worth(const struct pl_ranking *ranking, const struct pl_plan_entry *one)
{
    return pl_objective_expected(ranking->objective, ranking->problem->cluster, &one->layout,
                                 &one->cost);
}

bool pl_ranking_before(const struct pl_ranking *ranking, const struct pl_plan_entry *left,
                       const struct pl_plan_entry *right)
{
    double x = pl_ranking_worth(ranking, left), y = pl_ranking_worth(ranking, right);

    return x > y || (!(x < y) && pl_space_compare(&left->layout, &right->layout) < 0);
}

bool pl_ranking_fits(struct pl_ranking *ranking, struct pl_plan_entry *entry)
{
    if (ranking->parts)
        return pl_parts_price(ranking->parts, entry);
    pl_memory_at(&entry->memory, ranking->memory, &entry->layout);
    return entry->memory.scaled <= ranking->limit;
}

bool pl_ranking_price(struct pl_ranking *ranking, struct pl_plan_entry *entry)
{
    if (!pl_ranking_fits(ranking, entry))
        return false;
    if (!ranking->parts) /* where it has them */
        pl_cost_at(&entry->cost, ranking->cost, &entry->layout);
    return true;
}

void pl_ranking_note_batch(struct pl_ranking *ranking, const struct pl_plan_entry *one)
{
    struct pl_plan *plan = ranking->plan;

    for (size_t i = 0; plan && i < plan->nbatches; i++)
        if (ranking->problem->workload->batch[i] == one->layout.global_batch &&
            (plan->batch[i].cost.total <= 0 || pl_ranking_before(ranking, one, &plan->batch[i])))
            plan->batch[i] = *one;
}
