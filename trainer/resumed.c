#include "trainer/resumed.h"

#include "base/base.h"

/* The learning rate keeps its horizon, unless another is given. */
static void keep_horizon(struct tr_events *events, const struct tr_config *config,
                         const struct tr_ckpt_state *state, struct tr_optim *optim)
{
    const struct tr_train *t = &config->train;
    int next = state->step + 1, had = state->lr_decay_steps;
    double now = tr_optim_lr(optim, next);
    struct tr_optim before = *optim;
    char text[240] = "";

    before.decay_steps = had;
    if (had && !t->lr_decay_steps)
        *optim = before;
    if (config->mode != TR_MODE_TRAIN || state->step >= t->steps)
        return;
    if (!had && !t->lr_decay_steps)
        snprintf(
            text, sizeof(text),
            "the checkpoint does not say at which step its learning rate reaches min_lr: using "
            "--steps %d (--lr-decay-steps sets another)",
            t->steps);
    else if (had && t->lr_decay_steps && t->lr_decay_steps != had)
        snprintf(text, sizeof(text),
                 "the checkpoint was trained with --lr-decay-steps %d, this run has %d: step %d "
                 "has the learning rate %g instead of %g",
                 had, t->lr_decay_steps, next, now, tr_optim_lr(&before, next));
    else if (had && !t->lr_decay_steps && t->steps > had)
        snprintf(text, sizeof(text),
                 "the checkpoint was trained with --lr-decay-steps %d, and --steps is %d: the "
                 "learning rate is %g from step %d on (--lr-decay-steps %d stretches its decay)",
                 had, t->steps, t->min_lr, had, t->steps);
    if (*text)
        tr_event_warning(events, "other-horizon", text);
}

void tr_resumed(struct tr_events *events, const struct tr_config *config,
                const struct tr_ckpt_state *state, const char *path, struct tr_optim *optim)
{
    char text[200];

    tr_event_resumed(events, state->step, path);
    keep_horizon(events, config, state, optim);
    if (state->format < 2)
        tr_event_warning(events, "old-checkpoint",
                         "its trainer.json has no checksums (format 1): a damaged step or data "
                         "position would not be noticed");
    if (state->seed != config->train.seed) {
        snprintf(text, sizeof(text),
                 "the checkpoint was trained with the seed %lld; samples continue in the order of "
                 "seed %d",
                 (long long)state->seed, config->train.seed);
        tr_event_warning(events, "other-seed", text);
    }
    if (!str_eq(state->data, config->workload.data)) {
        snprintf(text, sizeof(text),
                 "the checkpoint was trained on %.63s; its data position continues in %.63s",
                 state->data, config->workload.data);
        tr_event_warning(events, "other-data", text);
    }
}
