/* The settings that depend on each other, on the model or the workload: the schedule of the
 * learning rate, the batch ramp, parameter groups, checkpoints. */
#include "base/base.h"
#include "trainer/config.h"

#include <errno.h>

/* WORD, if there is one, must be one of NAMES: the value of KEY of train. */
static int check_word(const char *key, const char *word, const char *const *names,
                      struct err *error)
{
    AUTO_FREE char *at = mem_printf("/train/%s", key);
    AUTO_STR list = {0};

    if (!word || tr_lr_word(names, word) >= 0)
        return 0;
    for (int i = 0; names[i]; i++)
        str_addf(&list, "%s%s", i ? ", " : "", names[i]);
    return err_at(error, -EINVAL, at, "%s \"%.40s\" is unknown (%s)", key, word, str_text(&list));
}

static int check_wsd(const struct tr_train *train, bool trains, struct err *error)
{
    bool wsd = str_eq(train->lr_decay_style, tr_lr_style_names[TR_LR_WSD]);
    int horizon = train->lr_decay_steps;

    if (!horizon && trains)
        horizon = train->steps;
    if (wsd && !train->lr_wsd_decay_steps)
        return err_at(error, -EINVAL, "/train/lr_wsd_decay_steps",
                      "lr_decay_style wsd needs lr_wsd_decay_steps, the steps of its decay");
    if (!wsd && (train->lr_wsd_decay_steps || train->lr_wsd_decay_style))
        return err_at(error, -EINVAL, "/train/lr_decay_style", "%s is for lr_decay_style wsd only",
                      train->lr_wsd_decay_steps ? "lr_wsd_decay_steps" : "lr_wsd_decay_style");
    if (wsd && horizon && train->lr_wsd_decay_steps > horizon - train->warmup_steps)
        return err_at(error, -EINVAL, "/train/lr_wsd_decay_steps",
                      "lr_wsd_decay_steps %d and warmup_steps %d are more than the %d steps until "
                      "the horizon (--lr-decay-steps, else --steps)",
                      train->lr_wsd_decay_steps, train->warmup_steps, horizon);
    return 0;
}

int tr_train_check(const struct tr_train *train, bool trains, struct err *error)
{
    int r = check_word("lr_decay_style", train->lr_decay_style, tr_lr_style_names, error);

    if (r == 0)
        r = check_word("lr_wsd_decay_style", train->lr_wsd_decay_style, tr_wsd_style_names, error);
    if (r < 0)
        return r;
    if (train->min_lr > train->lr)
        return err_at(error, -EINVAL, "/train/min_lr", "min_lr %g is more than lr %g",
                      train->min_lr, train->lr);
    if (train->lr_decay_steps && train->lr_decay_steps <= train->warmup_steps)
        return err_at(error, -EINVAL, "/train/lr_decay_steps",
                      "lr_decay_steps %d is not more than warmup_steps %d (--lr-warmup)",
                      train->lr_decay_steps, train->warmup_steps);
    return check_wsd(train, trains, error);
}

struct tr_lr tr_train_lr(const struct tr_train *train)
{
    int style = tr_lr_word(tr_lr_style_names, train->lr_decay_style);
    int wsd = tr_lr_word(tr_wsd_style_names, train->lr_wsd_decay_style);

    return (struct tr_lr){.lr = train->lr,
                          .min_lr = train->min_lr,
                          .warmup_steps = train->warmup_steps,
                          .decay_steps =
                              train->lr_decay_steps ? train->lr_decay_steps : train->steps,
                          .style = style < 0 ? TR_LR_COSINE : (enum tr_lr_style)style,
                          .wsd_style = wsd < 0 ? TR_WSD_EXPONENTIAL : (enum tr_wsd_style)wsd,
                          .wsd_steps = train->lr_wsd_decay_steps};
}

/* Trials measure the full batch. */
static int take_ramp(struct tr_config *config, struct err *error)
{
    struct tr_ramp ramp;
    int r = 0;

    if (!config->train.rampup_batch_size)
        return 0;
    r = tr_ramp_parse(&ramp, config->train.rampup_batch_size, config->workload.global_batch, error);
    if (r == 0 && config->mode == TR_MODE_TRAIN)
        config->ramp = ramp;
    return r;
}

static int take_groups(struct tr_config *config, struct err *error)
{
    const char *text = config->train.param_groups;
    struct tr_lr lr = tr_train_lr(&config->train);
    AUTO_JSON *array = NULL;
    int r;

    if (!text)
        return 0;
    r = jx_parse(&array, text, strlen(text), error);
    if (r < 0)
        return err_wrap(error, "--param-groups");
    r = tr_param_groups_parse(&config->groups, array, &lr, error);
    return r < 0 ? r : tr_param_groups_check(&config->groups, &config->model, error);
}

int tr_train_take(struct tr_config *config, struct err *error)
{
    int r = take_ramp(config, error);

    return r < 0 ? r : take_groups(config, error);
}

int tr_checkpointing_check(const struct tr_checkpointing *checkpoint, struct err *error)
{
    if (!checkpoint->dir &&
        (checkpoint->every || checkpoint->resume || checkpoint->keep || checkpoint->async))
        return err_at(error, -EINVAL, "/checkpoint/dir",
                      "checkpoints need a folder: --checkpoint DIR");
    return 0;
}

bool tr_checkpointing_copies(const struct tr_checkpointing *checkpoint)
{
    return checkpoint->async && checkpoint->every > 0;
}
