/*
 * The table of all legal layouts; the format is in table.h.
 *
 * Which keys become dimensions: those with more than one value. Which dimensions are active: a
 * dimension whose level is a function of another active one's level (schedule of vp, edp of dp)
 * says nothing new and would only make the kernel double-count it. A derived key of more values
 * than a dimension has levels is none: the keys that it follows from are.
 */
#include "search/table.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "base/base.h"

struct se_table *se_table_free(struct se_table *table)
{
    if (!table)
        return NULL;
    free(table->level);
    free(table->first);
    free(table->hash);
    free(table->log_devices);
    free(table->log_watts);
    free(table->log_batch);
    free(table->log_price);
    for (int q = 0; q < SE_QUANTITIES; q++) {
        free(table->prior[q]);
        free(table->lin[q]);
    }
    free(table);
    return NULL;
}
AUTO_DEFINE(se_table)

/* ---- dimensions ---------------------------------------------------------- */

/* Distinct values of KEY, ascending; their count, or -1 when there are too many. */
static int distinct(int *value, int key, const struct pl_layout *layouts, size_t layout_count)
{
    int count = 0;

    for (size_t i = 0; i < layout_count; i++) {
        int v = se_key_get(&layouts[i], key), at = count;

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

/* Clusters are what no layout key is: a category whose values may have anything in common. */
static void find_clusters(struct se_table *table, const struct pl_layout *layouts,
                          size_t layout_count)
{
    struct se_dim *d = &table->dim[table->ndims];

    *d = (struct se_dim){.name = "cluster", .key = SE_KEY_CLUSTER, .categorical = true};
    d->nlevels = distinct(d->value, SE_KEY_CLUSTER, layouts, layout_count);
    for (int v = 0; v < d->nlevels; v++)
        d->pos[v] = v;
    table->ndims += d->nlevels > 1;
}

static int find_dims(struct se_table *table, const struct pl_layout *layouts, size_t layout_count,
                     struct err *error)
{
    for (int row = 0; pl_layout_keys[row].name; row++) {
        const struct pl_layout_key *k = &pl_layout_keys[row];
        struct se_dim *d = &table->dim[table->ndims];
        int count;

        assert(table->ndims < SE_MAX_DIMS);
        memset(d, 0, sizeof(*d));
        count = distinct(d->value, row, layouts, layout_count);
        if (count < 0 && k->part != PL_DERIVED)
            return err_set(error, -E2BIG, "%s takes more than %d values in this space", k->name,
                           SE_MAX_LEVELS);
        table->derive |= count < 0;
        if (count <= 1)
            continue;
        d->name = k->name;
        d->key = row;
        d->nlevels = count;
        d->categorical = k->names != NULL || !k->log2;
        for (int v = 1; v < count; v++)
            assert(d->value[v - 1] < d->value[v]); /* level_at() halves */
        for (int v = 0; v < count; v++)
            d->pos[v] = k->log2 && d->value[v] > 0 ? log2(d->value[v]) : d->value[v];
        table->ndims++;
    }
    find_clusters(table, layouts, layout_count);
    return 0;
}

static int level_at(const struct se_dim *dim, int value)
{
    int lo = 0, hi = dim->nlevels;

    while (lo < hi) {
        int mid = (lo + hi) / 2;

        if (dim->value[mid] < value)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < dim->nlevels && dim->value[lo] == value ? lo : -1;
}

static bool row_of(const struct se_table *table, const struct pl_layout *layout, uint8_t *row)
{
    for (int d = 0; d < table->ndims; d++) {
        int v = level_at(&table->dim[d], se_key_get(layout, table->dim[d].key));

        if (v < 0)
            return false;
        row[d] = (uint8_t)v;
    }
    return true;
}

/* Is the level of SECOND a function of the level of FIRST? */
static bool follows(const struct se_table *table, int second, int first)
{
    int image[SE_MAX_LEVELS];

    for (int v = 0; v < SE_MAX_LEVELS; v++)
        image[v] = -1;
    for (size_t i = 0; i < table->n; i++) {
        const uint8_t *row = se_table_row(table, i);

        if (image[row[first]] >= 0 && image[row[first]] != row[second])
            return false;
        image[row[first]] = row[second];
    }
    return true;
}

static void choose_active(struct se_table *table)
{
    for (int d = 0; d < table->ndims; d++)
        table->dim[d].active = true;
    /* Of what tells clusters apart, their number of devices say, they are what matters. */
    for (int d = table->ndims - 1; d >= 0; d--) {
        if (table->dim[d].key == SE_KEY_CLUSTER)
            continue;
        for (int a = 0; a < table->ndims && table->dim[d].active; a++) {
            if (a != d && table->dim[a].active && follows(table, d, a))
                table->dim[d].active = false;
        }
    }
}

/* Active dimensions first, those that change least from row to row before the others (sweep.c does
 * once for a run of rows what depends on the leading ones). */
static void order_dims(struct se_table *table)
{
    size_t changes[SE_MAX_DIMS] = {0};
    int order[SE_MAX_DIMS];
    struct se_dim dim[SE_MAX_DIMS];
    uint8_t row[SE_MAX_DIMS];

    for (size_t i = 1; i < table->n; i++)
        for (int d = 0; d < table->ndims; d++)
            changes[d] += se_table_row(table, i)[d] != se_table_row(table, i - 1)[d];
    for (int d = 0; d < table->ndims; d++) {
        int at = d;

        for (; at > 0; at--) {
            int o = order[at - 1];

            if (table->dim[o].active != table->dim[d].active ? table->dim[o].active
                                                             : changes[o] <= changes[d])
                break;
            order[at] = o;
        }
        order[at] = d;
    }
    memcpy(dim, table->dim, sizeof(dim));
    for (int d = 0; d < table->ndims; d++) {
        table->dim[d] = dim[order[d]];
        table->nactive += table->dim[d].active;
        assert(!table->dim[d].active || table->nactive == d + 1); /* active ones first */
    }
    for (size_t i = 0; i < table->n; i++) {
        uint8_t *r = table->level + i * (size_t)table->ndims;

        memcpy(row, r, (size_t)table->ndims);
        for (int d = 0; d < table->ndims; d++)
            r[d] = row[order[d]];
    }
}

static void find_changes(struct se_table *table)
{
    for (size_t i = 1; i < table->n; i++) {
        const uint8_t *a = se_table_row(table, i - 1), *b = se_table_row(table, i);
        int d = 0;

        while (d < table->nactive && a[d] == b[d])
            d++;
        table->first[i] = (uint8_t)d;
        table->changes[d < SE_MAX_DIMS ? d : 0]++;
    }
}

/* ---- look-up ------------------------------------------------------------- */

static size_t slot_of(const struct se_table *table, const uint8_t *row)
{
    size_t at = (size_t)rng_mix(str_hash(row, (size_t)table->ndims, 0)) & (table->hash_size - 1);

    while (table->hash[at] &&
           memcmp(se_table_row(table, table->hash[at] - 1), row, (size_t)table->ndims) != 0)
        at = (at + 1) & (table->hash_size - 1);
    return at;
}

static int build_hash(struct se_table *table, struct err *error)
{
    assert(table->n < UINT32_MAX);
    table->hash_size = 16;
    while (table->hash_size < 2 * table->n)
        table->hash_size *= 2;
    table->hash = mem_try_alloc(mem_mul(table->hash_size, sizeof(*table->hash), 1));
    if (!table->hash)
        return err_set(error, -ENOMEM, "no memory for %zu layouts", table->n);
    for (size_t i = 0; i < table->n; i++) {
        size_t at = slot_of(table, se_table_row(table, i));

        if (table->hash[at]) {
            struct pl_layout twice;
            char text[160];

            se_table_layout(&twice, table, i);
            return err_set(error, -EINVAL, "layout %s is listed twice",
                           pl_layout_text(text, &twice));
        }
        table->hash[at] = (uint32_t)(i + 1);
    }
    return 0;
}

long se_table_find(const struct se_table *table, const struct pl_layout *layout)
{
    uint8_t row[SE_MAX_DIMS];
    struct pl_layout found;
    size_t at;

    if (!row_of(table, layout, row))
        return -1;
    at = slot_of(table, row);
    if (!table->hash[at])
        return -1;
    se_table_layout(&found, table, table->hash[at] - 1);
    return pl_layout_equal(&found, layout) ? (long)table->hash[at] - 1 : -1;
}

void se_table_layout(struct pl_layout *ret, const struct se_table *table, size_t index)
{
    assert(index < table->n);
    *ret = table->base;
    for (int d = 0; d < table->ndims; d++)
        se_key_set(ret, table->dim[d].key, table->dim[d].value[se_table_row(table, index)[d]]);
    if (table->derive)
        pl_layout_derive(ret);
}

int se_table_new(struct se_table **ret, const struct pl_layout *layouts, size_t count,
                 struct err *error)
{
    AUTO(se_table) *t = mem_alloc(sizeof(*t));
    int r;

    if (count == 0)
        return err_set(error, -EINVAL, "no legal layout");
    t->n = count;
    t->base = layouts[0];
    r = find_dims(t, layouts, count, error);
    if (r < 0)
        return r;
    t->level = mem_try_alloc(mem_mul(count, (size_t)t->ndims + 1, 1));
    t->first = mem_try_alloc(count);
    if (!t->level || !t->first)
        return err_set(error, -ENOMEM, "no memory for %zu layouts", count);
    for (size_t i = 0; i < count; i++)
        row_of(t, &layouts[i], t->level + i * (size_t)t->ndims);
    choose_active(t);
    order_dims(t);
    find_changes(t);
    r = build_hash(t, error);
    if (r < 0)
        return r;
    *ret = TAKE(t);
    return 0;
}

/* ---- priors -------------------------------------------------------------- */

/* Do layouts of SPEC differ by what their devices cost, or are they compared by it? Then a trial's
 * cost is its price, not its device-seconds. */
static bool counts_price(const struct se_spec *spec)
{
    return spec->objective == PL_TOKENS_PER_COST || (spec->nclusters > 1 && se_prices_known(spec));
}

/* Of one device where LAYOUT runs, less the headroom. */
static double log_capacity(const struct se_spec *spec, const struct pl_layout *layout)
{
    return log(se_cluster_of(spec, layout)->device.memory_gib * 0x1p30 *
               (1.0 - spec->memory_headroom));
}

/* The prior of one layout after another of a spec; the cost model remembers what layouts of a
 * cluster share. */
struct source {
    const struct se_spec *spec;
    struct {
        struct pl_problem problem;
        struct pl_cost_ctx *cost;     /* NULL where the spec has a prior of its own, */
        struct pl_memory_ctx *memory; /* and until a layout of the cluster comes */
    } at[SE_MAX_CLUSTERS + 1];        /* by `cluster` of layouts */
};

static void source_init(struct source *source, const struct se_spec *spec)
{
    *source = (struct source){.spec = spec};
}

static void source_open(struct source *source, const struct pl_layout *layout)
{
    int at = layout->cluster;

    if (source->at[at].cost)
        return;
    source->at[at].problem = se_layout_problem(source->spec, layout);
    source->at[at].cost = pl_cost_ctx_new(&source->at[at].problem, NULL);
    source->at[at].memory = pl_memory_ctx_new(&source->at[at].problem);
}

static void source_done(struct source *source)
{
    for (int i = 0; i <= SE_MAX_CLUSTERS; i++) {
        pl_cost_ctx_free(source->at[i].cost);
        pl_memory_ctx_free(source->at[i].memory);
    }
}

/* A binary unknown has a standard deviation of a half where nothing else is known; a share's
 * coefficient has that of the factors of classes, e^-1 (surrogate.c). */
static const double YES_OR_NO = 0.5 / 0.37;

/* T x T matrices of one layer while its attention is computed again: softmax, its mask and its
 * dropout (5 bytes an element of half precision, Korthikanti et al. 2022) and two gradients. */
static double layer_matrices(const struct pl_model *model, const struct pl_workload *workload,
                             const struct pl_layout *layout)
{
    double rows = (double)workload->seq / layout->cp * layout->micro_batch,
           bytes = layout->precision == PL_FP32 ? 2 : 1;

    return bytes * (5 + 4) * rows * workload->seq / layout->cp * model->heads / layout->tp;
}

/*
 * log of how much more LAYOUT would take in a stack without fused attention: all matrices of all
 * layers, or where attention is computed again those of one layer.
 */
static double unfused(const struct se_spec *spec, const struct pl_layout *layout, double total)
{
    struct pl_problem problem = se_layout_problem(spec, layout);
    struct pl_trainer other = *problem.trainer;
    struct pl_memory memory;

    if (!other.flash || other.bundled)
        return 0.0;
    if (layout->recompute != PL_RECOMPUTE_NONE)
        return log1p(layer_matrices(&spec->model, &spec->workload, layout) / total);
    other.flash = false;
    problem.trainer = &other;
    pl_memory_worst(&memory, &problem, layout);
    return log(memory.total / total);
}

/* log of how much less LAYOUT would take, in that scale, if what shards the optimizer's state
 * sharded the gradients as well. */
static double sharded_grads(const struct pl_memory *memory, const struct pl_layout *layout)
{
    double away = layout->zero == 1 ? 1.0 - 1.0 / ((double)layout->dp * layout->cp) : 0.0;

    return -YES_OR_NO * log1p(-away * memory->bytes[PL_MEM_GRADS] / memory->total);
}

static void memory_shares(struct se_prior *ret, const struct pl_memory *memory,
                          const struct se_spec *spec, const struct pl_layout *layout)
{
    for (int c = 0; c < SE_MEMORY_CLASSES; c++)
        ret->memory_share[c] = memory->bytes[c] / memory->total;
    for (int c = PL_MEM_CONTEXT; c < PL_MEM_CLASSES; c++)
        ret->memory_share[PL_MEM_WORKSPACE] += memory->bytes[c] / memory->total;
    ret->memory_share[SE_MEMORY_GRADS] = sharded_grads(memory, layout);
    ret->memory_share[SE_MEMORY_UNFUSED] = unfused(spec, layout, memory->total);
}

/* Beyond a fast domain a group of tp rings through as many interfaces as it has members in one, if
 * software and wiring let it; or through one. */
static void cost_shares(struct se_prior *ret, const struct pl_cost *cost,
                        const struct se_spec *spec, const struct pl_layout *layout)
{
    const struct pl_cluster *cluster = se_cluster_of(spec, layout);
    double domain = pl_cluster_domain(cluster), share;
    struct pl_cost joules = *cost; /* or seconds, by the objective */

    if (spec->objective == PL_TOKENS_PER_JOULE)
        pl_objective_cost(&joules, spec->objective, cluster, layout, cost);
    for (int c = 0; c < PL_COST_CLASSES; c++)
        ret->cost_share[c] = joules.seconds[c] / joules.total;
    if (layout->tp <= domain)
        return;
    share = ret->cost_share[PL_COST_TP];
    ret->cost_share[PL_COST_TP] = 0.0;
    ret->cost_share[SE_COST_TP_FAR] = share;
    ret->cost_share[SE_COST_ONE_LINK] = -YES_OR_NO * log1p(share * (domain - 1.0));
}

static void prior_of(struct se_prior *ret, struct source *source, const struct pl_layout *layout)
{
    const struct se_spec *spec = source->spec;
    struct pl_cost cost;
    struct pl_memory memory;

    memset(ret, 0, sizeof(*ret));
    if (spec->prior_fn) {
        spec->prior_fn(ret, layout, spec->prior_arg);
        return;
    }
    source_open(source, layout);
    pl_cost_at(&cost, source->at[layout->cluster].cost, layout);
    pl_memory_at(&memory, source->at[layout->cluster].memory, layout);
    ret->log_throughput = log(cost.tokens_per_s);
    ret->log_memory = log(memory.total);
    ret->log_watts = log(pl_watts(NULL, se_cluster_of(spec, layout), layout, &cost));
    cost_shares(ret, &cost, spec, layout);
    memory_shares(ret, &memory, spec, layout);
}

bool se_reduce(struct pl_reduced *ret, const struct se_spec *spec, const struct pl_layout *layout,
               int fidelity)
{
    struct pl_problem problem = se_layout_problem(spec, layout);

    assert(fidelity > 0 && fidelity <= spec->nfidelities);
    return pl_reduce(ret, &problem, layout, &spec->fidelity[fidelity - 1]);
}

void se_prior_of(struct se_prior *ret, const struct se_spec *spec, const struct pl_layout *layout)
{
    struct source x;

    source_init(&x, spec);
    prior_of(ret, &x, layout);
    source_done(&x);
}

static int alloc_priors(struct se_table *table, const struct se_spec *spec, struct err *error)
{
    bool batches = spec->workload.nbatches > 0;

    table->nlin[SE_THROUGHPUT] = SE_LIN_SHARE + SE_COST_SHARES;
    table->nlin[SE_MEMORY] = SE_LIN_SHARE + SE_MEMORY_SHARES;
    table->log_devices = mem_try_alloc(mem_mul(table->n, sizeof(float), 1));
    if (batches && !(table->log_batch = mem_try_alloc(mem_mul(table->n, sizeof(float), 1))))
        return err_set(error, -ENOMEM, "no memory for the batches of %zu layouts", table->n);
    if (counts_price(spec) &&
        !(table->log_price = mem_try_alloc(mem_mul(table->n, sizeof(float), 1))))
        return err_set(error, -ENOMEM, "no memory for the prices of %zu layouts", table->n);
    if (spec->objective == PL_TOKENS_PER_JOULE &&
        !(table->log_watts = mem_try_alloc(mem_mul(table->n, sizeof(float), 1))))
        return err_set(error, -ENOMEM, "no memory for the watts of %zu layouts", table->n);
    for (int q = 0; q < SE_QUANTITIES; q++) {
        table->prior[q] = mem_try_alloc(mem_mul(table->n, sizeof(float), 1));
        table->lin[q] = mem_try_alloc(mem_mul(table->n, sizeof(float), SE_MAX_LIN));
        if (!table->prior[q] || !table->lin[q] || !table->log_devices)
            return err_set(error, -ENOMEM, "no memory for the priors of %zu layouts", table->n);
    }
    return 0;
}

static void set_lin(struct se_table *table, enum se_quantity quantity, size_t index, double prior,
                    const double *share)
{
    float *u = table->lin[quantity] + index * SE_MAX_LIN;

    table->prior[quantity][index] = (float)prior;
    u[SE_LIN_CONST] = 1.0F;
    for (int p = SE_LIN_SHARE; p < table->nlin[quantity]; p++)
        u[p] = (float)share[p - SE_LIN_SHARE];
}

/* The slope of the prior turns about the best layout that is thought to fit. */
static void set_center(struct se_table *table, bool all_fit)
{
    double best = -INFINITY;

    for (size_t i = 0; i < table->n; i++)
        if (all_fit || table->prior[SE_MEMORY][i] <= 0.0F)
            best = fmax(best, table->prior[SE_THROUGHPUT][i]);
    table->center[SE_THROUGHPUT] = isfinite(best) ? best : table->prior[SE_THROUGHPUT][0];
    table->center[SE_MEMORY] = 0.0;
    for (int q = 0; q < SE_QUANTITIES; q++)
        for (size_t i = 0; i < table->n; i++)
            table->lin[q][i * SE_MAX_LIN + SE_LIN_PRIOR] =
                table->prior[q][i] - (float)table->center[q];
}

int se_table_set_prior(struct se_table *table, const struct se_spec *spec, struct err *error)
{
    struct source x;
    int r = alloc_priors(table, spec, error);

    if (r < 0)
        return r;
    source_init(&x, spec);
    for (size_t i = 0; i < table->n && r == 0; i++) {
        struct pl_layout l;
        struct se_prior p;

        se_table_layout(&l, table, i);
        prior_of(&p, &x, &l);
        table->log_devices[i] = (float)log(pl_layout_devices(&l));
        if (table->log_batch)
            table->log_batch[i] =
                (float)log((double)pl_batch(&spec->workload, &l) / spec->workload.global_batch);
        if (table->log_watts)
            table->log_watts[i] = (float)p.log_watts;
        if (table->log_price)
            table->log_price[i] =
                (float)log(pl_layout_devices(&l) * se_cluster_of(spec, &l)->price / 3600);
        p.log_throughput +=
            log(pl_objective_value(spec->objective, 1.0, pl_layout_devices(&l), exp(p.log_watts),
                                   se_cluster_of(spec, &l)->price));
        set_lin(table, SE_THROUGHPUT, i, p.log_throughput, p.cost_share);
        set_lin(table, SE_MEMORY, i, p.log_memory - log_capacity(spec, &l), p.memory_share);
        if (i % 1024 == 1023 && pl_patience_over(spec->patience))
            r = err_set(error, -ECANCELED, "%zu layouts are too many for the time limit", table->n);
    }
    source_done(&x);
    if (r < 0)
        return r;
    set_center(table, spec->prior_fn != NULL);
    return 0;
}

void se_table_point(struct se_point *ret, const struct se_table *table, enum se_quantity quantity,
                    size_t index, int nlin)
{
    const float *u = se_table_lin(table, quantity, index);

    ret->level = se_table_row(table, index);
    ret->apart = (struct se_apart){0};
    assert(index < table->n && nlin <= table->nlin[quantity]);
    for (int p = 0; p < nlin; p++)
        ret->u[p] = u[p];
}

double se_table_capacity(const struct se_table *table, const struct se_spec *spec, size_t index)
{
    struct pl_layout layout;

    se_table_layout(&layout, table, index);
    return log_capacity(spec, &layout);
}
