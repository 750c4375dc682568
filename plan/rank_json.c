/* A ranking as JSON. */
#include "plan/plan.h"

#include "base/base.h"

json_t *pl_plan_json(const struct pl_plan *plan, const struct pl_problem *problem)
{
    json_t *list = json_array();

    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_plan_entry *one = &plan->at[i];
        double mfu = pl_mfu(problem, &one->layout, one->cost.tokens_per_s);
        json_t *v = json_pack("{s:i s:o s:f s:o s:o s:o}", "rank", (int)i + 1, "layout",
                              pl_layout_json(&one->layout), "tokens_per_s", one->cost.tokens_per_s,
                              "mfu", mfu < 0 ? json_null() : json_real(mfu), "cost",
                              pl_cost_json(&one->cost), "memory", pl_memory_json(&one->memory));

        json_object_set_new(v, "why", one->why[0] ? json_string(one->why) : json_null());
        json_array_append_new(list, v);
    }
    return json_pack("{s:I s:I s:b s:o}", "legal", (json_int_t)plan->legal, "fitting",
                     (json_int_t)plan->fitting, "exact", plan->exact, "layouts", list);
}
