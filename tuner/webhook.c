/*
 * Webhooks: [webhook "NAME"] of the configuration, and their deliveries.
 *
 * A delivery is a row that a trigger has made (db/hook.c). It is posted until a receiver answers
 * 2xx, or for the last time after ATTEMPTS of them; the wait doubles from attempt to attempt. What
 * is posted is made at the first attempt and kept, so that it never differs under one delivery id.
 * An attempt is committed before it is made: a daemon that dies meanwhile makes it again, later,
 * with the same id.
 */
#include <errno.h>
#include <math.h>

#include "tuner/internal.h"
#include "tuner/webhook.h"

enum {
    AT_ONCE = 16,      /* requests under way */
    LONGEST_S = 3600,  /* between two attempts */
    SHORTEST_KEY = 16, /* bytes of a secret */
    KEEP_DAYS = 30,    /* of deliveries that ended */
};

struct hook {
    const char *name, *url, *ca_file; /* of the configuration */
    char *secret, *events;
    bool allow_private;
    double retry_s;
    int64_t attempts;
};

struct tn_webhooks {
    struct tn_service *svc;
    struct tn_sender *sender;
    uv_async_t answered;
    struct hook *hook;
    int count;
    int64_t sending[AT_ONCE]; /* ids of deliveries, 0: free */
    int64_t trimmed;          /* wall ms */
};

/* ---- the configuration ---- */

static const char *const events[] = {
    "campaign.running", "campaign.paused",    "campaign.verifying", "campaign.done",
    "campaign.failed",  "campaign.cancelled", "trial.ended",        NULL};

static bool among(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(word, *list))
            return true;
    return false;
}

static const char *get(const struct conf *conf, const struct hook *h, const char *key)
{
    return conf_get(conf, "webhook", h->name, key);
}

static int wrong(const struct hook *h, struct err *e, const char *key, const char *why)
{
    return err_set(e, -EINVAL, "[webhook \"%.60s\"] %s %s", h->name, key, why);
}

/* "campaign.done, trial.ended" as words with one blank between. */
static int read_events(struct hook *h, const char *text, struct err *e)
{
    AUTO_FREE char *copy =
        mem_strdup(text ? text : "campaign.done campaign.failed campaign.paused");
    AUTO_STR s = {0};
    char *save = NULL;

    for (char *p = strtok_r(copy, " ,", &save); p; p = strtok_r(NULL, " ,", &save)) {
        const char *near = str_nearest(p, events);

        if (!among(p, events))
            return err_set(e, -EINVAL, "[webhook \"%.60s\"] events has no %.60s%s%s", h->name, p,
                           near ? "; did you mean " : "", near ? near : "");
        str_addf(&s, "%s%s", s.len ? " " : "", p);
    }
    h->events = str_take(&s);
    return h->events[0] ? 0 : wrong(h, e, "events", "is empty");
}

static int read_secret(const struct conf *conf, struct hook *h, struct err *e)
{
    const char *file = get(conf, h, "secret-file"), *text = get(conf, h, "secret");
    int r;

    if (file && (r = file_read_all(&h->secret, NULL, file, 4096, e)) < 0)
        return err_wrap(e, "[webhook \"%.60s\"] secret-file", h->name);
    if (!file)
        h->secret = mem_strdup(text ? text : "");
    h->secret[strcspn(h->secret, "\r\n")] = '\0';
    if (strlen(h->secret) < SHORTEST_KEY)
        return wrong(h, e, file ? "secret-file" : "secret",
                     "must have 16 bytes or more: receivers know by it who posts");
    return 0;
}

static int read_bool(const struct conf *conf, struct hook *h, struct err *e)
{
    static const char *const yes[] = {"yes", "true", "on", "1", NULL};
    static const char *const no[] = {"no", "false", "off", "0", NULL};
    const char *text = get(conf, h, "allow-private");

    h->allow_private = text && among(text, yes);
    return !text || h->allow_private || among(text, no)
               ? 0
               : wrong(h, e, "allow-private", "is yes or no");
}

static int read_hook(const struct conf *conf, struct hook *h, struct err *e)
{
    const char *retry = get(conf, h, "retry"), *attempts = get(conf, h, "attempts");
    int r;

    h->url = get(conf, h, "url");
    h->ca_file = get(conf, h, "ca-file");
    h->retry_s = 5;
    h->attempts = 12;
    if (!h->url || (!str_starts(h->url, "https://") && !str_starts(h->url, "http://")))
        return wrong(h, e, "url", "must begin with https:// or http://");
    if (retry && (str_to_f64(&h->retry_s, retry) < 0 || !(h->retry_s >= 0.1 && h->retry_s <= 3600)))
        return wrong(h, e, "retry", "is 0.1 to 3600 seconds");
    if (attempts && str_to_i64(&h->attempts, attempts, 1, 100) < 0)
        return wrong(h, e, "attempts", "is 1 to 100");
    if ((r = read_bool(conf, h, e)) < 0 || (r = read_events(h, get(conf, h, "events"), e)) < 0)
        return r;
    return read_secret(conf, h, e);
}

static struct hook *find(const struct tn_webhooks *w, const char *name)
{
    for (int i = 0; i < w->count; i++)
        if (!strcmp(w->hook[i].name, name))
            return &w->hook[i];
    return NULL;
}

static int read_all(struct tn_webhooks *w, const struct conf *conf, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < conf->count && r == 0; i++) {
        const struct conf_entry *at = &conf->entry[i];

        if (strcmp(at->section, "webhook") != 0 || find(w, at->name))
            continue;
        w->hook = mem_realloc(w->hook, ((size_t)w->count + 1) * sizeof(*w->hook));
        w->hook[w->count] = (struct hook){.name = at->name};
        r = read_hook(conf, &w->hook[w->count++], e);
    }
    return r;
}

static void forget_all(struct tn_webhooks *w)
{
    for (int i = 0; i < w->count; i++) {
        free(w->hook[i].secret);
        free(w->hook[i].events);
    }
    free(w->hook);
}

int tn_webhooks_check(const struct conf *conf, struct err *e)
{
    struct tn_webhooks w = {0};
    int r = read_all(&w, conf, e);

    forget_all(&w);
    return r;
}

/* The triggers shall know of these hooks and no others. */
static int hooks_job(struct db *db, void *arg, struct err *e)
{
    const struct tn_webhooks *w = arg;
    int r = db_hook_clear(db, e);

    for (int i = 0; i < w->count && r == 0; i++)
        r = db_hook_add(db, w->hook[i].name, w->hook[i].events, e);
    return r < 0 ? r : db_delivery_orphans(db, e);
}

/* ---- an attempt ---- */

static json_t *time_json(int64_t wall_ms)
{
    char text[CLOCK_TEXT];

    return json_string(clock_format(text, wall_ms));
}

/* The resource as GET gives it, or what is known where it was deleted meanwhile. */
static json_t *campaign_json(struct tn_service *svc, const struct db_delivery *d)
{
    json_t *all = NULL, *v;
    struct err e;

    if (tn_campaign_get(&all, svc, d->campaign, &e) < 0)
        return json_pack("{s:s}", "id", d->campaign);
    v = json_copy(all);
    json_object_del(v, "spec");
    json_decref(all);
    return v;
}

static json_t *trial_json(struct tn_service *svc, const struct db_delivery *d)
{
    json_t *v = NULL;
    struct err e;

    if (d->trial == DB_NULL)
        return json_null();
    if (tn_trial_get(&v, svc, d->campaign, d->trial, &e) < 0)
        return json_pack("{s:I}", "n", (json_int_t)d->trial);
    return v;
}

static char *body_of(struct tn_service *svc, const struct db_delivery *d)
{
    bool simulated;
    json_t *known = tn_simulated(&simulated, svc->db, d->campaign, NULL) == 0
                        ? json_boolean(simulated)
                        : json_null(); /* it was removed meanwhile */
    AUTO_JSON *v = json_pack(
        "{s:s, s:s, s:o, s:s, s:o, s:s, s:s?, s:o, s:o}", "id", d->uuid, "event", d->event, "time",
        time_json(d->created), "instance", svc->instance, "simulated", known, "state", d->state,
        "reason", d->reason, "campaign", campaign_json(svc, d), "trial", trial_json(svc, d));

    return jx_dump(v);
}

/* RETRY, 2 RETRY, 4 RETRY …, at most an hour. */
static int64_t wait_ms(const struct hook *h, int64_t attempts)
{
    return (int64_t)(1000 * fmin(ldexp(h->retry_s, (int)attempts), LONGEST_S));
}

struct attempt {
    int64_t id, due;
    const char *body;
};

static int try_job(struct db *w, void *arg, struct err *e)
{
    const struct attempt *t = arg;

    return db_delivery_try(w, t->id, t->body, t->due, e);
}

static void send_one(struct tn_webhooks *w, int slot, const struct hook *h,
                     const struct db_delivery *d)
{
    AUTO_FREE char *body = d->body ? mem_strdup(d->body) : body_of(w->svc, d);
    struct attempt t = {d->id, clock_wall_ms() + wait_ms(h, d->attempts), body};
    struct tn_post *p;
    struct err e = {0};

    if (db_writer_call(w->svc->writer, try_job, &t, &e) < 0) {
        log_warn("webhook %s: %s", h->name, e.text);
        return;
    }
    p = mem_alloc(sizeof(*p));
    p->id = w->sending[slot] = d->id;
    snprintf(p->uuid, sizeof(p->uuid), "%s", d->uuid);
    p->hook = mem_strdup(h->name);
    p->url = mem_strdup(h->url);
    p->event = mem_strdup(d->event);
    p->secret = mem_strdup(h->secret);
    p->ca_file = mem_strdup(h->ca_file);
    p->body = mem_strdup(body);
    p->allow_private = h->allow_private;
    p->attempts = d->attempts + 1;
    tn_sender_post(w->sender, p);
}

/* A free slot; -1: none, or D is under way. */
static int slot_for(const struct tn_webhooks *w, int64_t id)
{
    int slot = -1;

    for (int i = 0; i < AT_ONCE; i++) {
        if (w->sending[i] == id)
            return -1;
        if (w->sending[i] == 0)
            slot = i;
    }
    return slot;
}

static int trim_job(struct db *w, void *arg, struct err *e)
{
    (void)arg;
    return db_delivery_trim(w, clock_wall_ms() - (int64_t)KEEP_DAYS * 86400000, e);
}

void tn_webhooks_tick(struct tn_service *svc)
{
    struct tn_webhooks *w = svc->webhooks;
    struct db_delivery *d = NULL;
    struct arena a = {0};
    struct err e;
    int64_t now = clock_wall_ms();
    int n = 0;

    if (!w || !w->sender || svc->stopping)
        return;
    if (now - w->trimmed > 3600000 || now < w->trimmed) {
        w->trimmed = now;
        db_writer_post(svc->writer, trim_job, NULL, NULL);
    }
    if (db_delivery_due(svc->db, &a, &d, &n, now, 2 * AT_ONCE, &e) == 0)
        for (int i = 0; i < n; i++) {
            const struct hook *h = find(w, d[i].hook);
            int slot = slot_for(w, d[i].id);

            if (h && slot >= 0)
                send_one(w, slot, h, &d[i]);
        }
    arena_done(&a);
}

/* ---- its end ---- */

struct outcome {
    int64_t id;
    const char *status; /* NULL: it will be tried again */
    char *who, *what, *resource, *result;
};

static int outcome_job(struct db *w, void *arg, struct err *e)
{
    const struct outcome *o = arg;
    int r = db_delivery_end(w, o->id, o->status ? o->status : "pending", o->result, e);

    return r < 0 ? r : db_audit_add(w, clock_wall_ms(), o->who, o->what, o->resource, o->result, e);
}

static void outcome_free(void *arg)
{
    struct outcome *o = arg;

    free(o->who);
    free(o->what);
    free(o->resource);
    free(o->result);
    free(o);
}

static void record(struct tn_webhooks *w, const struct tn_post *p)
{
    const struct hook *h = find(w, p->hook);
    bool good = p->status >= 200 && p->status < 300;
    bool last = p->refused || p->status == 410 || p->attempts >= h->attempts;
    struct outcome *o = mem_alloc(sizeof(*o));

    o->id = p->id;
    o->status = good ? "delivered" : last ? "failed" : NULL;
    o->who = mem_printf("webhook %s", p->hook);
    o->what = mem_printf("POST %s", p->event);
    o->resource = mem_strdup(p->uuid);
    o->result = p->status ? mem_printf("%ld", p->status) : mem_strdup(p->problem);
    if (!good)
        log_warn("webhook %s: delivery %s, attempt %lld%s: %s", p->hook, p->uuid,
                 (long long)p->attempts, last ? ", the last" : "", o->result);
    db_writer_post(w->svc->writer, outcome_job, o, outcome_free);
    for (int i = 0; i < AT_ONCE; i++)
        if (w->sending[i] == p->id)
            w->sending[i] = 0;
}

static void on_answered(uv_async_t *handle)
{
    struct tn_webhooks *w = handle->data;
    struct tn_post *p = tn_sender_take(w->sender), *next;

    for (; p; p = next) {
        next = p->next;
        record(w, p);
        tn_post_free(p);
    }
    /* The tick must find these recorded, or it would send what was just delivered once more. */
    db_writer_flush(w->svc->writer);
}

static void wake_loop(void *arg)
{
    struct tn_webhooks *w = arg;

    uv_async_send(&w->answered);
}

/* ---- opening and closing ---- */

int tn_webhooks_open(struct tn_service *svc, struct err *e)
{
    struct tn_webhooks *w = mem_alloc(sizeof(*w));
    int r = 0;

    w->svc = svc;
    svc->webhooks = w;
    uv_async_init(svc->loop, &w->answered, on_answered);
    w->answered.data = w;
    if (svc->config.conf)
        r = read_all(w, svc->config.conf, e);
    if (r == 0)
        r = tn_write(svc, hooks_job, w, e);
    if (r == 0 && w->count > 0)
        r = tn_sender_start(&w->sender, wake_loop, w, e);
    return r;
}

static void closed(uv_handle_t *handle)
{
    struct tn_webhooks *w = handle->data;

    forget_all(w);
    free(w);
}

void tn_webhooks_close(struct tn_service *svc)
{
    if (!svc->webhooks)
        return;
    svc->webhooks->sender = tn_sender_stop(svc->webhooks->sender);
    uv_close((uv_handle_t *)&svc->webhooks->answered, closed);
    svc->webhooks = NULL;
}
