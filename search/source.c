/* A campaign as a spec, with the earlier campaigns that inform its search ("search.warm_start"),
 * each a spec of its own. */
#include <errno.h>

#include "base/base.h"
#include "search/spec.h"
#include "search/state.h"
#include "search/table.h"

/* "simulated" says where its trials come from; the search weighs them all alike. */
static const char *const source_keys[] = {"campaign", "model",       "cluster",   "workload",
                                          "trainer",  "constraints", "simulated", "trials",
                                          "rules",    "stack",       "trial",     NULL};
static const char *const past_keys[] = {"layout",           "fidelity",         "status",
                                        "tokens_per_s",     "tokens_per_s_se",  "peak_memory_bytes",
                                        "tokens_per_s_max", "tokens_per_joule", NULL};

/* Which smaller problem it was, if any. */
static int parse_fidelity(struct se_past *ret, const json_t *json, const struct se_spec *spec,
                          struct err *error)
{
    struct pl_reduced reduced;
    int r = jx_get_int(&ret->fidelity, json, "fidelity", 1, PL_MAX_FIDELITIES, error);

    if (r < 0 || ret->fidelity == 0)
        return r;
    if (ret->fidelity > spec->nfidelities)
        return err_at(error, -EINVAL, "/fidelity", "fidelity %d of %d: name them in trial.fidelity",
                      ret->fidelity, spec->nfidelities);
    return se_reduce(&reduced, spec, &ret->layout, ret->fidelity)
               ? 0
               : err_at(error, -EINVAL, "/fidelity", "the layout has no trial at fidelity %d",
                        ret->fidelity);
}

static int parse_past(struct se_past *ret, const json_t *json, const struct se_spec *spec,
                      struct err *error)
{
    struct pl_problem p;
    struct pl_verdict verdict;
    int r;

    if ((r = jx_keys(json, past_keys, error)) < 0 || (r = jx_need(json, "layout", error)) < 0)
        return r;
    r = se_layout_parse(&ret->layout, spec, json_object_get(json, "layout"), error);
    if (r < 0)
        return err_under(error, "/layout");
    p = se_layout_problem(spec, &ret->layout);
    if (!pl_layout_check(&verdict, &p, &ret->layout))
        return err_at(error, -EINVAL, "/layout", "%s", verdict.v[0].text);
    if ((r = parse_fidelity(ret, json, spec, error)) < 0)
        return r;
    return se_outcome_parse(&ret->outcome, json, error);
}

static int parse_trials(struct se_source *source, const json_t *list, struct err *error)
{
    size_t n = json_array_size(list);
    char at[32];

    if (!json_is_array(list) || n == 0 || n > SE_MAX_SOURCE_TRIALS)
        return err_at(error, -EINVAL, "/trials", "must be an array of 1 to %d trials",
                      SE_MAX_SOURCE_TRIALS);
    source->trial = mem_alloc(n * sizeof(*source->trial));
    for (; (size_t)source->n < n; source->n++) {
        int r = parse_past(&source->trial[source->n], json_array_get(list, (size_t)source->n),
                           &source->spec, error);

        if (r < 0) {
            snprintf(at, sizeof(at), "/trials/%d", source->n);
            return err_under(error, at);
        }
    }
    return 0;
}

static int parse_source(struct se_source *source, const json_t *json,
                        const struct pl_cluster *local, struct err *error)
{
    AUTO_JSON *campaign = NULL;
    int r;

    if (!json_is_object(json))
        return err_at(error, -EINVAL, "", "an earlier campaign must be an object");
    if ((r = jx_keys(json, source_keys, error)) < 0)
        return r;
    campaign = json_copy((json_t *)json);
    json_object_del(campaign, "campaign");
    json_object_del(campaign, "simulated");
    json_object_del(campaign, "trials");
    if ((r = se_spec_parse(&source->spec, campaign, local, error)) < 0)
        return r;
    se_spec_done(&source->spec);
    return parse_trials(source, json_object_get(json, "trials"), error);
}

static int parse_sources(struct se_spec *spec, const json_t *list, const struct pl_cluster *local,
                         struct err *error)
{
    size_t n = json_array_size(list);
    char at[32];

    if (!json_is_array(list) || n > SE_MAX_SOURCES)
        return err_at(error, -EINVAL, "", "must be an array of at most %d earlier campaigns",
                      SE_MAX_SOURCES);
    spec->source = mem_alloc((n + 1) * sizeof(*spec->source));
    for (size_t i = 0; i < n; i++) {
        int r;

        spec->nsources++;
        r = parse_source(&spec->source[i], json_array_get(list, i), local, error);
        if (r < 0) {
            snprintf(at, sizeof(at), "/%zu", i);
            return err_under(error, at);
        }
    }
    return 0;
}

/* There must be a prior whose errors the earlier campaigns can tell of. */
static int parse_warm_start(struct se_spec *spec, const json_t *campaign,
                            const struct pl_cluster *local, struct err *error)
{
    const json_t *list = json_object_get(json_object_get(campaign, "search"), "warm_start");
    int r;

    if (!list || json_array_size(list) == 0)
        return list && !json_is_array(list)
                   ? err_at(error, -EINVAL, "/search/warm_start", "warm_start must be an array")
                   : 0;
    if (spec->method != SE_BAYES || (!spec->use_prior && !spec->use_memory_prior))
        return err_at(error, -EINVAL, "/search/warm_start",
                      "warm_start needs method bayes and one of the priors: earlier campaigns "
                      "correct the cost model and the memory plan");
    r = parse_sources(spec, list, local, error);
    return r < 0 ? err_under(error, "/search/warm_start") : 0;
}

int se_spec_parse(struct se_spec *ret, const json_t *campaign, const struct pl_cluster *local,
                  struct err *error)
{
    struct se_spec spec;
    int r = se_spec_begin(&spec, campaign, local, error);

    if (r == 0)
        r = parse_warm_start(&spec, campaign, local, error);
    if (r == 0)
        r = se_spec_finish(&spec, campaign, error);
    if (r < 0)
        se_spec_done(&spec);
    else
        *ret = spec;
    return r;
}
