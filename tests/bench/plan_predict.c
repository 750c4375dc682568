#include "tests/bench/plan_predict.h"

#include <math.h>

size_t families_of(const char *ret[MAX_FAMILIES], const struct rows *rows)
{
    size_t n = 0;

    for (size_t i = 0; i < rows->n; i++) {
        size_t j = 0;

        while (j < n && strcmp(ret[j], rows->at[i].family))
            j++;
        if (j == n && n < MAX_FAMILIES && row_is_timed(&rows->at[i]))
            ret[n++] = rows->at[i].family;
    }
    return n;
}

/* ---- one row ------------------------------------------------------------- */

struct choice {
    const struct row *r;
    struct pl_cost_ctx *x;
    struct pl_problem p;
    struct guess best;
};

static void try_layout(struct choice *c, const struct pl_layout *l)
{
    struct pl_cost cost;
    bool fits = pl_fits(&c->p, l, 0);

    pl_cost_at(&cost, c->x, l);
    if (c->best.seconds > 0 &&
        (c->best.fits > fits || (c->best.fits == fits && c->best.seconds <= cost.total)))
        return;
    c->best = (struct guess){cost.total, cost, *l, fits};
}

/* A choice of one setting that the row leaves open; false where it does not exist. */
static bool set_open(struct pl_layout *l, const struct row *r, int mb, int vp, int rest)
{
    int share = r->workload.global_batch / r->layout.dp;

    if (r->free_micro_batch)
        l->micro_batch = mb;
    if (r->free_vp)
        l->vp = vp;
    if (share % l->micro_batch)
        return false;
    /* embedding and loss may count as a layer each */
    if (l->vp > 1 && r->model.layers % (l->pp * l->vp) && (r->model.layers + 2) % (l->pp * l->vp))
        return false;
    if (l->vp > 1 && share / l->micro_batch % l->pp)
        return false;
    /* software with streaming attention runs without full recompute unless its authors say so */
    if (r->free_recompute && r->trainer.flash && rest % 3 == PL_RECOMPUTE_FULL)
        return false;
    if (r->free_recompute)
        l->recompute = rest % 3;
    else if (rest % 3)
        return false;
    if (r->free_sp)
        l->sp = rest / 3 % 2;
    else if (rest / 3 % 2)
        return false;
    if (r->free_zero)
        l->zero = rest / 6;
    else if (rest / 6)
        return false;
    pl_layout_canonical(l, &r->model);
    return true;
}

/* Settings that the row leaves open, nested: micro-batch, virtual stages, and recompute x sp x
 * zero. */
static void try_all(struct choice *c)
{
    const struct row *r = c->r;
    int share = r->workload.global_batch / r->layout.dp;
    int chunks = r->free_vp && r->layout.pp > 1 ? (r->model.layers + 2) / r->layout.pp : 1;

    for (int mb = 1; mb <= (r->free_micro_batch ? share : 1); mb++)
        for (int vp = 1; share % mb == 0 && vp <= chunks; vp++)
            for (int rest = 0; rest < 3 * 2 * 2; rest++) {
                struct pl_layout l = r->layout;

                if (set_open(&l, r, mb, vp, rest))
                    try_layout(c, &l);
            }
}

/* Variants of one chip differ in memory alone and share what they sustain; another power limit is
 * another chip. */
static const char *chip_of(const struct pl_device *d)
{
    if (strstr(d->name, "500 W"))
        return "H100 at 500 W";
    if (str_starts(d->name, "A100"))
        return "A100";
    if (str_starts(d->name, "H100") || str_starts(d->name, "H200"))
        return "H100";
    return d->name;
}

/* The fitted constants of T; of those that are not fitted, what the row's stack says. */
static struct pl_constants constants_for(const struct row *r, const struct tuning *t)
{
    struct pl_constants k = t->k;

    for (const struct pl_constant_name *n = pl_constant_names; n->name; n++)
        if (n->width <= 0)
            *pl_constant(&k, n) = pl_constant_get(pl_constants_of(&r->trainer), n);
    return k;
}

void predict(struct guess *ret, const struct row *r, const struct tuning *t)
{
    struct pl_cluster cluster = r->cluster;
    struct choice c = {.r = r, .p = {&r->model, &cluster, &r->workload, &r->trainer}};
    struct pl_constants k = constants_for(r, t);

    for (size_t i = 0; i < t->ndevices; i++)
        if (str_eq(t->device[i].name, chip_of(&cluster.device)))
            cluster.device.sustained = t->device[i].sustained;
    c.x = pl_cost_ctx_new(&c.p, &k);
    try_all(&c);
    if (c.best.seconds <= 0) /* nothing divides: as given */
        try_layout(&c, &r->layout);
    pl_cost_ctx_free(c.x);
    *ret = c.best;
}

/* ---- what was known beforehand ------------------------------------------- */

/* Of a device's best product under the load of a long run; and of one that is held to 500 of its
 * 700 W, whose clock falls about as the cube root of the power. */
static const double SUSTAINED = 0.92, SUSTAINED_500W = 0.82, SUSTAINED_WIDTH = 0.08;
static const double PRIOR_WEIGHT = 0.002;

static double device_prior(const char *name)
{
    return strstr(name, "500 W") ? SUSTAINED_500W : SUSTAINED;
}

/* Those that are fitted: the first of the table. */
static size_t constants(void)
{
    size_t n = 0;

    while (pl_constant_names[n].name && pl_constant_names[n].width > 0)
        n++;
    return n;
}

double *tuning_value(struct tuning *t, size_t i, const char **ret_name, double *ret_prior,
                     double *ret_width)
{
    size_t n = constants();

    if (i >= n + t->ndevices)
        return NULL;
    if (i >= n) {
        *ret_name = t->device[i - n].name;
        *ret_prior = device_prior(*ret_name);
        *ret_width = SUSTAINED_WIDTH;
        return &t->device[i - n].sustained;
    }
    *ret_name = pl_constant_names[i].name;
    *ret_prior = pl_constant_names[i].prior;
    *ret_width = pl_constant_names[i].width;
    return pl_constant(&t->k, &pl_constant_names[i]);
}

void tuning_shipped(struct tuning *ret, const struct rows *rows)
{
    *ret = (struct tuning){.k = pl_default_constants};
    for (size_t i = 0; i < rows->n; i++) {
        const struct pl_device *d = &rows->at[i].cluster.device;
        const char *chip = chip_of(d);
        size_t j = 0;

        while (j < ret->ndevices && !str_eq(ret->device[j].name, chip))
            j++;
        if (j < ret->ndevices || j >= TUNING_DEVICES || !row_is_timed(&rows->at[i]))
            continue;
        ret->device[j].name = chip;
        ret->device[j].sustained = d->sustained;
        ret->ndevices++;
    }
}

void tuning_prior(struct tuning *ret, const struct rows *rows)
{
    const char *name;
    double *at, prior = 0, width;

    tuning_shipped(ret, rows);
    for (size_t i = 0; (at = tuning_value(ret, i, &name, &prior, &width)); i++)
        *at = prior;
}

/* ---- fitting ------------------------------------------------------------- */

static double misfit(const struct rows *rows, struct tuning *t, const char *left_out)
{
    const char *family[MAX_FAMILIES], *name;
    size_t n = families_of(family, rows), used = 0;
    double total = 0, penalty = 0, *at, prior = 1, width = 1;

    for (size_t f = 0; f < n; f++) {
        double sum = 0;
        size_t m = 0;

        if (left_out && !strcmp(family[f], left_out))
            continue;
        for (size_t i = 0; i < rows->n; i++) {
            struct guess p;

            if (!row_is_timed(&rows->at[i]) || strcmp(rows->at[i].family, family[f]))
                continue;
            predict(&p, &rows->at[i], t);
            sum += fabs(log(p.seconds / rows->at[i].seconds));
            m++;
        }
        total += sum / (double)m;
        used++;
    }
    for (size_t i = 0; (at = tuning_value(t, i, &name, &prior, &width)); i++)
        penalty += PRIOR_WEIGHT * pow(log(*at / prior) / width, 2);
    return (used ? total / (double)used : 0) + penalty;
}

/* Within what physics leaves open; a share is never above one. */
static double bounded(size_t i, double v)
{
    if (i >= constants())
        return fmin(fmax(v, 0.3), 1);
    return fmin(fmax(v, pl_constant_names[i].min), pl_constant_names[i].max);
}

/* Coordinate search by shrinking factors: a dozen values, a smooth objective with kinks. */
void tuning_fit(struct tuning *ret, const struct rows *rows, const char *left_out)
{
    double best, step = 0.2, prior, width, *at;
    const char *name;

    tuning_prior(ret, rows);
    best = misfit(rows, ret, left_out);
    for (int round = 0; round < 6; round++, step /= 1.8)
        for (size_t i = 0; (at = tuning_value(ret, i, &name, &prior, &width)); i++)
            for (int sign = -1; sign <= 1; sign += 2) {
                double old = *at, m;

                *at = bounded(i, old * (1 + sign * step));
                m = misfit(rows, ret, left_out);
                if (m < best)
                    best = m;
                else
                    *at = old;
            }
}
