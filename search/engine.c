/*
 * Asking and telling.
 *
 * An ask conditions the beliefs on fantasies of the outstanding trials (each at its own mean: the
 * kriging believer of Ginsbourger et al. 2010), maximises the acquisition over all layouts, and
 * takes the fantasies back. A tell turns the outcome into observations: what it says of throughput,
 * of memory (a bound where there is no figure), and of crashing.
 */
#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "search/num.h"
#include "search/state.h"
#include "search/transfer.h"

const char *const se_status_names[] = {"ok",      "oom",     "infeasible", "censored",
                                       "crashed", "discard", NULL};

/* A bound on memory or throughput is as sharp as one allocation, or one step, of a trial. */
static const double SHARPNESS = 0.01;
/* Widening of beliefs while the search stalls. */
static const double WIDEN_STEP = 0.1;
static const int WIDEN_AFTER = 3, WIDEN_UPTO = 20;
/* Trials in which the doubting hypothesis chooses alone. */
static const int SCEPTIC_EVERY = 2;
/* Median error of log throughput from which on a prior errs. */
static const double PRIOR_ERR = 0.1;
/* Trials without improvement before a campaign may end: a small regret is expected by a belief that
 * may be wrong, and such trials are what shows it. */
static const int PATIENCE = 5;
/* Below this chance of running no layout is worth a trial. */
static const double HARDLY_FITS = 1e-3;

/* ---- life ---------------------------------------------------------------------------------------
 */

struct se_search *se_search_free(struct se_search *s)
{
    if (!s)
        return NULL;
    se_table_free(s->table);
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_belief_done(&s->belief[q]);
    se_crash_done(&s->crash);
    free(s->closed);
    free(s->record);
    free(s);
    return NULL;
}

int se_search_new_over(struct se_search **ret, const struct se_spec *spec,
                       const struct pl_layout *layouts, size_t n, struct err *e)
{
    AUTO(se_search) *s = mem_alloc(sizeof(*s));
    int r;

    if (n > SE_MAX_LAYOUTS)
        return err_at(e, -E2BIG, "/space",
                      "%zu legal layouts are more than the %d that a search takes", n,
                      SE_MAX_LAYOUTS);
    se_num_setup();
    s->spec = *spec;
    s->spec.space = NULL;
    s->spec.source = NULL;
    s->spec.nsources = 0;
    s->spec.patience = NULL;
    s->done = "";
    s->next_id = 1;
    s->regret = -1.0;
    s->log_capacity = se_log_capacity(spec);
    rng_seed(&s->rng, spec->seed);
    r = se_table_new(&s->table, layouts, n, e);
    if (r < 0)
        return r;
    r = se_table_set_prior(s->table, spec, e);
    if (r < 0)
        return r;
    s->closed = mem_alloc(n);
    se_belief_init(&s->belief[SE_THROUGHPUT], s->table, SE_THROUGHPUT, spec->use_prior);
    se_belief_init(&s->belief[SE_MEMORY], s->table, SE_MEMORY, spec->use_memory_prior);
    se_crash_init(&s->crash, s->table);
    r = se_transfer(s, spec, e);
    if (r < 0)
        return r;
    *ret = TAKE(s);
    return 0;
}

size_t se_legal(const struct se_search *s)
{
    return s->table->n;
}

int se_settled(const struct se_search *s)
{
    return s->settled;
}

const char *se_done_reason(const struct se_search *s)
{
    return s->done;
}

void se_spent(struct se_search *s, double share)
{
    s->spent = share;
}

struct se_record *se_record_find(const struct se_search *s, int id)
{
    for (int i = s->nrecords - 1; i >= 0; i--)
        if (s->record[i].id == id)
            return &s->record[i];
    return NULL;
}

double se_unit(const struct se_search *s, size_t i)
{
    struct pl_layout l;

    if (s->spec.objective != SE_TOKENS_PER_S_PER_DEVICE)
        return 0.0;
    se_table_layout(s->table, i, &l);
    return log(l.world);
}

/* ---- handing out --------------------------------------------------------------------------------
 */

static void open_record(struct se_search *s, int id, size_t index, int repeat_of)
{
    MEM_GROW(s->record, s->nrecords, s->cap);
    s->record[s->nrecords++] = (struct se_record){.id = id, .index = index, .repeat_of = repeat_of};
    s->outstanding++;
    s->repeats += repeat_of != 0;
    s->closed[index] = 1;
    if (s->next_id <= id)
        s->next_id = id + 1;
}

int se_restore(struct se_search *s, int id, const struct pl_layout *l, int repeat_of, struct err *e)
{
    long index = se_table_find(s->table, l);

    if (id < 1 || se_record_find(s, id))
        return err_at(e, -EINVAL, "/id", "trial %d is not a new id", id);
    if (index < 0)
        return err_at(e, -EINVAL, "/layout", "the layout is not one of the %zu of the space",
                      s->table->n);
    if (repeat_of != 0 && !se_record_find(s, repeat_of))
        return err_at(e, -EINVAL, "/repeat_of", "trial %d is unknown", repeat_of);
    open_record(s, id, (size_t)index, repeat_of);
    return 0;
}

/* ---- telling ------------------------------------------------------------------------------------
 */

static int positive(double v, const char *pointer, struct err *e)
{
    if (!isfinite(v) || v <= 0.0)
        return err_at(e, -EINVAL, pointer, "%g is not a finite number above 0", v);
    return 0;
}

static int check_outcome(const struct se_outcome *o, struct err *e)
{
    int r = 0;

    if (o->status < SE_OK || o->status > SE_DISCARD)
        return err_at(e, -EINVAL, "/status", "%d is not a status", (int)o->status);
    if (o->status == SE_CENSORED)
        return positive(o->tokens_per_s_max, "/tokens_per_s_max", e);
    if (o->status != SE_OK)
        return 0;
    r = positive(o->tokens_per_s, "/tokens_per_s", e);
    if (r == 0 && o->tokens_per_s_se != 0.0)
        r = positive(o->tokens_per_s_se, "/tokens_per_s_se", e);
    if (r == 0 && o->peak_memory_bytes != 0.0)
        r = positive(o->peak_memory_bytes, "/peak_memory_bytes", e);
    return r;
}

static void observe(struct se_search *s, enum se_quantity q, size_t index, enum se_seen seen,
                    double value, double var)
{
    struct se_obs o;

    se_belief_place(&s->belief[q], s->table, index, &o);
    o.seen = seen;
    o.value = value;
    o.var = var;
    se_belief_add(&s->belief[q], &o);
}

/* A trainer may report any number. None so large or small that its exponential leaves the doubles,
 * and no error above the value itself, which says nothing already. */
static struct se_outcome bounded(const struct se_outcome *o)
{
    const double least = 1e-30, most = 1e30;
    struct se_outcome b = *o;

    b.tokens_per_s = fmin(fmax(o->tokens_per_s, least), most);
    b.tokens_per_s_se = fmin(o->tokens_per_s_se, b.tokens_per_s);
    b.tokens_per_s_max = fmin(fmax(o->tokens_per_s_max, least), most);
    if (o->peak_memory_bytes > 0.0)
        b.peak_memory_bytes = fmin(fmax(o->peak_memory_bytes, least), most);
    return b;
}

static void observe_throughput(struct se_search *s, size_t index, const struct se_outcome *o)
{
    double se = o->tokens_per_s_se / o->tokens_per_s;

    if (o->status == SE_OK)
        observe(s, SE_THROUGHPUT, index, SE_EXACT, log(o->tokens_per_s) - se_unit(s, index),
                se * se);
    else if (o->status == SE_CENSORED)
        observe(s, SE_THROUGHPUT, index, SE_BELOW, log(o->tokens_per_s_max) - se_unit(s, index),
                SHARPNESS * SHARPNESS);
}

/* A device runs out at its whole capacity, which is above what the headroom leaves. */
static void observe_memory(struct se_search *s, size_t index, const struct se_outcome *o)
{
    double full = -log1p(-s->spec.memory_headroom), var = SHARPNESS * SHARPNESS;

    if (o->status == SE_OK && o->peak_memory_bytes > 0.0)
        observe(s, SE_MEMORY, index, SE_EXACT, log(o->peak_memory_bytes) - s->log_capacity, var);
    else if (o->status == SE_OK || o->status == SE_CENSORED)
        observe(s, SE_MEMORY, index, SE_BELOW, full, var);
    else if (o->status == SE_OOM)
        observe(s, SE_MEMORY, index, SE_ABOVE, full, var);
}

void se_learn(struct se_search *s, size_t index, const struct se_outcome *o)
{
    struct se_outcome b = bounded(o);

    observe_throughput(s, index, &b);
    observe_memory(s, index, &b);
    if (o->status != SE_OOM)
        se_crash_add(&s->crash, s->table, index, o->status == SE_OK || o->status == SE_CENSORED);
}

/* The control methods do not choose by belief, whose time grows with the cube of the trials: after
 * the first hundred it follows when there are twice as many. */
static bool worth_updating(const struct se_search *s)
{
    return s->spec.method == SE_BAYES || s->settled < 100 || (s->settled & (s->settled - 1)) == 0;
}

int se_tell(struct se_search *s, int id, const struct se_outcome *o, struct err *e)
{
    struct se_record *r = se_record_find(s, id);
    int rc;

    if (!r)
        return err_at(e, -ENOENT, "/id", "trial %d is unknown", id);
    if (r->settled)
        return err_at(e, -ENOENT, "/id", "trial %d was told already", id);
    rc = check_outcome(o, e);
    if (rc < 0)
        return rc;
    r->settled = true;
    r->outcome = bounded(o);
    s->outstanding--;
    if (o->status == SE_DISCARD) {
        if (r->repeat_of == 0)
            s->closed[r->index] = 0;
        return 0;
    }
    s->settled++;
    s->succeeded += o->status == SE_OK;
    se_learn(s, r->index, o);
    if (worth_updating(s))
        for (int q = 0; q < SE_QUANTITIES; q++)
            se_belief_update(&s->belief[q]);
    return 0;
}

/* ---- asking -------------------------------------------------------------------------------------
 */

void se_acquire_setup(const struct se_search *s, struct se_acquire *a)
{
    *a = (struct se_acquire){
        .table = s->table,
        .belief = {&s->belief[SE_THROUGHPUT], &s->belief[SE_MEMORY]},
        .crash = &s->crash,
        .closed = s->closed,
        .step_log_tokens = log((double)s->spec.workload.global_batch * s->spec.workload.seq),
        .per_device = s->spec.objective == SE_TOKENS_PER_S_PER_DEVICE,
        .widen = 1.0,
        .steps = pl_trial_steps_expected(&s->spec.limits),
        .start_s = s->spec.trial_start_s,
        .hot = s->hot,
        .nhot = s->nhot,
    };
}

/* What the likeliest hypothesis expects of memory: some of them exclude each other, so that between
 * them lies what none of them expects. */
static double likely_memory(const struct se_search *s, size_t index)
{
    const struct se_belief *b = &s->belief[SE_MEMORY];
    const struct se_hyp *likely = &b->hyp[0];
    double mean, var;

    for (int h = 1; h < b->nhyps; h++)
        if (b->hyp[h].weight > likely->weight)
            likely = &b->hyp[h];
    se_hyp_predict(b, likely, s->table, index, &mean, &var);
    return mean;
}

static void predict(const struct se_search *s, const struct se_acquire *a,
                    const struct se_choice *c, struct se_predicted *ret)
{
    double unit = se_unit(s, c->index);

    ret->tokens_per_s = exp(se_acquire_quantile(a, c->index, SE_THROUGHPUT, 0.5) + unit);
    ret->lo = exp(se_acquire_quantile(a, c->index, SE_THROUGHPUT, 0.025) + unit);
    ret->hi = exp(se_acquire_quantile(a, c->index, SE_THROUGHPUT, 0.975) + unit);
    ret->memory_bytes = exp(likely_memory(s, c->index) + s->log_capacity);
    ret->p_fits = c->p_fits;
}

int se_predict(const struct se_search *s, const struct pl_layout *l, struct se_predicted *ret,
               struct err *e)
{
    struct se_acquire a;
    struct se_choice c;
    long index = se_table_find(s->table, l);

    if (index < 0)
        return err_at(e, -EINVAL, "/layout", "the layout is not one of the %zu of the space",
                      s->table->n);
    se_acquire_setup(s, &a);
    se_acquire_one(&a, (size_t)index, &c);
    predict(s, &a, &c, ret);
    return 0;
}

static enum se_answer hand_out(struct se_search *s, size_t index, int repeat_of,
                               struct se_trial *ret)
{
    struct se_acquire a;
    struct se_choice c;

    ret->id = s->next_id;
    ret->repeat_of = repeat_of;
    se_table_layout(s->table, index, &ret->layout);
    se_acquire_setup(s, &a);
    se_acquire_one(&a, index, &c);
    predict(s, &a, &c, &ret->predicted);
    open_record(s, ret->id, index, repeat_of);
    return SE_TRIAL;
}

static enum se_answer finish(struct se_search *s, const char *reason)
{
    if (s->outstanding > 0)
        return SE_WAIT;
    s->done = reason;
    return SE_DONE;
}

static enum se_answer ask_control(struct se_search *s, struct se_trial *ret)
{
    size_t open = 0, pick;

    for (size_t i = 0; i < s->table->n; i++)
        open += !s->closed[i];
    if (open == 0)
        return finish(s, "exhausted");
    pick = s->spec.method == SE_RANDOM ? (size_t)rng_below(&s->rng, open) : 0;
    for (size_t i = 0; i < s->table->n; i++) {
        if (s->closed[i] || pick-- > 0)
            continue;
        snprintf(ret->why, sizeof(ret->why),
                 s->spec.method == SE_RANDOM ? "drawn at random" : "next of the grid");
        return hand_out(s, i, 0, ret);
    }
    return finish(s, "exhausted");
}

/* Trials that are kept for separating the winner at the end of a budget. */
static int reserve(const struct se_search *s)
{
    int r = s->spec.budget.trials / 8;

    return r > 4 ? 4 : r;
}

static bool repeats_left(const struct se_search *s)
{
    int most = s->settled / 4;

    return s->repeats < (most < 2 ? 2 : most);
}

/* Measure a leader again if the winner is not separated; SE_DONE if it is. */
static enum se_answer ask_repeat(struct se_search *s, struct se_trial *ret)
{
    struct se_leader *leader;
    size_t count = se_leaders(s, &leader);
    const struct se_leader *pick = repeats_left(s) ? se_unresolved(s, leader, count) : NULL;
    enum se_answer answer = SE_DONE;

    if (pick && s->outstanding > 0) {
        answer = SE_WAIT;
    } else if (pick) {
        answer = hand_out(s, pick->index, pick->id, ret);
        snprintf(ret->why, sizeof(ret->why),
                 "tried again: trials %d and %d are within their errors of each other",
                 leader[0].id, pick == &leader[0] ? leader[1].id : pick->id);
    }
    free(leader);
    return answer;
}

static void say_why(const struct se_search *s, const struct se_acquire *a,
                    const struct se_choice *c, bool sceptic, char *why, size_t size)
{
    double gain = expm1(c->mean[SE_THROUGHPUT] - a->incumbent), sd = sqrt(c->var[SE_THROUGHPUT]);
    double trust = se_belief_trust(&s->belief[SE_THROUGHPUT]);

    if (!a->improving)
        snprintf(why, size, "nothing has run yet: the best %s, likely to fit (%.0f %%)",
                 s->spec.use_prior ? "by the cost model" : "guess without a prior",
                 100.0 * c->p_fits);
    else
        snprintf(why, size,
                 "expected %+.1f %% (+-%.1f) against the best so far, fits with %.0f %%; %s the "
                 "model %.0f %%",
                 100.0 * gain, 196.0 * sd, 100.0 * c->p_fits,
                 sceptic ? "chosen by doubt alone, trust in" : "trust in", 100.0 * trust);
}

/* Trials since the best one improved by 1 %. */
static int stalled(const struct se_search *s)
{
    double best = -INFINITY;
    int stall = 0;

    for (int i = 0; i < s->nrecords; i++) {
        const struct se_record *r = &s->record[i];
        double y;

        if (!r->settled || r->repeat_of || r->outcome.status == SE_DISCARD)
            continue;
        stall++;
        if (r->outcome.status != SE_OK)
            continue;
        y = log(r->outcome.tokens_per_s) - se_unit(s, r->index);
        if (y > best + 0.01) {
            best = y;
            stall = 0;
        }
    }
    return stall;
}

/*
 * How much wider than fitted the beliefs are taken: by a tenth for each trial since the best one
 * improved, after the first few. Hyper-parameters at a single best fit are too sure of themselves,
 * and a run of proposals that promised an improvement and did not deliver is evidence of it.
 */
static double widen(const struct se_search *s)
{
    return 1.0 + WIDEN_STEP * fmin(fmax(stalled(s) - WIDEN_AFTER, 0), WIDEN_UPTO);
}

static void set_weights(struct se_search *s, const double *weight)
{
    struct se_belief *b = &s->belief[SE_THROUGHPUT];

    for (int h = 0; h < b->nhyps; h++)
        b->hyp[h].weight = weight[h];
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return a < b ? -1 : a > b;
}

/* The median distance from zero of N values of a standard normal variable, and one standard error
 * of it: z + 1 / (4 phi(z) sqrt N), z the upper quartile. */
static double noise_median(int n)
{
    return 0.6744897501960817 + 0.7867 / sqrt(n);
}

/*
 * Does the prior err by more than analytic models do, with what was learned of it put right? Judged
 * by what the trusting hypothesis says of each measured layout without it: a constant that is off
 * by any factor is no reason to doubt once it is known, nor is one layout that is unlike the
 * others, nor what the measurements' own noise explains: an error of standard deviation s beside
 * noise of v is seen as sqrt(s^2 + v^2), so each is divided by what PRIOR_ERR becomes beside as
 * much noise as so few trials may show by chance.
 */
static bool prior_errs(const struct se_belief *b)
{
    const struct se_hyp *h = &b->hyp[SE_TRUSTING];
    int n = 0, at = 0;

    if (b->informed > 0 && b->hyp[b->informed].weight > h->weight)
        h = &b->hyp[b->informed];

    double AUTO_FREE *all = mem_alloc(((size_t)h->gp.n + 1) * sizeof(double));
    double AUTO_FREE *noise = mem_alloc(((size_t)h->gp.n + 1) * sizeof(double));
    double AUTO_FREE *err = mem_alloc(((size_t)h->gp.n + 1) * sizeof(double));

    se_gp_residuals(&h->gp, all, noise);
    /* A GP has the last observation first. */
    for (int i = b->nobs - 1; i >= 0; i--) {
        const struct se_obs *o = &b->obs[i];

        if (o->foreign && !h->informed)
            continue;
        if (o->seen == SE_EXACT && !o->foreign) {
            all[n] = all[at];
            noise[n++] = noise[at];
        }
        at++;
    }
    for (int i = 0; i < n; i++)
        err[i] = fabs(all[i]) / hypot(PRIOR_ERR, noise_median(n) * sqrt(noise[i]));
    qsort(err, (size_t)n, sizeof(double), by_value);
    return n >= 3 && err[n / 2] > 1.0;
}

/*
 * A prior is tested only where it might be wrong, and a search that follows it does not go there.
 * So, while it errs but is still believed, every other trial is chosen by the hypothesis that
 * doubts it alone. True if so; KEPT are the weights to put back.
 */
static bool ask_sceptic(struct se_search *s, double *kept)
{
    static const double only_doubt[SE_MAX_HYPS] = {[SE_DOUBTING] = 1.0};
    struct se_belief *b = &s->belief[SE_THROUGHPUT];

    if (b->nhyps < 2 || s->settled % SCEPTIC_EVERY != SCEPTIC_EVERY - 1 || !prior_errs(b))
        return false;
    for (int h = 0; h < b->nhyps; h++)
        kept[h] = b->hyp[h].weight;
    set_weights(s, only_doubt);
    return true;
}

static enum se_answer ask_bayes(struct se_search *s, struct se_trial *ret)
{
    struct se_acquire a;
    struct se_found found;
    double weights[SE_MAX_HYPS];
    bool sceptic;
    size_t incumbent = 0, pick;
    enum se_answer answer;
    double chance;

    se_acquire_setup(s, &a);
    a.widen = widen(s);
    a.improving = se_incumbent(s, &incumbent, &a.incumbent);
    for (int i = 0; i < s->nrecords; i++) {
        if (s->record[i].settled)
            continue;
        se_belief_imagine(&s->belief[SE_THROUGHPUT], s->table, s->record[i].index, 0.0);
        se_belief_imagine(&s->belief[SE_MEMORY], s->table, s->record[i].index,
                          SHARPNESS * SHARPNESS);
    }
    sceptic = a.improving && ask_sceptic(s, weights);
    se_acquire(&a, SE_HOT, &found);
    s->nhot = 0;
    for (size_t i = 0; i < found.count && s->nhot < SE_HOT; i++)
        s->hot[s->nhot++] = (uint32_t)found.choice[i].index;
    if (sceptic)
        set_weights(s, weights);
    s->exact = found.count;
    s->proved = found.proved;
    s->regret =
        a.improving ? se_expected_regret(s, found.choice, found.count, incumbent, a.widen) : -1.0;
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_belief_forget(&s->belief[q]);
    pick = found.count > 0 ? found.choice[0].index : 0;
    chance = found.count > 0 ? found.choice[0].p_fits : 0.0;
    if (found.count > 0)
        say_why(s, &a, &found.choice[0], sceptic, ret->why, sizeof(ret->why));
    free(found.choice);
    if (chance > HARDLY_FITS &&
        (s->regret < 0.0 || s->regret >= s->spec.regret_share || stalled(s) < PATIENCE))
        return hand_out(s, pick, 0, ret);
    answer = ask_repeat(s, ret);
    return answer == SE_DONE ? finish(s, found.open == 0 ? "exhausted" : "converged") : answer;
}

/* The baseline, if it has not been handed out. */
static bool baseline_due(const struct se_search *s, size_t *index)
{
    long at =
        s->spec.has_baseline && s->nrecords == 0 ? se_table_find(s->table, &s->spec.baseline) : -1;

    *index = at < 0 ? 0 : (size_t)at;
    return at >= 0;
}

enum se_answer se_ask(struct se_search *s, struct se_trial *ret)
{
    int budget = s->spec.budget.trials, used = s->settled + s->outstanding;
    size_t index;

    if (s->done[0])
        return SE_DONE;
    memset(ret, 0, sizeof(*ret));
    if ((budget > 0 && used >= budget) || s->spent >= 1.0)
        return finish(s, "budget");
    if (s->outstanding >= s->spec.parallel)
        return SE_WAIT;
    if (baseline_due(s, &index)) {
        snprintf(ret->why, sizeof(ret->why), "the baseline");
        return hand_out(s, index, 0, ret);
    }
    if (s->spec.method != SE_BAYES)
        return ask_control(s, ret);
    if (!s->spec.async_refit && se_refit_due(s))
        se_refit_adopt(s, se_refit_new(s));
    if (budget > 0 && budget - used <= reserve(s) && s->succeeded > 1) {
        enum se_answer again = ask_repeat(s, ret);

        if (again != SE_DONE)
            return again;
    }
    return ask_bayes(s, ret);
}
