/* A new campaign: checked on any thread, stored and brought into memory on the loop. */
#include <errno.h>
#include <math.h>
#include <sys/random.h>

#include "tuner/internal.h"

struct tn_draft {
    struct tn_engine *engine;
    size_t legal;
};

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

int tn_campaign_check(struct tn_draft **ret, struct tn_service *svc, const json_t *body,
                      json_t **ret_rules, struct err *e)
{
    struct tn_draft *d;
    struct tn_spec *spec = NULL;
    struct tn_engine *en = NULL;
    int r;

    if (ret_rules)
        *ret_rules = NULL;
    r = tn_spec_parse(&spec, svc, body, ret_rules, e);
    if (r == 0)
        r = tn_engine_new(&en, spec, e);
    if (r == -E2BIG && e)
        e->code = -EINVAL;
    if (r < 0)
        return r == -E2BIG ? -EINVAL : r;
    d = mem_alloc(sizeof(*d));
    d->engine = en;
    d->legal = se_legal(en->search);
    *ret = d;
    return 0;
}

struct tn_draft *tn_draft_free(struct tn_draft *d)
{
    if (d)
        tn_engine_unref(d->engine);
    free(d);
    return NULL;
}

/* About: the baseline's time by the cost model stands for every trial. */
json_t *tn_draft_json(const struct tn_draft *d)
{
    const struct tn_spec *s = d->engine->spec;
    struct pl_problem p = tn_spec_problem(s);
    struct pl_cost cost;
    double trials = (double)d->legal, seconds, steps;

    if (s->se.budget.trials && s->se.budget.trials < trials)
        trials = s->se.budget.trials;
    pl_cost(&cost, p.model, p.cluster, &s->se.baseline, p.workload, p.trainer);
    steps = s->limits.warmup_steps + fmin(2.0 * s->limits.min_steps, s->limits.max_steps);
    seconds = trials * (s->se.trial_start_s + steps * cost.total) / s->se.parallel;
    if (s->se.budget.wall_s > 0 && seconds > s->se.budget.wall_s)
        seconds = s->se.budget.wall_s;
    return json_pack("{s:b, s:I, s:I, s:f, s:f, s:o, s:s, s:s}", "simulated",
                     s->launcher == &tn_launcher_simulated, "legal", (json_int_t)d->legal,
                     "fitting", (json_int_t)d->legal, "expected_trials", trials, "expected_s",
                     seconds, "baseline", pl_layout_json(&s->se.baseline), "baseline_rule",
                     s->se.baseline_rule, "baseline_note", s->se.baseline_note);
}

struct creation {
    struct db_campaign c;
    struct db_trial baseline;
    const struct tn_once *once; /* or NULL */
    json_t *view;
    int64_t n;
};

/* The answer is kept with the campaign: both are there after a kill, or none. */
static int keep_answer(struct db *w, const struct creation *cr, struct err *e)
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

    return db_answer_put(w, &an, e);
}

static int view_new(struct db *w, struct creation *cr, struct err *e)
{
    struct arena a = {0};
    struct db_campaign c;
    int r = db_campaign_get(w, &a, &c, cr->c.id, e);

    if (r == 0)
        r = tn_campaign_view(&cr->view, w, &c, true, e);
    if (r == 0 && cr->once)
        r = keep_answer(w, cr, e);
    arena_done(&a);
    return r;
}

static int create_job(struct db *w, void *arg, struct err *e)
{
    struct creation *cr = arg;
    int r = db_campaign_add(w, &cr->c, e);

    if (r == 0)
        r = db_trial_add(w, &cr->baseline, &cr->n, e);
    if (r == 0)
        r = tn_event_campaign(w, cr->c.id, e);
    if (r == 0)
        r = tn_event_trial(w, cr->c.id, cr->n, e);
    return r < 0 ? r : view_new(w, cr, e);
}

/* The baseline is trial 1 of every campaign, whether or not it lies in the space that is searched.
 */
static void fill_baseline(struct db_trial *t, struct tn_engine *en, const char *id, char text[160],
                          const char *layout, char why[256])
{
    const struct tn_spec *s = en->spec;
    struct se_predicted p = {.tokens_per_s = NAN, .memory_bytes = NAN, .p_fits = NAN};
    bool inside = se_restore(en->search, 1, &s->se.baseline, 0, NULL) == 0;

    if (inside) {
        tn_engine_name(en, 1, 1);
        se_predict(en->search, &s->se.baseline, &p, NULL);
    }
    pl_layout_text(text, &s->se.baseline);
    db_trial_blank(t);
    t->campaign = id;
    t->kind = "baseline";
    t->search_id = inside ? 1 : DB_NULL;
    t->layout = layout;
    t->layout_text = text;
    snprintf(why, 256, "the baseline (%s)%s%s", s->se.baseline_rule,
             *s->se.baseline_note ? ", " : "", s->se.baseline_note);
    t->why = why;
    t->predicted_tokens_per_s = p.tokens_per_s;
    t->predicted_memory = p.memory_bytes;
    t->predicted_fits = p.p_fits;
    t->created = clock_wall_ms();
}

static char *dump_or(const json_t *v, const char *otherwise)
{
    return v ? jx_dump(v) : mem_strdup(otherwise);
}

/* Store the campaign and bring it into memory. Nothing may fail after the commit: a campaign that
 * is stored and not in memory would be run by nobody. */
static int insert(json_t **ret, struct tn_service *svc, struct tn_engine *en, const char *id,
                  size_t legal, const char *owner, const struct tn_once *once, struct err *e)
{
    const struct tn_spec *s = en->spec;
    AUTO_JSON *space =
        json_pack("{s:I, s:o}", "legal", (json_int_t)legal, "keys", pl_space_json(s->se.space));
    AUTO_JSON *baseline = pl_layout_json(&s->se.baseline);
    AUTO_FREE char *spec = jx_dump(s->body), *resolved = jx_dump(s->resolved),
                   *keys = jx_dump(space);
    AUTO_FREE char *layout = jx_dump(baseline);
    AUTO_FREE char *tags = dump_or(json_object_get(s->body, "tags"), "[]");
    const char *notes = json_string_value(json_object_get(s->body, "notes"));
    char text[160], why[256];
    int64_t now = clock_wall_ms();
    struct creation cr = {
        .once = once,
        .c = {.id = id,
              .name = s->name,
              .state = DB_RUNNING,
              .spec = spec,
              .resolved = resolved,
              .objective = se_objective_names[s->se.objective],
              .trainer = s->trainer_name,
              .launcher = s->launcher->name,
              .baseline = layout,
              .space = keys,
              .tags = tags,
              .notes = notes ? notes : "",
              .owner = owner,
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

    fill_baseline(&cr.baseline, en, id, text, layout, why);
    r = tn_write(svc, create_job, &cr, e);
    if (r < 0) {
        json_decref(cr.view);
        return r;
    }
    *ret = cr.view;
    cr.c.trials = 1;
    c = tn_campaign_load(svc, &cr.c, tn_engine_ref(en));
    c->open = 1;
    tn_campaign_enqueue(c, tn_trial_new(&cr.baseline, &s->se.baseline));
    log_info("campaign %s%s created name=\"%s\" legal=%zu owner=%s", id,
             tn_simulated_mark(s->launcher), s->name, legal, owner);
    return 0;
}

int tn_campaign_create_once(json_t **ret, struct tn_service *svc, struct tn_draft *owned_d,
                            const char *owner, const struct tn_once *once, struct err *e)
{
    struct tn_engine *en = tn_engine_ref(owned_d->engine);
    size_t legal = owned_d->legal;
    char id[TN_ID_TEXT];
    int r;

    tn_draft_free(owned_d);
    random_id(id);
    r = svc->stopping ? err_set(e, -EAGAIN, "the daemon is stopping")
                      : insert(ret, svc, en, id, legal, owner, once, e);
    tn_engine_unref(en);
    return r;
}

int tn_campaign_create(json_t **ret, struct tn_service *svc, struct tn_draft *owned_d,
                       const char *owner, struct err *e)
{
    return tn_campaign_create_once(ret, svc, owned_d, owner, NULL, e);
}
