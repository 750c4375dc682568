#include "trainer/resumed.h"

#include "base/base.h"

/* The schedule that the checkpoint was trained with, at this run's learning rates. */
static struct tr_lr former(const struct tr_ckpt_state *state, struct tr_lr now)
{
    now.decay_steps = state->lr_decay_steps;
    now.style = state->lr_decay_style;
    now.wsd_style = state->lr_wsd_decay_style;
    now.wsd_steps = state->lr_wsd_decay_steps;
    return now;
}

static bool same_style(const struct tr_lr *left, const struct tr_lr *right)
{
    return left->style == right->style &&
           (left->style != TR_LR_WSD ||
            (left->wsd_style == right->wsd_style && left->wsd_steps == right->wsd_steps));
}

static void style_text(char *ret, size_t size, const struct tr_lr *lr)
{
    if (lr->style == TR_LR_WSD)
        snprintf(ret, size, "wsd (%s over %d steps)", tr_wsd_style_names[lr->wsd_style],
                 lr->wsd_steps);
    else
        snprintf(ret, size, "%s", tr_lr_style_names[lr->style]);
}

/* What the settings change of the schedule BEFORE that the checkpoint has; empty: nothing. */
static void changes(char *ret, size_t size, const struct tr_train *train, int next,
                    const struct tr_lr *before, const struct tr_lr *after)
{
    int had = before->decay_steps, given = train->lr_decay_steps;
    double was = tr_lr_at(before, next), now = tr_lr_at(after, next);
    char theirs[64], ours[64];

    style_text(theirs, sizeof(theirs), before);
    style_text(ours, sizeof(ours), after);
    if (!same_style(before, after))
        snprintf(
            ret, size,
            "the checkpoint was trained with --lr-decay-style %s, this run has %s: step %d has "
            "the learning rate %g instead of %g",
            theirs, ours, next, now, was);
    else if (after->style == TR_LR_CONSTANT)
        *ret = 0;
    else if (given && given != had)
        snprintf(ret, size,
                 "the checkpoint was trained with --lr-decay-steps %d, this run has %d: step %d "
                 "has the learning rate %g instead of %g",
                 had, given, next, now, was);
    else if (!given && train->steps > had)
        snprintf(ret, size,
                 "the checkpoint was trained with --lr-decay-steps %d, and --steps is %d: the "
                 "learning rate is %g from step %d on (--lr-decay-steps %d stretches its decay)",
                 had, train->steps, train->min_lr, had, train->steps);
}

/* The learning rate keeps its horizon and its style, unless others are given. */
static void keep_schedule(struct tr_events *events, const struct tr_config *config,
                          const struct tr_ckpt_state *state, struct tr_lr *schedule)
{
    const struct tr_train *t = &config->train;
    struct tr_lr before = former(state, *schedule);
    char text[320] = "";

    if (!t->lr_decay_style) {
        schedule->style = before.style;
        schedule->wsd_style = before.wsd_style;
        schedule->wsd_steps = before.wsd_steps;
    }
    if (before.decay_steps && !t->lr_decay_steps)
        schedule->decay_steps = before.decay_steps;
    if (config->mode != TR_MODE_TRAIN || state->step >= t->steps)
        return;
    if (before.decay_steps)
        changes(text, sizeof(text), t, state->step + 1, &before, schedule);
    else if (!t->lr_decay_steps)
        snprintf(
            text, sizeof(text),
            "the checkpoint does not say at which step its learning rate reaches min_lr: using "
            "--steps %d (--lr-decay-steps sets another)",
            t->steps);
    if (*text)
        tr_event_warning(events, "other-horizon", text);
}

/* The data position means other samples in other data, and with other weights. A checkpoint of an
 * earlier version has the name only. */
static void compare_data(struct tr_events *events, const struct tr_config *config,
                         const struct tr_ckpt_state *state, const struct tr_identity *sources)
{
    const char *had = state->data, *has = config->workload.data;
    char text[700], what[450];

    if (state->sources.count ? !tr_identity_differs(what, sizeof(what), &state->sources, sources)
                             : str_eq(had, has))
        return;
    if (str_eq(had, has))
        snprintf(text, sizeof(text),
                 "the checkpoint was trained on another %.63s: %s; its data position continues in "
                 "this one",
                 had, what);
    else
        snprintf(text, sizeof(text),
                 "the checkpoint was trained on %.63s; its data position continues in %.63s", had,
                 has);
    tr_event_warning(events, "other-data", text);
}

void tr_resumed(struct tr_events *events, const struct tr_config *config,
                const struct tr_ckpt_state *state, const struct tr_identity *sources,
                const char *path, struct tr_optim *optim)
{
    char text[200];

    tr_event_resumed(events, state->step, path);
    keep_schedule(events, config, state, &optim->schedule);
    if (state->format < 2)
        tr_event_warning(events, "old-checkpoint",
                         "its trainer.json has no checksums (format 1): a damaged step or data "
                         "position would go unnoticed");
    if (state->seed != config->train.seed) {
        snprintf(text, sizeof(text),
                 "the checkpoint was trained with the seed %lld; samples continue in the order of "
                 "seed %d",
                 (long long)state->seed, config->train.seed);
        tr_event_warning(events, "other-seed", text);
    }
    compare_data(events, config, state, sources);
}
