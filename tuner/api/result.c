/* What a campaign has found: best, baseline, importance, surface, exports, comparison. */
#include <errno.h>
#include <math.h>

#include "tuner/api/api.h"
#include "tuner/core/campaign_log.h"
#include "tuner/export/export.h"
#include "tuner/machine/mpi.h"

enum { FIRST_LINE = 64 << 10 };

void tn_api_best(struct web_request *rq)
{
    struct err e;
    json_t *v = NULL;
    int r = tn_best(&v, tn_api_svc(rq), web_param(rq, "id"), &e);

    tn_api_answer(rq, r, 200, v, &e);
}

void tn_api_baseline(struct web_request *rq)
{
    struct err e;
    json_t *v = NULL;
    int r = tn_baseline(&v, tn_api_svc(rq), web_param(rq, "id"), &e);

    tn_api_answer(rq, r, 200, v, &e);
}

void tn_api_pareto(struct web_request *rq)
{
    struct err e;
    json_t *items;

    if (tn_pareto(&items, tn_api_svc(rq), web_param(rq, "id"), &e) < 0)
        web_reply_error(rq, &e);
    else
        tn_api_whole(rq, items);
}

void tn_api_predictions(struct web_request *rq)
{
    struct err e;
    json_t *items;

    if (tn_predictions(&items, tn_api_svc(rq), web_param(rq, "id"), &e) < 0)
        web_reply_error(rq, &e);
    else
        tn_api_whole(rq, items);
}

/* ---- what the search believes: computed on another thread ---------------- */

enum posterior { IMPORTANCE, SURFACE, DIAGNOSIS };

struct question {
    struct tn_service *svc;
    enum posterior what;
    const char *id, *x, *y;
    json_t *answer;
    struct err e;
    int r;
};

static void ask(struct web_request *rq, void *arg)
{
    struct question *q = arg;

    if (q->what == IMPORTANCE)
        q->r = tn_importance(&q->answer, q->svc, q->id, web_unwanted(rq), &q->e);
    else if (q->what == SURFACE)
        q->r = tn_surface(&q->answer, q->svc, q->id, q->x, q->y, web_unwanted(rq), &q->e);
    else
        q->r = tn_diagnosis(&q->answer, q->svc, q->id, web_unwanted(rq), &q->e);
}

static void answered(struct web_request *rq, void *arg)
{
    struct question *q = arg;

    if (q->r == 0)
        q->r = tn_mark_simulated(q->answer, q->svc, q->id, &q->e);
    if (q->r < 0)
        json_decref(q->answer);
    tn_api_answer(rq, q->r, 200, q->answer, &q->e);
}

static void answer_posterior(struct web_request *rq, enum posterior what)
{
    struct question *q = arena_alloc(web_arena(rq), sizeof(*q));

    *q = (struct question){.svc = tn_api_svc(rq), .what = what, .id = web_param(rq, "id")};
    q->x = web_query(rq, "x");
    q->y = web_query(rq, "y");
    q->r = tn_api_unwanted(&q->e);
    web_offload_slow(rq, ask, answered, q);
}

void tn_api_importance(struct web_request *rq)
{
    answer_posterior(rq, IMPORTANCE);
}

void tn_api_diagnosis(struct web_request *rq)
{
    answer_posterior(rq, DIAGNOSIS);
}

/* Whether a campaign has several clusters is known where its search is. */
static bool is_key(const char *name)
{
    return pl_layout_key_find(name) || str_eq(name, "cluster");
}

void tn_api_surface(struct web_request *rq)
{
    const char *x = web_query(rq, "x"), *y = web_query(rq, "y");
    struct err e;

    if (!x || !y || !is_key(x) || !is_key(y) || !strcmp(x, y)) {
        err_set(&e, -EINVAL,
                "x and y must name two different layout keys: \"%.40s\" and \"%.40s\" do not",
                x ? x : "", y ? y : "");
        tn_api_bad_query(rq, &e);
        return;
    }
    answer_posterior(rq, SURFACE);
}

/* ---- export -------------------------------------------------------------- */

static json_t *findings(const struct tn_findings *findings, const char *rule)
{
    json_t *list = json_array();

    for (int i = 0; i < findings->count; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s}", "rule", rule, "key",
                                        findings->v[i].setting, "detail", findings->v[i].detail));
    return list;
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* What the trial's trainer said of itself in its first event. New reference, or NULL. */
static json_t *hello(struct web_request *rq, const char *id, int64_t number, const json_t *trial)
{
    AUTO_FREE char *path = mem_printf(
        "%s/campaigns/%s/trials/%lld/%lld/events", tn_data_dir(tn_api_svc(rq)), id,
        (long long)number, (long long)json_integer_value(json_object_get(trial, "attempts")));
    size_t n_text;
    AUTO_FREE char *text = tn_file_piece(&n_text, path, FIRST_LINE, false);
    const char *end = text ? strchr(text, '\n') : NULL;

    return end ? json_loadb(text, (size_t)(end - text), 0, NULL) : NULL;
}

/* The software that measured the trial. */
static const char *fingerprint(struct arena *arena, const json_t *said)
{
    const char *program = json_string_value(json_object_get(said, "program"));
    const char *version = json_string_value(json_object_get(said, "version"));
    const char *build = json_string_value(json_object_get(said, "build"));

    if (!program)
        return "unknown; read by partune " PACKAGE_VERSION;
    return arena_printf(arena, "%s%s%s%s%s%s", program, version ? " " : "", version ? version : "",
                        build ? " (" : "", build ? build : "", build ? ")" : "");
}

/* "0-2,7" as "0+1+2+7" to OUT; returns how many. */
static int add_cpus(struct str *out, const char *list)
{
    int n = 0;

    for (char *end; *list; list = *end == ',' ? end + 1 : end) {
        long first = strtol(list, &end, 10), last = first;

        if (end == list)
            return 0;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if ((*end && *end != ',') || first < 0 || last < first || last >= 1 << 16)
            return 0;
        for (long cpu = first; cpu <= last; cpu++)
            str_addf(out, "%s%ld", n++ ? "+" : "", cpu);
    }
    return n;
}

/* As struct tn_export_in has it, of a trial on one host. Ranks are bound if each has as many CPUs
 * as threads. */
static const char *binding(struct arena *arena, const json_t *said, int threads)
{
    const json_t *list = json_object_get(said, "binding"), *cpus;
    AUTO_STR out = {0};
    size_t i;

    if (json_array_size(json_object_get(said, "hosts")) != 1 || json_array_size(list) == 0)
        return NULL;
    json_array_foreach(list, i, cpus) {
        str_add(&out, i ? "," : "");
        if (!json_is_string(cpus) || add_cpus(&out, json_string_value(cpus)) != threads)
            return "";
    }
    return arena_strdup(arena, str_text(&out));
}

/* The data set's folder from anywhere on this machine; NULL for the synthetic one, or if it is
 * gone. */
static const char *data_folder(struct web_request *rq, const char *name)
{
    AUTO_FREE char *path = NULL;
    AUTO_FREE char *real = NULL;

    if (tn_dataset_path(&path, tn_api_svc(rq), name, NULL) == 0 && path)
        real = realpath(path, NULL);
    return arena_strdup(web_arena(rq), real);
}

/* What the verification measured of the winner replaces what the search did: the search
 * picked the fastest of many, and its number is too high on average. */
static void set_prediction(struct tn_export_in *in, const json_t *interval)
{
    double lo = number_at(interval, "lo"), hi = number_at(interval, "hi");

    if (!(lo > 0) || !isfinite(hi))
        return;
    in->tokens_per_s = number_at(interval, "tokens_per_s");
    in->lo = lo;
    in->hi = hi;
    in->basis = TN_VERIFIED;
}

/* Facts about the winner that only its resources hold; the strings live in the arena. */
static void provenance(struct tn_export_in *in, struct web_request *rq, const char *id,
                       int64_t number)
{
    AUTO_JSON *campaign = NULL, *trial = NULL, *said = NULL;
    struct arena *a = web_arena(rq);
    const char *verdict = NULL, *ended = NULL;
    const json_t *verify = NULL;

    in->ratio = in->ratio_lo = in->ratio_hi = NAN;
    if (tn_campaign_get(&campaign, tn_api_svc(rq), id, NULL) == 0)
        verify = json_object_get(campaign, "verify");
    if (json_integer_value(json_object_get(verify, "winner")) == number) {
        verdict = json_string_value(json_object_get(verify, "verdict"));
        in->ratio = number_at(verify, "ratio");
        in->ratio_lo = number_at(verify, "lo");
        in->ratio_hi = number_at(verify, "hi");
        set_prediction(in, json_object_get(verify, "prediction"));
    }
    if (tn_trial_get(&trial, tn_api_svc(rq), id, number, NULL) == 0)
        ended = json_string_value(json_object_get(trial, "ended"));
    in->verdict = arena_strdup(a, verdict);
    in->date =
        ended ? arena_strdup(a, ended) : clock_format(arena_alloc(a, CLOCK_TEXT), clock_wall_ms());
    said = hello(rq, id, number, trial);
    in->fingerprint = fingerprint(a, said);
    in->binding = binding(a, said, in->layout->threads);
    in->open_mpi = in->fingerprint && tn_mpi_kind_of(in->fingerprint) == TN_MPI_OPEN;
    in->data = data_folder(rq, in->workload->data);
}

/* Production settings from a simulation: only for those who say that they know. */
static void refuse_simulated(struct web_request *rq, const struct tn_export_in *in)
{
    json_t *rules = json_pack("[{s:s, s:s, s:s}]", "rule", "simulated", "key", "allow_simulated",
                              "detail", "no training job has run this layout");
    struct err e;

    err_set(&e, -EINVAL,
            "campaign %s is simulated: no training job has run the layout of trial %d; "
            "allow_simulated=true (partune export --allow-simulated) writes the file anyway",
            in->campaign, in->trial);
    tn_api_rules(rq, &e, rules);
}

/* The baseline's layout; NULL where it has not succeeded. BASELINE lives as long as it is used. */
static const struct pl_layout *baseline_layout(struct tn_winner *baseline, struct web_request *rq,
                                               const char *id)
{
    struct err e;

    return tn_winner(baseline, tn_api_svc(rq), id, 1, &e) < 0 ? NULL : &baseline->layout;
}

static void reply_explained(struct web_request *rq, const char *target,
                            const struct tn_export_in *in, const struct pl_trainer *trainer,
                            const char *file)
{
    struct tn_winner *baseline = arena_alloc(web_arena(rq), sizeof(*baseline));
    AUTO_FREE char *text = NULL;
    struct err e;

    if (tn_export_explain(&text, target, in, trainer, baseline_layout(baseline, rq, in->campaign),
                          file, &e) < 0)
        web_reply_error(rq, &e);
    else
        web_reply_bytes(rq, 200, "text/plain; charset=utf-8", text, strlen(text));
}

static void reply_export(struct web_request *rq, const char *target, const struct tn_export_in *in,
                         const struct pl_trainer *trainer)
{
    const struct tn_wrapper *wrapper = NULL;
    const struct tn_exporter *x = tn_exporter_find(&wrapper, target);
    AUTO_FREE char *text = NULL;
    const char *type = NULL;
    struct tn_findings f = {0};
    struct err e;
    bool loss = false, simulated = false, explain = false;
    int r;

    if (web_query_bool(&loss, rq, "allow_loss", &e) < 0 ||
        web_query_bool(&simulated, rq, "allow_simulated", &e) < 0 ||
        web_query_bool(&explain, rq, "explain", &e) < 0) {
        tn_api_bad_query(rq, &e);
        return;
    }
    if (x && in->simulated && !simulated) {
        refuse_simulated(rq, in);
        return;
    }
    r = tn_export(&text, &type, &f, target, in, loss, &e);
    if (r < 0) {
        tn_api_rules(rq, &e, r == -EINVAL ? findings(&f, "target-expresses") : NULL);
        return;
    }
    if (explain) {
        reply_explained(rq, target, in, trainer, text);
        return;
    }
    web_reply_header(rq, "Content-Disposition",
                     arena_printf(web_arena(rq), "attachment; filename=\"%s-%s.%s\"", in->campaign,
                                  x->name, wrapper ? tn_wrapper_extension(wrapper) : x->extension));
    web_reply_bytes(rq, 200, type, text, strlen(text));
}

struct export_question {
    struct tn_winner w;
    struct tn_export_in in;
    struct pl_layout layout;     /* of IN: the winner's, */
    struct pl_workload workload; /* of its batch */
    struct tn_service *svc;
    const char *target;
    double rate, lo, hi; /* of one more run */
    struct err why;      /* there are none */
    int r;
};

static void estimate(struct web_request *rq, void *arg)
{
    struct export_question *q = arg;

    q->r = tn_next_run(&q->rate, &q->lo, &q->hi, q->svc, q->w.campaign, &q->w.layout,
                       web_unwanted(rq), &q->why);
}

static void estimated(struct web_request *rq, void *arg)
{
    struct export_question *q = arg;

    /* -EINVAL: a baseline that is not of the space; its own trial says enough. */
    if (q->r < 0 && q->r != -ECANCELED && q->r != -EINVAL)
        tn_log_id(LOG_WARN, q->svc, q->w.campaign, ": no estimate for an export: %s", q->why.text);
    if (q->r == 0) {
        q->in.basis = TN_ESTIMATE;
        q->in.measured = q->in.tokens_per_s;
        q->in.tokens_per_s = q->rate;
        q->in.lo = q->lo;
        q->in.hi = q->hi;
    }
    reply_export(rq, q->target, &q->in, q->w.trainer);
}

void tn_api_export(struct web_request *rq)
{
    struct export_question *q = arena_alloc(web_arena(rq), sizeof(*q));
    const char *id = web_param(rq, "id");
    struct tn_winner *w = &q->w;
    struct err e;
    int64_t n = 0;

    if (web_query_i64(&n, rq, "trial", 1, INT64_MAX, &e) < 0) {
        tn_api_bad_query(rq, &e);
        return;
    }
    *q = (struct export_question){.svc = tn_api_svc(rq), .target = web_param(rq, "target")};
    if (tn_winner(w, q->svc, id, n, &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    q->layout = w->layout;
    q->workload = w->workload;
    pl_batch_settle(&q->workload, &q->layout);
    q->in = (struct tn_export_in){
        .model = &w->model,
        .cluster = &w->cluster,
        .layout = &q->layout,
        .workload = &q->workload,
        .campaign = w->campaign,
        .campaign_name = w->name,
        .trial = (int)w->n,
        .simulated = w->simulated,
        .tokens_per_s = w->tokens_per_s,
        .lo = w->lo,
        .hi = w->hi,
    };
    provenance(&q->in, rq, id, w->n);
    q->r = -ECANCELED; /* until it is estimated */
    if (q->in.basis == TN_VERIFIED)
        reply_export(rq, q->target, &q->in, q->w.trainer);
    else
        web_offload_slow(rq, estimate, estimated, q);
}

void tn_api_exporters(struct web_request *rq)
{
    tn_api_whole(rq, tn_exporters_json());
}

/* ---- comparison ---------------------------------------------------------- */

/* Layout keys whose values are not the same in all LAYOUTS. */
static json_t *differing(const json_t *layouts)
{
    json_t *list = json_array();

    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        json_t *first = json_object_get(json_array_get(layouts, 0), k->name);
        bool same = true;

        for (size_t i = 1; i < json_array_size(layouts); i++) {
            json_t *v = json_object_get(json_array_get(layouts, i), k->name);

            same &= v == first || (v && first && json_equal(v, first));
        }
        if (!same)
            json_array_append_new(list, json_string(k->name));
    }
    return list;
}

/* One element of "trials" into ITEMS and its layout into LAYOUTS. */
static int add_trial(json_t *items, json_t *layouts, struct web_request *rq, const json_t *ref,
                     struct err *error)
{
    static const char *const keys[] = {"campaign", "n", NULL};
    const char *id = NULL;
    int64_t n = 0;
    json_t *v;
    int r = jx_keys(ref, keys, error);

    if (r < 0 || (r = jx_need(ref, "campaign", error)) < 0 || (r = jx_need(ref, "n", error)) < 0 ||
        (r = jx_get_str(&id, ref, "campaign", 64, error)) < 0 ||
        (r = jx_get_i64(&n, ref, "n", 1, INT64_MAX, error)) < 0)
        return r;
    r = tn_trial_get(&v, tn_api_svc(rq), id, n, error);
    if (r < 0)
        return r;
    json_array_append(layouts, json_object_get(v, "layout"));
    json_array_append_new(items, v);
    return 0;
}

static int add_campaign(json_t *items, json_t *layouts, struct web_request *rq, const json_t *id,
                        struct err *error)
{
    json_t *v;
    int r;

    if (!json_is_string(id))
        return err_at(error, -EINVAL, "", "must be a campaign id");
    r = tn_campaign_get(&v, tn_api_svc(rq), json_string_value(id), error);
    if (r < 0)
        return r;
    json_array_append_new(layouts,
                          json_incref(json_object_get(json_object_get(v, "best"), "layout")));
    json_array_append_new(items, v);
    return 0;
}

static int count_simulated(const json_t *items)
{
    const json_t *it;
    size_t i;
    int n = 0;

    json_array_foreach((json_t *)(uintptr_t)items, i, it)
        n += json_is_true(json_object_get(it, "simulated"));
    return n;
}

void tn_api_compare(struct web_request *rq)
{
    static const char *const keys[] = {"campaigns", "trials", NULL};
    json_t *list = NULL, *v, *body = web_body(rq);
    json_t *items = json_array(), *layouts = json_array();
    struct err e = {0};
    const char *key = json_object_get(body, "trials") ? "trials" : "campaigns";
    size_t i;
    int r = jx_keys(body, keys, &e);

    if (r == 0 && json_object_size(body) != 1)
        r = err_set(&e, -EINVAL, "name either trials or campaigns");
    if (r == 0)
        r = jx_get_array(&list, body, key, 5, &e);
    if (r == 0 && json_array_size(list) < 2)
        r = err_at(&e, -EINVAL, arena_printf(web_arena(rq), "/%s", key),
                   "must have two to five items");
    json_array_foreach(list, i, v) {
        if (r == 0) {
            r = *key == 't' ? add_trial(items, layouts, rq, v, &e)
                            : add_campaign(items, layouts, rq, v, &e);
            if (r < 0 && r != -ENOENT)
                err_under(&e, arena_printf(web_arena(rq), "/%s/%zu", key, i));
        }
    }
    if (r < 0) {
        json_decref(items);
        web_reply_error(rq, &e);
    } else {
        int simulated = count_simulated(items);

        web_reply_json(rq, 200,
                       json_pack("{s:s, s:b, s:b, s:o, s:o}", "kind", key, "simulated",
                                 simulated > 0, "mixed",
                                 simulated > 0 && (size_t)simulated < json_array_size(items),
                                 "items", items, "differs", differing(layouts)));
    }
    json_decref(layouts);
}
