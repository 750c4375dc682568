/* Workers that wait for a trial, the longest first, and those heard of in the last day. */
#include <assert.h>

#include "tuner/core/campaign.h"
#include "tuner/core/revive.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/remote/remote.h"
#include "tuner/state/state.h"

enum { MAX_WORKERS = 1024, FORGET_MS = 24 * 3600 * 1000 };

/* ---- heard of ------------------------------------------------------------ */

static struct tn_worker *find_worker(struct tn_service *svc, const char *name)
{
    struct tn_worker *w = tn_launching(svc)->workers;

    while (w && strcmp(w->name, name) != 0)
        w = w->next;
    return w;
}

static void forget_old(struct tn_service *svc, int64_t now)
{
    struct tn_worker **at = &tn_launching(svc)->workers;

    for (int count = 0; *at; count++) {
        struct tn_worker *w = *at;

        if (now - w->seen > FORGET_MS || count >= MAX_WORKERS - 1) {
            *at = w->next;
            free(w);
        } else {
            at = &w->next;
        }
    }
}

struct tn_worker *tn_worker_seen(struct tn_service *svc, const char *name)
{
    struct tn_launching *launching = tn_launching(svc);
    struct tn_worker *w = find_worker(svc, name);
    int64_t now = clock_wall_ms();

    if (!w) {
        forget_old(svc, now);
        w = mem_alloc(sizeof(*w));
        snprintf(w->name, sizeof(w->name), "%s", name);
        w->next = launching->workers;
        launching->workers = w;
    }
    w->seen = now;
    return w;
}

void tn_workers_free(struct tn_service *svc)
{
    struct tn_launching *launching = tn_launching(svc);

    while (launching->workers) {
        struct tn_worker *w = launching->workers;

        launching->workers = w->next;
        free(w);
    }
}

/* ---- waiting ------------------------------------------------------------- */

void tn_ask_answer(struct tn_service *svc, struct tn_ask *ask, int result, json_t *owned_answer,
                   const struct err *error)
{
    struct tn_ask **at = &tn_launching(svc)->asks;

    while (*at && *at != ask)
        at = &(*at)->next;
    if (*at)
        *at = ask->next;
    ask->fn(ask->ctx, result, owned_answer, error);
    free(ask);
}

json_t *tn_ask_no_trial(const char *state, const char *reason)
{
    assert(!strcmp(state, "wait") || !strcmp(state, "done"));
    return json_pack("{s:s, s:s?, s:f}", "state", state, "reason", reason, "retry_s",
                     !strcmp(state, "wait") ? 1.0 : 0.0);
}

/* What a worker is told without a trial: an answer, or NULL while one may still come. */
json_t *tn_ask_early(struct tn_service *svc, const char *id, bool late)
{
    const struct tn_campaign *c = tn_campaign_find(svc, id);
    struct arena a = {0};
    struct db_campaign row;
    json_t *answer = NULL;

    if (tn_campaign_reviving(svc, id) ||
        (c && (!strcmp(c->state, DB_RUNNING) || !strcmp(c->state, DB_VERIFYING))))
        return late ? tn_ask_no_trial("wait", NULL) : NULL;
    if (db_campaign_get(&row, tn_db(svc), &a, id, NULL) < 0)
        answer = tn_ask_no_trial("done", "the campaign was deleted");
    else if (strcmp(row.state, DB_PAUSED) != 0)
        answer = tn_ask_no_trial("done", row.reason);
    else if (late)
        answer = tn_ask_no_trial("wait", row.reason);
    arena_done(&a);
    return answer;
}

void tn_asks_tick(struct tn_service *svc)
{
    struct tn_ask *next;

    for (struct tn_ask *k = tn_launching(svc)->asks; k; k = next) {
        json_t *answer = tn_ask_early(svc, k->campaign, tn_now_ms() >= k->until);

        next = k->next;
        if (answer && !k->given)
            tn_ask_answer(svc, k, 0, answer, NULL);
        else
            json_decref(answer);
    }
}

void tn_asks_drop(struct tn_service *svc)
{
    struct tn_launching *launching = tn_launching(svc);
    struct err e;

    err_set(&e, -EAGAIN, "the daemon is stopping");
    while (launching->asks)
        tn_ask_answer(svc, launching->asks, -EAGAIN, NULL, &e);
}
