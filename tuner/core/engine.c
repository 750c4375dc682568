/*
 * The search of one campaign.
 *
 * Asking and telling run in libuv's pool (scheduler.c), answers for the HTTP side in whatever
 * thread asks; the lock lets one of them in at a time. The loop itself never takes it.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "tuner/core/engine.h"
#include "tuner/core/spec.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

/* The search must know when its last trial comes, to measure the winner at full size with it: a
 * baseline outside of its space uses up one. */
static void share_budget(struct se_spec *se, const struct tn_spec *spec)
{
    if (se->nfidelities > 0 && se->budget.trials > 1 && !tn_searches(spec, &se->baseline))
        se->budget.trials--;
}

int tn_engine_new(struct tn_engine **ret, struct tn_spec **spec, const struct pl_patience *patience,
                  struct err *error)
{
    struct se_search *search = NULL;
    struct se_spec se = (*spec)->se;
    struct tn_engine *en;
    int r;

    se.patience = patience;
    share_budget(&se, *spec);
    r = se_search_new(&search, &se, error);
    if (r < 0)
        return r == -E2BIG ? err_under(error, "") : r;
    en = mem_alloc(sizeof(*en));
    atomic_init(&en->refs, 1);
    pthread_mutex_init(&en->lock, NULL);
    en->spec = TAKE(*spec);
    en->search = search;
    *ret = en;
    return 0;
}

/* Add the values of MORE, lists by key, that are not in ALL. */
static void join_keys(json_t *all, const json_t *more)
{
    const char *key;
    json_t *list, *value;
    size_t i;

    json_object_foreach((json_t *)(uintptr_t)more, key, list) {
        json_t *there = json_object_get(all, key);

        if (!there)
            json_object_set_new(all, key, there = json_array());
        json_array_foreach(list, i, value) {
            size_t at = 0;

            while (at < json_array_size(there) && !json_equal(json_array_get(there, at), value))
                at++;
            if (at == json_array_size(there))
                json_array_append(there, value);
        }
    }
}

json_t *tn_space_json(const struct tn_space *space, const struct tn_spec *spec)
{
    json_t *keys = pl_space_json(spec->se.space), *names = json_array();

    for (int i = 0; i < spec->se.nclusters; i++) {
        AUTO_JSON *more = pl_space_json(&spec->se.space[i]);

        join_keys(keys, more);
        json_array_append_new(names, json_string(spec->se.cluster[i].name));
    }
    if (spec->se.nclusters > 1)
        json_object_set(keys, "cluster", names);
    json_decref(names);
    return json_pack("{s:I, s:I, s:b, s:o}", "legal", (json_int_t)space->legal, "fitting",
                     (json_int_t)space->fitting, "exact", space->exact, "keys", keys);
}

void tn_space_count(struct tn_space *ret, const struct tn_spec *spec,
                    const struct pl_patience *patience)
{
    struct pl_problem problem = tn_spec_problem(spec);

    assert(spec->se.space && spec->se.nclusters > 0);
    *ret = (struct tn_space){.exact = true};
    for (int i = 0; i < spec->se.nclusters; i++) {
        struct pl_plan plan;

        problem.cluster = &spec->se.cluster[i];
        pl_plan_look(&plan, &spec->se.space[i], &problem, 0, spec->se.memory_headroom,
                     PL_TOKENS_PER_S, patience);
        ret->legal += plan.legal;
        ret->fitting += plan.fitting;
        ret->exact &= plan.exact;
        ret->fitting_on[i] = plan.fitting;
        pl_plan_done(&plan);
    }
}

bool tn_searches(const struct tn_spec *spec, const struct pl_layout *layout)
{
    struct pl_problem problem = se_layout_problem(&spec->se, layout);

    return pl_space_has(se_space_of(&spec->se, layout), &problem, layout) &&
           (!spec->se.trainer->bundled || !spec->se.use_memory_prior ||
            pl_fits(&problem, layout, spec->se.memory_headroom));
}

struct tn_engine *tn_engine_ref(struct tn_engine *en)
{
    atomic_fetch_add(&en->refs, 1);
    return en;

    assert(atomic_load(&en->refs) > 0);
}

struct tn_engine *tn_engine_unref(struct tn_engine *en)
{
    if (!en || atomic_fetch_sub(&en->refs, 1) > 1)
        return NULL;
    se_search_free(en->search);
    tn_spec_free(en->spec);
    pthread_mutex_destroy(&en->lock);
    free(en->n_of);
    free(en->said);
    free(en);
    return NULL;
}

void tn_engine_name(struct tn_engine *en, int search_id, int64_t trial)
{
    if (search_id < 1)
        return;
    while (search_id >= en->cap) {
        int cap = en->cap ? 2 * en->cap : 64;

        en->n_of = mem_realloc(en->n_of, (size_t)cap * sizeof(en->n_of[0]));
        memset(en->n_of + en->cap, 0, (size_t)(cap - en->cap) * sizeof(en->n_of[0]));
        en->cap = cap;
    }
    assert(search_id < en->cap && en->ids < en->cap);
    en->n_of[search_id] = trial;
    if (search_id > en->ids)
        en->ids = search_id;
}

int tn_engine_layout(struct pl_layout *ret, const struct tn_engine *en, const char *text,
                     struct err *error)
{
    AUTO_JSON *v = NULL;
    int r = jx_parse(&v, text, strlen(text), error);

    return r < 0 ? r : se_layout_parse(ret, &en->spec->se, v, error);
}

static int replay_one(struct tn_engine *en, const struct db_trial *trial, struct err *error)
{
    struct pl_layout l;
    struct se_outcome o;
    int repeat = 0, r = tn_engine_layout(&l, en, trial->layout, error);

    for (int i = 1; r == 0 && trial->repeat_of != DB_NULL && i <= en->ids; i++)
        if (en->n_of[i] == trial->repeat_of)
            repeat = i;
    if (r == 0)
        r = se_restore_at(en->search, (int)trial->search_id, &l, repeat,
                          trial->fidelity == DB_NULL ? 0 : (int)trial->fidelity, error);
    if (r < 0)
        return err_wrap(error, "trial %lld", (long long)trial->n);
    tn_engine_name(en, (int)trial->search_id, trial->n);
    assert(trial->search_id <= en->ids);
    if (db_trial_final(trial->state)) {
        tn_outcome_of(&o, trial);
        r = se_tell(en->search, (int)trial->search_id, &o, error);
    }
    return r;
}

/* Replay what the database knows of the campaign; any thread, DB of that thread. */
static int replay(struct tn_engine *en, struct db *db, const char *campaign, struct err *error)
{
    struct db_filter f = {.limit = 1000};
    int64_t total = 1;
    int r = 0;

    pthread_mutex_lock(&en->lock);
    for (f.offset = 0; r == 0 && f.offset < total; f.offset += f.limit) {
        struct arena a = {0};
        struct db_trial *t = NULL;
        int n = 0;

        r = db_trial_list(&t, &n, &total, db, &a, campaign, &f, error);
        for (int i = 0; r == 0 && i < n; i++)
            if (t[i].search_id != DB_NULL)
                r = replay_one(en, &t[i], error);
        arena_done(&a);
    }
    pthread_mutex_unlock(&en->lock);
    return r;
}

/* ---- answers for any thread ---------------------------------------------- */

/* A campaign of before "rules" was part of a completed text keeps those that it ran with: of its
 * trainer's name, or of none. */
static void keep_rules(json_t *resolved)
{
    const char *trainer = json_string_value(json_object_get(resolved, "trainer"));

    if (trainer && !json_object_get(resolved, "rules"))
        json_object_set_new(resolved, "rules",
                            json_string(pl_trainer_find(trainer) ? trainer : "any"));
}

int tn_engine_rebuild(struct tn_engine **ret, const struct tn_service *svc, struct db *db,
                      const char *id, bool at_work, const atomic_bool *unwanted, struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    struct tn_engine *en = NULL;
    struct tn_spec *spec = NULL;
    struct tn_patience patience;
    json_t *body = NULL;
    int r = db_campaign_get(&c, db, &a, id, error);

    if (r == 0)
        r = jx_parse(&body, c.resolved, strlen(c.resolved), error);
    if (r == 0) {
        keep_rules(body);
        r = tn_spec_parse(&spec, NULL, svc, body, error);
    }
    json_decref(body);
    arena_done(&a);
    if (r == 0) {
        spec->se.async_refit &= at_work;
        tn_patience_start(&patience, 0, unwanted);
        r = tn_engine_new(&en, &spec, &patience.plan, error);
        tn_spec_free(spec);
    }
    if (r == 0)
        r = replay(en, db, id, error);
    if (r < 0) {
        tn_engine_unref(en);
        return r;
    }
    *ret = en;
    return 0;
}

int tn_engine_rebuild_from_file(struct tn_engine **ret, const struct tn_service *svc,
                                const char *id, bool at_work, const atomic_bool *unwanted,
                                struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", tn_data_dir(svc));
    AUTO_DB *db = NULL;
    int r = db_open(&db, path, DB_READ, error);

    return r < 0 ? r : tn_engine_rebuild(ret, svc, db, id, at_work, unwanted, error);
}

/* For the questions of the HTTP side: neither the loop nor the campaign at work is disturbed. */
static int rebuild(struct tn_engine **ret, struct tn_service *svc, const char *id,
                   const atomic_bool *unwanted, struct err *error)
{
    return tn_engine_rebuild_from_file(ret, svc, id, false, unwanted, error);
}

int tn_importance(json_t **ret, struct tn_service *svc, const char *id, const atomic_bool *unwanted,
                  struct err *error)
{
    struct tn_engine *en = NULL;
    json_t *shares, *effects;
    int r = rebuild(&en, svc, id, unwanted, error);

    if (r < 0)
        return r;
    se_importance_json(&shares, &effects, en->search);
    tn_engine_unref(en);
    *ret = json_pack("{s:o, s:o}", "shares", shares, "effects", effects);
    return 0;
}

int tn_diagnosis(json_t **ret, struct tn_service *svc, const char *id, const atomic_bool *unwanted,
                 struct err *error)
{
    struct tn_engine *en = NULL;
    int r = rebuild(&en, svc, id, unwanted, error);

    if (r < 0)
        return r;
    *ret = se_diagnosis_json(en->search);
    tn_engine_unref(en);
    return *ret ? 0 : err_set(error, -ENOENT, "no trial has succeeded yet");
}

int tn_next_run(double *ret_rate, double *ret_lo, double *ret_hi, struct tn_service *svc,
                const char *id, const struct pl_layout *layout, const atomic_bool *unwanted,
                struct err *error)
{
    struct tn_engine *en = NULL;
    struct se_predicted p;
    int r = rebuild(&en, svc, id, unwanted, error);

    if (r < 0)
        return r;
    r = se_next_run(&p, en->search, layout, error);
    tn_engine_unref(en);
    if (r < 0)
        return r;
    *ret_rate = p.tokens_per_s;
    *ret_lo = p.lo;
    *ret_hi = p.hi;
    return 0;
}

static int value_of(const char *key, const struct se_spec *spec, const json_t *value)
{
    const struct pl_layout_key *k = pl_layout_key_find(key);
    int ret = k ? 0 : se_cluster_named(spec, json_string_value(value));

    if (k)
        pl_layout_word(&ret, k, value, NULL);
    return ret;
}

/* Index of JSON, a value of KEY, in the array LIST, which is kept in order; JSON joins if it is
 * new. */
static size_t place(json_t *list, const char *key, const struct se_spec *spec, const json_t *json)
{
    int value = value_of(key, spec, json);
    size_t i = 0;

    while (i < json_array_size(list) && value_of(key, spec, json_array_get(list, i)) < value)
        i++;
    if (!json_equal(json_array_get(list, i), json))
        json_array_insert(list, i, (json_t *)json);
    return i;
}

static json_t *grid(size_t rows, size_t columns)
{
    json_t *g = json_array();

    for (size_t y = 0; y < rows; y++) {
        json_t *row = json_array();

        for (size_t x = 0; x < columns; x++)
            json_array_append_new(row, json_null());
        json_array_append_new(g, row);
    }
    return g;
}

static void put(json_t *grid, size_t column, size_t row, double value)
{
    json_array_set_new(json_array_get(grid, row), column, tn_number(value));
}

static int cell_predicted(const struct tn_engine *en, const json_t *cell,
                          struct se_predicted *predicted)
{
    struct pl_layout l;
    int r = se_layout_parse(&l, &en->spec->se, json_object_get(cell, "layout"), NULL);

    return r < 0 ? r : se_predict(predicted, en->search, &l, NULL);
}

/* The cells of the search as matrices over the values of both keys: rows are y_key's. */
static json_t *matrices(const struct tn_engine *en, const json_t *cells, const char *x_key,
                        const char *y_key)
{
    const struct se_spec *spec = &en->spec->se;
    json_t *xs = json_array(), *ys = json_array(), *mean, *lo, *hi, *fits;
    const json_t *cell;
    size_t i;

    json_array_foreach(cells, i, cell) {
        place(xs, x_key, spec, json_object_get(cell, "x"));
        place(ys, y_key, spec, json_object_get(cell, "y"));
    }
    mean = grid(json_array_size(ys), json_array_size(xs));
    lo = json_deep_copy(mean);
    hi = json_deep_copy(mean);
    fits = json_deep_copy(mean);
    json_array_foreach(cells, i, cell) {
        size_t cx = place(xs, x_key, spec, json_object_get(cell, "x")),
               cy = place(ys, y_key, spec, json_object_get(cell, "y"));
        struct se_predicted p = {.lo = NAN, .hi = NAN};

        put(fits, cx, cy, json_number_value(json_object_get(cell, "p_fits")));
        if (cell_predicted(en, cell, &p) == 0) {
            put(mean, cx, cy, p.tokens_per_s);
            put(lo, cx, cy, p.lo);
            put(hi, cx, cy, p.hi);
        }
    }
    return json_pack("{s:{s:s, s:o}, s:{s:s, s:o}, s:o, s:o, s:o, s:o}", "x", "key", x_key,
                     "values", xs, "y", "key", y_key, "values", ys, "mean", mean, "lo", lo, "hi",
                     hi, "p_fits", fits);
}

int tn_surface(json_t **ret, struct tn_service *svc, const char *id, const char *x_key,
               const char *y_key, const atomic_bool *unwanted, struct err *error)
{
    struct tn_engine *en = NULL;
    AUTO_JSON *surface = NULL;
    int r = rebuild(&en, svc, id, unwanted, error);

    if (r == 0)
        r = se_surface_json(&surface, en->search, x_key, y_key, error);
    if (r == 0)
        *ret = matrices(en, json_object_get(surface, "cells"), x_key, y_key);
    tn_engine_unref(en);
    return r;
}
