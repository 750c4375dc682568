/* What needs no campaign: check a layout, rank a space, presets, data sets, import. */
#include <errno.h>

#include "search/search.h"
#include "tuner/api/api.h"
#include "tuner/export/export.h"

enum { TOP_STANDARD = 20, TOP_MAX = 1000 };

/* ---- check --------------------------------------------------------------- */

static json_t *rules_json(const struct pl_verdict *verdict)
{
    json_t *list = json_array();

    for (int i = 0; i < verdict->count; i++)
        json_array_append_new(list, json_pack("{s:s, s:s?, s:s}", "rule", verdict->v[i].rule, "key",
                                              verdict->v[i].key, "detail", verdict->v[i].text));
    return list;
}

struct check {
    struct tn_api_job job;
    struct pl_layout layout, against;
    json_t *why; /* what the layout's seconds are against those of AGAINST, or NULL */
};

static json_t *check(const struct tn_api_job *job, const struct pl_layout *layout)
{
    struct pl_problem p = tn_api_job_problem(job);
    struct pl_verdict verdict;
    struct pl_memory memory;
    struct pl_cost cost;
    char text[160];
    bool legal = pl_layout_check(&verdict, &p, layout);
    double mfu;
    json_t *v = json_pack("{s:b, s:o, s:s, s:o, s:n, s:n, s:n, s:b, s:f, s:n}", "legal", legal,
                          "layout", pl_layout_json(layout), "text", pl_layout_text(text, layout),
                          "rules", rules_json(&verdict), "memory", "cost", "mfu", "fits", 0,
                          "offered", pl_memory_offered(&job->cluster, job->headroom), "why");

    if (!legal)
        return v;
    pl_memory_worst(&memory, &p, layout);
    pl_cost(&cost, &p, layout);
    mfu = pl_mfu(&p, layout, cost.tokens_per_s);
    json_object_set_new(v, "memory", pl_memory_json(&memory));
    json_object_set_new(v, "cost", pl_cost_json(&cost));
    if (mfu >= 0)
        json_object_set_new(v, "mfu", json_real(mfu));
    json_object_set_new(v, "fits", json_boolean(pl_fits(&p, layout, job->headroom)));
    return v;
}

/* On another thread: thousands of layouts may lie between the two. */
static void compare(struct web_request *rq, void *arg)
{
    struct check *c = arg;
    struct pl_problem p = tn_api_job_problem(&c->job);
    struct pl_why why;

    (void)rq;
    pl_why(&why, &p, &c->against, &c->layout, PL_TOKENS_PER_S);
    c->why = pl_why_json(&why);
    json_object_update_new(c->why,
                           json_pack("{s:b, s:n, s:n}", "simulated", 0, "trial", "against"));
}

static void compared(struct web_request *rq, void *arg)
{
    struct check *c = arg;
    json_t *v = check(&c->job, &c->layout);

    if (c->why)
        json_object_set_new(v, "why", c->why);
    web_reply_json(rq, 200, v);
}

/* The layout KEY of BODY. */
static int check_layout(struct pl_layout *ret, const json_t *body, const char *key,
                        const struct pl_problem *problem, struct err *error)
{
    AUTO_FREE char *pointer = mem_printf("/%s", key);
    const json_t *json = json_object_get(body, key);
    int r = pl_layout_parse(ret, json, problem, error);

    if (r < 0)
        return err_under(error, pointer);
    pl_layout_unsaid(ret, json, problem);
    return 0;
}

/* With what a layout is compared must be legal. */
static int check_against(struct pl_layout *ret, const json_t *body,
                         const struct pl_problem *problem, struct err *error)
{
    struct pl_verdict verdict;
    char text[400];
    int r = check_layout(ret, body, "against", problem, error);

    if (r == 0 && !pl_layout_check(&verdict, problem, ret))
        return err_at(error, -EINVAL, "/against", "not legal: %s",
                      pl_verdict_text(text, sizeof(text), &verdict));
    return r;
}

void tn_api_check(struct web_request *rq)
{
    static const char *const keys[] = {"model", "cluster", "layout",      "workload", "trainer",
                                       "rules", "stack",   "constraints", "against",  NULL};
    struct check *c = arena_alloc(web_arena(rq), sizeof(*c));
    struct pl_problem p;
    struct err e;
    const json_t *body = web_body(rq);
    bool against = json_object_get(body, "against") != NULL;

    if (jx_keys(body, keys, &e) < 0 || tn_api_job_parse(&c->job, tn_api_svc(rq), body, &e) < 0 ||
        jx_need(body, "layout", &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    p = tn_api_job_problem(&c->job);
    if (check_layout(&c->layout, body, "layout", &p, &e) < 0 ||
        (against && check_against(&c->against, body, &p, &e) < 0))
        web_reply_error(rq, &e);
    else if (against && pl_layout_check(NULL, &p, &c->layout))
        web_offload(rq, compare, compared, c);
    else
        compared(rq, c);
}

/* ---- plan: on another thread, and no longer than somebody waits ---------- */

static const double PLAN_S = 1.6; /* of which the ranking may take this share: */
static const double RANKING = 0.8;
static const double BEYOND_S = 0.3; /* the options that were not named, where that much is left */
static const double ALONE = 0.25;   /* share of the ranking's time that each part alone has */

struct plan {
    struct tn_api_job job;
    struct pl_space space, alone[PL_PARTS]; /* of a cluster of parts also that of each part */
    enum pl_objective objective;
    int top;
    bool fold; /* a family of layouts is one item */
    char *answer;
    struct err e;
};

/* The best layout of each of several batches, as an item with its cost; null where none fits. */
static json_t *batches(const struct pl_plan *plan, const struct tn_api_job *job)
{
    json_t *list = json_array();

    for (size_t i = 0; i < plan->nbatches; i++) {
        const struct pl_plan_entry *best = &plan->batch[i];
        bool fits = best->cost.total > 0;

        json_array_append_new(
            list,
            json_pack(
                "{s:i, s:o, s:o}", "global_batch", job->workload.batch[i], "best",
                fits ? tn_api_plan_item(best, job, -1, false) : json_null(), "device_s_per_mtoken",
                fits ? json_real(1e6 * pl_layout_devices(&best->layout) / best->cost.tokens_per_s)
                     : json_null()));
    }
    return list;
}

/* [{"rule", "count", "sentence"}]: what the rules and the memory exclude. */
static json_t *excluded(uint64_t *ret_candidates, bool *ret_whole, const struct plan *search,
                        const struct pl_problem *problem, const struct pl_plan *plan,
                        const struct pl_patience *patience)
{
    struct pl_exclusion by_rule[PL_MAX_EXCLUSIONS];
    size_t n =
        pl_space_excluded(by_rule, ret_candidates, ret_whole, &search->space, problem, patience);
    size_t unfit = plan->legal - plan->fitting;
    json_t *list = json_array();
    char text[320];

    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof(text), "%.3g %% of the candidates break this rule; for example: %s",
                 100.0 * (double)by_rule[i].count / (double)*ret_candidates, by_rule[i].example);
        json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "rule", by_rule[i].rule, "count",
                                              (json_int_t)by_rule[i].count, "sentence", text));
    }
    if (unfit) {
        snprintf(text, sizeof(text),
                 "%.3g %% of the legal layouts%s need more than the %.4g GiB that a device offers",
                 100.0 * (double)unfit / (double)plan->legal,
                 plan->exact ? "" : " that were examined",
                 pl_memory_offered(problem->cluster, search->job.headroom) / (1 << 30));
        json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "rule", "memory", "count",
                                              (json_int_t)unfit, "sentence", text));
    }
    return list;
}

/* What options that the space does not name would bring; null where that is not worth saying. */
static json_t *beyond(const struct plan *search, const struct pl_problem *problem,
                      const struct pl_plan *plan, const struct pl_patience *patience)
{
    struct pl_plan_entry one;
    AUTO_STR keys = {0};
    char text[160];

    if (!pl_plan_beyond(&one, &keys, &search->space, problem, plan, search->job.headroom,
                        search->objective, patience))
        return json_null();
    return json_pack(
        "{s:s, s:o, s:s, s:f, s:o}", "keys", str_text(&keys), "layout", pl_layout_json(&one.layout),
        "text", pl_layout_text(text, &one.layout), "tokens_per_s", one.cost.tokens_per_s, "ratio",
        plan->n ? json_real(one.cost.tokens_per_s / plan->at[0].cost.tokens_per_s) : json_null());
}

/* Of a cluster of parts: what each part does without the other. */
static json_t *each_alone(const struct plan *search, const atomic_bool *unwanted)
{
    json_t *list = json_array();

    for (int i = 0; i < PL_PARTS; i++) {
        struct tn_patience patience;

        tn_patience_start(&patience, RANKING * PLAN_S * ALONE, unwanted);
        json_array_append_new(list, tn_api_plan_alone(&search->job, i, &search->alone[i],
                                                      search->objective, &patience.plan));
    }
    return list;
}

static void plan_work(struct web_request *rq, void *arg)
{
    struct plan *x = arg;
    struct pl_problem p = tn_api_job_problem(&x->job);
    struct tn_patience ranking, rest, more;
    struct pl_plan plan;
    json_t *items = json_array(), *rules, *answer, *alone = NULL;
    struct err why = {0};
    uint64_t candidates;
    bool whole;

    tn_patience_start(&rest, PLAN_S, web_unwanted(rq));
    tn_patience_start(&ranking, RANKING * PLAN_S * (x->job.cluster.parts ? 1 - 2 * ALONE : 1),
                      web_unwanted(rq));
    (x->fold ? pl_plan_families : pl_plan_look)(&plan, &x->space, &p, (size_t)x->top,
                                                x->job.headroom, x->objective, &ranking.plan);
    for (size_t i = 0; i < plan.n; i++)
        json_array_append_new(items, tn_api_plan_item(&plan.at[i], &x->job, -1, plan.families));
    if (x->job.cluster.parts)
        alone = each_alone(x, web_unwanted(rq));
    rules = excluded(&candidates, &whole, x, &p, &plan, &rest.plan);
    /* Nothing legal, or nothing that fits, is an answer to the question. */
    if (!plan.n)
        pl_plan_nothing(&plan, &x->space, &p, x->job.headroom, &rest.plan, &why);
    answer = json_pack("{s:I, s:I, s:I, s:b, s:o, s:o, s:o}", "candidates", (json_int_t)candidates,
                       "legal", (json_int_t)plan.legal, "fitting", (json_int_t)plan.fitting,
                       "exact", plan.exact && whole, "items", items, "reason",
                       *why.text ? json_string(why.text) : json_null(), "excluded", rules);
    tn_patience_start(&more, BEYOND_S, web_unwanted(rq));
    json_object_set_new(answer, "beyond",
                        rest.plan.spent(rest.plan.arg) < 1 - BEYOND_S / PLAN_S
                            ? beyond(x, &p, &plan, &more.plan)
                            : json_null());
    if (plan.nbatches)
        json_object_set_new(answer, "batches", batches(&plan, &x->job));
    if (alone) {
        json_object_set_new(answer, "alone", alone);
        json_object_set_new(answer, "cluster", pl_parts_json(&x->job.parts));
    }
    pl_plan_done(&plan);
    x->answer = jx_dump(answer); /* here, for a long list takes a while */
    json_decref(answer);
}

static void plan_done(struct web_request *rq, void *arg)
{
    struct plan *x = arg;

    if (x->answer) {
        web_reply_json_text(rq, 200, x->answer, strlen(x->answer));
    } else {
        tn_api_unwanted(&x->e);
        web_reply_error(rq, &x->e);
    }
    free(x->answer);
}

/* By what layouts are ranked; joules need watts, the price of a token needs that of a device. */
static int plan_objective(struct plan *plan, const json_t *body)
{
    int objective = PL_TOKENS_PER_S,
        r = jx_get_enum(&objective, body, "objective", pl_objective_names, &plan->e);

    plan->objective = (enum pl_objective)objective;
    if (r == 0 && plan->job.cluster.parts &&
        (objective == PL_TOKENS_PER_JOULE || objective == PL_TOKENS_PER_COST))
        return err_at(&plan->e, -EINVAL, "/objective", "%s is not supported for a cluster of parts",
                      pl_objective_names[objective]);
    if (r == 0 && objective == PL_TOKENS_PER_COST && !(plan->job.cluster.price > 0))
        return err_at(&plan->e, -EINVAL, "/objective",
                      "tokens_per_cost needs price_per_device_hour in the cluster");
    if (r == 0 && objective == PL_TOKENS_PER_JOULE && !pl_watts_known(&plan->job.cluster))
        return err_at(&plan->e, -EINVAL, "/objective",
                      "tokens_per_joule: no watts of this cluster are known; add busy_watts and "
                      "idle_watts to it");
    return r;
}

static int parse_space(struct plan *plan, const json_t *json)
{
    struct pl_problem problem = tn_api_job_problem(&plan->job);
    int r;

    if (!plan->job.cluster.parts)
        return pl_space_parse(&plan->space, json, &problem, &plan->e);
    if ((r = pl_parts_space(&plan->space, json, &problem, &plan->e)) < 0)
        return r;
    for (int i = 0; i < PL_PARTS; i++) {
        problem.cluster = &plan->job.parts.at[i];
        if ((r = pl_space_parse(&plan->alone[i], json, &problem, &plan->e)) < 0)
            return r;
    }
    return 0;
}

static int plan_space(struct plan *plan, const json_t *json)
{
    int r = parse_space(plan, json);
    struct err why = plan->e;

    if (r == -ENOENT) /* the parts have no pipeline in common, whatever the space */
        return err_at(&plan->e, -EINVAL, "/cluster/parts", "%s", why.text);
    return r < 0 ? err_under(&plan->e, "/space") : 0;
}

void tn_api_plan(struct web_request *rq)
{
    static const char *const keys[] = {"model",   "cluster",     "workload",  "space",
                                       "trainer", "rules",       "stack",     "top",
                                       "fold",    "constraints", "objective", NULL};
    struct plan *x = arena_alloc(web_arena(rq), sizeof(*x));
    const json_t *body = web_body(rq);

    x->top = TOP_STANDARD;
    x->fold = x->job.takes_parts = true;
    if (jx_keys(body, keys, &x->e) < 0 ||
        tn_api_job_parse(&x->job, tn_api_svc(rq), body, &x->e) < 0 ||
        jx_get_int(&x->top, body, "top", 1, TOP_MAX, &x->e) < 0 ||
        jx_get_bool(&x->fold, body, "fold", &x->e) < 0 || plan_objective(x, body) < 0) {
        web_reply_error(rq, &x->e);
        return;
    }
    if (plan_space(x, json_object_get(body, "space")) < 0) {
        web_reply_error(rq, &x->e);
        return;
    }
    web_offload(rq, plan_work, plan_done, x);
}

/* ---- worked examples ----------------------------------------------------- */

struct example {
    const char *name;
    json_t *answer;
    struct err e;
    int r;
};

static void example_work(struct web_request *rq, void *arg)
{
    struct example *x = arg;

    (void)rq;
    x->r = pl_example_json(&x->answer, x->name, &x->e);
}

static void example_done(struct web_request *rq, void *arg)
{
    struct example *x = arg;

    tn_api_answer(rq, x->r, 200, x->answer, &x->e);
}

void tn_api_example(struct web_request *rq)
{
    struct example *x = arena_alloc(web_arena(rq), sizeof(*x));

    x->name = web_param(rq, "name");
    x->r = tn_api_unwanted(&x->e);
    web_offload_slow(rq, example_work, example_done, x);
}

void tn_api_examples(struct web_request *rq)
{
    json_t *list = json_array();

    for (const char *const *name = pl_examples(); *name; name++)
        json_array_append_new(list, json_string(*name));
    tn_api_whole(rq, list);
}

/* ---- presets ------------------------------------------------------------- */

/* Presets of a kind: their names, and the object of one, or NULL. LOCAL: this machine. */
struct presets {
    const char *const *(*names)(void);
    json_t *(*object)(const char *name, const struct pl_cluster *local);
};

static json_t *model_preset(const char *name, const struct pl_cluster *local)
{
    AUTO_JSON *text = json_string(name);
    struct pl_model model;

    (void)local;
    return pl_model_parse(&model, text, NULL) < 0 ? NULL : pl_model_json(&model);
}

static json_t *cluster_preset(const char *name, const struct pl_cluster *local)
{
    AUTO_JSON *text = json_string(name);
    struct pl_cluster cluster;

    return pl_cluster_parse(&cluster, text, local, NULL) < 0 ? NULL : pl_cluster_json(&cluster);
}

static json_t *stack_preset(const char *name, const struct pl_cluster *local)
{
    const char *text = pl_stack_preset(name);
    json_t *object = NULL;

    (void)local;
    return text && jx_parse(&object, text, strlen(text), NULL) == 0 ? object : NULL;
}

static const struct presets models = {pl_model_presets, model_preset},
                            clusters = {pl_cluster_presets, cluster_preset},
                            stacks = {pl_stack_presets, stack_preset};

static void reply_presets(struct web_request *rq, const struct presets *presets)
{
    json_t *list = json_array();

    for (const char *const *name = presets->names(); *name; name++) {
        json_t *v = presets->object(*name, tn_local_cluster(tn_api_svc(rq)));

        if (v)
            json_array_append_new(list, v);
    }
    tn_api_whole(rq, list);
}

void tn_api_models(struct web_request *rq)
{
    reply_presets(rq, &models);
}

void tn_api_clusters(struct web_request *rq)
{
    reply_presets(rq, &clusters);
}

void tn_api_stacks(struct web_request *rq)
{
    reply_presets(rq, &stacks);
}

static void reply_preset(struct web_request *rq, const struct presets *presets)
{
    const char *name = web_param(rq, "name");
    json_t *v = presets->object(name, tn_local_cluster(tn_api_svc(rq)));
    struct err e;

    if (v) {
        web_reply_json(rq, 200, v);
        return;
    }
    err_set(&e, -ENOENT, "unknown preset %.64s", name);
    web_reply_error(rq, &e);
}

void tn_api_model(struct web_request *rq)
{
    reply_preset(rq, &models);
}

void tn_api_cluster(struct web_request *rq)
{
    reply_preset(rq, &clusters);
}

void tn_api_stack(struct web_request *rq)
{
    reply_preset(rq, &stacks);
}

void tn_api_datasets(struct web_request *rq)
{
    tn_api_whole(rq, tn_datasets_json(tn_api_svc(rq)));
}

/* ---- import -------------------------------------------------------------- */

static json_t *ignored(const struct tn_findings *findings)
{
    json_t *list = json_array();

    for (int i = 0; i < findings->count; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "setting", findings->v[i].setting,
                                              "detail", findings->v[i].detail));
    return list;
}

void tn_api_import(struct web_request *rq)
{
    static const char *const keys[] = {"text", "world", "model", "call", NULL};
    const json_t *body = web_body(rq), *text = json_object_get(body, "text"),
                 *call = json_object_get(body, "call");
    const char *source = web_param(rq, "target");
    struct tn_imported x = {0};
    struct tn_job job = {.source = source};
    struct pl_model m;
    struct err e;
    char line[160];
    int world = 1, known = 0;

    while (tn_importers()[known] && strcmp(tn_importers()[known], source))
        known++;
    if (!tn_importers()[known]) {
        err_set(&e, -ENOENT, "no importer for %.64s", source);
        web_reply_error(rq, &e);
        return;
    }
    if (jx_keys(body, keys, &e) < 0 || jx_need(body, "text", &e) < 0 ||
        jx_need(body, "model", &e) < 0 || jx_need(body, "world", &e) < 0 ||
        jx_get_int(&world, body, "world", 1, 1 << 20, &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    if (!json_is_string(text) || (call && !json_is_string(call))) {
        err_at(&e, -EINVAL, json_is_string(text) ? "/call" : "/text", "\"%s\" must be a string",
               json_is_string(text) ? "call" : "text");
        web_reply_error(rq, &e);
        return;
    }
    if (pl_model_parse(&m, json_object_get(body, "model"), &e) < 0) {
        err_under(&e, "/model");
        web_reply_error(rq, &e);
        return;
    }
    job.text = json_string_value(text);
    job.call = json_string_value(call);
    job.world = world;
    if (tn_import(&x, &job, &m, &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    web_reply_json(rq, 200,
                   json_pack("{s:o, s:s, s:o, s:o, s:o}", "layout", pl_layout_json(&x.layout),
                             "text", pl_layout_text(line, &x.layout), "global_batch",
                             x.global_batch ? json_integer(x.global_batch) : json_null(), "seq",
                             x.seq ? json_integer(x.seq) : json_null(), "ignored",
                             ignored(&x.ignored)));
}
