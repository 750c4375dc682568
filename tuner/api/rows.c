/* /v1/campaigns/{id}/results.csv and .jsonl: all trials as one file, made on another thread. */
#include "tuner/api/api.h"

struct question {
    struct tn_service *svc;
    const char *id;
    enum tn_rows_format format;
    struct str text;
    struct err e;
    int r;
};

static void work(struct web_request *rq, void *arg)
{
    struct question *q = arg;

    (void)rq;
    q->r = tn_rows(&q->text, q->svc, q->id, q->format, &q->e);
}

static void done(struct web_request *rq, void *arg)
{
    static const char *const suffixes[] = {[TN_ROWS_CSV] = "csv", [TN_ROWS_JSONL] = "jsonl"};
    static const char *const types[] = {[TN_ROWS_CSV] = "text/csv; charset=utf-8; header=present",
                                        [TN_ROWS_JSONL] = "application/x-ndjson; charset=utf-8"};
    struct question *q = arg;

    if (q->r < 0) {
        web_reply_error(rq, &q->e);
    } else {
        web_reply_header(rq, "Content-Disposition",
                         arena_printf(web_arena(rq), "attachment; filename=\"%s.%s\"", q->id,
                                      suffixes[q->format]));
        web_reply_bytes(rq, 200, types[q->format], str_text(&q->text), q->text.len);
    }
    str_done(&q->text);
}

static void answer(struct web_request *rq, enum tn_rows_format format)
{
    struct question *q = arena_alloc(web_arena(rq), sizeof(*q));

    *q = (struct question){.svc = tn_api_svc(rq), .id = web_param(rq, "id"), .format = format};
    q->r = tn_api_unwanted(&q->e);
    web_offload_slow(rq, work, done, q);
}

void tn_api_results_csv(struct web_request *rq)
{
    answer(rq, TN_ROWS_CSV);
}

void tn_api_results_jsonl(struct web_request *rq)
{
    answer(rq, TN_ROWS_JSONL);
}
