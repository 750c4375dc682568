/* Earlier campaigns that inform a search, read from a campaign's "search.warm_start". */
#include <errno.h>

#include "base/base.h"
#include "search/state.h"
#include "search/transfer.h"

/* "simulated" says where its trials come from; the search weighs them all alike. */
static const char *const source_keys[] = {"campaign", "model",       "cluster",   "workload",
                                          "trainer",  "constraints", "simulated", "trials",
                                          "rules",    NULL};
static const char *const past_keys[] = {
    "layout",           "status", "tokens_per_s", "tokens_per_s_se", "peak_memory_bytes",
    "tokens_per_s_max", NULL};

static int parse_past(struct se_past *ret, const json_t *v, const struct se_spec *s, struct err *e)
{
    struct pl_problem p = se_spec_problem(s);
    struct pl_verdict verdict;
    int r;

    if ((r = jx_keys(v, past_keys, e)) < 0 || (r = jx_need(v, "layout", e)) < 0)
        return r;
    r = pl_layout_parse(&ret->layout, json_object_get(v, "layout"), &s->model, &s->cluster,
                        &s->workload, e);
    if (r < 0)
        return err_under(e, "/layout");
    if (!pl_layout_check(&verdict, p.model, p.cluster, &ret->layout, p.workload, p.trainer))
        return err_at(e, -EINVAL, "/layout", "%s", verdict.v[0].text);
    return se_outcome_parse(&ret->outcome, v, e);
}

static int parse_trials(struct se_source *x, const json_t *list, struct err *e)
{
    size_t n = json_array_size(list);
    char at[32];

    if (!json_is_array(list) || n == 0 || n > SE_MAX_SOURCE_TRIALS)
        return err_at(e, -EINVAL, "/trials", "an array of 1 to %d trials is needed",
                      SE_MAX_SOURCE_TRIALS);
    x->trial = mem_alloc(n * sizeof(*x->trial));
    for (; (size_t)x->n < n; x->n++) {
        int r = parse_past(&x->trial[x->n], json_array_get(list, (size_t)x->n), &x->spec, e);

        if (r < 0) {
            snprintf(at, sizeof(at), "/trials/%d", x->n);
            return err_under(e, at);
        }
    }
    return 0;
}

static int parse_source(struct se_source *x, const json_t *v, const struct pl_cluster *local,
                        struct err *e)
{
    AUTO_JSON *campaign = NULL;
    int r;

    if (!json_is_object(v))
        return err_at(e, -EINVAL, "", "an earlier campaign is an object");
    if ((r = jx_keys(v, source_keys, e)) < 0)
        return r;
    campaign = json_copy((json_t *)v);
    json_object_del(campaign, "campaign");
    json_object_del(campaign, "simulated");
    json_object_del(campaign, "trials");
    if ((r = se_spec_parse(&x->spec, campaign, local, e)) < 0)
        return r;
    se_spec_done(&x->spec);
    return parse_trials(x, json_object_get(v, "trials"), e);
}

int se_sources_parse(struct se_spec *s, const json_t *list, const struct pl_cluster *local,
                     struct err *e)
{
    size_t n = json_array_size(list);
    char at[32];

    if (!json_is_array(list) || n > SE_MAX_SOURCES)
        return err_at(e, -EINVAL, "", "an array of at most %d earlier campaigns is needed",
                      SE_MAX_SOURCES);
    s->source = mem_alloc((n + 1) * sizeof(*s->source));
    for (size_t i = 0; i < n; i++) {
        int r;

        s->nsources++;
        r = parse_source(&s->source[i], json_array_get(list, i), local, e);
        if (r < 0) {
            snprintf(at, sizeof(at), "/%zu", i);
            return err_under(e, at);
        }
    }
    return 0;
}

void se_sources_done(struct se_spec *s)
{
    for (int i = 0; i < s->nsources; i++)
        free(s->source[i].trial);
    free(s->source);
    s->source = NULL;
    s->nsources = 0;
}
