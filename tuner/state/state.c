/* What the daemon has only once: its store, its events, its clock. */
#include <assert.h>

#include "tuner/state/service.h"
#include "tuner/tuner.h"

uint64_t tn_now_ms(void)
{
    return clock_mono_ns() / 1000000;
}

/* ---- events -------------------------------------------------------------- */

struct tn_subscription {
    struct tn_subscription *next;
    struct tn_service *svc;
    tn_event_fn *fn; /* NULL: cancelled during a delivery */
    void *ctx;
};

struct tn_subscription *tn_subscribe(struct tn_service *svc, tn_event_fn *fn, void *ctx)
{
    struct tn_subscription *s = mem_alloc(sizeof(*s));

    assert(fn);
    if (!svc->subscriptions)
        svc->delivered = db_event_last(svc->db);
    *s = (struct tn_subscription){svc->subscriptions, svc, fn, ctx};
    svc->subscriptions = s;
    return s;
}

struct tn_subscription *tn_unsubscribe(struct tn_subscription *subscription)
{
    struct tn_subscription **at;

    if (!subscription)
        return NULL;
    at = &subscription->svc->subscriptions;
    while (*at != subscription)
        at = &(*at)->next;
    *at = subscription->next;
    free(subscription);
    return NULL;
}

static bool deliver(void *ctx, const struct db_event *ev)
{
    struct tn_service *svc = ctx;
    struct tn_subscription *next;

    assert(ev->id > svc->delivered);
    svc->delivered = ev->id;
    for (struct tn_subscription *s = svc->subscriptions; s; s = next) {
        next = s->next;
        s->fn(s->ctx, ev);
    }
    return true;
}

void tn_events_deliver(struct tn_service *svc)
{
    struct err e;

    if (svc->subscriptions)
        db_event_each(svc->db, NULL, svc->delivered, 10000, deliver, svc, &e);
}

void tn_events_ready(struct tn_service *svc)
{
    uv_async_send(&svc->wake);
}

/* Told of what has happened, the loop lets the scheduler look. */
void tn_changed(struct tn_service *svc)
{
    if (svc->phase->kicked || svc->phase->closing)
        return;
    svc->phase->kicked = true;
    uv_async_send(&svc->wake);
}

/* ---- the store ----------------------------------------------------------- */

int tn_write(struct tn_service *svc, db_job_fn *job, void *arg, struct err *error)
{
    int r = db_writer_call(svc->writer, job, arg, error);

    if (r >= 0)
        tn_events_ready(svc);
    return r;
}

/* ---- small answers ------------------------------------------------------- */

const char *tn_data_dir(const struct tn_service *svc)
{
    return svc->data_dir;
}

const char *tn_instance(const struct tn_service *svc)
{
    return svc->instance;
}

struct db *tn_db(const struct tn_service *svc)
{
    return svc->db;
}

struct db_writer *tn_writer(const struct tn_service *svc)
{
    return svc->writer;
}

const struct pl_cluster *tn_local_cluster(const struct tn_service *svc)
{
    return svc->local;
}

struct tn_phase *tn_phase(const struct tn_service *svc)
{
    return svc->phase;
}

struct tn_machine *tn_machine(const struct tn_service *svc)
{
    return svc->machine;
}

struct tn_work *tn_work(const struct tn_service *svc)
{
    return svc->work;
}

struct tn_launching *tn_launching(const struct tn_service *svc)
{
    return svc->launching;
}

const struct tn_kinds *tn_kinds_of(const struct tn_service *svc)
{
    return svc->kinds;
}

const struct tn_config *tn_settings(const struct tn_service *svc)
{
    return &svc->config;
}

uv_loop_t *tn_loop(const struct tn_service *svc)
{
    return svc->loop;
}
