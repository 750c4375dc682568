/*
 * The pipeline simulator: a schedule event by event. A part of plan.h.
 */
#ifndef PLAN_PIPE_H
#define PLAN_PIPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "plan/cost.h"
#include "plan/layout.h"

/* Seconds of one micro-batch on one stage's chunk; backward includes what is computed again. Of a
 * split backward pass (zero-bubble), `weight` is the part that nothing waits for. */
struct pl_stage_time {
    double forward, backward, weight;
};

struct pl_pipe {
    enum pl_schedule schedule;
    int pp, vp, microbatches;
    const struct pl_stage_time *at; /* of each virtual stage */
    double message_s;
    bool overlap; /* messages travel while the receiver computes */
    /* Seconds of a message between virtual stages i and i + 1, in place of message_s; NULL: all
     * take that. The closed form has no such pipe. */
    const double *border_s;
};

struct pl_span {
    double start, end;
    int stage, chunk, mb, op; /* enum pl_step_op */
};

struct pl_timeline {
    struct pl_span *span; /* stage after stage, each in order of time */
    size_t n;
    double total; /* seconds from the first start to the last end */
    double idle;  /* share of all stages' time that is bubble */
};

/* Execute the schedule by events. -EINVAL: the shape has no schedule, -EDEADLK: it cannot end. */
int pl_simulate(struct pl_timeline *ret, const struct pl_pipe *pipe, struct err *error);
void pl_timeline_done(struct pl_timeline *timeline);
/* The pipeline of a legal layout as the cost model sees it; the caller frees *STORE, its times. */
void pl_pipe_of(struct pl_pipe *ret, struct pl_stage_time **store, struct pl_cost_ctx *ctx,
                const struct pl_layout *layout);
/* Seconds of the same pipeline in closed form: steady state, bubble and messages. */
double pl_pipe_seconds(const struct pl_pipe *pipe);
/* As a Chrome trace: a lane for each stage, microseconds. */
json_t *pl_timeline_trace(const struct pl_timeline *timeline);

#endif
