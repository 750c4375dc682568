/*
 * Hypotheses about one quantity, their hyper-parameters and weights; the model is in belief.h.
 *
 * Fit: maximum of log evidence + log hyper-prior by NLopt's L-BFGS (Nocedal 1980) within three
 * standard deviations of each hyper-prior. With one-sided observations, rounds of expectation
 * propagation and of fitting to its pseudo-observations alternate: at fixed sites the gradients
 * agree, so a fixed point is a stationary point of the true approximate evidence (Rasmussen and
 * Williams 2006, section 5.5.2). Above FIT_POINTS observations the fit uses that many of them,
 * evenly spread, so that its time is bounded; the factor always uses all.
 */
#include "search/belief.h"

#include <assert.h>
#include <math.h>
#include <nlopt.h>

#include "base/base.h"
#include "search/num.h"

enum { FIT_POINTS = 200, FIT_EVALS = 24, FIT_ROUNDS = 2 };

/* ---- hyper-priors -------------------------------------------------------- */

/*
 * Medians and spreads of the logarithms, by quantity and hypothesis, in the units of log quantity
 * and of doublings. Trusting: analytic models are right to 10-20 % layout by layout once machine
 * constants (the shares, each known to about 30 %) are corrected. Doubting: changing one key by a
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
static const double TRUST = 0.85; /* prior weight of the trusting hypotheses */
/* Share of it for a stack that keeps attention's T x T matrices although its release need not:
 * kernels that do without want a device, a precision and a mask that they know. */
static const double UNFUSED = 0.3;
/* Some doubt always remains: layouts alike say little of a prior's slope, though they agree with
 * it. */
static const double DOUBT = 0.05;
/* Of the trust, the part that goes to hints of other campaigns beforehand. */
static const double RELATED = 0.7;
/* After so many observations of its own, a campaign hears the better of both alone: either it knows
 * what the hints say, or they were refuted. */
enum { OWN_ENOUGH = 30 };

static void set_hyper(struct se_hyp *hyp, enum se_quantity quantity)
{
    int k = hyp->trusting;
    double theta[SE_MAX_THETA];

    hyp->hyper[SE_TH_NOISE] = standard[quantity][k].noise;
    hyp->hyper[SE_TH_MAIN] = standard[quantity][k].main;
    hyp->hyper[SE_TH_PROD] = standard[quantity][k].prod;
    hyp->hyper[SE_TH_LIN] = standard[quantity][k].lin;
    for (int d = 0; d < SE_MAX_DIMS; d++)
        hyp->hyper[SE_TH_LEN + d] =
            hyp->gp.kern.categorical[d] ? standard[quantity][k].words : standard[quantity][k].len;
    for (int i = 0; i < SE_MAX_THETA; i++)
        theta[i] = hyp->hyper[i].mean;
    hyp->gp.kern.sd_const = standard[quantity][k].sd_const;
    hyp->gp.kern.sd_prior = standard[quantity][k].sd_prior;
    se_kernel_set(&hyp->gp.kern, theta);
}

static void init_hyp(struct se_hyp *hyp, const struct se_table *table, enum se_quantity quantity,
                     bool trusting, int nlin)
{
    struct se_kernel k;

    memset(hyp, 0, sizeof(*hyp));
    se_kernel_init(&k, table->dim, table->ndims, nlin);
    se_gp_init(&hyp->gp, &k);
    hyp->trusting = trusting;
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

static struct se_hyp *add_hyp(struct se_belief *belief, const struct se_table *table, bool trusting,
                              int nlin, double weight)
{
    struct se_hyp *h = &belief->hyp[belief->nhyps++];

    assert(belief->nhyps <= SE_MAX_HYPS && weight > 0.0 && weight <= 1.0);
    init_hyp(h, table, belief->quantity, trusting, nlin);
    h->weight = h->prior_weight = weight;
    return h;
}

/* The doubting hypothesis is the second one, or the only one. */
void se_belief_init(struct se_belief *belief, const struct se_table *table,
                    enum se_quantity quantity, bool use_prior)
{
    bool throughput = quantity == SE_THROUGHPUT;
    double unfused = use_prior && !throughput && may_be_unfused(table) ? UNFUSED : 0.0;
    int nlin = throughput ? table->nlin[quantity] : SE_LIN_UNFUSED;

    memset(belief, 0, sizeof(*belief));
    belief->quantity = quantity;
    if (!use_prior) {
        add_hyp(belief, table, false, SE_LIN_PRIOR, 1.0);
        return;
    }
    add_hyp(belief, table, true, nlin, TRUST * (1.0 - unfused));
    add_hyp(belief, table, false, throughput ? SE_LIN_SHARE : SE_LIN_PRIOR, 1.0 - TRUST);
    if (throughput)
        belief->hyp[SE_DOUBTING].level = table->centre[quantity];
    if (unfused > 0.0) {
        belief->unfused = belief->nhyps;
        add_hyp(belief, table, true, nlin, TRUST * unfused)->unfused = true;
    }
}

void se_belief_inform(struct se_belief *belief, const struct se_table *table,
                      const struct se_hint *hint, int count, double trust, bool unfused)
{
    struct se_hyp *h;

    if (belief->nhyps < 2 || count == 0)
        return;
    assert(belief->nobs == 0 && belief->informed == 0);
    assert(trust > 0.0 && trust < 1.0);
    for (int i = 0; i < belief->nhyps; i++)
        belief->hyp[i].prior_weight *=
            i == SE_DOUBTING ? (1.0 - trust) / (1.0 - TRUST) : trust * (1.0 - RELATED) / TRUST;
    belief->informed = belief->nhyps;
    h = add_hyp(belief, table, true, belief->hyp[SE_TRUSTING].gp.kern.nlin, trust * RELATED);
    h->informed = true;
    h->unfused = unfused;
    for (int i = 0; i < count; i++) {
        struct se_obs o = {.seen = SE_EXACT, .foreign = true};

        o.value = hint[i].value;
        o.var = hint[i].var;
        memcpy(o.u, hint[i].v, sizeof(o.u));
        for (int d = 0; d < h->gp.kern.ndims; d++)
            o.level[d] = (uint8_t)h->gp.kern.nlevels[d];
        se_belief_add(belief, &o);
    }
    belief->nhints = belief->fitted = count;
    se_belief_update(belief);
}

const struct se_hyp *se_belief_stack(const struct se_belief *belief)
{
    const struct se_hyp *h = &belief->hyp[SE_TRUSTING];

    return belief->unfused > 0 && belief->hyp[belief->unfused].weight > h->weight
               ? &belief->hyp[belief->unfused]
               : h;
}

double se_belief_trust(const struct se_belief *belief)
{
    double sum = 0.0;

    for (int h = 0; h < belief->nhyps; h++)
        sum += belief->hyp[h].trusting ? belief->hyp[h].weight : 0.0;
    return sum;
}

void se_belief_done(struct se_belief *belief)
{
    for (int h = 0; h < belief->nhyps; h++)
        se_gp_done(&belief->hyp[h].gp);
    free(belief->obs);
    memset(belief, 0, sizeof(*belief));
}

void se_belief_copy(struct se_belief *to, const struct se_belief *from)
{
    *to = *from;
    to->obs = mem_alloc((size_t)(from->nobs + 1) * sizeof(*to->obs));
    to->cap = from->nobs + 1;
    if (from->nobs > 0)
        memcpy(to->obs, from->obs, (size_t)from->nobs * sizeof(*to->obs));
    for (int h = 0; h < from->nhyps; h++)
        se_gp_copy(&to->hyp[h].gp, &from->hyp[h].gp);
}

void se_belief_add(struct se_belief *belief, const struct se_obs *obs)
{
    assert(isfinite(obs->value) && obs->var >= 0.0);
    MEM_GROW(belief->obs, belief->nobs, belief->cap);
    belief->obs[belief->nobs++] = *obs;
}

void se_belief_place(struct se_obs *ret, const struct se_belief *belief,
                     const struct se_table *table, size_t index)
{
    struct se_point p;

    memset(ret, 0, sizeof(*ret));
    se_table_point(&p, table, belief->quantity, index, table->nlin[belief->quantity]);
    memcpy(ret->level, p.level, (size_t)table->ndims);
    memcpy(ret->u, p.u, sizeof(ret->u));
    ret->prior = table->prior[belief->quantity][index];
}

/* ---- matching observations ----------------------------------------------- */

/* se_hyp_mean() of an observation. */
static double mean_at(const struct se_hyp *hyp, const struct se_obs *obs)
{
    if (obs->foreign)
        return 0.0;
    return hyp->trusting ? obs->prior + (hyp->unfused ? obs->u[SE_LIN_UNFUSED] : 0.0) : hyp->level;
}

/* Without a prior, nothing is known of the level of throughput but what was seen. */
static void set_level(struct se_belief *belief)
{
    double sum = 0.0;
    int n = 0;

    if (belief->nhyps > 1 || belief->quantity != SE_THROUGHPUT)
        return;
    for (int i = 0; i < belief->nobs; i++) {
        if (belief->obs[i].seen == SE_EXACT && !belief->obs[i].foreign) {
            sum += belief->obs[i].value;
            n++;
        }
    }
    belief->hyp[0].level = n > 0 ? sum / n : 0.0;
}

/* Put every STRIDE-th observation that counts for HYP into its GP and run EP; MEAN0, PICK and OWN
 * have room for all of them. Returns the log evidence. */
static double load(struct se_belief *belief, struct se_hyp *hyp, int stride, struct se_obs *pick,
                   double *mean0, bool *own)
{
    struct se_gp *g = &hyp->gp;
    int n = 0, which = (int)(hyp - belief->hyp);
    double log_z;

    g->n = 0;
    for (int i = belief->nobs - 1; i >= 0; i -= stride) {
        const struct se_obs *o = &belief->obs[i];
        struct se_point p = {.level = o->level};
        double m = mean_at(hyp, o);

        if (o->foreign && !hyp->informed)
            continue;
        memcpy(p.u, o->u, sizeof(p.u));
        pick[n] = *o;
        mean0[n] = m;
        own[n] = o->seen == SE_EXACT && !o->foreign;
        n++;
        if (o->seen == SE_EXACT)
            se_gp_add(g, &p, o->value - m, o->var + (o->foreign ? 0.0 : g->kern.noise2));
        else
            se_gp_add(g, &p, o->site_var[which] > 0.0 ? o->site_y[which] : 0.0,
                      o->site_var[which] > 0.0 ? o->site_var[which] : 1e3);
    }
    assert(n == g->n);
    log_z = se_ep_run(g, pick, mean0);
    n = 0;
    for (int i = belief->nobs - 1; i >= 0; i -= stride) {
        if (belief->obs[i].foreign && !hyp->informed)
            continue;
        belief->obs[i].site_y[which] = g->y[n];
        belief->obs[i].site_var[which] = g->var[n++];
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

/* With OWN_ENOUGH observations the better of trusting and informed takes the weight of both. */
static void choose_trusting(struct se_belief *belief)
{
    double *cold = &belief->hyp[SE_TRUSTING].weight,
           *informed = &belief->hyp[belief->informed].weight;

    if (belief->informed == 0 || belief->nobs - belief->nhints < OWN_ENOUGH)
        return;
    if (*cold > *informed) {
        *cold += *informed;
        *informed = 0.0;
    } else {
        *informed += *cold;
        *cold = 0.0;
    }
}

static bool adds_up(const struct se_belief *belief)
{
    double sum = 0.0;

    for (int h = 0; h < belief->nhyps; h++)
        sum += belief->hyp[h].weight;
    return fabs(sum - 1.0) < 1e-9;
}

static void set_weights(struct se_belief *belief)
{
    double top = -INFINITY, sum = 0.0;

    for (int h = 0; h < belief->nhyps; h++)
        top = fmax(top, belief->hyp[h].evidence + log(belief->hyp[h].prior_weight));
    for (int h = 0; h < belief->nhyps; h++) {
        belief->hyp[h].weight =
            exp(belief->hyp[h].evidence + log(belief->hyp[h].prior_weight) - top);
        sum += belief->hyp[h].weight;
    }
    assert(isfinite(top) && sum >= 1.0); /* the likeliest has 1 */
    for (int h = 0; h < belief->nhyps; h++)
        belief->hyp[h].weight /= sum;
    if (belief->nhyps > 1 && belief->hyp[SE_DOUBTING].weight < DOUBT) {
        double scale = (1.0 - DOUBT) / (1.0 - belief->hyp[SE_DOUBTING].weight);

        for (int h = 0; h < belief->nhyps; h++)
            belief->hyp[h].weight *= scale;
        belief->hyp[SE_DOUBTING].weight = DOUBT;
    }
    choose_trusting(belief);
    assert(adds_up(belief));
}

/* log p(hints) by HYP: what its evidence owes to them and not to the campaign's own
 * observations. */
static double hints_evidence(const struct se_belief *belief, const struct se_hyp *hyp)
{
    struct se_kernel k;
    struct se_gp g;
    double log_p;

    if (!hyp->informed)
        return 0.0;
    se_kernel_copy(&k, &hyp->gp.kern);
    se_gp_init(&g, &k);
    for (int i = 0; i < belief->nhints; i++) {
        struct se_point p = {.level = belief->obs[i].level};

        memcpy(p.u, belief->obs[i].u, sizeof(p.u));
        se_gp_add(&g, &p, belief->obs[i].value, belief->obs[i].var);
    }
    se_gp_factor(&g);
    log_p = se_gp_evidence(&g);
    se_gp_done(&g);
    return log_p;
}

void se_belief_update(struct se_belief *belief)
{
    struct scratch s;

    set_level(belief);
    scratch_init(&s, belief->nobs);
    for (int h = 0; h < belief->nhyps; h++)
        belief->hyp[h].evidence = load(belief, &belief->hyp[h], 1, s.pick, s.mean0, s.own) -
                                  hints_evidence(belief, &belief->hyp[h]) +
                                  log_hyper(&belief->hyp[h]);
    scratch_done(&s);
    set_weights(belief);
}

/* ---- hyper-parameters ---------------------------------------------------- */

struct objective {
    struct se_hyp *h;
    struct scratch s;
    double *site_var; /* of one-sided observations, and the own error of exact ones */
};

/* Log evidence + log hyper-prior at THETA for fixed pseudo-observations, as NLopt calls it. */
static double value(unsigned dims, const double *theta, double *grad, void *arg)
{
    struct objective *o = arg;
    struct se_gp *g = &o->h->gp;

    se_kernel_set(&g->kern, theta);
    for (int i = 0; i < g->n; i++)
        g->var[i] = o->site_var[i] + (o->s.own[i] ? g->kern.noise2 : 0.0);
    se_gp_factor(g);
    if (grad) {
        se_gp_evidence_grad(grad, g, o->s.own);
        for (unsigned i = 0; i < dims; i++)
            grad[i] -= (theta[i] - o->h->hyper[i].mean) / (o->h->hyper[i].sd * o->h->hyper[i].sd);
    }
    return se_gp_evidence(g) + log_hyper(o->h);
}

static void maximise(struct objective *objective)
{
    struct se_hyp *h = objective->h;
    int n = se_kernel_ntheta(&h->gp.kern);
    double theta[SE_MAX_THETA], lo[SE_MAX_THETA], hi[SE_MAX_THETA], best;
    nlopt_opt opt = nlopt_create(NLOPT_LD_LBFGS, (unsigned)n);

    for (int i = 0; i < n; i++) {
        theta[i] = h->gp.kern.theta[i];
        lo[i] = h->hyper[i].mean - 3.0 * h->hyper[i].sd;
        hi[i] = h->hyper[i].mean + 3.0 * h->hyper[i].sd;
    }
    nlopt_set_lower_bounds(opt, lo);
    nlopt_set_upper_bounds(opt, hi);
    nlopt_set_max_objective(opt, value, objective);
    nlopt_set_maxeval(opt, FIT_EVALS);
    nlopt_set_ftol_abs(opt, 1e-3);
    nlopt_set_vector_storage(opt, 8);
    /* A failure of the line search still leaves the best point so far in theta. */
    nlopt_optimize(opt, theta, &best);
    nlopt_destroy(opt);
    se_kernel_set(&h->gp.kern, theta);
}

static void fit_hyp(struct se_belief *belief, struct se_hyp *hyp)
{
    int stride = (belief->nobs + FIT_POINTS - 1) / FIT_POINTS;
    bool sided = false;
    struct objective o = {.h = hyp};

    scratch_init(&o.s, belief->nobs);
    o.site_var = mem_alloc(((size_t)belief->nobs + 1) * sizeof(double));
    for (int round = 0; round < (sided || round == 0 ? FIT_ROUNDS : 1); round++) {
        load(belief, hyp, stride, o.s.pick, o.s.mean0, o.s.own);
        for (int i = 0; i < hyp->gp.n; i++) {
            o.site_var[i] = o.s.own[i] ? o.s.pick[i].var : hyp->gp.var[i];
            sided |= o.s.pick[i].seen != SE_EXACT;
        }
        if (round > 0 && !sided)
            break;
        maximise(&o);
    }
    scratch_done(&o.s);
    free(o.site_var);
}

void se_belief_fit(struct se_belief *belief)
{
    set_level(belief);
    for (int h = 0; h < belief->nhyps && belief->nobs > belief->nhints; h++)
        fit_hyp(belief, &belief->hyp[h]);
    belief->fitted = belief->nobs;
    se_belief_update(belief);
}

void se_belief_adopt(struct se_belief *belief, const struct se_belief *from)
{
    assert(belief->nhyps == from->nhyps);
    for (int h = 0; h < belief->nhyps; h++)
        se_kernel_set(&belief->hyp[h].gp.kern, from->hyp[h].gp.kern.theta);
    belief->fitted = from->fitted;
    se_belief_update(belief);
}

/* ---- predictions --------------------------------------------------------- */

void se_hyp_predict(double *ret_mean, double *ret_var, const struct se_belief *belief,
                    const struct se_hyp *hyp, const struct se_table *table, size_t index)
{
    struct se_point p;

    se_table_point(&p, table, belief->quantity, index, hyp->gp.kern.nlin);
    se_gp_predict(ret_mean, ret_var, &hyp->gp, &p);
    *ret_mean += se_hyp_mean(belief, hyp, table, index);
}

void se_belief_predict(double *ret_mean, double *ret_var, const struct se_belief *belief,
                       const struct se_table *table, size_t index)
{
    double m[SE_MAX_HYPS], v[SE_MAX_HYPS];

    *ret_mean = 0.0;
    for (int h = 0; h < belief->nhyps; h++) {
        se_hyp_predict(&m[h], ret_var ? &v[h] : NULL, belief, &belief->hyp[h], table, index);
        *ret_mean += belief->hyp[h].weight * m[h];
    }
    if (!ret_var)
        return;
    *ret_var = 0.0;
    for (int h = 0; h < belief->nhyps; h++)
        *ret_var += belief->hyp[h].weight * (v[h] + (m[h] - *ret_mean) * (m[h] - *ret_mean));
}

double se_belief_below(const struct se_belief *belief, const struct se_table *table, size_t index,
                       double bound)
{
    double p = 0.0;

    for (int h = 0; h < belief->nhyps; h++) {
        double m, v;

        se_hyp_predict(&m, &v, belief, &belief->hyp[h], table, index);
        p += belief->hyp[h].weight *
             se_norm_cdf((bound - m) / sqrt(v + belief->hyp[h].gp.kern.noise2));
    }
    assert(p >= 0.0 && p < 1.0 + 1e-9);
    return p;
}

void se_belief_imagine(struct se_belief *belief, const struct se_table *table, size_t index,
                       double var)
{
    for (int h = 0; h < belief->nhyps; h++) {
        struct se_gp *g = &belief->hyp[h].gp;
        struct se_point p;
        double m, v;

        se_table_point(&p, table, belief->quantity, index, g->kern.nlin);
        se_gp_predict(&m, &v, g, &p);
        se_gp_append(g, &p, m, var + g->kern.noise2);
    }
}

void se_belief_forget(struct se_belief *belief)
{
    for (int h = 0; h < belief->nhyps; h++) {
        int n = 0;

        for (int i = 0; i < belief->nobs; i++)
            n += !belief->obs[i].foreign || belief->hyp[h].informed;
        se_gp_truncate(&belief->hyp[h].gp, n);
    }
}
