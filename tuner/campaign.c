/* Campaigns: created, described, paused, resumed, cancelled, verified; and those of them that are
 * in memory. */
#include <errno.h>
#include <math.h>
#include <sys/random.h>

#include "tuner/internal.h"

/* ---- in memory ---- */

struct tn_campaign *tn_campaign_find(struct tn_service *svc, const char *id)
{
    for (struct tn_campaign *c = svc->campaigns; c; c = c->next)
        if (!strcmp(c->id, id))
            return c;
    return NULL;
}

void tn_campaign_set_state(struct tn_campaign *c, const char *state)
{
    static const char *const known[] = {DB_RUNNING, DB_PAUSED,    DB_VERIFYING,
                                        DB_DONE,    DB_CANCELLED, DB_FAILED};
    uint64_t now = tn_now_ms();
    bool active = !strcmp(state, DB_RUNNING) || !strcmp(state, DB_VERIFYING);

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (!strcmp(known[i], state))
            c->state = known[i];
    if (c->active_since) {
        c->active_s += (double)(now - c->active_since) / 1000.0;
        c->active_since = 0;
    }
    if (active)
        c->active_since = now ? now : 1;
}

/* Whoever comes, or comes back, is as far as the one that has used least of those at work: it
 * claims nothing for the time when it was not there. */
static void join_share(struct tn_campaign *c)
{
    double least = INFINITY;

    for (const struct tn_campaign *o = c->svc->campaigns; o; o = o->next)
        if (o != c && o->active_since && o->share < least)
            least = o->share;
    if (least < INFINITY && least > c->share)
        c->share = least;
}

struct tn_campaign *tn_campaign_load(struct tn_service *svc, const struct db_campaign *row,
                                     struct tn_engine *owned_en)
{
    struct tn_campaign *c = mem_alloc(sizeof(*c));
    int64_t now = clock_wall_ms();

    c->svc = svc;
    c->engine = owned_en;
    snprintf(c->id, sizeof(c->id), "%s", row->id);
    tn_campaign_set_state(c, row->state);
    c->active_s = row->active_s;
    if (row->active_since != DB_NULL && now > row->active_since)
        c->active_s += (double)(now - row->active_since) / 1000.0;
    c->device_s = row->device_s;
    c->priority = row->priority;
    join_share(c);
    c->asked = (int)row->trials;
    c->next = svc->campaigns;
    svc->campaigns = c;
    return c;
}

void tn_campaign_clear_queue(struct tn_campaign *c)
{
    while (c->queue) {
        struct tn_trial *t = c->queue;

        c->queue = t->next;
        free(t);
    }
}

static void free_campaign(struct tn_campaign *c)
{
    tn_campaign_clear_queue(c);
    while (c->tells) {
        struct tn_tell *t = c->tells;

        c->tells = t->next;
        free(t);
    }
    tn_engine_unref(c->engine);
    free(c);
}

void tn_campaign_unload_idle(struct tn_service *svc)
{
    struct tn_campaign **at = &svc->campaigns;

    while (*at) {
        struct tn_campaign *c = *at;
        bool over = strcmp(c->state, DB_RUNNING) != 0 && strcmp(c->state, DB_VERIFYING) != 0 &&
                    strcmp(c->state, DB_PAUSED) != 0;

        if ((over || svc->closing) && c->running == 0 && !c->asking && !c->refitting) {
            *at = c->next;
            free_campaign(c);
        } else {
            at = &c->next;
        }
    }
}

void tn_campaign_enqueue(struct tn_campaign *c, struct tn_trial *t)
{
    struct tn_trial **at = &c->queue;

    while (*at && (*at)->n < t->n)
        at = &(*at)->next;
    t->campaign = c;
    t->next = *at;
    *at = t;
    tn_sched_kick(c->svc);
}

struct tn_trial *tn_trial_new(const struct db_trial *row, const struct pl_layout *l)
{
    struct tn_trial *t = mem_alloc(sizeof(*t));

    t->n = row->n;
    t->search_id = row->search_id;
    t->attempts = row->attempts;
    t->layout = *l;
    snprintf(t->kind, sizeof(t->kind), "%s", row->kind);
    return t;
}

/* ---- changes of state ---- */

struct change {
    const char *id, *from, *to, *reason;
};

static int change_job(struct db *w, void *arg, struct err *e)
{
    struct change *ch = arg;
    int r = db_campaign_move(w, ch->id, ch->from, ch->to, ch->reason, clock_wall_ms(), e);

    return r < 0 ? r : tn_event_campaign(w, ch->id, e);
}

int tn_campaign_change(struct tn_service *svc, const char *id, const char *from, const char *to,
                       const char *reason, struct err *e)
{
    struct change ch = {id, from, to, reason};
    struct tn_campaign *c;
    int r = tn_write(svc, change_job, &ch, e);

    if (r < 0)
        return r;
    log_info("campaign %s is %s%s%s", id, to, reason ? ": " : "", reason ? reason : "");
    c = tn_campaign_find(svc, id);
    if (c) {
        tn_campaign_set_state(c, to);
        join_share(c);
    }
    tn_sched_kick(svc);
    return 0;
}

/* ---- create ---- */

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
    return json_pack("{s:I, s:I, s:f, s:f, s:o}", "legal", (json_int_t)d->legal, "fitting",
                     (json_int_t)d->legal, "expected_trials", trials, "expected_s", seconds,
                     "baseline", pl_layout_json(&s->se.baseline));
}

struct creation {
    struct db_campaign c;
    struct db_trial baseline;
    int64_t n;
};

static int create_job(struct db *w, void *arg, struct err *e)
{
    struct creation *cr = arg;
    int r = db_campaign_add(w, &cr->c, e);

    if (r == 0)
        r = db_trial_add(w, &cr->baseline, &cr->n, e);
    if (r == 0)
        r = tn_event_campaign(w, cr->c.id, e);
    return r < 0 ? r : tn_event_trial(w, cr->c.id, cr->n, e);
}

/* The baseline is trial 1 of every campaign, whether or not it lies in the space that is searched.
 */
static void fill_baseline(struct db_trial *t, struct tn_engine *en, const char *id, char text[160],
                          const char *layout)
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
    t->why = "the baseline";
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
static int insert(struct tn_service *svc, struct tn_engine *en, const char *id, size_t legal,
                  const char *owner, struct err *e)
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
    char text[160];
    int64_t now = clock_wall_ms();
    struct creation cr = {
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

    fill_baseline(&cr.baseline, en, id, text, layout);
    r = tn_write(svc, create_job, &cr, e);
    if (r < 0)
        return r;
    cr.c.trials = 1;
    c = tn_campaign_load(svc, &cr.c, tn_engine_ref(en));
    c->open = 1;
    tn_campaign_enqueue(c, tn_trial_new(&cr.baseline, &s->se.baseline));
    log_info("campaign %s created name=\"%s\" legal=%zu owner=%s", id, s->name, legal, owner);
    return 0;
}

int tn_campaign_create(json_t **ret, struct tn_service *svc, struct tn_draft *owned_d,
                       const char *owner, struct err *e)
{
    struct tn_engine *en = tn_engine_ref(owned_d->engine);
    size_t legal = owned_d->legal;
    char id[TN_ID_TEXT];
    int r;

    tn_draft_free(owned_d);
    random_id(id);
    r = svc->stopping ? err_set(e, -EAGAIN, "the daemon is stopping")
                      : insert(svc, en, id, legal, owner, e);
    tn_engine_unref(en);
    if (r < 0)
        return r;
    r = tn_campaign_get(ret, svc, id, e);
    return r < 0 ? err_wrap(e, "campaign %s was created, but cannot be shown now", id) : 0;
}

/* ---- read ---- */

int tn_campaign_get(json_t **ret, struct tn_service *svc, const char *id, struct err *e)
{
    struct arena a = {0};
    struct db_campaign c;
    int r = db_campaign_get(svc->db, &a, &c, id, e);

    if (r == 0)
        *ret = tn_campaign_view(svc->db, &c, true, e);
    arena_done(&a);
    return r;
}

/* Times that pass make the text of an active campaign stale, so it is kept for a second at most. */
int tn_campaign_text(const char **ret, size_t *ret_size, struct tn_service *svc, const char *id,
                     struct err *e)
{
    enum { CACHED = 256 };
    json_t *entry = json_object_get(svc->texts, id);
    int64_t rev = -1, now = clock_wall_ms();
    AUTO_JSON *v = NULL;
    char *text;
    int r = db_campaign_rev(svc->db, id, &rev, e);

    if (r < 0) {
        json_object_del(svc->texts, id);
        return r;
    }
    if (!entry || json_integer_value(json_array_get(entry, 0)) != rev ||
        now - json_integer_value(json_array_get(entry, 1)) > 1000) {
        r = tn_campaign_get(&v, svc, id, e);
        if (r < 0)
            return r;
        if (json_object_size(svc->texts) >= CACHED)
            json_object_clear(svc->texts);
        text = jx_dump(v);
        entry = json_pack("[I, I, s]", (json_int_t)rev, (json_int_t)now, text);
        free(text);
        json_object_set_new(svc->texts, id, entry);
    }
    *ret = json_string_value(json_array_get(entry, 2));
    *ret_size = json_string_length(json_array_get(entry, 2));
    return 0;
}

int tn_campaign_list(json_t **ret_items, int64_t *ret_total, struct tn_service *svc,
                     const struct db_filter *f, struct err *e)
{
    struct arena a = {0};
    struct db_campaign *c = NULL;
    int n = 0;
    int r = db_campaign_list(svc->db, &a, &c, &n, ret_total, f, e);

    if (r == 0) {
        *ret_items = json_array();
        for (int i = 0; i < n; i++)
            json_array_append_new(*ret_items, tn_campaign_view(svc->db, &c[i], false, e));
    }
    arena_done(&a);
    return r;
}

/* ---- change ---- */

struct description {
    const char *id, *name, *notes;
    char *tags;
    int64_t priority; /* DB_NULL: as it is */
};

static int describe_job(struct db *w, void *arg, struct err *e)
{
    struct description *d = arg;
    int r = db_campaign_describe(w, d->id, d->name, d->notes, d->tags, e);

    if (r == 0 && d->priority != DB_NULL)
        r = db_campaign_set_priority(w, d->id, d->priority, e);
    return r < 0 ? r : tn_event_campaign(w, d->id, e);
}

static int check_tags(const json_t *tags, struct err *e)
{
    const json_t *tag;
    size_t i;

    if (json_array_size(tags) > 32)
        return err_at(e, -EINVAL, "/tags", "at most 32 tags");
    json_array_foreach(tags, i, tag)
        if (!json_is_string(tag) || json_string_length(tag) == 0 || json_string_length(tag) > 64)
            return err_at(e, -EINVAL, "/tags", "tag %zu must be a text of 1 to 64 bytes", i);
    return 0;
}

int tn_campaign_patch(json_t **ret, struct tn_service *svc, const char *id, const json_t *body,
                      struct err *e)
{
    static const char *const keys[] = {"name", "notes", "tags", "priority", NULL};
    struct description d = {.id = id, .priority = DB_NULL};
    struct tn_campaign *c;
    json_t *tags = NULL;
    const json_t *notes = json_object_get(body, "notes");
    int r = jx_keys(body, keys, e);

    if (r < 0 || (r = jx_get_str(&d.name, body, "name", 127, e)) < 0 ||
        (json_object_get(body, "priority") &&
         (r = jx_get_i64(&d.priority, body, "priority", -TN_MAX_PRIORITY, TN_MAX_PRIORITY, e)) <
             0) ||
        (r = jx_get_array(&tags, body, "tags", 32, e)) < 0 || (r = check_tags(tags, e)) < 0)
        return r;
    if (notes && (!json_is_string(notes) || json_string_length(notes) > 10000))
        return err_at(e, -EINVAL, "/notes", "notes must be a text of at most 10000 bytes");
    d.notes = json_string_value(notes);
    d.tags = tags ? jx_dump(tags) : NULL;
    r = tn_write(svc, describe_job, &d, e);
    free(d.tags);
    c = r == 0 && d.priority != DB_NULL ? tn_campaign_find(svc, id) : NULL;
    if (c) {
        c->priority = d.priority;
        tn_sched_kick(svc);
    }
    return r < 0 ? r : tn_campaign_get(ret, svc, id, e);
}

static int delete_job(struct db *w, void *arg, struct err *e)
{
    return db_campaign_delete(w, arg, e);
}

int tn_campaign_delete(struct tn_service *svc, const char *id, struct err *e)
{
    struct tn_campaign *c = tn_campaign_find(svc, id);
    AUTO_FREE char *folder = mem_printf("%s/campaigns/%s", svc->data_dir, id);
    AUTO_FREE char *key = mem_strdup(id);
    int r;

    if (c && c->running > 0)
        return err_set(e, -EBUSY, "trials of campaign %s are still running", id);
    r = tn_write(svc, delete_job, key, e);
    if (r < 0)
        return r;
    if (c)
        c->state = DB_CANCELLED;
    json_object_del(svc->texts, id);
    tn_campaign_unload_idle(svc);
    log_info("campaign %s deleted", id);
    r = tn_trash(svc, folder, e);
    tn_removal_go(svc);
    return r;
}

int tn_campaign_pause(json_t **ret, struct tn_service *svc, const char *id, struct err *e)
{
    int r = tn_campaign_change(svc, id, "running verifying", DB_PAUSED, "on request", e);

    return r < 0 ? r : tn_campaign_get(ret, svc, id, e);
}

/* A paused campaign that is not in memory could not be brought back when the daemon started. */
static int bring_back(struct tn_service *svc, const char *id, struct err *e)
{
    struct arena a = {0};
    struct db_campaign row;
    int r = db_campaign_get(svc->db, &a, &row, id, e);

    if (r == 0 && !strcmp(row.state, DB_PAUSED))
        r = tn_campaign_revive(svc, &row, e);
    if (r < 0 && r != -ENOENT) {
        if (e)
            e->code = -ESTALE;
        r = -ESTALE;
    }
    arena_done(&a);
    return r;
}

int tn_campaign_resume(json_t **ret, struct tn_service *svc, const char *id, struct err *e)
{
    struct tn_campaign *c = tn_campaign_find(svc, id);
    const char *to;
    int r;

    if (!c) {
        r = bring_back(svc, id, e);
        if (r < 0)
            return r;
        c = tn_campaign_find(svc, id);
    }
    to = c && c->verify.pairs > 0 ? DB_VERIFYING : DB_RUNNING;
    r = c ? c->engine->spec->launcher->ready(svc, c->engine->spec, e) : 0;
    if (r == 0)
        r = tn_retain_room(svc, e);
    if (r < 0) {
        if (e)
            e->code = -ESTALE; /* it stays paused for that reason */
        return -ESTALE;
    }
    r = tn_campaign_change(svc, id, "paused", to, NULL, e);
    if (r < 0)
        return r;
    if (c) {
        c->retry_at = 0;
        c->waiting = false;
    }
    return tn_campaign_get(ret, svc, id, e);
}

static int cancel_job(struct db *w, void *arg, struct err *e)
{
    const char *id = arg;
    int r = db_campaign_move(w, id, "running verifying paused", DB_CANCELLED, "on request",
                             clock_wall_ms(), e);

    if (r == 0)
        r = db_trial_cancel_queued(w, id, clock_wall_ms(), e);
    return r < 0 ? r : tn_event_campaign(w, id, e);
}

int tn_campaign_cancel(json_t **ret, struct tn_service *svc, const char *id, struct err *e)
{
    struct tn_campaign *c = tn_campaign_find(svc, id);
    AUTO_FREE char *key = mem_strdup(id);
    int r = tn_write(svc, cancel_job, key, e);

    if (r < 0)
        return r;
    log_info("campaign %s is cancelled", id);
    if (c) {
        tn_campaign_set_state(c, DB_CANCELLED);
        tn_campaign_clear_queue(c);
    }
    for (struct tn_attempt *a = svc->attempts; a; a = a->next)
        if (a->campaign == c)
            tn_attempt_stop(a, TN_STOP_CANCEL);
    tn_sched_kick(svc);
    return tn_campaign_get(ret, svc, id, e);
}

int tn_campaign_clone_body(json_t **ret, struct tn_service *svc, const char *id, const json_t *body,
                           struct err *e)
{
    struct arena a = {0};
    struct db_campaign c;
    json_t *spec = NULL;
    int r = db_campaign_get(svc->db, &a, &c, id, e);

    if (r == 0)
        r = jx_parse(&spec, c.spec, strlen(c.spec), e);
    if (r == 0 && body)
        json_object_update(spec, (json_t *)body);
    if (r == 0)
        *ret = spec;
    arena_done(&a);
    return r;
}
