/*
 * Asking; learn.c has what is told.
 *
 * An ask conditions the surrogates on fantasies of the outstanding trials (each at its own mean:
 * the kriging believer of Ginsbourger et al. 2010), maximizes the acquisition over all layouts, and
 * takes the fantasies back. With fidelities it then chooses the size of the trial, too
 * (fidelity.h).
 */
#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "search/fidelity.h"
#include "search/num.h"
#include "search/state.h"

#include <assert.h>

/* Widening of the posteriors while the search stalls. */
static const double WIDEN_STEP = 0.1;
static const int WIDEN_AFTER = 3, WIDEN_UPTO = 20;
/* Every so many trials the prior-free model chooses alone. */
static const int SCEPTIC_EVERY = 2;
/* Median error of log throughput from which on a prior errs. */
static const double PRIOR_ERR = 0.1;
/* Below this chance of running no layout is worth a trial. */
static const double HARDLY_FITS = 1e-3;
/* With fidelities: the best layout so far is measured at full size when the smaller trials since
 * the last full one have cost CONFIRM_SHARE of that; after SMALL_SHARE the next one is full. */
static const double CONFIRM_SHARE = 0.5, SMALL_SHARE = 1.0;
/* Share of a budget of time from which on only what the end needs is run. */
static const double CLOSING = 0.8;

/* ---- handing out --------------------------------------------------------- */

/* Log of tokens/s less that of the objective's value, of every layout; NULL: they are the same. */
static const float *unit_of(const struct se_search *search)
{
    switch (search->spec.objective) {
    case PL_TOKENS_PER_JOULE:
        return search->table->log_watts;
    case PL_TOKENS_PER_COST:
        return search->table->log_price;
    case PL_TOKENS_PER_S_PER_DEVICE:
        return search->table->log_devices;
    default:
        return NULL;
    }
}

static void setup_acquire(struct se_acquire *ret, const struct se_search *search)
{
    *ret = (struct se_acquire){
        .table = search->table,
        .surrogate = {&search->surrogate[SE_THROUGHPUT], &search->surrogate[SE_MEMORY]},
        .crash = &search->crash,
        .closed = search->closed,
        .step_log_tokens =
            log((double)search->spec.workload.global_batch * search->spec.workload.seq) -
            se_watts_error(search),
        .log_unit = unit_of(search),
        .widen = 1.0,
        .draw = rng_mix(search->spec.seed),
        .steps = pl_trial_steps_expected(&search->spec.limits),
        .start_s = search->spec.trial_start_s,
        .hot = search->hot,
        .nhot = search->nhot,
    };
}

static void open_record(struct se_search *search, int id, const struct se_run *run, size_t index,
                        int repeat_of)
{
    struct se_record r = {.id = id,
                          .index = index,
                          .repeat_of = repeat_of,
                          .fidelity = run->fidelity,
                          .shift = run->shift[SE_THROUGHPUT]};

    assert(index < search->table->n && !se_record_find(search, id));
    if (search->spec.nfidelities > 0) {
        struct se_acquire a;
        struct se_candidate c;

        setup_acquire(&a, search);
        se_acquire_one(&c, &a, index);
        r.device_s = se_run_cost(&a, run, c.mean[SE_THROUGHPUT]);
    }
    MEM_GROW(search->record, search->nrecords, search->cap);
    search->record[search->nrecords++] = r;
    search->outstanding++;
    search->repeats += repeat_of != 0;
    search->closed[index] = 1;
    if (search->next_id <= id)
        search->next_id = id + 1;
}

int se_restore(struct se_search *search, int id, const struct pl_layout *layout, int repeat_of,
               struct err *error)
{
    return se_restore_at(search, id, layout, repeat_of, 0, error);
}

int se_restore_at(struct se_search *search, int id, const struct pl_layout *layout, int repeat_of,
                  int fidelity, struct err *error)
{
    long index = se_table_find(search->table, layout);
    struct se_run run;

    if (id < 1 || se_record_find(search, id))
        return err_at(error, -EINVAL, "/id", "trial id %d is not new", id);
    if (index < 0)
        return err_at(error, -EINVAL, "/layout", "the layout is not one of the %zu of the space",
                      search->table->n);
    if (repeat_of != 0 && !se_record_find(search, repeat_of))
        return err_at(error, -EINVAL, "/repeat_of", "trial %d is unknown", repeat_of);
    if (fidelity < 0 || fidelity > search->spec.nfidelities ||
        !se_run_of(&run, search, (size_t)index, fidelity))
        return err_at(error, -EINVAL, "/fidelity", "the layout has no trial at fidelity %d of %d",
                      fidelity, search->spec.nfidelities);
    open_record(search, id, &run, (size_t)index, repeat_of);
    return 0;
}

/* ---- asking -------------------------------------------------------------- */

/* What the likeliest hypothesis expects of memory: some of them exclude each other, so that between
 * them lies what none of them expects. */
static double likely_memory(const struct se_search *search, size_t index)
{
    const struct se_surrogate *b = &search->surrogate[SE_MEMORY];
    const struct se_hyp *likely = &b->hyp[0];
    double mean, var;

    for (int h = 1; h < b->nhyps; h++)
        if (b->hyp[h].weight > likely->weight)
            likely = &b->hyp[h];
    se_hyp_predict(&mean, &var, b, likely, search->table, index);
    return mean;
}

static void predict(struct se_predicted *ret, const struct se_search *search,
                    const struct se_acquire *acquire, const struct se_candidate *candidate)
{
    double unit = se_unit(search, candidate->index);

    ret->tokens_per_s =
        exp(se_acquire_quantile(acquire, candidate->index, SE_THROUGHPUT, 0.5) + unit);
    ret->lo = exp(se_acquire_quantile(acquire, candidate->index, SE_THROUGHPUT, 0.025) + unit);
    ret->hi = exp(se_acquire_quantile(acquire, candidate->index, SE_THROUGHPUT, 0.975) + unit);
    ret->memory_bytes = exp(likely_memory(search, candidate->index) +
                            se_table_capacity(search->table, &search->spec, candidate->index));
    ret->p_fits = candidate->p_fits;
}

int se_predict(struct se_predicted *ret, const struct se_search *search,
               const struct pl_layout *layout, struct err *error)
{
    struct se_acquire a;
    struct se_candidate c;
    long index = se_table_find(search->table, layout);

    if (index < 0)
        return err_at(error, -EINVAL, "/layout", "the layout is not one of the %zu of the space",
                      search->table->n);
    setup_acquire(&a, search);
    se_acquire_one(&c, &a, (size_t)index);
    predict(ret, search, &a, &c);
    return 0;
}

bool se_inferred(struct se_predicted *ret, const struct se_search *search, int id)
{
    const struct se_record *r = se_record_find(search, id);
    struct se_acquire a;
    struct se_candidate c;

    if (!r || !r->settled || r->fidelity == 0 || r->outcome.status != SE_OK)
        return false;
    setup_acquire(&a, search);
    se_acquire_one(&c, &a, r->index);
    predict(ret, search, &a, &c);
    return true;
}

static enum se_answer hand_out_at(struct se_trial *ret, struct se_search *search, size_t index,
                                  int repeat_of, int fidelity)
{
    struct se_acquire a;
    struct se_candidate c;
    struct se_run run;

    if (!se_run_of(&run, search, index, fidelity))
        assert(!"only runs that exist are chosen");
    ret->id = search->next_id;
    ret->repeat_of = repeat_of;
    ret->fidelity = fidelity;
    se_table_layout(&ret->layout, search->table, index);
    setup_acquire(&a, search);
    se_acquire_one(&c, &a, index);
    predict(&ret->predicted, search, &a, &c);
    open_record(search, ret->id, &run, index, repeat_of);
    return SE_TRIAL;
}

static enum se_answer hand_out(struct se_trial *ret, struct se_search *search, size_t index,
                               int repeat_of)
{
    assert(!search->closed[index] || repeat_of != 0);
    return hand_out_at(ret, search, index, repeat_of, 0);
}

static enum se_answer finish(struct se_search *search, const char *reason)
{
    if (search->outstanding > 0)
        return SE_WAIT;
    search->done = reason;
    return SE_DONE;
}

/* (n): what may not be proposed now, closed or on a cluster to avoid; NULL: what is closed. */
static uint8_t *shut_now(const struct se_search *search)
{
    uint8_t *shut;

    if (search->avoided == 0 || search->outstanding == 0)
        return NULL;
    shut = mem_alloc(search->table->n);
    for (size_t i = 0; i < search->table->n; i++)
        shut[i] = search->closed[i] || se_avoids(search, i);
    return shut;
}

static enum se_answer ask_control(struct se_trial *ret, struct se_search *search)
{
    uint8_t AUTO_FREE *shut = shut_now(search);
    const uint8_t *closed = shut ? shut : search->closed;
    size_t open = 0, pick;

    for (size_t i = 0; i < search->table->n; i++)
        open += !closed[i];
    if (open == 0)
        return finish(search, "exhausted");
    pick = search->spec.method == SE_RANDOM ? (size_t)rng_below(&search->rng, open) : 0;
    for (size_t i = 0; i < search->table->n; i++) {
        if (closed[i] || pick-- > 0)
            continue;
        snprintf(ret->why, sizeof(ret->why),
                 search->spec.method == SE_RANDOM ? "random choice" : "next in the grid");
        return hand_out(ret, search, i, 0);
    }
    return finish(search, "exhausted");
}

/* Trials that are kept for separating the winner at the end of a budget. */
static int reserve(const struct se_search *search)
{
    int r = search->spec.budget.trials / 8;

    return r > 4 ? 4 : r;
}

static bool repeats_left(const struct se_search *search)
{
    int most = search->settled / 4;

    return search->repeats < (most < 2 ? 2 : most);
}

/* Measure a leader again if the winner is not separated; SE_DONE if it is. */
static enum se_answer ask_repeat(struct se_trial *ret, struct se_search *search)
{
    struct se_leader *leader;
    size_t count = se_leaders(&leader, search);
    const struct se_leader *pick =
        repeats_left(search) ? se_unresolved(search, leader, count) : NULL;
    enum se_answer answer = SE_DONE;

    if (pick && search->outstanding > 0) {
        answer = SE_WAIT;
    } else if (pick) {
        answer = hand_out(ret, search, pick->index, pick->id);
        snprintf(ret->why, sizeof(ret->why),
                 "repeated: trials %d and %d do not differ by more than their errors", leader[0].id,
                 pick == &leader[0] ? leader[1].id : pick->id);
    }
    free(leader);
    return answer;
}

static void say_why(char *why, size_t size, const struct se_search *search,
                    const struct se_acquire *acquire, const struct se_candidate *candidate,
                    bool sceptic)
{
    double gain = expm1(candidate->mean[SE_THROUGHPUT] - acquire->incumbent),
           sd = sqrt(candidate->var[SE_THROUGHPUT]);
    double weight = se_surrogate_prior_mean_weight(&search->surrogate[SE_THROUGHPUT]);

    if (!acquire->improving)
        snprintf(why, size, "first trial: the best %s, P(fits) %.0f %%",
                 search->spec.use_prior ? "by the cost model" : "guess without a cost model",
                 100.0 * candidate->p_fits);
    else
        snprintf(why, size,
                 "expected %+.1f %% (+-%.1f) over the best so far, P(fits) %.0f %%; %s %.0f %%",
                 100.0 * gain, 196.0 * sd, 100.0 * candidate->p_fits,
                 sceptic ? "chosen by the prior-free model, weight of the prior-mean model"
                         : "weight of the prior-mean model",
                 100.0 * weight);
}

/* Trials since the best one improved by 1 %. */
static int stalled(const struct se_search *search)
{
    double best = -INFINITY;
    int stall = 0;

    for (int i = 0; i < search->nrecords; i++) {
        const struct se_record *r = &search->record[i];
        double y;

        if (!r->settled || r->repeat_of || r->outcome.status == SE_DISCARD)
            continue;
        stall += r->fidelity == 0;
        if (r->outcome.status != SE_OK)
            continue;
        y = se_log_measured(search, &r->outcome) - r->shift;
        if (y > best + SE_GAIN) {
            best = y;
            stall = 0;
        }
    }
    return stall;
}

/*
 * How much wider than fitted the posteriors are taken: by a tenth for each trial since the best one
 * improved, after the first few. Hyper-parameters at a single best fit are too sure of themselves,
 * and a run of proposals without the improvement that they predicted is evidence of it.
 */
static double widen(const struct se_search *search)
{
    return 1.0 + WIDEN_STEP * fmin(fmax(stalled(search) - WIDEN_AFTER, 0), WIDEN_UPTO);
}

static void set_weights(struct se_search *search, const double *weight)
{
    struct se_surrogate *b = &search->surrogate[SE_THROUGHPUT];

    for (int h = 0; h < b->nhyps; h++)
        b->hyp[h].weight = weight[h];
}

/* The median distance from zero of N values of a standard normal variable, and one standard error
 * of it: z + 1 / (4 phi(z) sqrt N), z the upper quartile. */
static double noise_median(int n)
{
    return SE_UPPER_QUARTILE + 0.7867 / sqrt(n);
}

/*
 * Does the prior, as corrected so far, err by more than analytic models do? Judged by the
 * leave-one-out errors of the prior-mean model. A constant that is off by any factor does not count
 * once it is learned, nor does a single outlier, nor the noise of measurements: an error of
 * standard deviation s with noise v shows as sqrt(s^2 + v^2), so each error is divided by what
 * PRIOR_ERR becomes with as much noise as so few trials may show by chance.
 */
static bool prior_errs(const struct se_surrogate *surrogate)
{
    const struct se_hyp *h = &surrogate->hyp[SE_PRIOR_MEAN];
    double AUTO_FREE *err = mem_alloc(((size_t)surrogate->nobs + 1) * sizeof(double));
    double AUTO_FREE *noise = mem_alloc(((size_t)surrogate->nobs + 1) * sizeof(double));
    int n;

    if (surrogate->informed > 0 && surrogate->hyp[surrogate->informed].weight > h->weight)
        h = &surrogate->hyp[surrogate->informed];
    n = se_own_residuals(err, noise, surrogate, h);
    for (int i = 0; i < n; i++)
        err[i] = fabs(err[i]) / hypot(PRIOR_ERR, noise_median(n) * sqrt(noise[i]));
    return n >= 3 && se_upper_median(err, n) > 1.0;
}

/*
 * A prior is tested only where it might be wrong, and a search that follows it does not go there.
 * So, while it errs, the prior-free model chooses every other trial alone. True if it does now;
 * KEPT are the weights to restore.
 */
static bool ask_sceptic(struct se_search *search, double *kept)
{
    static const double only_prior_free[SE_MAX_HYPS] = {[SE_PRIOR_FREE] = 1.0};
    struct se_surrogate *b = &search->surrogate[SE_THROUGHPUT];

    if (b->nhyps < 2 || search->settled % SCEPTIC_EVERY != SCEPTIC_EVERY - 1 || !prior_errs(b))
        return false;
    for (int h = 0; h < b->nhyps; h++)
        kept[h] = b->hyp[h].weight;
    set_weights(search, only_prior_free);
    return true;
}

static int unsettled(const struct se_search *search)
{
    int n = 0;

    for (int i = 0; i < search->nrecords; i++)
        n += !search->record[i].settled;
    return n;
}

static void fantasize(struct se_search *search)
{
    assert(unsettled(search) == search->outstanding);
    for (int i = 0; i < search->nrecords; i++) {
        const struct se_record *r = &search->record[i];
        struct se_run run;

        if (r->settled || !se_run_of(&run, search, r->index, r->fidelity))
            continue;
        se_surrogate_fantasize(&search->surrogate[SE_THROUGHPUT], &run.point[SE_THROUGHPUT], 0.0);
        se_surrogate_fantasize(&search->surrogate[SE_MEMORY], &run.point[SE_MEMORY],
                               SE_SHARPNESS * SE_SHARPNESS);
    }
}

/*
 * What is to be improved on while other trials run: the best of what was measured and of what the
 * trials that run are expected to measure, if they fit. Without it a batch crowds at the layouts
 * of the highest mean, which its first trial tells most of; before any success, at the top of the
 * prior's list.
 */
static void count_pending(struct se_acquire *acquire, const struct se_search *search)
{
    for (int i = 0; i < search->nrecords; i++) {
        const struct se_record *r = &search->record[i];
        struct se_candidate c;

        if (r->settled || r->fidelity > 0)
            continue;
        se_acquire_one(&c, acquire, r->index);
        if (c.p_fits < 0.5 || (acquire->improving && c.mean[SE_THROUGHPUT] <= acquire->incumbent))
            continue;
        acquire->improving = true;
        acquire->incumbent = c.mean[SE_THROUGHPUT];
    }
}

/* So little of the budget is left that the winner must be measured at full size now. */
static bool closing(const struct se_search *search)
{
    int budget = search->spec.budget.trials, used = search->settled + search->outstanding;

    return search->spent >= CLOSING || (budget > 0 && budget - used <= reserve(search) + 1);
}

/* Is there nothing to gain from CHANCE of running and the expected regret? */
static bool converged(const struct se_search *search, double chance)
{
    return chance <= HARDLY_FITS ||
           (search->regret >= 0.0 && search->regret < search->spec.regret_share &&
            stalled(search) >= se_patience(search));
}

/* With fidelities: CHOICE, unless the best layout so far, INCUMBENT, must run at full size. */
static enum se_answer ask_choice(struct se_trial *ret, struct se_search *search,
                                 const struct se_choice *choice, const struct se_acquire *acquire,
                                 size_t incumbent, size_t open)
{
    bool ending = !choice->any || converged(search, choice->candidate.p_fits);
    enum se_answer answer;

    if (acquire->improving && se_unconfirmed(search, incumbent) && !se_avoids(search, incumbent) &&
        (ending || closing(search) ||
         se_small_share(search, acquire, incumbent) >= CONFIRM_SHARE)) {
        snprintf(ret->why, sizeof(ret->why),
                 "measured at full size: the best layout by smaller trials");
        return hand_out_at(ret, search, incumbent, 0, 0);
    }
    if (!ending)
        return hand_out_at(ret, search, choice->candidate.index, 0, choice->fidelity);
    answer = ask_repeat(ret, search);
    return answer == SE_DONE ? finish(search, open == 0 ? "exhausted" : "converged") : answer;
}

static enum se_answer ask_bayes(struct se_trial *ret, struct se_search *search)
{
    struct se_acquire a, among;
    struct se_found found;
    struct se_choice choice = {0};
    double weights[SE_MAX_HYPS];
    bool sceptic, sizes = search->spec.nfidelities > 0;
    uint8_t AUTO_FREE *shut = shut_now(search);
    size_t incumbent = 0, pick;
    enum se_answer answer;
    double chance;

    setup_acquire(&a, search);
    a.closed = shut ? shut : a.closed;
    a.widen = widen(search);
    a.improving = sizes ? se_seen_best(&incumbent, &a.incumbent, search, &a)
                        : se_incumbent(&incumbent, &a.incumbent, search);
    fantasize(search);
    sceptic = a.improving && ask_sceptic(search, weights);
    among = a;
    if (!sizes)
        count_pending(&among, search);
    se_acquire(&found, &among, SE_HOT);
    if (sizes)
        se_choose(&choice, search, &a, &found,
                  a.improving && se_small_share(search, &a, incumbent) >= SMALL_SHARE);
    search->nhot = 0;
    for (size_t i = 0; i < found.count && search->nhot < SE_HOT; i++)
        search->hot[search->nhot++] = (uint32_t)found.candidate[i].index;
    if (sceptic)
        set_weights(search, weights);
    search->exact = found.count;
    search->proved = found.proved;
    search->regret =
        a.improving ? se_expected_regret(search, found.candidate, found.count, incumbent, a.widen)
                    : -1.0;
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_surrogate_drop_fantasies(&search->surrogate[q]);
    pick = found.count > 0 ? found.candidate[0].index : 0;
    chance = found.count > 0 ? found.candidate[0].p_fits : 0.0;
    if (found.count > 0)
        say_why(ret->why, sizeof(ret->why), search, &a,
                choice.any ? &choice.candidate : &found.candidate[0], sceptic);
    free(found.candidate);
    if (sizes)
        return ask_choice(ret, search, &choice, &a, incumbent, found.open);
    if (!converged(search, chance))
        return hand_out(ret, search, pick, 0);
    answer = ask_repeat(ret, search);
    return answer == SE_DONE ? finish(search, found.open == 0 ? "exhausted" : "converged") : answer;
}

/* The baseline, if it has not been handed out. */
static bool baseline_due(size_t *ret_index, const struct se_search *search)
{
    long at = search->spec.has_baseline && search->nrecords == 0
                  ? se_table_find(search->table, &search->spec.baseline)
                  : -1;

    *ret_index = at < 0 ? 0 : (size_t)at;
    return at >= 0;
}

enum se_answer se_ask(struct se_trial *ret, struct se_search *search)
{
    int budget = search->spec.budget.trials, used = search->settled + search->outstanding;
    size_t index;

    if (search->done[0])
        return SE_DONE;
    memset(ret, 0, sizeof(*ret));
    if ((budget > 0 && used >= budget) || search->spent >= 1.0)
        return finish(search, "budget");
    if (search->outstanding >= search->spec.parallel)
        return SE_WAIT;
    if (baseline_due(&index, search)) {
        snprintf(ret->why, sizeof(ret->why), "the baseline");
        return hand_out(ret, search, index, 0);
    }
    if (search->spec.method != SE_BAYES)
        return ask_control(ret, search);
    if (!search->spec.async_refit && se_refit_due(search))
        se_refit_adopt(search, se_refit_new(search));
    if (budget > 0 && budget - used <= reserve(search) && search->succeeded > 1) {
        enum se_answer again = ask_repeat(ret, search);

        if (again != SE_DONE)
            return again;
    }
    return ask_bayes(ret, search);
}
