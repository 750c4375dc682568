/* The settings, and the options made from them and from the keys of a layout. */
#include "trainer/options.h"

#include "base/base.h"
#include "trainer/skip.h"

#include <assert.h>
#include <errno.h>

/* "1,2,3" is an array of integers. */
enum { LIST_MAX = 16, OBJECTS_MAX = 1000 };

static int list_read(const char **ret, struct tr_options *options, const json_t *object,
                     const char *key, struct err *error)
{
    AUTO_FREE char *at = mem_printf("/%s", key);
    AUTO_STR text = {0};
    json_t *list = NULL, *v;
    size_t i;
    int r = jx_get_array(&list, object, key, LIST_MAX, error);

    if (r < 0 || !list)
        return r;
    json_array_foreach(list, i, v) {
        if (!json_is_integer(v))
            return err_at(error, -EINVAL, at, "item %zu of %s is not an integer", i, key);
        str_addf(&text, "%s%lld", i ? "," : "", (long long)json_integer_value(v));
    }
    *ret = tr_options_keep(options, str_text(&text));
    return 0;
}

static json_t *list_json(const char *text)
{
    json_t *list = json_array();

    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        json_array_append_new(list, json_integer(strtoll(at, NULL, 10)));
    return list;
}

static const struct tr_form list_form = {list_read, list_json};

/* An array of objects is its own JSON text. */
static int objects_read(const char **ret, struct tr_options *options, const json_t *object,
                        const char *key, struct err *error)
{
    json_t *array = NULL;
    int r = jx_get_array(&array, object, key, OBJECTS_MAX, error);
    AUTO_FREE char *text = array ? jx_dump(array) : NULL;

    if (text)
        *ret = tr_options_keep(options, text);
    return r;
}

static json_t *objects_json(const char *text)
{
    json_t *array = NULL;

    (void)jx_parse(&array, text, strlen(text), NULL);
    return array;
}

static const struct tr_form objects_form = {objects_read, objects_json};

#define ROW(opt, sec, k, t, field, lo, hi, std, env, meta, text)                                   \
    {                                                                                              \
        opt, sec, k, t, offsetof(struct tr_config, field), lo, hi, std, env, meta, text, NULL      \
    }
#define INT(opt, sec, k, field, lo, hi, std, text)                                                 \
    ROW(opt, sec, k, OPT_INT, field, lo, hi, std, NULL, NULL, text)
#define NUM(opt, sec, k, field, lo, hi, std, text)                                                 \
    ROW(opt, sec, k, OPT_F64, field, lo, hi, std, NULL, NULL, text)
#define STR(opt, sec, k, field, meta, text)                                                        \
    ROW(opt, sec, k, OPT_STR, field, 0, 0, NULL, NULL, meta, text)
#define ARRAY(opt, sec, k, field, form, meta, text)                                                \
    {                                                                                              \
        opt, sec, k, OPT_STR, offsetof(struct tr_config, field), 0, 0, NULL, NULL, meta, text,     \
            form                                                                                   \
    }
#define FLAG(opt, sec, k, field, text)                                                             \
    ROW(opt, sec, k, OPT_FLAG, field, 0, 0, "false", NULL, NULL, text)

enum { STEPS_MAX = 1000000000 };

const struct tr_setting tr_settings[] = {
    INT("warmup-steps", "trial", "warmup_steps", trial.warmup_steps, 0, PL_LIMIT_WARMUP_MAX, "2",
        "trial: steps to run before measuring"),
    INT("min-steps", "trial", "min_steps", trial.min_steps, PL_LIMIT_STEPS_MIN, PL_LIMIT_STEPS_MAX,
        "5", "trial: minimum number of measured steps"),
    INT("max-steps", "trial", "max_steps", trial.max_steps, PL_LIMIT_STEPS_MIN, PL_LIMIT_STEPS_MAX,
        "30", "trial: maximum number of measured steps"),
    NUM("ci", "trial", "ci", trial.ci, 0, 1, "0.02",
        "trial: stop when the half-width of the 95 % interval is below this share of the median"),
    NUM("timeout", "trial", "timeout_s", trial.timeout_s, 0, PL_LIMIT_TIMEOUT_MAX, "0",
        "trial: stop after this many seconds (0: no limit)"),

    INT("steps", "train", "steps", train.steps, 1, STEPS_MAX, "100", "step number to train to"),
    NUM("lr", "train", "lr", train.lr, 0, 1e3, "3e-4", "peak learning rate"),
    NUM("min-lr", "train", "min_lr", train.min_lr, 0, 1e3, "3e-5",
        "final learning rate, from --lr-decay-steps on"),
    INT("lr-decay-steps", "train", "lr_decay_steps", train.lr_decay_steps, 0, STEPS_MAX, "0",
        "step at which the learning rate reaches --min-lr (0: the checkpoint's, or --steps for a "
        "new "
        "run)"),
    STR("lr-decay-style", "train", "lr_decay_style", train.lr_decay_style, "WORD",
        "cosine, linear, wsd (warm-up, stable, decay), constant or inverse-square-root (default: "
        "the checkpoint's, or cosine for a new run)"),
    INT("lr-wsd-decay-steps", "train", "lr_wsd_decay_steps", train.lr_wsd_decay_steps, 0, STEPS_MAX,
        "0", "wsd: steps of the decay, which ends at --lr-decay-steps"),
    STR("lr-wsd-decay-style", "train", "lr_wsd_decay_style", train.lr_wsd_decay_style, "WORD",
        "wsd: exponential, linear, cosine or minus_sqrt (default: exponential)"),
    INT("lr-warmup", "train", "warmup_steps", train.warmup_steps, 0, STEPS_MAX, "10",
        "steps of linear warm-up of the learning rate"),
    NUM("weight-decay", "train", "weight_decay", train.weight_decay, 0, 1e3, "0.1",
        "weight decay, matrices only"),
    NUM("beta1", "train", "beta1", train.beta1, 0, 0.999999, "0.9", "AdamW and LAMB: beta1"),
    NUM("beta2", "train", "beta2", train.beta2, 0, 0.9999999, "0.95", "AdamW and LAMB: beta2"),
    NUM("eps", "train", "eps", train.eps, 1e-30, 1, "1e-8", "AdamW and LAMB: epsilon"),
    NUM("sgd-momentum", "train", "sgd_momentum", train.sgd_momentum, 0, 0.999999, "0.9",
        "SGD: momentum"),
    NUM("muon-momentum", "train", "muon_momentum", train.muon_momentum, 0, 0.999999, "0.95",
        "Muon: momentum of its matrices"),
    NUM("clip", "train", "clip", train.clip, 0, 1e9, "1",
        "clip the global gradient norm to this (0: no clipping)"),
    NUM("z-loss-coef", "train", "z_loss_coef", train.z_loss_coef, 0, 1e3, "0",
        "coefficient of the output's z-loss (0: none; PaLM: 1e-4)"),
    INT("seed", "train", "seed", train.seed, 0, INT32_MAX, "1",
        "seed of the initial weights and the sample order"),
    INT("validate-every", "train", "validate_every", train.validate_every, 0, STEPS_MAX, "0",
        "steps between validations (0: none)"),
    INT("validate-samples", "train", "validate_samples", train.validate_samples, 1, STEPS_MAX, "64",
        "sequences per validation"),
    INT("layer-metrics-every", "train", "layer_metrics_every", train.layer_metrics_every, 0,
        STEPS_MAX, "0",
        "steps between logs of each layer: norms of gradients and weights, tokens of each expert "
        "(0: none)"),
    ARRAY("rampup-batch-size", "train", "rampup_batch_size", train.rampup_batch_size, &list_form,
          "START,INCREMENT,SAMPLES",
          "grow the global batch from START sequences by INCREMENT to --global-batch, in equal "
          "shares of SAMPLES sequences"),
    ARRAY("param-groups", "train", "param_groups", train.param_groups, &objects_form, "JSON",
          "learning rates and weight decay of parameters by name: [{\"match\": \"GLOB\", "
          "\"lr_mult\": X, \"wd_mult\": X}, ...]; also lr, min_lr, weight_decay"),
    NUM("skip-step-sigma", "train", "skip_step_sigma", train.skip_step_sigma, 0, 1e6, "0",
        "skip a step whose loss or gradient norm is more than so many standard deviations above "
        "the mean of the steps before it (0: never)"),
    INT("skip-step-interval", "train", "skip_step_interval", train.skip_step_interval, TR_SKIP_MIN,
        TR_SKIP_MAX, "128", "steps of this mean and standard deviation"),

    STR("checkpoint", "checkpoint", "dir", checkpoint.dir, "DIR", "checkpoint directory"),
    INT("checkpoint-every", "checkpoint", "every", checkpoint.every, 0, STEPS_MAX, "0",
        "steps between checkpoints (0: only at the end and when stopped)"),
    INT("checkpoint-keep", "checkpoint", "keep", checkpoint.keep, 0, 1000000, "0",
        "number of checkpoints to keep (0: all)"),
    FLAG("checkpoint-async", "checkpoint", "async", checkpoint.async,
         "write checkpoints while training continues, from a copy in memory"),
    FLAG("resume", "checkpoint", "resume", checkpoint.resume,
         "resume from the newest checkpoint, if there is one"),
    STR("resume-from", "checkpoint", "load", checkpoint.load, "FOLDER",
        "resume from this checkpoint"),

    NUM("expected", "expected", "tokens_per_s", expected.tokens_per_s, 0, 1e18, "0",
        "expected tokens/s of this layout; warn below --expected-lo"),
    NUM("expected-lo", "expected", "lo", expected.lo, 0, 1e18, "0",
        "lower end of the prediction interval of --expected"),
    NUM("expected-hi", "expected", "hi", expected.hi, 0, 1e18, "0",
        "upper end of the prediction interval of --expected"),

    ROW("data-dir", NULL, NULL, OPT_STR, data_dir, 0, 0, NULL, "PARTUNE_DATA", "DIR",
        "data directory: datasets/ and profiles/"),
    ROW("device-memory", "run", "device_memory", OPT_BYTES, device_memory, 0, 0, "0", NULL, "SIZE",
        "device memory per rank (0: its share of the machine, or of its GPU)"),
    STR("device", "run", "device", device, "WORD",
        "where to compute: cpu, cuda (the GPU of the rank's number on its host), cuda:N, cuda:all "
        "(GPUs in turn), or auto: cuda, and where a rank cannot have it, cpu (default: cpu)"),
    STR("data", "run", "data", data, "NAME",
        "data set or path, or several by weight as \"0.7 web 0.3 code\" (default: synthetic)"),
    STR("events", NULL, NULL, events, "FILE", "write events to FILE"),
    STR("init", "run", "init", init, "FOLDER",
        "read initial weights from a Hugging Face directory"),
    STR("save-hf", "run", "save_hf", save_hf, "FOLDER",
        "write a Hugging Face directory at the end"),
    STR("calibrate", NULL, NULL, calibrate, "FILE", "measure this machine and write its profile"),
    STR("timeline", "run", "timeline", timeline, "FILE", "write a Chrome trace of one step"),
    STR("metrics", "run", "metrics", metrics, "FILE", "append one JSON object per step"),
    STR("prometheus", "run", "prometheus", prometheus, "FILE",
        "write metrics in Prometheus text format"),
    NUM("hang-report", "run", "hang_report_s", hang_report_s, 0, 86400, "10",
        "report which rank the others wait for after so many seconds without progress, or 3 median "
        "steps if that is longer (0: never; else at least 3)"),
    NUM("distributed-timeout-minutes", "run", "distributed_timeout_minutes",
        distributed_timeout_minutes, 0, 1e6, "0",
        "end a job that makes no progress for so long (0: never)"),
    FLAG("quiet", "run", "quiet", quiet, "print only errors"),
    FLAG("log-all-ranks", NULL, NULL, log_all_ranks, "log on every rank"),
};

const size_t tr_settings_count = ARRAY_LEN(tr_settings);

/* Options that config.c reads by name. */
static const struct opt special[] = {
    {"config", 'c', OPT_STR, 0, 0, 0, NULL, NULL, "FILE",
     "configuration, JSON; options override it"},
    {"model", 'm', OPT_STR, 0, 0, 0, NULL, NULL, "NAME",
     "model preset or JSON file (a name with / or .json)"},
    {"aux-loss", 0, OPT_STR, 0, 0, 0, NULL, NULL, "WORD",
     "load-balancing loss: sequence (mean over sequences and layers), huggingface or megatron "
     "(over a micro-batch); default: the model's"},
    {"aux-loss-coef", 0, OPT_STR, 0, 0, 0, NULL, NULL, "X",
     "coefficient of the load-balancing loss (default: the model's)"},
    {"moe-z-loss-coef", 0, OPT_STR, 0, 0, 0, NULL, NULL, "X",
     "coefficient of the routers' z-loss (default: the model's)"},
    {"cluster", 0, OPT_STR, 0, 0, 0, NULL, NULL, "NAME",
     "cluster profile or JSON file (default: this machine)"},
    {"global-batch", 'b', OPT_STR, 0, 0, 0, NULL, NULL, "N", "sequences per step (default 16)"},
    {"seq", 0, OPT_STR, 0, 0, 0, NULL, NULL, "N", "tokens per sequence (default: the model's)"},
    {"optimizer", 0, OPT_STR, 0, 0, 0, NULL, NULL, "WORD",
     "adamw, sgd, lamb or muon (default: adamw)"},
    {"eod", 0, OPT_STR, 0, 0, 0, NULL, NULL, "N",
     "end-of-document token, for the three options below (default 0)"},
    {"reset-attention-mask", 0, OPT_FLAG, 0, 0, 0, NULL, NULL, NULL,
     "attention does not cross document boundaries in a sample"},
    {"reset-position-ids", 0, OPT_FLAG, 0, 0, 0, NULL, NULL, NULL,
     "positions restart at each document of a sample"},
    {"eod-mask-loss", 0, OPT_FLAG, 0, 0, 0, NULL, NULL, NULL,
     "mask the loss of the token that follows the end of a document"},
    {"trial", 0, OPT_FLAG, 0, 0, 0, NULL, NULL, NULL,
     "measure throughput until its interval is narrow"},
    {"dump-config", 0, OPT_FLAG, 0, 0, 0, NULL, NULL, NULL,
     "print the configuration as JSON and exit"},
    {"help", 'h', OPT_FLAG, 0, 0, 0, NULL, NULL, NULL, "print this help and exit"},
    {"manual", 0, OPT_FLAG, 0, 0, 0, NULL, NULL, NULL, "print the manual page in roff and exit"},
    {"version", 0, OPT_FLAG, 0, 0, 0, NULL, NULL, NULL, "print the version and exit"},
};

const struct opt_manual tr_manual = {
    .section = 1,
    .summary = "trains Llama and Mixtral models on MPI ranks",
    .description =
        "Trains a language model in a given parallel layout, each rank on one or a few CPU cores; "
        "with \\-\\-trial, measures the throughput of the layout. Without a data set it trains on "
        "a synthetic language. The ranks that mpiexec or srun started are all data parallel unless "
        "layout options say otherwise. The configuration file is JSON; reference/trainer.md among "
        "the installed documents lists its keys, and \\-\\-dump\\-config prints the configuration "
        "of a command line as such a file. TERM ends it after the current step, with a checkpoint "
        "if \\-\\-checkpoint is given.",
    .more =
        ".SH EXIT STATUS\n0 success, 2 wrong usage, 65 illegal layout, 66 out of memory, 67 NaN or "
        "infinite loss, 68 bad data, 69 communication, 70 files, 75 stopped on request. mpiexec "
        "returns the bitwise OR of the codes of its ranks, or, if it was signalled itself, 75 or "
        "0: the last event of \\-\\-events (summary, stopped, error) says how the run ended.\n"
        ".SH SEE ALSO\n.BR partune\\-data (1),\n.BR partuned (8)\n",
};

const char *tr_options_keep(struct tr_options *options, const char *text)
{
    MEM_GROW(options->owned, options->nowned, options->owned_cap);
    return options->owned[options->nowned++] = mem_strdup(text);
}

/* "zero_scope" as "zero-scope". */
static struct opt layout_option(struct tr_options *options, const struct pl_layout_key *key)
{
    AUTO_FREE char *name = mem_strdup(key->name);
    AUTO_STR help = {0};
    bool own = key->trainers & PL_BY_PARTUNE;

    for (char *p = name; *p; p++)
        if (*p == '_')
            *p = '-';
    str_add(&help, own ? key->means : "for other trainers; here only the default is legal");
    for (const char *const *w = key->names; own && w && *w; w++)
        if (**w)
            str_addf(&help, "%s%s", w == key->names ? ": " : ", ", *w);
    return (struct opt){.name = tr_options_keep(options, name),
                        .type = OPT_STR,
                        .metavar = key->names || key->text ? "WORD" : "N",
                        .help = tr_options_keep(options, str_text(&help))};
}

struct tr_options *tr_options_new(void)
{
    struct tr_options *o = mem_alloc(sizeof(*o));
    size_t n = 0, keys = 0;

    while (pl_layout_keys[keys].name)
        keys++;
    keys--; /* global_batch is an option of the workload */
    o->table = mem_alloc((ARRAY_LEN(special) + keys + tr_settings_count) * sizeof(*o->table));
    for (size_t i = 0; i < ARRAY_LEN(special); i++)
        o->table[n++] = special[i];
    for (size_t i = 0; i < tr_settings_count; i++) {
        const struct tr_setting *s = &tr_settings[i];

        o->table[n++] = (struct opt){s->option, 0,           s->type, 0,          s->min,
                                     s->max,    s->standard, s->env,  s->metavar, s->help};
    }
    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++)
        if (key != PL_KEY_GLOBAL_BATCH)
            o->table[n++] = layout_option(o, &pl_layout_keys[key]);
    for (size_t i = 0; i < n; i++)
        o->table[i].offset = i * sizeof(*o->value);
    o->value = mem_alloc(n * sizeof(*o->value));
    o->set = (struct opt_set){.program = "partune-train",
                              .section = "train",
                              .table = o->table,
                              .count = n,
                              .usage = "mpiexec -n N partune-train [--config FILE] [options]",
                              .values = o->value,
                              .last = keys,
                              .last_title = "layout"};
    opt_init(&o->set);
    return o;
}

struct tr_options *tr_options_free(struct tr_options *options)
{
    if (!options)
        return NULL;
    opt_done(&options->set);
    for (size_t i = 0; i < options->nowned; i++)
        free(options->owned[i]);
    free(options->owned);
    free(options->table);
    free(options->value);
    free(options);
    return NULL;
}

static size_t index_of(const struct tr_options *options, const char *name)
{
    for (size_t i = 0; i < options->set.count; i++)
        if (!strcmp(options->table[i].name, name))
            return i;
    abort(); /* a name that is not in the tables above */
}

const char *tr_options_text(const struct tr_options *options, const char *name)
{
    return options->value[index_of(options, name)].s;
}

bool tr_options_flag(const struct tr_options *options, const char *name)
{
    return options->value[index_of(options, name)].b;
}

bool tr_options_given(const struct tr_options *options, const char *name)
{
    return !str_eq(options->set.origin[index_of(options, name)], "default");
}

void tr_options_store(const struct tr_options *options, size_t index, struct tr_config *config)
{
    const union tr_value *v = &options->value[ARRAY_LEN(special) + index];
    char *at = (char *)config + tr_settings[index].offset;

    assert(index < tr_settings_count &&
           str_eq(tr_settings[index].option, options->table[ARRAY_LEN(special) + index].name));
    switch (tr_settings[index].type) {
    case OPT_FLAG:
        *(bool *)at = v->b;
        break;
    case OPT_INT:
        *(int *)at = v->i;
        break;
    case OPT_F64:
    case OPT_COUNT:
        *(double *)at = v->d;
        break;
    case OPT_BYTES:
        *(uint64_t *)at = v->u;
        break;
    case OPT_STR:
        *(const char **)at = v->s;
        break;
    }
}
