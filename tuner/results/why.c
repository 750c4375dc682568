/* Why one trial of a campaign is faster or slower than another: what was measured, and what the
 * cost model makes of it (plan/why.c). */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

/* One of the two trials. */
struct side {
    struct db_trial trial;
    struct pl_layout layout;
    double
        unit; /* of a second of a phase: of as many tokens as the workload's first batch has, times
                    its devices where the objective is per device; NAN where it is per joule, which
                    no trainer measures by phase */
    double step_s;  /* of all runs of the layout, in the objective's; NAN: none at full size */
    json_t *phases; /* owned; milliseconds by name, or NULL */
};

static int load_side(struct side *ret, struct db *db, struct arena *arena, const char *id,
                     int64_t trial, const struct se_spec *spec, struct err *error)
{
    AUTO_JSON *layout = NULL;
    struct tn_measure measure;
    int64_t first;
    double batch, price;
    int r = db_trial_get(&ret->trial, db, arena, id, trial, error);

    if (r == 0)
        r = jx_parse(&layout, ret->trial.layout, strlen(ret->trial.layout), error);
    if (r == 0)
        r = se_layout_parse(&ret->layout, spec, layout, error);
    if (r < 0)
        return r;
    price = se_cluster_of(spec, &ret->layout)->price;
    batch = pl_batch(&spec->workload, &ret->layout);
    ret->unit = spec->workload.global_batch / batch /
                pl_objective_value(spec->objective, 1, pl_layout_devices(&ret->layout), NAN, price);
    first = ret->trial.repeat_of == DB_NULL ? trial : ret->trial.repeat_of;
    r = tn_measure_get(&measure, db, arena, id, first, error);
    if (r < 0 && r != -ENOENT)
        return r;
    ret->step_s = NAN;
    if (r == 0)
        ret->step_s = (double)spec->workload.global_batch * spec->workload.seq /
                      tn_measure_value(&measure, spec->objective, price).mean;
    if (ret->trial.fidelity == DB_NULL && ret->trial.phases)
        ret->phases = json_loads(ret->trial.phases, 0, NULL);
    return 0;
}

static double phase_s(const struct side *side, const char *name)
{
    const json_t *ms = json_object_get(side->phases, name);

    return json_is_number(ms) ? side->unit * json_number_value(ms) / 1e3 : (double)NAN;
}

static bool takes_time(const struct side *side)
{
    const char *name;
    json_t *ms;

    json_object_foreach(side->phases, name, ms)
        if (json_number_value(ms) > 0)
            return true;
    return false;
}

/* What the phases of both trials say of the rows CLASSES, and a row for each that the cost model
 * does not have. */
static void add_phases(json_t *classes, const struct side *from, const struct side *to)
{
    AUTO_JSON *rest = json_copy(from->phases);
    const char *name;
    json_t *row;
    size_t i;

    json_array_foreach(classes, i, row) {
        name = json_string_value(json_object_get(row, "class"));
        json_object_set_new(row, "trial_from_s", tn_number(phase_s(from, name)));
        json_object_set_new(row, "trial_to_s", tn_number(phase_s(to, name)));
        json_object_del(rest, name);
    }
    json_object_foreach(rest, name, row)
        if (phase_s(from, name) > 0 || phase_s(to, name) > 0)
            json_array_append_new(classes,
                                  json_pack("{s:s, s:n, s:n, s:o, s:o}", "class", name, "from_s",
                                            "to_s", "trial_from_s", tn_number(phase_s(from, name)),
                                            "trial_to_s", tn_number(phase_s(to, name))));
}

/* ---- two clusters -------------------------------------------------------- */

/* LAYOUT, of one of both trials, on the cluster of FROM and on that of TO: what the cost model
 * expects, and whether it fits in memory on both. False where it is illegal on one of them. */
static bool add_moved(struct pl_verdict *ret_verdict, json_t *clusters, const struct se_spec *spec,
                      const struct side *from, const struct side *to, const struct side *of)
{
    struct pl_problem before = se_layout_problem(spec, &from->layout);
    struct pl_problem after = se_layout_problem(spec, &to->layout);
    struct pl_why why;
    bool fits;

    if (!pl_layout_check(ret_verdict, of == to ? &before : &after, &of->layout))
        return false;
    pl_why_across(&why, &before, &of->layout, after.cluster, &of->layout, spec->objective);
    fits = pl_fits(&before, &of->layout, spec->memory_headroom) &&
           pl_fits(&after, &of->layout, spec->memory_headroom);
    json_object_set_new(clusters, "same_layout",
                        json_pack("{s:I, s:f, s:f, s:f, s:b}", "trial", (json_int_t)of->trial.n,
                                  "from_s", why.from.total, "to_s", why.to.total, "ratio",
                                  why.to.tokens_per_s / why.from.tokens_per_s, "fits", fits));
    return true;
}

/* Which clusters, and how much faster one layout is on the other: the later trial's or, where that
 * is illegal on the earlier one's cluster, the earlier trial's. */
static json_t *clusters_json(const struct se_spec *spec, const struct side *from,
                             const struct side *to)
{
    const char *before = se_cluster_of(spec, &from->layout)->name;
    const char *after = se_cluster_of(spec, &to->layout)->name;
    json_t *clusters =
        json_pack("{s:s, s:s, s:n, s:n}", "from", before, "to", after, "same_layout", "reason");
    struct pl_verdict there, here;
    char a[300], b[300];

    if (!add_moved(&there, clusters, spec, from, to, to) &&
        !add_moved(&here, clusters, spec, from, to, from))
        json_object_set_new(
            clusters, "reason",
            json_sprintf("the layout of trial %lld is illegal on %s (%s), that of trial %lld on "
                         "%s (%s)",
                         (long long)to->trial.n, before, pl_verdict_text(a, sizeof(a), &there),
                         (long long)from->trial.n, after, pl_verdict_text(b, sizeof(b), &here)));
    return clusters;
}

static json_t *compare(const struct se_spec *spec, const struct side *from, const struct side *to)
{
    struct pl_problem problem = se_layout_problem(spec, &from->layout);
    const struct pl_cluster *cluster = se_cluster_of(spec, &to->layout);
    struct pl_why why;
    json_t *view;

    pl_why_across(&why, &problem, &from->layout, cluster, &to->layout, spec->objective);
    view = pl_why_json(&why);
    if (cluster != problem.cluster)
        json_object_set_new(view, "clusters", clusters_json(spec, from, to));
    json_object_set_new(view, "trial", json_integer((json_int_t)to->trial.n));
    json_object_set_new(view, "against", json_integer((json_int_t)from->trial.n));
    if (from->step_s > 0 && to->step_s > 0)
        json_object_set_new(view, "trials",
                            json_pack("{s:f, s:f, s:f}", "from_s", from->step_s, "to_s", to->step_s,
                                      "ratio", from->step_s / to->step_s));
    if (takes_time(from) && takes_time(to))
        add_phases(json_object_get(view, "classes"), from, to);
    return view;
}

static int load(json_t **ret, struct tn_service *svc, struct db *db, struct arena *arena,
                const char *id, int64_t trial, int64_t against, struct err *error)
{
    struct side from = {.phases = NULL}, to = {.phases = NULL};
    struct db_campaign campaign;
    struct se_spec spec;
    AUTO_JSON *body = NULL;
    int r = db_campaign_get(&campaign, db, arena, id, error);

    if (r == 0)
        r = jx_parse(&body, campaign.resolved, strlen(campaign.resolved), error);
    if (r == 0)
        r = se_spec_parse(&spec, body, tn_local_cluster(svc), error);
    if (r < 0)
        return r;
    r = load_side(&from, db, arena, id, against, &spec, error);
    if (r == 0)
        r = load_side(&to, db, arena, id, trial, &spec, error);
    if (r == 0) {
        *ret = compare(&spec, &from, &to);
        json_object_set_new(*ret, "simulated", json_boolean(tn_is_simulated(campaign.launcher)));
    }
    json_decref(from.phases);
    json_decref(to.phases);
    se_spec_done(&spec);
    return r;
}

int tn_why(json_t **ret, struct tn_service *svc, const char *id, int64_t trial, int64_t against,
           struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", tn_data_dir(svc));
    struct arena arena = {0};
    AUTO_DB *db = NULL;
    int r = db_open(&db, path, DB_READ, error);

    assert(trial > 0 && against >= 0);
    if (r == 0)
        r = load(ret, svc, db, &arena, id, trial, against ? against : TN_BASELINE, error);
    arena_done(&arena);
    return r;
}
