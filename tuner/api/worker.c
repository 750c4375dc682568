/* Workers: they ask for trials, keep their leases, and report. */
#include <errno.h>

#include "tuner/api/api.h"

static void suggested(void *ctx, int result, json_t *owned_answer, const struct err *error)
{
    tn_api_answer(ctx, result, 200, owned_answer, error);
}

void tn_api_suggest(struct web_request *rq)
{
    struct err e;

    web_defer(rq);
    if (tn_remote_ask(tn_api_svc(rq), web_param(rq, "id"), web_body(rq), suggested, rq, &e) < 0)
        web_reply_error(rq, &e);
}

typedef int told_fn(json_t **ret, struct tn_service *svc, const char *id, int64_t trial,
                    const json_t *body, struct err *error);

static void told(struct web_request *rq, told_fn *fn)
{
    struct err e;
    json_t *v = NULL;
    int64_t n;
    int r = web_param_i64(&n, rq, "n", 1, INT64_MAX, &e);

    if (r == 0)
        r = fn(&v, tn_api_svc(rq), web_param(rq, "id"), n, web_body(rq), &e);
    tn_api_answer(rq, r, 200, v, &e);
}

void tn_api_heartbeat(struct web_request *rq)
{
    told(rq, tn_remote_heartbeat);
}

void tn_api_complete(struct web_request *rq)
{
    told(rq, tn_remote_complete);
}

void tn_api_workers(struct web_request *rq)
{
    tn_api_whole(rq, tn_workers_json(tn_api_svc(rq)));
}
