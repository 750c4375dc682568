/*
 * Parameter groups: settings of the optimizer for some tensors, as the groups of torch.optim and
 * Megatron-LM's lr_mult, wd_mult and --decoupled-lr.
 *
 * A tensor belongs to the first group whose pattern matches its name (fnmatch(3) without flags: *
 * matches any characters), the name that it has in model.safetensors of a checkpoint. Groups are
 * settings like the learning rate, not state: checkpoints do not have them.
 */
#ifndef TRAINER_PARAM_GROUPS_H
#define TRAINER_PARAM_GROUPS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "plan/plan.h"
#include "trainer/lr.h"

enum { TR_PARAM_GROUPS_MAX = 32 };

struct tr_param_group {
    char match[96];
    double lr, min_lr;   /* of the schedule; NaN: the run's */
    double lr_mult;      /* 1 */
    double weight_decay; /* NaN: the run's */
    double wd_mult;      /* 1 */
    bool decays;         /* it names a decay, which is of vectors too; else of matrices only */
};

struct tr_param_groups {
    int count;
    struct tr_param_group v[TR_PARAM_GROUPS_MAX];
};

/* Of ARRAY: objects with `match` and any of lr, min_lr, lr_mult, weight_decay, wd_mult. LR: the
 * run's schedule. -EINVAL names the key under /train/param_groups: bounds, unknown keys, a min_lr
 * that is more than the lr it belongs to. */
int tr_param_groups_parse(struct tr_param_groups *ret, const json_t *array, const struct tr_lr *lr,
                          struct err *error);

/* Each group has a tensor of MODEL; -EINVAL names the first one without. */
int tr_param_groups_check(const struct tr_param_groups *groups, const struct pl_model *model,
                          struct err *error);

/* The number of the group of the tensor called NAME, from 1; 0: none. */
int tr_param_groups_find(const struct tr_param_groups *groups, const char *name);

/* What group NUMBER, or (0) a tensor without one, makes of the run's settings: the learning rate at
 * STEP, and the decay of a matrix or (MATRIX false) a vector where the run's is DECAY. */
double tr_param_groups_lr(const struct tr_param_groups *groups, int number, const struct tr_lr *lr,
                          int step);
double tr_param_groups_decay(const struct tr_param_groups *groups, int number, double decay,
                             bool matrix);

#endif
