/* Layouts of a plan as JSON, and what each part of a cluster of parts does alone. */
#include "tuner/api/api.h"

/* The further layouts of an item's family, and how slow the slowest is; null for a single
 * layout. */
static json_t *variants(const struct pl_plan_entry *entry, bool families)
{
    if (!families)
        return json_null();
    return json_pack("{s:I, s:f, s:f}", "count", (json_int_t)entry->variants, "best",
                     entry->cost.tokens_per_s, "worst", entry->worst);
}

/* [{"part", "name", "stages", "layers", "devices"}]: which stages lie where, in their order. */
static json_t *placement(const struct pl_plan_entry *entry, const struct tn_api_job *job)
{
    const struct pl_layout *layout = &entry->layout;
    int ranks = layout->world / layout->pp, stage = 0;
    json_t *list = json_array();

    for (int i = 0; i < PL_PARTS; i++) {
        int part = i ? 1 - entry->first_part : entry->first_part, layers = 0;
        int stages = pl_parts_stages(&job->parts, part, ranks);

        for (int k = 0; k < stages; k++)
            layers += pl_stage_layers(NULL, layout, job->model.layers, stage++, 0);
        json_array_append_new(list, json_pack("{s:i, s:s, s:i, s:i, s:i}", "part", part, "name",
                                              job->parts.at[part].name, "stages", stages, "layers",
                                              layers, "devices", stages * ranks));
    }
    return list;
}

json_t *tn_api_plan_item(const struct pl_plan_entry *entry, const struct tn_api_job *job, int part,
                         bool families)
{
    struct pl_problem p = tn_api_job_problem(job);
    double mfu, watts;
    char text[160];
    json_t *v;

    if (part >= 0)
        p.cluster = &job->parts.at[part];
    mfu = pl_mfu(&p, &entry->layout, entry->cost.tokens_per_s);
    watts = pl_watts(NULL, p.cluster, &entry->layout, &entry->cost);
    v = json_pack(
        "{s:o, s:s, s:f, s:o, s:o, s:o, s:o, s:s, s:o, s:I}", "layout",
        pl_layout_json(&entry->layout), "text", pl_layout_text(text, &entry->layout),
        "tokens_per_s", entry->cost.tokens_per_s, "tokens_per_joule",
        pl_watts_known(p.cluster) ? json_real(entry->cost.tokens_per_s / watts) : json_null(),
        "mfu", mfu < 0 ? json_null() : json_real(mfu), "seconds", pl_cost_json(&entry->cost),
        "memory", pl_memory_json(&entry->memory), "why", entry->why, "variants",
        variants(entry, families), "equivalents", (json_int_t)entry->equivalents);
    if (p.cluster->parts)
        json_object_set_new(v, "placement", placement(entry, job));
    return v;
}

json_t *tn_api_plan_alone(const struct tn_api_job *job, int part, const struct pl_space *space,
                          enum pl_objective objective, const struct pl_patience *patience)
{
    struct pl_problem problem = tn_api_job_problem(job);
    struct pl_plan plan;
    struct err why = {0};
    json_t *v;

    problem.cluster = &job->parts.at[part];
    pl_plan_look(&plan, space, &problem, 1, job->headroom, objective, patience);
    if (!plan.n)
        pl_plan_nothing(&plan, space, &problem, job->headroom, patience, &why);
    v = json_pack("{s:s, s:i, s:o, s:o}", "name", problem.cluster->name, "devices",
                  pl_cluster_devices(problem.cluster), "best",
                  plan.n ? tn_api_plan_item(&plan.at[0], job, part, false) : json_null(), "reason",
                  plan.n ? json_null() : json_string(why.text));
    pl_plan_done(&plan);
    return v;
}
