/*
 * Megatron-LM's command line arguments as a layout (megatron/training/arguments.py). Virtual stages
 * may be said in several ways (import_stages.c); expert tensor parallelism defaults to tp, sharding
 * under FSDP to zero 3, the global batch to one micro-batch of every replica.
 *
 * The text is a shell script or a command line (import_shell.c). What only a shell could tell is an
 * error where it would have to be read, and listed everywhere else.
 */
#include "tuner/export/grads.h"
#include "tuner/export/megatron_deepspeed.h"
#include "tuner/export/offload.h"
#include "tuner/export/paths.h"
#include "tuner/export/recompute.h"
#include "tuner/export/router_losses.h"
#include "tuner/export/switches.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static int positive(int *ret, const char *key, const char *value, struct err *error)
{
    int64_t v;

    if (!value || tn_import_whole(&v, value, 1, 1 << 24) < 0)
        return err_set(error, -EINVAL, "%.64s must be a positive integer, not `%.64s`", key,
                       value ? value : "");
    *ret = (int)v;
    return 0;
}

struct megatron {
    struct tn_imported *out;
    struct tn_paths *paths;
    struct pl_layout *l;
    const struct pl_model *m;
    struct tn_megatron_stages stages;
    struct tn_megatron_deepspeed deepspeed;
    int instances; /* of the distributed optimizer */
    int fsdp_zero; /* what --data-parallel-sharding-strategy says; counts with Megatron-FSDP only */
    struct tn_router_losses losses;
    struct tn_words words;
    const char *text;
    size_t at;                               /* the next word */
    int weight_shards, expert_weight_shards; /* 0: not said, which is tp and etp */
    bool etp_said, no_overlap_p2p, strategy_said, no_fusion, fsdp, torch_fsdp, torch_fsdp_keeps;
    bool degree_said, batch_said, reuse;
    bool none_said; /* a variable among the arguments is taken as empty */
    struct tn_recompute recompute;
    struct tn_narrow narrow;
    struct tn_dispatch dispatch;
    struct tn_offload offload;
    struct tn_grads grads;
    bool deepep, graph; /* --moe-enable-deepep, --enable-cuda-graph and --external-cuda-graph */
};

/* Flags with an integer that lands in a field. */
static int *megatron_number(struct megatron *import, const char *flag)
{
    const struct {
        const char *flag;
        int *field;
    } rows[] = {
        {"--tensor-model-parallel-size", &import->l->tp},
        {"--pipeline-model-parallel-size", &import->l->pp},
        {"--context-parallel-size", &import->l->cp},
        {"--expert-model-parallel-size", &import->l->ep},
        {"--expert-tensor-parallel-size", &import->l->etp},
        {"--micro-batch-size", &import->l->micro_batch},
        {"--global-batch-size", &import->out->global_batch},
        {"--seq-length", &import->out->seq},
        {"--num-distributed-optimizer-instances", &import->instances},
        {"--num-layers-per-virtual-pipeline-stage", &import->stages.layers_per_virtual},
        {"--num-virtual-stages-per-pipeline-rank", &import->stages.virtual_stages},
        {"--decoder-first-pipeline-num-layers", &import->stages.first},
        {"--decoder-last-pipeline-num-layers", &import->stages.last},
        {"--tensor-parallel-num-weight-shards", &import->weight_shards},
        {"--expert-tensor-parallel-num-weight-shards", &import->expert_weight_shards},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i].flag, flag))
            return rows[i].field;
    if (tn_megatron_recompute_number(&import->recompute, flag))
        return tn_megatron_recompute_number(&import->recompute, flag);
    return tn_megatron_deepspeed_number(&import->deepspeed, flag);
}

/* The field that notes FLAG, one without a value, or NULL. */
static bool *megatron_note(struct megatron *import, const char *flag)
{
    const struct {
        const char *flag;
        bool *field;
    } notes[] = {
        {"--no-overlap-p2p-communication", &import->no_overlap_p2p},
        {"--use-megatron-fsdp", &import->fsdp},
        {"--no-gradient-accumulation-fusion", &import->no_fusion}, /* which goes with it */
        {"--use-custom-fsdp", &import->fsdp},                      /* its name before */
        {"--moe-enable-deepep", &import->deepep},
        {"--enable-cuda-graph", &import->graph},
        {"--external-cuda-graph", &import->graph},
        {"--use-torch-fsdp2", &import->torch_fsdp},
        {"--torch-fsdp2-no-reshard-after-forward", &import->torch_fsdp_keeps},
        {"--reuse-grad-buf-for-mxfp8-param-ag", &import->reuse}, /* goes with gathering mxfp8 */
        {"--account-for-embedding-in-pipeline-split", &import->stages.embedding},
        {"--account-for-loss-in-pipeline-split", &import->stages.loss},
    };

    for (size_t i = 0; i < ARRAY_LEN(notes); i++)
        if (str_eq(notes[i].flag, flag))
            return notes[i].field;
    if (tn_megatron_grads_flag(&import->grads, flag))
        return tn_megatron_grads_flag(&import->grads, flag);
    if (tn_megatron_recompute_flag(&import->recompute, flag))
        return tn_megatron_recompute_flag(&import->recompute, flag);
    if (tn_megatron_deepspeed_flag(&import->deepspeed, flag))
        return tn_megatron_deepspeed_flag(&import->deepspeed, flag);
    return tn_megatron_offload_flag(&import->offload, flag);
}

/* Is this a flag without a value? If SET, what it says is noted. */
static bool megatron_flag(struct megatron *import, const char *flag, bool set)
{
    const struct {
        const char *flag;
        int *field;
        int value;
    } settings[] = {
        {"--use-distributed-optimizer", &import->l->zero, 1},
        {"--overlap-param-gather", &import->l->overlap_param_gather, 1},
        {"--overlap-moe-expert-parallel-comm", &import->l->overlap_moe_a2a, 1},
        {"--fp8-param-gather", &import->l->fp8_param_gather, 1},
        {"--fp4-param-gather", &import->l->fp8_param_gather, 1},
    };
    bool *note = megatron_note(import, flag);

    if (tn_megatron_switch(import->l, flag, set))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        if (strcmp(settings[i].flag, flag))
            continue;
        if (set)
            *settings[i].field = settings[i].value;
        return true;
    }
    if (note) {
        *note |= set;
        return true;
    }
    if (strcmp(flag, "--bf16") && strcmp(flag, "--fp16"))
        return false;
    if (set && import->l->precision == PL_FP32) /* --fp8-format says more */
        import->l->precision = PL_BF16;
    import->grads.fp16 |= set && !strcmp(flag, "--fp16");
    if (set && !strcmp(flag, "--fp16"))
        tn_finding_add(&import->out->ignored, flag, "taken as bf16, which needs the same bytes");
    return true;
}

/* Words that have files of their own. */
static int other_word(bool *ret_known, struct megatron *import, const char *flag, const char *value,
                      struct err *error)
{
    int r = tn_megatron_dispatch(ret_known, &import->dispatch, flag, value, error);

    if (r == 0 && !*ret_known)
        r = tn_megatron_narrow(ret_known, &import->narrow, flag, value, error);
    if (r == 0 && !*ret_known)
        r = tn_megatron_offload_word(ret_known, &import->offload, flag, value, error);
    if (r == 0 && !*ret_known)
        r = tn_megatron_grads_word(ret_known, &import->grads, flag, value, error);
    if (r == 0 && !*ret_known)
        r = tn_megatron_deepspeed_word(ret_known, &import->deepspeed, flag, value, error);
    if (r == 0 && !*ret_known)
        r = tn_megatron_recompute_word(ret_known, &import->recompute, import->out, flag, value,
                                       error);
    if (r < 0 || *ret_known)
        return r;
    return tn_megatron_losses_word(ret_known, &import->losses, flag, value, error);
}

static int megatron_word(bool *ret_known, struct megatron *import, const char *flag,
                         const char *value, struct err *error)
{
    *ret_known = true;
    if (!strcmp(flag, "--pipeline-model-parallel-layout"))
        return tn_megatron_layout(&import->stages.whole, value ? value : "", error);
    if (!strcmp(flag, "--cp-comm-type"))
        return tn_import_cp_comm(import->out, value, error);
    if (!strcmp(flag, "--data-parallel-sharding-strategy")) {
        static const char *const strategy[] = {"no_shard", "optim", "optim_grads",
                                               "optim_grads_params"};

        for (int i = 0; i < 4; i++) {
            if (str_eq(value, strategy[i])) {
                import->fsdp_zero = i;
                import->strategy_said = true;
                return 0;
            }
        }
        return err_set(error, -EINVAL, "unknown %s `%.40s`", flag, value ? value : "");
    }
    if (!strcmp(flag, "--ckpt-format") && str_eq(value, "fsdp_dtensor"))
        return 0; /* it follows from the sharding */
    return other_word(ret_known, import, flag, value, error);
}

static int virtual_stages(struct megatron *import, const struct pl_model *model, struct err *error)
{
    struct pl_layout *l = import->l;
    int r = tn_import_megatron_stages(import->out, &import->stages, model, error);

    if (r == 0 && l->vp > 1) {
        l->schedule = PL_INTERLEAVED;
        l->overlap_p2p = !import->no_overlap_p2p;
    }
    return r;
}

/* Each instance of the distributed optimizer has a copy of what is sharded. */
static int copies(struct megatron *import, struct err *error)
{
    struct pl_layout *l = import->l;
    int replicas = l->world / (l->tp * l->pp);

    if (import->instances <= 1)
        return 0;
    if (replicas % import->instances)
        return err_set(error, -EINVAL,
                       "--num-distributed-optimizer-instances %d does not divide dp x cp %d",
                       import->instances, replicas);
    if (!l->zero)
        tn_finding_add(&import->out->ignored, "--num-distributed-optimizer-instances",
                       "applies only with --use-distributed-optimizer");
    else if (replicas > import->instances)
        l->shard = replicas / import->instances;
    else
        l->zero = 0; /* every rank has a copy */
    return 0;
}

/* FSDP overlaps without being told. */
static void fsdp(struct pl_layout *layout, int zero)
{
    layout->zero = zero;
    layout->overlap_grad_reduce |= zero >= 2;
    layout->overlap_param_gather |= zero >= 3;
}

static void sharding(struct megatron *import)
{
    if (import->fsdp)
        fsdp(import->l, import->fsdp_zero);
    else if (import->torch_fsdp)
        fsdp(import->l, import->torch_fsdp_keeps ? 2 : 3);
    if (import->strategy_said && !import->fsdp)
        tn_finding_add(&import->out->ignored, "--data-parallel-sharding-strategy",
                       "applies only with --use-megatron-fsdp");
    if (import->torch_fsdp_keeps && !import->torch_fsdp)
        tn_finding_add(&import->out->ignored, "--torch-fsdp2-no-reshard-after-forward",
                       "applies only with --use-torch-fsdp2");
}

/* Weights split over more ranks than tp are an axis of their own, which takes ranks from dp
 * (resolve_tensor_parallel_weight_shards of megatron/core/model_parallel_config.py). */
static int weight_shards(struct megatron *import, struct err *error)
{
    const struct pl_layout *l = import->l;

    if (import->weight_shards && import->weight_shards != l->tp)
        return err_set(error, -EINVAL,
                       "--tensor-parallel-num-weight-shards %d is not tp %d: there is no layout "
                       "key for a separate axis that shards weights",
                       import->weight_shards, l->tp);
    if (import->expert_weight_shards && !pl_model_is_moe(import->m))
        tn_finding_add(&import->out->ignored, "--expert-tensor-parallel-num-weight-shards",
                       "applies only with experts");
    else if (import->expert_weight_shards && import->expert_weight_shards != l->etp)
        return err_set(error, -EINVAL,
                       "--expert-tensor-parallel-num-weight-shards %d is not etp %d: there is no "
                       "layout key for a separate axis that shards weights",
                       import->expert_weight_shards, l->etp);
    return 0;
}

static int megatron_finish(struct megatron *import, const struct pl_model *model, struct err *error)
{
    struct pl_layout *l = import->l;
    int r;

    if (!import->etp_said)
        l->etp = pl_model_is_moe(model) ? l->tp : 1; /* Megatron's default */
    if (import->deepep)
        import->dispatch.backend = 0;
    if (import->graph)
        import->dispatch.graphs = PL_GRAPHS_MODULES;
    tn_megatron_dispatched(import->out, &import->dispatch, model);
    tn_megatron_offloaded(import->out, &import->offload);
    sharding(import);
    r = tn_megatron_deepspeed_read(import->out, &import->deepspeed, import->grads.fp16, error);
    if (r < 0)
        return r;
    tn_megatron_recompute_read(import->out, &import->recompute);
    tn_megatron_losses_compare(import->out, &import->losses, import->m);
    r = tn_megatron_precision(l, &import->narrow, error);
    tn_megatron_grads_read(import->out, &import->grads, import->fsdp, import->torch_fsdp);
    if (r == 0)
        r = weight_shards(import, error);
    if (r == 0)
        r = tn_import_degrees(l, error);
    if (r == 0)
        r = copies(import, error);
    if (r == 0)
        r = virtual_stages(import, model, error);
    if (r == 0 && !import->out->global_batch) /* the default again */
        r = tn_import_global_batch(import->out, l->micro_batch, l->world / (l->tp * l->cp * l->pp),
                                   error);
    return r;
}

/* How many of the words behind a flag belong to it. */
enum takes { NOTHING, ONE, ANY };

static enum takes takes(struct megatron *import, const char *flag)
{
    static const char *const words[] = {"--pipeline-model-parallel-layout",
                                        "--data-parallel-sharding-strategy",
                                        "--moe-token-dispatcher-type",
                                        "--moe-flex-dispatcher-backend",
                                        "--cuda-graph-impl",
                                        "--fp8-format",
                                        "--fp8-recipe",
                                        "--fp4-format",
                                        "--fp4-recipe",
                                        "--zero-stage",
                                        "--optimizer-offload-fraction",
                                        "--cpu-offloading-num-layers",
                                        "--main-grads-dtype",
                                        "--megatron-fsdp-main-grads-dtype",
                                        "--megatron-fsdp-grad-comm-dtype",
                                        NULL};

    if (megatron_flag(import, flag, false))
        return NOTHING;
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], flag))
            return ONE;
    if (tn_megatron_recompute_takes_word(flag))
        return ONE;
    if (str_eq(flag, "--num-experts")) /* Megatron-DeepSpeed's may differ by layer */
        return ANY;
    return megatron_number(import, flag) || tn_megatron_size(import->m, flag) ? ONE : ANY;
}

static bool is_flag(const struct tn_word *word)
{
    return str_starts(word->text, "--");
}

/* A variable that holds arguments rather than the value of one. */
static bool names_arguments(const struct tn_word *word)
{
    return (word->why == TN_WORD_UNSET || word->why == TN_WORD_RUN || word->why == TN_WORD_MAYBE) &&
           str_eq(word->text, word->unknown) &&
           (strstr(word->text, "[@]") || strstr(word->text, "[*]") ||
            strcasestr(word->text, "arg") || strcasestr(word->text, "opt"));
}

/* The values of a flag, up to the next one: "--recompute-modules core_attn mlp". *RET_UNKNOWN is
 * the first that is not known, or NULL. */
static bool read_values(const struct tn_word **ret_unknown, struct megatron *import,
                        struct str *value, enum takes most)
{
    int n = 0;

    for (; import->at < import->words.n && (most == ANY || n < (int)most); n++, import->at++) {
        const struct tn_word *w = &import->words.v[import->at];

        if (is_flag(w) || (most == ANY && (names_arguments(w) || str_eq(w->unknown, "$@"))))
            break;
        if (tn_word_is_none(w) && (most != ANY || n))
            break;
        if (w->why && !*ret_unknown)
            *ret_unknown = w;
        str_addf(value, "%s%s", n ? " " : "", w->text);
    }
    return n > 0;
}

/* Does FLAG say something of the layout? */
static bool is_setting(struct megatron *import, const char *flag)
{
    return takes(import, flag) != ANY && !tn_megatron_size(import->m, flag);
}

/* WORD is needed and not known. */
static int refused(struct megatron *import, const struct tn_word *word, struct err *error)
{
    tn_paths_doubt_word(import->paths, word);
    for (size_t i = 0; i < import->words.n && !import->words.program[0]; i++)
        tn_paths_doubt_word(import->paths, &import->words.v[i]);
    return tn_word_refused(import->text, &import->out->ignored, word, error);
}

/* WORD may hold its value, too: "--seq-length=4096". */
static int argument(struct megatron *import, const struct tn_word *word, struct err *error)
{
    AUTO_FREE char *flag = mem_strdup(word->text);
    char *equals = strchr(flag, '=');
    AUTO_STR text = {0};
    const struct tn_word *unknown = word->why ? word : NULL;
    const char *value = NULL;
    enum takes most;
    const int *have;
    bool known;
    int *field, r;

    if (equals)
        *equals = '\0';
    if (word->why && word->why != TN_WORD_MAYBE && strpbrk(flag, "$`"))
        return refused(import, word, error);
    most = takes(import, flag);
    if (equals && most == NOTHING)
        return err_set(error, -EINVAL, "%.64s takes no value, not `%.64s`", flag, equals + 1);
    if (equals)
        value = equals + 1;
    else if (read_values(&unknown, import, &text, most))
        value = str_text(&text);
    if (unknown &&
        (is_setting(import, flag) || (unknown != word && tn_megatron_may_be_degree(flag)))) {
        r = refused(import, unknown, error);
        return unknown == word && !equals ? r : err_wrap(error, "%.64s", flag);
    }
    if (megatron_flag(import, flag, true) ||
        tn_megatron_deepspeed_config(&import->deepspeed, &import->words, flag, value))
        return 0;
    if ((field = megatron_number(import, flag)) != NULL) {
        import->etp_said |= field == &import->l->etp;
        if (field == &import->l->micro_batch || field == &import->out->global_batch)
            import->batch_said = true;
        else
            import->degree_said |= field != &import->out->seq;
        return positive(field, flag, value, error);
    }
    if (tn_megatron_attention(import->out, import->m, flag, value))
        return 0;
    if ((have = tn_megatron_size(import->m, flag)) != NULL) {
        tn_megatron_compare(import->out, import->m, flag, value, *have);
        return 0;
    }
    r = megatron_word(&known, import, flag, value, error);
    return r == 0 && !known ? tn_megatron_unknown(import->out, flag, value, error) : r;
}

/* Megatron-LM does not start without --micro-batch-size, and a script that sets nothing else does
 * not run its defaults. A program of another name that takes no degree has others of its own. */
static int check_program(const struct megatron *import, struct err *error)
{
    const char *program = import->words.program, *slash = strrchr(program, '/');
    bool own = !*program || str_starts(slash ? slash + 1 : program, "pretrain");

    if (!import->words.script || import->degree_said ||
        (import->batch_said && own && !import->none_said))
        return 0;
    if (import->batch_said)
        return err_set(error, -EINVAL,
                       "%.64s gets a batch, but no degree of Megatron-LM: add "
                       "--tensor-model-parallel-size 1 if all of its degrees are 1",
                       program);
    if (*program)
        return err_set(error, -EINVAL,
                       "%.64s has no layout setting of Megatron-LM: is it another program?",
                       program);
    return err_set(error, -EINVAL,
                   "no argument in this text sets a degree or --micro-batch-size: is this the "
                   "whole script?");
}

/* A shell takes a line of its own for another command, and whoever wrote it did not. */
static int apart(struct megatron *import, struct err *error)
{
    for (size_t i = 0; i < import->words.napart; i++) {
        const struct tn_word *word = &import->words.v[import->words.n + i];
        AUTO_FREE char *flag = mem_strdup(word->text);

        if (!is_flag(word))
            continue;
        flag[strcspn(flag, "=")] = '\0';
        if (is_setting(import, flag) || tn_megatron_may_be_degree(flag))
            return err_set(error, -EINVAL,
                           "`%.64s` is not an argument of the program, since the line before it "
                           "does not end in a backslash: add one, or remove the argument",
                           flag);
        tn_finding_add(&import->out->ignored, flag,
                       "not an argument: the line before it does not end in a backslash");
    }
    return 0;
}

static int arguments(struct megatron *import, struct err *error)
{
    int r = 0;

    while (r == 0 && import->at < import->words.n) {
        const struct tn_word *w = &import->words.v[import->at++];

        if (is_flag(w))
            r = argument(import, w, error);
        else if (str_eq(w->unknown, "$@") || str_eq(w->unknown, "$*"))
            tn_finding_add(&import->out->ignored, w->unknown,
                           "the script's own arguments are unknown here");
        else if (tn_word_is_none(w))
            tn_word_say_none(&import->out->ignored, w), import->none_said = true;
        else if (w->why)
            r = refused(import, w, error);
        else
            r = err_set(error, -EINVAL, "expected an argument that begins with --, found `%.64s`",
                        w->text);
    }
    return r < 0 ? r : apart(import, error);
}

static int read_start(struct tn_imported *out, struct tn_paths *paths, const struct tn_job *job,
                      const struct pl_model *model, struct err *error)
{
    const char *text = job->text;
    struct megatron s = {.out = out,
                         .text = text,
                         .paths = paths,
                         .l = &out->layout,
                         .m = model,
                         .fsdp_zero = 3, /* FSDP's default */
                         .losses = {.aux = -1, .z = -1},
                         .dispatch.type = 1}; /* all-gather, Megatron's default */
    AUTO_FREE char *yaml = NULL;
    int r = tn_yaml_arguments(&yaml, text, error);

    if (r == 0 && !yaml)
        r = tn_section_arguments(&yaml, &out->ignored, text, error);
    if (r == 0 && !yaml && tn_python_is(text) &&
        (strstr(text, "megatron.bridge") || strstr(text, "ConfigContainer")))
        r = err_set(error, -EINVAL,
                    "this is a recipe of Megatron-Bridge, which extends other recipes: import the "
                    "run_config.yaml that a run writes next to its checkpoints");
    if (r == 0)
        r = yaml && job->call ? tn_import_uncalled(error)
                              : tn_shell_arguments(&s.words, &out->ignored, yaml ? yaml : text,
                                                   job->call, paths, error);
    if (r == 0)
        r = arguments(&s, error);
    if (r == 0)
        r = check_program(&s, error);
    if (r == 0)
        r = megatron_finish(&s, model, error);
    str_done(&s.stages.whole);
    tn_words_done(&s.words);
    return r;
}

/* Programs that are started more than once, as to resume, are one job if all of them run by the
 * same layout. */
static int read_path(struct tn_imported *out, struct tn_paths *paths, const struct tn_job *job,
                     const struct pl_model *model, struct err *error)
{
    enum { MAX_STARTS = 16 };
    const struct tn_imported begin = *out;
    struct err twice;
    size_t starts;
    int r;

    paths->start = 0;
    paths->starts = 0;
    r = read_start(out, paths, job, model, error);
    starts = paths->starts;
    twice = paths->twice;
    if (!starts)
        return r;
    for (size_t i = 1; i <= starts && r == 0; i++) {
        struct tn_imported other = begin;

        paths->start = i;
        paths->at = 0;
        r = i < MAX_STARTS ? read_start(&other, paths, job, model, error) : -EINVAL;
        if (r == 0 && !tn_paths_same(out, &other))
            r = -EINVAL;
    }
    if (r < 0) {
        tn_paths_doubt(paths, TN_PATH_PROGRAM);
        return err_set(error, -EINVAL, "%s", twice.text);
    }
    tn_finding_add(&out->ignored, "starts",
                   "%zu starts of programs by different arguments: all by this layout", starts + 1);
    return 0;
}

int tn_import_megatron(struct tn_imported *out, const struct tn_job *job,
                       const struct pl_model *model, struct err *error)
{
    return tn_paths_import(out, read_path, job, model, error);
}
