/*
 * Tokens, kept answers and the audit log: rows of the database that belong to the HTTP side.
 *
 * Tokens are rows, so that `partuned token add` works while a daemon serves: the daemon compares
 * the table with what it knows every few seconds, which also ends tokens that have expired.
 */
#include <errno.h>

#include "tuner/api/api.h"

enum { LOOK_MS = 2000, ANSWERS_KEPT_MS = 24 * 3600 * 1000 };

static int scope_of(const char *name)
{
    for (int i = WEB_READ; web_scope_names[i]; i++)
        if (str_eq(web_scope_names[i], name))
            return i;
    return -EINVAL;
}

/* ---- the table and the server -------------------------------------------- */

int tn_api_tokens_load(struct tn_http *http, struct err *error)
{
    struct arena a = {0};
    struct db_token *t = NULL;
    json_t *now = json_object();
    const char *hash;
    json_t *id;
    int n = 0, r = db_token_list(&t, &n, tn_db(http->svc), &a, error);
    int64_t wall = clock_wall_ms();

    for (int i = 0; r == 0 && i < n; i++) {
        int scope = scope_of(t[i].scope);

        if (scope < 0 || (t[i].expires != DB_NULL && t[i].expires <= wall))
            continue;
        json_object_set_new(now, t[i].hash, json_string(t[i].id));
        if (!json_object_get(http->tokens, t[i].hash))
            r = web_server_add_token(http->web, t[i].name, t[i].hash, (enum web_scope)scope, error);
    }
    arena_done(&a);
    if (r < 0) {
        json_decref(now);
        return r;
    }
    json_object_foreach(http->tokens, hash, id) {
        if (!json_object_get(now, hash))
            web_server_drop_token(http->web, hash);
    }
    json_decref(http->tokens);
    http->tokens = now;
    return 0;
}

static void on_look(uv_timer_t *timer)
{
    struct err e;

    if (tn_api_tokens_load(timer->data, &e) < 0)
        log_error("tokens: %s", e.text);
}

void tn_api_tokens_watch(struct tn_http *http)
{
    uv_timer_start(&http->token_timer, on_look, LOOK_MS, LOOK_MS);
    uv_unref((uv_handle_t *)&http->token_timer);
}

/* ---- handlers ------------------------------------------------------------ */

void tn_api_token_list(struct web_request *rq)
{
    struct db_token *t = NULL;
    json_t *list = json_array();
    struct err e;
    int n = 0;

    if (db_token_list(&t, &n, tn_db(tn_api_svc(rq)), web_arena(rq), &e) < 0) {
        json_decref(list);
        web_reply_error(rq, &e);
        return;
    }
    for (int i = 0; i < n; i++) {
        char created[CLOCK_TEXT], expires[CLOCK_TEXT];

        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", t[i].id, "name", t[i].name, "scope",
                      t[i].scope, "created", clock_format(created, t[i].created), "expires",
                      t[i].expires == DB_NULL ? json_null()
                                              : json_string(clock_format(expires, t[i].expires))));
    }
    tn_api_whole(rq, list);
}

static int put_token(struct db *writer, void *arg, struct err *error)
{
    return db_token_put(writer, arg, error);
}

static int delete_token(struct db *writer, void *arg, struct err *error)
{
    return db_token_delete(writer, arg, error);
}

void tn_api_token_create(struct web_request *rq)
{
    static const char *const keys[] = {"name", "scope", "expires_s", NULL};
    static const char *const scopes[] = {"read", "submit", "admin", NULL};
    struct tn_http *h = tn_api_http(rq);
    const json_t *body = web_body(rq);
    char token[WEB_TOKEN_TEXT], hash[WEB_HASH_HEX];
    struct db_token t = {.created = clock_wall_ms(), .expires = DB_NULL, .used = DB_NULL};
    struct err e;
    int64_t expires_s = 0;
    int scope = 0;

    if (jx_keys(body, keys, &e) < 0 || jx_need(body, "name", &e) < 0 ||
        jx_need(body, "scope", &e) < 0 || jx_get_str(&t.name, body, "name", 64, &e) < 0 ||
        jx_get_enum(&scope, body, "scope", scopes, &e) < 0 ||
        jx_get_i64(&expires_s, body, "expires_s", 1, INT32_MAX, &e) < 0 ||
        web_token_make(token, hash, &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    if (expires_s)
        t.expires = t.created + 1000 * expires_s;
    t.scope = scopes[scope];
    t.hash = hash;
    t.id = arena_strndup(web_arena(rq), hash, 12);
    if (db_writer_call(tn_writer(h->svc), put_token, &t, &e) < 0 || tn_api_tokens_load(h, &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    web_reply_location(rq, arena_printf(web_arena(rq), "/v1/tokens/%s", t.id));
    web_reply_secret(rq);
    web_reply_json(rq, 201,
                   json_pack("{s:s, s:s, s:s, s:s}", "id", t.id, "name", t.name, "scope", t.scope,
                             "token", token));
}

void tn_api_token_delete(struct web_request *rq)
{
    struct tn_http *h = tn_api_http(rq);
    struct err e;

    if (db_writer_call(tn_writer(h->svc), delete_token, (void *)(uintptr_t)web_param(rq, "id"),
                       &e) < 0 ||
        tn_api_tokens_load(h, &e) < 0)
        web_reply_error(rq, &e);
    else
        web_reply_empty(rq, 204);
}

/* ---- answers by Idempotency-Key ------------------------------------------ */

static bool find_answer(struct web_answer *ret, void *ctx, const char *key, struct arena *arena)
{
    struct tn_http *h = ctx;
    struct db_answer row;

    if (db_answer_get(&row, tn_db(h->svc), arena, key, NULL) < 0)
        return false;
    *ret = (struct web_answer){(int)row.status, row.hash, row.type,
                               row.location,    row.body, strlen(row.body)};
    return true;
}

static int put_answer(struct db *writer, void *arg, struct err *error)
{
    struct db_answer *row = arg;
    int r = db_answer_put(writer, row, error);

    return r < 0 ? r : db_answer_trim(writer, row->created - ANSWERS_KEPT_MS, error);
}

static void keep_answer(void *ctx, const char *key, const struct web_answer *answer)
{
    struct tn_http *h = ctx;
    struct db_answer row = {.key = key,
                            .hash = answer->hash,
                            .type = answer->type,
                            .location = answer->location,
                            .body = answer->body,
                            .status = answer->status,
                            .created = clock_wall_ms()};
    struct err e;

    if (db_writer_call(tn_writer(h->svc), put_answer, &row, &e) < 0)
        log_error("keep the answer of an Idempotency-Key: %s", e.text);
}

struct web_idempotency tn_api_answers(struct tn_http *http)
{
    return (struct web_idempotency){find_answer, keep_answer, http};
}

/* ---- audit --------------------------------------------------------------- */

struct audit {
    int64_t t;
    char *who, *what, *resource, *result;
};

static int put_audit(struct db *writer, void *arg, struct err *error)
{
    struct audit *x = arg;

    return db_audit_add(writer, x->t, x->who, x->what, x->resource, x->result, error);
}

static void free_audit(void *arg)
{
    struct audit *x = arg;

    free(x->who);
    free(x->what);
    free(x->resource);
    free(x->result);
    free(x);
}

/* Questions that are asked by POST change nothing, and a heartbeat says only that there is one. */
static bool changes(const char *path)
{
    return !str_ends(path, ":heartbeat") && !str_ends(path, ":suggest") &&
           !str_eq(path, "/v1/check") && !str_eq(path, "/v1/plan") &&
           !str_eq(path, "/v1/compare") && !str_starts(path, "/v1/import/");
}

void tn_api_audit(void *ctx, struct web_request *rq, int status)
{
    struct tn_http *h = ctx;
    struct audit *x;

    /* Who has no token may not fill the disk: wrong ones are counted (/metrics), not recorded. */
    if (status == 401 || status == 429 || !changes(web_path(rq)))
        return;
    x = mem_alloc(sizeof(*x));
    x->t = clock_wall_ms();
    x->who = mem_strdup(web_principal(rq));
    x->what = mem_strdup(web_method(rq));
    x->resource = mem_strdup(web_path(rq));
    x->result = mem_printf("%d", status);
    db_writer_post(tn_writer(h->svc), put_audit, x, free_audit);
}
