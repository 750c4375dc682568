/*
 * Megatron-LM's command line arguments as a layout (megatron/training/arguments.py). Virtual stages
 * may be said in three ways; expert tensor parallelism defaults to tp, sharding under Megatron-FSDP
 * to zero 3, the global batch to one micro-batch of every replica.
 */
#include "tuner/export/internal.h"

#include <ctype.h>
#include <errno.h>

static int positive(int *ret, const char *key, const char *value, struct err *e)
{
    int64_t v;

    if (!value || str_to_i64(&v, value, 1, 1 << 24) < 0)
        return err_set(e, -EINVAL, "%.64s must be a positive integer, not `%.64s`", key,
                       value ? value : "");
    *ret = (int)v;
    return 0;
}

struct megatron {
    struct tn_imported *out;
    struct pl_layout *l;
    const struct pl_model *m;
    int layers_per_virtual, virtual_stages;
    int stages; /* of a whole pipeline layout, 0 without one */
    int recompute_layers;
    bool recompute_block;
    int fsdp_zero; /* what --data-parallel-sharding-strategy says; counts with Megatron-FSDP only */
    bool etp_said, no_overlap_p2p, fsdp;
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
        {"--recompute-num-layers", &s->recompute_layers},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i].flag, flag))
            return rows[i].field;
    return NULL;
}

/*
 * Sizes of the model: they are the campaign's, so here they are only held against it. False for
 * another flag.
 */
static bool model_number(struct megatron *s, const char *flag, const char *value)
{
    const struct pl_model *m = s->m;
    const struct {
        const char *flag;
        int have;
    } rows[] = {
        {"--num-layers", m->layers},
        {"--hidden-size", m->hidden},
        {"--ffn-hidden-size", m->ffn},
        {"--num-attention-heads", m->heads},
        {"--num-query-groups", m->kv_heads},
        {"--kv-channels", m->head_dim},
        {"--num-experts", m->moe.experts},
        {"--moe-router-topk", m->moe.top_k},
        {"--moe-ffn-hidden-size", m->moe.expert_ffn},
        {"--moe-shared-expert-intermediate-size", m->moe.shared_ffn},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t v;

        if (strcmp(rows[i].flag, flag))
            continue;
        if (!value || str_to_i64(&v, value, 0, 1 << 30) < 0 || v != rows[i].have)
            tn_finding_add(&s->out->ignored, flag, "%.40s, but %s has %d: another model?",
                           value ? value : "", m->name, rows[i].have);
        return true;
    }
    return false;
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
        {"--recompute-activations", &s->l->recompute, PL_RECOMPUTE_SELECTIVE},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!strcmp(rows[i].flag, flag)) {
            *rows[i].field = rows[i].value;
            return true;
        }
    }
    if (!strcmp(flag, "--bf16")) { /* also beside --fp8-format, which says more */
        if (s->l->precision == PL_FP32)
            s->l->precision = PL_BF16;
        return true;
    }
    if (!strcmp(flag, "--no-overlap-p2p-communication")) {
        s->no_overlap_p2p = true;
        return true;
    }
    if (!strcmp(flag, "--use-megatron-fsdp")) {
        s->fsdp = true;
        return true;
    }
    return false;
}

/*
 * Stages of a pipeline layout such as "E|(t|)*3,m|m||L": fields between bars, where X*N and (…)*N
 * repeat and commas only separate for the eye. Counts the bars; *P is left behind the group.
 */
static int bars(const char **p, int depth)
{
    int n = 0, last = 0; /* of the element that a * would repeat */

    for (; **p && **p != ')'; ++*p) {
        if (**p == '(' && depth < 8) {
            ++*p;
            last = bars(p, depth + 1);
            n += last;
            if (!**p)
                break;
        } else if (**p == '*') {
            long times = strtol(*p + 1, NULL, 10);

            n += last * (int)(times > 0 && times < 100000 ? times - 1 : 0);
            while (isdigit((unsigned char)(*p)[1]))
                ++*p;
        } else {
            last = **p == '|';
            n += last;
        }
    }
    return n;
}

/* Only attention's core has a word here. */
static int recompute_modules(struct megatron *s, const char *value)
{
    if (value && strcmp(value, "core_attn"))
        tn_finding_add(&s->out->ignored, "--recompute-modules",
                       "selective recomputation is of core_attn here, not of: %.100s", value);
    return 0;
}

static int megatron_word(struct megatron *s, const char *flag, const char *value, bool *ret_known,
                         struct err *e)
{
    *ret_known = true;
    if (!strcmp(flag, "--pipeline-model-parallel-layout") && value) {
        s->stages = bars(&value, 0) + 1;
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
                s->fsdp_zero = i;
                return 0;
            }
        }
        return err_set(e, -EINVAL, "unknown %s `%.40s`", flag, value ? value : "");
    }
    if (!strcmp(flag, "--fp8-format")) {
        s->l->precision = PL_FP8;
        return 0;
    }
    if (!strcmp(flag, "--fp16")) {
        s->l->precision = PL_BF16;
        tn_finding_add(&s->out->ignored, flag, "taken as bf16, which needs the same bytes");
        return 0;
    }
    if (!strcmp(flag, "--recompute-modules"))
        return recompute_modules(s, value);
    if (!strcmp(flag, "--recompute-method")) {
        if (!str_eq(value, "uniform") && !str_eq(value, "block"))
            return err_set(e, -EINVAL, "%s is `uniform` or `block`, not `%.40s`", flag,
                           value ? value : "");
        s->recompute_block = str_eq(value, "block");
        return 0;
    }
    *ret_known = !strcmp(flag, "--ckpt-format"); /* follows from the sharding */
    return 0;
}

static int virtual_stages(struct megatron *s, const struct pl_model *m, struct err *e)
{
    struct pl_layout *l = s->l;

    if (s->layers_per_virtual) {
        if (m->layers % ((int64_t)l->pp * s->layers_per_virtual))
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
    return 0;
}

/* Full recomputation is of every layer by itself here. */
static void recompute_form(struct megatron *s)
{
    int n = s->recompute_layers;

    if (s->l->recompute != PL_RECOMPUTE_FULL)
        return;
    if (s->recompute_block)
        tn_finding_add(&s->out->ignored, "--recompute-method",
                       "block recomputes %d layers of a stage: taken as all of them", n ? n : 1);
    else if (n > 1)
        tn_finding_add(&s->out->ignored, "--recompute-num-layers",
                       "layers are recomputed one by one here, not %d at a time", n);
}

static int megatron_finish(struct megatron *s, const struct pl_model *m, struct err *e)
{
    struct pl_layout *l = s->l;
    int r;

    if (!s->etp_said)
        l->etp = pl_model_is_moe(m) ? l->tp : 1; /* Megatron's default */
    if (s->fsdp)
        l->zero = s->fsdp_zero;
    recompute_form(s);
    r = tn_import_degrees(l, e);
    if (r == 0)
        r = virtual_stages(s, m, e);
    if (r == 0 && !s->out->global_batch) /* the default again */
        s->out->global_batch = l->micro_batch * (l->world / (l->tp * l->cp * l->pp));
    return r;
}

/* A backslash at the end of a line, whichever system's. */
static bool continues(const char *p)
{
    return *p == '\\' && (p[1] == '\n' || (p[1] == '\r' && p[2] == '\n'));
}

/* Past white space and continued lines. */
static const char *skip_space(const char *p)
{
    while (isspace((unsigned char)*p) || continues(p))
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
    for (; **p && (quote || (!isspace((unsigned char)**p) && !continues(*p))); ++*p) {
        if (**p == '\\' && quote != '\'' && (*p)[1])
            str_addc(word, *++*p);
        else if (quote ? **p == quote : (**p == '"' || **p == '\''))
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

/* Further words up to the next flag belong to it: "--recompute-modules core_attn mlp". */
static void more_values(struct str *value, const char **p, bool has_value)
{
    AUTO_STR word = {0};

    while (has_value && is_value(*p) && next_word(&word, p))
        str_addf(value, " %s", str_text(&word));
}

/* A whole command line ("torchrun … pretrain_gpt.py --…"): what stands before belongs to its
 * launcher. */
static const char *after_script(const char *text)
{
    AUTO_STR word = {0};
    const char *p = text;

    if (!next_word(&word, &p) || str_starts(str_text(&word), "--"))
        return text;
    do {
        if (str_ends(str_text(&word), ".py"))
            return p;
    } while (next_word(&word, &p));
    return text;
}

int tn_import_megatron(struct tn_imported *out, const char *text, const struct pl_model *m,
                       struct err *e)
{
    struct megatron s = {
        .out = out, .l = &out->layout, .m = m, .fsdp_zero = 3}; /* FSDP's default */
    AUTO_STR flag = {0};
    AUTO_STR value = {0};
    const char *p = after_script(text);

    while (next_word(&flag, &p)) {
        char *equals = flag.len ? strchr(flag.text, '=') : NULL; /* "" is a word without text */
        bool has_value = equals || is_value(p), known;
        int *field, r;

        if (!str_starts(str_text(&flag), "--"))
            return err_set(e, -EINVAL, "expected an argument that begins with --, found `%.64s`",
                           str_text(&flag));
        if (equals) {
            str_trunc(&value, 0);
            str_add(&value, equals + 1);
            *equals = '\0';
        } else if (has_value) {
            next_word(&value, &p);
        }
        more_values(&value, &p, has_value && !equals);
        field = megatron_number(&s, flag.text);
        if (field) {
            r = positive(field, flag.text, has_value ? value.text : NULL, e);
            if (r < 0)
                return r;
            s.etp_said |= field == &s.l->etp;
            continue;
        }
        if (megatron_flag(&s, flag.text) ||
            model_number(&s, flag.text, has_value ? value.text : NULL))
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
