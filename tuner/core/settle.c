/*
 * Why an attempt ended, what that means, and the one transaction that records it.
 *
 * Outcomes are rows of db_states: whether one settles its trial, after how many attempts, and
 * whether it pauses the campaign.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <signal.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/launcher.h"
#include "tuner/core/spec.h"
#include "tuner/core/work.h"
#include "tuner/output/observe.h"
#include "tuner/output/trouble.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

enum { CRASHES = 3, TAIL = 16 << 10 };

struct cause {
    enum db_state outcome;
    char detail[400];
    int rank;
};

/* ---- what was it? -------------------------------------------------------- */

static void say(struct cause *cause, enum db_state outcome, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void say(struct cause *cause, enum db_state outcome, const char *fmt, ...)
{
    va_list ap;

    cause->outcome = outcome;
    va_start(ap, fmt);
    vsnprintf(cause->detail, sizeof(cause->detail), fmt, ap);
    va_end(ap);
}

/* Last lines of stderr that say something, on one line. Returns what the machine lacked by one of
 * them: "oom" or "node_fail"; NULL: nothing. */
static const char *stderr_tail(char *buf, size_t size, const char *folder)
{
    AUTO_FREE char *path = mem_printf("%s/stderr", folder);
    size_t n = 0, from;
    AUTO_FREE char *text = tn_file_piece(&n, path, TAIL, true);
    const char *lacked = text ? tn_log_machine_trouble(text, n) : NULL;

    buf[0] = '\0';
    if (!text)
        return NULL;
    while (n > 0 && strchr(" \n\r\t=", text[n - 1]))
        n--;
    from = n > size - 1 ? n - (size - 1) : 0;
    for (size_t i = from, o = 0; i < n; i++)
        if ((unsigned char)text[i] >= ' ')
            buf[o++] = text[i], buf[o] = '\0';
        else if (o && buf[o - 1] != ' ')
            buf[o++] = ' ', buf[o] = '\0';
    if (!str_is_utf8(buf, strlen(buf)))
        for (char *p = buf; *p; p++)
            *p = (*p & 0x80) ? '?' : *p;
    return lacked;
}

static void by_stop(struct cause *cause, const struct tn_attempt *left)
{
    static const enum db_state outcomes[] = {
        [TN_STOP_CANCEL] = DB_STATE_CANCELLED, [TN_STOP_TIMEOUT] = DB_STATE_TIMEOUT,
        [TN_STOP_HANG] = DB_STATE_HANG,        [TN_STOP_PRUNED] = DB_STATE_PRUNED,
        [TN_STOP_SERVICE] = DB_STATE_REQUEUED, [TN_STOP_MEASURED] = DB_STATE_CRASH};

    assert(left->stop > TN_STOP_NONE && left->stop < ARRAY_LEN(outcomes));
    say(cause, outcomes[left->stop], "%s",
        left->trouble[0]               ? left->trouble
        : left->stop == TN_STOP_CANCEL ? "on request"
                                       : "the daemon ended");
}

static void by_error(struct cause *cause, const struct tn_seen *seen)
{
    int class = db_state_find(seen->error_class);

    if (class >= 0 && db_states[class].code)
        say(cause, class, "%s", seen->detail);
    else
        say(cause, DB_STATE_CRASH, "%s: %s", seen->error_class, seen->detail);
    cause->rank = seen->error_rank;
}

static void by_exit(struct cause *cause, const struct tn_attempt *left)
{
    const struct tn_exit *x = &left->exit;
    char tail[300];
    const char *lacked = stderr_tail(tail, sizeof(tail), left->folder);

    if (!x->known)
        say(cause, DB_STATE_CRASH, "the supervisor was killed%s%s", tail[0] ? ": " : "", tail);
    else if (x->proxy_lost)
        say(cause, DB_STATE_CRASH, "the process manager's proxy died and its ranks kept running");
    else if (x->signal)
        say(cause, DB_STATE_CRASH, "the launcher was killed by signal %d (%s)", x->signal,
            strsignal(x->signal));
    else if (x->code == 0)
        say(cause, DB_STATE_CRASH, "ended without a summary%s%s", tail[0] ? ": " : "", tail);
    else
        say(cause, DB_STATE_CRASH, "exit code %d%s%s", x->code, tail[0] ? ": " : "", tail);
    for (int i = 0; i < DB_STATES; i++)
        if (x->known && !x->signal && !x->proxy_lost && x->code > 0 && x->code == db_states[i].code)
            cause->outcome = i;
    /* 75 alone may be the bitwise OR of other codes: only with its event it means that somebody
     * else asked it to stop. */
    if (x->known && (left->seen.stopped || x->stopped))
        say(cause, DB_STATE_PREEMPTED, "stopped by a signal that the daemon did not send");
    /* The kernel killed something for want of memory while it ran, and it died by KILL (mpiexec
     * reports 9 or 137). */
    if (x->known && x->oom_kills > 0 && (x->code == 9 || x->code == 137 || x->signal == SIGKILL))
        say(cause, DB_STATE_OOM, "killed by the kernel: out of memory");
    if (x->known && x->code != 0 && lacked)
        say(cause, (enum db_state)db_state_find(lacked), "%s", tail);
}

/* No layout wins by doing less: a step is its global_batch x seq tokens, whatever else it says. */
static bool did_other_work(struct cause *cause, const struct tn_attempt *attempt)
{
    const struct pl_workload *w = &attempt->trial->run.workload;
    double want = tn_trial_tokens(attempt->trial), least = attempt->seen.tokens_least;

    if (!(least < want) && !(attempt->seen.tokens_most > want))
        return false;
    say(cause, DB_STATE_ILLEGAL,
        "a step had %.0f tokens instead of %.0f (global_batch %d x seq %d)",
        least < want ? least : attempt->seen.tokens_most, want, w->global_batch, w->seq);
    return true;
}

/*
 * No layout wins by a number that its devices cannot reach, either: a log read in another unit, or
 * counted once a rank. The trial keeps the warning in place of a result.
 */
static bool is_implausible(struct cause *cause, struct tn_attempt *attempt)
{
    struct pl_problem p = tn_trial_problem(attempt->trial);
    const struct pl_layout *l = &attempt->trial->run.layout;
    double rate = attempt->seen.tokens_per_s,
           peak = pl_device_peak(&p.cluster->device, l->precision);
    double share = pl_peak_share(&p, l, rate);

    if (!(share > 1)) /* the peak is unknown, or it was not passed */
        return false;
    attempt->bound = rate / share;
    say(cause, DB_STATE_IMPLAUSIBLE,
        "%.6g tokens/s are %.1f %% MFU, at least %.4g TFLOP/s per device, above its %s peak of "
        "%.4g: not counted. Likely causes: a log throughput with another unit or scope, a smaller "
        "model or batch in the trainer's command, a faster precision (fp8, TF32) than the "
        "layout's, a wrong peak in the cluster",
        rate, 100 * pl_mfu(&p, l, rate), share * peak, pl_precision_names[l->precision], peak);
    return true;
}

/* What was cut to its length may end inside of one. */
static void whole_characters(char *text)
{
    size_t n = strlen(text);

    for (int i = 0; i < 3 && n > 0 && !str_is_utf8(text, n); i++)
        text[--n] = '\0';
}

/* We ended what was silent or late, or had shown enough, and the program itself had said why. */
static bool explains_the_stop(const struct tn_attempt *attempt)
{
    return attempt->seen.error &&
           (attempt->stop == TN_STOP_HANG || attempt->stop == TN_STOP_TIMEOUT ||
            attempt->stop == TN_STOP_MEASURED);
}

/* A campaign for joules learns nothing from a run without them, and most likely from none. */
static bool is_unmetered(struct cause *cause, const struct tn_attempt *attempt)
{
    if (attempt->campaign->engine->spec->se.objective != PL_TOKENS_PER_JOULE ||
        attempt->seen.joules_per_step > 0)
        return false;
    say(cause, DB_STATE_UNMETERED,
        "the trainer's summary has no joules, which objective tokens_per_joule compares: make its "
        "energy counters readable (partune doctor), then resume");
    return true;
}

/* What something else has slowed is measured again, but not for ever: the last attempt's result is
 * taken with a warning. */
static void by_summary(struct cause *cause, const struct tn_attempt *attempt)
{
    const char *disturbed = attempt->seen.disturbed;
    const struct db_state_row *row = &db_states[DB_STATE_DISTURBED];
    int64_t before = row->tries;

    if (*disturbed)
        (void)db_attempt_outcomes(&before, tn_db(attempt->svc), attempt->campaign->id,
                                  attempt->trial->n, row->name, NULL);
    say(cause, before < row->tries ? DB_STATE_DISTURBED : DB_STATE_OK, "%s", disturbed);
}

static void find_cause(struct cause *cause, struct tn_attempt *attempt)
{
    int verdict = db_state_find(attempt->verdict);

    *cause = (struct cause){.rank = -1};
    if (attempt->seen.summary && (did_other_work(cause, attempt) ||
                                  is_implausible(cause, attempt) || is_unmetered(cause, attempt)))
        return;
    if (attempt->seen.summary)
        by_summary(cause, attempt);
    else if (attempt->machine_lost)
        say(cause, DB_STATE_NODE_FAIL, "%s", attempt->trouble);
    else if (attempt->stop != TN_STOP_NONE && !explains_the_stop(attempt))
        by_stop(cause, attempt);
    else if (attempt->verdict && attempt->stop == TN_STOP_NONE)
        say(cause, verdict < 0 ? DB_STATE_CRASH : (enum db_state)verdict, "%s", attempt->trouble);
    else if (attempt->seen.error)
        by_error(cause, &attempt->seen);
    else
        by_exit(cause, attempt);
    whole_characters(cause->detail);
}

/* ---- the row ------------------------------------------------------------- */

/* Why there is no result, or what to think of it; NULL: nothing. */
static char *failure_text(const struct cause *cause, const struct tn_attempt *attempt)
{
    enum db_state class = cause->outcome == DB_STATE_OK ? DB_STATE_DISTURBED : cause->outcome;
    AUTO_JSON *v = json_pack(
        "{s:s, s:s, s:o, s:o, s:o}", "class", db_states[class].name, "detail", cause->detail,
        "rank", cause->rank < 0 ? json_null() : json_integer(cause->rank), "exit_code",
        attempt->exit.known && attempt->exit.code >= 0 ? json_integer(attempt->exit.code)
                                                       : json_null(),
        "signal",
        attempt->exit.known && attempt->exit.signal ? json_integer(attempt->exit.signal)
                                                    : json_null());

    if (cause->outcome == DB_STATE_OK && !*cause->detail)
        return NULL;
    return v ? jx_dump(v) : mem_printf("{\"class\":\"%s\",\"detail\":null}", db_states[class].name);
}

static char *phases_text(const struct tn_seen *seen)
{
    AUTO_JSON *v = json_object();

    if (seen->measured == 0)
        return NULL;
    for (int i = 0; i < TN_PHASES; i++)
        json_object_set_new(v, tn_phase_names[i], tn_number(seen->phase_ms[i] / seen->measured));
    return jx_dump(v);
}

static double total_of(const json_t *memory)
{
    const json_t *v = json_object_get(memory, "total");

    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

struct settlement {
    struct tn_attempt *a;
    const struct db_state_row *row; /* of the cause */
    struct cause cause;
    struct db_trial t;
    struct db_attempt at;
    char *failure, *phases, *planned, *reached, *reason, *run;
    bool final, best, paused;
};

static json_t *column(const char *text)
{
    json_t *v = text ? json_loads(text, 0, NULL) : NULL;

    return v ? v : json_null();
}

/* What a smaller trial measured is a result of its run, not of the layout: one text apart. */
static void keep_apart(struct settlement *settlement)
{
    struct db_trial *t = &settlement->t;
    AUTO_JSON *run = tn_run_json(&settlement->a->trial->run);
    AUTO_JSON *measured = json_pack(
        "{s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o}, s:o, s:{s:o, s:o}, s:o, s:{s:o, s:o}, "
        "s:o, s:o}",
        "tokens_per_s", tn_number(t->tokens_per_s), "tokens_per_s_se",
        tn_number(t->tokens_per_s_se), "tokens_per_s_max", tn_number(t->tokens_per_s_max), "mfu",
        tn_number(t->mfu), "step_ms", "median", tn_number(t->step_ms), "p10",
        tn_number(t->step_ms_p10), "p90", tn_number(t->step_ms_p90), "ci95",
        tn_number(t->step_ms_ci95), "phases_ms", column(t->phases), "memory", "planned",
        column(t->memory_planned), "measured", column(t->memory_measured), "memory_bytes",
        tn_number(t->memory), "loss", "first", tn_number(t->loss_first), "last",
        tn_number(t->loss_last), "expert_imbalance", tn_number(t->imbalance), "tokens_per_joule",
        tn_number(t->tokens_per_joule));

    json_object_update(run, measured);
    settlement->run = jx_dump(run);
    t->fidelity = settlement->a->trial->fidelity;
    t->run = settlement->run;
    t->tokens_per_s = t->tokens_per_s_se = t->tokens_per_s_max = t->mfu = NAN;
    t->step_ms = t->step_ms_p10 = t->step_ms_p90 = t->step_ms_ci95 = NAN;
    t->memory = t->loss_first = t->loss_last = t->imbalance = t->tokens_per_joule = NAN;
    t->phases = t->memory_planned = t->memory_measured = NULL;
}

static void fill_rows(struct settlement *settlement)
{
    struct tn_attempt *a = settlement->a;
    const struct tn_seen *seen = &a->seen;
    struct pl_problem p = tn_trial_problem(a->trial);
    bool ok = settlement->cause.outcome == DB_STATE_OK;
    int64_t now = clock_wall_ms();
    double mfu = ok ? pl_mfu(&p, &a->trial->run.layout, seen->tokens_per_s) : -1;

    settlement->failure = failure_text(&settlement->cause, a);
    settlement->phases = phases_text(seen);
    settlement->planned = seen->planned ? jx_dump(seen->planned) : NULL;
    settlement->reached = seen->reached ? jx_dump(seen->reached) : NULL;
    settlement->at = (struct db_attempt){
        .campaign = a->campaign->id,
        .n = a->trial->n,
        .attempt = a->number,
        .ended = a->exit.known && a->exit.ended > 0 ? a->exit.ended : now,
        .outcome = settlement->row->name,
        .failure = settlement->failure,
        .offset = a->stored,
        .exit_code = a->exit.known && a->exit.code >= 0 ? a->exit.code : DB_NULL,
        .signal = a->exit.known && a->exit.signal ? a->exit.signal : DB_NULL};
    settlement->t = (struct db_trial){
        .campaign = a->campaign->id,
        .n = a->trial->n,
        .state = settlement->row->name,
        .tokens_per_s = ok ? seen->tokens_per_s : (double)NAN,
        .tokens_per_s_se = ok ? seen->tokens_per_s_se : (double)NAN,
        .tokens_per_s_max = ok ? (double)NAN : a->bound,
        .mfu = mfu < 0 ? (double)NAN : mfu,
        .step_ms = ok ? seen->ms_median : tn_seen_median_ms(seen),
        .step_ms_p10 = seen->ms_p10,
        .step_ms_p90 = seen->ms_p90,
        .step_ms_ci95 = seen->ms_ci95,
        .phases = settlement->phases,
        .memory_planned = settlement->planned,
        .memory_measured = settlement->reached,
        .memory = total_of(seen->reached ? seen->reached : seen->planned),
        .loss_first = seen->loss_first,
        .loss_last = seen->loss_last,
        .imbalance = seen->imbalance,
        .tokens_per_joule = ok ? tn_trial_tokens(a->trial) / seen->joules_per_step : (double)NAN,
        .failure = settlement->failure,
        .ended = settlement->at.ended,
        .fidelity = DB_NULL,
    };
    if (a->trial->fidelity)
        keep_apart(settlement);
}

/* ---- one transaction ----------------------------------------------------- */

static int decide(struct settlement *settlement, struct db *writer, struct err *error)
{
    int64_t before = 0;
    int r = 0;

    if (settlement->row->life != DB_ATTEMPT && settlement->row->tries > 1)
        r = db_attempt_outcomes(&before, writer, settlement->at.campaign, settlement->at.n,
                                settlement->row->name, error);
    settlement->final = settlement->row->life != DB_ATTEMPT && settlement->row->tries &&
                        before + 1 >= settlement->row->tries;
    /* A campaign that is over starts nothing again. */
    if (!settlement->final && strcmp(settlement->a->campaign->state, DB_RUNNING) &&
        strcmp(settlement->a->campaign->state, DB_VERIFYING) &&
        strcmp(settlement->a->campaign->state, DB_PAUSED)) {
        settlement->final = true;
        settlement->t.state = db_states[DB_STATE_CANCELLED].name;
    }
    return r;
}

struct tally {
    int64_t good, bad; /* the bad pause the campaign where nothing is good */
};

static bool is_good(const char *state)
{
    int found = db_state_find(state);

    return found >= 0 && db_states[found].life == DB_GOOD;
}

static bool pauses_if_all(const char *state)
{
    int found = db_state_find(state);

    return found >= 0 && db_states[found].pauses == DB_IF_ALL;
}

static void count_state(void *ctx, const char *state, int64_t count)
{
    struct tally *t = ctx;

    t->good += is_good(state) ? count : 0;
    t->bad += pauses_if_all(state) ? count : 0;
}

/* When nothing has ever worked and trial after trial crashes, or says what cannot be, it is not the
 * layouts: stop before the budget is gone. */
static int pause_if_all_crash(struct settlement *settlement, struct db *writer, struct err *error)
{
    struct tally t = {0, 0};
    int r = db_campaign_counts(writer, settlement->at.campaign, count_state, &t, error);

    if (r < 0 || t.good > 0 || t.bad == 0 || t.bad % CRASHES != 0)
        return r;
    settlement->paused = true;
    return 0;
}

static int settle_job(struct db *writer, void *arg, struct err *error)
{
    struct settlement *s = arg;
    const char *id = s->at.campaign;
    int r = decide(s, writer, error);

    if (r == 0)
        r = db_attempt_end(writer, &s->at, error);
    if (r == 0)
        r = s->final ? db_trial_settle(writer, &s->t, error)
                     : db_trial_requeue(writer, id, s->at.n, error);
    s->paused = s->row->pauses == DB_AT_ONCE;
    if (r == 0 && s->final && pauses_if_all(s->t.state))
        r = pause_if_all_crash(s, writer, error);
    if (r == 0 && s->paused) {
        r = db_campaign_move(writer, id, "running verifying", DB_PAUSED, s->reason, clock_wall_ms(),
                             error);
        if (r == -ESTALE)
            r = 0;
    }
    if (r == 0)
        r = tn_event_trial(writer, id, s->at.n, error);
    if (r == 0 && s->best)
        r = tn_event_best(writer, id, error);
    return r < 0 ? r : tn_event_campaign(writer, id, error);
}

/* ---- afterwards, in memory ----------------------------------------------- */

static void teach(struct settlement *settlement)
{
    struct tn_campaign *c = settlement->a->campaign;
    struct tn_tell *tell, **at = &c->tells;
    struct se_outcome o;

    if (strcmp(settlement->a->trial->kind, "verify") != 0)
        c->open--;
    if (settlement->a->trial->search_id == DB_NULL)
        return;
    tn_outcome_of(&o, &settlement->t);
    tell = mem_alloc(sizeof(*tell));
    *tell = (struct tn_tell){.id = (int)settlement->a->trial->search_id, .outcome = o};
    while (*at)
        at = &(*at)->next;
    *at = tell;
}

static void log_end(const struct settlement *settlement)
{
    const struct tn_attempt *a = settlement->a;
    char text[160];

    se_layout_text(text, &a->campaign->engine->spec->se, &a->trial->run.layout);
    if (settlement->cause.outcome == DB_STATE_OK)
        tn_log_attempt(LOG_INFO, a, " (%s) ok tokens_per_s=%.0f", text, a->seen.tokens_per_s);
    else
        tn_log_attempt(LOG_INFO, a, " (%s) %s%s: %s", text, settlement->row->name,
                       settlement->final ? "" : ", to be retried", settlement->cause.detail);
    if (a->seen.on_cpu && !pl_cluster_is_cpu(tn_trial_cluster(a->trial)))
        tn_log_attempt(LOG_WARN, a, " computed on CPUs, and its cluster has other devices");
    if (settlement->cause.outcome == DB_STATE_OK && *settlement->cause.detail)
        tn_log_attempt(LOG_WARN, a, " counts although %s", settlement->cause.detail);
    if (settlement->cause.outcome == DB_STATE_IMPLAUSIBLE)
        tn_log_attempt(LOG_WARN, a, " is not counted");
    if (settlement->cause.outcome == DB_STATE_ILLEGAL)
        tn_log_attempt(LOG_ERROR, a, ": the trainer rejects a layout that the rules allow: %s",
                       settlement->cause.detail);
}

static void count_settled(struct tn_tally *tally, const struct tn_trial *trial)
{
    tally->trials_settled++;
    tally->smaller_settled += trial->fidelity > 0;
}

static void apply(struct settlement *settlement)
{
    struct tn_attempt *a = settlement->a;
    struct tn_campaign *c = a->campaign;
    double seconds =
        (double)(tn_now_ms() - a->started) / 1000.0 * pl_layout_devices(&a->trial->run.layout);

    assert(c->running > 0);
    c->running--;
    c->device_s += seconds;
    c->cost += seconds * tn_trial_cluster(a->trial)->price / 3600;
    c->share += seconds;
    a->launcher->release(a);
    log_end(settlement);
    if (settlement->paused) {
        tn_log_campaign(LOG_WARN, c, " is paused: %s", settlement->reason);
        if (!strcmp(c->state, DB_RUNNING) || !strcmp(c->state, DB_VERIFYING))
            tn_campaign_set_state(c, DB_PAUSED);
    }
    if (settlement->final) {
        teach(settlement);
        count_settled(&tn_work(c->svc)->stats.all, a->trial);
        if (tn_is_simulated(a->launcher->name))
            count_settled(&tn_work(c->svc)->stats.simulated, a->trial);
    } else {
        /* A pause before the next attempt, so that a broken machine is not hammered. */
        a->trial->not_before = settlement->row->pauses == DB_AT_ONCE ? 0 : tn_now_ms() + 200;
        tn_campaign_enqueue(c, a->trial);
        a->trial = NULL;
    }
    tn_changed(c->svc);
}

static bool beats(const struct tn_attempt *attempt, const struct cause *cause)
{
    struct arena arena = {0};
    struct db_campaign row;
    enum pl_objective objective = attempt->campaign->engine->spec->se.objective;
    double rate = attempt->seen.tokens_per_s,
           watts = rate * attempt->seen.joules_per_step / tn_trial_tokens(attempt->trial);
    struct tn_measure m;
    bool better = true;

    if (cause->outcome != DB_STATE_OK || attempt->trial->fidelity ||
        !strcmp(attempt->trial->kind, "verify"))
        return false;
    if (db_campaign_get(&row, tn_db(attempt->svc), &arena, attempt->campaign->id, NULL) == 0 &&
        tn_measure_best(&m, NULL, tn_db(attempt->svc), &arena, &row, NULL) == 0)
        better = m.n == attempt->trial->n ||
                 pl_objective_value(objective, rate, pl_layout_devices(&attempt->trial->layout),
                                    watts, tn_trial_cluster(attempt->trial)->price) >=
                     tn_measure_value(&m, objective, m.price).mean;
    arena_done(&arena);
    return better;
}

int tn_settle(struct tn_attempt *attempt, struct err *error)
{
    struct settlement s = {.a = attempt};
    int r;

    assert(attempt->ended && attempt->trial);
    find_cause(&s.cause, attempt);
    s.row = &db_states[s.cause.outcome];
    s.best = beats(attempt, &s.cause);
    fill_rows(&s);
    s.reason =
        mem_printf("trial %lld: %s: %s", (long long)attempt->trial->n, s.row->name, s.cause.detail);
    r = tn_write(attempt->svc, settle_job, &s, error);
    if (r == 0 || r == -ESTALE) /* stale: it was settled before; what is in memory follows */
        apply(&s);
    free(s.failure);
    free(s.phases);
    free(s.planned);
    free(s.reached);
    free(s.reason);
    free(s.run);
    return r == -ESTALE ? 0 : r;
}
