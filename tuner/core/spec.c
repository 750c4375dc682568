/* A campaign's JSON: checked as a whole, completed, and refused with the field that is wrong. */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "tuner/core/kinds.h"
#include "tuner/core/launcher.h"
#include "tuner/core/spec.h"
#include "tuner/export/export.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

struct pl_problem tn_spec_problem(const struct tn_spec *spec)
{
    return se_spec_problem(&spec->se);
}

/* [{"rule", "key", "detail"}] of a verdict. */
static json_t *rules_json(const struct pl_verdict *verdict)
{
    json_t *rules = json_array();

    for (int i = 0; i < verdict->count; i++)
        json_array_append_new(rules, json_pack("{s:s, s:s, s:s}", "rule", verdict->v[i].rule, "key",
                                               verdict->v[i].key, "detail", verdict->v[i].text));
    return rules;
}

static int check_text(const json_t *body, struct err *error)
{
    const json_t *tags = json_object_get(body, "tags"), *notes = json_object_get(body, "notes");
    const json_t *tag;
    size_t i;

    if (tags && (!json_is_array(tags) || json_array_size(tags) > 32))
        return err_at(error, -EINVAL, "/tags", "tags must be an array of at most 32 strings");
    json_array_foreach(tags, i, tag)
        if (!json_is_string(tag) || json_string_length(tag) == 0 || json_string_length(tag) > 64)
            return err_at(error, -EINVAL, "/tags", "tag %zu must be a string of 1 to 64 bytes", i);
    if (notes && (!json_is_string(notes) || json_string_length(notes) > 10000))
        return err_at(error, -EINVAL, "/notes", "notes must be a string of at most 10000 bytes");
    return 0;
}

static int parse_launcher(struct tn_spec *spec, const struct tn_service *svc, struct err *error)
{
    const char *kinds[TN_MAX_LAUNCHERS + 1];
    json_t *v = NULL;
    int kind = 0;
    const char *trainer = "partune";
    int r = jx_get_object(&v, spec->body, "launcher", error);

    tn_launcher_names(kinds, svc);
    if (r == 0 && v)
        r = jx_get_enum(&kind, v, "kind", kinds, error);
    if (r < 0)
        return err_under(error, "/launcher");
    spec->launcher = tn_kinds_of(svc)->launchers[kind];
    if ((r = jx_get_str(&trainer, spec->body, "trainer", sizeof(spec->trainer_name) - 1, error)) <
        0)
        return r;
    spec->trainer = tn_trainer_find(svc, trainer);
    if (!spec->trainer && spec->launcher->elsewhere && pl_trainer_find(trainer))
        spec->trainer = tn_kinds_of(svc)->bundled; /* nothing of it is run */
    if (!spec->trainer)
        return err_at(error, -EINVAL, "/trainer",
                      "unknown trainer \"%s\": the bundled one is \"partune\", others are [trainer "
                      "\"NAME\"] sections of the daemon's configuration",
                      trainer);
    snprintf(spec->trainer_name, sizeof(spec->trainer_name), "%s", trainer);
    return 0;
}

/* Can its launcher and its trainer serve all clusters of SPEC? */
static int check_clusters(const struct tn_spec *spec, struct err *error)
{
    const struct se_spec *se = &spec->se;

    if (se->nclusters > 1 && !spec->launcher->several)
        return err_at(error, -EINVAL, "/cluster",
                      "the launcher \"%s\" runs trials on one cluster, not on %d: name one, or "
                      "choose the launcher slurm, remote or simulated",
                      spec->launcher->name, se->nclusters);
    for (int k = 1; k < se->nclusters; k++)
        if (!se->trainer->bundled && se->cluster[k].device.cpu != se->cluster[0].device.cpu)
            return err_at(error, -EINVAL, "/cluster",
                          "trainer %s runs on GPUs or on CPUs, not on both: cluster %s has %s, "
                          "cluster %s has %s",
                          spec->trainer_name, se->cluster[0].name,
                          se->cluster[0].device.cpu ? "CPU cores" : "GPUs", se->cluster[k].name,
                          se->cluster[k].device.cpu ? "CPU cores" : "GPUs");
    return 0;
}

/* Is the baseline of BODY another trainer's configuration, {"import", "text", …}? */
static bool is_imported(const json_t *body)
{
    const json_t *baseline = json_object_get(body, "baseline");

    return json_object_get(baseline, "import") || json_object_get(baseline, "text");
}

/* What of an imported baseline is not as in the campaign, or has no word here. */
static void note_import(char note[PL_BASELINE_NOTE], const struct tn_imported *imported,
                        const struct pl_workload *workload)
{
    AUTO_STR s = {0};
    int ignored = imported->ignored.count + imported->ignored.more;
    char text[160];

    if (imported->global_batch && imported->global_batch != workload->global_batch &&
        !pl_batch_known(workload, imported->global_batch))
        str_addf(&s, "it trains global_batch %d, the campaign %s", imported->global_batch,
                 pl_batches_text(text, workload));
    if (imported->seq && imported->seq != workload->seq)
        str_addf(&s, "%sit trains seq %d, the campaign %d", s.len ? "; " : "", imported->seq,
                 workload->seq);
    if (imported->assumed)
        str_addf(&s, "%sits script is read as called without arguments", s.len ? "; " : "");
    if (ignored)
        str_addf(&s, "%s%d of its settings ignored (partune import lists them)", s.len ? "; " : "",
                 ignored);
    snprintf(note, PL_BASELINE_NOTE, "%s", str_text(&s));
}

/* BATCH if the workload of RESOLVED lists it among several, else 0. */
static int listed_batch(const json_t *resolved, int batch)
{
    const json_t *workload = json_object_get(resolved, "workload"), *value;
    size_t i;

    json_array_foreach(json_object_get(workload, "global_batch"), i, value)
        if (json_integer_value(value) == batch)
            return batch;
    return 0;
}

/* Replace an imported baseline of RESOLVED by its layout. Without "world" it is taken to run on
 * all devices of the cluster, of which the text says nothing. */
static int import_baseline(struct tn_imported *ret, json_t *resolved, const struct tn_service *svc,
                           struct err *error)
{
    static const char *const keys[] = {"import", "text", "world", "call", "cluster", NULL};
    const json_t *baseline = json_object_get(resolved, "baseline");
    const json_t *text = json_object_get(baseline, "text");
    const json_t *call = json_object_get(baseline, "call");
    struct tn_job job = {.text = json_string_value(text), .call = json_string_value(call)};
    int source = 0, world, at = 0, r;
    struct se_spec spec = {0};
    struct pl_model model;

    if ((r = pl_model_parse(&model, json_object_get(resolved, "model"), error)) < 0)
        return err_under(error, "/model");
    r = se_clusters_parse(&spec, json_object_get(resolved, "cluster"), tn_local_cluster(svc),
                          error);
    if (r < 0)
        return err_under(error, "/cluster");
    if (json_object_get(baseline, "cluster") &&
        (at = se_cluster_named(&spec, json_string_value(json_object_get(baseline, "cluster")))) < 0)
        return err_at(error, -EINVAL, "/baseline/cluster",
                      "\"cluster\" must be the name of one of several clusters");
    world = pl_cluster_devices(&spec.cluster[at]);
    if ((r = jx_keys(baseline, keys, error)) < 0 || (r = jx_need(baseline, "text", error)) < 0 ||
        (r = jx_need(baseline, "import", error)) < 0 ||
        (r = jx_get_enum(&source, baseline, "import", tn_importers(), error)) < 0 ||
        (r = jx_get_int(&world, baseline, "world", 1, 1 << 20, error)) < 0)
        return err_under(error, "/baseline");
    if (!json_is_string(text))
        return err_at(error, -EINVAL, "/baseline/text", "\"text\" must be a string");
    if (call && !json_is_string(call))
        return err_at(error, -EINVAL, "/baseline/call", "\"call\" must be a string");
    job.source = tn_importers()[source];
    job.world = world;
    r = tn_import(ret, &job, &model, error);
    if (r < 0)
        return err_under(error, "/baseline/text");
    ret->layout.global_batch = listed_batch(resolved, ret->global_batch);
    ret->layout.cluster = spec.nclusters > 1 ? at + 1 : 0;
    json_object_set_new(resolved, "baseline", se_layout_json(&spec, &ret->layout));
    return 0;
}

/* No baseline given means the default one, within the devices that the space allows. */
static int choose_baseline(json_t **ret_rules, struct tn_spec *spec, struct err *error)
{
    struct pl_problem p = se_layout_problem(&spec->se, &spec->se.baseline);
    struct pl_verdict verdict;
    struct err why = {0};
    int r;
    bool naive = str_eq(spec->se.baseline_rule, pl_baseline_names[PL_BASELINE_NAIVE]);

    if (spec->se.has_baseline) {
        if (pl_layout_check(&verdict, &p, &spec->se.baseline))
            return 0;
        if (ret_rules)
            *ret_rules = rules_json(&verdict);
        err_at(error, -EINVAL, "/baseline", "%s", verdict.v[0].text);
        return -EINVAL;
    }
    r = se_spec_baseline(&spec->se, naive ? PL_BASELINE_NAIVE : PL_BASELINE_DEFAULT, &why);
    return r < 0 ? err_at(error, -EINVAL, r == -E2BIG ? "/baseline" : "/model", "%s", why.text) : 0;
}

static void resolve(struct tn_spec *spec)
{
    json_t *trial;

    json_object_set_new(spec->resolved, "model", pl_model_json(&spec->se.model));
    json_object_set_new(spec->resolved, "cluster", se_clusters_json(&spec->se));
    json_object_set_new(spec->resolved, "workload", pl_workload_json(&spec->se.workload));
    json_object_set_new(spec->resolved, "baseline", se_layout_json(&spec->se, &spec->se.baseline));
    trial = pl_trial_limits_json(&spec->se.limits);
    if (spec->se.nfidelities > 0)
        json_object_set_new(trial, "fidelity",
                            pl_fidelities_json(spec->se.fidelity, spec->se.nfidelities));
    json_object_set_new(spec->resolved, "trial", trial);
    if (spec->se.stacked.name) /* presets change from release to release */
        json_object_set_new(spec->resolved, "stack", pl_stack_json(&spec->se.stacked));
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

static int parse(json_t **ret_rules, struct tn_spec *spec, const struct tn_service *svc,
                 struct err *error)
{
    const char *name = NULL;
    struct err why = {0};
    struct tn_imported imported;
    int r = tn_warm_start(&spec->resolved, svc, spec->body, error);

    if (r < 0)
        return r;
    add_rules(spec->resolved, svc);
    if (is_imported(spec->resolved) &&
        (r = import_baseline(&imported, spec->resolved, svc, error)) < 0)
        return r;
    if ((r = se_spec_parse(&spec->se, spec->resolved, tn_local_cluster(svc), error)) < 0)
        return r;
    if (is_imported(spec->body))
        note_import(spec->se.baseline_note, &imported, &spec->se.workload);
    if ((r = jx_need(spec->body, "name", error)) < 0 ||
        (r = jx_get_str(&name, spec->body, "name", sizeof(spec->name) - 1, error)) < 0 ||
        (r = jx_get_i64(&spec->priority, spec->body, "priority", -TN_MAX_PRIORITY, TN_MAX_PRIORITY,
                        error)) < 0 ||
        (r = check_text(spec->body, error)) < 0 || (r = parse_launcher(spec, svc, error)) < 0 ||
        (r = check_clusters(spec, error)) < 0 || (r = tn_batches_admit(spec, svc, error)) < 0 ||
        (r = tn_fidelities_admit(spec, svc, error)) < 0)
        return r;
    snprintf(spec->name, sizeof(spec->name), "%s", name);
    if (spec->trainer == tn_kinds_of(svc)->bundled && !spec->launcher->elsewhere &&
        !str_eq(spec->se.workload.data, "synthetic")) {
        r = tn_dataset_path(&spec->data_path, svc, spec->se.workload.data, &why);
        if (r < 0)
            return err_at(error, -EINVAL, "/workload/data", "%s", why.text);
    }
    if ((r = choose_baseline(ret_rules, spec, error)) < 0 ||
        (r = spec->launcher->admit(svc, spec, error)) < 0)
        return r;
    if (!spec->se.budget.trials && !(spec->se.budget.wall_s > 0) &&
        !(spec->se.budget.device_s > 0) && !(spec->se.budget.cost > 0))
        spec->se.budget.trials = 50; /* a campaign without an end is nobody's wish */
    if (spec->launcher->wanted &&
        !json_object_get(json_object_get(spec->body, "search"), "parallel"))
        spec->se.parallel = 256; /* as many as there are workers */
    spec->se.async_refit = true;
    resolve(spec);
    return 0;
}

int tn_spec_parse(struct tn_spec **ret, json_t **ret_rules, const struct tn_service *svc,
                  const json_t *body, struct err *error)
{
    AUTO(tn_spec) *s = mem_alloc(sizeof(*s));
    int r;

    if (!json_is_object(body))
        return err_at(error, -EINVAL, "", "a campaign must be an object");
    s->body = json_deep_copy(body);
    r = parse(ret_rules, s, svc, error);
    if (r < 0 &&
        r != -ENOMEM) { /* whatever is wrong, it is the body: out of bounds, too large, not there */
        if (error)
            error->code = -EINVAL;
        return -EINVAL;
    }
    if (r < 0)
        return r;
    assert(s->launcher && s->trainer && s->resolved);
    assert(s->priority >= -TN_MAX_PRIORITY && s->priority <= TN_MAX_PRIORITY);
    *ret = TAKE(s);
    return 0;
}

struct tn_spec *tn_spec_free(struct tn_spec *spec)
{
    if (!spec)
        return NULL;
    json_decref(spec->body);
    json_decref(spec->resolved);
    se_spec_done(&spec->se);
    free(spec->data_path);
    free(spec);
    return NULL;
}
