/* Maximizing the acquisition over the whole table by a bound; the formulas are in acquire.h. */
#include "search/acquire.h"

#include <assert.h>
#include <limits.h>
#include <math.h>

#include "base/base.h"
#include "base/rng.h"
#include "search/bound.h"
#include "search/crash.h"
#include "search/num.h"
#include "search/parallel.h"
#include "search/scan.h"
#include "search/subset.h"
#include "search/sweep.h"

/* Candidates for the sampling of regret lie a little under the best score; in a large table there
 * are enough of them above it by their bounds. */
enum { BATCH = 64, SMALL = 20000 };
/* Candidates of a round (see settle), and how many a thread is started for. */
enum { FIRST_ROUND = 64, LAST_ROUND = 1024, WORTH_A_THREAD = 16 };
/* While more than MANY layouts are left, their bounds on variances, which rest on SE_USUAL_MEMBERS
 * observations, are worked out again by twice as many. */
enum { MANY = 10000 };
static const double SLACK = 1.0;
/* Power of P(fits): see acquire.h. On generated landscapes (bench_search --generated) 1.5, 2 and 3
 * let 10, 8 and 5 % of the trials run out of memory; from 3 on the best is found later. */
static const double CAUTION = 2.0;

/* Moments of one layout under every hypothesis. */
struct moments {
    double mean[SE_QUANTITIES][SE_MAX_HYPS];
    double var[SE_QUANTITIES][SE_MAX_HYPS];
};

/* ---- the score ----------------------------------------------------------- */

static double mix(const struct se_surrogate *surrogate, const double *values)
{
    double s = 0.0;

    for (int h = 0; h < surrogate->nhyps; h++)
        s += surrogate->hyp[h].weight * values[h];
    return s;
}

double se_log_improvement(const struct se_acquire *acquire, const double *mean, const double *var)
{
    const struct se_surrogate *b = acquire->surrogate[SE_THROUGHPUT];
    double part[SE_MAX_HYPS], top = -INFINITY, sum = 0.0;

    if (!acquire->improving)
        return mix(b, mean);
    for (int h = 0; h < b->nhyps; h++) {
        double sd = acquire->widen * sqrt(fmax(var[h], 1e-14));

        part[h] = b->hyp[h].weight > 0.0 ? log(b->hyp[h].weight) + log(sd) +
                                               se_log_ei((mean[h] - acquire->incumbent) / sd)
                                         : -INFINITY;
        top = fmax(top, part[h]);
    }
    if (!isfinite(top))
        return top;
    for (int h = 0; h < b->nhyps; h++)
        sum += exp(part[h] - top);
    return top + log(sum);
}

/* P(fits), or a bound on it where VAR is a bound: with the mean below capacity a smaller variance
 * would help. */
static double p_fits(const struct se_surrogate *surrogate, const double *mean, const double *var,
                     bool bound)
{
    double p = 0.0;

    for (int h = 0; h < surrogate->nhyps; h++) {
        if (bound && mean[h] < 0.0)
            p += surrogate->hyp[h].weight;
        else
            p += surrogate->hyp[h].weight *
                 se_norm_cdf(-mean[h] / sqrt(var[h] + surrogate->hyp[h].gp.kern.noise2));
    }
    return fmin(p, 1.0);
}

static double log_cost(const struct se_acquire *acquire, size_t index, double log_throughput)
{
    const struct se_table *table = acquire->table;
    double log_rate = se_table_expense(table)[index];
    double log_tokens = acquire->step_log_tokens + (table->log_batch ? table->log_batch[index] : 0);
    double seconds =
        exp(log_tokens - log_throughput - (acquire->log_unit ? acquire->log_unit[index] : 0));

    return log_rate + log(acquire->start_s + acquire->steps * seconds);
}

/* A number drawn for a layout, so that a table's order decides nothing. */
static uint32_t tie_of(const struct se_acquire *acquire, size_t index)
{
    return (uint32_t)rng_mix(acquire->draw + index);
}

/* Exact score from exact moments. */
static void combine(struct se_candidate *ret, const struct se_acquire *acquire, size_t index,
                    const struct moments *moments)
{
    ret->index = index;
    ret->tie = tie_of(acquire, index);
    ret->log_ei =
        se_log_improvement(acquire, moments->mean[SE_THROUGHPUT], moments->var[SE_THROUGHPUT]);
    ret->p_fits = p_fits(acquire->surrogate[SE_MEMORY], moments->mean[SE_MEMORY],
                         moments->var[SE_MEMORY], false) *
                  se_crash_runs(acquire->crash, acquire->table, index);
    assert(ret->p_fits >= 0.0 && ret->p_fits <= 1.0);
    ret->score = ret->log_ei + CAUTION * log(fmax(ret->p_fits, 1e-150));
    if (acquire->improving)
        ret->score -= log_cost(
            acquire, index, mix(acquire->surrogate[SE_THROUGHPUT], moments->mean[SE_THROUGHPUT]));
}

/* Bound on the part of the score that throughput decides. */
static double bound_without_memory(const struct se_acquire *acquire, size_t index,
                                   const struct moments *moments)
{
    double score =
        se_log_improvement(acquire, moments->mean[SE_THROUGHPUT], moments->var[SE_THROUGHPUT]);

    if (acquire->improving)
        score -= log_cost(acquire, index,
                          mix(acquire->surrogate[SE_THROUGHPUT], moments->mean[SE_THROUGHPUT]));
    return score;
}

static double log_fits_bound(const struct se_acquire *acquire, const struct moments *moments)
{
    return CAUTION * log(fmax(p_fits(acquire->surrogate[SE_MEMORY], moments->mean[SE_MEMORY],
                                     moments->var[SE_MEMORY], true),
                              1e-150));
}

static void mixture(double *ret_mean, double *ret_var, const struct se_surrogate *surrogate,
                    const double *mean, const double *var)
{
    *ret_mean = mix(surrogate, mean);
    *ret_var = 0.0;
    for (int h = 0; h < surrogate->nhyps; h++)
        *ret_var +=
            surrogate->hyp[h].weight * (var[h] + (mean[h] - *ret_mean) * (mean[h] - *ret_mean));
}

static void finish(struct se_candidate *ret, const struct se_acquire *acquire, size_t index,
                   const struct moments *moments)
{
    combine(ret, acquire, index, moments);
    for (int q = 0; q < SE_QUANTITIES; q++)
        mixture(&ret->mean[q], &ret->var[q], acquire->surrogate[q], moments->mean[q],
                moments->var[q]);
}

/* ---- exact posteriors ---------------------------------------------------- */

void se_acquire_one(struct se_candidate *ret, const struct se_acquire *acquire, size_t index)
{
    struct moments m;

    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < acquire->surrogate[q]->nhyps; h++)
            se_hyp_predict(&m.mean[q][h], &m.var[q][h], acquire->surrogate[q],
                           &acquire->surrogate[q]->hyp[h], acquire->table, index);
    finish(ret, acquire, index, &m);
}

double se_acquire_quantile(const struct se_acquire *acquire, size_t index,
                           enum se_quantity quantity, double prob)
{
    const struct se_surrogate *b = acquire->surrogate[quantity];
    double weight[SE_MAX_HYPS], mean[SE_MAX_HYPS], sd[SE_MAX_HYPS];

    for (int h = 0; h < b->nhyps; h++) {
        se_hyp_predict(&mean[h], &sd[h], b, &b->hyp[h], acquire->table, index);
        sd[h] = sqrt(sd[h]);
        weight[h] = b->hyp[h].weight;
    }
    return se_mixture_quantile(weight, mean, sd, b->nhyps, prob);
}

/* Observations that a variance is worked out for, before the bound is looked at again. */
static const int STAGES[] = {16, 48, 128, INT_MAX};

struct scans {
    struct se_scan *of[SE_QUANTITIES][SE_MAX_HYPS];
};

static void open_scans(const struct se_acquire *acquire, struct scans *scans,
                       enum se_quantity quantity, size_t index)
{
    for (int h = 0; h < acquire->surrogate[quantity]->nhyps; h++)
        se_scan_open(scans->of[quantity][h], index);
}

/* Does hypothesis HYP count at all? A sceptical ask leaves one out. */
static bool heard(const struct se_acquire *acquire, enum se_quantity quantity, int hyp)
{
    return acquire->surrogate[quantity]->hyp[hyp].weight > 0.0;
}

/* Tighten the variances of QUANTITY at INDEX as far as the bound on its score reaches FLOOR; REST
 * is what the other quantity adds to that. */
static bool tighten(const struct se_acquire *acquire, struct scans *scans,
                    enum se_quantity quantity, size_t index, struct moments *moments, double rest,
                    double floor)
{
    bool done = false;

    for (size_t k = 0; k < ARRAY_LEN(STAGES) && !done; k++) {
        for (int h = 0; h < acquire->surrogate[quantity]->nhyps; h++)
            if (heard(acquire, quantity, h))
                moments->var[quantity][h] =
                    fmin(moments->var[quantity][h],
                         se_scan_tighten(&done, scans->of[quantity][h], STAGES[k]));
        if (rest + (quantity == SE_THROUGHPUT ? bound_without_memory(acquire, index, moments)
                                              : log_fits_bound(acquire, moments)) <
            floor)
            return false;
    }
    return true;
}

/*
 * Exact moments of one layout, unless a bound on its score falls below FLOOR on the way: then
 * false. Throughput first, as it rules out more. MOMENTS holds what the sweeps said; nothing is
 * read of it where FLOOR is -INFINITY.
 */
static bool exact(struct se_candidate *ret, const struct se_acquire *acquire, struct scans *scans,
                  size_t index, struct moments *moments, double floor)
{
    open_scans(acquire, scans, SE_THROUGHPUT, index);
    if (floor > -INFINITY && !tighten(acquire, scans, SE_THROUGHPUT, index, moments,
                                      log_fits_bound(acquire, moments), floor))
        return false;
    open_scans(acquire, scans, SE_MEMORY, index);
    if (floor > -INFINITY && !tighten(acquire, scans, SE_MEMORY, index, moments,
                                      bound_without_memory(acquire, index, moments), floor))
        return false;
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < acquire->surrogate[q]->nhyps; h++)
            moments->mean[q][h] = se_scan_mean(&moments->var[q][h], scans->of[q][h]);
    finish(ret, acquire, index, moments);
    return true;
}

/* ---- bounds -------------------------------------------------------------- */

/* Layouts that are still candidates, with what the sweeps say of them. */
struct field {
    size_t n;
    uint32_t *row; /* (n), ascending */
    float *bound;  /* (n), of the score less its part of memory, rounded up; once cut */
    float *mean[SE_QUANTITIES][SE_MAX_HYPS];
    float *var[SE_QUANTITIES][SE_MAX_HYPS];
};

struct bound {
    float score;
    uint32_t tie;
    uint32_t at; /* place in the field */
};

static int by_bound(const void *left, const void *right)
{
    const struct bound *a = left, *b = right;

    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    if (a->tie != b->tie)
        return a->tie < b->tie ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static int by_score(const void *left, const void *right)
{
    const struct se_candidate *a = left, *b = right;

    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    if (a->tie != b->tie)
        return a->tie < b->tie ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Sweeps over a field, one for each hypothesis that is heard; made side by side. */
struct sweeps {
    const struct field *f;
    const struct se_acquire *a;
    enum se_quantity q;
    int members;
    struct se_sweep *of[SE_MAX_HYPS];
};

static void make_sweeps(void *context, size_t from, size_t to)
{
    struct sweeps *s = context;
    const struct se_surrogate *b = s->a->surrogate[s->q];

    for (size_t h = from; h < to; h++)
        if (heard(s->a, s->q, (int)h))
            s->of[h] = se_sweep_new(b, &b->hyp[h], s->a->table, s->f->row, s->f->n, s->members);
}

static void sweeps_init(struct sweeps *sweeps, const struct field *field,
                        const struct se_acquire *acquire, enum se_quantity quantity, int members)
{
    *sweeps = (struct sweeps){.f = field, .a = acquire, .q = quantity, .members = members};
    se_parallel((size_t)acquire->surrogate[quantity]->nhyps, 1, make_sweeps, sweeps);
}

static void sweeps_done(struct sweeps *sweeps)
{
    for (int h = 0; h < SE_MAX_HYPS; h++)
        se_sweep_free(sweeps->of[h]);
}

static void field_sweep(struct field *field, const struct se_acquire *acquire,
                        enum se_quantity quantity)
{
    struct sweeps s;

    sweeps_init(&s, field, acquire, quantity, SE_USUAL_MEMBERS);
    for (int h = 0; h < acquire->surrogate[quantity]->nhyps; h++) {
        field->mean[quantity][h] = mem_alloc((field->n + 1) * sizeof(float));
        field->var[quantity][h] = mem_alloc((field->n + 1) * sizeof(float));
        if (s.of[h])
            se_sweep_run(field->mean[quantity][h], field->var[quantity][h], s.of[h]);
    }
    sweeps_done(&s);
}

/* Bounds on the variances of throughput by MEMBERS observations, for the layouts that are left. */
static void field_tighten(struct field *field, const struct se_acquire *acquire, int members)
{
    float AUTO_FREE *var = mem_alloc((field->n + 1) * sizeof(float));
    struct sweeps s;

    sweeps_init(&s, field, acquire, SE_THROUGHPUT, members);
    for (int h = 0; h < acquire->surrogate[SE_THROUGHPUT]->nhyps; h++) {
        float *known = field->var[SE_THROUGHPUT][h];

        if (!s.of[h])
            continue;
        se_sweep_run(NULL, var, s.of[h]);
        for (size_t i = 0; i < field->n; i++)
            known[i] = fminf(known[i], var[i]);
    }
    sweeps_done(&s);
}

static void field_done(struct field *field)
{
    for (int q = 0; q < SE_QUANTITIES; q++) {
        for (int h = 0; h < SE_MAX_HYPS; h++) {
            free(field->mean[q][h]);
            free(field->var[q][h]);
        }
    }
    free(field->row);
    free(field->bound);
}

static void scans_init(struct scans *scans, const struct se_acquire *acquire)
{
    memset(scans, 0, sizeof(*scans));
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < acquire->surrogate[q]->nhyps; h++)
            scans->of[q][h] =
                se_scan_new(acquire->surrogate[q], &acquire->surrogate[q]->hyp[h], acquire->table);
}

static void scans_share(struct scans *scans, const struct scans *of)
{
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < SE_MAX_HYPS; h++)
            scans->of[q][h] = of->of[q][h] ? se_scan_share(of->of[q][h]) : NULL;
}

static void scans_done(struct scans *scans)
{
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < SE_MAX_HYPS; h++)
            se_scan_free(scans->of[q][h]);
}

static void moments_at(const struct field *field, const struct se_acquire *acquire,
                       enum se_quantity quantity, size_t at, struct moments *moments)
{
    for (int h = 0; h < acquire->surrogate[quantity]->nhyps; h++) {
        moments->mean[quantity][h] = field->mean[quantity][h][at];
        moments->var[quantity][h] = field->var[quantity][h][at];
    }
}

/* Keep the layouts whose throughput leaves a bound of FLOOR or more. */
static void field_cut(struct field *field, const struct se_acquire *acquire, double floor)
{
    size_t kept = 0;

    se_score_bounds(field->bound, acquire, field->row, field->n, field->mean[SE_THROUGHPUT],
                    field->var[SE_THROUGHPUT]);
    for (size_t i = 0; i < field->n; i++) {
        if (field->bound[i] < floor)
            continue;
        field->bound[kept] = field->bound[i];
        field->row[kept] = field->row[i];
        for (int h = 0; h < acquire->surrogate[SE_THROUGHPUT]->nhyps; h++) {
            field->mean[SE_THROUGHPUT][h][kept] = field->mean[SE_THROUGHPUT][h][i];
            field->var[SE_THROUGHPUT][h][kept] = field->var[SE_THROUGHPUT][h][i];
        }
        kept++;
    }
    field->n = kept;
}

static void field_init(struct field *field, const struct se_acquire *acquire)
{
    memset(field, 0, sizeof(*field));
    field->row = mem_alloc((acquire->table->n + 1) * sizeof(*field->row));
    field->bound = mem_alloc((acquire->table->n + 1) * sizeof(*field->bound));
    for (size_t i = 0; i < acquire->table->n; i++)
        if (!acquire->closed[i])
            field->row[field->n++] = (uint32_t)i;
}

/* The COUNT largest of list go to its front, in no order: Hoare's selection. The pivot is the lower
 * middle, so that neither part is ever the whole. */
static void largest_first(struct bound *list, size_t listed, size_t count)
{
    size_t lo = 0, hi = listed;

    assert(count <= listed);
    while (hi - lo > 1 && count > lo && count < hi) {
        struct bound pivot = list[lo + (hi - lo - 1) / 2];
        size_t i = lo, j = hi - 1;

        for (;;) {
            while (by_bound(&list[i], &pivot) < 0)
                i++;
            while (by_bound(&list[j], &pivot) > 0)
                j--;
            if (i >= j)
                break;
            struct bound t = list[i];

            list[i++] = list[j];
            list[j--] = t;
        }
        if (count <= j + 1)
            hi = j + 1;
        else
            lo = j + 1;
    }
}

/* A first floor under the answer: the best exact score among what was best at the last time, or
 * among the best means that are thought to fit. */
static double first_floor(const struct se_acquire *acquire, struct scans *scans,
                          const struct field *field)
{
    struct bound AUTO_FREE *list = NULL;
    double best = -INFINITY;
    size_t hot = 0, count;

    for (size_t i = 0; i < acquire->nhot; i++) {
        struct se_candidate candidate;
        struct moments m;

        if (acquire->closed[acquire->hot[i]])
            continue;
        hot++;
        if (exact(&candidate, acquire, scans, acquire->hot[i], &m, -INFINITY))
            best = fmax(best, candidate.score);
    }
    if (hot > 0)
        return best;
    list = mem_alloc((field->n + 1) * sizeof(*list));
    for (size_t i = 0; i < field->n; i++) {
        struct moments m;

        moments_at(field, acquire, SE_THROUGHPUT, i, &m);
        list[i].tie = tie_of(acquire, field->row[i]);
        list[i].at = (uint32_t)i;
        list[i].score = (float)(mix(acquire->surrogate[SE_THROUGHPUT], m.mean[SE_THROUGHPUT]) -
                                4.0 * fmax(acquire->table->prior[SE_MEMORY][field->row[i]], 0.0));
    }
    count = field->n < BATCH ? field->n : BATCH;
    largest_first(list, field->n, count);
    for (size_t i = 0; i < count; i++) {
        struct se_candidate candidate;
        struct moments m;

        if (exact(&candidate, acquire, scans, field->row[list[i].at], &m, -INFINITY))
            best = fmax(best, candidate.score);
    }
    return best;
}

/* Candidates that are looked at side by side. The floor under them stays as it is meanwhile, so
 * that threads change no result. */
struct round {
    const struct se_acquire *a;
    const struct scans *s;
    const struct field *f;
    const struct bound *list;
    double floor;
    struct se_candidate *candidate; /* one each, exact */
    bool *reached;                  /* if it may reach the floor */
};

static void round_part(void *context, size_t from, size_t to)
{
    const struct round *r = context;
    struct scans own;

    scans_share(&own, r->s);
    for (size_t i = from; i < to; i++) {
        size_t at = r->list[i].at;
        struct moments m;

        moments_at(r->f, r->a, SE_THROUGHPUT, at, &m);
        moments_at(r->f, r->a, SE_MEMORY, at, &m);
        r->reached[i] = exact(&r->candidate[i], r->a, &own, r->f->row[at], &m, r->floor);
    }
    scans_done(&own);
}

/* Append the exact scores of the COUNT layouts of LIST that may reach FLOOR to RET; the best of
 * them, or FLOOR. */
static double settle_round(struct se_found *ret, const struct se_acquire *acquire,
                           const struct scans *scans, const struct field *field,
                           const struct bound *list, size_t count, double floor)
{
    struct se_candidate AUTO_FREE *candidate = mem_alloc((count + 1) * sizeof(*candidate));
    bool AUTO_FREE *reached = mem_alloc((count + 1) * sizeof(*reached));
    struct round r = {.a = acquire,
                      .s = scans,
                      .f = field,
                      .list = list,
                      .floor = floor,
                      .candidate = candidate,
                      .reached = reached};
    double best = floor;

    se_parallel(count, WORTH_A_THREAD, round_part, &r);
    for (size_t i = 0; i < count && ret->count < SE_MAX_EXACT; i++) {
        if (!reached[i])
            continue;
        best = fmax(best, candidate[i].score);
        ret->candidate[ret->count++] = candidate[i];
    }
    ret->proved = ret->count < SE_MAX_EXACT;
    return best;
}

/* Move the bounds of LIST that reach FLOOR to its front; how many. */
static size_t reaching(struct bound *list, size_t count, double floor)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (list[i].score >= floor)
            list[kept++] = list[i];
    return kept;
}

/*
 * Exact scores of the AT_LEAST best bounds, whatever they are (they are also what the regret is
 * sampled from), then of all that may still be the best, best bounds first: in rounds that grow,
 * since the floor rises most at first.
 */
static void settle(struct se_found *ret, const struct se_acquire *acquire, struct scans *scans,
                   const struct field *field, double best, size_t at_least)
{
    struct bound *all = mem_alloc((field->n + 1) * sizeof(*all)), *list = all;
    size_t first = field->n < at_least ? field->n : at_least, left, seen;

    for (size_t i = 0; i < field->n; i++) {
        struct moments m;

        moments_at(field, acquire, SE_MEMORY, i, &m);
        list[i].score =
            nextafterf((float)(field->bound[i] + log_fits_bound(acquire, &m)), INFINITY);
        list[i].tie = tie_of(acquire, field->row[i]);
        list[i].at = (uint32_t)i;
    }
    ret->candidate = mem_alloc(((field->n < SE_MAX_EXACT ? field->n : SE_MAX_EXACT) + 1) *
                               sizeof(*ret->candidate));
    largest_first(list, field->n, first);
    best = fmax(best, settle_round(ret, acquire, scans, field, list, first, -INFINITY));
    list += first;
    left = field->n - first;
    for (size_t round = FIRST_ROUND; left > 0 && ret->proved; list += seen, left -= seen) {
        left = reaching(list, left, best);
        seen = left < round ? left : round;
        largest_first(list, left, seen);
        best = settle_round(ret, acquire, scans, field, list, seen, best);
        round = round < LAST_ROUND ? 2 * round : round;
    }
    free(all);
}

void se_acquire(struct se_found *ret, const struct se_acquire *acquire, size_t at_least)
{
    struct field f;
    struct scans s;
    double best, slack;

    assert(acquire->widen >= 1.0 && acquire->nhot <= acquire->table->n);
    memset(ret, 0, sizeof(*ret));
    field_init(&f, acquire);
    ret->open = f.n;
    if (ret->open > 0) {
        scans_init(&s, acquire);
        field_sweep(&f, acquire, SE_THROUGHPUT);
        best = first_floor(acquire, &s, &f);
        slack = f.n <= SMALL ? SLACK : 0.0;
        field_cut(&f, acquire, best - slack);
        for (int m = 2 * SE_USUAL_MEMBERS; acquire->improving && m <= SE_MAX_SUBSET && f.n > MANY;
             m *= 2) {
            field_tighten(&f, acquire, m);
            field_cut(&f, acquire, best - slack);
        }
        field_sweep(&f, acquire, SE_MEMORY);
        settle(ret, acquire, &s, &f, best, at_least);
        qsort(ret->candidate, ret->count, sizeof(*ret->candidate), by_score);
        scans_done(&s);
    }
    field_done(&f);
}
