/*
 * The constants of a stack by maximum a posteriori.
 *
 * Unknown are the logarithms x of the constants, with normal priors. Residuals are
 *
 *     (log predicted - log measured) / deviation       seconds, with tails: Student's t of NU
 *     the same                                         bytes
 *     a hinge on log needed - log capacity             a run that ran out of memory, or did not
 *     (x - log median) / width                         the prior
 *
 * and their sum of squares is least by Gauss-Newton steps with Marquardt's damping, derivatives by
 * differences. The deviations of runs are estimated in turn, with a prior worth DEGREES runs. The
 * posterior is the normal that the curvature at the optimum gives.
 */
#include "plan/learn.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"
#include "plan/plan.h"

static const double NU = 4;            /* degrees of freedom of the tails */
static const double NOISE = 0.08,      /* of seconds: repeats and what the model leaves out */
    MEMORY_NOISE = 0.06, HINGE = 0.04; /* of bytes; of the bound of what fits */
static const double DEGREES = 4;
static const double LEAST = 1e-3;            /* a share in the logarithm */
static const double STEP = 1e-3;             /* of differences */
static const double WIDE = 0.7, FAR_OFF = 3; /* deviation of a constant; in deviations */
enum { ROUNDS = 60, TURNS = 4 };

struct fit {
    const struct pl_sample *sample;
    size_t n;
    struct pl_trainer trainer; /* with the constants of x */
    double center[PL_CONSTANTS], width[PL_CONSTANTS];
    double noise, memory_noise;
};

/* Residuals of seconds, then of bytes or capacity. */
struct residual {
    double time, memory;
    bool has_time, has_memory, hinge;
};

void pl_sample_predict(double *ret_seconds, double *ret_bytes, const struct pl_trainer *trainer,
                       const struct pl_sample *sample)
{
    struct pl_trainer runs = sample->runs ? *sample->runs : *trainer;
    struct pl_problem problem = {sample->model, sample->cluster, sample->workload, &runs};

    runs.stack = trainer->stack;
    if (ret_seconds) {
        struct pl_cost cost;

        pl_cost(&cost, &problem, &sample->layout);
        *ret_seconds = cost.total;
    }
    if (ret_bytes) {
        struct pl_memory memory;

        if (sample->first_rank)
            pl_memory_rank(&memory, &problem, &sample->layout, 0);
        else
            pl_memory_worst(&memory, &problem, &sample->layout);
        *ret_bytes = sample->allocator ? pl_memory_allocator(&memory, &runs) : memory.total;
    }
}

static void set_constants(struct fit *fit, const double *x)
{
    for (int i = 0; i < PL_CONSTANTS; i++) {
        const struct pl_constant_name *name = &pl_constant_names[i];

        *pl_constant(&fit->trainer.stack.median, name) =
            fmin(fmax(exp(x[i]), name->min), name->max);
    }
}

static void residuals(struct residual *to, struct fit *fit, const double *x)
{
    set_constants(fit, x);
    for (size_t i = 0; i < fit->n; i++) {
        const struct pl_sample *s = &fit->sample[i];
        double seconds = 0, bytes = 0;

        to[i] = (struct residual){.has_time = s->seconds > 0, .has_memory = true};
        pl_sample_predict(to[i].has_time ? &seconds : NULL, &bytes, &fit->trainer, s);
        if (to[i].has_time)
            to[i].time = log(seconds / s->seconds);
        if (s->bytes > 0) {
            to[i].memory = log(bytes / s->bytes);
            continue;
        }
        to[i].hinge = true;
        to[i].memory = log(bytes / pl_memory_offered(s->cluster, 0));
        to[i].memory = s->oom ? fmin(to[i].memory - HINGE, 0) : fmax(to[i].memory + HINGE, 0);
    }
}

static double memory_scale(const struct fit *fit, const struct residual *r)
{
    return r->hinge ? HINGE : fit->memory_noise;
}

static double loss_of(const struct fit *fit, const struct residual *r, const double *x)
{
    double sum = 0;

    for (size_t i = 0; i < fit->n; i++) {
        double t = r[i].time / fit->noise, m = r[i].memory / memory_scale(fit, &r[i]);

        sum += (NU + 1) * log1p(t * t / NU) +
               (r[i].hinge ? 2 * (sqrt(1 + m * m) - 1) : (NU + 1) * log1p(m * m / NU));
    }
    for (int p = 0; p < PL_CONSTANTS; p++)
        sum += pow((x[p] - fit->center[p]) / fit->width[p], 2);
    return sum / 2;
}

/* Weights of squared residuals that stand for the tails. */
static double time_weight(const struct fit *fit, const struct residual *r)
{
    double t = r->time / fit->noise;

    return r->has_time ? (NU + 1) / (NU + t * t) / (fit->noise * fit->noise) : 0;
}

static double memory_weight(const struct fit *fit, const struct residual *r)
{
    double scale = memory_scale(fit, r), m = r->memory / scale;

    return (r->hinge ? 1 / sqrt(1 + m * m) : (NU + 1) / (NU + m * m)) / (scale * scale);
}

/* ---- a small symmetric system -------------------------------------------- */

struct matrix {
    double at[PL_CONSTANTS][PL_CONSTANTS];
};

/* Lower Cholesky factor in place; the matrix is positive by its prior part. */
static void factor(struct matrix *a)
{
    for (int j = 0; j < PL_CONSTANTS; j++) {
        for (int i = j; i < PL_CONSTANTS; i++) {
            double sum = a->at[i][j];

            for (int k = 0; k < j; k++)
                sum -= a->at[i][k] * a->at[j][k];
            a->at[i][j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / a->at[j][j];
        }
    }
}

static void solve(double *x, const struct matrix *lower)
{
    for (int i = 0; i < PL_CONSTANTS; i++) {
        for (int k = 0; k < i; k++)
            x[i] -= lower->at[i][k] * x[k];
        x[i] /= lower->at[i][i];
    }
    for (int i = PL_CONSTANTS - 1; i >= 0; i--) {
        for (int k = i + 1; k < PL_CONSTANTS; k++)
            x[i] -= lower->at[k][i] * x[k];
        x[i] /= lower->at[i][i];
    }
}

/* ---- steps --------------------------------------------------------------- */

/* Gauss-Newton's curvature and gradient at X, whose residuals are R. */
static void normal_equations(struct matrix *ret_curve, double *ret_gradient, struct fit *fit,
                             const double *x, const struct residual *r)
{
    AUTO_FREE struct residual *moved = mem_alloc((fit->n + 1) * sizeof(*moved));
    AUTO_FREE double *slope = mem_alloc((2 * fit->n + 1) * PL_CONSTANTS * sizeof(*slope));
    double at[PL_CONSTANTS];

    memcpy(at, x, sizeof(at));
    for (int p = 0; p < PL_CONSTANTS; p++) {
        at[p] = x[p] + STEP;
        residuals(moved, fit, at);
        at[p] = x[p];
        for (size_t i = 0; i < fit->n; i++) {
            slope[2 * i * PL_CONSTANTS + (size_t)p] = (moved[i].time - r[i].time) / STEP;
            slope[(2 * i + 1) * PL_CONSTANTS + (size_t)p] = (moved[i].memory - r[i].memory) / STEP;
        }
    }
    *ret_curve = (struct matrix){0};
    for (int p = 0; p < PL_CONSTANTS; p++) {
        double precision = 1 / (fit->width[p] * fit->width[p]);

        ret_curve->at[p][p] = precision;
        ret_gradient[p] = precision * (x[p] - fit->center[p]);
    }
    for (size_t i = 0; i < 2 * fit->n; i++) {
        const struct residual *one = &r[i / 2];
        const double *s = &slope[i * PL_CONSTANTS];
        double weight = i % 2 ? memory_weight(fit, one) : time_weight(fit, one);
        double value = i % 2 ? one->memory : one->time;

        for (int p = 0; p < PL_CONSTANTS; p++) {
            ret_gradient[p] += weight * s[p] * value;
            for (int q = 0; q < PL_CONSTANTS; q++)
                ret_curve->at[p][q] += weight * s[p] * s[q];
        }
    }
}

/* Least X from X, with the deviations of runs as they are. */
static void descend(double *x, struct fit *fit)
{
    AUTO_FREE struct residual *r = mem_alloc((fit->n + 1) * sizeof(*r));
    AUTO_FREE struct residual *next = mem_alloc((fit->n + 1) * sizeof(*next));
    double damping = 1e-2, loss;

    residuals(r, fit, x);
    loss = loss_of(fit, r, x);
    for (int round = 0; round < ROUNDS; round++) {
        struct matrix curve, lower;
        double gradient[PL_CONSTANTS], to[PL_CONSTANTS], moved, gain = 0;

        normal_equations(&curve, gradient, fit, x, r);
        for (; damping < 1e6; damping *= 4) {
            double step[PL_CONSTANTS];

            lower = curve;
            for (int p = 0; p < PL_CONSTANTS; p++) {
                lower.at[p][p] *= 1 + damping;
                step[p] = -gradient[p];
            }
            factor(&lower);
            solve(step, &lower);
            for (int p = 0; p < PL_CONSTANTS; p++)
                to[p] = x[p] + fmin(fmax(step[p], -1), 1);
            residuals(next, fit, to);
            moved = loss_of(fit, next, to);
            gain = loss - moved;
            if (gain > 0)
                break;
        }
        if (gain <= 0)
            return;
        memcpy(x, to, sizeof(to));
        memcpy(r, next, fit->n * sizeof(*r));
        loss = moved;
        damping = fmax(damping / 8, 1e-6);
        if (gain < 1e-5)
            return;
    }
}

/*
 * Where a term is small at the prior's median its slope is, too, and descent does not find it: each
 * of those that can rule a stack is also tried large, and the best end wins.
 */
static void descend_from_all(double *x, struct fit *fit)
{
    AUTO_FREE struct residual *r = mem_alloc((fit->n + 1) * sizeof(*r));
    double best[PL_CONSTANTS], least;

    descend(x, fit);
    residuals(r, fit, x);
    least = loss_of(fit, r, x);
    memcpy(best, x, sizeof(best));
    for (int p = 0; p < PL_CONSTANTS; p++) {
        double from[PL_CONSTANTS], loss;

        if (fit->width[p] < WIDE)
            continue;
        memcpy(from, fit->center, sizeof(from));
        from[p] += FAR_OFF * fit->width[p];
        descend(from, fit);
        residuals(r, fit, from);
        loss = loss_of(fit, r, from);
        if (loss < least) {
            least = loss;
            memcpy(best, from, sizeof(best));
        }
    }
    memcpy(x, best, sizeof(best));
}

/* Deviations of seconds and bytes from the residuals, weighted as the tails say. */
static void estimate_noise(struct fit *fit, const struct residual *r)
{
    double time = DEGREES * NOISE * NOISE, memory = DEGREES * MEMORY_NOISE * MEMORY_NOISE;
    double times = DEGREES, memories = DEGREES;

    for (size_t i = 0; i < fit->n; i++) {
        if (r[i].has_time) {
            time += time_weight(fit, &r[i]) * fit->noise * fit->noise * r[i].time * r[i].time;
            times++;
        }
        if (!r[i].hinge) {
            memory += memory_weight(fit, &r[i]) * fit->memory_noise * fit->memory_noise *
                      r[i].memory * r[i].memory;
            memories++;
        }
    }
    fit->noise = sqrt(time / times);
    fit->memory_noise = sqrt(memory / memories);
}

static void set_prior(struct fit *fit)
{
    for (int p = 0; p < PL_CONSTANTS; p++) {
        const struct pl_constant_name *name = &pl_constant_names[p];
        double known =
            fit->trainer.stack.name[0] ? pl_constant_get(&fit->trainer.stack.deviation, name) : 0;

        fit->width[p] = known > 0 ? known : name->other;
        fit->center[p] = log(fmax(
            known > 0 ? pl_constant_get(&fit->trainer.stack.median, name) : name->start, LEAST));
    }
}

void pl_learn(struct pl_learned *ret, const struct pl_trainer *base,
              const struct pl_sample *samples, size_t count, const char *name)
{
    AUTO_FREE struct residual *r = mem_alloc((count + 1) * sizeof(*r));
    struct fit fit = {.sample = samples,
                      .n = count,
                      .trainer = *base,
                      .noise = NOISE,
                      .memory_noise = MEMORY_NOISE};
    double x[PL_CONSTANTS], gradient[PL_CONSTANTS];
    struct matrix curve;

    set_prior(&fit);
    snprintf(fit.trainer.stack.name, sizeof(fit.trainer.stack.name), "%s", name);
    memcpy(x, fit.center, sizeof(x));
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn == 1) /* with an idea of the noise */
            descend_from_all(x, &fit);
        else
            descend(x, &fit);
        residuals(r, &fit, x);
        estimate_noise(&fit, r);
    }
    descend(x, &fit);
    residuals(r, &fit, x);
    normal_equations(&curve, gradient, &fit, x, r);
    factor(&curve);
    set_constants(&fit, x);
    for (int p = 0; p < PL_CONSTANTS; p++) {
        double unit[PL_CONSTANTS] = {0};

        unit[p] = 1;
        solve(unit, &curve);
        *pl_constant(&fit.trainer.stack.deviation, &pl_constant_names[p]) = sqrt(unit[p]);
    }
    *ret = (struct pl_learned){fit.trainer, fit.noise, fit.memory_noise};
}
