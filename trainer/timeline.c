/* Chrome trace of one step: collected after the step, so it costs the step nothing but the notes.
 */
#include "trainer/timeline.h"

#include "base/base.h"

#include <assert.h>

void tr_timeline_begin(struct tr_clock *clock, int cap)
{
    clock->span = mem_alloc((size_t)cap * sizeof(*clock->span));
    clock->spans = 0;
    clock->span_cap = cap;
}

void tr_timeline_end(struct tr_clock *clock)
{
    free(clock->span);
    clock->span = NULL;
    clock->spans = clock->span_cap = 0;
}

static void add_rank(struct str *out, const struct tr_span *span, int spans, int rank)
{
    str_addf(out,
             ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":"
             "\"rank %d\"}}",
             rank, rank);
    for (int i = 0; i < spans; i++) {
        assert(i == 0 || span[i - 1].end_ns <= span[i].begin_ns); /* one phase at any moment */
        str_addf(out,
                 ",\n{\"name\":\"%s\",\"cat\":\"phase\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%."
                 "3f,\"dur\":%.3f}",
                 tr_phase_names[span[i].phase], rank, (double)span[i].begin_ns * 1e-3,
                 (double)(span[i].end_ns - span[i].begin_ns) * 1e-3);
    }
}

/* The trace of COUNT spans for each of WORLD ranks, the spans of rank r after those of r - 1.
 * Caller frees. */
static char *trace_json(const struct tr_span *span, const int *count, int world, const char *title)
{
    struct str s = {0};
    AUTO_JSON *name = json_string(title);
    AUTO_FREE char *text = json_dumps(name, JSON_ENCODE_ANY);

    str_addf(&s,
             "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":"
             "\"M\",\"pid\":0,\"args\":"
             "{\"name\":%s}}",
             text);
    for (int r = 0; r < world; r++) {
        add_rank(&s, span, count[r], r);
        span += count[r];
    }
    str_add(&s, "\n]}\n");
    return str_take(&s);
}

/* This rank's notes since BEGUN_NS, counted from there, stretches of one phase joined. */
static int select_spans(struct tr_span *out, const struct tr_clock *clock, uint64_t begun_ns)
{
    int n = 0;

    for (int i = 0; i < clock->spans; i++) {
        struct tr_span s = clock->span[i];

        if (s.end_ns <= begun_ns || s.end_ns == s.begin_ns)
            continue;
        s.begin_ns = s.begin_ns > begun_ns ? s.begin_ns - begun_ns : 0;
        s.end_ns -= begun_ns;
        if (n && out[n - 1].phase == s.phase && out[n - 1].end_ns == s.begin_ns)
            out[n - 1].end_ns = s.end_ns;
        else
            out[n++] = s;
    }
    return n;
}

static void gather(struct tr_group *group, struct tr_span *mine, const int *count,
                   struct tr_span *all)
{
    MPI_Request req;

    if (group->rank != 0) {
        tr_isend(&req, group, mine, (size_t)count[group->rank] * sizeof(*mine), 0, TR_TAG_ACT);
        tr_wait(group->progress, tr_op_of(TR_OP_GATHER, group), &req, 1);
        return;
    }
    memcpy(all, mine, (size_t)count[0] * sizeof(*mine));
    all += count[0];
    for (int r = 1; r < group->size; r++) {
        tr_irecv(&req, group, all, (size_t)count[r] * sizeof(*all), r, TR_TAG_ACT);
        tr_wait(group->progress, (struct tr_op){TR_OP_RECV, group->kind, r}, &req, 1);
        all += count[r];
    }
}

int tr_timeline_write(const char *path, struct tr_group *group, const struct tr_clock *clock,
                      uint64_t begun_ns, const char *title, struct err *error)
{
    AUTO_FREE struct tr_span *mine = mem_alloc((size_t)(clock->spans + 1) * sizeof(*mine)),
                             *all = NULL;
    AUTO_FREE int *n = mem_alloc((size_t)group->size * sizeof(*n));
    AUTO_FREE char *text = NULL;
    size_t total = 0;
    MPI_Request req;
    int own = select_spans(mine, clock, begun_ns);

    MPI_Iallgather(&own, 1, MPI_INT, n, 1, MPI_INT, group->comm, &req);
    tr_wait(group->progress, tr_op_begin(TR_OP_ALL_GATHER, group), &req, 1);
    for (int r = 0; r < group->size; r++)
        total += (size_t)n[r];
    all = mem_alloc((total + 1) * sizeof(*all));
    gather(group, mine, n, all);
    if (group->rank != 0)
        return 0;
    text = trace_json(all, n, group->size, title);
    return file_write_atomic(path, text, strlen(text), 0644, error);
}
