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

/* ---- hyper-priors -------------------------------------------------------------------------------
 */

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

static void set_hyper(struct se_hyp *h, enum se_quantity q)
{
    int k = h->trusting;
    double theta[SE_MAX_THETA];

    h->hyper[SE_TH_NOISE] = standard[q][k].noise;
    h->hyper[SE_TH_MAIN] = standard[q][k].main;
    h->hyper[SE_TH_PROD] = standard[q][k].prod;
    h->hyper[SE_TH_LIN] = standard[q][k].lin;
    for (int d = 0; d < SE_MAX_DIMS; d++)
        h->hyper[SE_TH_LEN + d] =
            h->gp.kern.categorical[d] ? standard[q][k].words : standard[q][k].len;
    for (int i = 0; i < SE_MAX_THETA; i++)
        theta[i] = h->hyper[i].mean;
    h->gp.kern.sd_const = standard[q][k].sd_const;
    h->gp.kern.sd_prior = standard[q][k].sd_prior;
    se_kernel_set(&h->gp.kern, theta);
}

static void init_hyp(struct se_hyp *h, const struct se_table *t, enum se_quantity q, bool trusting,
                     int nlin)
{
    struct se_kernel k;

    memset(h, 0, sizeof(*h));
    se_kernel_init(&k, t->dim, t->ndims, nlin);
    se_gp_init(&h->gp, &k);
    h->trusting = trusting;
    set_hyper(h, q);
}

/* ---- life ---------------------------------------------------------------------------------------
 */

static bool may_be_unfused(const struct se_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (se_table_lin(t, SE_MEMORY, i)[SE_LIN_UNFUSED] > 0.0F)
            return true;
    return false;
}

static struct se_hyp *add_hyp(struct se_belief *b, const struct se_table *t, bool trusting,
                              int nlin, double weight)
{
    struct se_hyp *h = &b->hyp[b->nhyps++];

    init_hyp(h, t, b->quantity, trusting, nlin);
    h->weight = h->prior_weight = weight;
    return h;
}

/* The doubting hypothesis is the second one, or the only one. */
void se_belief_init(struct se_belief *b, const struct se_table *t, enum se_quantity q,
                    bool use_prior)
{
    bool throughput = q == SE_THROUGHPUT;
    double unfused = use_prior && !throughput && may_be_unfused(t) ? UNFUSED : 0.0;
    int nlin = throughput ? t->nlin[q] : SE_LIN_UNFUSED;

    memset(b, 0, sizeof(*b));
    b->quantity = q;
    if (!use_prior) {
        add_hyp(b, t, false, SE_LIN_PRIOR, 1.0);
        return;
    }
    add_hyp(b, t, true, nlin, TRUST * (1.0 - unfused));
    add_hyp(b, t, false, throughput ? SE_LIN_SHARE : SE_LIN_PRIOR, 1.0 - TRUST);
    if (throughput)
        b->hyp[SE_DOUBTING].level = t->centre[q];
    if (unfused > 0.0) {
        b->unfused = b->nhyps;
        add_hyp(b, t, true, nlin, TRUST * unfused)->unfused = true;
    }
}

void se_belief_inform(struct se_belief *b, const struct se_table *t, const struct se_hint *hint,
                      int n, double trust, bool unfused)
{
    struct se_hyp *h;

    if (b->nhyps < 2 || n == 0)
        return;
    assert(b->nobs == 0 && b->informed == 0);
    for (int i = 0; i < b->nhyps; i++)
        b->hyp[i].prior_weight *=
            i == SE_DOUBTING ? (1.0 - trust) / (1.0 - TRUST) : trust * (1.0 - RELATED) / TRUST;
    b->informed = b->nhyps;
    h = add_hyp(b, t, true, b->hyp[SE_TRUSTING].gp.kern.nlin, trust * RELATED);
    h->informed = true;
    h->unfused = unfused;
    for (int i = 0; i < n; i++) {
        struct se_obs o = {.seen = SE_EXACT, .foreign = true};

        o.value = hint[i].value;
        o.var = hint[i].var;
        memcpy(o.u, hint[i].v, sizeof(o.u));
        for (int d = 0; d < h->gp.kern.ndims; d++)
            o.level[d] = (uint8_t)h->gp.kern.nlevels[d];
        se_belief_add(b, &o);
    }
    b->nhints = b->fitted = n;
    se_belief_update(b);
}

const struct se_hyp *se_belief_stack(const struct se_belief *b)
{
    const struct se_hyp *h = &b->hyp[SE_TRUSTING];

    return b->unfused > 0 && b->hyp[b->unfused].weight > h->weight ? &b->hyp[b->unfused] : h;
}

double se_belief_trust(const struct se_belief *b)
{
    double sum = 0.0;

    for (int h = 0; h < b->nhyps; h++)
        sum += b->hyp[h].trusting ? b->hyp[h].weight : 0.0;
    return sum;
}

void se_belief_done(struct se_belief *b)
{
    for (int h = 0; h < b->nhyps; h++)
        se_gp_done(&b->hyp[h].gp);
    free(b->obs);
    memset(b, 0, sizeof(*b));
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

void se_belief_add(struct se_belief *b, const struct se_obs *o)
{
    assert(isfinite(o->value) && o->var >= 0.0);
    MEM_GROW(b->obs, b->nobs, b->cap);
    b->obs[b->nobs++] = *o;
}

void se_belief_place(const struct se_belief *b, const struct se_table *t, size_t i,
                     struct se_obs *o)
{
    struct se_point p;

    memset(o, 0, sizeof(*o));
    se_table_point(t, b->quantity, i, t->nlin[b->quantity], &p);
    memcpy(o->level, p.level, (size_t)t->ndims);
    memcpy(o->u, p.u, sizeof(o->u));
    o->prior = t->prior[b->quantity][i];
}

/* ---- matching observations ----------------------------------------------------------------------
 */

/* se_hyp_mean() of an observation. */
static double mean_at(const struct se_hyp *h, const struct se_obs *o)
{
    if (o->foreign)
        return 0.0;
    return h->trusting ? o->prior + (h->unfused ? o->u[SE_LIN_UNFUSED] : 0.0) : h->level;
}

/* Without a prior, nothing is known of the level of throughput but what was seen. */
static void set_level(struct se_belief *b)
{
    double sum = 0.0;
    int n = 0;

    if (b->nhyps > 1 || b->quantity != SE_THROUGHPUT)
        return;
    for (int i = 0; i < b->nobs; i++) {
        if (b->obs[i].seen == SE_EXACT && !b->obs[i].foreign) {
            sum += b->obs[i].value;
            n++;
        }
    }
    b->hyp[0].level = n > 0 ? sum / n : 0.0;
}

/* Put every STRIDE-th observation that counts for H into its GP and run EP; MEAN0, PICK and OWN
 * have room for all of them. Returns the log evidence. */
static double load(struct se_belief *b, struct se_hyp *h, int stride, struct se_obs *pick,
                   double *mean0, bool *own)
{
    struct se_gp *g = &h->gp;
    int n = 0, which = (int)(h - b->hyp);
    double log_z;

    g->n = 0;
    for (int i = b->nobs - 1; i >= 0; i -= stride) {
        const struct se_obs *o = &b->obs[i];
        struct se_point p = {.level = o->level};
        double m = mean_at(h, o);

        if (o->foreign && !h->informed)
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
    log_z = se_ep_run(g, pick, mean0);
    n = 0;
    for (int i = b->nobs - 1; i >= 0; i -= stride) {
        if (b->obs[i].foreign && !h->informed)
            continue;
        b->obs[i].site_y[which] = g->y[n];
        b->obs[i].site_var[which] = g->var[n++];
    }
    return log_z;
}

struct scratch {
    struct se_obs *pick;
    double *mean0;
    bool *own;
};

static void scratch_init(struct scratch *s, int n)
{
    s->pick = mem_alloc(((size_t)n + 1) * sizeof(*s->pick));
    s->mean0 = mem_alloc(((size_t)n + 1) * sizeof(*s->mean0));
    s->own = mem_alloc(((size_t)n + 1) * sizeof(*s->own));
}

static void scratch_done(struct scratch *s)
{
    free(s->pick);
    free(s->mean0);
    free(s->own);
}

static double log_hyper(const struct se_hyp *h)
{
    double s = 0.0;

    for (int i = 0; i < se_kernel_ntheta(&h->gp.kern); i++) {
        double z = (h->gp.kern.theta[i] - h->hyper[i].mean) / h->hyper[i].sd;

        s -= 0.5 * z * z;
    }
    return s;
}

/* With OWN_ENOUGH observations the better of trusting and informed takes the weight of both. */
static void choose_trusting(struct se_belief *b)
{
    double *cold = &b->hyp[SE_TRUSTING].weight, *informed = &b->hyp[b->informed].weight;

    if (b->informed == 0 || b->nobs - b->nhints < OWN_ENOUGH)
        return;
    if (*cold > *informed) {
        *cold += *informed;
        *informed = 0.0;
    } else {
        *informed += *cold;
        *cold = 0.0;
    }
}

static void set_weights(struct se_belief *b)
{
    double top = -INFINITY, sum = 0.0;

    for (int h = 0; h < b->nhyps; h++)
        top = fmax(top, b->hyp[h].evidence + log(b->hyp[h].prior_weight));
    for (int h = 0; h < b->nhyps; h++) {
        b->hyp[h].weight = exp(b->hyp[h].evidence + log(b->hyp[h].prior_weight) - top);
        sum += b->hyp[h].weight;
    }
    for (int h = 0; h < b->nhyps; h++)
        b->hyp[h].weight /= sum;
    if (b->nhyps > 1 && b->hyp[SE_DOUBTING].weight < DOUBT) {
        double scale = (1.0 - DOUBT) / (1.0 - b->hyp[SE_DOUBTING].weight);

        for (int h = 0; h < b->nhyps; h++)
            b->hyp[h].weight *= scale;
        b->hyp[SE_DOUBTING].weight = DOUBT;
    }
    choose_trusting(b);
}

/* log p(hints) by H: what its evidence owes to them and not to the campaign's own observations. */
static double hints_evidence(const struct se_belief *b, const struct se_hyp *h)
{
    struct se_kernel k;
    struct se_gp g;
    double log_p;

    if (!h->informed)
        return 0.0;
    se_kernel_copy(&k, &h->gp.kern);
    se_gp_init(&g, &k);
    for (int i = 0; i < b->nhints; i++) {
        struct se_point p = {.level = b->obs[i].level};

        memcpy(p.u, b->obs[i].u, sizeof(p.u));
        se_gp_add(&g, &p, b->obs[i].value, b->obs[i].var);
    }
    se_gp_factor(&g);
    log_p = se_gp_evidence(&g);
    se_gp_done(&g);
    return log_p;
}

void se_belief_update(struct se_belief *b)
{
    struct scratch s;

    set_level(b);
    scratch_init(&s, b->nobs);
    for (int h = 0; h < b->nhyps; h++)
        b->hyp[h].evidence = load(b, &b->hyp[h], 1, s.pick, s.mean0, s.own) -
                             hints_evidence(b, &b->hyp[h]) + log_hyper(&b->hyp[h]);
    scratch_done(&s);
    set_weights(b);
}

/* ---- hyper-parameters ---------------------------------------------------------------------------
 */

struct objective {
    struct se_hyp *h;
    struct scratch s;
    double *site_var; /* of one-sided observations, and the own error of exact ones */
};

/* Log evidence + log hyper-prior at THETA for fixed pseudo-observations, as NLopt calls it. */
static double value(unsigned n, const double *theta, double *grad, void *arg)
{
    struct objective *o = arg;
    struct se_gp *g = &o->h->gp;

    se_kernel_set(&g->kern, theta);
    for (int i = 0; i < g->n; i++)
        g->var[i] = o->site_var[i] + (o->s.own[i] ? g->kern.noise2 : 0.0);
    se_gp_factor(g);
    if (grad) {
        se_gp_evidence_grad(g, o->s.own, grad);
        for (unsigned i = 0; i < n; i++)
            grad[i] -= (theta[i] - o->h->hyper[i].mean) / (o->h->hyper[i].sd * o->h->hyper[i].sd);
    }
    return se_gp_evidence(g) + log_hyper(o->h);
}

static void maximise(struct objective *o)
{
    struct se_hyp *h = o->h;
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
    nlopt_set_max_objective(opt, value, o);
    nlopt_set_maxeval(opt, FIT_EVALS);
    nlopt_set_ftol_abs(opt, 1e-3);
    nlopt_set_vector_storage(opt, 8);
    /* A failure of the line search still leaves the best point so far in theta. */
    nlopt_optimize(opt, theta, &best);
    nlopt_destroy(opt);
    se_kernel_set(&h->gp.kern, theta);
}

static void fit_hyp(struct se_belief *b, struct se_hyp *h)
{
    int stride = (b->nobs + FIT_POINTS - 1) / FIT_POINTS;
    bool sided = false;
    struct objective o = {.h = h};

    scratch_init(&o.s, b->nobs);
    o.site_var = mem_alloc(((size_t)b->nobs + 1) * sizeof(double));
    for (int round = 0; round < (sided || round == 0 ? FIT_ROUNDS : 1); round++) {
        load(b, h, stride, o.s.pick, o.s.mean0, o.s.own);
        for (int i = 0; i < h->gp.n; i++) {
            o.site_var[i] = o.s.own[i] ? o.s.pick[i].var : h->gp.var[i];
            sided |= o.s.pick[i].seen != SE_EXACT;
        }
        if (round > 0 && !sided)
            break;
        maximise(&o);
    }
    scratch_done(&o.s);
    free(o.site_var);
}

void se_belief_fit(struct se_belief *b)
{
    set_level(b);
    for (int h = 0; h < b->nhyps && b->nobs > b->nhints; h++)
        fit_hyp(b, &b->hyp[h]);
    b->fitted = b->nobs;
    se_belief_update(b);
}

void se_belief_adopt(struct se_belief *b, const struct se_belief *from)
{
    assert(b->nhyps == from->nhyps);
    for (int h = 0; h < b->nhyps; h++)
        se_kernel_set(&b->hyp[h].gp.kern, from->hyp[h].gp.kern.theta);
    b->fitted = from->fitted;
    se_belief_update(b);
}

/* ---- predictions --------------------------------------------------------------------------------
 */

void se_hyp_predict(const struct se_belief *b, const struct se_hyp *h, const struct se_table *t,
                    size_t i, double *mean, double *var)
{
    struct se_point p;

    se_table_point(t, b->quantity, i, h->gp.kern.nlin, &p);
    se_gp_predict(&h->gp, &p, mean, var);
    *mean += se_hyp_mean(b, h, t, i);
}

void se_belief_predict(const struct se_belief *b, const struct se_table *t, size_t i, double *mean,
                       double *var)
{
    double m[SE_MAX_HYPS], v[SE_MAX_HYPS];

    *mean = 0.0;
    for (int h = 0; h < b->nhyps; h++) {
        se_hyp_predict(b, &b->hyp[h], t, i, &m[h], var ? &v[h] : NULL);
        *mean += b->hyp[h].weight * m[h];
    }
    if (!var)
        return;
    *var = 0.0;
    for (int h = 0; h < b->nhyps; h++)
        *var += b->hyp[h].weight * (v[h] + (m[h] - *mean) * (m[h] - *mean));
}

double se_belief_below(const struct se_belief *b, const struct se_table *t, size_t i, double bound)
{
    double p = 0.0;

    for (int h = 0; h < b->nhyps; h++) {
        double m, v;

        se_hyp_predict(b, &b->hyp[h], t, i, &m, &v);
        p += b->hyp[h].weight * se_norm_cdf((bound - m) / sqrt(v + b->hyp[h].gp.kern.noise2));
    }
    return p;
}

void se_belief_imagine(struct se_belief *b, const struct se_table *t, size_t i, double var)
{
    for (int h = 0; h < b->nhyps; h++) {
        struct se_gp *g = &b->hyp[h].gp;
        struct se_point p;
        double m, v;

        se_table_point(t, b->quantity, i, g->kern.nlin, &p);
        se_gp_predict(g, &p, &m, &v);
        se_gp_append(g, &p, m, var + g->kern.noise2);
    }
}

void se_belief_forget(struct se_belief *b)
{
    for (int h = 0; h < b->nhyps; h++) {
        int n = 0;

        for (int i = 0; i < b->nobs; i++)
            n += !b->obs[i].foreign || b->hyp[h].informed;
        se_gp_truncate(&b->hyp[h].gp, n);
    }
}
