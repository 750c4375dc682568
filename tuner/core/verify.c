/*
 * Verification: interleaved runs of winner and baseline, so that a drift of the machine meets both.
 * Where the winner is the baseline there is nothing to compare: it alone runs, once for each pair,
 * for what to expect of it.
 *
 * Pair i runs winner, baseline if i is even and baseline, winner if i is odd. A pair gives one
 * ratio of what the objective makes of their throughputs; the result is their geometric mean exp(m)
 * with the interval exp(m +- t s / sqrt(k)), where m and s are mean and standard deviation of the k
 * logarithms and t is the 97.5 % quantile of Student's t with k - 1 degrees of freedom.
 *
 * The winner's own k throughputs say what to expect of it. Its trial in the search was chosen for
 * being the fastest seen, so it is too high on average; these runs were chosen by nothing. The
 * prediction is their geometric mean, with the interval in which one more run will be, 95 in 100
 * times: exp(m +- t s sqrt(1 + 1/k)).
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/launcher.h"
#include "tuner/core/verify.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

/* Of COUNT logarithms' mean, at a variance of SHARE times theirs. */
static void log_interval(double *ret_mean, double *ret_lo, double *ret_hi, const double *values,
                         int count, double share)
{
    double m = 0, s = 0, half;

    assert(count > 0 && share > 0);
    for (int i = 0; i < count; i++)
        m += log(values[i]) / count;
    for (int i = 0; i < count; i++)
        s += (log(values[i]) - m) * (log(values[i]) - m);
    half = count > 1 ? se_student_975(count - 1) * sqrt(s / (count - 1) * share) : INFINITY;
    *ret_mean = exp(m);
    *ret_lo = exp(m - half);
    *ret_hi = exp(m + half);
}

void tn_ratio_interval(double *ret_mean, double *ret_lo, double *ret_hi, const double *ratio,
                       int count)
{
    log_interval(ret_mean, ret_lo, ret_hi, ratio, count, 1.0 / count);
}

void tn_prediction_interval(double *ret_mean, double *ret_lo, double *ret_hi, const double *rate,
                            int count)
{
    log_interval(ret_mean, ret_lo, ret_hi, rate, count, 1.0 + 1.0 / count);
}

const char *tn_verdict(double lo, double hi, bool same)
{
    assert(!(lo > hi));
    if (same)
        return "same";
    return lo > 1 ? "holds" : hi < 1 ? "does not hold" : "within noise";
}

/* ---- the record in column campaign.verify -------------------------------- */

/* What the complete pairs of successes gave; with nothing to compare, the runs of the winner. */
struct pairs {
    int n, compared;             /* of the winner's runs, and of the ratios: all of them, or none */
    double ratio[TN_MAX_PAIRS];  /* winner / baseline */
    double winner[TN_MAX_PAIRS]; /* tokens/s */
};

/* Is the winner the baseline itself? */
static bool nothing_to_compare(const struct tn_verify *verify)
{
    return verify->winner_n == verify->baseline_n;
}

static int trials_in_all(const struct tn_verify *verify)
{
    return nothing_to_compare(verify) ? verify->pairs : 2 * verify->pairs;
}

/* {"tokens_per_s", "lo", "hi"} of the next run of the winner, or null where one run says nothing.
 */
static json_t *prediction(const struct pairs *interval)
{
    double mean, lo, hi;

    if (interval->n < 2)
        return json_null();
    tn_prediction_interval(&mean, &lo, &hi, interval->winner, interval->n);
    return json_pack("{s:o, s:o, s:o}", "tokens_per_s", tn_number(mean), "lo", tn_number(lo), "hi",
                     tn_number(hi));
}

static char *record(const struct tn_verify *verify, const char *state, const struct pairs *pairs)
{
    int n = pairs->n;
    AUTO_JSON *r =
        json_pack("{s:s, s:i, s:i, s:I, s:I, s:I, s:i}", "state", state, "pairs", verify->pairs,
                  "steps", verify->steps, "winner", (json_int_t)verify->winner_n, "baseline",
                  (json_int_t)verify->baseline_n, "first", (json_int_t)verify->first_n, "done", n);
    double mean = NAN, lo = NAN, hi = NAN;
    json_t *list = json_array();

    if (pairs->compared > 0)
        tn_ratio_interval(&mean, &lo, &hi, pairs->ratio, pairs->compared);
    for (int i = 0; i < pairs->compared; i++)
        json_array_append_new(list, tn_number(pairs->ratio[i]));
    json_object_set_new(r, "ratios", list);
    json_object_set_new(r, "ratio", tn_number(mean));
    json_object_set_new(r, "lo", tn_number(lo));
    json_object_set_new(r, "hi", tn_number(hi));
    json_object_set_new(r, "prediction", prediction(pairs));
    json_object_set_new(r, "verdict",
                        strcmp(state, "done") || n == 0
                            ? json_null()
                            : json_string(tn_verdict(lo, hi, nothing_to_compare(verify))));
    return jx_dump(r);
}

struct change {
    const char *id, *verify, *from, *to, *reason;
};

static int change_job(struct db *writer, void *arg, struct err *error)
{
    struct change *ch = arg;
    int r = 0;

    if (ch->to)
        r = db_campaign_move(writer, ch->id, ch->from, ch->to, ch->reason, clock_wall_ms(), error);
    if (r == 0)
        r = db_campaign_set_verify(writer, ch->id, ch->verify, error);
    return r < 0 ? r : tn_event_campaign(writer, ch->id, error);
}

/* ---- steps --------------------------------------------------------------- */

static bool winner_first(int trial)
{
    return trial / 2 % 2 == 0;
}

/* The trials of this verification; there may be those of many others before them. */
static int trials_of(struct db_trial **ret, int *ret_count, struct arena *arena,
                     struct tn_campaign *campaign, struct err *error)
{
    struct db_trial before = {.n = campaign->verify.first_n - 1};
    struct db_filter f = {.kind = "verify", .limit = (int64_t)2 * TN_MAX_PAIRS};
    int64_t total;

    f.after = db_trial_position(arena, &f, &before);
    return db_trial_list(ret, ret_count, &total, tn_db(campaign->svc), arena, campaign->id, &f,
                         error);
}

/* What the objective makes of what TRIAL measured of LAYOUT. */
static double value_of(const struct tn_campaign *campaign, const struct db_trial *trial,
                       const struct pl_layout *layout)
{
    const struct se_spec *spec = &campaign->engine->spec->se;

    return pl_objective_value(spec->objective, trial->tokens_per_s, pl_layout_devices(layout),
                              trial->tokens_per_s / trial->tokens_per_joule,
                              se_cluster_of(spec, layout)->price);
}

/* The successes among the COUNT runs of a winner that is the baseline. */
static void take_runs(struct pairs *ret, const struct db_trial *trial, int count)
{
    for (int i = 0; i < count && ret->n < TN_MAX_PAIRS; i++)
        if (!strcmp(trial[i].state, "ok"))
            ret->winner[ret->n++] = trial[i].tokens_per_s;
}

/* Each complete pair of successes, from the trials in their order. */
static int read_pairs(struct pairs *ret, struct tn_campaign *campaign, struct err *error)
{
    struct arena a = {0};
    struct db_trial *t = NULL;
    int count = 0;
    int r = trials_of(&t, &count, &a, campaign, error);

    ret->n = ret->compared = 0;
    if (r == 0 && nothing_to_compare(&campaign->verify)) {
        take_runs(ret, t, count);
        count = 0;
    }
    for (int i = 0; r == 0 && i + 1 < count; i += 2) {
        const struct db_trial *winner = &t[winner_first(i) ? i : i + 1];
        const struct db_trial *baseline = &t[winner_first(i) ? i + 1 : i];

        if (!strcmp(t[i].state, "ok") && !strcmp(t[i + 1].state, "ok")) {
            ret->ratio[ret->n] = value_of(campaign, winner, &campaign->verify.winner) /
                                 value_of(campaign, baseline, &campaign->verify.baseline);
            ret->winner[ret->n++] = winner->tokens_per_s;
            ret->compared = ret->n;
        }
    }
    assert(ret->n <= TN_MAX_PAIRS);
    arena_done(&a);
    return r;
}

static void finish(struct tn_campaign *campaign)
{
    struct pairs p;
    struct err e = {0};
    int r = read_pairs(&p, campaign, &e);
    AUTO_FREE char *text =
        r < 0 ? NULL : record(&campaign->verify, p.n > 0 ? "done" : "failed", &p);
    bool simulated = tn_is_simulated(campaign->engine->spec->launcher->name);
    struct change ch = {campaign->id, text, DB_VERIFYING, DB_DONE,
                        p.n == 0    ? nothing_to_compare(&campaign->verify)
                                          ? "no run of the verification succeeded"
                                          : "no pair of the verification succeeded"
                        : simulated ? "verification simulated"
                                    : "verified"};

    if (r < 0 || tn_write(campaign->svc, change_job, &ch, &e) < 0) {
        tn_log_campaign(LOG_ERROR, campaign, ": the verification cannot end: %s", e.text);
        campaign->retry_at = tn_now_ms() + 1000;
        return;
    }
    tn_log_campaign(LOG_INFO, campaign, ": %s", ch.reason);
    campaign->verify = (struct tn_verify){0};
    tn_campaign_set_state(campaign, DB_DONE);
}

/* The numbers so far, for those who watch. */
static void show_progress(struct tn_campaign *campaign)
{
    struct pairs p;
    AUTO_FREE char *text =
        read_pairs(&p, campaign, NULL) < 0 ? NULL : record(&campaign->verify, "running", &p);
    struct change ch = {campaign->id, text, NULL, NULL, NULL};
    struct err e;

    if (text)
        tn_write(campaign->svc, change_job, &ch, &e);
}

void tn_verify_step(struct tn_campaign *campaign)
{
    struct tn_verify *v = &campaign->verify;
    bool both = nothing_to_compare(v);
    bool winner = both || winner_first(v->added) == (v->added % 2 == 0);
    struct err e = {0};
    int64_t n;

    if (v->added >= trials_in_all(v)) {
        finish(campaign);
        return;
    }
    if (v->added > 0 && (both || v->added % 2 == 0))
        show_progress(campaign);
    if (tn_trial_add(&n, campaign, winner ? &v->winner : &v->baseline,
                     winner ? v->winner_n : v->baseline_n, "verify",
                     both     ? "verification of the winner, which is the baseline"
                     : winner ? "verification of the winner"
                              : "verification of the baseline",
                     &e) < 0) {
        if (e.code != -ESTALE)
            tn_log_campaign(LOG_ERROR, campaign, ": %s", e.text);
        campaign->retry_at = tn_now_ms() + 1000;
        return;
    }
    v->added++;
}

/* ---- begin, and again after a restart ------------------------------------ */

int tn_verify_restore(struct tn_campaign *campaign, const struct db_campaign *row,
                      struct err *error)
{
    AUTO_JSON *v = NULL;
    struct tn_verify *ve = &campaign->verify;
    struct arena a = {0};
    struct db_trial winner, baseline, *t = NULL;
    int count = 0;
    int r = jx_parse(&v, row->verify, strlen(row->verify), error);

    *ve = (struct tn_verify){0}; /* of one before, which was paused */
    if (r == 0)
        r = jx_get_int(&ve->pairs, v, "pairs", 1, TN_MAX_PAIRS, error);
    if (r == 0)
        r = jx_get_int(&ve->steps, v, "steps", 0, 10000, error);
    ve->winner_n = json_integer_value(json_object_get(v, "winner"));
    ve->baseline_n = json_integer_value(json_object_get(v, "baseline"));
    ve->first_n = json_integer_value(json_object_get(v, "first"));
    if (r == 0)
        r = db_trial_get(&winner, tn_db(campaign->svc), &a, campaign->id, ve->winner_n, error);
    if (r == 0)
        r = db_trial_get(&baseline, tn_db(campaign->svc), &a, campaign->id, ve->baseline_n, error);
    if (r == 0)
        r = tn_engine_layout(&ve->winner, campaign->engine, winner.layout, error);
    if (r == 0)
        r = tn_engine_layout(&ve->baseline, campaign->engine, baseline.layout, error);
    if (r == 0)
        r = trials_of(&t, &count, &a, campaign, error);
    ve->added = count;
    arena_done(&a);
    return r;
}

int tn_verify_begin(struct tn_service *svc, const struct db_campaign *row,
                    const struct tn_verify *verify, struct err *error)
{
    AUTO_FREE char *text = record(verify, "running", &(struct pairs){0});
    struct change ch = {row->id, text, "done cancelled paused running", DB_VERIFYING,
                        "verification"};

    return tn_write(svc, change_job, &ch, error);
}
