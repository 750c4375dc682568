/* Private to plan/: what the rules of legality share. */
#ifndef PLAN_LEGAL_H
#define PLAN_LEGAL_H

#include "plan/plan.h"

/* One layout under judgement. */
struct pl_check {
    const struct pl_problem *problem;
    const struct pl_layout *layout;
    struct pl_verdict *verdict; /* NULL: only the answer matters */
    const char *rule;
    bool model_known; /* the trainer can train the model: known already */
    bool broken;
};

/* The rule of CHECK is broken; KEY is at fault first. */
void pl_breaks(struct pl_check *check, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The rule trainer-supports: model features, then layout keys, each by its own name and the
 * trainer's. */
void pl_trainer_supports(struct pl_check *check);

/* Of it the model's features alone, which are alike in all layouts. */
void pl_trainer_trains(struct pl_check *check);

/* Has the problem's model what its trainer cannot train in any layout? Then BUF gets the sentence
 * that says so, with all that it is; a short BUF loses its end. */
bool pl_model_unsupported(char *buf, size_t size, const struct pl_problem *problem);

/* Of it what the trainer does by itself, and cannot be told to leave. */
void pl_trainer_by_itself(struct pl_check *check);

/* What of it depends on several keys at once, a function a trainer: pl_trainer.limits. */
void pl_partune_limits(struct pl_check *check);
void pl_megatron_limits(struct pl_check *check);
void pl_torchtitan_limits(struct pl_check *check);
void pl_deepspeed_limits(struct pl_check *check);

/* A key of what is in host memory that a trainer does not support, if BROKEN, together WITH
 * something. */
struct pl_unoffloaded {
    bool broken;
    enum pl_key key;
    const char *with;
};

/* The keys of COUNT such limits that the layout has. */
void pl_limit_offload(struct pl_check *check, const struct pl_unoffloaded *limit, size_t count);

#endif
