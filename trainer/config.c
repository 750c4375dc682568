/*
 * From a file and a command line to one checked configuration.
 *
 * What the domain parses (model, cluster, workload, layout) is read by plan/ from the file's JSON,
 * over which config_merge.h puts the options; all other settings come from the table in options.c.
 * The error of a field carries its JSON pointer whichever way it came.
 */
#include "trainer/config.h"

#include "base/base.h"
#include "trainer/ckpt.h"
#include "trainer/config_merge.h"
#include "trainer/events.h"
#include "trainer/hf.h"
#include "trainer/options.h"
#include "trainer/settings.h"

#include <assert.h>
#include <errno.h>

static const char *const top_keys[] = {"model", "cluster",    "workload",   "layout",
                                       "trial", "train",      "checkpoint", "expected",
                                       "run",   "provenance", NULL};

/* ---- domain objects ------------------------------------------------------ */

/* Weights of one model may have the shapes of another: the folder's own description must be that of
 * the model, but for what only begins or weighs a training. */
static int check_init(const struct tr_config *config, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/config.json", config->init);
    AUTO_JSON *theirs = NULL;
    struct pl_model m;
    int r = 0;

    if (!file_exists(path) || (r = tr_hf_model_load(&m, config->init, error)) < 0)
        return r;
    m.init_std = config->model.init_std;
    m.mtp_loss_coef = config->model.mtp_loss_coef;
    if (pl_model_is_moe(&m)) { /* Mixtral has one width: that of a dense layer means nothing */
        m.moe.aux_loss = config->model.moe.aux_loss;
        m.moe.aux_loss_coef = config->model.moe.aux_loss_coef;
        m.moe.z_loss_coef = config->model.moe.z_loss_coef;
        m.moe.force_balance = config->model.moe.force_balance;
        m.ffn = config->model.ffn;
    }
    theirs = pl_model_json(&m);
    return tr_same_model(theirs, &config->model, config->init, error);
}

/* Options of the losses of experts, over whatever named the model. */
static const struct {
    const char *option, *key;
    bool number;
} moe_options[] = {{"aux-loss", "aux_loss", false},
                   {"aux-loss-coef", "aux_loss_coef", true},
                   {"moe-z-loss-coef", "z_loss_coef", true}};

static int put_moe(struct tr_config *config, struct err *error)
{
    AUTO_JSON *model = pl_model_json(&config->model);
    json_t *moe = json_object_get(model, "moe");
    bool any = false;
    double number;
    int r;

    for (size_t i = 0; i < ARRAY_LEN(moe_options); i++) {
        const char *text = tr_options_text(config->options, moe_options[i].option);

        if (!text)
            continue;
        if (!moe)
            return err_at(error, -EINVAL, "/model/moe", "--%s: the model %s has no experts",
                          moe_options[i].option, config->model.name);
        json_object_set_new(moe, moe_options[i].key,
                            moe_options[i].number && str_to_f64(&number, text) == 0
                                ? json_real(number)
                                : json_string(text));
        any = true;
    }
    if (!any)
        return 0;
    r = pl_model_parse(&config->model, model, error);
    return r < 0 ? err_under(error, "/model") : 0;
}

static int take_model(struct tr_config *config, const json_t *root, struct err *error)
{
    const json_t *v = json_object_get(root, "model");
    int r;

    if (!v && !config->init)
        return err_at(error, -EINVAL, "/model",
                      "no model: give --model NAME, or --config FILE with one");
    r = v ? pl_model_parse(&config->model, v, error)
          : tr_hf_model_load(&config->model, config->init, error);
    if (r < 0)
        return v ? err_under(error, "/model") : r;
    r = put_moe(config, error);
    return r == 0 && v && config->init ? check_init(config, error) : r;
}

/* profiles/local.json, if this machine was calibrated. */
static bool local_profile(struct pl_cluster *ret, const struct tr_config *config)
{
    AUTO_FREE char *path = mem_printf("%s/profiles/local.json", config->data_dir);
    AUTO_JSON *v = NULL;

    return file_exists(path) && jx_load(&v, path, TR_CONFIG_FILE_MAX, NULL) == 0 &&
           pl_cluster_parse(ret, v, NULL, NULL) == 0;
}

/* Without a cluster it is this machine, with as many ranks as were started. */
static int take_cluster(struct tr_config *config, const json_t *root, struct err *error)
{
    const json_t *v = json_object_get(root, "cluster");
    struct pl_cluster local;
    bool have = local_profile(&local, config);
    int r = pl_cluster_parse(&config->cluster, v, have ? &local : NULL, error);

    if (r < 0)
        return err_under(error, "/cluster");
    config->cluster_given = v && !json_is_null(v);
    if (!config->cluster_given)
        config->cluster.oversubscribe = true;
    return 0;
}

struct pl_problem tr_config_problem(const struct tr_config *config)
{
    return (struct pl_problem){&config->model, &config->cluster, &config->workload,
                               pl_trainer_find("partune")};
}

uint64_t tr_config_buffers(const struct tr_config *config)
{
    struct pl_problem problem = tr_config_problem(config);
    double left = (double)config->device_memory - pl_memory_driver(&problem, &config->layout);

    return left > 0 ? (uint64_t)left : 0;
}

/* A shell user may leave out what follows: world from the number of ranks, sp where experts demand
 * it. */
static int take_layout(struct tr_config *config, json_t *root, const struct tr_launch *launch,
                       struct err *error)
{
    json_t *l = json_object_get(root, "layout"), *tp = json_object_get(l, "tp");
    struct pl_problem problem = tr_config_problem(config);
    int r;

    if (!json_object_get(l, "world") && !json_object_get(l, "dp"))
        json_object_set_new(l, "world", json_integer(launch->size));
    if (!json_object_get(l, "sp") && pl_model_is_moe(&config->model) && json_integer_value(tp) > 1)
        json_object_set_new(l, "sp", json_integer(1));
    r = pl_layout_parse(&config->layout, l, &problem, error);
    return r < 0 ? err_under(error, "/layout") : 0;
}

/* A verdict of many rules does not fit into an error: then the names of all, and the text of the
 * first. */
static int refuse_layout(const struct pl_verdict *verdict, struct err *error)
{
    AUTO_FREE char *text = mem_alloc(8192);
    AUTO_STR names = {0};

    pl_verdict_text(text, 8192, verdict);
    if (strlen(text) < sizeof(error->text) - 32)
        return err_at(error, -EINVAL, "/layout", "illegal layout: %s", text);
    for (int i = 0; i < verdict->count; i++)
        if (i == 0 || strcmp(verdict->v[i].rule, verdict->v[i - 1].rule) != 0)
            str_addf(&names, "%s%s", i ? ", " : "", verdict->v[i].rule);
    return err_at(error, -EINVAL, "/layout", "illegal layout, rules %s; %s: %s", str_text(&names),
                  verdict->v[0].rule, verdict->v[0].text);
}

static int check_layout(const struct tr_config *config, const struct tr_launch *launch,
                        struct err *error)
{
    struct pl_problem problem = tr_config_problem(config);
    struct pl_verdict verdict;

    if (!pl_layout_check(&verdict, &problem, &config->layout))
        return refuse_layout(&verdict, error);
    if (config->layout.world != launch->size)
        return err_at(error, -EINVAL, "/layout/world",
                      "illegal layout: world-launched: the layout has %d ranks and %d %s started "
                      "(mpiexec -n %d)",
                      config->layout.world, launch->size, launch->size == 1 ? "was" : "were",
                      config->layout.world);
    return config->ramp.start ? tr_ramp_check(&config->ramp, &config->layout, error) : 0;
}

/* ---- data ---------------------------------------------------------------- */

/* run.data may be an array: it is read here, and left as text for the table of settings. */
static int take_array(struct tr_config *config, json_t *root, struct err *error)
{
    json_t *run = json_object_get(root, "run"), *data = json_object_get(run, "data");
    char text[4000];
    int r;

    if (!json_is_array(data) || tr_options_given(config->options, "data"))
        return 0;
    r = tr_sources_json(&config->sources, data, error);
    if (r < 0)
        return r;
    tr_sources_name(text, sizeof(text), &config->sources);
    json_object_set_new(run, "data", json_string(text));
    return 0;
}

/* The sources, as soon as something names them. */
static int take_data(struct tr_config *config, struct err *error)
{
    return config->data && !config->sources.count
               ? tr_sources_text(&config->sources, config->data, error)
               : 0;
}

static int check_settings(const struct tr_config *config, struct err *error)
{
    int r = pl_trial_limits_check(&config->trial, error);

    if (r == 0)
        r = tr_train_check(&config->train, config->mode == TR_MODE_TRAIN, error);
    if (r == 0)
        r = tr_checkpointing_check(&config->checkpoint, error);
    if (r < 0)
        return r;
    if (config->checkpoint.load && config->init)
        return err_at(error, -EINVAL, "/run/init", "--init and --resume-from exclude each other");
    if (config->expected.lo > config->expected.tokens_per_s)
        return err_at(error, -EINVAL, "/expected/lo", "lo %g is more than tokens_per_s %g",
                      config->expected.lo, config->expected.tokens_per_s);
    return 0;
}

/* ---- defaults that depend on the machine --------------------------------- */

static void default_data_dir(struct tr_config *config)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    AUTO_FREE char *path = NULL;

    if (config->data_dir)
        return;
    path = state && *state ? mem_printf("%s/partune", state)
                           : mem_printf("%s/.local/state/partune", home ? home : "");
    config->data_dir = tr_options_keep(config->options, path);
}

/* A rank's share of its node: a device's memory, less where ranks outnumber devices. */
static void default_memory(struct tr_config *config)
{
    const struct pl_cluster *k = &config->cluster;
    int ranks = (config->layout.world + k->nodes - 1) / k->nodes;
    double bytes = k->device.memory_gib * 0x1p30;

    if (config->device_memory)
        return;
    if (ranks > k->devices_per_node)
        bytes = bytes * k->devices_per_node / ranks;
    config->device_memory = config->host_memory = bytes >= 1 ? (uint64_t)bytes : 1;
}

static bool holds_trial(const json_t *root)
{
    return json_is_object(json_object_get(root, "trial"));
}

static void choose_mode(struct tr_config *config, const json_t *root)
{
    const struct tr_options *o = config->options;

    config->mode = TR_MODE_TRAIN;
    if (tr_options_flag(o, "trial") || (holds_trial(root) && !tr_options_given(o, "steps")))
        config->mode = TR_MODE_TRIAL;
}

/* An error now, not after the training. */
static int check_save_hf(const struct tr_config *run, struct err *error)
{
    AUTO_JSON *config = NULL;
    int r = tr_hf_config(&config, &run->model, error);

    return r < 0 ? err_wrap(error, "--save-hf") : 0;
}

/* ---- all of it ----------------------------------------------------------- */

static int load_root(json_t **ret, const struct tr_options *options, struct err *error)
{
    const char *path = tr_options_text(options, "config");
    int r;

    if (!path) {
        *ret = json_object();
        return 0;
    }
    r = jx_load(ret, path, TR_CONFIG_FILE_MAX, error);
    if (r == 0)
        r = jx_keys(*ret, top_keys, error);
    return r < 0 ? err_wrap(error, "configuration %s", path) : 0;
}

/* A calibration may name a model, and the length of its sequences, whose products it measures. */
static int read_calibration(struct tr_config *config, json_t *root, struct err *error)
{
    int r = tr_config_resolve(root, "model", tr_options_text(config->options, "model"), error);

    config->mode = TR_MODE_CALIBRATE;
    if (r < 0 || (!json_object_get(root, "model") && !config->init))
        return r;
    if ((r = tr_config_put_workload(root, config, error)) < 0 ||
        (r = take_model(config, root, error)) < 0)
        return r;
    r = pl_workload_parse(&config->workload, json_object_get(root, "workload"), &config->model,
                          pl_trainer_find("partune"), error);
    return r < 0 ? err_under(error, "/workload") : 0;
}

/* Everything but the legality of the layout: a failure here is a usage error. */
static int read_all(struct tr_config *config, json_t *root, const struct tr_launch *launch,
                    struct err *error)
{
    const struct tr_options *o = config->options;
    int r = take_array(config, root, error);

    if (r == 0)
        r = tr_settings_read(config, root, error);
    if (r < 0)
        return r;
    default_data_dir(config);
    if (config->calibrate)
        return read_calibration(config, root, error);
    choose_mode(config, root);
    if ((r = check_settings(config, error)) < 0 || (r = take_data(config, error)) < 0 ||
        (r = tr_config_resolve(root, "model", tr_options_text(o, "model"), error)) < 0 ||
        (r = tr_config_resolve(root, "cluster", tr_options_text(o, "cluster"), error)) < 0 ||
        (r = tr_config_put_workload(root, config, error)) < 0 ||
        (r = tr_config_put_layout(root, o, error)) < 0 ||
        (r = take_model(config, root, error)) < 0 || (r = take_cluster(config, root, error)) < 0)
        return r;
    r = config->save_hf ? check_save_hf(config, error) : 0;
    if (r < 0)
        return r;
    r = pl_workload_parse(&config->workload, json_object_get(root, "workload"), &config->model,
                          pl_trainer_find("partune"), error);
    if (r == 0 && config->workload.nbatches)
        r = err_at(error, -EINVAL, "/global_batch", "a run has one global_batch, not several");
    if (r < 0)
        return err_under(error, "/workload");
    config->workload.snapshot =
        config->mode == TR_MODE_TRAIN && tr_checkpointing_copies(&config->checkpoint);
    if ((r = tr_train_take(config, error)) < 0)
        return r;
    if (!config->data)
        config->data = tr_options_keep(config->options, config->workload.data);
    r = take_data(config, error);
    if (r == 0)
        r = take_layout(config, root, launch, error);
    if (r == 0)
        default_memory(config);
    return r;
}

/* --help, --manual, --version and --dump-config: true if nothing else is to be done. */
static bool answer(struct tr_config *config, const struct tr_launch *launch, bool complete)
{
    const struct tr_options *o = config->options;
    bool print = launch->rank == 0;

    if (!complete && tr_options_flag(o, "help")) {
        if (print)
            opt_help(&o->set, stdout);
    } else if (!complete && tr_options_flag(o, "manual")) {
        if (print)
            opt_manual(&o->set, &tr_manual, stdout);
    } else if (!complete && tr_options_flag(o, "version")) {
        if (print)
            printf("partune-train %s%s%s\n", PACKAGE_VERSION, launch->mpi ? ", with " : "",
                   launch->mpi ? launch->mpi : "");
    } else if (complete && tr_options_flag(o, "dump-config")) {
        AUTO_JSON *v = tr_config_json(config);
        AUTO_FREE char *text = json_dumps(v, JSON_INDENT(2));

        if (print)
            printf("%s\n", text);
    } else {
        return false;
    }
    config->mode = TR_MODE_HELP;
    return true;
}

static int read_argv(struct tr_options *options, int argc, char **argv, struct err *error)
{
    int operands = 0, r = opt_from_env(&options->set, error);

    if (r == 0)
        r = opt_from_argv(&operands, &options->set, argc, argv, 0, error);
    if (r == 0 && operands)
        r = err_set(error, -EINVAL, "`%.80s` is not an option; see --help", argv[1]);
    return r;
}

static int load(int *ret_exit, struct tr_config *config, int argc, char **argv,
                const struct tr_launch *launch, struct err *error)
{
    AUTO_JSON *root = NULL;
    int r = read_argv(config->options, argc, argv, error);

    if (r < 0)
        return r;
    config->events = tr_options_text(config->options, "events");
    if (answer(config, launch, false))
        return 0;
    r = load_root(&root, config->options, error);
    if (r == 0)
        r = read_all(config, root, launch, error);
    if (r < 0 || config->mode == TR_MODE_CALIBRATE)
        return r;
    if (answer(config, launch, true))
        return 0;
    *ret_exit = TR_EXIT_ILLEGAL;
    return check_layout(config, launch, error);
}

int tr_config_load(struct tr_config **ret_config, int *ret_exit, char **ret_events, int argc,
                   char **argv, const struct tr_launch *launch, struct err *error)
{
    AUTO(tr_config) *c = mem_alloc(sizeof(*c));
    struct err own = {0};
    int r;

    if (!error)
        error = &own;
    c->options = tr_options_new();
    *ret_exit = TR_EXIT_USAGE;
    r = load(ret_exit, c, argc, argv, launch, error);
    if (r < 0) {
        if (error->pointer[0] && *ret_exit == TR_EXIT_USAGE)
            err_wrap(error, "%s", error->pointer);
        if (ret_events)
            *ret_events = mem_strdup(c->events);
        return r;
    }
    assert(c->mode == TR_MODE_HELP || c->mode == TR_MODE_CALIBRATE ||
           (c->device_memory > 0 && c->layout.world == launch->size));
    *ret_exit = TR_EXIT_OK;
    *ret_config = TAKE(c);
    return 0;
}

struct tr_config *tr_config_free(struct tr_config *config)
{
    if (!config)
        return NULL;
    tr_options_free(config->options);
    tr_sources_done(&config->sources);
    free(config);
    return NULL;
}

json_t *tr_config_json(const struct tr_config *config)
{
    json_t *root = json_object();

    json_object_set_new(root, "model", pl_model_json(&config->model));
    if (config->cluster_given)
        json_object_set_new(root, "cluster", pl_cluster_json(&config->cluster));
    json_object_set_new(root, "workload", pl_workload_json(&config->workload));
    json_object_set_new(root, "layout", pl_layout_json(&config->layout));
    tr_settings_put(root, config);
    if (config->sources.count > 1)
        json_object_set_new(json_object_get(root, "run"), "data",
                            tr_sources_array(&config->sources));
    return root;
}
