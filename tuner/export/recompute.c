/*
 * Recomputation as Megatron-LM's arguments say it. Today: a granularity, for "full" a method and a
 * number of layers, for "selective" modules; --recompute-activations is "selective" whatever the
 * granularity (megatron/training/arguments.py). Versions before 3.0 recomputed whole layers by
 * --checkpoint-activations, in chunks of --checkpoint-num-layers, or by
 * --activations-checkpoint-method with --activations-checkpoint-num-layers; Megatron-DeepSpeed has
 * kept the former beside the new ones.
 */
#include "tuner/export/recompute.h"

#include <errno.h>

static const char GRANULARITY[] = "--recompute-granularity", METHOD[] = "--recompute-method",
                  MODULES[] = "--recompute-modules",
                  OLD_METHOD[] = "--activations-checkpoint-method",
                  OLD_FLAG[] = "--checkpoint-activations";

bool *tn_megatron_recompute_flag(struct tn_recompute *recompute, const char *flag)
{
    if (str_eq(flag, "--recompute-activations"))
        return &recompute->activations;
    if (str_eq(flag, "--moe-layer-recompute"))
        return &recompute->moe_layer;
    return str_eq(flag, OLD_FLAG) ? &recompute->checkpoint : NULL;
}

int *tn_megatron_recompute_number(struct tn_recompute *recompute, const char *flag)
{
    if (str_eq(flag, "--recompute-num-layers"))
        return &recompute->layers;
    return str_eq(flag, "--checkpoint-num-layers") ||
                   str_eq(flag, "--activations-checkpoint-num-layers")
               ? &recompute->checkpoint_layers
               : NULL;
}

bool tn_megatron_recompute_takes_word(const char *flag)
{
    return str_eq(flag, GRANULARITY) || str_eq(flag, METHOD) || str_eq(flag, OLD_METHOD);
}

/* VALUE is one of two words. */
static int one_of(const char *flag, const char *value, const char *first, const char *second,
                  struct err *error)
{
    return str_eq(value, first) || str_eq(value, second)
               ? 0
               : err_set(error, -EINVAL, "%s must be `%s` or `%s`, not `%.40s`", flag, first,
                         second, value ? value : "");
}

static void read_modules(struct tn_imported *out, const char *value)
{
    const char *unknown = NULL;

    if (value)
        tn_megatron_read_modules(&unknown, &out->layout, value);
    if (unknown)
        tn_finding_add(&out->ignored, MODULES, "modules without a layout key: %.100s", unknown);
}

int tn_megatron_recompute_word(bool *ret_known, struct tn_recompute *recompute,
                               struct tn_imported *out, const char *flag, const char *value,
                               struct err *error)
{
    int r = 0;

    *ret_known = true;
    if (str_eq(flag, GRANULARITY)) {
        r = one_of(flag, value, "full", "selective", error);
        if (r == 0)
            recompute->granularity =
                str_eq(value, "full") ? PL_RECOMPUTE_FULL : PL_RECOMPUTE_SELECTIVE;
    } else if (str_eq(flag, METHOD)) {
        r = one_of(flag, value, "uniform", "block", error);
        recompute->method_said = true;
        recompute->block = str_eq(value, "block");
    } else if (str_eq(flag, OLD_METHOD)) {
        r = one_of(flag, value, "uniform", "block", error);
        snprintf(recompute->checkpoint_method, sizeof(recompute->checkpoint_method), "%s",
                 r == 0 ? value : "");
    } else if (str_eq(flag, MODULES)) {
        recompute->modules_said = true;
        read_modules(out, value);
    } else {
        *ret_known = false;
    }
    return r;
}

/* Whole layers, N at a time or in all; more of them than a virtual stage has are all: the canonical
 * form says so. */
static void full(struct pl_layout *layout, bool block, int n)
{
    int most = pl_layout_keys[PL_KEY_RE_LAYERS].max;

    layout->recompute = PL_RECOMPUTE_FULL;
    layout->recompute_method = block ? PL_RECOMPUTE_BLOCK : PL_RECOMPUTE_UNIFORM;
    layout->recompute_num_layers = n > most ? most : n ? n : 1;
}

static void say_unused(struct tn_imported *out, const struct tn_recompute *recompute)
{
    if (recompute->method_said)
        tn_finding_add(&out->ignored, METHOD, "applies only with full");
    if (recompute->layers)
        tn_finding_add(&out->ignored, "--recompute-num-layers", "applies only with full");
    if (recompute->checkpoint_layers)
        tn_finding_add(&out->ignored, "--checkpoint-num-layers", "applies only with %s", OLD_FLAG);
}

void tn_megatron_recompute_read(struct tn_imported *out, const struct tn_recompute *recompute)
{
    struct pl_layout *l = &out->layout;
    bool checkpoint = recompute->checkpoint || *recompute->checkpoint_method;

    l->recompute = recompute->activations ? PL_RECOMPUTE_SELECTIVE : recompute->granularity;
    if (checkpoint) {
        full(l, str_eq(recompute->checkpoint_method, "block"), recompute->checkpoint_layers);
    } else if (l->recompute == PL_RECOMPUTE_FULL) {
        full(l, recompute->block, recompute->layers);
    } else {
        if (recompute->moe_layer) {
            l->recompute = PL_RECOMPUTE_SELECTIVE;
            l->recompute_moe = 1;
            l->recompute_core_attn |= !recompute->modules_said; /* the default of modules */
        }
        say_unused(out, recompute);
    }
}
