/* Tables of throughputs; see landscape.h. */
#include "tests/bench/landscape.h"

#include <errno.h>
#include <libgen.h>
#include <math.h>

/* ---- loading ------------------------------------------------------------- */

static const struct {
    const char *column, *key;
} columns[] = {
    {"tp", "tp"},     {"pp", "pp"}, {"vp", "vp"}, {"mb", "micro_batch"}, {"recompute", "recompute"},
    {"zero", "zero"}, {"sp", "sp"},
};

static bool holds(const json_t *array, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (json_equal(json_array_get(array, i), v))
            return true;
    return false;
}

/* The values that occur, as a campaign's space; what the tables do not vary is pinned, and a column
 * that no row has takes its default as the only value. */
static json_t *space_of(const json_t *rows)
{
    struct pl_layout l;

    json_t *space = json_pack("{s:[s,s], s:i, s:i, s:i, s:i}", "schedule", "1f1b", "interleaved",
                              "overlap_grad_reduce", 0, "overlap_param_gather", 0, "overlap_p2p", 0,
                              "overlap_moe_a2a", 0);

    pl_layout_default(&l, &(struct pl_workload){0});
    for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
        const struct pl_layout_key *key = pl_layout_key_find(columns[c].key);
        json_t *values = json_array();

        for (size_t i = 0; i < json_array_size(rows); i++) {
            json_t *v = json_object_get(json_array_get(rows, i), columns[c].column);

            if (v && !json_is_null(v) && !holds(values, v))
                json_array_append(values, v);
        }
        if (json_array_size(values) == 0)
            json_array_append_new(values, key->names
                                              ? json_string(key->names[pl_layout_get(&l, key)])
                                              : json_integer(pl_layout_get(&l, key)));
        json_object_set_new(space, key->name, values);
    }
    return space;
}

/* The profile that a table names, that of its "system", or what is itself the name of one. */
static const char *profile_of(const json_t *table, const char *system)
{
    static const struct {
        const char *system, *profile;
    } known[] = {{"a100_80g", "dgx-a100"}, {"h100_80g", "dgx-h100"}, {"h200", "h200"}};

    const char *profile = json_string_value(json_object_get(table, "profile"));

    if (profile && pl_cluster_preset(profile))
        return profile;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_starts(system, known[i].system))
            return known[i].profile;
    return pl_cluster_preset(system) ? system : NULL;
}

/* GPUS devices on whole nodes, or a part of one. */
static int cluster_of(json_t **ret, const json_t *table, struct err *e)
{
    const char *system = NULL, *profile;
    AUTO_JSON *name = NULL;
    struct pl_cluster c;
    int gpus = 0, r;

    if ((r = jx_need(table, "system", e)) < 0 ||
        (r = jx_get_str(&system, table, "system", 64, e)) < 0 ||
        (r = jx_need(table, "gpus", e)) < 0 ||
        (r = jx_get_int(&gpus, table, "gpus", 1, 1 << 24, e)) < 0)
        return r;
    profile = profile_of(table, system);
    if (!profile)
        return err_at(e, -EINVAL, "/system", "no profile is known for the system \"%s\"", system);
    name = json_string(profile);
    if ((r = pl_cluster_parse(&c, name, NULL, e)) < 0)
        return r;
    if (gpus > c.devices_per_node && gpus % c.devices_per_node)
        return err_at(e, -EINVAL, "/gpus", "%d devices are no whole nodes of %d", gpus,
                      c.devices_per_node);
    if (gpus < c.devices_per_node)
        c.devices_per_node = gpus;
    *ret = json_pack("{s:s, s:i, s:i}", "profile", profile, "nodes", gpus / c.devices_per_node,
                     "devices_per_node", c.devices_per_node);
    return 0;
}

/* The model of a table: its sizes, and words where it has them; without them a GPT. */
static int model_of(json_t **ret, const json_t *table, struct err *e)
{
    static const char *const sizes[] = {"layers", "hidden", "heads", "ffn", "seq"};
    static const char *const words[] = {"kv_heads", "vocab", "mlp", "norm", "positions", "tied"};
    json_t *model, *name = json_object_get(table, "model");
    int r;

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        if ((r = jx_need(table, sizes[i], e)) < 0)
            return r;
    model = json_pack("{s:s, s:i, s:s, s:s, s:s}", "name", "landscape", "vocab", 51200, "mlp",
                      "gelu", "norm", "layernorm", "positions", "learned");
    if (json_is_string(name))
        json_object_set(model, "name", name);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        json_object_set(model, sizes[i], json_object_get(table, sizes[i]));
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (json_object_get(table, words[i]))
            json_object_set(model, words[i], json_object_get(table, words[i]));
    *ret = model;
    return 0;
}

/* A sweep brings its campaign; of the other tables it is made. */
static int campaign_of(json_t **ret, const json_t *table, struct err *e)
{
    json_t *given = json_object_get(table, "campaign"), *model = NULL, *cluster = NULL;
    int r;

    if (given) {
        *ret = json_incref(given);
        return 0;
    }
    if ((r = jx_need(table, "global_batch", e)) < 0 || (r = cluster_of(&cluster, table, e)) < 0)
        return r;
    if ((r = model_of(&model, table, e)) < 0) {
        json_decref(cluster);
        return r;
    }
    *ret = json_pack("{s:s, s:o, s:o, s:{s:O, s:s}, s:s, s:o}", "name", "landscape", "model", model,
                     "cluster", cluster, "workload", "global_batch",
                     json_object_get(table, "global_batch"), "precision", "bf16", "trainer",
                     "megatron", "space", space_of(json_object_get(table, "rows")));
    return 0;
}

static void row_key(json_t *layout, const char *column, json_t *v)
{
    for (size_t c = 0; c < ARRAY_LEN(columns); c++)
        if (str_eq(columns[c].column, column))
            column = columns[c].key;
    if (pl_layout_key_find(column))
        json_object_set(layout, column, v);
}

/* The layout of a row, as a campaign would write it; false if no rule lets it be. */
static bool row_layout(json_t *row, const struct se_spec *s, struct pl_layout *ret)
{
    AUTO_JSON *v = json_object();
    struct pl_problem p = se_spec_problem(s);
    const char *column;
    json_t *x;
    struct err e;

    json_object_foreach(row, column, x)
        row_key(v, column, x);
    if (!json_object_get(v, "schedule"))
        json_object_set_new(v, "schedule",
                            json_string(json_integer_value(json_object_get(row, "vp")) > 1
                                            ? "interleaved"
                                            : "1f1b"));
    return pl_layout_parse(ret, v, &p, &e) == 0 && pl_space_has(s->space, &p, ret);
}

int landscape_load(struct landscape *ret, const char *path, struct err *e)
{
    AUTO_JSON *table = NULL;
    AUTO_FREE char *copy = mem_strdup(path);
    json_t *rows;
    int r;

    memset(ret, 0, sizeof(*ret));
    if ((r = jx_load(&table, path, 256 << 20, e)) < 0)
        return r;
    snprintf(ret->name, sizeof(ret->name), "%.*s", (int)strcspn(basename(copy), "\n"),
             basename(copy));
    if (str_ends(ret->name, ".json"))
        ret->name[strlen(ret->name) - 5] = 0;
    rows = json_object_get(table, "rows");
    if (!json_is_array(rows))
        return err_at(e, -EINVAL, "/rows", "%s is not a landscape: it has no rows", path);
    if ((r = campaign_of(&ret->campaign, table, e)) < 0)
        return err_wrap(e, "%s", path);
    ret->measured =
        json_object_get(table, "campaign") || json_is_true(json_object_get(table, "measured"));
    if ((r = se_spec_parse(&ret->spec, ret->campaign, NULL, e)) < 0)
        return r;
    ret->layout = mem_alloc(json_array_size(rows) * sizeof(*ret->layout) + 1);
    ret->tokens = mem_alloc(json_array_size(rows) * sizeof(double) + 1);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i), *t = json_object_get(row, "tokens_per_s");

        if (!row_layout(row, &ret->spec, &ret->layout[ret->n]))
            continue;
        ret->tokens[ret->n] = json_is_number(t) ? json_number_value(t) : 0.0;
        ret->best = fmax(ret->best, ret->tokens[ret->n++]);
    }
    if (ret->best <= 0.0)
        return err_at(e, -EINVAL, "/rows", "%s: no legal layout of its %zu rows ran", path,
                      json_array_size(rows));
    return 0;
}

void landscape_done(struct landscape *l)
{
    json_decref(l->campaign);
    se_spec_done(&l->spec);
    free(l->layout);
    free(l->tokens);
    memset(l, 0, sizeof(*l));
}

/* ---- warping ------------------------------------------------------------- */

enum { WAVES = 6, AXES = 4 };

void landscape_warp(struct landscape *l, double frequency, uint64_t seed)
{
    struct rng r;
    double w[WAVES][AXES], phase[WAVES], lo = INFINITY, hi = -INFINITY;
    double AUTO_FREE *f = mem_alloc(l->n * sizeof(double));

    rng_seed(&r, seed);
    for (int k = 0; k < WAVES; k++) {
        for (int a = 0; a < AXES; a++)
            w[k][a] = frequency * rng_normal(&r);
        phase[k] = 2.0 * M_PI * rng_unit(&r);
    }
    for (size_t i = 0; i < l->n; i++) {
        const struct pl_layout *x = &l->layout[i];
        const int v[AXES] = {x->tp, x->pp, x->vp, x->micro_batch};

        for (int k = 0; k < WAVES; k++) {
            double at = phase[k];

            for (int a = 0; a < AXES; a++)
                at += w[k][a] * log2(v[a]);
            f[i] += cos(at);
        }
        lo = fmin(lo, f[i]);
        hi = fmax(hi, f[i]);
    }
    l->best = 0.0;
    for (size_t i = 0; i < l->n; i++) {
        l->tokens[i] *= exp2(2.0 * (f[i] - lo) / (hi - lo) - 1.0);
        l->best = fmax(l->best, l->tokens[i]);
    }
}

/* ---- roughness and thinning --------------------------------------------- */

/* A seed for layout AT by SEED: the same in every space. */
static void seed_of(struct rng *ret, const struct pl_layout *at, uint64_t seed)
{
    char text[160];

    pl_layout_text(text, at);
    rng_seed(ret, str_hash(text, strlen(text), seed));
}

void landscape_roughen(struct landscape *l, double sd, uint64_t seed)
{
    l->best = 0.0;
    for (size_t i = 0; i < l->n; i++) {
        struct rng r;

        seed_of(&r, &l->layout[i], seed);
        l->tokens[i] *= exp(sd * rng_normal(&r));
        l->best = fmax(l->best, l->tokens[i]);
    }
}

void landscape_thin(struct landscape *l, double share, uint64_t seed)
{
    size_t kept = 0;

    for (size_t i = 0; i < l->n; i++) {
        struct rng r;

        seed_of(&r, &l->layout[i], seed);
        if (l->tokens[i] < 0.95 * l->best && rng_unit(&r) < share)
            continue;
        l->layout[kept] = l->layout[i];
        l->tokens[kept++] = l->tokens[i];
    }
    l->n = kept;
    l->thinned = true;
}

/* ---- racing -------------------------------------------------------------- */

double landscape_at(const struct landscape *l, const struct pl_layout *x)
{
    for (size_t i = 0; i < l->n; i++)
        if (pl_layout_equal(&l->layout[i], x))
            return l->tokens[i];
    return -1.0;
}

/* One line of a trial, and what is predicted of the best layout meanwhile. */
static void trace_trial(FILE *out, const struct landscape *l, const struct se_search *s,
                        const struct se_trial *t, double truth)
{
    char text[160];
    struct se_predicted q;
    size_t best = 0;

    for (size_t i = 0; i < l->n; i++)
        if (l->tokens[i] > l->tokens[best])
            best = i;
    se_predict(&q, s, &l->layout[best], NULL);
    fprintf(out, "%3d %s: %.3f of the best, expected %.3f [%.3f %.3f] fits %.2f%s; %s\n", t->id,
            pl_layout_text(text, &t->layout), truth / l->best, t->predicted.tokens_per_s / l->best,
            t->predicted.lo / l->best, t->predicted.hi / l->best, t->predicted.p_fits,
            t->repeat_of ? " again" : "", t->why);
    fprintf(out, "    the best %s: expected %.3f [%.3f %.3f] fits %.2f\n",
            pl_layout_text(text, &l->layout[best]), q.tokens_per_s / l->best, q.lo / l->best,
            q.hi / l->best, q.p_fits);
}

static void score(struct race *r, double p, bool fits)
{
    int bin = (int)fmin(fmax(p * 10.0, 0.0), 9.0);

    r->log_score += (p - fits) * (p - fits);
    r->npredicted++;
    r->bin_count[bin]++;
    r->bin_fit[bin] += fits;
    r->bin_sum[bin] += p;
}

/* What a trial of throughput TRUTH (0: out of memory) is seen to do. */
static struct se_outcome outcome_of(double truth, struct landscape_noise noise, struct rng *r)
{
    struct se_outcome o = {.status = truth > 0.0 ? SE_OK : SE_OOM};

    o.tokens_per_s = truth * exp(noise.sd * rng_normal(r));
    o.tokens_per_s_se = noise.claimed * o.tokens_per_s;
    return o;
}

void landscape_past(struct se_source *ret, const struct landscape *l, struct landscape_noise noise,
                    int trials, uint64_t noise_seed)
{
    AUTO(se_search) *s = NULL;
    struct se_spec spec = l->spec;
    struct se_trial t;
    struct rng r;
    struct err e;

    rng_seed(&r, noise_seed);
    spec.seed = noise_seed;
    ret->spec = l->spec;
    ret->spec.space = NULL;
    ret->trial = mem_alloc((size_t)trials * sizeof(*ret->trial));
    ret->n = 0;
    if (se_search_new(&s, &spec, &e) < 0) {
        fprintf(stderr, "%s: %s\n", l->name, e.text);
        return;
    }
    while (ret->n < trials && se_ask(&t, s) == SE_TRIAL) {
        struct se_outcome o = outcome_of(landscape_at(l, &t.layout), noise, &r);

        ret->trial[ret->n++] = (struct se_past){.layout = t.layout, .outcome = o};
        se_tell(s, t.id, &o, &e);
    }
}

void landscape_past_done(struct se_source *x)
{
    free(x->trial);
    x->trial = NULL;
    x->n = 0;
}

/* Trials that run, oldest first, and the time in lengths of a trial. */
struct running {
    struct se_trial *trial; /* (most) */
    int *end;               /* (most): when it will have ended */
    int n, most, now;
};

/* Ask for as many trials as may run at once; false when the search is over. */
static bool fill(struct running *running, struct se_search *search)
{
    while (running->n < running->most) {
        enum se_answer answer = se_ask(&running->trial[running->n], search);

        if (answer != SE_TRIAL)
            return answer == SE_WAIT;
        running->end[running->n++] = running->now + 1;
    }
    return true;
}

static struct se_trial end_oldest(struct running *running)
{
    struct se_trial ended = running->trial[0];

    running->now = running->end[0];
    running->n--;
    memmove(running->trial, running->trial + 1, (size_t)running->n * sizeof(*running->trial));
    memmove(running->end, running->end + 1, (size_t)running->n * sizeof(*running->end));
    return ended;
}

static void count(struct race *race, const struct landscape *l, double truth, int now)
{
    race->trials++;
    race->wall = now;
    if (!race->hit5)
        race->oom5 += truth <= 0.0;
    if (!race->hit5 && truth >= 0.95 * l->best) {
        race->hit5 = race->trials;
        race->wall5 = now;
    }
    if (!race->hit3 && truth >= 0.97 * l->best)
        race->hit3 = race->trials;
    if (!race->hit1 && truth >= 0.99 * l->best) {
        race->hit1 = race->trials;
        race->wall1 = now;
    }
}

/* By what share the layout that SEARCH names is slower than the best. */
static double lost(const struct landscape *l, const struct se_search *search)
{
    struct se_best best;

    return se_best(&best, search) < 0 ? 1.0 : 1.0 - landscape_at(l, &best.layout) / l->best;
}

void landscape_race(struct race *ret, const struct landscape *l, const struct se_spec *spec,
                    struct landscape_noise noise, int max_trials, bool to_end, uint64_t noise_seed,
                    FILE *trace)
{
    struct se_search *s = NULL;
    struct running running = {.most = spec->parallel > 0 ? spec->parallel : 1};
    struct rng r;
    struct err e;
    int opened;

    memset(ret, 0, sizeof(*ret));
    rng_seed(&r, noise_seed);
    opened = l->thinned ? se_search_new_over(&s, spec, l->layout, l->n, &e)
                        : se_search_new(&s, spec, &e);
    if (opened < 0) {
        fprintf(stderr, "%s: %s\n", l->name, e.text);
        return;
    }
    running.trial = mem_alloc((size_t)running.most * sizeof(*running.trial));
    running.end = mem_alloc((size_t)running.most * sizeof(*running.end));
    while (ret->trials < max_trials && (to_end || !ret->hit1) && fill(&running, s) &&
           running.n > 0) {
        struct se_trial t = end_oldest(&running);
        double truth = landscape_at(l, &t.layout);
        struct se_outcome o = outcome_of(truth, noise, &r);

        if (trace)
            trace_trial(trace, l, s, &t, truth);
        if (!t.repeat_of)
            score(ret, t.predicted.p_fits, truth > 0.0);
        count(ret, l, truth, running.now);
        if (se_tell(s, t.id, &o, &e) < 0)
            fprintf(stderr, "%s: %s\n", l->name, e.text);
    }
    snprintf(ret->reason, sizeof(ret->reason), "%s", se_done_reason(s));
    ret->lost = lost(l, s);
    free(running.trial);
    free(running.end);
    se_search_free(s);
}
