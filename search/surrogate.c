/*
 * The models of one quantity, their hyper-parameters and weights; surrogate.h has the formulas.
 *
 * Fit: maximum of log evidence + log hyper-prior by L-BFGS (maximize.h) within three standard
 * deviations of each hyper-prior. With one-sided observations, rounds of expectation
 * propagation and of fitting to its pseudo-observations alternate: at fixed sites the gradients
 * agree, so a fixed point is a stationary point of the true approximate evidence (Rasmussen and
 * Williams 2006, section 5.5.2). Above FIT_POINTS observations the fit uses that many of them,
 * evenly spread, so that its time is bounded; the factor always uses all.
 */
#include "search/surrogate.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"
#include "search/maximize.h"
#include "search/num.h"

enum { FIT_POINTS = 200, FIT_EVALS = 24, FIT_ROUNDS = 2 };
/* Of log evidence in a step, below which a fit has converged. */
static const double FIT_GAIN = 5e-5;

/* ---- hyper-priors -------------------------------------------------------- */

/*
 * Medians and spreads of the logarithms, by quantity and model, in the units of log quantity
 * and of doublings. Prior-mean: analytic models are right to 10-20 % layout by layout once machine
 * constants (the shares, each known to about 30 %) are corrected. Prior-free: changing one key by a
 * doubling moves throughput by tens of per cent, and the prior's slope may be anything about 0:
 * one, none, or reversed. How far the prior errs layout by layout is known to a factor of two only.
 * Memory is predicted better than time. None of them knows a model or a machine.
 */
static const struct {
    struct se_hyper noise, main, prod, lin, len, words;
    double sd_const, sd_prior;
} standard[SE_QUANTITIES][2] = {
    [SE_THROUGHPUT] =
        {
            {{-5.0, 0.7}, {-0.7, 0.4}, {-1.2, 0.5}, {-1.0, 0.4}, {0.9, 0.6}, {0.0, 0.6}, 1.5, 1.0},
            {{-5.0, 0.7},
             {-1.9, 0.7},
             {-2.0, 0.7},
             {-1.0, 0.4},
             {0.9, 0.6},
             {0.0, 0.6},
             0.35,
             0.15},
        },
    [SE_MEMORY] =
        {
            {{-4.0, 0.7}, {-0.4, 0.5}, {-1.4, 0.6}, {-1.6, 0.5}, {1.0, 0.6}, {0.0, 0.6}, 0.7, 0.0},
            {{-4.0, 0.7}, {-2.2, 0.5}, {-2.3, 0.5}, {-1.0, 0.3}, {1.0, 0.6}, {0.0, 0.6}, 0.15, 0.1},
        },
};
/* How alike clusters are: at a length of a half correlated by 0.14, so that the level of one says
 * little about another's. With a_1 and a_2 their difference has a standard deviation of 0.28. */
static const struct se_hyper CLUSTERS = {-0.7, 0.5};
static const double PRIOR_MEAN_WEIGHT = 0.85; /* prior weight of the prior-mean models */
/* Share of it for a stack that keeps attention's T x T matrices although its release need not:
 * kernels that do without want a device, a precision and a mask that they know. */
static const double UNFUSED = 0.3;
/* The prior-free model keeps some weight: similar layouts say little about a prior's slope, even if
 * they agree with it. */
static const double LEAST_PRIOR_FREE = 0.05;
/* Share of the prior-mean weight that starts with the informed model. */
static const double RELATED = 0.7;
/* After so many observations of its own, a campaign uses only the better of both: either it knows
 * what the hints say, or they were refuted. */
enum { OWN_ENOUGH = 30 };

static void set_hyper(struct se_hyp *hyp, enum se_quantity quantity)
{
    int k = hyp->prior_mean;
    double theta[SE_MAX_THETA];

    hyp->hyper[SE_TH_NOISE] = standard[quantity][k].noise;
    hyp->hyper[SE_TH_MAIN] = standard[quantity][k].main;
    hyp->hyper[SE_TH_PROD] = standard[quantity][k].prod;
    hyp->hyper[SE_TH_LIN] = standard[quantity][k].lin;
    for (int d = 0; d < SE_MAX_DIMS; d++)
        hyp->hyper[SE_TH_LEN + d] = d == hyp->gp.kern.cluster     ? CLUSTERS
                                    : hyp->gp.kern.categorical[d] ? standard[quantity][k].words
                                                                  : standard[quantity][k].len;
    for (int i = 0; i < SE_MAX_THETA; i++)
        theta[i] = hyp->hyper[i].mean;
    hyp->gp.kern.sd_const = standard[quantity][k].sd_const;
    hyp->gp.kern.sd_prior = standard[quantity][k].sd_prior;
    se_kernel_set(&hyp->gp.kern, theta);
}

static void init_hyp(struct se_hyp *hyp, const struct se_table *table, enum se_quantity quantity,
                     bool prior_mean, int nlin)
{
    struct se_kernel k;

    memset(hyp, 0, sizeof(*hyp));
    se_kernel_init(&k, table->dim, table->ndims, nlin);
    se_gp_init(&hyp->gp, &k);
    hyp->prior_mean = prior_mean;
    set_hyper(hyp, quantity);
}

/* ---- life ---------------------------------------------------------------- */

static bool may_be_unfused(const struct se_table *table)
{
    for (size_t i = 0; i < table->n; i++)
        if (se_table_lin(table, SE_MEMORY, i)[SE_LIN_UNFUSED] > 0.0F)
            return true;
    return false;
}

static struct se_hyp *add_hyp(struct se_surrogate *surrogate, const struct se_table *table,
                              bool prior_mean, int nlin, double weight)
{
    struct se_hyp *h = &surrogate->hyp[surrogate->nhyps++];

    assert(surrogate->nhyps <= SE_MAX_HYPS && weight > 0.0 && weight <= 1.0);
    init_hyp(h, table, surrogate->quantity, prior_mean, nlin);
    h->weight = h->prior_weight = weight;
    return h;
}

/* The prior-free model is the second one, or the only one. */
void se_surrogate_init(struct se_surrogate *surrogate, const struct se_table *table,
                       enum se_quantity quantity, bool use_prior)
{
    bool throughput = quantity == SE_THROUGHPUT;
    double unfused = use_prior && !throughput && may_be_unfused(table) ? UNFUSED : 0.0;
    int nlin = throughput ? table->nlin[quantity] : SE_LIN_UNFUSED;

    memset(surrogate, 0, sizeof(*surrogate));
    surrogate->quantity = quantity;
    if (!use_prior) {
        add_hyp(surrogate, table, false, SE_LIN_PRIOR, 1.0);
        return;
    }
    add_hyp(surrogate, table, true, nlin, PRIOR_MEAN_WEIGHT * (1.0 - unfused));
    add_hyp(surrogate, table, false, throughput ? SE_LIN_SHARE : SE_LIN_PRIOR,
            1.0 - PRIOR_MEAN_WEIGHT);
    if (throughput)
        surrogate->hyp[SE_PRIOR_FREE].level = table->center[quantity];
    if (unfused > 0.0) {
        surrogate->unfused = surrogate->nhyps;
        add_hyp(surrogate, table, true, nlin, PRIOR_MEAN_WEIGHT * unfused)->unfused = true;
    }
}

void se_surrogate_inform(struct se_surrogate *surrogate, const struct se_table *table,
                         const struct se_hint *hint, int count, double weight, bool unfused)
{
    struct se_hyp *h;

    if (surrogate->nhyps < 2 || count == 0)
        return;
    assert(surrogate->nobs == 0 && surrogate->informed == 0);
    assert(weight > 0.0 && weight < 1.0);
    for (int i = 0; i < surrogate->nhyps; i++)
        surrogate->hyp[i].prior_weight *= i == SE_PRIOR_FREE
                                              ? (1.0 - weight) / (1.0 - PRIOR_MEAN_WEIGHT)
                                              : weight * (1.0 - RELATED) / PRIOR_MEAN_WEIGHT;
    surrogate->informed = surrogate->nhyps;
    h = add_hyp(surrogate, table, true, surrogate->hyp[SE_PRIOR_MEAN].gp.kern.nlin,
                weight * RELATED);
    h->informed = true;
    h->unfused = unfused;
    for (int i = 0; i < count; i++) {
        struct se_obs o = {.kind = SE_EXACT, .is_hint = true};

        o.value = hint[i].value;
        o.var = hint[i].var;
        memcpy(o.u, hint[i].v, sizeof(o.u));
        for (int d = 0; d < h->gp.kern.ndims; d++)
            o.level[d] = (uint8_t)h->gp.kern.nlevels[d];
        se_surrogate_add(surrogate, &o);
    }
    surrogate->nhints = surrogate->fitted = count;
    se_surrogate_update(surrogate);
}

const struct se_hyp *se_surrogate_stack(const struct se_surrogate *surrogate)
{
    const struct se_hyp *h = &surrogate->hyp[SE_PRIOR_MEAN];

    return surrogate->unfused > 0 && surrogate->hyp[surrogate->unfused].weight > h->weight
               ? &surrogate->hyp[surrogate->unfused]
               : h;
}

double se_surrogate_prior_mean_weight(const struct se_surrogate *surrogate)
{
    double sum = 0.0;

    for (int h = 0; h < surrogate->nhyps; h++)
        sum += surrogate->hyp[h].prior_mean ? surrogate->hyp[h].weight : 0.0;
    return sum;
}

void se_surrogate_done(struct se_surrogate *surrogate)
{
    for (int h = 0; h < surrogate->nhyps; h++)
        se_gp_done(&surrogate->hyp[h].gp);
    free(surrogate->obs);
    memset(surrogate, 0, sizeof(*surrogate));
}

void se_surrogate_copy(struct se_surrogate *to, const struct se_surrogate *from)
{
    *to = *from;
    to->obs = mem_alloc((size_t)(from->nobs + 1) * sizeof(*to->obs));
    to->cap = from->nobs + 1;
    if (from->nobs > 0)
        memcpy(to->obs, from->obs, (size_t)from->nobs * sizeof(*to->obs));
    for (int h = 0; h < from->nhyps; h++)
        se_gp_copy(&to->hyp[h].gp, &from->hyp[h].gp);
}

void se_surrogate_add(struct se_surrogate *surrogate, const struct se_obs *obs)
{
    assert(isfinite(obs->value) && obs->var >= 0.0);
    MEM_GROW(surrogate->obs, surrogate->nobs, surrogate->cap);
    surrogate->obs[surrogate->nobs++] = *obs;
}

void se_surrogate_place(struct se_obs *ret, const struct se_surrogate *surrogate,
                        const struct se_table *table, size_t index)
{
    struct se_point p;

    memset(ret, 0, sizeof(*ret));
    se_table_point(&p, table, surrogate->quantity, index, table->nlin[surrogate->quantity]);
    memcpy(ret->level, p.level, (size_t)table->ndims);
    memcpy(ret->u, p.u, sizeof(ret->u));
    ret->prior = table->prior[surrogate->quantity][index];
}

/* ---- matching observations ----------------------------------------------- */

/* se_hyp_mean() of an observation. */
static double mean_at(const struct se_hyp *hyp, const struct se_obs *obs)
{
    if (obs->is_hint)
        return 0.0;
    return hyp->prior_mean ? obs->prior + (hyp->unfused ? obs->u[SE_LIN_UNFUSED] : 0.0)
                           : hyp->level;
}

/* Without a prior, nothing is known of the level of throughput but what was seen. */
static void set_level(struct se_surrogate *surrogate)
{
    double sum = 0.0;
    int n = 0;

    if (surrogate->nhyps > 1 || surrogate->quantity != SE_THROUGHPUT)
        return;
    for (int i = 0; i < surrogate->nobs; i++) {
        if (surrogate->obs[i].kind == SE_EXACT && !surrogate->obs[i].is_hint) {
            sum += surrogate->obs[i].value;
            n++;
        }
    }
    surrogate->hyp[0].level = n > 0 ? sum / n : 0.0;
}

/* Put every STRIDE-th observation that counts for HYP into its GP and run EP; MEAN0, PICK and OWN
 * have room for all of them. Returns the log evidence. */
static double load(struct se_surrogate *surrogate, struct se_hyp *hyp, int stride,
                   struct se_obs *pick, double *mean0, bool *own)
{
    struct se_gp *g = &hyp->gp;
    int n = 0, which = (int)(hyp - surrogate->hyp);
    double log_z;

    g->n = 0;
    for (int i = surrogate->nobs - 1; i >= 0; i -= stride) {
        const struct se_obs *o = &surrogate->obs[i];
        struct se_point p = {.level = o->level, .apart = o->apart};
        double m = mean_at(hyp, o);

        if (o->is_hint && !hyp->informed)
            continue;
        memcpy(p.u, o->u, sizeof(p.u));
        pick[n] = *o;
        mean0[n] = m;
        own[n] = o->kind == SE_EXACT && !o->is_hint;
        n++;
        if (o->kind == SE_EXACT)
            se_gp_add(g, &p, o->value - m, o->var + (o->is_hint ? 0.0 : g->kern.noise2));
        else
            se_gp_add(g, &p, o->site_var[which] > 0.0 ? o->site_y[which] : 0.0,
                      o->site_var[which] > 0.0 ? o->site_var[which] : 1e3);
    }
    assert(n == g->n);
    log_z = se_ep_run(g, pick, mean0);
    n = 0;
    for (int i = surrogate->nobs - 1; i >= 0; i -= stride) {
        if (surrogate->obs[i].is_hint && !hyp->informed)
            continue;
        surrogate->obs[i].site_y[which] = g->y[n];
        surrogate->obs[i].site_var[which] = g->var[n++];
    }
    return log_z;
}

struct scratch {
    struct se_obs *pick;
    double *mean0;
    bool *own;
};

static void scratch_init(struct scratch *scratch, int count)
{
    scratch->pick = mem_alloc(((size_t)count + 1) * sizeof(*scratch->pick));
    scratch->mean0 = mem_alloc(((size_t)count + 1) * sizeof(*scratch->mean0));
    scratch->own = mem_alloc(((size_t)count + 1) * sizeof(*scratch->own));
}

static void scratch_done(struct scratch *scratch)
{
    free(scratch->pick);
    free(scratch->mean0);
    free(scratch->own);
}

static double log_hyper(const struct se_hyp *hyp)
{
    double s = 0.0;

    for (int i = 0; i < se_kernel_ntheta(&hyp->gp.kern); i++) {
        double z = (hyp->gp.kern.theta[i] - hyp->hyper[i].mean) / hyp->hyper[i].sd;

        s -= 0.5 * z * z;
    }
    return s;
}

/* With OWN_ENOUGH observations the better of the prior-mean and informed models gets both
 * weights. */
static void choose_prior_mean(struct se_surrogate *surrogate)
{
    double *cold = &surrogate->hyp[SE_PRIOR_MEAN].weight,
           *informed = &surrogate->hyp[surrogate->informed].weight;

    if (surrogate->informed == 0 || surrogate->nobs - surrogate->nhints < OWN_ENOUGH)
        return;
    if (*cold > *informed) {
        *cold += *informed;
        *informed = 0.0;
    } else {
        *informed += *cold;
        *cold = 0.0;
    }
}

static bool adds_up(const struct se_surrogate *surrogate)
{
    double sum = 0.0;

    for (int h = 0; h < surrogate->nhyps; h++)
        sum += surrogate->hyp[h].weight;
    return fabs(sum - 1.0) < 1e-9;
}

static void set_weights(struct se_surrogate *surrogate)
{
    double top = -INFINITY, sum = 0.0;

    for (int h = 0; h < surrogate->nhyps; h++)
        top = fmax(top, surrogate->hyp[h].evidence + log(surrogate->hyp[h].prior_weight));
    for (int h = 0; h < surrogate->nhyps; h++) {
        surrogate->hyp[h].weight =
            exp(surrogate->hyp[h].evidence + log(surrogate->hyp[h].prior_weight) - top);
        sum += surrogate->hyp[h].weight;
    }
    assert(isfinite(top) && sum >= 1.0); /* the likeliest has 1 */
    for (int h = 0; h < surrogate->nhyps; h++)
        surrogate->hyp[h].weight /= sum;
    if (surrogate->nhyps > 1 && surrogate->hyp[SE_PRIOR_FREE].weight < LEAST_PRIOR_FREE) {
        double scale = (1.0 - LEAST_PRIOR_FREE) / (1.0 - surrogate->hyp[SE_PRIOR_FREE].weight);

        for (int h = 0; h < surrogate->nhyps; h++)
            surrogate->hyp[h].weight *= scale;
        surrogate->hyp[SE_PRIOR_FREE].weight = LEAST_PRIOR_FREE;
    }
    choose_prior_mean(surrogate);
    assert(adds_up(surrogate));
}

/* log p(hints) by HYP: what its evidence owes to them and not to the campaign's own
 * observations. */
static double hints_evidence(const struct se_surrogate *surrogate, const struct se_hyp *hyp)
{
    struct se_kernel k;
    struct se_gp g;
    double log_p;

    if (!hyp->informed)
        return 0.0;
    se_kernel_copy(&k, &hyp->gp.kern);
    se_gp_init(&g, &k);
    for (int i = 0; i < surrogate->nhints; i++) {
        struct se_point p = {.level = surrogate->obs[i].level};

        memcpy(p.u, surrogate->obs[i].u, sizeof(p.u));
        se_gp_add(&g, &p, surrogate->obs[i].value, surrogate->obs[i].var);
    }
    se_gp_factor(&g);
    log_p = se_gp_evidence(&g);
    se_gp_done(&g);
    return log_p;
}

void se_surrogate_update(struct se_surrogate *surrogate)
{
    struct scratch s;

    set_level(surrogate);
    scratch_init(&s, surrogate->nobs);
    for (int h = 0; h < surrogate->nhyps; h++)
        surrogate->hyp[h].evidence =
            load(surrogate, &surrogate->hyp[h], 1, s.pick, s.mean0, s.own) -
            hints_evidence(surrogate, &surrogate->hyp[h]) + log_hyper(&surrogate->hyp[h]);
    scratch_done(&s);
    set_weights(surrogate);
}

/* ---- hyper-parameters ---------------------------------------------------- */

struct objective {
    struct se_hyp *h;
    struct scratch s;
    double *site_var; /* of one-sided observations, and the own error of exact ones */
};

/* Log evidence + log hyper-prior at THETA for fixed pseudo-observations. */
static double value(double *ret_grad, const double *theta, int dims, void *context)
{
    struct objective *o = context;
    struct se_gp *g = &o->h->gp;

    se_kernel_set(&g->kern, theta);
    for (int i = 0; i < g->n; i++)
        g->var[i] = o->site_var[i] + (o->s.own[i] ? g->kern.noise2 : 0.0);
    se_gp_factor(g);
    se_gp_evidence_grad(ret_grad, g, o->s.own);
    for (int i = 0; i < dims; i++)
        ret_grad[i] -= (theta[i] - o->h->hyper[i].mean) / (o->h->hyper[i].sd * o->h->hyper[i].sd);
    return se_gp_evidence(g) + log_hyper(o->h);
}

static void maximize(struct objective *objective)
{
    struct se_hyp *h = objective->h;
    int n = se_kernel_ntheta(&h->gp.kern);
    double theta[SE_MAX_THETA], low[SE_MAX_THETA], high[SE_MAX_THETA];

    for (int i = 0; i < n; i++) {
        theta[i] = h->gp.kern.theta[i];
        low[i] = h->hyper[i].mean - 3.0 * h->hyper[i].sd;
        high[i] = h->hyper[i].mean + 3.0 * h->hyper[i].sd;
    }
    se_maximize(theta, theta, n, low, high, value, objective, FIT_EVALS, FIT_GAIN);
    se_kernel_set(&h->gp.kern, theta);
}

static void fit_hyp(struct se_surrogate *surrogate, struct se_hyp *hyp)
{
    int stride = (surrogate->nobs + FIT_POINTS - 1) / FIT_POINTS;
    bool sided = false;
    struct objective o = {.h = hyp};

    scratch_init(&o.s, surrogate->nobs);
    o.site_var = mem_alloc(((size_t)surrogate->nobs + 1) * sizeof(double));
    for (int round = 0; round < (sided || round == 0 ? FIT_ROUNDS : 1); round++) {
        load(surrogate, hyp, stride, o.s.pick, o.s.mean0, o.s.own);
        for (int i = 0; i < hyp->gp.n; i++) {
            o.site_var[i] = o.s.own[i] ? o.s.pick[i].var : hyp->gp.var[i];
            sided |= o.s.pick[i].kind != SE_EXACT;
        }
        if (round > 0 && !sided)
            break;
        maximize(&o);
    }
    scratch_done(&o.s);
    free(o.site_var);
}

void se_surrogate_fit(struct se_surrogate *surrogate)
{
    set_level(surrogate);
    for (int h = 0; h < surrogate->nhyps && surrogate->nobs > surrogate->nhints; h++)
        fit_hyp(surrogate, &surrogate->hyp[h]);
    surrogate->fitted = surrogate->nobs;
    se_surrogate_update(surrogate);
}

void se_surrogate_adopt(struct se_surrogate *surrogate, const struct se_surrogate *from)
{
    assert(surrogate->nhyps == from->nhyps);
    for (int h = 0; h < surrogate->nhyps; h++)
        se_kernel_set(&surrogate->hyp[h].gp.kern, from->hyp[h].gp.kern.theta);
    surrogate->fitted = from->fitted;
    se_surrogate_update(surrogate);
}

/* ---- predictions --------------------------------------------------------- */

void se_hyp_predict(double *ret_mean, double *ret_var, const struct se_surrogate *surrogate,
                    const struct se_hyp *hyp, const struct se_table *table, size_t index)
{
    struct se_point p;

    se_table_point(&p, table, surrogate->quantity, index, hyp->gp.kern.nlin);
    se_gp_predict(ret_mean, ret_var, &hyp->gp, &p);
    *ret_mean += se_hyp_mean(surrogate, hyp, table, index);
}

void se_surrogate_predict(double *ret_mean, double *ret_var, const struct se_surrogate *surrogate,
                          const struct se_table *table, size_t index)
{
    double m[SE_MAX_HYPS], v[SE_MAX_HYPS];

    *ret_mean = 0.0;
    for (int h = 0; h < surrogate->nhyps; h++) {
        se_hyp_predict(&m[h], ret_var ? &v[h] : NULL, surrogate, &surrogate->hyp[h], table, index);
        *ret_mean += surrogate->hyp[h].weight * m[h];
    }
    if (!ret_var)
        return;
    *ret_var = 0.0;
    for (int h = 0; h < surrogate->nhyps; h++)
        *ret_var += surrogate->hyp[h].weight * (v[h] + (m[h] - *ret_mean) * (m[h] - *ret_mean));
}

double se_surrogate_below(const struct se_surrogate *surrogate, const struct se_table *table,
                          size_t index, double bound)
{
    double p = 0.0;

    for (int h = 0; h < surrogate->nhyps; h++) {
        double m, v;

        se_hyp_predict(&m, &v, surrogate, &surrogate->hyp[h], table, index);
        p += surrogate->hyp[h].weight *
             se_norm_cdf((bound - m) / sqrt(v + surrogate->hyp[h].gp.kern.noise2));
    }
    assert(p >= 0.0 && p < 1.0 + 1e-9);
    return p;
}

void se_surrogate_fantasize(struct se_surrogate *surrogate, const struct se_point *point,
                            double var)
{
    for (int h = 0; h < surrogate->nhyps; h++) {
        struct se_gp *g = &surrogate->hyp[h].gp;
        double m, v;

        se_gp_predict(&m, &v, g, point);
        se_gp_append(g, point, m, var + g->kern.noise2);
    }
}

void se_surrogate_drop_fantasies(struct se_surrogate *surrogate)
{
    for (int h = 0; h < surrogate->nhyps; h++) {
        int n = 0;

        for (int i = 0; i < surrogate->nobs; i++)
            n += !surrogate->obs[i].is_hint || surrogate->hyp[h].informed;
        se_gp_truncate(&surrogate->hyp[h].gp, n);
    }
}
