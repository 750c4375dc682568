/*
 * The choice of a token's experts, the same at every level: comparisons do not round.
 *
 * Experts are in one order, of which the first k are chosen: larger score first, NaN last, then the
 * lower expert.
 */
#ifndef KERNELS_CHOOSE_H
#define KERNELS_CHOOSE_H

#include "kernels/kernels.h"

#include <assert.h>
#include <math.h>

/* Whether (X, I) comes before (Y, J). */
static inline bool kn_comes_before(float x, size_t i, float y, size_t j)
{
    if (x > y || (isnan(y) && !isnan(x)))
        return true;
    if (y > x || (isnan(x) && !isnan(y)))
        return false;
    return i < j;
}

static inline float kn_choice_score(const struct kn_router *router, const float *probs, size_t e)
{
    return router->bias ? probs[e] + router->bias[e] : probs[e];
}

/* The first expert of [lo, hi) behind expert LAST, or of all with LAST = SIZE_MAX; HI: none. */
static inline size_t kn_next_expert(const struct kn_router *router, const float *probs, size_t lo,
                                    size_t hi, size_t last)
{
    float before = last == SIZE_MAX ? 0 : kn_choice_score(router, probs, last), top = 0;
    size_t found = hi;

    for (size_t e = lo; e < hi; e++) {
        float score = kn_choice_score(router, probs, e);

        if (last != SIZE_MAX && !kn_comes_before(before, last, score, e))
            continue;
        if (found == hi || kn_comes_before(score, e, top, found)) {
            top = score;
            found = e;
        }
    }
    return found;
}

/* The sum of the best scores of a group. */
static inline float kn_group_score(const struct kn_router *router, const float *probs, size_t group)
{
    size_t each = router->experts / router->groups, lo = group * each, last = SIZE_MAX;
    size_t many = router->k / router->met;
    float sum = 0;

    for (size_t i = 0; i < (many ? many : 1) && i < each; i++) {
        last = kn_next_expert(router, probs, lo, lo + each, last);
        sum += kn_choice_score(router, probs, last);
    }
    return sum;
}

/* The groups that a token meets, as bits. */
static inline uint64_t kn_groups_met(const struct kn_router *router, const float *probs)
{
    float score[KN_MAX_GROUPS];
    uint64_t met = 0;

    for (size_t g = 0; g < router->groups; g++)
        score[g] = kn_group_score(router, probs, g);
    for (size_t i = 0; i < router->met; i++) {
        size_t best = router->groups;

        for (size_t g = 0; g < router->groups; g++)
            if (!(met >> g & 1) &&
                (best == router->groups || kn_comes_before(score[g], g, score[best], best)))
                best = g;
        met |= UINT64_C(1) << best;
    }
    return met;
}

/* The first expert behind LAST in the groups MET. */
static inline size_t kn_next_met(const struct kn_router *router, const float *probs, uint64_t met,
                                 size_t last)
{
    size_t each = router->experts / router->groups, found = router->experts;

    for (size_t g = 0; g < router->groups; g++) {
        size_t hi = (g + 1) * each, e;

        if (!(met >> g & 1))
            continue;
        e = kn_next_expert(router, probs, g * each, hi, last);
        if (e < hi && (found == router->experts ||
                       kn_comes_before(kn_choice_score(router, probs, e), e,
                                       kn_choice_score(router, probs, found), found)))
            found = e;
    }
    return found;
}

static inline void kn_choose(int32_t *idx /* (k) */, const struct kn_router *router,
                             const float *probs /* (experts) */)
{
    uint64_t met = router->groups > 1 ? kn_groups_met(router, probs) : 1;
    size_t last = SIZE_MAX;

    for (size_t j = 0; j < router->k; j++) {
        last = kn_next_met(router, probs, met, last);
        assert(last < router->experts);
        idx[j] = (int32_t)last;
    }
}

#endif
