/*
 * What a trial says: its outcome as observations of throughput, of memory (a bound where there is
 * no figure), and of crashing.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>

#include "base/base.h"
#include "search/fidelity.h"

struct se_record *se_record_find(const struct se_search *search, int id)
{
    for (int i = search->nrecords - 1; i >= 0; i--)
        if (search->record[i].id == id)
            return &search->record[i];
    return NULL;
}

static int positive(double value, const char *pointer, struct err *error)
{
    if (!isfinite(value) || value <= 0.0)
        return err_at(error, -EINVAL, pointer, "%g is not a finite number above 0", value);
    return 0;
}

static int check_outcome(const struct se_outcome *outcome, struct err *error)
{
    int r = 0;

    if (outcome->status < SE_OK || outcome->status > SE_DISCARD)
        return err_at(error, -EINVAL, "/status", "%d is not a status", (int)outcome->status);
    if (outcome->status == SE_CENSORED)
        return positive(outcome->tokens_per_s_max, "/tokens_per_s_max", error);
    if (outcome->status != SE_OK)
        return 0;
    r = positive(outcome->tokens_per_s, "/tokens_per_s", error);
    if (r == 0 && outcome->tokens_per_s_se != 0.0)
        r = positive(outcome->tokens_per_s_se, "/tokens_per_s_se", error);
    if (r == 0 && outcome->peak_memory_bytes != 0.0)
        r = positive(outcome->peak_memory_bytes, "/peak_memory_bytes", error);
    return r;
}

/* What RUN measured, as an observation of its layout at full size. */
static void observe(struct se_search *search, enum se_quantity quantity, const struct se_run *run,
                    size_t index, enum se_obs_kind kind, double value, double var)
{
    struct se_obs o;

    se_surrogate_place(&o, &search->surrogate[quantity], search->table, index);
    o.kind = kind;
    o.value = value - run->shift[quantity];
    o.var = var;
    if (run->fidelity > 0) {
        memcpy(o.u, run->point[quantity].u, sizeof(o.u));
        o.apart = run->point[quantity].apart;
    }
    se_surrogate_add(&search->surrogate[quantity], &o);
}

/* A trainer may report any number. None so large or small that its exponential leaves the doubles,
 * and no error above the value itself, which says nothing already. */
static struct se_outcome bounded(const struct se_outcome *outcome)
{
    const double least = 1e-30, most = 1e30;
    struct se_outcome b = *outcome;

    b.tokens_per_s = fmin(fmax(outcome->tokens_per_s, least), most);
    b.tokens_per_s_se = fmin(outcome->tokens_per_s_se, b.tokens_per_s);
    b.tokens_per_s_max = fmin(fmax(outcome->tokens_per_s_max, least), most);
    if (outcome->tokens_per_joule > 0.0)
        b.tokens_per_joule = fmin(fmax(outcome->tokens_per_joule, least), most);
    if (outcome->peak_memory_bytes > 0.0)
        b.peak_memory_bytes = fmin(fmax(outcome->peak_memory_bytes, least), most);
    return b;
}

/* An earlier campaign may not have measured the objective, or not bounded it. */
static void observe_throughput(struct se_search *search, const struct se_run *run, size_t index,
                               const struct se_outcome *outcome)
{
    double se = outcome->tokens_per_s_se / outcome->tokens_per_s, value = -INFINITY,
           most = INFINITY;

    if (outcome->status == SE_OK)
        value = se_log_measured(search, outcome);
    else if (outcome->status == SE_CENSORED)
        most = log(outcome->tokens_per_s_max) - se_watts_least(search, run->log_watts);
    if (isfinite(value))
        observe(search, SE_THROUGHPUT, run, index, SE_EXACT, value, se * se);
    if (isfinite(most))
        observe(search, SE_THROUGHPUT, run, index, SE_BELOW, most, SE_SHARPNESS * SE_SHARPNESS);
}

/* A device runs out at its whole capacity, which is above what the headroom leaves. */
static void observe_memory(struct se_search *search, const struct se_run *run, size_t index,
                           const struct se_outcome *outcome)
{
    double full = -log1p(-search->spec.memory_headroom), var = SE_SHARPNESS * SE_SHARPNESS;

    if (outcome->status == SE_OK && outcome->peak_memory_bytes > 0.0)
        observe(search, SE_MEMORY, run, index, SE_EXACT,
                log(outcome->peak_memory_bytes) -
                    se_table_capacity(search->table, &search->spec, index),
                var);
    else if (outcome->status == SE_OK || outcome->status == SE_CENSORED)
        observe(search, SE_MEMORY, run, index, SE_BELOW, full, var);
    else if (outcome->status == SE_OOM)
        observe(search, SE_MEMORY, run, index, SE_ABOVE, full, var);
}

void se_learn(struct se_search *search, size_t index, int fidelity,
              const struct se_outcome *outcome)
{
    struct se_outcome b = bounded(outcome);
    struct se_run run;

    if (!se_run_of(&run, search, index, fidelity))
        assert(!"a trial of this fidelity was handed out");
    observe_throughput(search, &run, index, &b);
    se_watts_learn(search, &run, &b);
    observe_memory(search, &run, index, &b);
    if (outcome->status != SE_OOM)
        se_crash_add(&search->crash, search->table, index,
                     outcome->status == SE_OK || outcome->status == SE_CENSORED);
}

/* After DISCARDED its layout may be proposed again, unless another trial is of it. */
static void reopen(struct se_search *search, const struct se_record *discarded)
{
    bool other = discarded->repeat_of != 0;

    for (int i = 0; i < search->nrecords && search->spec.nfidelities > 0; i++) {
        const struct se_record *r = &search->record[i];

        other |= r != discarded && r->index == discarded->index &&
                 !(r->settled && r->outcome.status == SE_DISCARD);
    }
    if (!other)
        search->closed[discarded->index] = 0;
}

/* The control methods do not use the surrogate, whose time grows with the cube of the trials: after
 * the first hundred it follows when there are twice as many. */
static bool worth_updating(const struct se_search *search)
{
    return search->spec.method == SE_BAYES || search->settled < 100 ||
           (search->settled & (search->settled - 1)) == 0;
}

int se_tell(struct se_search *search, int id, const struct se_outcome *outcome, struct err *error)
{
    struct se_record *r = se_record_find(search, id);
    int rc;

    if (!r)
        return err_at(error, -ENOENT, "/id", "trial %d is unknown", id);
    if (r->settled)
        return err_at(error, -ENOENT, "/id", "trial %d was already told", id);
    rc = check_outcome(outcome, error);
    if (rc == 0 && outcome->status == SE_OK && search->table->log_watts)
        rc = positive(outcome->tokens_per_joule, "/tokens_per_joule", error);
    if (rc < 0)
        return rc;
    assert(search->outstanding > 0);
    r->settled = true;
    r->outcome = bounded(outcome);
    search->outstanding--;
    if (outcome->status == SE_DISCARD) {
        reopen(search, r);
        return 0;
    }
    search->settled++;
    search->succeeded += se_record_counts(r);
    se_learn(search, r->index, r->fidelity, outcome);
    if (worth_updating(search))
        for (int q = 0; q < SE_QUANTITIES; q++)
            se_surrogate_update(&search->surrogate[q]);
    return 0;
}

static const char *const tell_keys[] = {"op",
                                        "id",
                                        "status",
                                        "tokens_per_s",
                                        "tokens_per_s_se",
                                        "peak_memory_bytes",
                                        "tokens_per_s_max",
                                        "tokens_per_joule",
                                        NULL};

int se_tell_json(struct se_search *search, const json_t *tell, struct err *error)
{
    struct se_outcome o;
    int id = 0, r;

    if ((r = jx_keys(tell, tell_keys, error)) < 0 || (r = jx_need(tell, "id", error)) < 0 ||
        (r = jx_get_int(&id, tell, "id", 1, INT_MAX, error)) < 0 ||
        (r = se_outcome_parse(&o, tell, error)) < 0)
        return r;
    return se_tell(search, id, &o, error);
}
