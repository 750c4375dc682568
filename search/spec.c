/* The parts of a campaign that the search reads, and the search over its whole space. */
#include <errno.h>

#include "base/base.h"
#include "search/search.h"
#include "search/transfer.h"

const char *const se_method_names[] = {"bayes", "random", "grid", NULL};
const char *const se_objective_names[] = {"tokens_per_s", "tokens_per_s_per_device", NULL};

static const char *const campaign_keys[] = {
    "name",      "model",       "cluster", "workload", "space",  "baseline",
    "objective", "constraints", "budget",  "trial",    "search", "launcher",
    "trainer",   "tags",        "notes",   "priority", "rules",  NULL,
};
static const char *const constraint_keys[] = {"memory_headroom", NULL};
static const char *const budget_keys[] = {"trials", "wall_s", "device_s", NULL};
static const char *const search_keys[] = {"method", "prior", "memory_prior", "seed", "parallel",
                                          "regret", "tie",   "warm_start",   NULL};
static const char *const prior_names[] = {"model", "none", NULL};

/* Object KEY of CAMPAIGN with no keys but KEYS; *RET is NULL when it is absent. */
static int part(const json_t **ret, const json_t *campaign, const char *key,
                const char *const *keys, struct err *e)
{
    json_t *v = NULL;
    int r = jx_get_object(&v, campaign, key, e);

    if (r < 0)
        return r;
    if (v && (r = jx_keys(v, keys, e)) < 0) {
        char prefix[32];

        snprintf(prefix, sizeof(prefix), "/%s", key);
        return err_under(e, prefix);
    }
    *ret = v;
    return 0;
}

/* There must be a prior whose errors the earlier campaigns can tell of. */
static int parse_warm_start(struct se_spec *s, const json_t *v, const struct pl_cluster *local,
                            struct err *e)
{
    const json_t *list = json_object_get(v, "warm_start");
    int r;

    if (!list || json_array_size(list) == 0)
        return list && !json_is_array(list)
                   ? err_at(e, -EINVAL, "/search/warm_start", "warm_start must be an array")
                   : 0;
    if (s->method != SE_BAYES || (!s->use_prior && !s->use_memory_prior))
        return err_at(e, -EINVAL, "/search/warm_start",
                      "earlier campaigns correct the cost model and the memory plan: "
                      "warm_start needs the method bayes and one of the priors");
    r = se_sources_parse(s, list, local, e);
    if (r < 0) {
        se_sources_done(s);
        return err_under(e, "/search/warm_start");
    }
    return 0;
}

static int parse_search(struct se_spec *s, const json_t *campaign, const struct pl_cluster *local,
                        struct err *e)
{
    const json_t *v;
    int64_t seed = 1;
    int method = SE_BAYES, prior = 0, memory_prior = 0, r;

    if ((r = part(&v, campaign, "search", search_keys, e)) < 0)
        return r;
    s->parallel = 1;
    s->regret_share = 0.003;
    s->tie_share = 0.01;
    if (v && ((r = jx_get_enum(&method, v, "method", se_method_names, e)) < 0 ||
              (r = jx_get_enum(&prior, v, "prior", prior_names, e)) < 0 ||
              (r = jx_get_enum(&memory_prior, v, "memory_prior", prior_names, e)) < 0 ||
              (r = jx_get_i64(&seed, v, "seed", 0, INT64_MAX, e)) < 0 ||
              (r = jx_get_int(&s->parallel, v, "parallel", 1, 1024, e)) < 0 ||
              (r = jx_get_f64(&s->regret_share, v, "regret", 0.0, 1.0, e)) < 0 ||
              (r = jx_get_f64(&s->tie_share, v, "tie", 0.0, 1.0, e)) < 0)) {
        err_under(e, "/search");
        return r;
    }
    s->method = (enum se_method)method;
    s->use_prior = prior == 0;
    s->use_memory_prior = memory_prior == 0;
    s->seed = (uint64_t)seed;
    return parse_warm_start(s, v, local, e);
}

static int parse_limits(struct se_spec *s, const json_t *campaign, struct err *e)
{
    const json_t *v;
    int r;

    s->memory_headroom = s->trainer->bundled ? 0.0 : 0.05;
    if ((r = part(&v, campaign, "constraints", constraint_keys, e)) < 0)
        return r;
    if (v && (r = jx_get_f64(&s->memory_headroom, v, "memory_headroom", 0.0, 0.9, e)) < 0)
        return err_under(e, "/constraints");
    if ((r = part(&v, campaign, "budget", budget_keys, e)) < 0)
        return r;
    if (v && ((r = jx_get_int(&s->budget.trials, v, "trials", 1, 1000000, e)) < 0 ||
              (r = jx_get_f64(&s->budget.wall_s, v, "wall_s", 1.0, 1e9, e)) < 0 ||
              (r = jx_get_f64(&s->budget.device_s, v, "device_s", 1.0, 1e15, e)) < 0))
        return err_under(e, "/budget");
    if ((r = pl_trial_limits_parse(&s->limits, campaign, e)) < 0)
        return r;
    s->trial_start_s = s->cluster.nodes > 1 ? 60.0 : 2.0;
    return 0;
}

/* Whose rules hold: those that CAMPAIGN names, else the trainer's own; a trainer of the
 * administrator's configuration has none by its name. */
static int parse_trainer(const struct pl_trainer **ret, const json_t *campaign, struct err *e)
{
    const char *trainer = "partune";
    int rules = -1, r;

    if ((r = jx_get_str(&trainer, campaign, "trainer", 64, e)) < 0 ||
        (r = jx_get_enum(&rules, campaign, "rules", pl_trainer_names(), e)) < 0)
        return r;
    if (rules >= 0 && str_eq(trainer, "partune") && !str_eq(pl_trainer_names()[rules], trainer))
        return err_at(e, -EINVAL, "/rules",
                      "\"rules\" is \"%s\", but trainer partune has its own: leave it out",
                      pl_trainer_names()[rules]);
    *ret = pl_trainer_find(rules >= 0 ? pl_trainer_names()[rules] : trainer);
    if (!*ret)
        *ret = pl_trainer_find("any");
    return 0;
}

static int parse_problem(struct se_spec *s, const json_t *campaign, const struct pl_cluster *local,
                         struct err *e)
{
    int objective = SE_TOKENS_PER_S, r;

    if ((r = jx_need(campaign, "model", e)) < 0 || (r = jx_need(campaign, "workload", e)) < 0)
        return r;
    if ((r = pl_model_parse(&s->model, json_object_get(campaign, "model"), e)) < 0)
        return err_under(e, "/model");
    if ((r = pl_cluster_parse(&s->cluster, json_object_get(campaign, "cluster"), local, e)) < 0)
        return err_under(e, "/cluster");
    if ((r = parse_trainer(&s->trainer, campaign, e)) < 0 ||
        (r = jx_get_enum(&objective, campaign, "objective", se_objective_names, e)) < 0)
        return r;
    s->objective = (enum se_objective)objective;
    if ((r = pl_workload_parse(&s->workload, json_object_get(campaign, "workload"), &s->model,
                               s->trainer, e)) < 0)
        return err_under(e, "/workload");
    return 0;
}

struct pl_problem se_spec_problem(const struct se_spec *s)
{
    return (struct pl_problem){&s->model, &s->cluster, &s->workload, s->trainer};
}

int se_spec_baseline(struct se_spec *s, enum pl_baseline_rule rule, struct err *e)
{
    const struct pl_space_axis *world = pl_space_axis(s->space, "world");
    struct pl_problem p = se_spec_problem(s);
    int r = pl_baseline(&s->baseline, s->baseline_note, &p, rule,
                        world->n > 0 ? world->value[world->n - 1] : 0, s->memory_headroom, e);

    s->has_baseline = r == 0;
    s->baseline_rule = pl_baseline_names[rule];
    return r;
}

/* A rule that finds nothing leaves the campaign without one, which is for the caller to judge. */
static int parse_baseline(struct se_spec *s, const json_t *campaign, struct err *e)
{
    const json_t *v = json_object_get(campaign, "baseline");
    int rule = PL_BASELINE_DEFAULT, r;

    s->baseline_rule = pl_baseline_names[PL_BASELINE_DEFAULT];
    if (!v || json_is_null(v))
        return 0;
    if (json_is_string(v)) {
        r = jx_get_enum(&rule, campaign, "baseline", pl_baseline_names, e);
        r = r < 0 ? r : se_spec_baseline(s, (enum pl_baseline_rule)rule, e);
        return r == -ENOENT || r == -E2BIG ? 0 : r;
    }
    r = pl_layout_parse(&s->baseline, v, &s->model, &s->cluster, &s->workload, e);
    if (r == 0)
        pl_layout_unsaid(&s->baseline, v, &s->model, s->trainer);
    if (r < 0)
        return err_under(e, "/baseline");
    s->has_baseline = true;
    s->baseline_rule = "given";
    return 0;
}

int se_spec_parse(struct se_spec *ret, const json_t *campaign, const struct pl_cluster *local,
                  struct err *e)
{
    struct se_spec s;
    json_t *space = json_object_get(campaign, "space");
    int r;

    memset(&s, 0, sizeof(s));
    if ((r = jx_keys(campaign, campaign_keys, e)) < 0 ||
        (r = parse_problem(&s, campaign, local, e)) < 0 ||
        (r = parse_search(&s, campaign, local, e)) < 0 || (r = parse_limits(&s, campaign, e)) < 0) {
        se_sources_done(&s);
        return r;
    }
    s.space = mem_alloc(sizeof(*s.space));
    r = pl_space_parse(s.space, space, &s.model, &s.cluster, &s.workload, s.trainer, e);
    if (r < 0) {
        se_spec_done(&s);
        return err_under(e, "/space");
    }
    r = parse_baseline(&s, campaign, e);
    if (r < 0) {
        se_spec_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void se_spec_done(struct se_spec *s)
{
    free(s->space);
    s->space = NULL;
    se_sources_done(s);
}

/* What cannot fit is excluded up front where the plan is exact and believed. */
static size_t drop_unfit(struct pl_layout *list, size_t n, const struct se_spec *spec)
{
    struct pl_problem p = se_spec_problem(spec);
    double offered = pl_memory_offered(&spec->cluster, spec->memory_headroom);
    struct pl_memory_ctx *plan;
    size_t kept = 0;

    if (!spec->trainer->bundled || !spec->use_memory_prior || spec->prior_fn)
        return n;
    plan = pl_memory_ctx_new(&p);
    for (size_t i = 0; i < n; i++) {
        struct pl_memory worst;

        pl_memory_at(&worst, plan, &list[i]);
        if (worst.total <= offered)
            list[kept++] = list[i];
    }
    pl_memory_ctx_free(plan);
    return kept;
}

/* Room for the baseline, which a short list may lack. */
static void add_baseline(struct pl_layout *list, size_t *n, const struct se_spec *spec)
{
    struct pl_problem p = se_spec_problem(spec);

    if (!spec->has_baseline || !pl_space_has(spec->space, &p, &spec->baseline))
        return;
    for (size_t i = 0; i < *n; i++)
        if (pl_layout_equal(&list[i], &spec->baseline))
            return;
    list[(*n)++] = spec->baseline;
}

/* Share of a short list that the cost model chooses, where it is believed. */
static const double CHOSEN = 0.75;

static int list_space(struct pl_layout **ret, size_t *ret_n, const struct se_spec *spec,
                      struct err *e)
{
    struct pl_problem p = se_spec_problem(spec);
    bool believed = spec->method == SE_BAYES && spec->use_prior && !spec->prior_fn;
    int r = pl_space_list_within(ret, ret_n, SE_MAX_LAYOUTS, spec->space, &p, spec->patience, e);

    if (r != -E2BIG)
        return r;
    r = pl_plan_shortlist(ret, ret_n, SE_SHORTLIST, believed ? CHOSEN : 0, spec->space, &p,
                          spec->memory_headroom, spec->objective == SE_TOKENS_PER_S_PER_DEVICE,
                          spec->patience, e);
    if (r < 0)
        return r;
    *ret = mem_realloc(*ret, (*ret_n + 1) * sizeof(**ret));
    add_baseline(*ret, ret_n, spec);
    return 0;
}

int se_search_new(struct se_search **ret, const struct se_spec *spec, struct err *e)
{
    struct pl_problem p = se_spec_problem(spec);
    struct pl_layout AUTO_FREE *list = NULL;
    size_t n = 0, kept;
    char why[sizeof(e->text)];
    int r;

    r = list_space(&list, &n, spec, e);
    if (r < 0)
        return err_under(e, "/space");
    kept = drop_unfit(list, n, spec);
    if (n == 0 && pl_space_explain(why, sizeof(why), spec->space, &p, spec->patience))
        return err_at(e, -EINVAL, "/space", "%s", why);
    if (kept == 0)
        return err_at(e, -EINVAL, "/space", "none of the %zu legal layouts fits in device memory",
                      n);
    return se_search_new_over(ret, spec, list, kept, e);
}
