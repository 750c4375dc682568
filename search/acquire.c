/* Maximising the acquisition over the whole table by a bound; the formulas are in acquire.h. */
#include "search/acquire.h"

#include <limits.h>
#include <math.h>

#include "base/base.h"
#include "search/crash.h"
#include "search/num.h"
#include "search/scan.h"

enum { BATCH = 64 };
static const double SLACK = 1.0;

/* What se_scan() says of every layout. */
struct field {
    float *mean[SE_QUANTITIES][SE_MAX_HYPS];
    float *var[SE_QUANTITIES][SE_MAX_HYPS];
};

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
    ret->score = ret->log_ei + log(fmax(ret->p_fits, 1e-300));
    if (a->improving)
        ret->score -= log_cost(a, i, mix(a->belief[SE_THROUGHPUT], m->mean[SE_THROUGHPUT]));
}

/* A bound on the score from bounds on the moments; that it fits is looked at only where the rest
 * reaches FLOOR. */
static double bound_of(const struct se_acquire *a, size_t i, const struct moments *m, double floor)
{
    double score = log_improvement(a, m->mean[SE_THROUGHPUT], m->var[SE_THROUGHPUT]);

    if (a->improving)
        score -= log_cost(a, i, mix(a->belief[SE_THROUGHPUT], m->mean[SE_THROUGHPUT]));
    if (score < floor)
        return score;
    return score +
           log(fmax(p_fits(a->belief[SE_MEMORY], m->mean[SE_MEMORY], m->var[SE_MEMORY], true),
                    1e-300));
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

/* Observations that a variance is worked out for, before the bound is looked at again. */
static const int STAGES[] = {16, 48, 128, INT_MAX};

struct scans {
    struct se_scan *of[SE_QUANTITIES][SE_MAX_HYPS];
};

/*
 * Exact moments of one layout, unless a bound on its score falls below FLOOR on the way: then
 * false. Throughput first, as it rules out more. M holds what the scan of all said.
 */
static bool exact(const struct se_acquire *a, struct scans *s, size_t index, struct moments *m,
                  double floor, struct se_choice *ret)
{
    for (int q = 0; q < SE_QUANTITIES; q++) {
        bool done = false;

        for (int h = 0; h < a->belief[q]->nhyps; h++)
            se_scan_open(s->of[q][h], index);
        for (size_t k = 0; k < ARRAY_LEN(STAGES) && !done; k++) {
            for (int h = 0; h < a->belief[q]->nhyps; h++)
                m->var[q][h] = fmin(m->var[q][h], se_scan_tighten(s->of[q][h], STAGES[k], &done));
            if (bound_of(a, index, m, floor) < floor)
                return false;
        }
    }
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (int h = 0; h < a->belief[q]->nhyps; h++)
            m->mean[q][h] = se_scan_mean(s->of[q][h], &m->var[q][h]);
    finish(a, index, m, ret);
    return true;
}

/* ---- bounds -------------------------------------------------------------------------------------
 */

struct bound {
    float score;
    uint32_t index;
};

static int by_bound(const void *x, const void *y)
{
    const struct bound *a = x, *b = y;

    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int by_score(const void *x, const void *y)
{
    const struct se_choice *a = x, *b = y;

    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void field_init(struct field *f, struct scans *s, const struct se_acquire *a)
{
    memset(f, 0, sizeof(*f));
    memset(s, 0, sizeof(*s));
    for (int q = 0; q < SE_QUANTITIES; q++) {
        for (int h = 0; h < a->belief[q]->nhyps; h++) {
            s->of[q][h] = se_scan_new(a->belief[q], &a->belief[q]->hyp[h], a->table);
            f->mean[q][h] = mem_alloc(a->table->n * sizeof(float));
            f->var[q][h] = mem_alloc(a->table->n * sizeof(float));
            se_scan_all(s->of[q][h], f->mean[q][h], f->var[q][h]);
        }
    }
}

static void field_done(struct field *f, struct scans *s)
{
    for (int q = 0; q < SE_QUANTITIES; q++) {
        for (int h = 0; h < SE_MAX_HYPS; h++) {
            free(f->mean[q][h]);
            free(f->var[q][h]);
            se_scan_free(s->of[q][h]);
        }
    }
}

static void moments_at(const struct field *f, const struct se_acquire *a, size_t i,
                       struct moments *m)
{
    for (int q = 0; q < SE_QUANTITIES; q++) {
        for (int h = 0; h < a->belief[q]->nhyps; h++) {
            m->mean[q][h] = f->mean[q][h][i];
            m->var[q][h] = f->var[q][h][i];
        }
    }
}

/*
 * A looser bound that needs no transcendental function but one exp: below the incumbent, log EI_h
 * <= log sigma - z^2/2 - log sqrt(2 pi), with the largest sigma of all layouts; and cost is at
 * least that of an instant step.
 */
static bool hopeless(const struct se_acquire *a, const struct moments *m, double log_top_sd,
                     double floor)
{
    const struct se_belief *b = a->belief[SE_THROUGHPUT];

    for (int h = 0; h < b->nhyps; h++) {
        double d = m->mean[SE_THROUGHPUT][h] - a->incumbent;
        double z2 = d * d / (a->widen * a->widen * fmax(m->var[SE_THROUGHPUT][h], 1e-14));

        if (b->hyp[h].weight > 0.0 &&
            (d >= 0.0 || log_top_sd - 0.5 * z2 - SE_LOG_SQRT_2PI >= floor))
            return false;
    }
    return true;
}

/* Bounds of all open layouts that are at least FLOOR, best first; the caller frees. */
static struct bound *bounds(const struct se_acquire *a, const struct field *f, double floor,
                            size_t *ret_count)
{
    const struct se_belief *b = a->belief[SE_THROUGHPUT];
    struct bound *list = mem_alloc((a->table->n + 1) * sizeof(*list));
    size_t count = 0;
    double top_var = 0.0, log_top_sd, log_start = log(a->start_s);

    for (int h = 0; h < b->nhyps; h++)
        for (size_t i = 0; i < a->table->n; i++)
            top_var = fmax(top_var, f->var[SE_THROUGHPUT][h][i]);
    log_top_sd = log(a->widen) + 0.5 * log(fmax(top_var, 1e-14));
    for (size_t i = 0; i < a->table->n; i++) {
        struct moments m;
        double score;

        if (a->closed[i])
            continue;
        moments_at(f, a, i, &m);
        if (a->improving && hopeless(a, &m, log_top_sd, floor + a->table->log_world[i] + log_start))
            continue;
        score = bound_of(a, i, &m, floor);
        if (score >= floor)
            list[count++] = (struct bound){nextafterf((float)score, INFINITY), (uint32_t)i};
    }
    qsort(list, count, sizeof(*list), by_bound);
    *ret_count = count;
    return list;
}

/* The best exact score among the layouts with the best means: a floor under the answer. */
static double first_floor(const struct se_acquire *a, struct scans *s, const struct field *f)
{
    struct bound top[BATCH];
    struct se_choice choice;
    size_t count = 0;
    double best = -INFINITY;

    for (size_t i = 0; i < a->table->n; i++) {
        struct moments m;
        struct bound b;
        size_t at;

        if (a->closed[i])
            continue;
        moments_at(f, a, i, &m);
        b.index = (uint32_t)i;
        b.score = (float)(mix(a->belief[SE_THROUGHPUT], m.mean[SE_THROUGHPUT]) -
                          4.0 * fmax(mix(a->belief[SE_MEMORY], m.mean[SE_MEMORY]), 0.0));
        if (count == BATCH && b.score <= top[BATCH - 1].score)
            continue;
        at = count < BATCH ? count++ : BATCH - 1;
        for (; at > 0 && top[at - 1].score < b.score; at--)
            top[at] = top[at - 1];
        top[at] = b;
    }
    for (size_t i = 0; i < count; i++) {
        struct moments m;

        moments_at(f, a, top[i].index, &m);
        if (exact(a, s, top[i].index, &m, best, &choice))
            best = fmax(best, choice.score);
    }
    return best;
}

/* Exact scores of the COUNT layouts of LIST, best bound first, as long as they can still matter. */
static void settle(const struct se_acquire *a, struct scans *s, const struct field *f,
                   const struct bound *list, size_t count, double best, size_t at_least,
                   struct se_found *ret)
{
    size_t seen = 0;

    ret->choice =
        mem_alloc(((count < SE_MAX_EXACT ? count : SE_MAX_EXACT) + 1) * sizeof(*ret->choice));
    for (; seen < count && ret->count < SE_MAX_EXACT; seen++) {
        /* The first ones are wanted whatever they score; after them, only what may be the best. */
        double floor = ret->count < at_least ? -INFINITY : best;
        struct moments m;

        if (list[seen].score < floor)
            break;
        moments_at(f, a, list[seen].index, &m);
        if (exact(a, s, list[seen].index, &m, floor, &ret->choice[ret->count]))
            best = fmax(best, ret->choice[ret->count++].score);
    }
    ret->proved = seen == count || list[seen].score < best;
}

void se_acquire(const struct se_acquire *a, size_t at_least, struct se_found *ret)
{
    struct field f;
    struct scans s;
    struct bound *list;
    size_t count;
    double best;

    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < a->table->n; i++)
        ret->open += !a->closed[i];
    if (ret->open == 0)
        return;
    field_init(&f, &s, a);
    best = first_floor(a, &s, &f);
    /* Candidates for the later sampling lie a little under the floor, so keep some of those too. */
    list = bounds(a, &f, best - SLACK, &count);
    settle(a, &s, &f, list, count, best, at_least, ret);
    field_done(&f, &s);
    free(list);
    qsort(ret->choice, ret->count, sizeof(*ret->choice), by_score);
}
