/* What a trial runs: the campaign's problem, or what is left of it (plan/fidelity.h). */
#include <errno.h>

#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/spec.h"

struct pl_problem tn_trial_problem(const struct tn_trial *trial)
{
    struct pl_problem whole = se_layout_problem(&trial->campaign->engine->spec->se, &trial->layout);

    return pl_reduced_problem(&trial->run, &whole);
}

const struct pl_cluster *tn_trial_cluster(const struct tn_trial *trial)
{
    return se_cluster_of(&trial->campaign->engine->spec->se, &trial->layout);
}

double tn_trial_tokens(const struct tn_trial *trial)
{
    return (double)trial->run.workload.global_batch * trial->run.workload.seq;
}

json_t *tn_run_json(const struct pl_reduced *run)
{
    json_t *v = pl_reduced_json(run);
    char text[160];

    json_object_set_new(v, "text", json_string(pl_layout_text(text, &run->layout)));
    json_object_set_new(v, "devices", json_integer(pl_layout_devices(&run->layout)));
    return v;
}

/* LAYOUT is the trial's, at full size. */
static int run_of(struct pl_reduced *ret, const struct db_trial *row, const struct tn_spec *spec,
                  const struct pl_layout *layout, struct err *error)
{
    struct pl_problem whole = se_layout_problem(&spec->se, layout);
    AUTO_JSON *v = NULL;
    int r;

    if (row->fidelity < 1 || row->fidelity > spec->se.nfidelities || !row->run)
        return err_set(error, -EINVAL, "trial %lld has fidelity %lld of %d", (long long)row->n,
                       (long long)row->fidelity, spec->se.nfidelities);
    r = jx_parse(&v, row->run, strlen(row->run), error);
    if (r == 0)
        r = pl_reduced_parse(ret, v, &whole, error);
    if (r == 0)
        ret->layout.cluster = layout->cluster;
    return r;
}

int tn_trial_read(struct tn_trial **ret, const struct db_trial *row, const struct tn_engine *engine,
                  struct err *error)
{
    bool smaller = row->fidelity != DB_NULL;
    struct pl_reduced run;
    struct pl_layout layout;
    int r = tn_engine_layout(&layout, engine, row->layout, error);

    if (r == 0 && smaller)
        r = run_of(&run, row, engine->spec, &layout, error);
    if (r == 0)
        *ret = tn_trial_new(row, engine->spec, &layout, smaller ? &run : NULL);
    return r;
}
