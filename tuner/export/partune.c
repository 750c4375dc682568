/*
 * The bundled trainer: the file that `partune-train --config` reads. Everything that we can say, it
 * can read. The file is a whole production run: where the data are, a folder of checkpoints named
 * after the trial, from which a second start goes on, and the throughput that was promised.
 */
#include "tuner/export/internal.h"

#include <math.h>

enum { CHECKPOINT_EVERY = 200, CHECKPOINT_KEEP = 3 }; /* steps; folders */

static void rules(struct tn_findings *ret, const struct tn_export_in *in)
{
    struct pl_verdict verdict;

    if (pl_layout_check(&verdict, in->model, in->cluster, in->layout, in->workload,
                        pl_trainer_find("partune")))
        return;
    for (int i = 0; i < verdict.count; i++) {
        const char *key = verdict.v[i].key;
        char setting[48];

        snprintf(setting, sizeof(setting), "%s%s", pl_layout_key_find(key) ? "" : "model.", key);
        tn_finding_add(ret, setting, "%s: %s", verdict.v[i].rule, verdict.v[i].text);
    }
}

/* As the daemon started the trial: ranks that may move to each other's core are another job. */
static json_t *launch_line(const struct tn_export_in *in)
{
    bool bound = *in->binding;

    return json_sprintf("mpiexec%s%s -n %d partune-train --config FILE --steps STEPS "
                        "--lr-decay-steps STEPS",
                        bound ? " -bind-to " : "", in->binding, in->layout->world);
}

static void write_config(struct str *out, const struct tn_export_in *in,
                         const struct tn_findings *lost)
{
    json_t *v = json_pack("{s:o, s:o, s:o, s:o}", "model", pl_model_json(in->model), "cluster",
                          pl_cluster_json(in->cluster), "workload", pl_workload_json(in->workload),
                          "layout", pl_layout_json(in->layout));
    json_t *provenance;
    char *text;

    json_object_set_new(v, "checkpoint",
                        json_pack("{s:o, s:i, s:i, s:b}", "dir",
                                  json_sprintf("%s-trial%d", in->campaign, in->trial), "every",
                                  CHECKPOINT_EVERY, "keep", CHECKPOINT_KEEP, "resume", 1));
    if (in->data)
        json_object_set_new(v, "run", json_pack("{s:s}", "data", in->data));
    if (isfinite(in->tokens_per_s) && isfinite(in->lo) && isfinite(in->hi))
        json_object_set_new(v, "promised",
                            json_pack("{s:f, s:f, s:f}", "tokens_per_s", in->tokens_per_s, "lo",
                                      in->lo, "hi", in->hi));
    provenance = tn_export_provenance(in, lost);
    if (in->binding)
        json_object_set_new(provenance, "launch", launch_line(in));
    json_object_set_new(v, "provenance", provenance);
    text = json_dumps(v, JSON_INDENT(2) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    str_add(out, text);
    str_addc(out, '\n');
    free(text);
    json_decref(v);
}

const struct tn_exporter tn_export_partune = {
    .name = "partune",
    .title = "Configuration of partune-train",
    .version = "partune " PACKAGE_VERSION,
    .media_type = "application/json",
    .extension = "json",
    .carries = pl_layout_key_names, /* it writes pl_layout_json */
    .trainer = "partune",
    .rules = rules,
    .write = write_config,
};
