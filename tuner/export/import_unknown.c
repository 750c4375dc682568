/*
 * Arguments that are no setting of the layout. Most are Megatron's own and are listed; what could
 * be a part of the layout all the same (a misspelt argument, a degree under another name, a recipe
 * of Megatron-Bridge) is refused, since Megatron would refuse it, or run another layout.
 */
#include "tuner/export/internal.h"

#include <errno.h>
#include <string.h>

/* Arguments of Megatron's that number something of a parallelism and are not its degree. */
static bool numbers_no_degree(const char *flag)
{
    static const char *const flags[] = {"--ds-sequence-parallel-fpdt-chunk-size",
                                        "--check-weight-hash-across-dp-replicas-interval",
                                        "--delta-offload-bytes-across-pp-ranks",
                                        "--hierarchical-context-parallel-sizes",
                                        "--inprocess-active-world-size",
                                        "--max-seqlen-per-dp-cp-rank",
                                        "--microbatch-group-size-per-vp-stage",
                                        "--num-zero-experts",
                                        NULL};

    for (int i = 0; flags[i]; i++)
        if (str_eq(flags[i], flag))
            return true;
    return str_starts(flag, "--rl-inference-") || str_starts(flag, "--inference-");
}

/* What launchers tell some scripts: the caller's number of devices, whatever variable holds it. */
static bool is_world(const char *flag)
{
    return str_eq(flag, "--world-size");
}

/* Does FLAG's name say that its value is a file, as --fsdp2-config-path's does? */
static bool names_file(const char *flag)
{
    static const char *const endings[] = {"-path", "-file", "-dir", "-config"};

    for (size_t i = 0; i < ARRAY_LEN(endings); i++)
        if (str_ends(flag, endings[i]))
            return true;
    return false;
}

bool tn_megatron_may_be_degree(const char *flag)
{
    return !names_file(flag) && tn_import_is_degree(flag, "2") && !numbers_no_degree(flag) &&
           !is_world(flag) && !strstr(flag, "comm") && !strstr(flag, "ckpt");
}

/* The arguments that are read, as one would have to write them. */
static const char *meant(const char *flag, bool sure)
{
    static const char *const flags[] = {"--tensor-model-parallel-size",
                                        "--pipeline-model-parallel-size",
                                        "--context-parallel-size",
                                        "--expert-model-parallel-size",
                                        "--expert-tensor-parallel-size",
                                        "--micro-batch-size",
                                        "--global-batch-size",
                                        "--seq-length",
                                        "--num-layers-per-virtual-pipeline-stage",
                                        "--num-virtual-stages-per-pipeline-rank",
                                        "--recompute-num-layers",
                                        "--recompute-granularity",
                                        "--recompute-activations",
                                        "--sequence-parallel",
                                        "--use-distributed-optimizer",
                                        "--overlap-grad-reduce",
                                        "--overlap-param-gather",
                                        "--overlap-moe-expert-parallel-comm",
                                        "--tp-comm-overlap",
                                        "--no-overlap-p2p-communication",
                                        "--use-megatron-fsdp",
                                        "--use-torch-fsdp2",
                                        "--pipeline-model-parallel-layout",
                                        "--data-parallel-sharding-strategy",
                                        "--recompute-method",
                                        "--optimizer-cpu-offload",
                                        "--cpu-offloading-num-layers",
                                        NULL};
    AUTO_FREE char *dashed = mem_strdup(flag);

    for (char *p = dashed; *p; p++)
        *p = *p == '_' ? '-' : *p;
    for (int i = 0; flags[i] && !sure; i++)
        if (strstr(flags[i], dashed + 2)) /* one that says more */
            return flags[i];
    return sure ? str_within(dashed, flags, strlen(flag) < 10 ? 0 : 2) : str_nearest(dashed, flags);
}

/* "model.tensor_model_parallel_size=4" or "-tp 4" among VALUE: a recipe of Megatron-Bridge. */
static bool sets_a_recipe(const char *value)
{
    AUTO_FREE char *copy = mem_strdup(value ? value : "");
    char *save = NULL;

    for (char *word = strtok_r(copy, " ", &save), *next; word; word = next) {
        char *equals = strchr(word, '=');

        next = strtok_r(NULL, " ", &save);
        if (equals)
            *equals++ = '\0';
        if (equals ? tn_import_is_degree(word, equals)
                   : (*word == '-' && next && tn_import_is_degree(word + 1, next)))
            return true;
    }
    return false;
}

static bool is_recipe(const char *flag, const char *value)
{
    static const char *const recipes[] = {"--recipe", "--model_recipe_name", "--model_family_name",
                                          NULL};

    for (int i = 0; recipes[i]; i++)
        if (str_eq(recipes[i], flag))
            return true;
    return sets_a_recipe(value);
}

int tn_megatron_unknown(struct tn_imported *out, const char *flag, const char *value,
                        struct err *error)
{
    const char *near = meant(flag, true);
    int64_t world = 0;

    if (is_world(flag) && value && str_to_i64(&world, value, 1, 1 << 24) == 0 &&
        world == out->layout.world)
        return 0;
    if (is_recipe(flag, value))
        return err_set(
            error, -EINVAL,
            "`%.64s%s%.64s` changes a recipe of Megatron-Bridge, whose own layout is not "
            "in this text: write it as Megatron-LM's arguments",
            flag, value ? " " : "", value ? value : "");
    if (str_eq(flag, "--yaml-cfg"))
        return err_set(error, -EINVAL,
                       "%s takes the degrees from a file, whatever the other arguments are: write "
                       "them out",
                       flag);
    if (str_eq(flag, "--use-mp-args-from-checkpoint-args"))
        return err_set(error, -EINVAL, "%s takes the degrees from a checkpoint: write them out",
                       flag);
    if (strchr(flag, ':'))
        return err_set(error, -EINVAL,
                       "`%.64s` is not an argument; a YAML file has them below `MODEL_ARGS:`",
                       flag);
    if (near)
        return err_set(error, -EINVAL, "Megatron-LM has no argument `%.64s`; did you mean `%s`?",
                       flag, near);
    if (!tn_import_is_degree(flag, value) || numbers_no_degree(flag)) {
        tn_finding_add(&out->ignored, flag, "not a setting of the layout%s%.100s",
                       value ? ": " : "", value ? value : "");
        return 0;
    }
    near = meant(flag, false);
    return err_set(error, -EINVAL,
                   "`%.64s %.40s` looks like a degree, but is not a known argument of "
                   "Megatron-LM%s%s%s",
                   flag, value, near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
}
