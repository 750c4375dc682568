/* /v1/campaigns and its verbs. */
#include <errno.h>

#include "tuner/api/api.h"

void tn_api_campaign_list(struct web_request *rq)
{
    static const char *const sorts[] = {"created", "name", "state", NULL};
    struct db_filter f;
    struct err e;
    AUTO_STR items = {0};
    const char *next;
    int64_t total;

    if (!tn_api_filter(&f, rq, sorts, db_campaign_states))
        return;
    if (tn_campaign_list(&items, &next, &total, tn_api_svc(rq), web_arena(rq), &f, &e) < 0)
        web_reply_error(rq, &e);
    else
        web_reply_rows(rq, items.text, total, next);
}

/* ---- create: checked on another thread, two seconds at most: a space may be large ---- */

struct draft {
    struct tn_service *svc;
    json_t *body;
    bool dry_run;
    struct tn_draft *draft;
    json_t *rules, *answer;
    struct err e;
    int r;
};

static void draft_check(struct web_request *rq, void *arg)
{
    struct draft *d = arg;

    d->r = tn_campaign_check(&d->draft, &d->rules, d->svc, d->body, web_unwanted(rq), &d->e);
    if (d->r == 0 && d->dry_run)
        d->answer = tn_draft_json(d->draft);
}

static void draft_done(struct web_request *rq, void *arg)
{
    struct draft *d = arg;
    struct tn_once once = {.prefix = web_prefix(rq)};
    bool keyed = web_idempotency_of(&once.key, &once.hash, rq);
    json_t *v;

    json_decref(d->body);
    if (d->r < 0) {
        tn_api_rules(rq, &d->e, d->rules);
        return;
    }
    json_decref(d->rules);
    if (d->dry_run) {
        tn_draft_free(d->draft);
        web_reply_json(rq, 200, d->answer);
        return;
    }
    d->r = tn_campaign_create(&v, d->svc, d->draft, web_principal(rq),
                              web_request_header(rq, "traceparent"), keyed ? &once : NULL, &d->e);
    if (d->r < 0) {
        web_reply_error(rq, &d->e);
        return;
    }
    web_reply_location(rq, arena_printf(web_arena(rq), "/v1/campaigns/%s",
                                        json_string_value(json_object_get(v, "id"))));
    web_reply_json(rq, 201, v);
}

static void draft_start(struct web_request *rq, json_t *owned_body)
{
    struct draft *d = arena_alloc(web_arena(rq), sizeof(*d));
    struct err e;

    d->svc = tn_api_svc(rq);
    d->body = owned_body;
    d->r = tn_api_unwanted(&d->e);
    if (web_query_bool(&d->dry_run, rq, "dry_run", &e) < 0) {
        json_decref(owned_body);
        tn_api_bad_query(rq, &e);
        return;
    }
    if (!web_offload(rq, draft_check, draft_done, d))
        json_decref(owned_body);
}

void tn_api_campaign_create(struct web_request *rq)
{
    draft_start(rq, json_incref(web_body(rq)));
}

void tn_api_campaign_clone(struct web_request *rq)
{
    struct err e;
    json_t *body;

    if (tn_campaign_clone_body(&body, tn_api_svc(rq), web_param(rq, "id"), web_body(rq), &e) < 0)
        web_reply_error(rq, &e);
    else
        draft_start(rq, body);
}

/* ---- one campaign -------------------------------------------------------- */

/* Hash of N bytes of TEXT without the number after KEY, continuing from SEED; moves *TEXT behind
 * it. */
static uint64_t hash_up_to(const char **text, const char *end, const char *key, uint64_t seed)
{
    const char *at = strstr(*text, key);

    if (!at || at > end)
        return seed;
    seed = str_hash(*text, (size_t)(at - *text), seed);
    *text = at + strlen(key) + strcspn(at + strlen(key), ",}");
    return seed;
}

/*
 * The tag of a campaign: of its text without the two numbers that pass with the clock. A reader who
 * saw a campaign a second ago may still change its notes, unless something has happened to it
 * since.
 */
static char *campaign_etag(struct arena *arena, const char *text, size_t len)
{
    const char *end = text + len;
    uint64_t h = hash_up_to(&text, end, "\"elapsed_s\":", 0);

    h = hash_up_to(&text, end, "\"eta_s\":", h);
    return arena_printf(arena, "\"%016llx\"",
                        (unsigned long long)str_hash(text, (size_t)(end - text), h));
}

void tn_api_campaign_show(struct web_request *rq)
{
    const char *text;
    struct err e;
    size_t n;

    if (tn_campaign_text(&text, &n, tn_api_svc(rq), web_param(rq, "id"), &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    web_reply_header(rq, "ETag", campaign_etag(web_arena(rq), text, n));
    web_reply_json_text(rq, 200, text, n);
}

/* False where the campaign is not there, or is not as If-Match says: that was answered. */
static bool unchanged(struct web_request *rq)
{
    const char *text;
    struct err e;
    size_t n;

    if (tn_campaign_text(&text, &n, tn_api_svc(rq), web_param(rq, "id"), &e) < 0) {
        web_reply_error(rq, &e);
        return false;
    }
    return web_if_match(rq, campaign_etag(web_arena(rq), text, n));
}

void tn_api_campaign_patch(struct web_request *rq)
{
    struct err e;
    json_t *v;
    char *text;

    if (!unchanged(rq))
        return;
    if (tn_campaign_patch(&v, tn_api_svc(rq), web_param(rq, "id"), web_body(rq), &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    text = jx_dump(v);
    json_decref(v);
    web_reply_header(rq, "ETag", campaign_etag(web_arena(rq), text, strlen(text)));
    web_reply_json_text(rq, 200, text, strlen(text));
    free(text);
}

void tn_api_campaign_delete(struct web_request *rq)
{
    struct err e;

    if (!unchanged(rq))
        return;
    if (tn_campaign_delete(tn_api_svc(rq), web_param(rq, "id"), &e) < 0)
        web_reply_error(rq, &e);
    else
        web_reply_empty(rq, 204);
}

/* ---- verbs --------------------------------------------------------------- */

typedef int verb_fn(json_t **ret, struct tn_service *svc, const char *id, struct err *error);

/* A verb takes no settings: {} or nothing. */
static void verb(struct web_request *rq, verb_fn *fn)
{
    static const char *const none[] = {NULL};
    struct err e = {0};
    json_t *v = NULL;
    int r = web_body(rq) ? jx_keys(web_body(rq), none, &e) : 0;

    if (r == 0 && !unchanged(rq))
        return;
    if (r == 0)
        r = fn(&v, tn_api_svc(rq), web_param(rq, "id"), &e);
    tn_api_answer(rq, r, 200, v, &e);
}

void tn_api_campaign_pause(struct web_request *rq)
{
    verb(rq, tn_campaign_pause);
}

void tn_api_campaign_resume(struct web_request *rq)
{
    verb(rq, tn_campaign_resume);
}

void tn_api_campaign_cancel(struct web_request *rq)
{
    verb(rq, tn_campaign_cancel);
}

void tn_api_campaign_verify(struct web_request *rq)
{
    struct err e;
    json_t *v = NULL;
    int r;

    if (!unchanged(rq))
        return;
    r = tn_campaign_verify(&v, tn_api_svc(rq), web_param(rq, "id"), web_body(rq), &e);
    tn_api_answer(rq, r, 200, v, &e);
}
