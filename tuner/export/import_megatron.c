/*
 * Megatron-LM's command line arguments as a layout (megatron/training/arguments.py). Virtual stages
 * may be said in three ways; expert tensor parallelism defaults to tp, sharding under FSDP to zero
 * 3, the global batch to one micro-batch of every replica.
 *
 * The text is a shell script or a command line (import_shell.c). What only a shell could tell is an
 * error where it would have to be read, and listed everywhere else.
 */
#include "tuner/export/internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>

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
    struct str stages; /* a whole pipeline layout, written out; empty without one */
    int recompute_layers;
    int ulysses, zero_stage; /* of Megatron-DeepSpeed, 0 and -1: not said */
    bool recompute_method, recompute_block;
    int fsdp_zero; /* what --data-parallel-sharding-strategy says; counts with Megatron-FSDP only */
    char balancing[24]; /* --moe-router-load-balancing-type */
    double aux_coeff;   /* --moe-aux-loss-coeff; negative: not said */
    struct tn_words words;
    size_t at; /* the next word */
    bool etp_said, no_overlap_p2p, strategy_said, no_fusion, fsdp, torch_fsdp, torch_fsdp_keeps;
    bool deepspeed, layout_said;
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
        {"--ds-sequence-parallel-size", &s->ulysses}, /* Megatron-DeepSpeed */
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i].flag, flag))
            return rows[i].field;
    return NULL;
}

/* Sizes of the model: they are the campaign's, so here they are only held against it. */
static const int *model_number(const struct pl_model *m, const char *flag)
{
    const struct {
        const char *flag;
        const int *have;
    } rows[] = {
        {"--num-layers", &m->layers},
        {"--hidden-size", &m->hidden},
        {"--ffn-hidden-size", &m->ffn},
        {"--num-attention-heads", &m->heads},
        {"--num-query-groups", &m->kv_heads},
        {"--kv-channels", &m->head_dim},
        {"--num-experts", &m->moe.experts},
        {"--moe-router-topk", &m->moe.top_k},
        {"--moe-ffn-hidden-size", &m->moe.expert_ffn},
        {"--moe-shared-expert-intermediate-size", &m->moe.shared_ffn},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i].flag, flag))
            return rows[i].have;
    return NULL;
}

static void compare_model(struct megatron *s, const char *flag, const char *value, int have)
{
    int64_t v;

    if (!value || str_to_i64(&v, value, 0, 1 << 30) < 0 || v != have)
        tn_finding_add(&s->out->ignored, flag, "%.40s, but %s has %d: another model?",
                       value ? value : "", s->m->name, have);
}

/* Is this a flag without a value? If SET, what it says is noted. */
static bool megatron_flag(struct megatron *s, const char *flag, bool set)
{
    const struct {
        const char *flag;
        int *field;
        int value;
    } settings[] = {
        {"--sequence-parallel", &s->l->sp, 1},
        {"--use-distributed-optimizer", &s->l->zero, 1},
        {"--overlap-grad-reduce", &s->l->overlap_grad_reduce, 1},
        {"--overlap-param-gather", &s->l->overlap_param_gather, 1},
        {"--overlap-moe-expert-parallel-comm", &s->l->overlap_moe_a2a, 1},
        {"--recompute-activations", &s->l->recompute, PL_RECOMPUTE_SELECTIVE},
    };
    const struct {
        const char *flag;
        bool *field;
    } notes[] = {
        {"--no-overlap-p2p-communication", &s->no_overlap_p2p},
        {"--use-megatron-fsdp", &s->fsdp},
        {"--no-gradient-accumulation-fusion", &s->no_fusion}, /* which goes with it */
        {"--use-custom-fsdp", &s->fsdp},                      /* its name before */
        {"--use-torch-fsdp2", &s->torch_fsdp},
        {"--torch-fsdp2-no-reshard-after-forward", &s->torch_fsdp_keeps},
        {"--deepspeed", &s->deepspeed},
    };

    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        if (strcmp(settings[i].flag, flag))
            continue;
        if (set)
            *settings[i].field = settings[i].value;
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(notes); i++) {
        if (strcmp(notes[i].flag, flag))
            continue;
        *notes[i].field |= set;
        return true;
    }
    if (strcmp(flag, "--bf16") && strcmp(flag, "--fp16"))
        return false;
    if (set && s->l->precision == PL_FP32) /* --fp8-format beside it says more */
        s->l->precision = PL_BF16;
    if (set && !strcmp(flag, "--fp16"))
        tn_finding_add(&s->out->ignored, flag, "taken as bf16, which needs the same bytes");
    return true;
}

enum { MAX_STAGES_TEXT = 1 << 16 };

/*
 * A pipeline layout such as "E|(t|)*3,m|m||L" written out: X*N and (…)*N repeat, and commas only
 * separate for the eye. *P is left behind the group.
 */
static int write_out(struct str *out, const char **p, int depth, struct err *e)
{
    size_t last = out->len; /* where the element begins that a * would repeat */

    for (; **p && **p != ')'; ++*p) {
        if (**p == ',' || **p == ' ')
            continue;
        if (**p == '*') {
            AUTO_FREE char *piece = mem_strdup(str_text(out) + last);
            char *end;
            long times = strtol(*p + 1, &end, 10);

            if (end == *p + 1 || times < 1 || times > MAX_STAGES_TEXT)
                return err_set(e, -EINVAL, "the pipeline layout repeats %.20s times", *p + 1);
            for (; times > 1 && out->len <= MAX_STAGES_TEXT; times--)
                str_add(out, piece);
            *p = end - 1;
        } else if (**p == '(' && depth < 8) {
            int r;

            last = out->len;
            ++*p;
            r = write_out(out, p, depth + 1, e);
            if (r < 0)
                return r;
            if (**p != ')')
                return err_set(e, -EINVAL, "a bracket of the pipeline layout does not close");
        } else {
            last = out->len;
            str_addc(out, **p);
        }
        if (out->len > MAX_STAGES_TEXT)
            return err_set(e, -EINVAL, "the pipeline layout has no end");
    }
    return 0;
}

static int whole_layout(struct megatron *s, const char *value, struct err *e)
{
    int r;

    str_trunc(&s->stages, 0);
    r = write_out(&s->stages, &value, 0, e);
    if (r == 0 && *value)
        return err_set(e, -EINVAL, "a bracket of the pipeline layout was never opened");
    if (r == 0 && !s->stages.len)
        return err_set(e, -EINVAL, "--pipeline-model-parallel-layout is empty");
    return r;
}

static int count_stages(const char *layout)
{
    int n = 1;

    for (; *layout; layout++)
        n += *layout == '|';
    return n;
}

/* Ours are equally long, the first ones by one longer: another division is listed, once. */
static void compare_stages(struct megatron *s)
{
    const char *p = s->stages.text;

    for (int run = 0; run < s->l->pp * s->l->vp; run++) {
        int want = pl_stage_layers(s->l, s->m->layers, run % s->l->pp, run / s->l->pp, NULL), n = 0;

        for (; *p && *p != '|'; p++)
            n += *p == 't';
        p += *p == '|';
        if (n == want)
            continue;
        tn_finding_add(&s->out->ignored, "--pipeline-model-parallel-layout",
                       "stage %d holds %d layers there; stages are equally long here, it holds %d",
                       run, n, want);
        return;
    }
}

/* Two flags say what the load-balancing loss is; *RET_KNOWN: this is one of them. */
static int balancing(struct megatron *s, const char *flag, const char *value, bool *ret_known,
                     struct err *e)
{
    if (!strcmp(flag, "--moe-router-load-balancing-type")) {
        snprintf(s->balancing, sizeof(s->balancing), "%.20s", value ? value : "");
        return 0;
    }
    *ret_known = !strcmp(flag, "--moe-aux-loss-coeff");
    if (*ret_known && (!value || str_to_f64(&s->aux_coeff, value) < 0 || s->aux_coeff < 0))
        return err_set(e, -EINVAL, "%s is a number that is not negative, not `%.40s`", flag,
                       value ? value : "");
    return 0;
}

/* The model is the campaign's; where its load-balancing loss presses otherwise than the script's,
 * this says what the model would have to have. */
static void compare_balancing(struct megatron *s)
{
    bool none = str_eq(s->balancing, "none") || s->aux_coeff <= 0;
    bool sequence = str_eq(s->balancing, "seq_aux_loss");
    struct pl_model theirs = *s->m;
    enum pl_aux_loss as = sequence ? PL_AUX_SEQUENCE : PL_AUX_MEGATRON;
    double ours = s->m->moe.aux_loss_coef;

    if (!pl_model_is_moe(s->m) || (!s->balancing[0] && s->aux_coeff < 0))
        return;
    theirs.moe.aux_loss = PL_AUX_MEGATRON;
    theirs.moe.aux_loss_coef = none ? 0 : s->aux_coeff;
    theirs.moe.aux_loss_coef = pl_aux_loss_coef(&theirs, as);
    if (none && ours == 0)
        return;
    if (!none && !sequence && *s->balancing && !str_eq(s->balancing, "aux_loss"))
        tn_finding_add(&s->out->ignored, "--moe-router-load-balancing-type",
                       "%s: moe.aux_loss of a model has no such word", s->balancing);
    else if (as != s->m->moe.aux_loss || fabs(ours - theirs.moe.aux_loss_coef) > 1e-6 * ours)
        tn_finding_add(&s->out->ignored, "--moe-aux-loss-coeff",
                       "this is aux_loss \"%s\" with aux_loss_coef %.6g, but %s has \"%s\" with "
                       "%.6g: another model?",
                       pl_aux_loss_names[as], theirs.moe.aux_loss_coef, s->m->name,
                       pl_aux_loss_names[s->m->moe.aux_loss], ours);
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
    if (!strcmp(flag, "--pipeline-model-parallel-layout"))
        return whole_layout(s, value ? value : "", e);
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
                s->strategy_said = true;
                return 0;
            }
        }
        return err_set(e, -EINVAL, "unknown %s `%.40s`", flag, value ? value : "");
    }
    if (!strcmp(flag, "--fp8-format")) {
        s->l->precision = PL_FP8;
        return 0;
    }
    if (!strcmp(flag, "--zero-stage")) {
        int64_t stage;

        if (!value || str_to_i64(&stage, value, 0, 3) < 0)
            return err_set(e, -EINVAL, "%s is 0 to 3, not `%.40s`", flag, value ? value : "");
        s->zero_stage = (int)stage;
        return 0;
    }
    if (!strcmp(flag, "--recompute-modules"))
        return recompute_modules(s, value);
    if (!strcmp(flag, "--recompute-method")) {
        if (!str_eq(value, "uniform") && !str_eq(value, "block"))
            return err_set(e, -EINVAL, "%s is `uniform` or `block`, not `%.40s`", flag,
                           value ? value : "");
        s->recompute_method = true;
        s->recompute_block = str_eq(value, "block");
        return 0;
    }
    if (!strcmp(flag, "--ckpt-format") && str_eq(value, "fsdp_dtensor"))
        return 0; /* it follows from the sharding */
    return balancing(s, flag, value, ret_known, e);
}

static int virtual_stages(struct megatron *s, const struct pl_model *m, struct err *e)
{
    struct pl_layout *l = s->l;

    if (!!s->layers_per_virtual + !!s->virtual_stages + !!s->stages.len > 1)
        return err_set(e, -EINVAL,
                       "at most one of --num-layers-per-virtual-pipeline-stage, "
                       "--num-virtual-stages-per-pipeline-rank and "
                       "--pipeline-model-parallel-layout can be given");
    if (s->layers_per_virtual) {
        if (m->layers % ((int64_t)l->pp * s->layers_per_virtual))
            return err_set(e, -EINVAL,
                           "%d layers are not a multiple of pp %d x %d layers a virtual stage",
                           m->layers, l->pp, s->layers_per_virtual);
        l->vp = m->layers / (l->pp * s->layers_per_virtual);
    } else if (s->virtual_stages) {
        l->vp = s->virtual_stages;
    } else if (s->stages.len) {
        int stages = count_stages(s->stages.text);

        if (stages % l->pp)
            return err_set(e, -EINVAL, "the pipeline layout has %d stages, not a multiple of pp %d",
                           stages, l->pp);
        l->vp = stages / l->pp;
        compare_stages(s);
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

    if (s->l->recompute != PL_RECOMPUTE_FULL) {
        if (s->recompute_method)
            tn_finding_add(&s->out->ignored, "--recompute-method", "counts with full only");
        if (n)
            tn_finding_add(&s->out->ignored, "--recompute-num-layers", "counts with full only");
        return;
    }
    if (s->recompute_block)
        tn_finding_add(&s->out->ignored, "--recompute-method",
                       "block recomputes %d layers of a stage: taken as all of them", n ? n : 1);
    else if (n > 1)
        tn_finding_add(&s->out->ignored, "--recompute-num-layers",
                       "layers are recomputed one by one here, not %d at a time", n);
}

static void sharding(struct megatron *s)
{
    if (s->fsdp)
        s->l->zero = s->fsdp_zero;
    else if (s->torch_fsdp)
        s->l->zero = s->torch_fsdp_keeps ? 2 : 3;
    if (s->deepspeed && s->zero_stage >= 0)
        s->l->zero = s->zero_stage;
    else if (s->zero_stage > 0)
        tn_finding_add(&s->out->ignored, "--zero-stage", "counts with --deepspeed only");
    if (s->deepspeed && s->zero_stage < 0)
        tn_finding_add(&s->out->ignored, "--deepspeed",
                       "what its configuration sets is not known here");
    if (s->ulysses > 1) {
        s->l->cp = s->ulysses;
        tn_finding_add(&s->out->ignored, "--ds-sequence-parallel-size", TN_ULYSSES);
    }
    if (s->strategy_said && !s->fsdp)
        tn_finding_add(&s->out->ignored, "--data-parallel-sharding-strategy",
                       "counts with --use-megatron-fsdp only");
    if (s->torch_fsdp_keeps && !s->torch_fsdp)
        tn_finding_add(&s->out->ignored, "--torch-fsdp2-no-reshard-after-forward",
                       "counts with --use-torch-fsdp2 only");
}

static int megatron_finish(struct megatron *s, const struct pl_model *m, struct err *e)
{
    struct pl_layout *l = s->l;
    int r;

    if (!s->etp_said)
        l->etp = pl_model_is_moe(m) ? l->tp : 1; /* Megatron's default */
    sharding(s);
    recompute_form(s);
    compare_balancing(s);
    r = tn_import_degrees(l, e);
    if (r == 0)
        r = virtual_stages(s, m, e);
    if (r == 0 && !s->out->global_batch) /* the default again */
        r = tn_import_global_batch(s->out, l->micro_batch, l->world / (l->tp * l->cp * l->pp), e);
    return r;
}

/* How many of the words behind a flag belong to it. */
enum takes { NOTHING, ONE, ANY };

static enum takes takes(struct megatron *s, const char *flag)
{
    static const char *const words[] = {"--pipeline-model-parallel-layout",
                                        "--recompute-granularity",
                                        "--recompute-method",
                                        "--data-parallel-sharding-strategy",
                                        "--fp8-format",
                                        "--zero-stage",
                                        NULL};

    if (megatron_flag(s, flag, false))
        return NOTHING;
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], flag))
            return ONE;
    return megatron_number(s, flag) || model_number(s->m, flag) ? ONE : ANY;
}

static bool is_flag(const struct tn_word *w)
{
    return str_starts(w->text, "--");
}

/* Names what a shell would have to tell. */
static int not_known(const struct tn_word *w, struct err *e)
{
    const char *what = w->unknown && *w->unknown ? w->unknown : w->text;

    switch (w->why) {
    case TN_WORD_UNSET:
        return err_set(e, -EINVAL, "`%.64s` is not set in this text: add a line that sets it",
                       what);
    case TN_WORD_GIVEN:
        return err_set(
            e, -EINVAL,
            "`%.64s` is given to the script when it is run: write its value in its place", what);
    case TN_WORD_MAYBE:
        return err_set(
            e, -EINVAL,
            "`%.64s` stands under a condition: write what holds for your job in its place", what);
    case TN_WORD_WRONG:
        return err_set(e, -EINVAL, "`%.64s` divides by zero, or does not fit into 64 bits", what);
    default:
        return err_set(e, -EINVAL,
                       "`%.64s` is for a shell to work out: write its value in its place", what);
    }
}

/* A variable that holds arguments rather than the value of one. */
static bool names_arguments(const struct tn_word *w)
{
    return (w->why == TN_WORD_UNSET || w->why == TN_WORD_RUN || w->why == TN_WORD_MAYBE) &&
           str_eq(w->text, w->unknown) &&
           (strstr(w->text, "[@]") || strstr(w->text, "[*]") || strcasestr(w->text, "arg") ||
            strcasestr(w->text, "opt"));
}

/* The values of a flag, up to the next one: "--recompute-modules core_attn mlp". *RET_UNKNOWN is
 * the first that is not known, or NULL. */
static bool read_values(struct megatron *s, struct str *value, enum takes most,
                        const struct tn_word **ret_unknown)
{
    int n = 0;

    for (; s->at < s->words.n && (most == ANY || n < (int)most); n++, s->at++) {
        const struct tn_word *w = &s->words.v[s->at];

        if (is_flag(w) || (most == ANY && (names_arguments(w) || str_eq(w->unknown, "$@"))))
            break;
        if (w->why && !*ret_unknown)
            *ret_unknown = w;
        str_addf(value, "%s%s", n ? " " : "", w->text);
    }
    return n > 0;
}

/* Does FLAG say something of the layout? */
static bool is_setting(struct megatron *s, const char *flag)
{
    return takes(s, flag) != ANY && !model_number(s->m, flag);
}

/* W may hold its value, too: "--seq-length=4096". */
static int argument(struct megatron *s, const struct tn_word *w, struct err *e)
{
    AUTO_FREE char *flag = mem_strdup(w->text);
    char *equals = strchr(flag, '=');
    AUTO_STR text = {0};
    const struct tn_word *unknown = w->why ? w : NULL;
    const char *value = NULL;
    enum takes most;
    const int *have;
    bool known;
    int *field, r;

    if (equals)
        *equals = '\0';
    if (w->why && w->why != TN_WORD_MAYBE && strpbrk(flag, "$`"))
        return not_known(w, e);
    most = takes(s, flag);
    if (equals && most == NOTHING)
        return err_set(e, -EINVAL, "%.64s takes no value, not `%.64s`", flag, equals + 1);
    if (equals)
        value = equals + 1;
    else if (read_values(s, &text, most, &unknown))
        value = str_text(&text);
    s->layout_said |= is_setting(s, flag);
    if (unknown && (is_setting(s, flag) || (unknown != w && tn_megatron_may_be_degree(flag)))) {
        r = not_known(unknown, e);
        return unknown == w && !equals ? r : err_wrap(e, "%.64s", flag);
    }
    if (megatron_flag(s, flag, true))
        return 0;
    if ((field = megatron_number(s, flag)) != NULL) {
        s->etp_said |= field == &s->l->etp;
        return positive(field, flag, value, e);
    }
    if ((have = model_number(s->m, flag)) != NULL) {
        compare_model(s, flag, value, *have);
        return 0;
    }
    r = megatron_word(s, flag, value, &known, e);
    return r == 0 && !known ? tn_megatron_unknown(s->out, flag, value, e) : r;
}

/* Another program's arguments would all be ignored, and the defaults of Megatron-LM be taken for its
 * layout. */
static int check_program(const struct megatron *s, struct err *e)
{
    if (!*s->words.program || str_starts(s->words.program, "pretrain") || s->layout_said)
        return 0;
    return err_set(e, -EINVAL,
                   "%.64s is given no setting of a layout that Megatron-LM knows: is it another "
                   "program?",
                   s->words.program);
}

static int arguments(struct megatron *s, struct err *e)
{
    int r = 0;

    while (r == 0 && s->at < s->words.n) {
        const struct tn_word *w = &s->words.v[s->at++];

        if (is_flag(w))
            r = argument(s, w, e);
        else if (str_eq(w->unknown, "$@") || str_eq(w->unknown, "$*"))
            tn_finding_add(&s->out->ignored, w->unknown,
                           "what the script is given when it is run is not known here");
        else if (w->why)
            r = not_known(w, e);
        else
            r = err_set(e, -EINVAL, "expected an argument that begins with --, found `%.64s`",
                        w->text);
    }
    return r;
}

int tn_import_megatron(struct tn_imported *out, const char *text, const struct pl_model *m,
                       struct err *e)
{
    struct megatron s = {.out = out,
                         .l = &out->layout,
                         .m = m,
                         .fsdp_zero = 3,
                         .aux_coeff = -1,
                         .zero_stage = -1}; /* FSDP's default */
    AUTO_FREE char *yaml = NULL;
    int r = tn_yaml_arguments(&yaml, text, e);

    if (r == 0)
        r = tn_shell_arguments(&s.words, &out->ignored, yaml ? yaml : text, e);
    if (r == 0)
        r = arguments(&s, e);
    if (r == 0)
        r = check_program(&s, e);
    if (r == 0)
        r = megatron_finish(&s, m, e);
    str_done(&s.stages);
    tn_words_done(&s.words);
    return r;
}
