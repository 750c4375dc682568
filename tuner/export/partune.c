/*
 * The bundled trainer: the file that `partune-train --config` reads. Everything that we can say, it
 * can read. The file is a whole production run: where the data are, a folder of checkpoints named
 * after the trial, from which a second start resumes, and the throughput that is expected.
 */
#include "tuner/export/internal.h"

#include <math.h>

enum { CHECKPOINT_EVERY = 200, CHECKPOINT_KEEP = 3 }; /* steps; folders */

static void rules(struct tn_findings *ret, const struct tn_export_in *in)
{
    struct pl_problem problem = {in->model, in->cluster, in->workload, pl_trainer_find("partune")};
    struct pl_verdict verdict;

    if (pl_layout_check(&verdict, &problem, in->layout))
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
    static const char program[] =
        "partune-train --config FILE --steps STEPS --lr-decay-steps STEPS";
    bool bound = *in->binding;

    if (in->open_mpi)
        return json_sprintf("mpiexec --map-by slot:OVERSUBSCRIBE --bind-to none -n %d %s%s%s%s",
                            in->layout->world, bound ? "partune-run --bind " : "", in->binding,
                            bound ? " -- " : "", program);
    return json_sprintf("mpiexec%s%s -n %d %s", bound ? " -bind-to user:" : "", in->binding,
                        in->layout->world, program);
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
        json_object_set_new(v, "expected",
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

/* Starts of the bundled trainer in one job: in all, and in a row that ended within QUICK_S seconds.
 * What fails so often, or again and again at once (a folder that cannot be written), will fail
 * again. */
enum { STARTS = 100, QUICK_STARTS = 5, QUICK_S = 60 };

/* What a launcher says of ranks that it ended, or that ended together, is not the reason; the event
 * file is, which is next to the target's file. */
static void status_of_events(struct str *out)
{
    str_add(out, "    case $(tail -n 1 \"$job.events\") in\n"
                 "    *'\"event\":\"stopped\"'*) status=75 ;;\n"
                 "    *'\"class\":\"illegal\"'*) status=65 ;;\n"
                 "    *'\"class\":\"oom\"'*) status=66 ;;\n"
                 "    *'\"class\":\"numeric\"'*) status=67 ;;\n"
                 "    *'\"class\":\"data\"'*) status=68 ;;\n    esac\n");
}

/* A lost rank takes the bundled trainer's job down; this starts it again, and it resumes from its
 * newest checkpoint. The codes are those after which it must not
 * (docs/howto/tune-the-bundled-trainer.md); 126 and 127 are the shell's for a command that it
 * cannot run. */
static void line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    bool events = !at->remote;

    (void)in;
    str_addf(out, "quick=0\nfor start in {1..%d}; do\n    status=0\n    begun=$SECONDS\n%s", STARTS,
             events ? "    : >\"$job.events\"\n" : "");
    str_addf(out, "    %s partune-train --config %s%s || status=$?\n", at->mpi, at->file,
             events ? " --events \"$job.events\"" : "");
    if (events)
        status_of_events(out);
    str_addf(out,
             "    case $status in 0 | 2 | 6[5-8] | 75 | 12[67]) exit $status ;; esac\n"
             "    quick=$((SECONDS - begun < %d ? quick + 1 : 0))\n"
             "    if [ $quick -ge %d ]; then\n"
             "        echo \"$quick starts in a row ended at once, the last with $status\" >&2\n"
             "        exit $status\n    fi\n"
             "    echo \"start $start ended with $status; the next one resumes from the newest "
             "checkpoint\" >&2\n    sleep $((10 << quick))\ndone\nexit $status",
             QUICK_S, QUICK_STARTS);
}

const struct tn_exporter tn_export_partune = {
    .name = "partune",
    .title = "Configuration of partune-train",
    .version = "partune " PACKAGE_VERSION,
    .media_type = "application/json",
    .extension = "json",
    .carries = pl_layout_key_names, /* it writes pl_layout_json */
    .trainer = "partune",
    .says_layers = true,
    .says_batch = true,
    .rules = rules,
    .write = write_config,
    .by_rank = true,
    .line = line,
};
