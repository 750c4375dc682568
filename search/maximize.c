#include "search/maximize.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/base.h"
#include "search/kernel.h"
#include "search/num.h"

enum { PAIRS = 8, SHORTER = 20 };
static const double RISE = 1e-4;      /* share of the slope's promise that a step must gain */
static const double FIRST_STEP = 1.0; /* length at most, before any curvature is known */

/* A problem on its way: the point, what is known there, and the last differences. */
struct climb {
    int count;
    const double *low, *high;
    double x[SE_MAX_THETA], grad[SE_MAX_THETA], value;
    double step[PAIRS][SE_MAX_THETA], fall[PAIRS][SE_MAX_THETA]; /* of x, and of -grad */
    int pairs;                                                   /* so far; PAIRS are kept */
};

/* Is X at a bound that the function rises towards? */
static bool held(const struct climb *climb, int i)
{
    return (climb->x[i] <= climb->low[i] && climb->grad[i] <= 0.0) ||
           (climb->x[i] >= climb->high[i] && climb->grad[i] >= 0.0);
}

/* Inner product over the free variables. */
static double free_dot(const struct climb *climb, const double *left, const double *right)
{
    double sum = 0.0;

    for (int i = 0; i < climb->count; i++)
        sum += held(climb, i) ? 0.0 : left[i] * right[i];
    return sum;
}

/* The inverse of the curvature times the gradient; held variables stay. A pair counts where its
 * free part has positive curvature. */
static void direction(double *ret, const struct climb *climb)
{
    double alpha[PAIRS], curve[PAIRS], scale = 0.0;
    int oldest = climb->pairs > PAIRS ? climb->pairs - PAIRS : 0;

    for (int i = 0; i < climb->count; i++)
        ret[i] = held(climb, i) ? 0.0 : climb->grad[i];
    for (int pair = climb->pairs - 1; pair >= oldest; pair--) {
        const double *s = climb->step[pair % PAIRS], *y = climb->fall[pair % PAIRS];
        double yy = free_dot(climb, y, y);

        curve[pair % PAIRS] = free_dot(climb, s, y);
        if (!(curve[pair % PAIRS] > 1e-10 * yy))
            continue;
        if (scale == 0.0)
            scale = curve[pair % PAIRS] / yy;
        alpha[pair % PAIRS] = free_dot(climb, s, ret) / curve[pair % PAIRS];
        for (int i = 0; i < climb->count; i++)
            ret[i] -= held(climb, i) ? 0.0 : alpha[pair % PAIRS] * y[i];
    }
    if (scale == 0.0)
        scale = FIRST_STEP / fmax(FIRST_STEP, sqrt(free_dot(climb, climb->grad, climb->grad)));
    for (int i = 0; i < climb->count; i++)
        ret[i] *= scale;
    for (int pair = oldest; pair < climb->pairs; pair++) {
        const double *s = climb->step[pair % PAIRS], *y = climb->fall[pair % PAIRS];

        if (!(curve[pair % PAIRS] > 1e-10 * free_dot(climb, y, y)))
            continue;
        double beta = free_dot(climb, y, ret) / curve[pair % PAIRS];

        for (int i = 0; i < climb->count; i++)
            ret[i] += held(climb, i) ? 0.0 : (alpha[pair % PAIRS] - beta) * s[i];
    }
}

/* From CLIMB along ALONG: the point after LENGTH of it, in the box; returns the gain that the slope
 * promises. */
static double propose(double *ret, const struct climb *climb, const double *along, double length)
{
    double promise = 0.0;

    for (int i = 0; i < climb->count; i++) {
        ret[i] = fmin(fmax(climb->x[i] + length * along[i], climb->low[i]), climb->high[i]);
        promise += climb->grad[i] * (ret[i] - climb->x[i]);
    }
    return promise;
}

/* Where the parabola through a step that promised PROMISE and gained GAIN has its top, as a share
 * of the step. */
static double shorter(double promise, double gain)
{
    double top = promise / (2.0 * (promise - gain));

    return top > 0.1 ? fmin(top, 0.5) : 0.1; /* 0.1 also of a value that is no number */
}

static void take(struct climb *climb, const double *x, const double *grad, double value)
{
    double *step = climb->step[climb->pairs % PAIRS], *fall = climb->fall[climb->pairs % PAIRS];

    for (int i = 0; i < climb->count; i++) {
        step[i] = x[i] - climb->x[i];
        fall[i] = climb->grad[i] - grad[i];
        climb->x[i] = x[i];
        climb->grad[i] = grad[i];
    }
    climb->pairs++;
    climb->value = value;
}

double se_maximize(double *ret_x, const double *start, int count, const double *low,
                   const double *high, se_objective *objective, void *context, int evals,
                   double gain)
{
    struct climb climb = {.count = count, .low = low, .high = high};
    double along[SE_MAX_THETA], next[SE_MAX_THETA], grad[SE_MAX_THETA];
    double gained = INFINITY;

    assert(count > 0 && count <= SE_MAX_THETA && evals > 0);
    for (int i = 0; i < count; i++)
        climb.x[i] = fmin(fmax(start[i], low[i]), high[i]);
    climb.value = objective(climb.grad, climb.x, count, context);
    for (int used = 1; used < evals && gained >= gain;) {
        double length = 1.0, value = -INFINITY, promise = 0.0;
        bool risen = false;

        direction(along, &climb);
        for (int tries = 0; tries < SHORTER && used < evals && !risen; tries++) {
            promise = propose(next, &climb, along, length);
            if (!(promise > 0.0))
                break;
            value = objective(grad, next, count, context);
            used++;
            risen = value >= climb.value + RISE * promise;
            length *= shorter(promise, value - climb.value);
        }
        if (!risen && climb.pairs == 0)
            break;
        if (!risen) {
            climb.pairs = 0; /* the differences mislead: try the gradient */
            continue;
        }
        gained = value - climb.value;
        take(&climb, next, grad, value);
    }
    memcpy(ret_x, climb.x, (size_t)count * sizeof(double));
    return climb.value;
}
