/*
 * Projection: a campaign's trials calibrate the cost model, which then predicts other scales.
 *
 * Every projection is kept as an artifact of its campaign, and compared with what later trials
 * measure (earlier.c).
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "search/search.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

enum { SIZES = 32, WITH = 16 };
enum { MACHINES = (WITH + 1) * SE_MAX_CLUSTERS + 1 }; /* of all campaigns, and the one asked for */

/* ---- what is asked ------------------------------------------------------- */

struct asked {
    const char *campaign;
    json_t *with; /* further campaigns to learn from */
    int devices[SIZES], n;
    bool weak, best;
    const json_t *cluster;
};

static int parse_devices(struct asked *asked, const json_t *body, struct err *error)
{
    json_t *list = NULL, *v;
    size_t i;
    int r = jx_get_array(&list, body, "devices", SIZES, error);

    if (r == 0 && json_array_size(list) == 0)
        r = err_at(error, -EINVAL, "/devices", "must name at least one device count");
    json_array_foreach(list, i, v) {
        if (r == 0 &&
            (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1 << 20))
            r = err_at(error, -EINVAL, "/devices", "must be whole numbers from 1 to 1048576");
        if (r == 0)
            asked->devices[asked->n++] = (int)json_integer_value(v);
    }
    return r;
}

static int parse_word(bool *ret, const json_t *body, const char *key, const char *no,
                      const char *yes, struct err *error)
{
    const char *word = no;
    AUTO_FREE char *pointer = mem_printf("/%s", key);
    int r = jx_get_str(&word, body, key, 16, error);

    if (r == 0 && strcmp(word, no) && strcmp(word, yes))
        return err_at(error, -EINVAL, pointer, "must be \"%s\" or \"%s\", not \"%.40s\"", no, yes,
                      word);
    *ret = r == 0 && !strcmp(word, yes);
    return r;
}

static int parse(struct asked *asked, const json_t *body, struct err *error)
{
    static const char *const keys[] = {"campaign", "with",    "devices", "scaling",
                                       "layouts",  "cluster", NULL};
    int r = jx_keys(body, keys, error);

    *asked = (struct asked){.cluster = json_object_get(body, "cluster")};
    if (r < 0 || (r = jx_need(body, "campaign", error)) < 0 ||
        (r = jx_need(body, "devices", error)) < 0 ||
        (r = jx_get_str(&asked->campaign, body, "campaign", 64, error)) < 0 ||
        (r = jx_get_array(&asked->with, body, "with", WITH, error)) < 0 ||
        (r = parse_devices(asked, body, error)) < 0 ||
        (r = parse_word(&asked->weak, body, "scaling", "strong", "weak", error)) < 0 ||
        (r = parse_word(&asked->best, body, "layouts", "winner", "best", error)) < 0)
        return r;
    return 0;
}

/* ---- learning ------------------------------------------------------------ */

struct study {
    struct db *db;
    struct arena *a;
    const struct pl_cluster *local;
    struct se_spec spec;                 /* of the campaign */
    const struct pl_space *space;        /* of the campaign, on the cluster that is projected */
    struct pl_cluster there;             /* its cluster, or the one that was asked for */
    struct pl_cluster machine[MACHINES]; /* machine 0 is the campaign's; no two are the same */
    int machines, to;                    /* how many there are, and which of them THERE is */
    struct pl_layout winner;
    double winner_rate; /* measured tokens/s */
    struct pl_observation *at;
    int n, cap;
    int simulated; /* of the N observations */
    struct pl_calibration *calibration;
};

static int layout_of(struct pl_layout *ret, const struct se_spec *spec, const char *text,
                     struct err *error)
{
    AUTO_JSON *v = NULL;
    int r = jx_parse(&v, text, strlen(text), error);

    return r < 0 ? r : se_layout_parse(ret, spec, v, error);
}

/* The number of the machine that CLUSTER is made of: an earlier one, or a new one. */
static int machine_of(struct study *st, const struct pl_cluster *cluster)
{
    for (int i = 0; i < st->machines; i++)
        if (pl_machine_changes(&st->machine[i], cluster) == 0)
            return i;
    assert(st->machines < MACHINES);
    st->machine[st->machines] = *cluster;
    return st->machines++;
}

/* From the trials of CAMPAIGN, of several clusters each on the machine that it ran on. */
static int learn(struct study *st, const struct db_campaign *campaign, const struct se_spec *spec,
                 struct err *error)
{
    struct pl_cost_ctx *cost_on[SE_MAX_CLUSTERS];
    struct db_filter f = {
        .state = "ok", .sort = "tokens_per_s", .descending = true, .limit = PL_MAX_OBSERVATIONS};
    struct db_trial *t = NULL;
    int count = 0;
    int64_t total;
    int r = db_trial_list(&t, &count, &total, st->db, st->a, campaign->id, &f, error);

    for (int i = 0; i < spec->nclusters; i++) {
        struct pl_problem problem = se_spec_problem(spec);

        problem.cluster = &spec->cluster[i];
        cost_on[i] = pl_cost_ctx_new(&problem, NULL);
    }
    for (int i = 0; r == 0 && i < count; i++) {
        struct pl_observation o = {0};
        const struct pl_cluster *cluster;
        struct pl_cost cost;

        if (!(t[i].tokens_per_s > 0) || layout_of(&o.layout, spec, t[i].layout, NULL) < 0)
            continue;
        cluster = se_cluster_of(spec, &o.layout);
        o.machine = machine_of(st, cluster);
        pl_cost_at(&cost, cost_on[cluster - spec->cluster], &o.layout);
        o.measured_s =
            (double)pl_batch(&spec->workload, &o.layout) * spec->workload.seq / t[i].tokens_per_s;
        o.expected_s = cost.total;
        o.relative_se = t[i].tokens_per_s_se > 0 ? t[i].tokens_per_s_se / t[i].tokens_per_s : 0.01;
        MEM_GROW(st->at, st->n, st->cap);
        st->at[st->n++] = o;
        st->simulated += tn_is_simulated(campaign->launcher);
    }
    for (int i = 0; i < spec->nclusters; i++)
        pl_cost_ctx_free(cost_on[i]);
    return r;
}

/* Which of the campaign's clusters is projected: of several, the one that is named. */
static int choose_cluster(int *ret, const struct se_spec *spec, const struct asked *asked,
                          struct err *error)
{
    AUTO_STR names = {0};

    *ret = 0;
    if (spec->nclusters == 1)
        return 0;
    *ret = se_cluster_named(spec, json_string_value(asked->cluster));
    if (*ret >= 0)
        return 0;
    for (int i = 0; i < spec->nclusters; i++)
        str_addf(&names, "%s%s", i ? ", " : "", spec->cluster[i].name);
    return err_at(error, -EINVAL, "/cluster",
                  "campaign %s ran on several clusters, and a projection is from one: name it by "
                  "\"cluster\" (%s)",
                  asked->campaign, str_text(&names));
}

/* Another campaign's trials count if the same software ran, those on another machine for less. */
static int learn_also(struct study *st, const char *id, struct err *error)
{
    AUTO_JSON *body = NULL;
    struct db_campaign c;
    struct se_spec s;
    int r = db_campaign_get(&c, st->db, st->a, id, error);

    if (r == 0)
        r = jx_parse(&body, c.resolved, strlen(c.resolved), error);
    if (r == 0)
        r = se_spec_parse(&s, body, st->local, error);
    if (r < 0)
        return r;
    if (s.trainer != st->spec.trainer)
        r = err_set(error, -EINVAL,
                    "campaign %s ran trainer %s, not %s: name campaigns of one trainer", id,
                    s.trainer->name, st->spec.trainer->name);
    else
        r = learn(st, &c, &s, error);
    se_spec_done(&s);
    return r;
}

static int open_study(struct study *st, const struct asked *asked,
                      const struct db_campaign *campaign, struct err *error)
{
    bool several = st->spec.nclusters > 1;
    struct db_slice slice = {.key = "cluster"};
    struct tn_measure best;
    json_t *id;
    size_t i;
    int at, r = choose_cluster(&at, &st->spec, asked, error);

    if (r < 0)
        return r;
    slice.text = st->spec.cluster[at].name;
    r = tn_measure_best_of(&best, NULL, st->db, st->a, campaign, several ? &slice : NULL, error);
    if (r == 0)
        r = layout_of(&st->winner, &st->spec, best.layout, error);
    if (r < 0)
        return r;
    st->winner_rate = best.mean;
    st->space = &st->spec.space[at];
    st->there = st->machine[0] = st->spec.cluster[at];
    st->machines = 1;
    if (asked->cluster && !several &&
        pl_cluster_parse(&st->there, asked->cluster, st->local, error) < 0)
        return err_under(error, "/cluster");
    if (asked->cluster && !several)
        st->to = machine_of(st, &st->there);
    r = learn(st, campaign, &st->spec, error);
    pl_batch_settle(&st->spec.workload, &st->winner); /* rows have the winner's */
    json_array_foreach(asked->with, i, id) {
        if (r == 0)
            r = json_is_string(id) ? learn_also(st, json_string_value(id), error)
                                   : err_set(error, -EINVAL, "\"with\" must be campaign ids");
        if (r < 0)
            err_under(error, "/with");
    }
    if (r == 0)
        st->calibration = pl_calibration_new(st->at, st->n, NULL);
    return r;
}

/* ---- one size ------------------------------------------------------------ */

/* The layout for DEVICES devices under PROBLEM: the winner's shape, or the fastest of the
 * campaign's space. */
static int choose(struct pl_layout *ret, const struct study *st, const struct pl_problem *problem,
                  int devices, bool best, struct err *error)
{
    struct pl_verdict verdict;
    struct pl_plan plan = {0};
    struct pl_space space;
    char text[400];
    int r;

    if (best) {
        AUTO_JSON *axes = pl_space_json(st->space);

        json_object_set_new(axes, "world", json_pack("[i]", devices));
        json_object_del(axes, "global_batch");
        r = pl_space_parse(&space, axes, problem, error);
        if (r == 0)
            r = pl_plan_rank(&plan, &space, problem, 1, st->spec.memory_headroom, PL_TOKENS_PER_S,
                             error);
        if (r == 0)
            *ret = plan.at[0].layout;
        pl_plan_done(&plan);
        return r;
    }
    if (!pl_layout_scale(ret, &st->winner, devices, problem->workload->global_batch,
                         problem->model))
        return err_set(error, -EINVAL,
                       "the winner's shape does not divide %d devices and %d sequences", devices,
                       problem->workload->global_batch);
    pl_layout_settle(ret, problem);
    if (!pl_layout_check(&verdict, problem, ret))
        return err_set(error, -EINVAL, "%s", pl_verdict_text(text, sizeof(text), &verdict));
    if (!pl_fits(problem, ret, st->spec.memory_headroom))
        return err_set(error, -EINVAL, "does not fit in the memory of a device");
    return 0;
}

static json_t *unknown_row(int devices, int batch, const struct err *error)
{
    return json_pack("{s:i, s:i, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:s}", "devices", devices,
                     "global_batch", batch, "layout", "text", "tokens_per_s", "lo", "hi",
                     "transferred", "mfu", "efficiency", "reason", error->text);
}

/* BASE: tokens/s a device that is called 100 % efficient; 0 before the first row that is known,
 * which then sets it. */
static json_t *row(const struct study *st, int devices, const struct asked *asked, double *base)
{
    struct pl_cluster there = st->there;
    struct pl_workload w = st->spec.workload;
    struct pl_problem p = se_spec_problem(&st->spec);
    double rate, mfu, tokens;
    struct pl_projected to;
    struct pl_layout l;
    struct pl_cost cost;
    char text[160];
    struct err e = {0};

    p.cluster = &there;
    p.workload = &w;
    there.nodes = (devices + there.devices_per_node - 1) / there.devices_per_node;
    if (asked->weak)
        w.global_batch =
            (int)(((int64_t)w.global_batch * devices + st->winner.world - 1) / st->winner.world);
    if (choose(&l, st, &p, devices, asked->best, &e) < 0)
        return unknown_row(devices, w.global_batch, &e);
    pl_cost(&cost, &p, &l);
    pl_project(&to, st->calibration, &l, st->to, cost.total);
    tokens = (double)w.global_batch * w.seq;
    rate = tokens / to.seconds;
    mfu = pl_mfu(&p, &l, rate);
    *base = *base > 0 ? *base : rate / devices;
    return json_pack("{s:i, s:i, s:o, s:s, s:f, s:f, s:f, s:b, s:f, s:o, s:f, s:n}", "devices",
                     devices, "global_batch", w.global_batch, "layout", pl_layout_json(&l), "text",
                     pl_layout_text(text, &l), "tokens_per_s", rate, "lo", tokens / to.hi, "hi",
                     tokens / to.lo, "transferred", to.transferred, "factor", to.factor, "mfu",
                     mfu < 0 ? json_null() : json_real(mfu), "efficiency", rate / devices / *base,
                     "reason");
}

/* ---- the answer ---------------------------------------------------------- */

static json_t *calibration_json(const struct study *st)
{
    struct pl_projected here;

    pl_project(&here, st->calibration, &st->winner, 0, 1);
    return json_pack("{s:i, s:i, s:f, s:f, s:f}", "trials", st->n, "simulated", st->simulated,
                     "factor", here.factor, "lo", here.lo, "hi", here.hi);
}

/* What differs between the campaign's machine and the target's, and what that adds. */
static json_t *transfer_json(unsigned changes)
{
    json_t *changed = json_array();

    if (changes & PL_OTHER_DEVICE)
        json_array_append_new(changed, json_string("device"));
    if (changes & PL_OTHER_NODE)
        json_array_append_new(changed, json_string("node"));
    if (changes & PL_OTHER_LINKS)
        json_array_append_new(changed, json_string("links"));
    return json_pack("{s:o, s:f, s:f}", "changed", changed, "deviation",
                     pl_transfer_published.deviation, "degrees", pl_transfer_published.degrees);
}

static int answer(json_t **ret, struct study *st, const struct asked *asked,
                  const struct db_campaign *campaign, struct err *error)
{
    json_t *rows = json_array(), *past = NULL;
    char text[160];
    int r = tn_project_earlier(&past, st->db, st->a, error);
    unsigned changes = st->to == 0 ? 0 : pl_machine_changes(&st->machine[0], &st->there);
    /* What was measured says nothing of the efficiency of another kind of device. */
    double base = changes & PL_OTHER_DEVICE ? 0 : st->winner_rate / st->winner.world;

    for (int i = 0; i < asked->n; i++)
        json_array_append_new(rows, row(st, asked->devices[i], asked, &base));
    *ret =
        json_pack("{s:s, s:b, s:s, s:s, s:s, s:s, s:o, s:{s:i, s:i, s:s, s:f, s:b}, s:o, s:o, s:o}",
                  "campaign", campaign->id, "simulated", st->simulated > 0, "scaling",
                  asked->weak ? "weak" : "strong", "layouts", asked->best ? "best" : "winner",
                  "cluster", st->there.name, "device", st->there.device.name, "transfer",
                  transfer_json(changes), "base", "devices", st->winner.world, "global_batch",
                  st->spec.workload.global_batch, "text", pl_layout_text(text, &st->winner),
                  "tokens_per_s", st->winner_rate, "simulated", tn_is_simulated(campaign->launcher),
                  "calibration", calibration_json(st), "rows", rows, "earlier", past);
    return r;
}

int tn_project(json_t **ret, struct tn_service *svc, const json_t *body, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", tn_data_dir(svc));
    AUTO_DB *db = NULL;
    AUTO_JSON *resolved = NULL;
    struct arena a = {0};
    struct study st = {.a = &a, .local = tn_local_cluster(svc)};
    struct db_campaign c;
    struct asked q;
    int r = parse(&q, body, error);

    if (r < 0 || (r = db_open(&db, path, DB_READ, error)) < 0)
        return r;
    st.db = db;
    *ret = NULL;
    r = db_campaign_get(&c, db, &a, q.campaign, error);
    if (r == 0)
        r = jx_parse(&resolved, c.resolved, strlen(c.resolved), error);
    if (r == 0 && (r = se_spec_parse(&st.spec, resolved, tn_local_cluster(svc), error)) == 0) {
        r = open_study(&st, &q, &c, error);
        if (r == 0)
            r = answer(ret, &st, &q, &c, error);
        se_spec_done(&st.spec);
    }
    pl_calibration_free(st.calibration);
    free(st.at);
    arena_done(&a);
    if (r < 0) {
        json_decref(*ret);
        *ret = NULL;
    }
    return r;
}

/* ---- keeping it ---------------------------------------------------------- */

static int keep_job(struct db *writer, void *arg, struct err *error)
{
    const struct db_artifact *ar = arg;
    struct db_campaign c;
    struct arena a = {0};
    AUTO_JSON *body = json_loads(ar->body, 0, NULL), *resolved = NULL;
    int r = db_campaign_get(&c, writer, &a, ar->campaign, error);

    if (r == 0)
        r = jx_parse(&resolved, c.resolved, strlen(c.resolved), error);
    if (r == 0) {
        AUTO_JSON *kept = json_pack(
            "{s:O, s:O, s:s, s:O, s:O, s:O}", "simulated", json_object_get(body, "simulated"),
            "model", json_object_get(resolved, "model"), "trainer", c.trainer, "workload",
            json_object_get(resolved, "workload"), "device", json_object_get(body, "device"),
            "rows", json_object_get(body, "rows"));
        AUTO_FREE char *text = kept ? jx_dump(kept) : NULL;
        struct db_artifact whole = *ar;

        whole.body = text;
        r = text ? db_artifact_put(writer, &whole, error)
                 : err_set(error, -EINVAL, "nothing to keep");
    }
    arena_done(&a);
    return r;
}

int tn_project_keep(struct tn_service *svc, const json_t *answer, struct err *error)
{
    int64_t now = clock_wall_ms();
    AUTO_FREE char *name = mem_printf(TN_PROJECTION "%lld", (long long)now);
    AUTO_FREE char *body = jx_dump(answer);
    struct db_artifact ar = {.campaign = json_string_value(json_object_get(answer, "campaign")),
                             .name = name,
                             .type = "application/json",
                             .body = body,
                             .created = now};

    return tn_write(svc, keep_job, &ar, error);
}
