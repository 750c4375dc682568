/*
 * The table of all legal layouts; the format is in table.h.
 *
 * Which keys become dimensions: those with more than one value. Which dimensions are active: a
 * dimension whose level is a function of another active one's level (schedule of vp, edp of dp)
 * says nothing new and would only make the kernel double-count it.
 */
#include "search/table.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "base/base.h"

struct se_table *se_table_free(struct se_table *t)
{
    if (!t)
        return NULL;
    free(t->level);
    free(t->first);
    free(t->hash);
    free(t->log_world);
    for (int q = 0; q < SE_QUANTITIES; q++) {
        free(t->prior[q]);
        free(t->lin[q]);
    }
    free(t);
    return NULL;
}
AUTO_DEFINE(se_table)

/* ---- dimensions ---------------------------------------------------------------------------------
 */

/* Distinct values of key K, ascending; their count, or -1 when there are too many. */
static int distinct(int *value, const struct pl_layout_key *k, const struct pl_layout *layouts,
                    size_t n)
{
    int count = 0;

    for (size_t i = 0; i < n; i++) {
        int v = pl_layout_get(&layouts[i], k), at = count;

        while (at > 0 && value[at - 1] > v)
            at--;
        if (at > 0 && value[at - 1] == v)
            continue;
        if (count == SE_MAX_LEVELS)
            return -1;
        memmove(value + at + 1, value + at, (size_t)(count - at) * sizeof(*value));
        value[at] = v;
        count++;
    }
    return count;
}

static int find_dims(struct se_table *t, const struct pl_layout *layouts, size_t n, struct err *e)
{
    for (int row = 0; pl_layout_keys[row].name; row++) {
        const struct pl_layout_key *k = &pl_layout_keys[row];
        struct se_dim *d = &t->dim[t->ndims];
        int count;

        assert(t->ndims < SE_MAX_DIMS);
        memset(d, 0, sizeof(*d));
        count = distinct(d->value, k, layouts, n);
        if (count < 0) {
            char at[64];

            snprintf(at, sizeof(at), "/space/%s", k->name);
            return err_at(e, -E2BIG, at, "%s takes more than %d values in this space", k->name,
                          SE_MAX_LEVELS);
        }
        if (count == 1)
            continue;
        d->name = k->name;
        d->key = row;
        d->nlevels = count;
        d->categorical = k->names != NULL || !k->log2;
        for (int v = 0; v < count; v++)
            d->pos[v] = k->log2 && d->value[v] > 0 ? log2(d->value[v]) : d->value[v];
        t->ndims++;
    }
    return 0;
}

static int level_at(const struct se_dim *d, int value)
{
    int lo = 0, hi = d->nlevels;

    while (lo < hi) {
        int mid = (lo + hi) / 2;

        if (d->value[mid] < value)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < d->nlevels && d->value[lo] == value ? lo : -1;
}

static bool row_of(const struct se_table *t, const struct pl_layout *l, uint8_t *row)
{
    for (int d = 0; d < t->ndims; d++) {
        int v = level_at(&t->dim[d], pl_layout_get(l, &pl_layout_keys[t->dim[d].key]));

        if (v < 0)
            return false;
        row[d] = (uint8_t)v;
    }
    return true;
}

/* Is the level of B a function of the level of A? */
static bool follows(const struct se_table *t, int b, int a)
{
    int image[SE_MAX_LEVELS];

    for (int v = 0; v < SE_MAX_LEVELS; v++)
        image[v] = -1;
    for (size_t i = 0; i < t->n; i++) {
        const uint8_t *row = se_table_row(t, i);

        if (image[row[a]] >= 0 && image[row[a]] != row[b])
            return false;
        image[row[a]] = row[b];
    }
    return true;
}

static void choose_active(struct se_table *t)
{
    for (int d = 0; d < t->ndims; d++)
        t->dim[d].active = true;
    for (int d = t->ndims - 1; d >= 0; d--) {
        for (int a = 0; a < t->ndims && t->dim[d].active; a++) {
            if (a != d && t->dim[a].active && follows(t, d, a))
                t->dim[d].active = false;
        }
    }
}

/* Active dimensions first, those that change least from row to row before the others (sweep.c does
 * once for a run of rows what depends on the leading ones). */
static void order_dims(struct se_table *t)
{
    size_t changes[SE_MAX_DIMS] = {0};
    int order[SE_MAX_DIMS];
    struct se_dim dim[SE_MAX_DIMS];
    uint8_t row[SE_MAX_DIMS];

    for (size_t i = 1; i < t->n; i++)
        for (int d = 0; d < t->ndims; d++)
            changes[d] += se_table_row(t, i)[d] != se_table_row(t, i - 1)[d];
    for (int d = 0; d < t->ndims; d++) {
        int at = d;

        for (; at > 0; at--) {
            int o = order[at - 1];

            if (t->dim[o].active != t->dim[d].active ? t->dim[o].active : changes[o] <= changes[d])
                break;
            order[at] = o;
        }
        order[at] = d;
    }
    memcpy(dim, t->dim, sizeof(dim));
    for (int d = 0; d < t->ndims; d++) {
        t->dim[d] = dim[order[d]];
        t->nactive += t->dim[d].active;
    }
    for (size_t i = 0; i < t->n; i++) {
        uint8_t *r = t->level + i * (size_t)t->ndims;

        memcpy(row, r, (size_t)t->ndims);
        for (int d = 0; d < t->ndims; d++)
            r[d] = row[order[d]];
    }
}

static void find_changes(struct se_table *t)
{
    for (size_t i = 1; i < t->n; i++) {
        const uint8_t *a = se_table_row(t, i - 1), *b = se_table_row(t, i);
        int d = 0;

        while (d < t->nactive && a[d] == b[d])
            d++;
        t->first[i] = (uint8_t)d;
        t->changes[d < SE_MAX_DIMS ? d : 0]++;
    }
}

/* ---- look-up ------------------------------------------------------------------------------------
 */

static size_t slot_of(const struct se_table *t, const uint8_t *row)
{
    size_t at = (size_t)rng_mix(str_hash(row, (size_t)t->ndims, 0)) & (t->hash_size - 1);

    while (t->hash[at] && memcmp(se_table_row(t, t->hash[at] - 1), row, (size_t)t->ndims) != 0)
        at = (at + 1) & (t->hash_size - 1);
    return at;
}

static int build_hash(struct se_table *t, struct err *e)
{
    t->hash_size = 16;
    while (t->hash_size < 2 * t->n)
        t->hash_size *= 2;
    t->hash = mem_try_alloc(mem_mul(t->hash_size, sizeof(*t->hash), 1));
    if (!t->hash)
        return err_set(e, -ENOMEM, "no memory for %zu layouts", t->n);
    for (size_t i = 0; i < t->n; i++) {
        size_t at = slot_of(t, se_table_row(t, i));

        if (t->hash[at])
            return err_set(e, -EINVAL, "layouts %u and %zu are the same", t->hash[at] - 1, i);
        t->hash[at] = (uint32_t)(i + 1);
    }
    return 0;
}

long se_table_find(const struct se_table *t, const struct pl_layout *l)
{
    uint8_t row[SE_MAX_DIMS];
    struct pl_layout found;
    size_t at;

    if (!row_of(t, l, row))
        return -1;
    at = slot_of(t, row);
    if (!t->hash[at])
        return -1;
    se_table_layout(t, t->hash[at] - 1, &found);
    return pl_layout_equal(&found, l) ? (long)t->hash[at] - 1 : -1;
}

void se_table_layout(const struct se_table *t, size_t i, struct pl_layout *ret)
{
    *ret = t->base;
    for (int d = 0; d < t->ndims; d++)
        pl_layout_set(ret, &pl_layout_keys[t->dim[d].key], t->dim[d].value[se_table_row(t, i)[d]]);
}

int se_table_new(struct se_table **ret, const struct pl_layout *layouts, size_t n, struct err *e)
{
    AUTO(se_table) *t = mem_alloc(sizeof(*t));
    int r;

    if (n == 0)
        return err_set(e, -EINVAL, "no legal layout");
    t->n = n;
    t->base = layouts[0];
    r = find_dims(t, layouts, n, e);
    if (r < 0)
        return r;
    t->level = mem_try_alloc(mem_mul(n, (size_t)t->ndims + 1, 1));
    t->first = mem_try_alloc(n);
    if (!t->level || !t->first)
        return err_set(e, -ENOMEM, "no memory for %zu layouts", n);
    for (size_t i = 0; i < n; i++)
        row_of(t, &layouts[i], t->level + i * (size_t)t->ndims);
    choose_active(t);
    order_dims(t);
    find_changes(t);
    r = build_hash(t, e);
    if (r < 0)
        return r;
    *ret = TAKE(t);
    return 0;
}

/* ---- priors -------------------------------------------------------------------------------------
 */

/* The prior of one layout after another of a spec; the cost model remembers what layouts share. */
struct source {
    const struct se_spec *spec;
    struct pl_problem problem;
    struct pl_cost_ctx *cost;     /* NULL where the spec has a prior of its own */
    struct pl_memory_ctx *memory; /* likewise */
};

static void source_init(struct source *x, const struct se_spec *spec)
{
    x->spec = spec;
    x->problem = se_spec_problem(spec);
    x->cost = spec->prior_fn ? NULL : pl_cost_ctx_new(&x->problem, NULL);
    x->memory = spec->prior_fn ? NULL : pl_memory_ctx_new(&x->problem);
}

static void source_done(struct source *x)
{
    pl_cost_ctx_free(x->cost);
    pl_memory_ctx_free(x->memory);
}

/* A doubt of yes or no has a standard deviation of a half where nothing else is known; a share's
 * coefficient has that of the factors of classes, e^-1 (belief.c). */
static const double YES_OR_NO = 0.5 / 0.37;

/* T x T matrices of one layer while its attention is computed again: softmax, its mask and its
 * dropout (5 bytes an element of half precision, Korthikanti et al. 2022) and two gradients. */
static double layer_matrices(const struct pl_model *m, const struct pl_workload *w,
                             const struct pl_layout *l)
{
    double rows = (double)w->seq / l->cp * l->micro_batch, bytes = l->precision == PL_FP32 ? 2 : 1;

    return bytes * (5 + 4) * rows * w->seq / l->cp * m->heads / l->tp;
}

/*
 * log of how much more L would take in a stack without fused attention: all matrices of all layers,
 * or where attention is computed again those of one layer.
 */
static double unfused(const struct se_spec *spec, const struct pl_layout *l, double total)
{
    struct pl_trainer other = *spec->trainer;
    struct pl_memory memory;

    if (!other.flash || other.bundled)
        return 0.0;
    if (l->recompute != PL_RECOMPUTE_NONE)
        return log1p(layer_matrices(&spec->model, &spec->workload, l) / total);
    other.flash = false;
    pl_memory_worst(&memory, &spec->model, l, &spec->workload, &other);
    return log(memory.total / total);
}

/* log of how much less L would take, in that scale, if what shards the optimizer's state sharded
 * the gradients as well. */
static double sharded_grads(const struct pl_memory *memory, const struct pl_layout *l)
{
    double away = l->zero == 1 ? 1.0 - 1.0 / ((double)l->dp * l->cp) : 0.0;

    return -YES_OR_NO * log1p(-away * memory->bytes[PL_MEM_GRADS] / memory->total);
}

static void memory_shares(struct se_prior *ret, const struct pl_memory *memory,
                          const struct se_spec *spec, const struct pl_layout *l)
{
    for (int c = 0; c < PL_MEM_CLASSES; c++)
        ret->memory_share[c] = memory->bytes[c] / memory->total;
    ret->memory_share[SE_MEMORY_GRADS] = sharded_grads(memory, l);
    ret->memory_share[SE_MEMORY_UNFUSED] = unfused(spec, l, memory->total);
}

/* Beyond a node a group of tp rings through as many interfaces as it has members on a node, if
 * software and wiring let it; or through one. */
static void cost_shares(struct se_prior *ret, const struct pl_cost *cost,
                        const struct se_spec *spec, const struct pl_layout *l)
{
    double node = spec->cluster.devices_per_node, share;

    for (int c = 0; c < PL_COST_CLASSES; c++)
        ret->cost_share[c] = cost->seconds[c] / cost->total;
    if (l->tp <= node)
        return;
    share = ret->cost_share[PL_COST_TP];
    ret->cost_share[PL_COST_TP] = 0.0;
    ret->cost_share[SE_COST_TP_FAR] = share;
    ret->cost_share[SE_COST_ONE_LINK] = -YES_OR_NO * log1p(share * (node - 1.0));
}

static void prior_of(struct source *x, const struct pl_layout *l, struct se_prior *ret)
{
    const struct se_spec *spec = x->spec;
    struct pl_cost cost;
    struct pl_memory memory;

    memset(ret, 0, sizeof(*ret));
    if (spec->prior_fn) {
        spec->prior_fn(ret, l, spec->prior_arg);
        return;
    }
    pl_cost_at(&cost, x->cost, l);
    pl_memory_at(&memory, x->memory, l);
    ret->log_throughput = log(cost.tokens_per_s);
    ret->log_memory = log(memory.total);
    cost_shares(ret, &cost, spec, l);
    memory_shares(ret, &memory, spec, l);
}

static int alloc_priors(struct se_table *t, struct err *e)
{
    t->nlin[SE_THROUGHPUT] = SE_LIN_SHARE + SE_COST_SHARES;
    t->nlin[SE_MEMORY] = SE_LIN_SHARE + SE_MEMORY_SHARES;
    t->log_world = mem_try_alloc(mem_mul(t->n, sizeof(float), 1));
    for (int q = 0; q < SE_QUANTITIES; q++) {
        t->prior[q] = mem_try_alloc(mem_mul(t->n, sizeof(float), 1));
        t->lin[q] = mem_try_alloc(mem_mul(t->n, sizeof(float), SE_MAX_LIN));
        if (!t->prior[q] || !t->lin[q] || !t->log_world)
            return err_set(e, -ENOMEM, "no memory for the priors of %zu layouts", t->n);
    }
    return 0;
}

static void set_lin(struct se_table *t, enum se_quantity q, size_t i, double prior,
                    const double *share)
{
    float *u = t->lin[q] + i * SE_MAX_LIN;

    t->prior[q][i] = (float)prior;
    u[SE_LIN_CONST] = 1.0F;
    for (int p = SE_LIN_SHARE; p < t->nlin[q]; p++)
        u[p] = (float)share[p - SE_LIN_SHARE];
}

/* The slope of the prior turns about the best layout that is thought to fit. */
static void set_centre(struct se_table *t, bool all_fit)
{
    double best = -INFINITY;

    for (size_t i = 0; i < t->n; i++)
        if (all_fit || t->prior[SE_MEMORY][i] <= 0.0F)
            best = fmax(best, t->prior[SE_THROUGHPUT][i]);
    t->centre[SE_THROUGHPUT] = isfinite(best) ? best : t->prior[SE_THROUGHPUT][0];
    t->centre[SE_MEMORY] = 0.0;
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (size_t i = 0; i < t->n; i++)
            t->lin[q][i * SE_MAX_LIN + SE_LIN_PRIOR] = t->prior[q][i] - (float)t->centre[q];
}

int se_table_set_prior(struct se_table *t, const struct se_spec *spec, struct err *e)
{
    double log_capacity = se_log_capacity(spec);
    struct source x;
    int r = alloc_priors(t, e);

    if (r < 0)
        return r;
    source_init(&x, spec);
    for (size_t i = 0; i < t->n && r == 0; i++) {
        struct pl_layout l;
        struct se_prior p;

        se_table_layout(t, i, &l);
        prior_of(&x, &l, &p);
        t->log_world[i] = (float)log(l.world);
        if (spec->objective == SE_TOKENS_PER_S_PER_DEVICE)
            p.log_throughput -= log(l.world);
        set_lin(t, SE_THROUGHPUT, i, p.log_throughput, p.cost_share);
        set_lin(t, SE_MEMORY, i, p.log_memory - log_capacity, p.memory_share);
        if (i % 1024 == 1023 && pl_patience_over(spec->patience))
            r = err_set(e, -ECANCELED, "there was not enough time for %zu layouts", t->n);
    }
    source_done(&x);
    if (r < 0)
        return r;
    set_centre(t, spec->prior_fn != NULL);
    return 0;
}

void se_table_point(const struct se_table *t, enum se_quantity q, size_t i, int nlin,
                    struct se_point *ret)
{
    const float *u = se_table_lin(t, q, i);

    ret->level = se_table_row(t, i);
    assert(nlin <= t->nlin[q]);
    for (int p = 0; p < nlin; p++)
        ret->u[p] = u[p];
}

double se_log_capacity(const struct se_spec *spec)
{
    return log(spec->cluster.device.memory_gib * 0x1p30 * (1.0 - spec->memory_headroom));
}
