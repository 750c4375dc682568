/* A new campaign: checked on any thread, stored and brought into memory on the loop. */
#include <errno.h>
#include <math.h>
#include <sys/random.h>

#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/launcher.h"
#include "tuner/core/revive.h"
#include "tuner/core/spec.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

/* Seconds that counting the layouts of a space, and preparing its search, may take while somebody
 * waits, and that all of it may, with reading the campaign and choosing its baseline; the least
 * that is tried where those took long. A search over more layouts than AT_ONCE is prepared
 * afterwards. */
static const double COUNT_S = 0.7, PREPARE_S = 0.7, ALL_S = 1.7, LEAST_S = 0.05;
enum { AT_ONCE = 400000 };

struct tn_draft {
    struct tn_spec *spec;     /* NULL with an engine, which has it */
    struct tn_engine *engine; /* NULL: it takes longer */
    struct tn_space space;
    uint64_t from_ns; /* when it came to be judged */
};

/* SECONDS at most, and no more than SHARE of what is left for the answer. */
static void patience_start(struct tn_patience *ret, const struct tn_draft *draft, double seconds,
                           double share, const atomic_bool *unwanted)
{
    double left = ALL_S - (double)(clock_mono_ns() - draft->from_ns) / 1e9;

    tn_patience_start(ret, fmax(fmin(seconds, share * left), LEAST_S), unwanted);
}

static void random_id(char id[TN_ID_TEXT])
{
    static const char alphabet[] =
        "0123456789abcdefghjkmnpqrstvwxyz"; /* without i, l, o, u: read aloud safely */
    unsigned char bytes[8];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        abort();
    for (int i = 0; i < 8; i++)
        id[i] = alphabet[bytes[i] % 32];
    id[8] = '\0';
}

/* Why nothing fits: of the first cluster, since the others have the same reason or a like one. */
static int nothing_fits(struct tn_draft *draft, const atomic_bool *unwanted, struct err *error)
{
    const struct se_spec *se = &draft->spec->se;
    struct pl_problem p = tn_spec_problem(draft->spec);
    struct tn_patience patience;
    struct pl_plan plan;
    struct err why = {0};

    patience_start(&patience, draft, COUNT_S, 0.5, unwanted);
    pl_plan_look(&plan, se->space, &p, 0, se->memory_headroom, false, &patience.plan);
    patience_start(&patience, draft, COUNT_S, 0.5, unwanted);
    pl_plan_nothing(&plan, se->space, &p, se->memory_headroom, &patience.plan, &why);
    pl_plan_done(&plan);
    if (se->nclusters > 1)
        err_wrap(&why, "cluster %s", se->cluster[0].name);
    snprintf(draft->space.reason, sizeof(draft->space.reason), "%s", why.text);
    if (!draft->space.legal || (se->trainer->bundled && se->use_memory_prior))
        return err_at(error, -EINVAL, "/space", "%s", draft->space.reason);
    return 0;
}

/* As /v1/plan counts them: one answer to both questions. */
static int count_space(struct tn_draft *draft, const atomic_bool *unwanted, struct err *error)
{
    struct tn_patience patience;
    int r = 0;

    patience_start(&patience, draft, COUNT_S, 0.5, unwanted);
    tn_space_count(&draft->space, draft->spec, &patience.plan);
    if (!draft->space.fitting && (draft->space.exact || !draft->space.legal))
        r = nothing_fits(draft, unwanted, error);
    return unwanted && atomic_load(unwanted)
               ? err_set(error, -ECANCELED, "the client has disconnected")
               : r;
}

/* The search, if that is soon done. */
static int prepare(struct tn_draft *draft, const atomic_bool *unwanted, struct err *error)
{
    struct tn_patience patience;
    int r;

    if (!draft->space.exact || draft->space.legal > AT_ONCE)
        return 0;
    patience_start(&patience, draft, PREPARE_S, 1, unwanted);
    r = tn_engine_new(&draft->engine, &draft->spec, &patience.plan, error);
    return r == -ECANCELED ? 0 : r;
}

/* A world beyond the cluster's devices has no layout: where others of the list have, nothing else
 * would say so. Not part of the spec's parser, which reads stored campaigns, too. */
static int check_worlds(const struct tn_draft *draft, struct err *error)
{
    const struct se_spec *search = &draft->spec->se;
    const struct pl_space_axis *world = &search->space->axis[PL_KEY_WORLD];
    const struct pl_cluster *largest = &search->cluster[0];

    for (int i = 0; i < search->nclusters; i++) {
        if (search->cluster[i].oversubscribe)
            return 0;
        if (pl_cluster_devices(&search->cluster[i]) > pl_cluster_devices(largest))
            largest = &search->cluster[i];
    }
    for (int i = 0; world->given && i < world->n; i++)
        if (world->value[i] > pl_cluster_devices(largest))
            return err_at(error, -EINVAL, "/space/world",
                          "world %d is more than the %s's %d devices (nodes %d x "
                          "devices_per_node %d): leave it out, or set cluster.nodes",
                          world->value[i], search->nclusters > 1 ? "largest cluster" : "cluster",
                          pl_cluster_devices(largest), largest->nodes, largest->devices_per_node);
    return 0;
}

int tn_campaign_check(struct tn_draft **ret, json_t **ret_rules, struct tn_service *svc,
                      const json_t *body, const atomic_bool *unwanted, struct err *error)
{
    struct tn_draft *d = mem_alloc(sizeof(*d));
    int r;

    d->from_ns = clock_mono_ns();
    if (ret_rules)
        *ret_rules = NULL;
    r = tn_spec_parse(&d->spec, ret_rules, svc, body, error);
    if (r == 0)
        r = count_space(d, unwanted, error);
    if (r == 0)
        r = check_worlds(d, error);
    if (r == 0)
        r = prepare(d, unwanted, error);
    if (r < 0) {
        tn_draft_free(d);
        if (r == -E2BIG && error)
            error->code = -EINVAL;
        return r == -E2BIG ? -EINVAL : r;
    }
    *ret = d;
    return 0;
}

struct tn_draft *tn_draft_free(struct tn_draft *draft)
{
    if (draft) {
        tn_engine_unref(draft->engine);
        tn_spec_free(draft->spec);
    }
    free(draft);
    return NULL;
}

static const struct tn_spec *spec_of(const struct tn_draft *draft)
{
    return draft->engine ? draft->engine->spec : draft->spec;
}

/* What the models expect of the baseline, whose seconds are SECONDS. */
static json_t *baseline_json(const struct tn_spec *spec, const struct pl_problem *problem,
                             double seconds)
{
    struct pl_memory memory;
    char text[160];

    pl_memory_worst(&memory, problem, &spec->se.baseline);
    return json_pack("{s:s, s:f, s:f, s:f}", "text",
                     se_layout_text(text, &spec->se, &spec->se.baseline), "seconds", seconds,
                     "memory", memory.total, "offered",
                     pl_memory_offered(problem->cluster, spec->se.memory_headroom));
}

/* Seconds of an attempt of STEPS steps like the baseline's, about. */
static double attempt_s(const struct tn_spec *spec, double steps, double seconds)
{
    return spec->se.trial_start_s + steps * seconds;
}

/* How many layouts fit on each of several clusters. */
static json_t *clusters_json(const struct tn_draft *draft)
{
    const struct se_spec *se = &spec_of(draft)->se;
    json_t *list = json_array();

    for (int i = 0; se->nclusters > 1 && i < se->nclusters; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "cluster", se->cluster[i].name,
                                              "fitting", (json_int_t)draft->space.fitting_on[i]));
    return list;
}

/* About: the baseline's time by the cost model is taken for every trial. What does not fit is not
 * tried, but for the baseline. */
json_t *tn_draft_json(const struct tn_draft *draft)
{
    const struct tn_spec *s = spec_of(draft);
    struct pl_problem p = se_layout_problem(&s->se, &s->se.baseline);
    struct pl_cost cost;
    const struct pl_trial_limits *limits = &s->se.limits;
    double trials = (double)draft->space.fitting, seconds, least;

    if (!draft->space.fitting)
        trials = 1;
    if (s->se.budget.trials && (s->se.budget.trials < trials || !draft->space.exact))
        trials = s->se.budget.trials;
    pl_cost(&cost, &p, &s->se.baseline);
    seconds = trials * attempt_s(s, pl_trial_steps_expected(limits), cost.total) / s->se.parallel;
    least = attempt_s(s, limits->warmup_steps + limits->min_steps, cost.total);
    if (s->se.budget.wall_s > 0 && seconds > s->se.budget.wall_s)
        seconds = s->se.budget.wall_s;
    return json_pack(
        "{s:b, s:o, s:I, s:I, s:b, s:f, s:f, s:o, s:s, s:s, s:o, s:f, s:f, s:o, s:o, s:o}",
        "simulated", tn_is_simulated(s->launcher->name), "clusters", clusters_json(draft), "legal",
        (json_int_t)draft->space.legal, "fitting", (json_int_t)draft->space.fitting, "exact",
        draft->space.exact, "expected_trials", trials, "expected_s", seconds, "baseline",
        se_layout_json(&s->se, &s->se.baseline), "baseline_rule", s->se.baseline_rule,
        "baseline_note", s->se.baseline_note, "baseline_expected", baseline_json(s, &p, cost.total),
        "least_attempt_s", least, "timeout_s", limits->timeout_s, "reason",
        *draft->space.reason ? json_string(draft->space.reason) : json_null(), "fidelity",
        pl_fidelities_json(s->se.fidelity, s->se.nfidelities), "fidelity_note",
        *s->fidelity_note ? json_string(s->fidelity_note) : json_null());
}

struct creation {
    struct db_campaign c;
    struct db_trial baseline;
    const struct tn_once *once; /* or NULL */
    json_t *view;
    int64_t n;
};

/* The answer is kept with the campaign: both are there after a kill, or none. */
static int keep_answer(struct db *writer, const struct creation *cr, struct err *error)
{
    AUTO_FREE char *location = mem_printf("%s/v1/campaigns/%s", cr->once->prefix, cr->c.id);
    AUTO_FREE char *body = jx_dump(cr->view);
    struct db_answer an = {.key = cr->once->key,
                           .hash = cr->once->hash,
                           .type = "application/json",
                           .location = location,
                           .body = body,
                           .status = 201,
                           .created = cr->c.created};

    return db_answer_put(writer, &an, error);
}

static int view_new(struct db *writer, struct creation *cr, struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    int r = db_campaign_get(&c, writer, &a, cr->c.id, error);

    if (r == 0)
        r = tn_campaign_view(&cr->view, writer, &c, true, error);
    if (r == 0 && cr->once)
        r = keep_answer(writer, cr, error);
    arena_done(&a);
    return r;
}

static int create_job(struct db *writer, void *arg, struct err *error)
{
    struct creation *cr = arg;
    int r = db_campaign_add(writer, &cr->c, error);

    if (r == 0)
        r = db_trial_add(&cr->n, writer, &cr->baseline, error);
    if (r == 0)
        r = tn_event_campaign(writer, cr->c.id, error);
    if (r == 0)
        r = tn_event_trial(writer, cr->c.id, cr->n, error);
    return r < 0 ? r : view_new(writer, cr, error);
}

/* The baseline is trial 1 of every campaign, whether or not it lies in the space that is searched.
 */
static void fill_baseline(struct db_trial *trial, const struct tn_draft *draft, const char *id,
                          char text[160], const char *layout, char why[256])
{
    const struct tn_spec *s = spec_of(draft);
    struct tn_engine *en = draft->engine;
    struct se_predicted p = {.tokens_per_s = NAN, .memory_bytes = NAN, .p_fits = NAN};
    bool inside = en ? se_restore(en->search, 1, &s->se.baseline, 0, NULL) == 0
                     : tn_searches(s, &s->se.baseline);

    if (inside && en) {
        tn_engine_name(en, 1, 1);
        se_predict(&p, en->search, &s->se.baseline, NULL);
    }
    se_layout_text(text, &s->se, &s->se.baseline);
    db_trial_blank(trial);
    trial->campaign = id;
    trial->kind = "baseline";
    trial->search_id = inside ? 1 : DB_NULL;
    trial->layout = layout;
    trial->layout_text = text;
    snprintf(why, 256, "the baseline (%s)%s%s", s->se.baseline_rule,
             *s->se.baseline_note ? ", " : "", s->se.baseline_note);
    trial->why = why;
    trial->predicted_tokens_per_s = p.tokens_per_s;
    trial->predicted_memory = p.memory_bytes;
    trial->predicted_fits = p.p_fits;
    trial->devices = pl_layout_devices(&s->se.baseline);
    trial->created = clock_wall_ms();
}

static char *dump_or(const json_t *json, const char *otherwise)
{
    return json ? jx_dump(json) : mem_strdup(otherwise);
}

static void log_creation(struct tn_service *svc, const struct tn_draft *draft, const char *id,
                         const char *owner)
{
    const struct tn_spec *s = spec_of(draft);

    tn_log_id(LOG_INFO, svc, id, " created name=\"%s\" legal=%s%zu owner=%s", s->name,
              draft->space.exact ? "" : ">=", draft->space.legal, owner);
    if (*s->fidelity_note)
        tn_log_id(LOG_INFO, svc, id, ": smaller trials are %s", s->fidelity_note);
}

/* Store the campaign and bring it into memory, or let its search be prepared. Nothing may fail
 * after the commit: a campaign that is stored and not in memory would be run by nobody. */
static int insert(json_t **ret, struct tn_service *svc, const struct tn_draft *draft,
                  const char *id, const char *owner, const char *traceparent,
                  const struct tn_once *once, struct err *error)
{
    const struct tn_spec *s = spec_of(draft);
    AUTO_JSON *space = tn_space_json(&draft->space, s);
    AUTO_JSON *baseline = se_layout_json(&s->se, &s->se.baseline);
    AUTO_FREE char *spec = jx_dump(s->body), *resolved = jx_dump(s->resolved),
                   *keys = jx_dump(space);
    AUTO_FREE char *layout = jx_dump(baseline);
    AUTO_FREE char *tags = dump_or(json_object_get(s->body, "tags"), "[]");
    const char *notes = json_string_value(json_object_get(s->body, "notes"));
    char text[160], why[256], trace[TN_TRACEPARENT_TEXT];
    int64_t now = clock_wall_ms();
    struct creation cr = {
        .once = once,
        .c = {.id = id,
              .name = s->name,
              .state = DB_RUNNING,
              .reason = draft->engine ? NULL : TN_PREPARING,
              .spec = spec,
              .resolved = resolved,
              .objective = pl_objective_names[s->se.objective],
              .trainer = s->trainer_name,
              .launcher = s->launcher->name,
              .baseline = layout,
              .space = keys,
              .tags = tags,
              .notes = notes ? notes : "",
              .owner = owner,
              .traceparent = trace,
              .created = now,
              .started = now,
              .ended = DB_NULL,
              .budget_trials = s->se.budget.trials ? s->se.budget.trials : DB_NULL,
              .active_since = now,
              .rev = 1,
              .priority = s->priority},
    };

    struct tn_campaign *c;
    int r;

    tn_trace_new(trace, traceparent);
    fill_baseline(&cr.baseline, draft, id, text, layout, why);
    r = tn_write(svc, create_job, &cr, error);
    if (r < 0) {
        json_decref(cr.view);
        return r;
    }
    *ret = cr.view;
    cr.c.trials = 1;
    log_creation(svc, draft, id, owner);
    if (!draft->engine) {
        tn_campaign_prepare(svc, id, draft->space);
        return 0;
    }
    c = tn_campaign_load(svc, &cr.c, tn_engine_ref(draft->engine));
    c->open = 1;
    tn_campaign_enqueue(c, tn_trial_new(&cr.baseline, s, &s->se.baseline, NULL));
    return 0;
}

int tn_campaign_create(json_t **ret, struct tn_service *svc, struct tn_draft *owned_d,
                       const char *owner, const char *traceparent, const struct tn_once *once,
                       struct err *error)
{
    char id[TN_ID_TEXT];
    int r;

    random_id(id);
    r = tn_phase(svc)->stopping ? err_set(error, -EAGAIN, "the daemon is stopping")
                                : insert(ret, svc, owned_d, id, owner, traceparent, once, error);
    tn_draft_free(owned_d);
    return r;
}
