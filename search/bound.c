/* Bounds on scores by whole vectors; the formulas are in bound.h. */
#include "search/bound.h"

#include <math.h>

#include "base/base.h"
#include "search/vec.h"

/* What the series and their rounding leave, relatively (exp, sqrt) or absolutely (log). */
static const double SERIES = 2e-5;
/* Exponents below this count as it: sums stay far above the least double. */
static const double LEAST_EXPONENT = -600.0, LEAST_SUM = 1e-280, LEAST_VAR = 1e-14;
static const double MAGIC = 0x1.8p52; /* adding it rounds to an integer, found in the low bits */

/* ---- elementary functions -----------------------------------------------------------------------
 */

static VEC_INLINE void larger(vec *x, double least)
{
    vec other = (vec){0} + least;
    ivec above = *x > other;

    *x = (vec)((above & (ivec)*x) | (~above & (ivec)other));
}

/* e^x for |x| <= 700: 2^i 2^f with |f| <= 1/2, and the series of 2^f to its fifth power, whose rest
 * is below (ln 2 / 2)^6 / 720 / (1 - ln 2 / 14) = 2.6e-6. */
static VEC_INLINE void vec_exp(vec *x)
{
    vec y = *x * M_LOG2E, whole = y + MAGIC, f = (y - (whole - MAGIC)) * M_LN2;
    vec series = 1.0 + f * (1.0 + f * (1.0 / 2 + f * (1.0 / 6 + f * (1.0 / 24 + f * (1.0 / 120)))));

    *x = series * (vec)(((ivec)whole + 1023) << 52);
}

/* log x, from below, for normal x: x = 2^e m, 1 <= m < 2, log m = 2 artanh s, s = (m - 1)/(m + 1)
 * <= 1/3. All terms are positive; those left out are below 2 s^11 / 11 / (1 - s^2) = 1.2e-6. */
static VEC_INLINE void vec_log(vec *x)
{
    ivec bits = (ivec)*x;
    vec e = (vec)((bits >> 52) + 0x4330000000000000) - (0x1p52 + 1023.0);
    vec m = (vec)((bits & 0xfffffffffffff) | 0x3ff0000000000000);
    vec s = (m - 1.0) / (m + 1.0), q = s * s;

    *x =
        e * M_LN2 + 2.0 * s * (1.0 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9)))));
}

/* sqrt x from above: half the exponent is right to 6.1 %, and a step of Heron's squares the error
 * and halves it, always to an upper bound: 1.8e-6 after two. */
static VEC_INLINE void vec_sqrt(vec *x)
{
    vec y = (vec)(((ivec)*x >> 1) + 0x1ff8000000000000);

    y = 0.5 * (y + *x / y);
    *x = 0.5 * (y + *x / y);
}

/* ---- eight layouts ------------------------------------------------------------------------------
 */

struct eight {
    vec mean[SE_MAX_HYPS], var[SE_MAX_HYPS], log_world;
};

/* Bound on one hypothesis's expected improvement. */
static VEC_INLINE void improvement(const struct se_acquire *a, const vec *mean, const vec *own,
                                   vec *ret)
{
    vec d = *mean - a->incumbent, var = *own, gain = d, sd, tail, root;

    larger(&var, LEAST_VAR);
    var *= a->widen * a->widen;
    sd = var;
    vec_sqrt(&sd);
    tail = d * d / var * -0.5;
    larger(&tail, LEAST_EXPONENT);
    vec_exp(&tail);
    root = d * d + 4.0 * var;
    vec_sqrt(&root);
    root *= 1.0 - SERIES;
    larger(&gain, 0.0);
    root += 2.0 * gain - d; /* |d| */
    *ret = gain + (1.0 + SERIES) * sd * tail * (4.0 * 0.3989422804014327) * var / (root * root);
}

static VEC_INLINE void score(const struct se_acquire *a, const struct eight *e, vec *ret)
{
    const struct se_belief *b = a->belief[SE_THROUGHPUT];
    vec mean = {0}, sum = {0}, cost;

    for (int h = 0; h < b->nhyps; h++)
        mean += b->hyp[h].weight * e->mean[h];
    *ret = mean;
    if (!a->improving)
        return;
    for (int h = 0; h < b->nhyps; h++) {
        vec part;

        improvement(a, &e->mean[h], &e->var[h], &part);
        sum += b->hyp[h].weight * part;
    }
    larger(&sum, LEAST_SUM);
    vec_log(&sum);
    cost = a->step_log_tokens - mean - (a->per_device ? 1.0 : 0.0) * e->log_world;
    vec_exp(&cost);
    cost = a->start_s + (1.0 - SERIES) * a->steps * cost;
    vec_log(&cost);
    *ret = sum - e->log_world - cost + SERIES;
}

static VEC_INLINE void bounds(const struct se_acquire *a, const uint32_t *row, size_t n,
                              float *const mean[], float *const var[], float *ret)
{
    int nhyps = a->belief[SE_THROUGHPUT]->nhyps;

    for (size_t i = 0; i < n; i += LANES) {
        size_t bytes = (n - i < LANES ? n - i : LANES) * sizeof(float);
        struct eight e = {0};
        float lane[LANES] = {0};
        half_vec rounded;
        vec out;

        for (int h = 0; h < nhyps; h++) {
            memcpy(lane, mean[h] + i, bytes);
            vec_widen(&e.mean[h], lane);
            memcpy(lane, var[h] + i, bytes);
            vec_widen(&e.var[h], lane);
        }
        for (size_t l = 0; l < bytes / sizeof(float); l++)
            lane[l] = a->table->log_world[row[i + l]];
        vec_widen(&e.log_world, lane);
        score(a, &e, &out);
        out += (vec)((ivec)out & INT64_MAX) * 0x1p-23; /* more than what rounding takes */
        rounded = __builtin_convertvector(out, half_vec);
        memcpy(ret + i, &rounded, bytes);
    }
}

/* ---- by processor -------------------------------------------------------------------------------
 */

static void bounds_base(const struct se_acquire *a, const uint32_t *row, size_t n,
                        float *const mean[], float *const var[], float *ret)
{
    bounds(a, row, n, mean, var, ret);
}

VEC_AVX2 static void bounds_avx2(const struct se_acquire *a, const uint32_t *row, size_t n,
                                 float *const mean[], float *const var[], float *ret)
{
    bounds(a, row, n, mean, var, ret);
}

VEC_AVX512 static void bounds_avx512(const struct se_acquire *a, const uint32_t *row, size_t n,
                                     float *const mean[], float *const var[], float *ret)
{
    bounds(a, row, n, mean, var, ret);
}

void se_score_bounds(const struct se_acquire *a, const uint32_t *row, size_t n,
                     float *const mean[SE_MAX_HYPS], float *const var[SE_MAX_HYPS], float *ret)
{
    VEC_CHOOSE(bounds_avx512, bounds_avx2, bounds_base)(a, row, n, mean, var, ret);
}
