#include "trainer/param_groups.h"

#include "base/base.h"
#include "trainer/archive.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>

#define AT "/train/param_groups"

static int parse_one(struct tr_param_group *ret, const json_t *object, const struct tr_lr *lr,
                     struct err *error)
{
    static const char *const keys[] = {"match",        "lr",      "min_lr", "lr_mult",
                                       "weight_decay", "wd_mult", NULL};
    struct tr_param_group *g = ret;
    double wd_mult = (double)NAN;
    int r;

    *g = (struct tr_param_group){
        .lr = (double)NAN, .min_lr = (double)NAN, .lr_mult = 1, .weight_decay = (double)NAN};
    if ((r = jx_keys(object, keys, error)) < 0 || (r = jx_need(object, "match", error)) < 0 ||
        (r = jx_copy_str(g->match, sizeof(g->match), object, "match", error)) < 0 ||
        (r = jx_get_f64(&g->lr, object, "lr", 0, 1e3, error)) < 0 ||
        (r = jx_get_f64(&g->min_lr, object, "min_lr", 0, 1e3, error)) < 0 ||
        (r = jx_get_f64(&g->lr_mult, object, "lr_mult", 0, 1e6, error)) < 0 ||
        (r = jx_get_f64(&g->weight_decay, object, "weight_decay", 0, 1e3, error)) < 0 ||
        (r = jx_get_f64(&wd_mult, object, "wd_mult", 0, 1e6, error)) < 0)
        return r;
    g->decays = !isnan(g->weight_decay) || !isnan(wd_mult);
    g->wd_mult = isnan(wd_mult) ? 1 : wd_mult;
    if (!isnan(g->lr) || !isnan(g->min_lr)) {
        double high = isnan(g->lr) ? lr->lr : g->lr,
               low = isnan(g->min_lr) ? lr->min_lr : g->min_lr;

        if (low > high)
            return err_at(error, -EINVAL, "/min_lr",
                          "min_lr %g is more than lr %g in the group of \"%s\"", low, high,
                          g->match);
    }
    return 0;
}

int tr_param_groups_parse(struct tr_param_groups *ret, const json_t *array, const struct tr_lr *lr,
                          struct err *error)
{
    struct tr_param_groups groups = {0};

    if (!json_is_array(array))
        return err_at(error, -EINVAL, AT, "param_groups is not an array");
    if (json_array_size(array) > TR_PARAM_GROUPS_MAX)
        return err_at(error, -EINVAL, AT, "param_groups has %zu groups; at most %d are allowed",
                      json_array_size(array), TR_PARAM_GROUPS_MAX);
    for (size_t i = 0; i < json_array_size(array); i++) {
        int r = parse_one(&groups.v[groups.count++], json_array_get(array, i), lr, error);

        if (r < 0) {
            AUTO_FREE char *at = mem_printf(AT "/%zu", i);

            return err_under(error, at);
        }
    }
    *ret = groups;
    return 0;
}

int tr_param_groups_check(const struct tr_param_groups *groups, const struct pl_model *model,
                          struct err *error)
{
    bool used[TR_PARAM_GROUPS_MAX + 1] = {false};
    struct pl_params all;

    if (!groups->count)
        return 0;
    tr_archive_whole(&all, model);
    for (int i = 0; i < all.n; i++)
        used[tr_param_groups_find(groups, all.p[i].name)] = true;
    pl_params_done(&all);
    for (int i = 0; i < groups->count; i++)
        if (!used[i + 1]) {
            AUTO_FREE char *at = mem_printf(AT "/%d/match", i);

            return err_at(error, -EINVAL, at,
                          "\"%s\" matches no parameter of the model that an earlier group does not "
                          "have; names are those of model.safetensors in checkpoints, as "
                          "model.embed_tokens.weight",
                          groups->v[i].match);
        }
    return 0;
}

int tr_param_groups_find(const struct tr_param_groups *groups, const char *name)
{
    for (int i = 0; i < groups->count; i++)
        if (fnmatch(groups->v[i].match, name, 0) == 0)
            return i + 1;
    return 0;
}

static const struct tr_param_group *group_of(const struct tr_param_groups *groups, int number)
{
    assert(number >= 0 && number <= groups->count);
    return number ? &groups->v[number - 1] : NULL;
}

double tr_param_groups_lr(const struct tr_param_groups *groups, int number, const struct tr_lr *lr,
                          int step)
{
    const struct tr_param_group *group = group_of(groups, number);
    struct tr_lr own = *lr;

    if (!group)
        return tr_lr_at(lr, step);
    if (!isnan(group->lr))
        own.lr = group->lr;
    if (!isnan(group->min_lr))
        own.min_lr = group->min_lr;
    return group->lr_mult * tr_lr_at(&own, step);
}

double tr_param_groups_decay(const struct tr_param_groups *groups, int number, double decay,
                             bool matrix)
{
    const struct tr_param_group *group = group_of(groups, number);

    if (!group || !group->decays)
        return matrix ? decay : 0;
    return group->wd_mult * (isnan(group->weight_decay) ? decay : group->weight_decay);
}
