/* Campaigns: shown, described, paused, resumed, cancelled, cloned, deleted. */
#include <assert.h>
#include <errno.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/keep.h"
#include "tuner/core/launcher.h"
#include "tuner/core/revive.h"
#include "tuner/core/spec.h"
#include "tuner/core/work.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

/* ---- read ---------------------------------------------------------------- */

int tn_campaign_get(json_t **ret, struct tn_service *svc, const char *id, struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    int r = db_campaign_get(&c, tn_db(svc), &a, id, error);

    if (r == 0)
        r = tn_campaign_view(ret, tn_db(svc), &c, true, error);
    arena_done(&a);
    return r;
}

/* Times that pass make the text of an active campaign stale, so it is kept for a second at most. */
int tn_campaign_text(const char **ret, size_t *ret_size, struct tn_service *svc, const char *id,
                     struct err *error)
{
    struct tn_work *work = tn_work(svc);
    enum { CACHED = 256 };
    json_t *entry = json_object_get(work->texts, id);
    int64_t rev = -1, now = clock_wall_ms();
    AUTO_JSON *v = NULL;
    char *text;
    int r = db_campaign_rev(&rev, tn_db(svc), id, error);

    if (r < 0) {
        json_object_del(work->texts, id);
        return r;
    }
    if (!entry || json_integer_value(json_array_get(entry, 0)) != rev ||
        now - json_integer_value(json_array_get(entry, 1)) > 1000) {
        r = tn_campaign_get(&v, svc, id, error);
        if (r < 0)
            return r;
        if (json_object_size(work->texts) >= CACHED)
            json_object_clear(work->texts);
        text = jx_dump(v);
        entry = json_pack("[I, I, s]", (json_int_t)rev, (json_int_t)now, text);
        free(text);
        json_object_set_new(work->texts, id, entry);
    }
    assert(json_array_size(entry) == 3);
    *ret = json_string_value(json_array_get(entry, 2));
    *ret_size = json_string_length(json_array_get(entry, 2));
    return 0;
}

int tn_campaign_list(struct str *ret_items, const char **ret_next, int64_t *ret_total,
                     struct tn_service *svc, struct arena *arena, const struct db_filter *filter,
                     struct err *error)
{
    struct db_filter more = *filter; /* one row more, to know whether there is one */
    struct db_campaign *c = NULL;
    int n = 0;
    int r;

    more.limit++;
    r = db_campaign_list(&c, &n, ret_total, tn_db(svc), arena, &more, error);
    if (r < 0)
        return r;
    *ret_next = n > filter->limit ? db_campaign_position(arena, filter, &c[--n - 1]) : NULL;
    for (int i = 0; i < n; i++) {
        AUTO_JSON *v = NULL;
        AUTO_FREE char *text = NULL;

        r = tn_campaign_view(&v, tn_db(svc), &c[i], false, error);
        if (r < 0)
            return r;
        text = jx_dump(v);
        str_addc(ret_items, i ? ',' : '[');
        str_add(ret_items, text);
    }
    str_add(ret_items, n ? "]" : "[]");
    return 0;
}

/* ---- change -------------------------------------------------------------- */

struct description {
    const char *id, *name, *notes;
    char *tags;
    int64_t priority; /* DB_NULL: as it is */
};

static int describe_job(struct db *writer, void *arg, struct err *error)
{
    struct description *d = arg;
    int r = db_campaign_describe(writer, d->id, d->name, d->notes, d->tags, error);

    if (r == 0 && d->priority != DB_NULL)
        r = db_campaign_set_priority(writer, d->id, d->priority, error);
    return r < 0 ? r : tn_event_campaign(writer, d->id, error);
}

static int check_tags(const json_t *tags, struct err *error)
{
    const json_t *tag;
    size_t i;

    if (json_array_size(tags) > 32)
        return err_at(error, -EINVAL, "/tags", "at most 32 tags");
    json_array_foreach(tags, i, tag)
        if (!json_is_string(tag) || json_string_length(tag) == 0 || json_string_length(tag) > 64)
            return err_at(error, -EINVAL, "/tags", "tag %zu must be a string of 1 to 64 bytes", i);
    return 0;
}

int tn_campaign_patch(json_t **ret, struct tn_service *svc, const char *id, const json_t *body,
                      struct err *error)
{
    static const char *const keys[] = {"name", "notes", "tags", "priority", NULL};
    struct description d = {.id = id, .priority = DB_NULL};
    struct tn_campaign *c;
    json_t *tags = NULL;
    const json_t *notes = json_object_get(body, "notes");
    int r = jx_keys(body, keys, error);

    if (r < 0 || (r = jx_get_str(&d.name, body, "name", 127, error)) < 0 ||
        (json_object_get(body, "priority") &&
         (r = jx_get_i64(&d.priority, body, "priority", -TN_MAX_PRIORITY, TN_MAX_PRIORITY, error)) <
             0) ||
        (r = jx_get_array(&tags, body, "tags", 32, error)) < 0 || (r = check_tags(tags, error)) < 0)
        return r;
    if (notes && (!json_is_string(notes) || json_string_length(notes) > 10000))
        return err_at(error, -EINVAL, "/notes", "notes must be a string of at most 10000 bytes");
    d.notes = json_string_value(notes);
    d.tags = tags ? jx_dump(tags) : NULL;
    r = tn_write(svc, describe_job, &d, error);
    free(d.tags);
    c = r == 0 && d.priority != DB_NULL ? tn_campaign_find(svc, id) : NULL;
    if (c) {
        c->priority = d.priority;
        tn_changed(svc);
    }
    return r < 0 ? r : tn_campaign_get(ret, svc, id, error);
}

static int delete_job(struct db *writer, void *arg, struct err *error)
{
    return db_campaign_delete(writer, arg, error);
}

int tn_campaign_delete(struct tn_service *svc, const char *id, struct err *error)
{
    struct tn_campaign *c = tn_campaign_find(svc, id);
    AUTO_FREE char *folder = mem_printf("%s/campaigns/%s", tn_data_dir(svc), id);
    AUTO_FREE char *key = mem_strdup(id);
    int r;

    r = tn_campaign_is_back(svc, id, error);
    if (r < 0)
        return r;
    if (c && c->running > 0)
        return err_set(error, -EBUSY, "trials of campaign %s are still running", id);
    r = tn_write(svc, delete_job, key, error);
    if (r < 0)
        return r;
    if (c)
        c->state = DB_CANCELLED;
    json_object_del(tn_work(svc)->texts, id);
    tn_campaign_unload_idle(svc);
    tn_log_id(LOG_INFO, svc, id, " deleted");
    r = tn_trash(svc, folder, error);
    tn_removal_go(svc);
    return r;
}

int tn_campaign_pause(json_t **ret, struct tn_service *svc, const char *id, struct err *error)
{
    int r = tn_campaign_change(svc, id, "running verifying", DB_PAUSED, "on request", error);

    return r < 0 ? r : tn_campaign_get(ret, svc, id, error);
}

/* A paused campaign that is not in memory could not be brought back when the daemon started. */
static int bring_back(struct tn_service *svc, const char *id, struct err *error)
{
    struct arena a = {0};
    struct db_campaign row;
    int r = db_campaign_get(&row, tn_db(svc), &a, id, error);

    if (r == 0 && !strcmp(row.state, DB_PAUSED) && !tn_campaign_reviving(svc, id))
        r = tn_campaign_revive(svc, &row, false, error);
    if (r == 0 && (r = tn_campaign_is_back(svc, id, error)) < 0) {
        arena_done(&a);
        return r;
    }
    if (r < 0 && r != -ENOENT) {
        if (error)
            error->code = -ESTALE;
        r = -ESTALE;
    }
    arena_done(&a);
    return r;
}

int tn_campaign_resume(json_t **ret, struct tn_service *svc, const char *id, struct err *error)
{
    struct tn_campaign *c = tn_campaign_find(svc, id);
    const char *to;
    int r;

    if (!c) {
        r = bring_back(svc, id, error);
        if (r < 0)
            return r;
        c = tn_campaign_find(svc, id);
    }
    to = c && c->verify.pairs > 0 ? DB_VERIFYING : DB_RUNNING;
    r = c ? c->engine->spec->launcher->ready(svc, c->engine->spec, error) : 0;
    if (r == 0)
        r = tn_retain_room(svc, error);
    if (r < 0) {
        if (error)
            error->code = -ESTALE; /* it stays paused for that reason */
        return -ESTALE;
    }
    r = tn_campaign_change(svc, id, "paused", to, NULL, error);
    if (r < 0)
        return r;
    if (c) {
        c->retry_at = 0;
        c->waiting = false;
    }
    return tn_campaign_get(ret, svc, id, error);
}

static int cancel_job(struct db *writer, void *arg, struct err *error)
{
    const char *id = arg;
    int r = db_campaign_move(writer, id, "running verifying paused", DB_CANCELLED, "on request",
                             clock_wall_ms(), error);

    if (r == 0)
        r = db_trial_cancel_queued(writer, id, clock_wall_ms(), error);
    if (r == 0)
        r = db_campaign_end_verify(writer, id, DB_CANCELLED, error);
    return r < 0 ? r : tn_event_campaign(writer, id, error);
}

int tn_campaign_cancel(json_t **ret, struct tn_service *svc, const char *id, struct err *error)
{
    struct tn_campaign *c = tn_campaign_find(svc, id);
    AUTO_FREE char *key = mem_strdup(id);
    int r = tn_write(svc, cancel_job, key, error);

    if (r < 0)
        return r;
    tn_log_id(LOG_INFO, svc, id, " is cancelled");
    if (c) {
        tn_campaign_set_state(c, DB_CANCELLED);
        tn_campaign_clear_queue(c);
    }
    for (struct tn_attempt *a = tn_work(svc)->attempts; a; a = a->next)
        if (a->campaign == c)
            tn_attempt_stop(a, TN_STOP_CANCEL);
    tn_changed(svc);
    return tn_campaign_get(ret, svc, id, error);
}

int tn_campaign_clone_body(json_t **ret, struct tn_service *svc, const char *id, const json_t *body,
                           struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    json_t *spec = NULL;
    int r = db_campaign_get(&c, tn_db(svc), &a, id, error);

    if (r == 0 && body && !json_is_object(body))
        r = err_set(error, -EINVAL, "the changes must be an object");
    if (r == 0)
        r = jx_parse(&spec, c.spec, strlen(c.spec), error);
    if (r == 0 && body)
        json_object_update(spec, (json_t *)body);
    if (r == 0)
        *ret = spec;
    arena_done(&a);
    return r;
}
