/* A campaign's JSON: checked as a whole, completed, and refused with the field that is wrong. */
#include <errno.h>
#include <math.h>

#include "tuner/internal.h"

static const char *const launcher_kinds[] = {"local", "slurm", "simulated", "remote", NULL};

struct pl_problem tn_spec_problem(const struct tn_spec *s)
{
    return se_spec_problem(&s->se);
}

/* [{"rule", "key", "detail"}] of a verdict. */
static json_t *rules_json(const struct pl_verdict *v)
{
    json_t *rules = json_array();

    for (int i = 0; i < v->count; i++)
        json_array_append_new(rules, json_pack("{s:s, s:s, s:s}", "rule", v->v[i].rule, "key",
                                               v->v[i].key, "detail", v->v[i].text));
    return rules;
}

static int check_text(const json_t *body, struct err *e)
{
    const json_t *tags = json_object_get(body, "tags"), *notes = json_object_get(body, "notes");
    const json_t *tag;
    size_t i;

    if (tags && (!json_is_array(tags) || json_array_size(tags) > 32))
        return err_at(e, -EINVAL, "/tags", "tags must be an array of at most 32 texts");
    json_array_foreach(tags, i, tag)
        if (!json_is_string(tag) || json_string_length(tag) == 0 || json_string_length(tag) > 64)
            return err_at(e, -EINVAL, "/tags", "tag %zu must be a text of 1 to 64 bytes", i);
    if (notes && (!json_is_string(notes) || json_string_length(notes) > 10000))
        return err_at(e, -EINVAL, "/notes", "notes must be a text of at most 10000 bytes");
    return 0;
}

static int parse_launcher(struct tn_spec *s, const struct tn_service *svc, struct err *e)
{
    json_t *v = NULL;
    int kind = 0;
    const char *trainer = "partune";
    int r = jx_get_object(&v, s->body, "launcher", e);

    if (r == 0 && v)
        r = jx_get_enum(&kind, v, "kind", launcher_kinds, e);
    if (r < 0)
        return err_under(e, "/launcher");
    s->launcher = tn_launcher_find(launcher_kinds[kind]);
    if (!s->launcher)
        return err_at(e, -EINVAL, "/launcher/kind", "this daemon has no launcher \"%s\"",
                      launcher_kinds[kind]);
    if ((r = jx_get_str(&trainer, s->body, "trainer", sizeof(s->trainer_name) - 1, e)) < 0)
        return r;
    s->trainer = tn_trainer_find(svc, trainer);
    if (!s->trainer && s->launcher->rehearsal && pl_trainer_find(trainer))
        s->trainer = &tn_trainer_partune; /* nothing of it is run */
    if (!s->trainer)
        return err_at(e, -EINVAL, "/trainer",
                      "no trainer \"%s\": the bundled one is \"partune\", others are [trainer "
                      "\"NAME\"] sections of the daemon's configuration",
                      trainer);
    snprintf(s->trainer_name, sizeof(s->trainer_name), "%s", trainer);
    return 0;
}

/* No baseline given means the default one, within the devices that the space allows. */
static int choose_baseline(struct tn_spec *s, json_t **ret_rules, struct err *e)
{
    struct pl_problem p = tn_spec_problem(s);
    struct pl_verdict verdict;
    struct err why = {0};
    int r;
    bool naive = str_eq(s->se.baseline_rule, pl_baseline_names[PL_BASELINE_NAIVE]);

    if (s->se.has_baseline) {
        if (pl_layout_check(&verdict, p.model, p.cluster, &s->se.baseline, p.workload, p.trainer))
            return 0;
        if (ret_rules)
            *ret_rules = rules_json(&verdict);
        err_at(e, -EINVAL, "/baseline", "%s", verdict.v[0].text);
        return -EINVAL;
    }
    r = se_spec_baseline(&s->se, naive ? PL_BASELINE_NAIVE : PL_BASELINE_DEFAULT, &why);
    return r < 0 ? err_at(e, -EINVAL, r == -E2BIG ? "/baseline" : "/model", "%s", why.text) : 0;
}

static void resolve(struct tn_spec *s)
{
    json_object_set_new(s->resolved, "model", pl_model_json(&s->se.model));
    json_object_set_new(s->resolved, "cluster", pl_cluster_json(&s->se.cluster));
    json_object_set_new(s->resolved, "workload", pl_workload_json(&s->se.workload));
    json_object_set_new(s->resolved, "baseline", pl_layout_json(&s->se.baseline));
    json_object_set_new(s->resolved, "trial", pl_trial_limits_json(&s->se.limits));
}

/* Whose rules hold for a trainer of the configuration becomes part of the completed text, so that
 * the space of a campaign is the same after the configuration changed. */
static void add_rules(json_t *resolved, const struct tn_service *svc)
{
    const char *name = json_string_value(json_object_get(resolved, "trainer"));
    const char *rules = tn_trainer_rules(svc, name);

    if (rules && !json_object_get(resolved, "rules"))
        json_object_set_new(resolved, "rules", json_string(rules));
}

static int parse(struct tn_spec *s, const struct tn_service *svc, json_t **ret_rules, struct err *e)
{
    const char *name = NULL;
    struct err why = {0};
    int r = tn_warm_start(&s->resolved, svc, s->body, e);

    if (r < 0)
        return r;
    add_rules(s->resolved, svc);
    if ((r = se_spec_parse(&s->se, s->resolved, svc->local, e)) < 0)
        return r;
    if ((r = jx_need(s->body, "name", e)) < 0 ||
        (r = jx_get_str(&name, s->body, "name", sizeof(s->name) - 1, e)) < 0 ||
        (r = jx_get_i64(&s->priority, s->body, "priority", -TN_MAX_PRIORITY, TN_MAX_PRIORITY, e)) <
            0 ||
        (r = check_text(s->body, e)) < 0 || (r = parse_launcher(s, svc, e)) < 0)
        return r;
    snprintf(s->name, sizeof(s->name), "%s", name);
    if (s->trainer == &tn_trainer_partune && !s->launcher->rehearsal &&
        !str_eq(s->se.workload.data, "synthetic")) {
        r = tn_dataset_path(&s->data_path, svc, s->se.workload.data, &why);
        if (r < 0)
            return err_at(e, -EINVAL, "/workload/data", "%s", why.text);
    }
    if ((r = choose_baseline(s, ret_rules, e)) < 0 || (r = s->launcher->admit(svc, s, e)) < 0)
        return r;
    if (!s->se.budget.trials && !(s->se.budget.wall_s > 0) && !(s->se.budget.device_s > 0))
        s->se.budget.trials = 50; /* a campaign without an end is nobody's wish */
    if (s->launcher->wanted && !json_object_get(json_object_get(s->body, "search"), "parallel"))
        s->se.parallel = 256; /* as many as there are workers */
    s->se.async_refit = true;
    resolve(s);
    return 0;
}

int tn_spec_parse(struct tn_spec **ret, const struct tn_service *svc, const json_t *body,
                  json_t **ret_rules, struct err *e)
{
    AUTO(tn_spec) *s = mem_alloc(sizeof(*s));
    int r;

    if (!json_is_object(body))
        return err_at(e, -EINVAL, "", "a campaign is an object");
    s->body = json_deep_copy(body);
    r = parse(s, svc, ret_rules, e);
    if (r < 0 &&
        r != -ENOMEM) { /* whatever is wrong, it is the body: out of bounds, too large, not there */
        if (e)
            e->code = -EINVAL;
        return -EINVAL;
    }
    if (r < 0)
        return r;
    *ret = TAKE(s);
    return 0;
}

struct tn_spec *tn_spec_free(struct tn_spec *s)
{
    if (!s)
        return NULL;
    json_decref(s->body);
    json_decref(s->resolved);
    se_spec_done(&s->se);
    free(s->data_path);
    free(s);
    return NULL;
}
