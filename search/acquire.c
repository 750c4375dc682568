/* Maximising the acquisition over the whole table by a bound; the formulas are in acquire.h. */
#include "search/acquire.h"

#include <limits.h>
#include <math.h>

#include "base/base.h"
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

/* ---- the score ----------------------------------------------------------------------------------
 */

static double mix(const struct se_belief *b, const double *x)
{
    double s = 0.0;

    for (int h = 0; h < b->nhyps; h++)
        s += b->hyp[h].weight * x[h];
    return s;
}

static double log_improvement(const struct se_acquire *a, const double *mean, const double *var)
{
    const struct se_belief *b = a->belief[SE_THROUGHPUT];
    double part[SE_MAX_HYPS], top = -INFINITY, sum = 0.0;

    if (!a->improving)
        return mix(b, mean);
    for (int h = 0; h < b->nhyps; h++) {
        double sd = a->widen * sqrt(fmax(var[h], 1e-14));

        part[h] = b->hyp[h].weight > 0.0
                      ? log(b->hyp[h].weight) + log(sd) + se_log_ei((mean[h] - a->incumbent) / sd)
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
static double p_fits(const struct se_belief *b, const double *mean, const double *var, bool bound)
{
    double p = 0.0;

    for (int h = 0; h < b->nhyps; h++) {
        if (bound && mean[h] < 0.0)
            p += b->hyp[h].weight;
        else
            p += b->hyp[h].weight * se_norm_cdf(-mean[h] / sqrt(var[h] + b->hyp[h].gp.kern.noise2));
    }
    return fmin(p, 1.0);
}

static double log_cost(const struct se_acquire *a, size_t i, double log_throughput)
{
    double log_world = a->table->log_world[i];
    double seconds = exp(a->step_log_tokens - log_throughput - (a->per_device ? log_world : 0.0));

    return log_world + log(a->start_s + a->steps * seconds);
}

/* Exact score from exact moments. */
static void combine(const struct se_acquire *a, size_t i, const struct moments *m,
                    struct se_choice *ret)
{
    ret->index = i;
    ret->log_ei = log_improvement(a, m->mean[SE_THROUGHPUT], m->var[SE_THROUGHPUT]);
    ret->p_fits = p_fits(a->belief[SE_MEMORY], m->mean[SE_MEMORY], m->var[SE_MEMORY], false) *
                  se_crash_runs(a->crash, a->table, i);
    ret->score = ret->log_ei + CAUTION * log(fmax(ret->p_fits, 1e-150));
    if (a->improving)
        ret->score -= log_cost(a, i, mix(a->belief[SE_THROUGHPUT], m->mean[SE_THROUGHPUT]));
}

/* Bound on the part of the score that throughput decides. */
static double bound_without_memory(const struct se_acquire *a, size_t i, const struct moments *m)
{
    double score = log_improvement(a, m->mean[SE_THROUGHPUT], m->var[SE_THROUGHPUT]);

    if (a->improving)
        score -= log_cost(a, i, mix(a->belief[SE_THROUGHPUT], m->mean[SE_THROUGHPUT]));
    return score;
}

static double log_fits_bound(const struct se_acquire *a, const struct moments *m)
{
    return CAUTION *
           log(fmax(p_fits(a->belief[SE_MEMORY], m->mean[SE_MEMORY], m->var[SE_MEMORY], true),
                    1e-150));
}

static void mixture(const struct se_belief *b, const double *mean, const double *var,
                    double *ret_mean, double *ret_var)
{
    *ret_mean = mix(b, mean);
    *ret_var = 0.0;
    for (int h = 0; h < b->nhyps; h++)
        *ret_var += b->hyp[h].weight * (var[h] + (mean[h] - *ret_mean) * (mean[h] - *ret_mean));
}

static void finish(const struct se_acquire *a, size_t i, const struct moments *m,
                   struct se_choice *ret)
{
    combine(a, i, m, ret);
    for (int q = 0; q < SE_QUANTITIES; q++)
        mixture(a->belief[q], m->mean[q], m->var[q], &ret->mean[q], &ret->var[q]);
}

/* ---- exact posteriors ---------------------------------------------------------------------------
 */

void se_acquire_one(const struct se_acquire *a, size_t index, struct se_choice *ret)
{
    struct moments m;

    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < a->belief[q]->nhyps; h++)
            se_hyp_predict(a->belief[q], &a->belief[q]->hyp[h], a->table, index, &m.mean[q][h],
                           &m.var[q][h]);
    finish(a, index, &m, ret);
}

double se_acquire_quantile(const struct se_acquire *a, size_t index, enum se_quantity q, double p)
{
    const struct se_belief *b = a->belief[q];
    double weight[SE_MAX_HYPS], mean[SE_MAX_HYPS], sd[SE_MAX_HYPS];

    for (int h = 0; h < b->nhyps; h++) {
        se_hyp_predict(b, &b->hyp[h], a->table, index, &mean[h], &sd[h]);
        sd[h] = sqrt(sd[h]);
        weight[h] = b->hyp[h].weight;
    }
    return se_mixture_quantile(weight, mean, sd, b->nhyps, p);
}

/* Observations that a variance is worked out for, before the bound is looked at again. */
static const int STAGES[] = {16, 48, 128, INT_MAX};

struct scans {
    struct se_scan *of[SE_QUANTITIES][SE_MAX_HYPS];
};

static void open_scans(const struct se_acquire *a, struct scans *s, enum se_quantity q,
                       size_t index)
{
    for (int h = 0; h < a->belief[q]->nhyps; h++)
        se_scan_open(s->of[q][h], index);
}

/* Does hypothesis H count at all? A sceptical ask leaves one out. */
static bool heard(const struct se_acquire *a, enum se_quantity q, int h)
{
    return a->belief[q]->hyp[h].weight > 0.0;
}

/* Tighten the variances of quantity Q at INDEX as far as the bound on its score reaches FLOOR; REST
 * is what the other quantity adds to that. */
static bool tighten(const struct se_acquire *a, struct scans *s, enum se_quantity q, size_t index,
                    struct moments *m, double rest, double floor)
{
    bool done = false;

    for (size_t k = 0; k < ARRAY_LEN(STAGES) && !done; k++) {
        for (int h = 0; h < a->belief[q]->nhyps; h++)
            if (heard(a, q, h))
                m->var[q][h] = fmin(m->var[q][h], se_scan_tighten(s->of[q][h], STAGES[k], &done));
        if (rest + (q == SE_THROUGHPUT ? bound_without_memory(a, index, m) : log_fits_bound(a, m)) <
            floor)
            return false;
    }
    return true;
}

/*
 * Exact moments of one layout, unless a bound on its score falls below FLOOR on the way: then
 * false. Throughput first, as it rules out more. M holds what the sweeps said; nothing is read of
 * it where FLOOR is -INFINITY.
 */
static bool exact(const struct se_acquire *a, struct scans *s, size_t index, struct moments *m,
                  double floor, struct se_choice *ret)
{
    open_scans(a, s, SE_THROUGHPUT, index);
    if (floor > -INFINITY && !tighten(a, s, SE_THROUGHPUT, index, m, log_fits_bound(a, m), floor))
        return false;
    open_scans(a, s, SE_MEMORY, index);
    if (floor > -INFINITY &&
        !tighten(a, s, SE_MEMORY, index, m, bound_without_memory(a, index, m), floor))
        return false;
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < a->belief[q]->nhyps; h++)
            m->mean[q][h] = se_scan_mean(s->of[q][h], &m->var[q][h]);
    finish(a, index, m, ret);
    return true;
}

/* ---- bounds -------------------------------------------------------------------------------------
 */

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
    uint32_t at; /* place in the field */
};

static int by_bound(const void *x, const void *y)
{
    const struct bound *a = x, *b = y;

    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static int by_score(const void *x, const void *y)
{
    const struct se_choice *a = x, *b = y;

    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
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
    const struct se_belief *b = s->a->belief[s->q];

    for (size_t h = from; h < to; h++)
        if (heard(s->a, s->q, (int)h))
            s->of[h] = se_sweep_new(b, &b->hyp[h], s->a->table, s->f->row, s->f->n, s->members);
}

static void sweeps_init(struct sweeps *s, const struct field *f, const struct se_acquire *a,
                        enum se_quantity q, int members)
{
    *s = (struct sweeps){.f = f, .a = a, .q = q, .members = members};
    se_parallel((size_t)a->belief[q]->nhyps, 1, make_sweeps, s);
}

static void sweeps_done(struct sweeps *s)
{
    for (int h = 0; h < SE_MAX_HYPS; h++)
        se_sweep_free(s->of[h]);
}

static void field_sweep(struct field *f, const struct se_acquire *a, enum se_quantity q)
{
    struct sweeps s;

    sweeps_init(&s, f, a, q, SE_USUAL_MEMBERS);
    for (int h = 0; h < a->belief[q]->nhyps; h++) {
        f->mean[q][h] = mem_alloc((f->n + 1) * sizeof(float));
        f->var[q][h] = mem_alloc((f->n + 1) * sizeof(float));
        if (s.of[h])
            se_sweep_run(s.of[h], f->mean[q][h], f->var[q][h]);
    }
    sweeps_done(&s);
}

/* Bounds on the variances of throughput by MEMBERS observations, for the layouts that are left. */
static void field_tighten(struct field *f, const struct se_acquire *a, int members)
{
    float AUTO_FREE *var = mem_alloc((f->n + 1) * sizeof(float));
    struct sweeps s;

    sweeps_init(&s, f, a, SE_THROUGHPUT, members);
    for (int h = 0; h < a->belief[SE_THROUGHPUT]->nhyps; h++) {
        float *known = f->var[SE_THROUGHPUT][h];

        if (!s.of[h])
            continue;
        se_sweep_run(s.of[h], NULL, var);
        for (size_t i = 0; i < f->n; i++)
            known[i] = fminf(known[i], var[i]);
    }
    sweeps_done(&s);
}

static void field_done(struct field *f)
{
    for (int q = 0; q < SE_QUANTITIES; q++) {
        for (int h = 0; h < SE_MAX_HYPS; h++) {
            free(f->mean[q][h]);
            free(f->var[q][h]);
        }
    }
    free(f->row);
    free(f->bound);
}

static void scans_init(struct scans *s, const struct se_acquire *a)
{
    memset(s, 0, sizeof(*s));
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < a->belief[q]->nhyps; h++)
            s->of[q][h] = se_scan_new(a->belief[q], &a->belief[q]->hyp[h], a->table);
}

static void scans_twin(struct scans *s, const struct scans *of)
{
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < SE_MAX_HYPS; h++)
            s->of[q][h] = of->of[q][h] ? se_scan_twin(of->of[q][h]) : NULL;
}

static void scans_done(struct scans *s)
{
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < SE_MAX_HYPS; h++)
            se_scan_free(s->of[q][h]);
}

static void moments_at(const struct field *f, const struct se_acquire *a, enum se_quantity q,
                       size_t at, struct moments *m)
{
    for (int h = 0; h < a->belief[q]->nhyps; h++) {
        m->mean[q][h] = f->mean[q][h][at];
        m->var[q][h] = f->var[q][h][at];
    }
}

/* Keep the layouts whose throughput leaves a bound of FLOOR or more. */
static void field_cut(struct field *f, const struct se_acquire *a, double floor)
{
    size_t kept = 0;

    se_score_bounds(a, f->row, f->n, f->mean[SE_THROUGHPUT], f->var[SE_THROUGHPUT], f->bound);
    for (size_t i = 0; i < f->n; i++) {
        if (f->bound[i] < floor)
            continue;
        f->bound[kept] = f->bound[i];
        f->row[kept] = f->row[i];
        for (int h = 0; h < a->belief[SE_THROUGHPUT]->nhyps; h++) {
            f->mean[SE_THROUGHPUT][h][kept] = f->mean[SE_THROUGHPUT][h][i];
            f->var[SE_THROUGHPUT][h][kept] = f->var[SE_THROUGHPUT][h][i];
        }
        kept++;
    }
    f->n = kept;
}

static void field_init(struct field *f, const struct se_acquire *a)
{
    memset(f, 0, sizeof(*f));
    f->row = mem_alloc((a->table->n + 1) * sizeof(*f->row));
    f->bound = mem_alloc((a->table->n + 1) * sizeof(*f->bound));
    for (size_t i = 0; i < a->table->n; i++)
        if (!a->closed[i])
            f->row[f->n++] = (uint32_t)i;
}

/* The COUNT largest of list go to its front, in no order: Hoare's selection. The pivot is the lower
 * middle, so that neither part is ever the whole. */
static void largest_first(struct bound *list, size_t n, size_t count)
{
    size_t lo = 0, hi = n;

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
static double first_floor(const struct se_acquire *a, struct scans *s, const struct field *f)
{
    struct bound AUTO_FREE *list = NULL;
    double best = -INFINITY;
    size_t hot = 0, count;

    for (size_t i = 0; i < a->nhot; i++) {
        struct se_choice choice;
        struct moments m;

        if (a->closed[a->hot[i]])
            continue;
        hot++;
        if (exact(a, s, a->hot[i], &m, -INFINITY, &choice))
            best = fmax(best, choice.score);
    }
    if (hot > 0)
        return best;
    list = mem_alloc((f->n + 1) * sizeof(*list));
    for (size_t i = 0; i < f->n; i++) {
        struct moments m;

        moments_at(f, a, SE_THROUGHPUT, i, &m);
        list[i].at = (uint32_t)i;
        list[i].score = (float)(mix(a->belief[SE_THROUGHPUT], m.mean[SE_THROUGHPUT]) -
                                4.0 * fmax(a->table->prior[SE_MEMORY][f->row[i]], 0.0));
    }
    count = f->n < BATCH ? f->n : BATCH;
    largest_first(list, f->n, count);
    for (size_t i = 0; i < count; i++) {
        struct se_choice choice;
        struct moments m;

        if (exact(a, s, f->row[list[i].at], &m, -INFINITY, &choice))
            best = fmax(best, choice.score);
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
    struct se_choice *choice; /* one each, exact */
    bool *reached;            /* if it may reach the floor */
};

static void round_part(void *context, size_t from, size_t to)
{
    const struct round *r = context;
    struct scans own;

    scans_twin(&own, r->s);
    for (size_t i = from; i < to; i++) {
        size_t at = r->list[i].at;
        struct moments m;

        moments_at(r->f, r->a, SE_THROUGHPUT, at, &m);
        moments_at(r->f, r->a, SE_MEMORY, at, &m);
        r->reached[i] = exact(r->a, &own, r->f->row[at], &m, r->floor, &r->choice[i]);
    }
    scans_done(&own);
}

/* Append the exact scores of the N layouts of LIST that may reach FLOOR to RET; the best of them,
 * or FLOOR. */
static double settle_round(const struct se_acquire *a, const struct scans *s, const struct field *f,
                           const struct bound *list, size_t n, double floor, struct se_found *ret)
{
    struct se_choice AUTO_FREE *choice = mem_alloc((n + 1) * sizeof(*choice));
    bool AUTO_FREE *reached = mem_alloc((n + 1) * sizeof(*reached));
    struct round r = {
        .a = a, .s = s, .f = f, .list = list, .floor = floor, .choice = choice, .reached = reached};
    double best = floor;

    se_parallel(n, WORTH_A_THREAD, round_part, &r);
    for (size_t i = 0; i < n && ret->count < SE_MAX_EXACT; i++) {
        if (!reached[i])
            continue;
        best = fmax(best, choice[i].score);
        ret->choice[ret->count++] = choice[i];
    }
    ret->proved = ret->count < SE_MAX_EXACT;
    return best;
}

/* Move the bounds of LIST that reach FLOOR to its front; how many. */
static size_t reaching(struct bound *list, size_t n, double floor)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        if (list[i].score >= floor)
            list[kept++] = list[i];
    return kept;
}

/*
 * Exact scores of the AT_LEAST best bounds, whatever they are (they are also what the regret is
 * sampled from), then of all that may still be the best, best bounds first: in rounds that grow,
 * since the floor rises most at first.
 */
static void settle(const struct se_acquire *a, struct scans *s, const struct field *f, double best,
                   size_t at_least, struct se_found *ret)
{
    struct bound *all = mem_alloc((f->n + 1) * sizeof(*all)), *list = all;
    size_t first = f->n < at_least ? f->n : at_least, left, seen;

    for (size_t i = 0; i < f->n; i++) {
        struct moments m;

        moments_at(f, a, SE_MEMORY, i, &m);
        list[i].score = nextafterf((float)(f->bound[i] + log_fits_bound(a, &m)), INFINITY);
        list[i].at = (uint32_t)i;
    }
    ret->choice =
        mem_alloc(((f->n < SE_MAX_EXACT ? f->n : SE_MAX_EXACT) + 1) * sizeof(*ret->choice));
    largest_first(list, f->n, first);
    best = fmax(best, settle_round(a, s, f, list, first, -INFINITY, ret));
    list += first;
    left = f->n - first;
    for (size_t round = FIRST_ROUND; left > 0 && ret->proved; list += seen, left -= seen) {
        left = reaching(list, left, best);
        seen = left < round ? left : round;
        largest_first(list, left, seen);
        best = settle_round(a, s, f, list, seen, best, ret);
        round = round < LAST_ROUND ? 2 * round : round;
    }
    free(all);
}

void se_acquire(const struct se_acquire *a, size_t at_least, struct se_found *ret)
{
    struct field f;
    struct scans s;
    double best, slack;

    memset(ret, 0, sizeof(*ret));
    field_init(&f, a);
    ret->open = f.n;
    if (ret->open > 0) {
        scans_init(&s, a);
        field_sweep(&f, a, SE_THROUGHPUT);
        best = first_floor(a, &s, &f);
        slack = f.n <= SMALL ? SLACK : 0.0;
        field_cut(&f, a, best - slack);
        for (int m = 2 * SE_USUAL_MEMBERS; a->improving && m <= SE_MAX_SUBSET && f.n > MANY;
             m *= 2) {
            field_tighten(&f, a, m);
            field_cut(&f, a, best - slack);
        }
        field_sweep(&f, a, SE_MEMORY);
        settle(a, &s, &f, best, at_least, ret);
        qsort(ret->choice, ret->count, sizeof(*ret->choice), by_score);
        scans_done(&s);
    }
    field_done(&f);
}
