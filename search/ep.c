/*
 * Expectation propagation for one-sided observations.
 *
 * A bound b with sharpness s has the likelihood Phi((b - f)/s) (below) or Phi((f - b)/s) (above).
 * EP keeps a Gaussian site N(f; y_i, var_i) for each, such that the cavity times the exact
 * likelihood has the moments of the cavity times the site. With u = +1 (above) or -1 (below),
 * cavity N(m, v), z = u (m - b)/sqrt(s^2 + v), r = phi(z)/Phi(z):
 *
 *     mean' = m + u v r / sqrt(s^2 + v)        var' = v - v^2 r (z + r) / (s^2 + v)
 *
 * (Rasmussen and Williams 2006, eqs. 3.58 and 3.59.) The cavity comes from the leave-one-out
 * formula, so one sweep is a factor and an inverse, O(n^3); all sites are updated at once, damped.
 * The likelihood is log-concave, so site variances stay positive. Log evidence (their eq. 3.65):
 *
 *     log N(y | 0, C) + sum_i [ log Phi(z_i) - log N(y_i | m_i, v_i + var_i) ]
 */
#include <math.h>

#include "base/base.h"
#include "search/surrogate.h"
#include "search/num.h"

#include <assert.h>

enum { SWEEPS = 40 };
static const double WIDE = 1e3; /* variance of a site that says nothing yet */
static const double DAMPING = 0.8;
static const double SETTLED = 1e-5;

/* Moments of the cavity N(m, v) times the likelihood of O (M0 is the mean function there); returns
 * log Z. */
static double tilt(double *ret_mean, double *ret_var, const struct se_obs *obs, double m0, double m,
                   double v)
{
    double u = obs->kind == SE_ABOVE ? 1.0 : -1.0;
    double s2 = obs->var + v;
    double z = u * (m - (obs->value - m0)) / sqrt(s2);
    double r = se_norm_ratio(z);

    assert(obs->kind != SE_EXACT);
    *ret_mean = m + u * v * r / sqrt(s2);
    *ret_var = v - v * v * r * (z + r) / s2;
    return se_norm_logcdf(z);
}

/* One damped step of site INDEX; returns how far it moved, in standard deviations of the cavity. */
static double step(struct se_gp *gp, int index, const struct se_obs *obs, double m0, double m,
                   double v)
{
    double mean, var, tau, nu, old_tau = 1.0 / gp->var[index],
                               old_nu = gp->y[index] / gp->var[index];

    assert(v > 0.0 && gp->var[index] > 0.0);
    tilt(&mean, &var, obs, m0, m, v);
    var = fmin(fmax(var, 1e-10), v * (1.0 - 1e-9));
    tau = fmax(1.0 / var - 1.0 / v, 1.0 / WIDE);
    nu = (tau + 1.0 / v) * mean - m / v;
    tau = DAMPING * tau + (1.0 - DAMPING) * old_tau;
    nu = DAMPING * nu + (1.0 - DAMPING) * old_nu;
    gp->var[index] = 1.0 / tau;
    gp->y[index] = nu / tau;
    return fabs(tau - old_tau) * v + fabs(nu - old_nu) * sqrt(v);
}

double se_ep_run(struct se_gp *gp, const struct se_obs *obs, const double *mean0)
{
    double AUTO_FREE *m = mem_alloc(((size_t)gp->n + 1) * sizeof(double));
    double AUTO_FREE *v = mem_alloc(((size_t)gp->n + 1) * sizeof(double));
    double log_z;
    int sided = 0;

    for (int i = 0; i < gp->n; i++)
        sided += obs[i].kind != SE_EXACT;
    se_gp_factor(gp);
    for (int sweep = 0; sided > 0 && sweep < SWEEPS; sweep++) {
        double moved = 0.0;

        se_gp_leave_one_out(m, v, gp);
        for (int i = 0; i < gp->n; i++)
            if (obs[i].kind != SE_EXACT)
                moved = fmax(moved, step(gp, i, &obs[i], mean0[i], m[i], v[i]));
        se_gp_factor(gp);
        if (moved < SETTLED)
            break;
    }
    log_z = se_gp_evidence(gp);
    if (sided == 0)
        return log_z;
    se_gp_leave_one_out(m, v, gp);
    for (int i = 0; i < gp->n; i++) {
        double mean, var, s2 = v[i] + gp->var[i], d = gp->y[i] - m[i];

        if (obs[i].kind != SE_EXACT)
            log_z += tilt(&mean, &var, &obs[i], mean0[i], m[i], v[i]) + 0.5 * d * d / s2 +
                     0.5 * log(s2) + SE_LOG_SQRT_2PI;
    }
    return log_z;
}
