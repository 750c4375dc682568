/*
 * Trainers of the administrator's configuration:
 *
 *     [trainer "megatron"]
 *     command = torchrun --nproc-per-node {world} pretrain_gpt.py --tensor-model-parallel-size {tp}
 *     parser = megatron     ; or torchtitan, deepspeed, jsonl
 *     log = FILE            ; read as well; stdout and stderr always are (jsonl: the event file)
 *     launch = direct       ; or mpiexec: put `mpiexec -n {world}` before it
 *     env = NCCL_DEBUG=WARN ; may be repeated
 *     dir = /opt/megatron
 *     rules = megatron      ; whose legality rules hold; the first {export:TARGET} says unless
 *     given
 *     reduces = stage_layers  ; the program reads from {config} what smaller problems leave
 *
 * The command is cut at blanks ("..." keeps them) and never sees a shell; {key} is a layout key, a
 * size of the model or the workload, or one of world, steps, nodes, devices_per_node, folder,
 * config, events, data. {export:TARGET}, a word of its own, is what the exporter of TARGET writes
 * of the trial's layout: its arguments where the target is a list of arguments (megatron), what
 * names the function where it is one (torchtitan: the file is a module in {folder}, for
 * PYTHONPATH), else the path of a file in the attempt's folder. Whatever is in the layout reaches
 * the trainer so, in its own units. A trial is what its label says: a layout that the target has no
 * word for, or with which it would not start, is `illegal`, and nothing is run. The log's lines
 * become steps; when the interval of the step time is narrow enough, or at max_steps, the trainer
 * is stopped and the trial is ok; a program whose `hello` says that it ends itself is not stopped.
 *
 * Every process of the trial also has in its environment
 *
 *     PARTUNE_TRIAL_CONFIG  {config}: model, cluster, workload, layout, limits of the trial
 *     PARTUNE_TRIAL_EVENTS  {events}: where a program with parser = jsonl writes its events
 *     PARTUNE_TRIAL_DATA    {data}
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/export/export.h"
#include "tuner/machine/argv.h"
#include "tuner/output/observe.h"
#include "tuner/state/state.h"
#include "tuner/trainers/log.h"
#include "tuner/trainers/trainers.h"

static const char *conf_of(const struct tn_service *svc, const struct tn_spec *spec,
                           const char *key)
{
    const struct tn_config *settings = tn_settings(svc);

    return settings->conf ? conf_get(settings->conf, "trainer", spec->trainer_name, key) : NULL;
}

static const struct tn_spec *spec_of(const struct tn_attempt *attempt)
{
    return attempt->campaign->engine->spec;
}

/* File of the attempt's folder that is read next to stdout and stderr; NULL: none. */
static const char *results_file(const struct tn_service *svc, const struct tn_spec *spec,
                                const char *standard)
{
    const char *log = conf_of(svc, spec, "log");

    if (str_eq(log, "stdout") || str_eq(log, "stderr")) /* which are read in any case */
        log = NULL;
    return log ? log : standard;
}

/* Path of the data set, or its name where no path is known. */
static const char *data_of(const struct tn_spec *spec)
{
    return spec->data_path ? spec->data_path : spec->se.workload.data;
}

/* ---- the command --------------------------------------------------------- */

/* A template that is filled in for one layout. */
struct filling {
    const struct tn_service *svc;
    const struct tn_spec *spec;
    struct pl_problem problem; /* that is run */
    const struct pl_layout *layout;
    const struct pl_trial_limits *limits;
    const char *folder; /* of the attempt; "": only to see whether the template is right */
    bool refused;       /* an export's target cannot run or say the layout: the error names it */
};

struct word {
    const char *name;
    double value;
};

static bool look_up(char *buf, size_t size, const char *name, const struct filling *fill)
{
    const struct tn_spec *s = fill->spec;
    const struct pl_layout *l = fill->layout;
    const struct pl_model *m = fill->problem.model;
    const struct pl_workload *w = fill->problem.workload;
    const struct pl_layout_key *k = pl_layout_key_find(name);
    int per_node = fill->problem.cluster->devices_per_node;
    char digits[16];
    const struct word words[] = {
        {"layers", m->layers},
        {"hidden", m->hidden},
        {"heads", m->heads},
        {"kv_heads", m->kv_heads},
        {"head_dim", m->head_dim},
        {"ffn", m->ffn},
        {"vocab", m->vocab},
        {"experts", m->moe.experts},
        {"top_k", m->moe.top_k},
        {"expert_ffn", m->moe.expert_ffn},
        {"global_batch", w->global_batch},
        {"seq", w->seq},
        {"steps", fill->limits->warmup_steps + fill->limits->max_steps},
        {"nodes", (l->world + per_node - 1) / per_node},
        {"devices_per_node", l->world < per_node ? l->world : per_node},
        {"micro_batches", (double)w->global_batch / (l->micro_batch * (l->dp > 0 ? l->dp : 1))},
    };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (!strcmp(words[i].name, name)) {
            snprintf(buf, size, "%.0f", words[i].value);
            return true;
        }
    if (k)
        snprintf(buf, size, "%s", pl_layout_value_text(digits, k, pl_layout_get(l, k)));
    else if (!strcmp(name, "folder"))
        snprintf(buf, size, "%s", fill->folder);
    else if (!strcmp(name, "config"))
        snprintf(buf, size, "%s/config.json", fill->folder);
    else if (!strcmp(name, "events"))
        snprintf(buf, size, "%s/%s", fill->folder, results_file(fill->svc, s, "events"));
    else if (!strcmp(name, "data"))
        snprintf(buf, size, "%s", data_of(s));
    else
        return false;
    return true;
}

/* One word of the template with its placeholders filled in. */
static int expand(struct str *out, const char *word, const struct filling *fill, struct err *error)
{
    while (*word) {
        size_t plain = strcspn(word, "{"), n;
        char name[64], value[4096];

        str_addn(out, word, plain);
        word += plain;
        if (!*word)
            break;
        n = strcspn(word, "}");
        snprintf(name, sizeof(name), "%.*s", (int)(n > 0 ? n - 1 : 0), word + 1);
        if (word[n] != '}' || !look_up(value, sizeof(value), name, fill))
            return err_set(error, -ENOENT,
                           "the command of trainer \"%s\" has an unknown placeholder {%s}",
                           fill->spec->trainer_name, name);
        str_add(out, value);
        word += n + 1;
    }
    return 0;
}

/* Every line of TEXT but comments, cut at its first blank: "--flag value" is two words. */
static void add_arguments(struct tn_argv *argv, char *text)
{
    char *line;

    while ((line = strsep(&text, "\n"))) {
        char *value = strchr(line, ' ');

        if (!*line || *line == '#')
            continue;
        if (value)
            *value++ = '\0';
        tn_argv_add(argv, line);
        if (value)
            tn_argv_add(argv, value);
    }
}

/* Steps are read from the log, where DeepSpeed prints them only if its configuration says so. */
static void print_every_step(char **text, const char *target)
{
    AUTO_JSON *v = NULL;

    if (!str_eq(target, "deepspeed") || jx_parse(&v, *text, strlen(*text), NULL) < 0)
        return;
    json_object_set_new(v, "steps_per_print", json_integer(1));
    json_object_set_new(v, "log_level", json_string("info"));
    free(*text);
    *text = json_dumps(v, JSON_INDENT(2) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
}

/* WORDS, cut at blanks. */
static void add_words(struct tn_argv *argv, const char *words)
{
    AUTO_FREE char *text = mem_strdup(words);

    for (char *rest = text, *word; (word = strsep(&rest, " "));)
        tn_argv_add(argv, word);
}

/* TARGET's export as words of the command, or as a file: its path is the word, where the target
 * takes a path. */
static int add_export(struct tn_argv *argv, const char *target, struct filling *fill,
                      struct err *error)
{
    const struct tn_spec *s = fill->spec;
    struct pl_workload workload = *fill->problem.workload;
    char date[CLOCK_TEXT];
    const struct tn_wrapper *wrapper;
    const struct tn_exporter *x = tn_exporter_find(&wrapper, target);
    struct tn_export_in in = {.model = fill->problem.model,
                              .cluster = fill->problem.cluster,
                              .layout = fill->layout,
                              .workload = &workload,
                              .campaign = "trial",
                              .campaign_name = s->name,
                              .tokens_per_s = NAN,
                              .lo = NAN,
                              .hi = NAN,
                              .date = clock_format(date, clock_wall_ms())};
    AUTO_FREE char *text = NULL;
    struct tn_findings f;
    const char *type;
    int r;

    workload.optimizer = PL_ADAMW; /* the command has its own, and its own way with documents */
    workload.reset_attention_mask = workload.reset_position_ids = workload.eod_mask_loss = false;
    r = tn_export(&text, &type, &f, target, &in, false, error);

    if (r < 0) {
        fill->refused = f.count > 0;
        return r;
    }
    print_every_step(&text, target);
    if (str_starts(type, "text/plain")) {
        add_arguments(argv, text);
        return 0;
    }
    AUTO_FREE char *path = mem_printf("%s/export.%s", fill->folder, x->extension);

    if (x->words)
        add_words(argv, x->words);
    else
        tn_argv_add(argv, path);
    return *fill->folder ? file_write_atomic(path, text, strlen(text), 0600, error) : 0;
}

/* The TARGET of a word {export:TARGET}, to be freed; NULL for another word. */
static char *export_target(const char *word)
{
    static const char start[] = "{export:";
    size_t n = strlen(word);

    return str_starts(word, start) && word[n - 1] == '}'
               ? mem_printf("%.*s", (int)(n - sizeof(start)), word + sizeof(start) - 1)
               : NULL;
}

/* Next word of the template into OUT; false at its end. Single and double quotes keep blanks
 * together; double ones must be escaped in a configuration file, whose own quotes they are. */
static bool next_word(struct str *out, const char **pos)
{
    char quote = 0;

    while (isspace((unsigned char)**pos))
        (*pos)++;
    if (!**pos)
        return false;
    for (; **pos && (quote || !isspace((unsigned char)**pos)); (*pos)++)
        if (quote ? **pos == quote : **pos == '"' || **pos == '\'')
            quote = quote ? 0 : **pos;
        else
            str_addc(out, **pos);
    return true;
}

const char *tn_trainer_external_rules(const struct tn_service *svc, const char *name)
{
    const struct conf *conf = tn_settings(svc)->conf;
    const char *command = conf && name ? conf_get(conf, "trainer", name, "command") : NULL;
    const char *rules = command ? conf_get(conf, "trainer", name, "rules") : NULL;

    if (!command || rules || str_eq(name, tn_trainer_partune.name))
        return rules;
    for (const char *p = command; !rules;) {
        AUTO_STR word = {0};
        const struct tn_wrapper *wrapper;
        const struct tn_exporter *x;

        if (!next_word(&word, &p))
            break;
        AUTO_FREE char *target = export_target(str_text(&word));

        x = target ? tn_exporter_find(&wrapper, target) : NULL;
        rules = x ? x->trainer : NULL;
    }
    return rules;
}

static int build_command(struct tn_argv *argv, struct filling *fill, struct err *error)
{
    const char *p = conf_of(fill->svc, fill->spec, "command");
    bool more = true;
    int r = 0;

    if (!p)
        return err_set(error, -ENOENT, "[trainer \"%s\"] has no command", fill->spec->trainer_name);
    while (r == 0 && more) {
        AUTO_STR word = {0};
        AUTO_STR text = {0};

        more = next_word(&word, &p);
        AUTO_FREE char *target = export_target(str_text(&word));

        if (target)
            r = add_export(argv, target, fill, error);
        else if (more && (r = expand(&text, str_text(&word), fill, error)) == 0)
            tn_argv_add(argv, str_text(&text));
    }
    return r;
}

/* ---- smaller problems ---------------------------------------------------- */

/* What WORD of a command passes on, as far as its text shows: the number of layers, the batch. */
static void passes(bool *layers, bool *batch, const char *word)
{
    const struct tn_wrapper *wrapper;
    AUTO_FREE char *target = export_target(word);
    const struct tn_exporter *x = target ? tn_exporter_find(&wrapper, target) : NULL;

    *layers |= x ? x->says_layers : strstr(word, "{layers}") != NULL;
    *batch |= x ? x->says_batch
                : strstr(word, "{global_batch}") != NULL || strstr(word, "{micro_batches}") != NULL;
}

/* A program that is not given what shrinks would run the whole, and its rate would be taken for
 * that of the smaller problem. */
static int reduces(const struct tn_service *svc, const struct tn_spec *spec, const char *what,
                   struct err *error)
{
    const char *p = conf_of(svc, spec, "command"), *said = conf_of(svc, spec, "reduces");
    bool layers = false, batch = false, wants_layers = !strcmp(what, "stage_layers"), more = true;
    bool several = !strcmp(what, "global_batch");

    if (str_has_word(said, several ? "micro_batches" : what))
        return 0;
    while (p && more) {
        AUTO_STR word = {0};

        more = next_word(&word, &p);
        passes(&layers, &batch, str_text(&word));
    }
    if (wants_layers ? layers : batch)
        return 0;
    return err_at(
        error, -EINVAL, "",
        "the command of trainer \"%s\" does not pass on %s: %s%s%s, or set \"reduces = %s\" in its "
        "section if the program reads that from its configuration",
        spec->trainer_name,
        wants_layers ? "the number of layers ({layers}, or an export that says it: "
                       "megatron, partune)"
                     : "the batch ({global_batch}, or an export that says it)",
        several ? "give one " : "leave ", what, several ? "" : " out",
        several ? "micro_batches" : what);
}

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    struct pl_problem problem = se_layout_problem(&spec->se, &spec->se.baseline);
    struct pl_reduced whole;
    struct filling fill = {.svc = svc,
                           .spec = spec,
                           .problem = pl_reduced_problem(&whole, &problem),
                           .layout = &whole.layout,
                           .limits = &spec->se.limits,
                           .folder = ""};
    struct tn_argv argv = {0};
    int r;

    pl_whole(&whole, &problem, &spec->se.baseline);
    r = build_command(&argv, &fill, error);
    if (fill.refused) /* the baseline's own fault: other layouts may do */
        r = 0;
    else if (r == 0 && argv.n == 0)
        r = err_set(error, -ENOENT, "the command of trainer \"%s\" is empty", spec->trainer_name);
    tn_argv_done(&argv);
    return r;
}

static bool direct(const struct tn_service *svc, const struct tn_spec *spec)
{
    return !str_eq(conf_of(svc, spec, "launch"), "mpiexec");
}

static void environment(const struct tn_attempt *attempt, struct tn_argv *env)
{
    const struct tn_spec *s = spec_of(attempt);
    const struct conf *c = tn_settings(attempt->svc)->conf;

    tn_argv_addf(env, "PARTUNE_TRIAL_CONFIG=%s/config.json", attempt->folder);
    tn_argv_addf(env, "PARTUNE_TRIAL_EVENTS=%s/%s", attempt->folder,
                 results_file(attempt->svc, s, "events"));
    tn_argv_addf(env, "PARTUNE_TRIAL_DATA=%s", data_of(s));
    for (size_t i = 0; i < c->count; i++)
        if (!strcmp(c->entry[i].section, "trainer") && !strcmp(c->entry[i].name, s->trainer_name) &&
            !strcmp(c->entry[i].key, "env"))
            tn_argv_add(env, c->entry[i].value);
}

static const char *directory(const struct tn_attempt *attempt)
{
    return conf_of(attempt->svc, spec_of(attempt), "dir");
}

static const char *results(const struct tn_attempt *attempt)
{
    return results_file(attempt->svc, spec_of(attempt), attempt->trainer->results);
}

static int prepare(struct tn_attempt *attempt, struct tn_argv *argv, struct err *error)
{
    AUTO_JSON *v = tn_trainer_config(attempt);
    AUTO_FREE char *text = jx_dump(v);
    AUTO_FREE char *path = mem_printf("%s/config.json", attempt->folder);
    struct filling fill = {.svc = attempt->svc,
                           .spec = spec_of(attempt),
                           .problem = tn_trial_problem(attempt->trial),
                           .layout = &attempt->trial->run.layout,
                           .limits = &attempt->limits,
                           .folder = attempt->folder};
    int r = file_write_atomic(path, text, strlen(text), 0600, error);

    if (r == 0)
        r = build_command(argv, &fill, error);
    if (fill.refused)
        tn_attempt_fail(attempt, "illegal", error->text);
    return r;
}

/* ---- results ------------------------------------------------------------- */

/* The program writes the event file itself; its output may still say how it dies. */
static enum tn_line event_or_log(struct tn_step_line *ret, struct tn_attempt *attempt,
                                 enum tn_stream stream, const char *text, size_t len)
{
    return stream == TN_EVENTS ? tn_observe(&ret->n, &ret->ms, &attempt->seen, text, len)
                               : tn_log_line(ret, attempt, stream, text, len);
}

/* ---- the result: the interval of the median step, as the bundled trainer measures it ---- */

/* Standard error of a median of n normal values: 1.2533 s / sqrt(n). */
static double median_error(const struct tn_seen *seen)
{
    double mean = seen->sum / seen->measured,
           variance = (seen->sum2 - seen->sum * mean) / (seen->measured - 1);

    return 1.2533 * sqrt((variance > 0 ? variance : 0) / seen->measured);
}

static void summarize(struct tn_attempt *attempt)
{
    struct tn_seen *s = &attempt->seen;
    double median = tn_seen_median_ms(s), error;

    if (s->summary || s->error || s->measured < 2)
        return;
    error = median_error(s);
    s->summary = true;
    s->ms_median = median;
    s->ms_ci95 = 1.96 * error;
    s->tokens_per_s = tn_trial_tokens(attempt->trial) * 1000 / median;
    s->tokens_per_s_se = s->tokens_per_s * error / median;
}

enum { LEAVE_MS = 10000 }; /* for a program to end after its summary: libraries may hang then */

static void tick(struct tn_attempt *attempt)
{
    const struct tn_seen *s = &attempt->seen;

    if (s->summary && attempt->stop == TN_STOP_NONE &&
        tn_now_ms() - attempt->last_event > LEAVE_MS) {
        snprintf(attempt->trouble, sizeof(attempt->trouble), "still running after its summary");
        tn_attempt_stop(attempt, TN_STOP_MEASURED);
        return;
    }
    /* A loss that is no number: more steps would tell no more. A program with events ends itself.
     */
    if (s->error && !s->summary && attempt->trainer->line == tn_log_line) {
        snprintf(attempt->trouble, sizeof(attempt->trouble), "%.390s", s->detail);
        tn_attempt_stop(attempt, TN_STOP_MEASURED);
        return;
    }
    if (s->summary || s->ends_itself || s->measured < attempt->limits.min_steps || s->measured < 2)
        return;
    if (s->measured < attempt->limits.max_steps &&
        1.96 * median_error(s) > attempt->limits.ci * tn_seen_median_ms(s))
        return;
    summarize(attempt);
    snprintf(attempt->trouble, sizeof(attempt->trouble), "measured");
    tn_attempt_stop(attempt, TN_STOP_MEASURED);
}

static void finish(struct tn_attempt *attempt)
{
    tn_log_end(attempt);
    if (attempt->exit.known && attempt->exit.code == 0 &&
        attempt->seen.measured >= attempt->limits.min_steps)
        summarize(attempt);
    tn_log_blame(attempt);
}

#define EXTERNAL(parser, file, reader)                                                             \
    {                                                                                              \
        .name = parser, .ready = ready, .reduces = reduces, .prepare = prepare, .results = file,   \
        .logs = true, .line = reader, .direct = direct, .environment = environment,                \
        .directory = directory, .results_of = results, .tick = tick, .finish = finish              \
    }

static const struct tn_trainer external[] = {
    EXTERNAL("megatron", NULL, tn_log_line),
    EXTERNAL("torchtitan", NULL, tn_log_line),
    EXTERNAL("deepspeed", NULL, tn_log_line),
    EXTERNAL("jsonl", "events", event_or_log),
};

bool tn_trainer_direct(const struct tn_service *svc, const struct tn_spec *spec)
{
    return spec->trainer->direct && spec->trainer->direct(svc, spec);
}

const struct tn_trainer *tn_trainer_external(const struct tn_service *svc, const char *name)
{
    const struct tn_config *settings = tn_settings(svc);
    const char *parser, *command;

    if (!settings->conf)
        return NULL;
    command = conf_get(settings->conf, "trainer", name, "command");
    parser = conf_get(settings->conf, "trainer", name, "parser");
    for (size_t i = 0; command && i < ARRAY_LEN(external); i++)
        if (!strcmp(external[i].name, parser ? parser : "jsonl"))
            return &external[i];
    return NULL;
}
