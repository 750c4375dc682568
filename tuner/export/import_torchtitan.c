/*
 * A torchtitan job as a layout: its file (TOML, up to v0.2.2) or its function (Python, after it).
 * What is not said has torchtitan's defaults: 8 sequences of 2048 tokens a rank, bf16, selective
 * checkpointing (of every second layer in the TOML), sharding over all. The names that settings had
 * in the first releases are read, too, and the token counts of the last ones.
 */
#include "tuner/export/grads.h"

#include <errno.h>
#include <strings.h>

enum { MAX_PARTS = 512 };

struct titan {
    struct tn_imported *out;
    int local_batch, pp_microbatch, layers_per_stage, replicate, shard;
    int old_batch, old_microbatches; /* as it was said before local_batch_size and microbatch_size:
                                        the pipeline's micro-batches are counted, one a stage */
    int64_t micro_tokens, step_tokens; /* of a micro-batch, of a step; 0: counted in sequences */
    int pp_microbatches;               /* of a step, with micro_tokens */
    int narrow;                        /* precision of the converters of linear layers; 0: none */
    bool python, sp_off, offload, checkpointing_said, any_said;
    int first_less, last_less; /* layers that the first and the last stage have less */
    int every_layers;          /* of which selective checkpointing takes one; 0: operators */
    char reshard[16], schedule[32];
    char base[64];     /* the function whose result is changed and that is not in the text, or "" */
    unsigned int said; /* bits of base_settings */
    int parts;         /* stages that are listed module by module; 0: they are cut */
    int part_layers[MAX_PARTS]; /* of each */
};

/* What a function that is not in the text may have set: a layout is known if the text says all. */
static const struct {
    const char *path, *other; /* two names of one setting */
    bool experts;             /* of models with experts only */
} base_settings[] = {
    {"parallelism.tensor_parallel_degree", NULL, false},
    {"parallelism.context_parallel_degree", NULL, false},
    {"parallelism.pipeline_parallel_degree", NULL, false},
    {"parallelism.expert_parallel_degree", NULL, true},
    {"parallelism.data_parallel_replicate_degree", NULL, false},
    {"parallelism.data_parallel_shard_degree", NULL, false},
    {"training.num_tokens_per_microbatch_per_dp_rank", "training.local_batch_size", false},
    {"training.max_context_length", "training.seq_len", false},
};

static void note_said(struct titan *import, const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(base_settings); i++)
        if (str_eq(base_settings[i].path, path) || str_eq(base_settings[i].other, path))
            import->said |= 1u << i;
}

static int base_is_covered(const struct titan *import, const struct pl_model *model,
                           struct err *error)
{
    for (size_t i = 0; *import->base && i < ARRAY_LEN(base_settings); i++)
        if (!(import->said & 1u << i) && (!base_settings[i].experts || pl_model_is_moe(model)))
            return err_set(error, -EINVAL,
                           "the function changes what %s() returns, which is not in this text: add "
                           "it, or a line that sets %s",
                           import->base, base_settings[i].path);
    return 0;
}

static int one_of(int *ret, const char *path, const char *value, const char *const *words,
                  struct err *error)
{
    AUTO_STR list = {0};

    for (int i = 0; words[i]; i++) {
        if (str_eq(words[i], value)) {
            *ret = i;
            return 0;
        }
        str_addf(&list, "%s\"%s\"", i ? ", " : "", words[i]);
    }
    return err_set(error, -EINVAL, "%s must be one of %s, not \"%.40s\"", path, str_text(&list),
                   value);
}

/* In TOML's letters or Python's. */
static int boolean(bool *ret, const char *path, const char *value, struct err *error)
{
    static const char *const words[] = {"false", "true", "False", "True", NULL};
    int which, r = one_of(&which, path, value, words, error);

    if (r == 0)
        *ret = which % 2;
    return r;
}

static int precision(struct titan *import, const char *path, const char *value, struct err *error)
{
    static const char *const words[] = {"float32", "bfloat16", "float16", NULL};
    int which, r = one_of(&which, path, value, words, error);

    if (r < 0)
        return r;
    import->out->layout.precision = which ? PL_BF16 : PL_FP32;
    if (which == 2)
        tn_finding_add(&import->out->ignored, path,
                       "float16 taken as bf16, which needs the same bytes");
    return 0;
}

static int checkpointing(struct titan *import, const char *path, const char *value,
                         struct err *error)
{
    static const char *const words[] = {"none", "selective", "full", "memory_budget", NULL};
    int which, r = one_of(&which, path, value, words, error);

    if (r < 0)
        return r;
    import->checkpointing_said = true;
    if (which == 3)
        tn_finding_add(&import->out->ignored, path, "a memory budget has no layout key");
    else
        import->out->layout.recompute = which == 2   ? PL_RECOMPUTE_FULL
                                        : which == 1 ? PL_RECOMPUTE_SELECTIVE
                                                     : PL_RECOMPUTE_NONE;
    return 0;
}

static int selection(struct titan *import, const char *path, const char *value, struct err *error)
{
    int64_t n = 0;

    if (!str_eq(value, "op") && str_to_i64(&n, value, 1, 1 << 20) < 0)
        return err_set(error, -EINVAL, "%s must be \"op\" or a number of layers, not \"%.40s\"",
                       path, value);
    import->every_layers = (int)n;
    return 0;
}

/* [["tok_embeddings", "layers.0"], ["layers.1", "norm"]]: how many layers each part has. */
static int module_parts(struct titan *import, const char *path, const char *value,
                        struct err *error)
{
    import->parts = 0;
    if (*value != '[')
        return str_eq(value, "None")
                   ? 0
                   : err_set(error, -EINVAL, "%s is not a list: %.40s", path, value);
    for (const char *p = value + 1; *p; p++) {
        if (*p == '[' && import->parts == MAX_PARTS)
            return err_set(error, -EINVAL, "%s has more than %d parts", path, MAX_PARTS);
        if (*p == '[')
            import->part_layers[import->parts++] = 0;
        else if (import->parts && str_starts(p, "layers."))
            import->part_layers[import->parts - 1]++;
    }
    return 0;
}

static int titan_word(bool *ret_known, struct titan *import, const char *path, const char *value,
                      struct err *error)
{
    static const char *const reshard[] = {"default", "always", "never", NULL};
    int which = 0;

    *ret_known = true;
    if (!strcmp(path, "parallelism.module_fqns_per_model_part"))
        return module_parts(import, path, value, error);
    if (!strcmp(path, "parallelism.pipeline_parallel_schedule") ||
        !strcmp(path, "experimental.pipeline_parallel_schedule"))
        snprintf(import->schedule, sizeof(import->schedule), "%s", value);
    else if (!strcmp(path, "parallelism.fsdp_reshard_after_forward")) {
        snprintf(import->reshard, sizeof(import->reshard), "%s", value);
        return one_of(&which, path, value, reshard, error);
    } else if (!strcmp(path, "training.mixed_precision_param"))
        return precision(import, path, value, error);
    else if (!strcmp(path, "training.mixed_precision_reduce")) {
        if (strcmp(value, "float32") != 0) /* FSDP2 adds up shards in the type of its weights */
            tn_grads_differ(import->out, path, value, "fp32");
        return 0;
    } else if (!strcmp(path, "activation_checkpoint.mode"))
        return checkpointing(import, path, value, error);
    else if (!strcmp(path, "activation_checkpoint.selective_ac_option"))
        return selection(import, path, value, error);
    else if (!strcmp(path, "training.disable_cuda_graphs")) {
        static const char *const words[] = {"False", "True", NULL};
        int r = one_of(&which, path, value, words, error);

        import->out->layout.cuda_graphs = which ? PL_GRAPHS_NONE : PL_GRAPHS_ITERATION;
        return r;
    } else if (!strcmp(path, "parallelism.pipeline_parallel_expert_parallel_overlap")) {
        bool on = false;
        int r = boolean(&on, path, value, error);

        if (on) /* in v0.2.1 and v0.2.2, with DualPipeV alone */
            tn_finding_add(&import->out->ignored, path, "torchtitan has it no longer");
        return r;
    } else if (!strcmp(path, "training.enable_cpu_offload")) {
        return boolean(&import->offload, path, value, error);
    } else if (!strcmp(path, "parallelism.enable_async_tensor_parallel") ||
               !strcmp(path, "compile.enable_async_tensor_parallel") ||
               !strcmp(path, "experimental.enable_async_tensor_parallel")) {
        bool on = false;
        int r = boolean(&on, path, value, error);

        import->out->layout.tp_overlap = on;
        return r;
    } else if (!strcmp(path, "parallelism.enable_sequence_parallel")) {
        static const char *const words[] = {"True", "False", NULL};
        int r = one_of(&which, path, value, words, error);

        import->sp_off = which == 1;
        return r;
    } else
        *ret_known = false;
    return 0;
}

/* The precision that a converter of linear layers is for, by the LEN letters of its class or of the
 * setting before there were classes; 0: another converter. */
static int converter_precision(const char *name, size_t len)
{
    static const struct {
        const char *name;
        int precision;
    } rows[] = {
        {"float8", PL_FP8},
        {"quantize.linear.float8", PL_FP8},
        {"Float8LinearConverter", PL_FP8},
        {"mx", PL_MXFP8},
        {"quantize.linear.mx", PL_MXFP8},
        {"MXFP8LinearConverter", PL_MXFP8},
        {"NVFP4LinearConverter", PL_NVFP4},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_starts(name, rows[i].name) &&
            (strlen(rows[i].name) == len || name[strlen(rows[i].name)] == '.'))
            return rows[i].precision;
    return 0;
}

/* A list of converters, or one, as the value of PATH; false where none of linear layers is known.
 */
static bool converters(struct titan *import, const char *path, const char *value)
{
    static const char between[] = "[](), \t\n\"'";
    const char *last = strrchr(path, '.');

    if (!str_eq(last ? last + 1 : path, "converters"))
        return false;
    for (size_t n; *(value += strspn(value, between)); value += n) {
        int precision;

        n = strcspn(value, between);
        precision = converter_precision(value, n);
        if (precision)
            import->narrow = precision;
    }
    import->any_said = true;
    return import->narrow; /* also of one that was made before, and is here by its name */
}

static int *titan_number(struct titan *import, const char *path)
{
    struct pl_layout *l = &import->out->layout;
    const struct {
        const char *path;
        int *field;
    } rows[] = {
        {"training.local_batch_size", &import->local_batch},
        {"training.global_batch_size", &import->out->global_batch},
        {"training.seq_len", &import->out->seq},
        {"training.max_context_length", &import->out->seq},
        {"parallelism.num_pp_microbatches", &import->pp_microbatches},
        {"parallelism.data_parallel_replicate_degree", &import->replicate},
        {"parallelism.data_parallel_shard_degree", &import->shard},
        {"parallelism.tensor_parallel_degree", &l->tp},
        {"parallelism.context_parallel_degree", &l->cp},
        {"parallelism.expert_parallel_degree", &l->ep},
        {"parallelism.expert_tensor_parallel_degree", &l->etp},
        {"parallelism.pipeline_parallel_degree", &l->pp},
        {"parallelism.pipeline_parallel_microbatch_size", &import->pp_microbatch},
        {"parallelism.pipeline_parallel_layers_per_stage", &import->layers_per_stage},
        {"parallelism.pipeline_parallel_first_stage_less_layers", &import->first_less},
        {"parallelism.pipeline_parallel_last_stage_less_layers", &import->last_less},
        /* the first releases */
        {"training.batch_size", &import->old_batch},
        {"training.data_parallel_replicate_degree", &import->replicate},
        {"training.data_parallel_shard_degree", &import->shard},
        {"training.tensor_parallel_degree", &l->tp},
        {"experimental.context_parallel_degree", &l->cp},
        {"experimental.pipeline_parallel_degree", &l->pp},
        {"experimental.pipeline_parallel_microbatches", &import->old_microbatches},
        {"parallelism.pipeline_parallel_microbatches", &import->old_microbatches},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i].path, path))
            return rows[i].field;
    return NULL;
}

static bool has_chunks(int schedule)
{
    return schedule == PL_INTERLEAVED || pl_schedule_is_v(schedule);
}

/* Stages a rank. What the file does not say is torchtitan's: one, and two when interleaved. */
static int titan_stages(struct titan *import, const struct pl_model *model, struct err *error)
{
    struct pl_layout *l = &import->out->layout;
    int weight = model->layers + import->first_less + import->last_less,
        per = import->layers_per_stage;
    int stages = import->parts ? import->parts
                 : per         ? (weight + per - 1) / per
                               : l->pp * (has_chunks(l->schedule) ? 2 : 1);
    int r;

    if (stages % l->pp || (stages == l->pp) == has_chunks(l->schedule) ||
        (pl_schedule_is_v(l->schedule) && stages != 2 * l->pp))
        return err_set(error, -EINVAL,
                       "pipeline_parallel_layers_per_stage %d makes %d stages of %d layers (the "
                       "first and last with %d and %d fewer), which \"%s\" cannot place on pp %d",
                       per, stages, model->layers, import->first_less, import->last_less,
                       import->schedule[0] ? import->schedule : "1F1B", l->pp);
    if (import->parts)
        r = tn_import_stages(import->out, "parallelism.module_fqns_per_model_part", model,
                             import->part_layers, stages, error);
    else
        r = tn_import_weighed_stages(import->out, "parallelism.pipeline_parallel_layers_per_stage",
                                     model, stages, import->first_less, import->last_less, error);
    if (r == 0 && pl_stages_are_even(l, model->layers)) /* the first ones may be longer */
        l->stages = PL_STAGES_EVEN;
    return r;
}

static int titan_pipeline(struct titan *import, const struct pl_model *model, struct err *error)
{
    struct pl_layout *l = &import->out->layout;

    /* PyTorch looks its schedules up in any case of letters. */
    if (!strcasecmp(import->schedule, "GPipe"))
        l->schedule = PL_GPIPE;
    else if (!strcasecmp(import->schedule, "Interleaved1F1B"))
        l->schedule = PL_INTERLEAVED;
    else if (!strcasecmp(import->schedule, "ZBVZeroBubble"))
        l->schedule = PL_ZB_V;
    else if (!strcasecmp(import->schedule, "DualPipeV"))
        l->schedule = PL_DUALPIPE_V;
    else if (import->schedule[0] && strcasecmp(import->schedule, "1F1B"))
        return err_set(error, -EINVAL, "pipeline_parallel_schedule \"%s\" is unsupported",
                       import->schedule);
    return titan_stages(import, model, error);
}

/* The last form counts tokens: of a micro-batch of a rank, and of a step. */
static int token_batch(struct titan *import, int dp, struct err *error)
{
    int64_t micro = import->micro_tokens ? import->micro_tokens : 16384, step, local;
    int seq = import->out->seq,
        count = import->out->layout.pp > 1 && import->pp_microbatches ? import->pp_microbatches : 1;

    if (micro % seq || micro / seq > 1 << 24)
        return err_set(error, -EINVAL,
                       "num_tokens_per_microbatch_per_dp_rank %lld is not a whole number of "
                       "sequences of %d tokens",
                       (long long)micro, seq);
    import->out->layout.micro_batch = (int)(micro / seq);
    local = micro / seq * count;
    step = import->step_tokens > 0 ? import->step_tokens / seq : local * dp;
    if (step > 1 << 24 ||
        (import->step_tokens > 0 && (import->step_tokens % seq || step % (local * dp))))
        return err_set(
            error, -EINVAL,
            "num_tokens_per_train_step %lld is not a multiple of %d micro-batches of %lld "
            "tokens on %d replicas",
            (long long)import->step_tokens, count, (long long)micro, dp);
    import->out->global_batch = (int)step;
    if (import->out->layout.pp > 1 && step > local * dp)
        tn_finding_add(&import->out->ignored, "training.num_tokens_per_train_step",
                       "there the pipeline drains every %d micro-batches, here once per step",
                       count);
    return 0;
}

/* Sequences a replica, and of them those of a micro-batch; what a step has beyond them is another
 * round. */
static int titan_batch(struct titan *import, int dp, struct err *error)
{
    struct pl_layout *l = &import->out->layout;
    int local = import->old_batch ? import->old_batch : import->local_batch, micro = local;

    if (import->micro_tokens || import->step_tokens)
        return token_batch(import, dp, error);
    if (import->pp_microbatches && l->pp > 1)
        return err_set(error, -EINVAL,
                       "num_pp_microbatches needs num_tokens_per_microbatch_per_dp_rank: what "
                       "local_batch_size means with it changed from version to version");
    if (l->pp > 1 && import->pp_microbatch)
        micro = import->pp_microbatch;
    else if (l->pp > 1 && (import->old_batch || import->old_microbatches))
        micro = local / (import->old_microbatches ? import->old_microbatches : l->pp);
    else if (l->pp > 1)
        micro = 1;
    if (!micro || local % micro)
        return err_set(error, -EINVAL,
                       "a local batch of %d sequences is not a whole number of micro-batches",
                       local);
    l->micro_batch = micro;
    if (import->out->global_batch <= 0)
        return tn_import_global_batch(import->out, local, dp, error);
    if (l->pp > 1 && import->out->global_batch > (int64_t)local * dp)
        tn_finding_add(&import->out->ignored, "training.global_batch_size",
                       "there the pipeline drains after each local batch of %d, here once per step",
                       local);
    return 0;
}

/* Does FSDP shard? In the function's torchtitan it shards experts also where they alone have
 * replicas: over dp_shard x cp x tp / ep ranks. */
static bool is_sharded(const struct titan *import)
{
    const struct pl_layout *l = &import->out->layout;
    int64_t ranks = (int64_t)import->shard * l->cp; /* over both */

    return ranks > 1 ||
           (import->python && import->replicate == 1 && l->ep > 1 && ranks * l->tp > l->ep);
}

static int titan_finish(struct titan *import, const struct pl_model *model, struct err *error)
{
    struct pl_layout *l = &import->out->layout;
    int r, dp;

    tn_import_split_experts(l, model);
    r = tn_import_degrees(l, error);
    if (r < 0)
        return r;
    dp = l->world / (l->tp * l->cp * l->pp);
    if (import->shard == -1)
        import->shard = dp / (import->replicate ? import->replicate : 1);
    if ((int64_t)import->replicate * import->shard != dp)
        return err_set(error, -EINVAL,
                       "data_parallel_replicate_degree %d x data_parallel_shard_degree %d is not "
                       "the %d that tp, cp and pp leave of %d devices",
                       import->replicate, import->shard, dp, l->world);
    if (l->recompute == PL_RECOMPUTE_SELECTIVE && import->every_layers)
        tn_finding_add(&import->out->ignored, "activation_checkpoint.selective_ac_option",
                       "selective recomputes operators here, not one layer in %d",
                       import->every_layers);
    if (import->replicate > 1 && (int64_t)import->shard * l->cp > 1)
        l->shard = import->shard * l->cp;
    l->zero = !is_sharded(import)                 ? 0
              : str_eq(import->reshard, "never")  ? 2
              : str_eq(import->reshard, "always") ? 3
              : l->pp > 1                         ? 2
                                                  : 3;
    l->overlap_grad_reduce = l->zero || dp > 1;
    if (import->narrow)
        l->precision = import->narrow;
    l->overlap_param_gather = l->zero >= 2;
    l->sp = l->tp > 1 && !import->sp_off;
    l->offload_params = import->offload;
    l->offload_optimizer = import->offload ? 100 : 0;
    r = titan_batch(import, dp, error);
    return r == 0 && l->pp > 1 ? titan_pipeline(import, model, error) : r;
}

/* -1 means "what is left" of the devices, or "one local batch of every rank"; stages may be none
 * shorter. */
static int least(const struct titan *import, const int *field)
{
    if (field == &import->shard || field == &import->out->global_batch)
        return -1;
    return field == &import->first_less || field == &import->last_less ? 0 : 1;
}

/* What is not known is ignored only if it cannot be a part of the layout. */
static int unknown_setting(struct titan *import, const char *path, const char *value, int line,
                           struct err *error)
{
    const char *dot = strrchr(path, '.'), *near = NULL;
    bool narrow = (strstr(path, "float8") || strstr(path, "converters")) &&
                  strcasecmp(value, "false") != 0 && strcmp(value, "[]") != 0;
    const char *names[ARRAY_LEN(base_settings) + 1] = {NULL};

    if (converters(import, path, value))
        return 0;
    if (!tn_import_is_degree(dot ? dot + 1 : path, value)) {
        tn_finding_add(&import->out->ignored, path,
                       narrow   ? "converters of matrix products are not read: taken as bf16"
                       : *value ? "not a setting of the layout"
                                : "what it sets is unknown here");
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(base_settings); i++)
        names[i] = base_settings[i].path;
    near = str_nearest(path, names);
    return err_set(
        error, -EINVAL,
        "line %d: %.80s %.20s looks like a degree, but is not a setting of torchtitan%s%s", line,
        path, value, near ? "; did you mean " : "", near ? near : "");
}

static int titan_set(void *arg, const char *path, const char *value, int line, struct err *error)
{
    struct titan *s = arg;
    int *field = titan_number(s, path);
    int64_t v, *tokens = !strcmp(path, "training.num_tokens_per_microbatch_per_dp_rank")
                             ? &s->micro_tokens
                         : !strcmp(path, "training.num_tokens_per_train_step") ? &s->step_tokens
                                                                               : NULL;
    bool known;

    if (!*path) {
        snprintf(s->base, sizeof(s->base), "%s", value);
        return 0;
    }
    note_said(s, path);
    s->any_said |= tokens || field;
    if (tokens) {
        int64_t least_tokens = tokens == &s->step_tokens ? -1 : 1;

        if (str_to_i64(tokens, value, least_tokens, (int64_t)1 << 40) < 0 || !*tokens)
            return err_set(error, -EINVAL, "line %d: %s must be a positive integer, not `%.40s`",
                           line, path, value);
        return 0;
    }
    if (field) {
        int min = least(s, field);

        if (str_to_i64(&v, value, min, 1 << 24) < 0 || (v < 1 && v != min))
            return err_set(error, -EINVAL, "line %d: %s must be a positive integer, not `%.40s`",
                           line, path, value);
        *field = (int)v;
        return 0;
    }
    if (titan_word(&known, s, path, value, error) < 0)
        return err_wrap(error, "line %d", line);
    s->any_said |= known;
    return known ? 0 : unknown_setting(s, path, value, line, error);
}

/* The `overrides` of a file of AMD's Primus. */
static int titan_override(void *arg, const char *path, const char *value, int line,
                          struct err *error)
{
    const char *at = strstr(path, "overrides."), *name = strrchr(path, '.');

    if (name && str_eq(name, ".framework") && strcmp(value, "torchtitan") != 0)
        return tn_other_framework(value, line, error);
    return at && *value ? titan_set(arg, at + strlen("overrides."), value, line, error) : 0;
}

int tn_import_torchtitan(struct tn_imported *out, const char *text, const struct pl_model *model,
                         struct err *error)
{
    struct titan s = {.out = out, /* torchtitan's defaults */
                      .local_batch = 8,
                      .every_layers = 2,
                      .replicate = 1,
                      .shard = -1,
                      .first_less = 1,
                      .last_less = 1,
                      .python = tn_python_is(text)};
    int r;

    if (strstr(text, "megatron.bridge"))
        return err_set(error, -EINVAL, "this is a recipe of Megatron-Bridge, not of torchtitan");
    out->layout.precision = PL_BF16;
    out->layout.recompute = PL_RECOMPUTE_SELECTIVE;
    out->seq = 2048;
    if (s.python)
        s.every_layers = 0; /* it knows operators only */
    r = s.python           ? tn_python_read(text, titan_set, &s, error)
        : tn_yaml_is(text) ? tn_yaml_read(text, titan_override, &s, error)
                           : tn_toml_read(text, titan_set, &s, error);
    if (r == 0 && s.python && !s.checkpointing_said)
        tn_finding_add(&out->ignored, "activation_checkpoint", "not given: taken as selective");
    if (r == 0)
        r = base_is_covered(&s, model, error);
    if (r == 0 && !s.any_said && !*s.base && (s.python || out->ignored.count))
        r = err_set(error, -EINVAL,
                    "no setting of torchtitan's training or parallelism is in this text");
    return r < 0 ? r : titan_finish(&s, model, error);
}
