/*
 * What repeated measurements of layouts say together.
 *
 * A measurement of layout i is y_ij = mu_i + b_ij + e_ij in log throughput: e is what the steps of
 * one run show (its own standard error s_ij), b what differs from run to run (placement,
 * neighbors, clocks), with one variance tau^2 for the whole campaign. Two runs of one layout
 * hardly say how much runs differ (Student's t with one degree of freedom is 12.7), all repeats of
 * a campaign together do:
 *
 *     tau^2 = (nu_0 tau_0^2 + max(0, SS - sum_i (n_i - 1) mean_j s_ij^2)) / (nu_0 + nu)
 *     SS    = sum_ij (y_ij - mean_i)^2,  nu = sum_i (n_i - 1)
 *     mu_i  = mean weighted by 1/(s_ij^2 + tau^2), +- t(nu_0 + nu) / sqrt(sum_j 1/(s_ij^2 + tau^2))
 *
 * which is a scaled inverse chi-squared prior (nu_0 measurements' worth of tau_0) on a
 * random-effects model (DerSimonian and Laird 1986 for the moments; Gelman et al., "Bayesian Data
 * Analysis", section 2.6 for the prior). The interval lies on the logarithm, so a bound is never
 * negative.
 */
#include <math.h>

#include "base/base.h"
#include "search/state.h"

#include <assert.h>

/* Before any repeat: runs of one layout differ by some 2 %, as if four repeats had said so. */
static const double PRIOR_SD = 0.02, PRIOR_DEGREES = 4.0;

double se_student_975(double degrees)
{
    static const double t[] = {0,     12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                               2.306, 2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
                               2.120, 2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069,
                               2.064, 2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
    const double z = 1.959964;

    if (degrees < 1.0)
        return INFINITY;
    if (degrees < (double)ARRAY_LEN(t))
        return t[(size_t)degrees];
    /* Cornish-Fisher expansion in 1/n (Abramowitz and Stegun 26.7.5). */
    return z + (z * z * z + z) / (4.0 * degrees) +
           (5.0 * pow(z, 5) + 16.0 * z * z * z + 3.0 * z) / (96.0 * degrees * degrees);
}

/* Relative error of a measurement; one that claims none is taken to a thousandth, and one that
 * claims more than its value to say no more than that. */
static double error_of(const struct se_measured *measured)
{
    assert(measured->value > 0.0);
    return measured->se > 0.0 ? fmin(measured->se / measured->value, 1.0) : 1e-3;
}

/* Squares about the mean of one layout's COUNT measurements, less what their own errors explain. */
static double excess(const struct se_measured *measured, size_t count)
{
    double mean = 0.0, s = 0.0, own = 0.0;

    for (size_t i = 0; i < count; i++)
        mean += log(measured[i].value) / (double)count;
    for (size_t i = 0; i < count; i++) {
        double d = log(measured[i].value) - mean;

        s += d * d;
        own += error_of(&measured[i]) * error_of(&measured[i]) / (double)count;
    }
    return s - (double)(count - 1) * own;
}

struct se_repeats se_repeats_of(const struct se_measured *measured, size_t count)
{
    struct se_repeats ret = {0};

    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && measured[end].layout == measured[i].layout; end++)
            ;
        ret.squares += excess(measured + i, end - i);
        ret.degrees += (double)(end - i - 1);
    }
    ret.squares = fmax(ret.squares, 0.0);
    return ret;
}

struct se_spread se_spread_of(const struct se_measured *measured, size_t count)
{
    struct se_repeats r = se_repeats_of(measured, count);
    struct se_spread ret = {.degrees = PRIOR_DEGREES + r.degrees};

    ret.sd = sqrt((PRIOR_DEGREES * PRIOR_SD * PRIOR_SD + r.squares) / ret.degrees);
    return ret;
}

struct se_pooled se_pool(const struct se_measured *measured, size_t count, struct se_spread spread)
{
    double weight = 0.0, sum = 0.0, half;

    for (size_t i = 0; i < count; i++) {
        double w = 1.0 / (error_of(&measured[i]) * error_of(&measured[i]) + spread.sd * spread.sd);

        weight += w;
        sum += w * log(measured[i].value);
    }
    assert(count > 0 && weight > 0.0 && spread.degrees >= 1.0);
    half = se_student_975(spread.degrees) / sqrt(weight);
    return (struct se_pooled){exp(sum / weight), exp(sum / weight - half),
                              exp(sum / weight + half)};
}
