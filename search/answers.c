/* What is asked of a search besides the next trial: the best, early stopping, the Pareto front, a
 * surface, diagnostics. */
#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "search/num.h"
#include "search/state.h"

/* ---- the best ------------------------------------------------------------ */

int se_best(struct se_best *ret, const struct se_search *search)
{
    struct se_leader *leader;
    size_t count = se_leaders(&leader, search);
    double mean, sd;

    if (count > 0) {
        mean = leader[0].mean + se_unit(search, leader[0].index);
        sd = sqrt(leader[0].var);
        ret->id = leader[0].id;
        se_table_layout(&ret->layout, search->table, leader[0].index);
        ret->mean = exp(mean);
        ret->lo = exp(mean - 1.96 * sd);
        ret->hi = exp(mean + 1.96 * sd);
        ret->measured = leader[0].measured;
        ret->tie = se_is_tie(search, leader, count);
    }
    free(leader);
    return count > 0 ? 0 : -ENOENT;
}

json_t *se_best_json(const struct se_search *search)
{
    struct se_best b;
    json_t *ret;

    if (se_best(&b, search) < 0)
        return NULL;
    ret = json_pack("{s:i, s:o, s:{s:f, s:f, s:f}, s:i, s:b}", "id", b.id, "layout",
                    se_layout_json(&search->spec, &b.layout), "tokens_per_s", "mean", b.mean, "lo",
                    b.lo, "hi", b.hi, "measured", b.measured, "tie", b.tie);
    if (search->table->log_watts) {
        double watts = exp(se_unit(search, (size_t)se_table_find(search->table, &b.layout)));

        json_object_set_new(ret, "tokens_per_joule",
                            json_pack("{s:f, s:f, s:f}", "mean", b.mean / watts, "lo", b.lo / watts,
                                      "hi", b.hi / watts));
    }
    return ret;
}

/* ---- stopping early ------------------------------------------------------ */

static int by_layout(const void *left, const void *right)
{
    const struct se_measured *a = left, *b = right;

    return a->layout < b->layout ? -1 : a->layout > b->layout;
}

struct se_measured *se_measured_list(size_t *ret_n, const struct se_search *search)
{
    struct se_measured *m = mem_alloc(((size_t)search->nrecords + 1) * sizeof(*m));
    size_t n = 0;

    for (int i = 0; i < search->nrecords; i++) {
        const struct se_record *r = &search->record[i];

        const struct se_outcome *o = &r->outcome;

        if (se_record_counts(r)) {
            double value = exp(se_log_measured(search, o));

            m[n++] = (struct se_measured){(int64_t)r->index, value,
                                          o->tokens_per_s_se * (value / o->tokens_per_s)};
        }
    }
    qsort(m, n, sizeof(*m), by_layout);
    *ret_n = n;
    return m;
}

struct se_spread se_spread_now(const struct se_search *search)
{
    const struct se_surrogate *b = &search->surrogate[SE_THROUGHPUT];
    double noise2 = 0.0;
    size_t n;
    struct se_measured AUTO_FREE *m = se_measured_list(&n, search);
    struct se_spread ret = se_spread_of(m, n);

    for (int h = 0; h < b->nhyps; h++)
        noise2 += b->hyp[h].weight * b->hyp[h].gp.kern.noise2;
    ret.sd = fmax(ret.sd, sqrt(noise2));
    return ret;
}

/*
 * A normal-mixture confidence sequence (Robbins 1970; Howard et al. 2021, eq. 14): for all N at
 * once, with probability 1 - ALPHA, the mean of this run lies within se sqrt((N + RHO)/N log((N +
 * RHO)/(RHO ALPHA^2))). RHO is where it is tightest. Runs of one layout differ by more than that:
 * the layout's throughput lies within t tau of the run's, and the incumbent's is uncertain too.
 * What the run draws is known when it ends: with objective tokens_per_joule it has the least watts
 * that the other trials let expect.
 */
bool se_can_win(double *ret_max, const struct se_search *search, int id, double mean, double se,
                int n)
{
    const double rho = 5.0, alpha = 0.05;
    struct se_record *r = se_record_find(search, id);
    struct se_leader *leader;
    struct se_spread spread;
    double top, t, gap, unit;
    size_t count;
    bool can;

    /* A run of a smaller problem is cheap, and its rate not that of the layout. */
    if (!r || r->settled || r->fidelity > 0 || n < 2 || !(mean > 0.0) || !(se >= 0.0) ||
        !isfinite(mean + se))
        return true;
    unit = search->table->log_watts ? se_watts_least(search, search->table->log_watts[r->index])
                                    : se_unit(search, r->index);
    count = se_leaders(&leader, search);
    spread = se_spread_now(search);
    t = se_student_975(spread.degrees);
    top = log(mean + se * sqrt((n + rho) / n * log((n + rho) / (rho * alpha * alpha))));
    gap = count > 0 ? leader[0].mean + unit - top : 0.0;
    can = count == 0 || gap <= t * sqrt(spread.sd * spread.sd + leader[0].var);
    if (ret_max)
        *ret_max = exp(top + t * spread.sd);
    free(leader);
    return can;
}

/* ---- Pareto front -------------------------------------------------------- */

struct measured {
    size_t index;
    int id;
    double tokens_per_s, memory_bytes;
};

static size_t measured_list(struct measured **ret, const struct se_search *search)
{
    struct se_leader *leader;
    size_t count = se_leaders(&leader, search);
    struct measured *list = mem_alloc((count + 1) * sizeof(*list));

    for (size_t i = 0; i < count; i++) {
        double mean, var;

        se_surrogate_predict(&mean, &var, &search->surrogate[SE_MEMORY], search->table,
                             leader[i].index);
        list[i] = (struct measured){
            leader[i].index, leader[i].id, exp(leader[i].mean + se_unit(search, leader[i].index)),
            exp(mean + se_table_capacity(search->table, &search->spec, leader[i].index))};
        for (int j = 0; j < search->nrecords; j++)
            if (search->record[j].index == leader[i].index && search->record[j].fidelity == 0 &&
                search->record[j].outcome.peak_memory_bytes > 0.0)
                list[i].memory_bytes = search->record[j].outcome.peak_memory_bytes;
    }
    free(leader);
    *ret = list;
    return count;
}

json_t *se_pareto_json(const struct se_search *search)
{
    struct measured AUTO_FREE *list = NULL;
    size_t count = measured_list(&list, search);
    json_t *front = json_array();

    for (size_t i = 0; i < count; i++) {
        bool beaten = false;
        struct pl_layout l;

        for (size_t j = 0; j < count && !beaten; j++)
            beaten = j != i && list[j].tokens_per_s >= list[i].tokens_per_s &&
                     list[j].memory_bytes <= list[i].memory_bytes &&
                     (list[j].tokens_per_s > list[i].tokens_per_s ||
                      list[j].memory_bytes < list[i].memory_bytes);
        if (beaten)
            continue;
        se_table_layout(&l, search->table, list[i].index);
        json_array_append_new(front, json_pack("{s:i, s:o, s:f, s:f}", "id", list[i].id, "layout",
                                               se_layout_json(&search->spec, &l), "tokens_per_s",
                                               list[i].tokens_per_s, "memory_bytes",
                                               list[i].memory_bytes));
    }
    return front;
}

/* ---- surface ------------------------------------------------------------- */

static int key_named(const char *name, const struct se_spec *spec, const char *pointer,
                     struct err *error)
{
    for (int k = 0; pl_layout_keys[k].name; k++)
        if (str_eq(pl_layout_keys[k].name, name))
            return k;
    if (spec->nclusters > 1 && str_eq(name, "cluster"))
        return SE_KEY_CLUSTER;
    return err_at(error, -EINVAL, pointer, "%s is not a layout key", name ? name : "nothing");
}

static json_t *key_value(const struct se_spec *spec, const struct pl_layout *layout, int key)
{
    return se_key_json(spec, key, se_key_get(layout, key));
}

struct surface_cell {
    int x, y;
    size_t index;
    double score;
};

static void cell_offer(struct surface_cell **list, size_t *count, size_t *cap,
                       const struct surface_cell *cell)
{
    size_t at = 0;

    while (at < *count && ((*list)[at].x != cell->x || (*list)[at].y != cell->y))
        at++;
    if (at == *count) {
        MEM_GROW(*list, *count, *cap);
        (*list)[(*count)++] = *cell;
    } else if (cell->score > (*list)[at].score) {
        (*list)[at] = *cell;
    }
}

int se_surface_json(json_t **ret, const struct se_search *search, const char *x_key,
                    const char *y_key, struct err *error)
{
    struct surface_cell *list = NULL;
    size_t count = 0, cap = 0;
    const struct se_spec *spec = &search->spec;
    int kx = key_named(x_key, spec, "/x", error), ky = key_named(y_key, spec, "/y", error);
    struct se_map map;
    json_t *cells = json_array();

    if (kx < 0 || ky < 0) {
        json_decref(cells);
        return -EINVAL;
    }
    se_map_init(&map, search);
    for (size_t i = 0; i < search->table->n; i++) {
        struct pl_layout l;

        se_table_layout(&l, search->table, i);
        cell_offer(&list, &count, &cap,
                   &(struct surface_cell){se_key_get(&l, kx), se_key_get(&l, ky), i,
                                          map.mean[i] + log(fmax(map.p_fits[i], 1e-9))});
    }
    for (size_t c = 0; c < count; c++) {
        struct pl_layout l;
        size_t i = list[c].index;

        se_table_layout(&l, search->table, i);
        json_array_append_new(cells,
                              json_pack("{s:o, s:o, s:f, s:f, s:o}", "x", key_value(spec, &l, kx),
                                        "y", key_value(spec, &l, ky), "tokens_per_s",
                                        exp(map.mean[i] + se_unit(search, i)), "p_fits",
                                        (double)map.p_fits[i], "layout", se_layout_json(spec, &l)));
    }
    se_map_done(&map);
    free(list);
    *ret = json_pack("{s:s, s:s, s:o}", "x", x_key, "y", y_key, "cells", cells);
    return 0;
}

/* ---- diagnostics --------------------------------------------------------- */

/* Leave-one-out errors of the measured throughputs under the mixture, with the share of them inside
 * 50, 80 and 95 %. */
static json_t *calibration(const struct se_search *search)
{
    static const double z_of[] = {0.6744897501960817, 1.2815515655446004, 1.959963984540054};
    const struct se_surrogate *b = &search->surrogate[SE_THROUGHPUT];
    const struct se_hyp *h = &b->hyp[0];
    double sq = 0.0;
    int inside[3] = {0}, n;
    double AUTO_FREE *mean = mem_alloc(((size_t)b->nobs + 1) * sizeof(double));
    double AUTO_FREE *var = mem_alloc(((size_t)b->nobs + 1) * sizeof(double));

    for (int k = 1; k < b->nhyps; k++)
        if (b->hyp[k].weight > h->weight)
            h = &b->hyp[k];
    n = h->gp.n - (h->informed ? b->nhints : 0);
    if (n < 3)
        return json_null();
    se_gp_leave_one_out(mean, var, &h->gp);
    for (int i = 0; i < n; i++) { /* hints come last */
        double err = h->gp.y[i] - mean[i], sd = sqrt(var[i] + h->gp.var[i]);

        sq += err * err;
        for (int k = 0; k < 3; k++)
            inside[k] += fabs(err) <= z_of[k] * sd;
    }
    return json_pack("{s:i, s:f, s:f, s:f, s:f}", "n", n, "rms", sqrt(sq / n), "inside_50",
                     (double)inside[0] / n, "inside_80", (double)inside[1] / n, "inside_95",
                     (double)inside[2] / n);
}

static json_t *prior_mean(const struct se_surrogate *surrogate)
{
    return surrogate->nhyps > 1 ? json_real(se_surrogate_prior_mean_weight(surrogate))
                                : json_null();
}

/* What earlier campaigns said, and how much weight it has. */
static json_t *warm_start(const struct se_search *search)
{
    double weight[SE_QUANTITIES] = {0.0};

    if (search->nsources == 0)
        return json_null();
    for (int q = 0; q < SE_QUANTITIES; q++)
        if (search->surrogate[q].informed > 0)
            weight[q] = search->surrogate[q].hyp[search->surrogate[q].informed].weight;
    return json_pack("{s:i, s:i, s:f, s:f}", "campaigns", search->nsources, "trials",
                     search->source_trials, "weight", weight[SE_THROUGHPUT], "memory_weight",
                     weight[SE_MEMORY]);
}

json_t *se_diagnosis_json(const struct se_search *search)
{
    return json_pack("{s:I, s:i, s:o, s:o, s:o, s:o, s:f, s:I, s:b}", "legal",
                     (json_int_t)search->table->n, "settled", search->settled, "trust",
                     prior_mean(&search->surrogate[SE_THROUGHPUT]), "memory_trust",
                     prior_mean(&search->surrogate[SE_MEMORY]), "warm_start", warm_start(search),
                     "leave_one_out", calibration(search), "expected_regret", search->regret,
                     "exact_posteriors", (json_int_t)search->exact, "proved", search->proved);
}
