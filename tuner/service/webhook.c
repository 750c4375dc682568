/*
 * Webhooks: [webhook "NAME"] of the configuration, and their deliveries.
 *
 * A delivery is a row that a trigger has made (db/hook.c). It is posted until a receiver answers
 * 2xx, or for the last time after ATTEMPTS of them; the wait doubles from attempt to attempt. What
 * is posted is made at the first attempt and kept, so that it never differs under one delivery id.
 * An attempt is committed before it is made: a daemon that dies meanwhile makes it again, later,
 * with the same id.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "tuner/results/view.h"
#include "tuner/service/webhook.h"
#include "tuner/service/webhooks.h"
#include "tuner/state/service.h"
#include "tuner/tuner.h"

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

/* ---- the configuration --------------------------------------------------- */

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

static const char *get(const struct conf *conf, const struct hook *hook, const char *key)
{
    return conf_get(conf, "webhook", hook->name, key);
}

static int wrong(const struct hook *hook, struct err *error, const char *key, const char *why)
{
    return err_set(error, -EINVAL, "[webhook \"%.60s\"] %s %s", hook->name, key, why);
}

/* "campaign.done, trial.ended" as words with one blank between. */
static int read_events(struct hook *hook, const char *text, struct err *error)
{
    AUTO_FREE char *copy =
        mem_strdup(text ? text : "campaign.done campaign.failed campaign.paused");
    AUTO_STR s = {0};
    char *save = NULL;

    for (char *p = strtok_r(copy, " ,", &save); p; p = strtok_r(NULL, " ,", &save)) {
        const char *near = str_nearest(p, events);

        if (!among(p, events))
            return err_set(error, -EINVAL, "[webhook \"%.60s\"] events: unknown %.60s%s%s",
                           hook->name, p, near ? "; did you mean " : "", near ? near : "");
        str_addf(&s, "%s%s", s.len ? " " : "", p);
    }
    hook->events = str_take(&s);
    return hook->events[0] ? 0 : wrong(hook, error, "events", "is empty");
}

static int read_secret(const struct conf *conf, struct hook *hook, struct err *error)
{
    const char *file = get(conf, hook, "secret-file"), *text = get(conf, hook, "secret");
    int r;

    if (file && (r = file_read_all(&hook->secret, NULL, file, 4096, error)) < 0)
        return err_wrap(error, "[webhook \"%.60s\"] secret-file", hook->name);
    if (!file)
        hook->secret = mem_strdup(text ? text : "");
    hook->secret[strcspn(hook->secret, "\r\n")] = '\0';
    if (strlen(hook->secret) < SHORTEST_KEY)
        return wrong(hook, error, file ? "secret-file" : "secret",
                     "must have at least 16 bytes: receivers authenticate the sender by it");
    return 0;
}

static int read_bool(const struct conf *conf, struct hook *hook, struct err *error)
{
    static const char *const yes[] = {"yes", "true", "on", "1", NULL};
    static const char *const no[] = {"no", "false", "off", "0", NULL};
    const char *text = get(conf, hook, "allow-private");

    hook->allow_private = text && among(text, yes);
    return !text || hook->allow_private || among(text, no)
               ? 0
               : wrong(hook, error, "allow-private", "must be yes or no");
}

static int read_hook(const struct conf *conf, struct hook *hook, struct err *error)
{
    const char *retry = get(conf, hook, "retry"), *attempts = get(conf, hook, "attempts");
    int r;

    hook->url = get(conf, hook, "url");
    hook->ca_file = get(conf, hook, "ca-file");
    hook->retry_s = 5;
    hook->attempts = 12;
    if (!hook->url || (!str_starts(hook->url, "https://") && !str_starts(hook->url, "http://")))
        return wrong(hook, error, "url", "must begin with https:// or http://");
    if (retry &&
        (str_to_f64(&hook->retry_s, retry) < 0 || !(hook->retry_s >= 0.1 && hook->retry_s <= 3600)))
        return wrong(hook, error, "retry", "must be 0.1 to 3600 seconds");
    if (attempts && str_to_i64(&hook->attempts, attempts, 1, 100) < 0)
        return wrong(hook, error, "attempts", "is 1 to 100");
    if ((r = read_bool(conf, hook, error)) < 0 ||
        (r = read_events(hook, get(conf, hook, "events"), error)) < 0)
        return r;
    return read_secret(conf, hook, error);
}

static struct hook *find(const struct tn_webhooks *webhooks, const char *name)
{
    for (int i = 0; i < webhooks->count; i++)
        if (!strcmp(webhooks->hook[i].name, name))
            return &webhooks->hook[i];
    return NULL;
}

static int read_all(struct tn_webhooks *webhooks, const struct conf *conf, struct err *error)
{
    int r = 0;

    for (size_t i = 0; i < conf->count && r == 0; i++) {
        const struct conf_entry *at = &conf->entry[i];

        if (strcmp(at->section, "webhook") != 0 || find(webhooks, at->name))
            continue;
        webhooks->hook =
            mem_realloc(webhooks->hook, ((size_t)webhooks->count + 1) * sizeof(*webhooks->hook));
        webhooks->hook[webhooks->count] = (struct hook){.name = at->name};
        r = read_hook(conf, &webhooks->hook[webhooks->count++], error);
    }
    return r;
}

static void forget_all(struct tn_webhooks *webhooks)
{
    for (int i = 0; i < webhooks->count; i++) {
        free(webhooks->hook[i].secret);
        free(webhooks->hook[i].events);
    }
    free(webhooks->hook);
}

int tn_webhooks_check(const struct conf *conf, struct err *error)
{
    struct tn_webhooks w = {0};
    int r = read_all(&w, conf, error);

    forget_all(&w);
    return r;
}

/* The triggers shall know of these hooks and no others. */
static int hooks_job(struct db *db, void *arg, struct err *error)
{
    const struct tn_webhooks *w = arg;
    int r = db_hook_clear(db, error);

    for (int i = 0; i < w->count && r == 0; i++)
        r = db_hook_add(db, w->hook[i].name, w->hook[i].events, error);
    return r < 0 ? r : db_delivery_orphans(db, error);
}

/* ---- an attempt ---------------------------------------------------------- */

static json_t *time_json(int64_t wall_ms)
{
    char text[CLOCK_TEXT];

    return json_string(clock_format(text, wall_ms));
}

/* The resource as GET gives it, or what is known where it was deleted meanwhile. */
static json_t *campaign_json(struct tn_service *svc, const struct db_delivery *delivery)
{
    json_t *all = NULL, *v;
    struct err e;

    if (tn_campaign_get(&all, svc, delivery->campaign, &e) < 0)
        return json_pack("{s:s}", "id", delivery->campaign);
    v = json_copy(all);
    json_object_del(v, "spec");
    json_decref(all);
    return v;
}

static json_t *trial_json(struct tn_service *svc, const struct db_delivery *delivery)
{
    json_t *v = NULL;
    struct err e;

    if (delivery->trial == DB_NULL)
        return json_null();
    if (tn_trial_get(&v, svc, delivery->campaign, delivery->trial, &e) < 0)
        return json_pack("{s:I}", "n", (json_int_t)delivery->trial);
    return v;
}

static char *body_of(struct tn_service *svc, const struct db_delivery *delivery)
{
    bool simulated;
    json_t *known = tn_simulated(&simulated, svc->db, delivery->campaign, NULL) == 0
                        ? json_boolean(simulated)
                        : json_null(); /* it was removed meanwhile */
    AUTO_JSON *v =
        json_pack("{s:s, s:s, s:o, s:s, s:o, s:s, s:s?, s:o, s:o}", "id", delivery->uuid, "event",
                  delivery->event, "time", time_json(delivery->created), "instance", svc->instance,
                  "simulated", known, "state", delivery->state, "reason", delivery->reason,
                  "campaign", campaign_json(svc, delivery), "trial", trial_json(svc, delivery));

    return jx_dump(v);
}

/* RETRY, 2 RETRY, 4 RETRY …, at most an hour. */
static int64_t wait_ms(const struct hook *hook, int64_t attempts)
{
    return (int64_t)(1000 * fmin(ldexp(hook->retry_s, (int)attempts), LONGEST_S));
}

struct attempt {
    int64_t id, due;
    const char *body;
};

static int try_job(struct db *writer, void *arg, struct err *error)
{
    const struct attempt *t = arg;

    return db_delivery_try(writer, t->id, t->body, t->due, error);
}

static void send_one(struct tn_webhooks *webhooks, int slot, const struct hook *hook,
                     const struct db_delivery *delivery)
{
    AUTO_FREE char *body =
        delivery->body ? mem_strdup(delivery->body) : body_of(webhooks->svc, delivery);
    struct attempt t = {delivery->id, clock_wall_ms() + wait_ms(hook, delivery->attempts), body};
    struct tn_post *p;
    struct err e = {0};

    if (db_writer_call(webhooks->svc->writer, try_job, &t, &e) < 0) {
        log_warn("webhook %s: %s", hook->name, e.text);
        return;
    }
    assert(slot >= 0 && slot < AT_ONCE && webhooks->sending[slot] == 0);
    p = mem_alloc(sizeof(*p));
    p->id = webhooks->sending[slot] = delivery->id;
    snprintf(p->uuid, sizeof(p->uuid), "%s", delivery->uuid);
    p->hook = mem_strdup(hook->name);
    p->url = mem_strdup(hook->url);
    p->event = mem_strdup(delivery->event);
    p->secret = mem_strdup(hook->secret);
    p->ca_file = mem_strdup(hook->ca_file);
    p->body = mem_strdup(body);
    p->allow_private = hook->allow_private;
    p->attempts = delivery->attempts + 1;
    tn_sender_post(webhooks->sender, p);
}

/* A free slot; -1: none, or the delivery is under way. */
static int slot_for(const struct tn_webhooks *webhooks, int64_t id)
{
    int slot = -1;

    for (int i = 0; i < AT_ONCE; i++) {
        if (webhooks->sending[i] == id)
            return -1;
        if (webhooks->sending[i] == 0)
            slot = i;
    }
    return slot;
}

static int trim_job(struct db *writer, void *arg, struct err *error)
{
    (void)arg;
    return db_delivery_trim(writer, clock_wall_ms() - (int64_t)KEEP_DAYS * 86400000, error);
}

void tn_webhooks_tick(struct tn_service *svc)
{
    struct tn_webhooks *w = svc->webhooks;
    struct db_delivery *d = NULL;
    struct arena a = {0};
    struct err e;
    int64_t now = clock_wall_ms();
    int n = 0;

    if (!w || !w->sender || svc->phase->stopping)
        return;
    if (now - w->trimmed > 3600000 || now < w->trimmed) {
        w->trimmed = now;
        db_writer_post(svc->writer, trim_job, NULL, NULL);
    }
    if (db_delivery_due(&d, &n, svc->db, &a, now, 2 * AT_ONCE, &e) == 0)
        for (int i = 0; i < n; i++) {
            const struct hook *h = find(w, d[i].hook);
            int slot = slot_for(w, d[i].id);

            if (h && slot >= 0)
                send_one(w, slot, h, &d[i]);
        }
    arena_done(&a);
}

/* ---- its end ------------------------------------------------------------- */

struct outcome {
    int64_t id;
    const char *status; /* NULL: it will be tried again */
    char *who, *what, *resource, *result;
};

static int outcome_job(struct db *writer, void *arg, struct err *error)
{
    const struct outcome *o = arg;
    int r = db_delivery_end(writer, o->id, o->status ? o->status : "pending", o->result, error);

    return r < 0 ? r
                 : db_audit_add(writer, clock_wall_ms(), o->who, o->what, o->resource, o->result,
                                error);
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

static void record(struct tn_webhooks *webhooks, const struct tn_post *post)
{
    const struct hook *h = find(webhooks, post->hook);
    bool good = post->status >= 200 && post->status < 300;
    bool last = post->refused || post->status == 410 || post->attempts >= h->attempts;
    struct outcome *o = mem_alloc(sizeof(*o));

    o->id = post->id;
    o->status = good ? "delivered" : last ? "failed" : NULL;
    o->who = mem_printf("webhook %s", post->hook);
    o->what = mem_printf("POST %s", post->event);
    o->resource = mem_strdup(post->uuid);
    o->result = post->status ? mem_printf("%ld", post->status) : mem_strdup(post->problem);
    if (!good)
        log_warn("webhook %s: delivery %s, attempt %lld%s: %s", post->hook, post->uuid,
                 (long long)post->attempts, last ? ", the last" : "", o->result);
    db_writer_post(webhooks->svc->writer, outcome_job, o, outcome_free);
    for (int i = 0; i < AT_ONCE; i++)
        if (webhooks->sending[i] == post->id)
            webhooks->sending[i] = 0;
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

/* ---- opening and closing ------------------------------------------------- */

int tn_webhooks_open(struct tn_service *svc, struct err *error)
{
    struct tn_webhooks *w = mem_alloc(sizeof(*w));
    int r = 0;

    w->svc = svc;
    svc->webhooks = w;
    uv_async_init(svc->loop, &w->answered, on_answered);
    w->answered.data = w;
    if (svc->config.conf)
        r = read_all(w, svc->config.conf, error);
    if (r == 0)
        r = tn_write(svc, hooks_job, w, error);
    if (r == 0 && w->count > 0)
        r = tn_sender_start(&w->sender, wake_loop, w, error);
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
