/*
 * Today's production configuration as a layout: Megatron-LM arguments, DeepSpeed JSON, torchtitan
 * TOML.
 *
 * What the source says in its own units is converted (virtual stages, tokens, accumulation); what
 * has no word here is listed as ignored, never guessed. World size is not in these files, so the
 * caller gives it.
 */
#include "tuner/export/internal.h"

#include <ctype.h>
#include <errno.h>

static const char *const names[] = {"megatron", "deepspeed", "torchtitan", NULL};

const char *const *tn_importers(void)
{
    return names;
}

static int positive(int *ret, const char *key, const char *value, struct err *e)
{
    int64_t v;

    if (!value || str_to_i64(&v, value, 1, 1 << 24) < 0)
        return err_set(e, -EINVAL, "%.64s must be a positive integer, not `%.64s`", key,
                       value ? value : "");
    *ret = (int)v;
    return 0;
}

/* ---- Megatron-LM --------------------------------------------------------------------------------
 */

struct megatron {
    struct tn_imported *out;
    struct pl_layout *l;
    int layers_per_virtual, virtual_stages;
    int stages; /* of a whole pipeline layout, 0 without one */
    bool etp_said, no_overlap_p2p;
};

/* Flags with an integer that lands in a field. */
static int *megatron_number(struct megatron *s, const char *flag)
{
    const struct {
        const char *flag;
        int *field;
    } rows[] = {
        {"--tensor-model-parallel-size", &s->l->tp},
        {"--pipeline-model-parallel-size", &s->l->pp},
        {"--context-parallel-size", &s->l->cp},
        {"--expert-model-parallel-size", &s->l->ep},
        {"--expert-tensor-parallel-size", &s->l->etp},
        {"--micro-batch-size", &s->l->micro_batch},
        {"--global-batch-size", &s->out->global_batch},
        {"--seq-length", &s->out->seq},
        {"--num-layers-per-virtual-pipeline-stage", &s->layers_per_virtual},
        {"--num-virtual-stages-per-pipeline-rank", &s->virtual_stages},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i].flag, flag))
            return rows[i].field;
    return NULL;
}

static bool megatron_flag(struct megatron *s, const char *flag)
{
    const struct {
        const char *flag;
        int *field;
        int value;
    } rows[] = {
        {"--sequence-parallel", &s->l->sp, 1},
        {"--use-distributed-optimizer", &s->l->zero, 1},
        {"--overlap-grad-reduce", &s->l->overlap_grad_reduce, 1},
        {"--overlap-param-gather", &s->l->overlap_param_gather, 1},
        {"--overlap-moe-expert-parallel-comm", &s->l->overlap_moe_a2a, 1},
        {"--bf16", &s->l->precision, PL_BF16},
        {"--recompute-activations", &s->l->recompute, PL_RECOMPUTE_SELECTIVE},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!strcmp(rows[i].flag, flag)) {
            *rows[i].field = rows[i].value;
            return true;
        }
    }
    if (!strcmp(flag, "--no-overlap-p2p-communication")) {
        s->no_overlap_p2p = true;
        return true;
    }
    return !strcmp(flag, "--use-megatron-fsdp"); /* its strategy says the stage */
}

static int megatron_word(struct megatron *s, const char *flag, const char *value, bool *ret_known,
                         struct err *e)
{
    *ret_known = true;
    if (!strcmp(flag, "--pipeline-model-parallel-layout") && value) {
        for (const char *p = value; *p; p++)
            s->stages += *p == '|';
        s->stages++;
        return 0;
    }
    if (!strcmp(flag, "--recompute-granularity")) {
        if (!str_eq(value, "full") && !str_eq(value, "selective"))
            return err_set(e, -EINVAL, "%s is `full` or `selective`, not `%.40s`", flag,
                           value ? value : "");
        s->l->recompute = str_eq(value, "full") ? PL_RECOMPUTE_FULL : PL_RECOMPUTE_SELECTIVE;
        return 0;
    }
    if (!strcmp(flag, "--data-parallel-sharding-strategy")) {
        static const char *const strategy[] = {"no_shard", "optim", "optim_grads",
                                               "optim_grads_params"};

        for (int i = 0; i < 4; i++) {
            if (str_eq(value, strategy[i])) {
                s->l->zero = i;
                return 0;
            }
        }
        return err_set(e, -EINVAL, "unknown %s `%.40s`", flag, value ? value : "");
    }
    /* Consequences of a setting that we know already. */
    *ret_known = !strcmp(flag, "--recompute-method") || !strcmp(flag, "--recompute-num-layers") ||
                 !strcmp(flag, "--recompute-modules") || !strcmp(flag, "--ckpt-format");
    return 0;
}

static int megatron_finish(struct megatron *s, const struct pl_model *m, struct err *e)
{
    struct pl_layout *l = s->l;

    if (s->layers_per_virtual) {
        if (m->layers % (l->pp * s->layers_per_virtual))
            return err_set(e, -EINVAL,
                           "%d layers are not a multiple of pp %d x %d layers a virtual stage",
                           m->layers, l->pp, s->layers_per_virtual);
        l->vp = m->layers / (l->pp * s->layers_per_virtual);
    } else if (s->virtual_stages) {
        l->vp = s->virtual_stages;
    } else if (s->stages) {
        if (s->stages % l->pp)
            return err_set(e, -EINVAL, "the pipeline layout has %d stages, not a multiple of pp %d",
                           s->stages, l->pp);
        l->vp = s->stages / l->pp;
    }
    if (l->vp > 1) {
        l->schedule = PL_INTERLEAVED;
        l->overlap_p2p = !s->no_overlap_p2p;
    }
    if (!s->etp_said)
        l->etp = l->tp; /* Megatron's default */
    return 0;
}

/* Past white space and continued lines. */
static const char *skip_space(const char *p)
{
    while (isspace((unsigned char)*p) || (*p == '\\' && p[1] == '\n'))
        p++;
    return p;
}

static int next_word(struct str *word, const char **p)
{
    char quote = 0;

    *p = skip_space(*p);
    if (**p == '#') {
        *p += strcspn(*p, "\n");
        return next_word(word, p);
    }
    if (!**p)
        return 0;
    str_trunc(word, 0);
    for (; **p && (quote || !isspace((unsigned char)**p)); ++*p) {
        if (quote ? **p == quote : (**p == '"' || **p == '\''))
            quote = quote ? 0 : **p;
        else
            str_addc(word, **p);
    }
    return 1;
}

static bool is_value(const char *p)
{
    p = skip_space(p);
    return *p && *p != '#' && !(*p == '-' && p[1] == '-');
}

static int import_megatron(struct tn_imported *out, const char *text, const struct pl_model *m,
                           struct err *e)
{
    struct megatron s = {.out = out, .l = &out->layout};
    AUTO_STR flag = {0};
    AUTO_STR value = {0};
    const char *p = text;

    while (next_word(&flag, &p)) {
        char *equals = strchr(flag.text, '=');
        bool has_value = equals || is_value(p), known;
        int *field, r;

        if (!str_starts(flag.text, "--"))
            return err_set(e, -EINVAL, "expected an argument that begins with --, found `%.64s`",
                           flag.text);
        if (equals) {
            str_trunc(&value, 0);
            str_add(&value, equals + 1);
            *equals = '\0';
        } else if (has_value) {
            next_word(&value, &p);
        }
        field = megatron_number(&s, flag.text);
        if (field) {
            r = positive(field, flag.text, has_value ? value.text : NULL, e);
            if (r < 0)
                return r;
            s.etp_said |= field == &s.l->etp;
            continue;
        }
        if (megatron_flag(&s, flag.text))
            continue;
        r = megatron_word(&s, flag.text, has_value ? value.text : NULL, &known, e);
        if (r < 0)
            return r;
        if (!known)
            tn_finding_add(&out->ignored, flag.text, "not a setting of the layout%s%.100s",
                           has_value ? ": " : "", has_value ? str_text(&value) : "");
    }
    return megatron_finish(&s, m, e);
}

/* ---- DeepSpeed ----------------------------------------------------------------------------------
 */

static int import_deepspeed(struct tn_imported *out, const char *text, struct err *e)
{
    static const char *const known[] = {"train_batch_size",
                                        "train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps",
                                        "zero_optimization",
                                        "tensor_parallel",
                                        "expert_parallel",
                                        "bf16",
                                        "_partune",
                                        NULL};
    struct pl_layout *l = &out->layout;
    AUTO_JSON *v = NULL;
    json_t *zero = NULL, *tp = NULL, *ep = NULL, *bf16 = NULL, *value;
    const char *key;
    bool on = false, overlap = false;
    int accumulation = 0, r = jx_parse(&v, text, strlen(text), e);

    if (r < 0)
        return r;
    if (!json_is_object(v))
        return err_set(e, -EINVAL, "a DeepSpeed configuration is a JSON object");
    if ((r = jx_get_int(&out->global_batch, v, "train_batch_size", 1, 1 << 24, e)) < 0 ||
        (r = jx_get_int(&l->micro_batch, v, "train_micro_batch_size_per_gpu", 1, 1 << 20, e)) < 0 ||
        (r = jx_get_int(&accumulation, v, "gradient_accumulation_steps", 1, 1 << 20, e)) < 0 ||
        (r = jx_get_object(&zero, v, "zero_optimization", e)) < 0 ||
        (r = jx_get_object(&tp, v, "tensor_parallel", e)) < 0 ||
        (r = jx_get_object(&ep, v, "expert_parallel", e)) < 0 ||
        (r = jx_get_object(&bf16, v, "bf16", e)) < 0)
        return r;
    if ((zero && ((r = jx_get_int(&l->zero, zero, "stage", 0, 3, e)) < 0 ||
                  (r = jx_get_bool(&overlap, zero, "overlap_comm", e)) < 0)) ||
        (tp && (r = jx_get_int(&l->tp, tp, "autotp_size", 0, 1 << 20, e)) < 0) ||
        (ep && (r = jx_get_int(&l->ep, ep, "autoep_size", 1, 1 << 20, e)) < 0) ||
        (bf16 && (r = jx_get_bool(&on, bf16, "enabled", e)) < 0))
        return r;
    l->tp = l->tp ? l->tp : 1;
    l->precision = on ? PL_BF16 : PL_FP32;
    l->overlap_grad_reduce = overlap && l->zero;
    if (l->zero == 3)
        l->overlap_param_gather = overlap;
    if (!out->global_batch && accumulation)
        out->global_batch = accumulation * l->micro_batch * (l->world / l->tp);
    json_object_foreach(v, key, value) {
        size_t i = 0;

        while (known[i] && strcmp(known[i], key))
            i++;
        if (!known[i])
            tn_finding_add(&out->ignored, key, "not a setting of the layout");
    }
    return 0;
}

/* ---- torchtitan ---------------------------------------------------------------------------------
 */

struct titan {
    struct tn_imported *out;
    int local_batch, pp_microbatch, layers_per_stage, replicate, shard;
    char reshard[16], schedule[32];
};

static int titan_word(struct titan *s, const char *path, const char *value, bool *ret_known)
{
    struct pl_layout *l = &s->out->layout;

    *ret_known = true;
    if (!strcmp(path, "parallelism.pipeline_parallel_schedule"))
        snprintf(s->schedule, sizeof(s->schedule), "%s", value);
    else if (!strcmp(path, "parallelism.fsdp_reshard_after_forward"))
        snprintf(s->reshard, sizeof(s->reshard), "%s", value);
    else if (!strcmp(path, "training.mixed_precision_param"))
        l->precision = str_eq(value, "bfloat16") ? PL_BF16 : PL_FP32;
    else if (!strcmp(path, "activation_checkpoint.mode"))
        l->recompute = str_eq(value, "full")        ? PL_RECOMPUTE_FULL
                       : str_eq(value, "selective") ? PL_RECOMPUTE_SELECTIVE
                                                    : PL_RECOMPUTE_NONE;
    else
        *ret_known = false;
    return 0;
}

static int *titan_number(struct titan *s, const char *path)
{
    struct pl_layout *l = &s->out->layout;
    const struct {
        const char *path;
        int *field;
    } rows[] = {
        {"training.local_batch_size", &s->local_batch},
        {"training.global_batch_size", &s->out->global_batch},
        {"training.seq_len", &s->out->seq},
        {"parallelism.data_parallel_replicate_degree", &s->replicate},
        {"parallelism.data_parallel_shard_degree", &s->shard},
        {"parallelism.tensor_parallel_degree", &l->tp},
        {"parallelism.context_parallel_degree", &l->cp},
        {"parallelism.expert_parallel_degree", &l->ep},
        {"parallelism.expert_tensor_parallel_degree", &l->etp},
        {"parallelism.pipeline_parallel_degree", &l->pp},
        {"parallelism.pipeline_parallel_microbatch_size", &s->pp_microbatch},
        {"parallelism.pipeline_parallel_layers_per_stage", &s->layers_per_stage},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i].path, path))
            return rows[i].field;
    return NULL;
}

static int titan_finish(struct titan *s, const struct pl_model *m, struct err *e)
{
    struct pl_layout *l = &s->out->layout;
    int dp = l->world / (l->tp * l->cp * l->pp);

    if (s->shard == -1)
        s->shard = dp / (s->replicate ? s->replicate : 1);
    if (s->replicate > 1 && s->shard > 1)
        tn_finding_add(&s->out->ignored, "parallelism.data_parallel_replicate_degree",
                       "hybrid sharding has no word here: taken as full sharding");
    l->zero =
        s->shard > 1
            ? (str_eq(s->reshard, "never") || (l->pp > 1 && !str_eq(s->reshard, "always")) ? 2 : 3)
            : 0;
    l->overlap_grad_reduce = dp > 1;
    l->overlap_param_gather = l->zero >= 2;
    l->sp = l->tp > 1;
    l->micro_batch = l->pp > 1        ? (s->pp_microbatch ? s->pp_microbatch : 1)
                     : s->local_batch ? s->local_batch
                                      : 1;
    if (l->pp == 1)
        return 0;
    if (str_eq(s->schedule, "GPipe"))
        l->schedule = PL_GPIPE;
    else if (str_eq(s->schedule, "Interleaved1F1B"))
        l->schedule = PL_INTERLEAVED;
    else if (s->schedule[0] && !str_eq(s->schedule, "1F1B"))
        return err_set(e, -EINVAL, "pipeline_parallel_schedule \"%s\" has no word here",
                       s->schedule);
    if (l->schedule == PL_INTERLEAVED) {
        if (!s->layers_per_stage || m->layers % (l->pp * s->layers_per_stage))
            return err_set(e, -EINVAL,
                           "Interleaved1F1B needs pipeline_parallel_layers_per_stage that divides "
                           "%d layers over pp %d",
                           m->layers, l->pp);
        l->vp = m->layers / (l->pp * s->layers_per_stage);
    }
    return 0;
}

/* One line of the TOML subset that job files use: [table], key = scalar. */
static int titan_line(struct titan *s, char table[64], char *line, int number, struct err *e)
{
    AUTO_FREE char *path = NULL;
    char *value, *end;
    int *field;
    bool known;
    int64_t v;

    line += strspn(line, " \t\r");
    if (!*line || *line == '#')
        return 0;
    if (*line == '[') {
        snprintf(table, 64, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
        return 0;
    }
    value = strchr(line, '=');
    if (!value)
        return err_set(e, -EINVAL, "line %d: expected key = value", number);
    for (end = value; end > line && isspace((unsigned char)end[-1]); end--)
        continue;
    *end = '\0';
    value += 1 + strspn(value + 1, " \t");
    if (*value == '"') {
        value++;
        value[strcspn(value, "\"")] = '\0';
    } else {
        value[strcspn(value, " \t\r#")] = '\0';
    }
    path = mem_printf("%s.%s", table, line);
    field = titan_number(s, path);
    if (field) {
        if (str_to_i64(&v, value, -1, 1 << 24) < 0 || (v < 1 && v != -1))
            return err_set(e, -EINVAL, "line %d: %s must be a positive integer, not `%.40s`",
                           number, path, value);
        *field = (int)v;
        return 0;
    }
    titan_word(s, path, value, &known);
    if (!known && strcmp(path, "activation_checkpoint.selective_ac_option") &&
        !strstr(path, "_stage_less_layers"))
        tn_finding_add(&s->out->ignored, path, "not a setting of the layout");
    return 0;
}

static int import_torchtitan(struct tn_imported *out, const char *text, const struct pl_model *m,
                             struct err *e)
{
    AUTO_FREE char *copy = mem_strdup(text);
    struct titan s = {.out = out, .replicate = 1, .shard = -1};
    char table[64] = "", *rest = copy, *line;
    int r = 0;

    for (int number = 1; r == 0 && (line = strsep(&rest, "\n")); number++)
        r = titan_line(&s, table, line, number, e);
    if (out->global_batch == -1)
        out->global_batch = 0;
    return r < 0 ? r : titan_finish(&s, m, e);
}

int tn_import(struct tn_imported *ret, const char *source, const char *text, int world,
              const struct pl_model *m, struct err *e)
{
    struct tn_imported out = {0};
    struct pl_workload w = {.global_batch = 1, .seq = m->seq};
    struct pl_layout *l = &out.layout;
    int r;

    pl_layout_default(l, &w);
    l->world = world;
    if (str_eq(source, "megatron"))
        r = import_megatron(&out, text, m, e);
    else if (str_eq(source, "deepspeed"))
        r = import_deepspeed(&out, text, e);
    else if (str_eq(source, "torchtitan"))
        r = import_torchtitan(&out, text, m, e);
    else
        return err_set(e, -ENOENT, "there is no import source \"%.64s\"", source);
    if (r < 0)
        return r;
    if (l->zero)
        l->zero_scope = PL_SCOPE_EP_AWARE;
    if (!pl_layout_derive(l))
        return err_set(
            e, -EINVAL,
            "%d devices are not a multiple of tp %d x cp %d x pp %d (or etp %d x ep %d x pp)",
            world, l->tp, l->cp, l->pp, l->etp, l->ep);
    pl_layout_canonical(l, m);
    *ret = out;
    return 0;
}
