/*
 * Which keys matter: Shapley shares of the variance of predicted log throughput over the layouts
 * that fit.
 *
 * With the layouts equally likely, v(S) = Var(E[f | x_S]) is the variance that knowing the keys S
 * explains; the share of key d is the average, over all orders of the keys, of what d adds when it
 * is known after those before it (Owen 2014, "Sobol' indices and Shapley value"; Song, Nelson and
 * Staum 2016). Unlike Sobol indices the shares stay meaningful, and add up to the whole, where keys
 * depend on each other, as here (tp x pp divides world). Conditional means over a finite set of
 * layouts are group means, so v(S) is exact for the layouts used; orders are sampled from a fixed
 * stream, each with its reverse. At most SAMPLE layouts are used, the most likely best ones being
 * as welcome as the others.
 *
 * The same orders give each layout x a Shapley value for each key, what E[f | x_S] changes by when
 * the key is known; the values of a layout add up to f(x) less the mean of all. Their mean over the
 * layouts with one value of a key says in which direction that value works.
 */
#include <math.h>

#include "base/base.h"
#include "search/num.h"
#include "search/state.h"
#include "search/sweep.h"

#include <assert.h>

enum { SAMPLE = 4096, ORDERS = 24 };

/* ---- one pass over all layouts ------------------------------------------- */

void se_map_init(struct se_map *map, const struct se_search *search)
{
    size_t n = search->table->n;
    float AUTO_FREE *mean = mem_alloc(n * sizeof(float));
    float AUTO_FREE *var = mem_alloc(n * sizeof(float));

    map->mean = mem_alloc(n * sizeof(float));
    map->p_fits = mem_alloc(n * sizeof(float));
    for (int q = 0; q < SE_QUANTITIES; q++) {
        const struct se_surrogate *b = &search->surrogate[q];

        for (int h = 0; h < b->nhyps; h++) {
            float w = (float)b->hyp[h].weight;

            struct se_sweep *sweep = se_sweep_new(b, &b->hyp[h], search->table, NULL, n, 16);

            se_sweep_run(mean, var, sweep);
            se_sweep_free(sweep);
            for (size_t i = 0; i < n; i++) {
                if (q == SE_THROUGHPUT)
                    map->mean[i] += w * mean[i];
                else
                    map->p_fits[i] +=
                        w * (float)se_norm_cdf(-mean[i] / sqrt(var[i] + b->hyp[h].gp.kern.noise2));
            }
        }
    }
}

void se_map_done(struct se_map *map)
{
    free(map->mean);
    free(map->p_fits);
}

/* ---- Shapley values ------------------------------------------------------ */

/* Of the layouts that have one value of a key. */
struct effect {
    double sum; /* of their Shapley values, over all orders */
    uint32_t n;
};

struct sample {
    const struct se_table *t;
    size_t n;
    size_t *index;   /* (n) */
    double *f;       /* (n) */
    uint32_t *group; /* (n): which values of the keys known so far */
    uint32_t *slot;  /* (hash): group made, or 0 */
    uint64_t *tag;
    double *sum;
    uint32_t *size;
    double *known;                          /* (n): mean of its group so far */
    struct effect (*effect)[SE_MAX_LEVELS]; /* (SE_MAX_DIMS) */
    double mean;
};

enum { HASH = 4 * SAMPLE };

/* Split every group by the level of dimension DIM; returns the variance of the group means. */
static double split(struct sample *sample, int dim)
{
    uint32_t groups = 0;
    double v = 0.0;

    memset(sample->slot, 0, HASH * sizeof(*sample->slot));
    for (size_t i = 0; i < sample->n; i++) {
        uint64_t tag = (uint64_t)sample->group[i] * SE_MAX_LEVELS +
                       se_table_row(sample->t, sample->index[i])[dim];
        size_t at = (size_t)rng_mix(tag) & (HASH - 1);

        while (sample->slot[at] && sample->tag[at] != tag)
            at = (at + 1) & (HASH - 1);
        if (!sample->slot[at]) {
            sample->tag[at] = tag;
            sample->sum[groups] = 0.0;
            sample->size[groups] = 0;
            sample->slot[at] = ++groups;
        }
        sample->group[i] = sample->slot[at] - 1;
        sample->sum[sample->group[i]] += sample->f[i];
        sample->size[sample->group[i]]++;
    }
    for (uint32_t g = 0; g < groups; g++) {
        double mean = sample->sum[g] / sample->size[g];

        assert(sample->size[g] > 0);
        v += sample->size[g] * (mean - sample->mean) * (mean - sample->mean);
    }
    return v / (double)sample->n;
}

/* After a split by DIM: what knowing it added to each layout. */
static void add_effects(struct sample *sample, int dim)
{
    for (size_t i = 0; i < sample->n; i++) {
        struct effect *e = &sample->effect[dim][se_table_row(sample->t, sample->index[i])[dim]];
        double mean = sample->sum[sample->group[i]] / sample->size[sample->group[i]];

        e->sum += mean - sample->known[i];
        e->n++;
        sample->known[i] = mean;
    }
}

static void run_order(struct sample *sample, const int *order, int nd, bool reverse, double *share)
{
    double before = 0.0;

    memset(sample->group, 0, sample->n * sizeof(*sample->group));
    for (size_t i = 0; i < sample->n; i++)
        sample->known[i] = sample->mean;
    for (int k = 0; k < nd; k++) {
        int d = order[reverse ? nd - 1 - k : k];
        double v = split(sample, d);

        add_effects(sample, d);
        share[d] += v - before;
        before = v;
    }
}

/* Layouts that fit more likely than not, evenly thinned to SAMPLE. */
static void choose(struct sample *sample, const struct se_search *search, const struct se_map *map)
{
    size_t fit = 0, seen = 0;

    for (size_t i = 0; i < search->table->n; i++)
        fit += map->p_fits[i] >= 0.5F;
    for (size_t i = 0; i < search->table->n; i++) {
        if (map->p_fits[i] < 0.5F && fit > 0)
            continue;
        if (seen * SAMPLE / (fit ? fit : search->table->n) >= sample->n && sample->n < SAMPLE) {
            sample->index[sample->n] = i;
            sample->f[sample->n] = map->mean[i];
            sample->mean += sample->f[sample->n++];
        }
        seen++;
    }
    assert(sample->n > 0);
    sample->mean /= (double)sample->n;
}

static void sample_init(struct sample *sample, const struct se_search *search)
{
    struct se_map map;

    memset(sample, 0, sizeof(*sample));
    sample->t = search->table;
    sample->index = mem_alloc(SAMPLE * sizeof(*sample->index));
    sample->f = mem_alloc(SAMPLE * sizeof(*sample->f));
    sample->group = mem_alloc(SAMPLE * sizeof(*sample->group));
    sample->sum = mem_alloc(SAMPLE * sizeof(*sample->sum));
    sample->size = mem_alloc(SAMPLE * sizeof(*sample->size));
    sample->slot = mem_alloc(HASH * sizeof(*sample->slot));
    sample->tag = mem_alloc(HASH * sizeof(*sample->tag));
    sample->known = mem_alloc(SAMPLE * sizeof(*sample->known));
    sample->effect = mem_alloc(SE_MAX_DIMS * sizeof(*sample->effect));
    se_map_init(&map, search);
    choose(sample, search, &map);
    se_map_done(&map);
}

static void sample_done(struct sample *sample)
{
    free(sample->index);
    free(sample->f);
    free(sample->group);
    free(sample->sum);
    free(sample->size);
    free(sample->slot);
    free(sample->tag);
    free(sample->known);
    free(sample->effect);
}

/* [{"value", "ratio"}] of the values of dimension DIM that the sample has, in their order. */
static json_t *effects_of(const struct sample *sample, const struct se_spec *spec, int dim)
{
    const struct se_dim *d = &sample->t->dim[dim];
    json_t *list = json_array();

    for (int v = 0; v < d->nlevels; v++) {
        const struct effect *e = &sample->effect[dim][v];

        if (e->n > 0)
            json_array_append_new(list, json_pack("{s:o, s:f}", "value",
                                                  se_key_json(spec, d->key, d->value[v]), "ratio",
                                                  exp(e->sum / e->n)));
    }
    return list;
}

void se_importance_json(json_t **ret_shares, json_t **ret_effects, const struct se_search *search)
{
    struct sample s;
    struct rng r;
    int order[SE_MAX_DIMS], nd = search->table->nactive;
    double share[SE_MAX_DIMS] = {0}, all = 0.0;
    json_t *shares = json_object(), *effects = json_object();

    sample_init(&s, search);
    rng_seed(&r, 7);
    for (int d = 0; d < nd; d++)
        order[d] = d;
    for (int k = 0; k < ORDERS; k++) {
        for (int d = nd - 1; d > 0; d--) {
            int at = (int)rng_below(&r, (uint64_t)d + 1), kept = order[d];

            order[d] = order[at];
            order[at] = kept;
        }
        run_order(&s, order, nd, false, share);
        run_order(&s, order, nd, true, share);
    }
    for (int d = 0; d < nd; d++)
        all += fmax(share[d], 0.0);
    for (int d = 0; d < nd; d++) {
        const char *name = search->table->dim[d].name;

        json_object_set_new(shares, name, json_real(all > 0.0 ? fmax(share[d], 0.0) / all : 0.0));
        json_object_set_new(effects, name, effects_of(&s, &search->spec, d));
    }
    sample_done(&s);
    *ret_shares = shares;
    *ret_effects = effects;
}
