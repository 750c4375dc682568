/* POST /v1/project: computed on another thread, kept for comparison with what is measured later. */
#include "tuner/api/api.h"

struct projection {
    struct tn_service *svc;
    const json_t *body;
    json_t *answer;
    struct err e;
    int r;
};

static void work(struct web_request *rq, void *arg)
{
    struct projection *x = arg;

    (void)rq;
    x->r = tn_project(&x->answer, x->svc, x->body, &x->e);
}

static void done(struct web_request *rq, void *arg)
{
    struct projection *x = arg;

    if (x->r == 0)
        x->r = tn_project_keep(x->svc, x->answer, &x->e);
    if (x->r < 0)
        json_decref(x->answer);
    tn_api_answer(rq, x->r, 200, x->answer, &x->e);
}

void tn_api_project(struct web_request *rq)
{
    struct projection *x = arena_alloc(web_arena(rq), sizeof(*x));

    *x = (struct projection){.svc = tn_api_svc(rq), .body = web_body(rq)};
    x->r = tn_api_unwanted(&x->e);
    web_offload_slow(rq, work, done, x);
}
