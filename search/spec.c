/* The parts of a campaign that the search reads, but for earlier campaigns (source.c). */
#include <assert.h>
#include <errno.h>

#include "base/base.h"
#include "search/spec.h"

const char *const se_method_names[] = {"bayes", "random", "grid", NULL};

static const char *const campaign_keys[] = {
    "name",        "model",    "cluster", "workload", "space",    "baseline", "objective",
    "constraints", "budget",   "trial",   "search",   "launcher", "trainer",  "tags",
    "notes",       "priority", "rules",   "stack",    NULL,
};
static const char *const budget_keys[] = {"trials", "wall_s", "device_s", "cost", NULL};
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

static int parse_search(struct se_spec *spec, const json_t *campaign, struct err *error)
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
    return 0;
}

/* The limits of a trial, and its fidelities. */
static int parse_trial(struct se_spec *spec, const json_t *campaign, struct err *error)
{
    AUTO_JSON *rest = json_object();
    json_t *trial = NULL;
    int r;

    if ((r = jx_get_object(&trial, campaign, "trial", error)) < 0)
        return r;
    if ((r = pl_fidelities_parse(spec->fidelity, &spec->nfidelities, trial, error)) < 0)
        return err_under(error, "/trial");
    if (spec->nfidelities > 0 && spec->method != SE_BAYES)
        return err_at(error, -EINVAL, "/trial/fidelity",
                      "smaller trials need search method bayes, the only one that can use them");
    if (trial) {
        json_object_set_new(rest, "trial", json_copy(trial));
        json_object_del(json_object_get(rest, "trial"), "fidelity");
    }
    return pl_trial_limits_parse(&spec->limits, rest, error);
}

/* What COST pays for is a budget of device-seconds, unless their prices differ. */
static int parse_cost(struct se_spec *spec, double cost, struct err *error)
{
    double device_s;

    if (!(cost > 0))
        return 0;
    if (!se_prices_known(spec))
        return err_at(error, -EINVAL, "/cost", "a cost budget needs price_per_device_hour in %s",
                      spec->nclusters > 1 ? "every cluster" : "the cluster");
    if (spec->nclusters > 1) {
        spec->budget.cost = cost;
        return 0;
    }
    device_s = cost / spec->cluster[0].price * 3600;
    if (!(spec->budget.device_s > 0) || device_s < spec->budget.device_s)
        spec->budget.device_s = device_s;
    return 0;
}

static int parse_limits(struct se_spec *spec, const json_t *campaign, struct err *error)
{
    const json_t *v;
    double cost = 0;
    int r;

    if ((r = pl_headroom_of(&spec->memory_headroom, campaign, spec->trainer, error)) < 0)
        return r;
    if ((r = part(&v, campaign, "budget", budget_keys, error)) < 0)
        return r;
    if (v && ((r = jx_get_int(&spec->budget.trials, v, "trials", 1, 1000000, error)) < 0 ||
              (r = jx_get_f64(&spec->budget.wall_s, v, "wall_s", 1.0, 1e9, error)) < 0 ||
              (r = jx_get_f64(&spec->budget.device_s, v, "device_s", 1.0, 1e15, error)) < 0 ||
              (r = jx_get_f64(&cost, v, "cost", 1e-6, 1e15, error)) < 0 ||
              (r = parse_cost(spec, cost, error)) < 0))
        return err_under(error, "/budget");
    if ((r = parse_trial(spec, campaign, error)) < 0)
        return r;
    spec->trial_start_s = 2.0;
    for (int i = 0; i < spec->nclusters; i++)
        if (spec->cluster[i].nodes > 1)
            spec->trial_start_s = 60.0;
    return 0;
}

int se_trainer_parse(const struct pl_trainer **ret, const json_t *campaign, const char *own_rules,
                     struct err *error)
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
    if (rules >= 0)
        own_rules = pl_trainer_names()[rules];
    *ret = pl_trainer_find(own_rules ? own_rules : trainer);
    if (!*ret)
        *ret = pl_trainer_find("any");
    return 0;
}

static int parse_problem(struct se_spec *spec, const json_t *campaign,
                         const struct pl_cluster *local, struct err *error)
{
    int objective = PL_TOKENS_PER_S, r;

    if ((r = jx_need(campaign, "model", error)) < 0 ||
        (r = jx_need(campaign, "workload", error)) < 0)
        return r;
    if ((r = pl_model_parse(&spec->model, json_object_get(campaign, "model"), error)) < 0)
        return err_under(error, "/model");
    if ((r = se_clusters_parse(spec, json_object_get(campaign, "cluster"), local, error)) < 0)
        return err_under(error, "/cluster");
    if ((r = se_trainer_parse(&spec->trainer, campaign, NULL, error)) < 0 ||
        (r = pl_stack_of(&spec->stacked, campaign, spec->trainer, error)) < 0 ||
        (r = jx_get_enum(&objective, campaign, "objective", pl_objective_names, error)) < 0)
        return r;
    spec->objective = (enum pl_objective)objective;
    if (objective == PL_TOKENS_PER_COST && !se_prices_known(spec))
        return err_at(error, -EINVAL, "/objective",
                      "tokens_per_cost needs price_per_device_hour in %s",
                      spec->nclusters > 1 ? "every cluster" : "the cluster");
    if ((r = pl_workload_parse(&spec->workload, json_object_get(campaign, "workload"), &spec->model,
                               spec->trainer, error)) < 0)
        return err_under(error, "/workload");
    return 0;
}

static void add_note(struct se_spec *spec, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void add_note(struct se_spec *spec, const char *fmt, ...)
{
    size_t n = strlen(spec->baseline_note);
    AUTO_STR text = {0};
    va_list ap;

    va_start(ap, fmt);
    str_vaddf(&text, fmt, ap);
    va_end(ap);
    snprintf(spec->baseline_note + n, sizeof(spec->baseline_note) - n, "%s%s", n ? "; " : "",
             str_text(&text));
}

/* The baseline by RULE on cluster number AT, from 0. The rule looks at no space, and what it
 * chooses may win. */
static int baseline_on(struct se_spec *spec, int at, enum pl_baseline_rule rule, struct err *error)
{
    const struct pl_space_axis *world = pl_space_axis(&spec->space[at], "world");
    struct pl_problem p = se_spec_problem(spec);
    AUTO_STR keys = {0};
    int r;

    p.cluster = &spec->cluster[at];
    r = pl_baseline(&spec->baseline, spec->baseline_note, &p, rule,
                    world->n > 0 ? world->value[world->n - 1] : 0, spec->memory_headroom, error);
    if (r < 0)
        return r;
    spec->baseline.cluster = spec->nclusters > 1 ? at + 1 : 0;
    for (int i = 0; i < at; i++)
        add_note(spec, "nothing fits on %s", spec->cluster[i].name);
    pl_space_outside(&keys, &spec->space[at], &p, &spec->baseline);
    if (keys.len)
        add_note(spec, "outside the space: %s; name a baseline to stay in it", str_text(&keys));
    return 0;
}

int se_spec_baseline(struct se_spec *spec, enum pl_baseline_rule rule, struct err *error)
{
    int r = baseline_on(spec, 0, rule, error), first = r;

    for (int at = 1; at < spec->nclusters && (r == -ENOENT || r == -E2BIG); at++)
        r = baseline_on(spec, at, rule, NULL);
    spec->has_baseline = r == 0;
    spec->baseline_rule = pl_baseline_names[rule];
    if (r == 0 || spec->nclusters == 1)
        return r;
    err_wrap(error, "on no cluster; on %s", spec->cluster[0].name);
    return first;
}

/* A rule that finds nothing leaves the campaign without one, which is for the caller to judge. */
static int parse_baseline(struct se_spec *spec, const json_t *campaign, struct err *error)
{
    const json_t *v = json_object_get(campaign, "baseline");
    struct pl_problem p;
    int rule = PL_BASELINE_DEFAULT, r;

    spec->baseline_rule = pl_baseline_names[PL_BASELINE_DEFAULT];
    if (!v || json_is_null(v))
        return 0;
    if (json_is_string(v)) {
        r = jx_get_enum(&rule, campaign, "baseline", pl_baseline_names, error);
        r = r < 0 ? r : se_spec_baseline(spec, (enum pl_baseline_rule)rule, error);
        return r == -ENOENT || r == -E2BIG ? 0 : r;
    }
    r = se_layout_parse(&spec->baseline, spec, v, error);
    if (r < 0)
        return err_under(error, "/baseline");
    p = se_layout_problem(spec, &spec->baseline);
    pl_layout_unsaid(&spec->baseline, v, &p);
    spec->has_baseline = true;
    spec->baseline_rule = "given";
    return 0;
}

int se_spec_begin(struct se_spec *ret, const json_t *campaign, const struct pl_cluster *local,
                  struct err *error)
{
    int r;

    memset(ret, 0, sizeof(*ret));
    if ((r = jx_keys(campaign, campaign_keys, error)) < 0 ||
        (r = parse_problem(ret, campaign, local, error)) < 0)
        return r;
    return parse_search(ret, campaign, error);
}

int se_spec_finish(struct se_spec *spec, const json_t *campaign, struct err *error)
{
    struct pl_problem p = se_spec_problem(spec);
    int r = parse_limits(spec, campaign, error);

    if (r < 0)
        return r;
    spec->space = mem_alloc((size_t)spec->nclusters * sizeof(*spec->space));
    for (int i = 0; i < spec->nclusters && r == 0; i++) {
        p.cluster = &spec->cluster[i];
        r = pl_space_parse(&spec->space[i], json_object_get(campaign, "space"), &p, error);
    }
    return r < 0 ? err_under(error, "/space") : parse_baseline(spec, campaign, error);
}

void se_spec_done(struct se_spec *spec)
{
    free(spec->space);
    spec->space = NULL;
    for (int i = 0; i < spec->nsources; i++)
        free(spec->source[i].trial);
    free(spec->source);
    spec->source = NULL;
    spec->nsources = 0;
}
