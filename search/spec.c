/* The parts of a campaign that the search reads, and the search over its whole space. */
#include <errno.h>

#include "base/base.h"
#include "search/search.h"
#include "search/transfer.h"

const char *const se_method_names[] = {"bayes", "random", "grid", NULL};
const char *const se_objective_names[] = {"tokens_per_s", "tokens_per_s_per_device", NULL};

static const char *const campaign_keys[] = {
    "name",        "model",    "cluster", "workload", "space",    "baseline", "objective",
    "constraints", "budget",   "trial",   "search",   "launcher", "trainer",  "tags",
    "notes",       "priority", "rules",   "stack",    NULL,
};
static const char *const constraint_keys[] = {"memory_headroom", NULL};
static const char *const budget_keys[] = {"trials", "wall_s", "device_s", NULL};
static const char *const search_keys[] = {"method", "prior", "memory_prior", "seed", "parallel",
                                          "regret", "tie",   "warm_start",   NULL};
static const char *const prior_names[] = {"model", "none", NULL};

/* Object KEY of CAMPAIGN with no keys but KEYS; *RET is NULL when it is absent. */
static int part(const json_t **ret, const json_t *campaign, const char *key,
                const char *const *keys, struct err *error)
{
    json_t *v = NULL;
    int r = jx_get_object(&v, campaign, key, error);

    if (r < 0)
        return r;
    if (v && (r = jx_keys(v, keys, error)) < 0) {
        char prefix[32];

        snprintf(prefix, sizeof(prefix), "/%s", key);
        return err_under(error, prefix);
    }
    *ret = v;
    return 0;
}

/* There must be a prior whose errors the earlier campaigns can tell of. */
static int parse_warm_start(struct se_spec *spec, const json_t *json,
                            const struct pl_cluster *local, struct err *error)
{
    const json_t *list = json_object_get(json, "warm_start");
    int r;

    if (!list || json_array_size(list) == 0)
        return list && !json_is_array(list)
                   ? err_at(error, -EINVAL, "/search/warm_start", "warm_start must be an array")
                   : 0;
    if (spec->method != SE_BAYES || (!spec->use_prior && !spec->use_memory_prior))
        return err_at(error, -EINVAL, "/search/warm_start",
                      "earlier campaigns correct the cost model and the memory plan: "
                      "warm_start needs the method bayes and one of the priors");
    r = se_sources_parse(spec, list, local, error);
    if (r < 0) {
        se_sources_done(spec);
        return err_under(error, "/search/warm_start");
    }
    return 0;
}

static int parse_search(struct se_spec *spec, const json_t *campaign,
                        const struct pl_cluster *local, struct err *error)
{
    const json_t *v;
    int64_t seed = 1;
    int method = SE_BAYES, prior = 0, memory_prior = 0, r;

    if ((r = part(&v, campaign, "search", search_keys, error)) < 0)
        return r;
    spec->parallel = 1;
    spec->regret_share = 0.003;
    spec->tie_share = 0.01;
    if (v && ((r = jx_get_enum(&method, v, "method", se_method_names, error)) < 0 ||
              (r = jx_get_enum(&prior, v, "prior", prior_names, error)) < 0 ||
              (r = jx_get_enum(&memory_prior, v, "memory_prior", prior_names, error)) < 0 ||
              (r = jx_get_i64(&seed, v, "seed", 0, INT64_MAX, error)) < 0 ||
              (r = jx_get_int(&spec->parallel, v, "parallel", 1, 1024, error)) < 0 ||
              (r = jx_get_f64(&spec->regret_share, v, "regret", 0.0, 1.0, error)) < 0 ||
              (r = jx_get_f64(&spec->tie_share, v, "tie", 0.0, 1.0, error)) < 0)) {
        err_under(error, "/search");
        return r;
    }
    spec->method = (enum se_method)method;
    spec->use_prior = prior == 0;
    spec->use_memory_prior = memory_prior == 0;
    spec->seed = (uint64_t)seed;
    return parse_warm_start(spec, v, local, error);
}

static int parse_limits(struct se_spec *spec, const json_t *campaign, struct err *error)
{
    const json_t *v;
    int r;

    spec->memory_headroom = spec->trainer->bundled ? 0.0 : 0.05;
    if ((r = part(&v, campaign, "constraints", constraint_keys, error)) < 0)
        return r;
    if (v && (r = jx_get_f64(&spec->memory_headroom, v, "memory_headroom", 0.0, 0.9, error)) < 0)
        return err_under(error, "/constraints");
    if ((r = part(&v, campaign, "budget", budget_keys, error)) < 0)
        return r;
    if (v && ((r = jx_get_int(&spec->budget.trials, v, "trials", 1, 1000000, error)) < 0 ||
              (r = jx_get_f64(&spec->budget.wall_s, v, "wall_s", 1.0, 1e9, error)) < 0 ||
              (r = jx_get_f64(&spec->budget.device_s, v, "device_s", 1.0, 1e15, error)) < 0))
        return err_under(error, "/budget");
    if ((r = pl_trial_limits_parse(&spec->limits, campaign, error)) < 0)
        return r;
    spec->trial_start_s = spec->cluster.nodes > 1 ? 60.0 : 2.0;
    return 0;
}

/* Whose rules hold: those that CAMPAIGN names, else the trainer's own; a trainer of the
 * administrator's configuration has none by its name. */
static int parse_trainer(const struct pl_trainer **ret, const json_t *campaign, struct err *error)
{
    const char *trainer = "partune";
    int rules = -1, r;

    if ((r = jx_get_str(&trainer, campaign, "trainer", 64, error)) < 0 ||
        (r = jx_get_enum(&rules, campaign, "rules", pl_trainer_names(), error)) < 0)
        return r;
    if (rules >= 0 && str_eq(trainer, "partune") && !str_eq(pl_trainer_names()[rules], trainer))
        return err_at(error, -EINVAL, "/rules",
                      "\"rules\" is \"%s\", but trainer partune has its own: leave it out",
                      pl_trainer_names()[rules]);
    *ret = pl_trainer_find(rules >= 0 ? pl_trainer_names()[rules] : trainer);
    if (!*ret)
        *ret = pl_trainer_find("any");
    return 0;
}

/* How the trainer runs, where the campaign says so. */
static int parse_stack(struct se_spec *spec, const json_t *campaign, struct err *error)
{
    const json_t *stack = json_object_get(campaign, "stack");

    if (!stack || json_is_null(stack))
        return 0;
    if (spec->trainer->bundled)
        return err_at(error, -EINVAL, "/stack",
                      "trainer %s runs as it does: \"stack\" is for trainers on GPUs",
                      spec->trainer->name);
    return pl_stack_parse(&spec->stacked, stack, spec->trainer, error) < 0
               ? err_under(error, "/stack")
               : 0;
}

static int parse_problem(struct se_spec *spec, const json_t *campaign,
                         const struct pl_cluster *local, struct err *error)
{
    int objective = SE_TOKENS_PER_S, r;

    if ((r = jx_need(campaign, "model", error)) < 0 ||
        (r = jx_need(campaign, "workload", error)) < 0)
        return r;
    if ((r = pl_model_parse(&spec->model, json_object_get(campaign, "model"), error)) < 0)
        return err_under(error, "/model");
    if ((r = pl_cluster_parse(&spec->cluster, json_object_get(campaign, "cluster"), local, error)) <
        0)
        return err_under(error, "/cluster");
    if ((r = parse_trainer(&spec->trainer, campaign, error)) < 0 ||
        (r = parse_stack(spec, campaign, error)) < 0 ||
        (r = jx_get_enum(&objective, campaign, "objective", se_objective_names, error)) < 0)
        return r;
    spec->objective = (enum se_objective)objective;
    if ((r = pl_workload_parse(&spec->workload, json_object_get(campaign, "workload"), &spec->model,
                               spec->trainer, error)) < 0)
        return err_under(error, "/workload");
    return 0;
}

struct pl_problem se_spec_problem(const struct se_spec *spec)
{
    return (struct pl_problem){&spec->model, &spec->cluster, &spec->workload,
                               spec->stacked.name ? &spec->stacked : spec->trainer};
}

int se_spec_baseline(struct se_spec *spec, enum pl_baseline_rule rule, struct err *error)
{
    const struct pl_space_axis *world = pl_space_axis(spec->space, "world");
    struct pl_problem p = se_spec_problem(spec);
    int r =
        pl_baseline(&spec->baseline, spec->baseline_note, &p, rule,
                    world->n > 0 ? world->value[world->n - 1] : 0, spec->memory_headroom, error);

    spec->has_baseline = r == 0;
    spec->baseline_rule = pl_baseline_names[rule];
    return r;
}

/* A rule that finds nothing leaves the campaign without one, which is for the caller to judge. */
static int parse_baseline(struct se_spec *spec, const json_t *campaign, struct err *error)
{
    const json_t *v = json_object_get(campaign, "baseline");
    struct pl_problem p = se_spec_problem(spec);
    int rule = PL_BASELINE_DEFAULT, r;

    spec->baseline_rule = pl_baseline_names[PL_BASELINE_DEFAULT];
    if (!v || json_is_null(v))
        return 0;
    if (json_is_string(v)) {
        r = jx_get_enum(&rule, campaign, "baseline", pl_baseline_names, error);
        r = r < 0 ? r : se_spec_baseline(spec, (enum pl_baseline_rule)rule, error);
        return r == -ENOENT || r == -E2BIG ? 0 : r;
    }
    r = pl_layout_parse(&spec->baseline, v, &p, error);
    if (r == 0)
        pl_layout_unsaid(&spec->baseline, v, &p);
    if (r < 0)
        return err_under(error, "/baseline");
    spec->has_baseline = true;
    spec->baseline_rule = "given";
    return 0;
}

int se_spec_parse(struct se_spec *ret, const json_t *campaign, const struct pl_cluster *local,
                  struct err *error)
{
    struct se_spec s;
    struct pl_problem p;
    json_t *space = json_object_get(campaign, "space");
    int r;

    memset(&s, 0, sizeof(s));
    if ((r = jx_keys(campaign, campaign_keys, error)) < 0 ||
        (r = parse_problem(&s, campaign, local, error)) < 0 ||
        (r = parse_search(&s, campaign, local, error)) < 0 ||
        (r = parse_limits(&s, campaign, error)) < 0) {
        se_sources_done(&s);
        return r;
    }
    s.space = mem_alloc(sizeof(*s.space));
    p = se_spec_problem(&s);
    r = pl_space_parse(s.space, space, &p, error);
    if (r < 0) {
        se_spec_done(&s);
        return err_under(error, "/space");
    }
    r = parse_baseline(&s, campaign, error);
    if (r < 0) {
        se_spec_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void se_spec_done(struct se_spec *spec)
{
    free(spec->space);
    spec->space = NULL;
    se_sources_done(spec);
}

/* What cannot fit is excluded up front where the plan is exact and believed. */
static size_t drop_unfit(struct pl_layout *list, size_t count, const struct se_spec *spec)
{
    struct pl_problem p = se_spec_problem(spec);
    double offered = pl_memory_offered(&spec->cluster, spec->memory_headroom);
    struct pl_memory_ctx *plan;
    size_t kept = 0;

    if (!spec->trainer->bundled || !spec->use_memory_prior || spec->prior_fn)
        return count;
    plan = pl_memory_ctx_new(&p);
    for (size_t i = 0; i < count; i++) {
        struct pl_memory worst;

        pl_memory_at(&worst, plan, &list[i]);
        if (worst.total <= offered)
            list[kept++] = list[i];
    }
    pl_memory_ctx_free(plan);
    return kept;
}

/* Room for the baseline, which a short list may lack. */
static void add_baseline(size_t *ret_count, struct pl_layout *list, const struct se_spec *spec)
{
    struct pl_problem p = se_spec_problem(spec);

    if (!spec->has_baseline || !pl_space_has(spec->space, &p, &spec->baseline))
        return;
    for (size_t i = 0; i < *ret_count; i++)
        if (pl_layout_equal(&list[i], &spec->baseline))
            return;
    list[(*ret_count)++] = spec->baseline;
}

/* Share of a short list that the cost model chooses, where it is believed. */
static const double CHOSEN = 0.75;

static int list_space(struct pl_layout **ret, size_t *ret_n, const struct se_spec *spec,
                      struct err *error)
{
    struct pl_problem p = se_spec_problem(spec);
    bool believed = spec->method == SE_BAYES && spec->use_prior && !spec->prior_fn;
    int r =
        pl_space_list_within(ret, ret_n, SE_MAX_LAYOUTS, spec->space, &p, spec->patience, error);

    if (r != -E2BIG)
        return r;
    r = pl_plan_shortlist(ret, ret_n, SE_SHORTLIST, believed ? CHOSEN : 0, spec->space, &p,
                          spec->memory_headroom, spec->objective == SE_TOKENS_PER_S_PER_DEVICE,
                          spec->patience, error);
    if (r < 0)
        return r;
    *ret = mem_realloc(*ret, (*ret_n + 1) * sizeof(**ret));
    add_baseline(ret_n, *ret, spec);
    return 0;
}

int se_search_new(struct se_search **ret, const struct se_spec *spec, struct err *error)
{
    struct pl_problem p = se_spec_problem(spec);
    struct pl_layout AUTO_FREE *list = NULL;
    size_t n = 0, kept;
    char why[sizeof(error->text)];
    int r;

    r = list_space(&list, &n, spec, error);
    if (r < 0)
        return err_under(error, "/space");
    kept = drop_unfit(list, n, spec);
    if (n == 0 && pl_space_explain(why, sizeof(why), spec->space, &p, spec->patience))
        return err_at(error, -EINVAL, "/space", "%s", why);
    if (kept == 0)
        return err_at(error, -EINVAL, "/space",
                      "none of the %zu legal layouts fits in device memory", n);
    return se_search_new_over(ret, spec, list, kept, error);
}
