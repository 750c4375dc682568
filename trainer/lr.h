/*
 * The learning rate of a step. Styles and formulas are Megatron-LM's (OptimizerParamScheduler in
 * megatron/core/optimizer_param_scheduler.py, --lr-decay-style): linear to the peak over the
 * warm-up, then what the style says; from the horizon on all but `constant` have the minimum.
 */
#ifndef TRAINER_LR_H
#define TRAINER_LR_H

enum tr_lr_style {
    TR_LR_COSINE,
    TR_LR_LINEAR,
    TR_LR_WSD,         /* warm-up, stable, decay: the peak until wsd_steps before the horizon */
    TR_LR_CONSTANT,    /* the peak, for ever */
    TR_LR_INVERSE_SQRT /* peak x sqrt(warm-up / step), at least the minimum */
};

/* How wsd decays, t from 0 to 1: 2^(1-t) - 1, 1 - t, (1 + cos pi t) / 2, 1 - sqrt(t). */
enum tr_wsd_style { TR_WSD_EXPONENTIAL, TR_WSD_LINEAR, TR_WSD_COSINE, TR_WSD_MINUS_SQRT };

extern const char *const tr_lr_style_names[];  /* "cosine" ..., NULL */
extern const char *const tr_wsd_style_names[]; /* "exponential" ..., NULL */

/* Index of WORD in NAMES, -1 if it is not there. */
int tr_lr_word(const char *const *names, const char *word);

struct tr_lr {
    double lr, min_lr;
    int warmup_steps, decay_steps; /* decay_steps: the horizon */
    enum tr_lr_style style;
    enum tr_wsd_style wsd_style; /* of wsd, as is: */
    int wsd_steps;
};

/* Learning rate of STEP, counted from 1. */
double tr_lr_at(const struct tr_lr *lr, int step);

#endif
