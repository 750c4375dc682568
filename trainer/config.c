/*
 * From a file and a command line to one checked configuration.
 *
 * The options of what the domain parses (model, cluster, workload, layout) are put over the file's
 * JSON, which plan/ then reads, so that both ways in meet the same parser; all other settings come
 * from the table in options.c. The error of a field carries its JSON pointer whichever way it came.
 */
#include "trainer/config.h"

#include "base/base.h"
#include "trainer/ckpt.h"
#include "trainer/events.h"
#include "trainer/hf.h"
#include "trainer/options.h"

#include <errno.h>

enum { FILE_MAX = 4 << 20, GLOBAL_BATCH = 16 };

static const char *const top_keys[] = {"model", "cluster",    "workload",   "layout",
                                       "trial", "train",      "checkpoint", "promised",
                                       "run",   "provenance", NULL};
static const char *const sections[] = {"trial", "train", "checkpoint", "promised", "run"};

/* ---- the launcher's environment ---- */

static int number_in(const char *name, int otherwise)
{
    const char *v = getenv(name);
    int64_t n;

    return v && str_to_i64(&n, v, 0, INT32_MAX) == 0 ? (int)n : otherwise;
}

void tr_launch_from_env(struct tr_launch *ret)
{
    ret->rank = number_in("PMI_RANK", number_in("PMIX_RANK", 0));
    ret->size = number_in("PMI_SIZE", getenv("PMIX_RANK") ? number_in("SLURM_NTASKS", 1) : 1);
    if (ret->size < 1)
        ret->size = 1;
}

/* ---- the JSON text of the domain ---- */

static bool is_path(const char *name)
{
    return strchr(name, '/') || str_ends(name, ".json");
}

/* Member KEY of O, made an empty object where it is absent. */
static int section(json_t **ret, json_t *o, const char *key, struct err *e)
{
    AUTO_FREE char *at = mem_printf("/%s", key);
    json_t *v = json_object_get(o, key);

    if (!v || json_is_null(v)) {
        v = json_object();
        json_object_set_new(o, key, v);
    }
    if (!json_is_object(v))
        return err_at(e, -EINVAL, at, "%s is not an object", key);
    *ret = v;
    return 0;
}

/* A model or cluster that is named by the path of a file becomes that file's object. */
static int resolve(json_t *root, const char *key, const char *option, struct err *e)
{
    const char *name = option ? option : json_string_value(json_object_get(root, key));
    json_t *v = NULL;
    int r = 0;

    if (!name)
        return 0;
    if (is_path(name))
        r = jx_load(&v, name, FILE_MAX, e);
    else
        v = json_string(name);
    if (r < 0)
        return err_wrap(e, "%s", key);
    json_object_set_new(root, key, v);
    return 0;
}

/* Text of an option as JSON: a number if it is one. */
static json_t *option_json(const char *text)
{
    int64_t n;

    return str_to_i64(&n, text, INT64_MIN, INT64_MAX) == 0 ? json_integer(n) : json_string(text);
}

static void put_option(json_t *o, const struct tr_options *options, const char *option,
                       const char *key)
{
    const char *text = tr_options_text(options, option);

    if (text)
        json_object_set_new(o, key, option_json(text));
}

/* The name that results carry: of a path, its last part. */
static json_t *data_name(const char *data)
{
    const char *slash = strrchr(data, '/');
    char name[sizeof(((struct pl_workload *)0)->data)];

    snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1,
             slash && slash[1] ? slash + 1 : data);
    return json_string(name);
}

static int put_workload(const struct tr_config *c, json_t *root, struct err *e)
{
    json_t *w;
    int r = section(&w, root, "workload", e);

    if (r < 0)
        return r;
    put_option(w, c->options, "global-batch", "global_batch");
    put_option(w, c->options, "seq", "seq");
    if (c->data)
        json_object_set_new(w, "data", data_name(c->data));
    if (!json_object_get(w, "global_batch"))
        json_object_set_new(w, "global_batch", json_integer(GLOBAL_BATCH));
    return 0;
}

static int put_layout(json_t *root, const struct tr_options *o, struct err *e)
{
    json_t *l;
    int r = section(&l, root, "layout", e);

    if (r < 0)
        return r;
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        AUTO_FREE char *option = mem_strdup(k->name);

        for (char *p = option; *p; p++)
            if (*p == '_')
                *p = '-';
        put_option(l, o, option, k->name);
    }
    return 0;
}

/* ---- domain objects ---- */

/* Weights of one model may have the shapes of another: the folder's own description must be that of
 * the model, but for what only begins or weighs a training. */
static int check_init(const struct tr_config *c, struct err *e)
{
    AUTO_FREE char *path = mem_printf("%s/config.json", c->init);
    AUTO_JSON *theirs = NULL;
    struct pl_model m;
    int r;

    if (!file_exists(path))
        return 0;
    r = tr_hf_model_load(&m, c->init, e);
    if (r < 0)
        return r;
    m.init_std = c->model.init_std;
    if (pl_model_is_moe(&m)) { /* Mixtral has one width: that of a dense layer means nothing */
        m.moe.aux_loss = c->model.moe.aux_loss;
        m.moe.aux_loss_coef = c->model.moe.aux_loss_coef;
        m.ffn = c->model.ffn;
    }
    theirs = pl_model_json(&m);
    return tr_same_model(theirs, &c->model, c->init, e);
}

/* --aux-loss and --aux-loss-coef over whatever named the model. */
static int put_aux_loss(struct tr_config *c, struct err *e)
{
    const char *word = tr_options_text(c->options, "aux-loss");
    const char *coef = tr_options_text(c->options, "aux-loss-coef");
    AUTO_JSON *model = pl_model_json(&c->model);
    json_t *moe = json_object_get(model, "moe");
    double number;
    int r;

    if (!word && !coef)
        return 0;
    if (!moe)
        return err_at(e, -EINVAL, "/model/moe", "--%s: the model %s has no experts",
                      word ? "aux-loss" : "aux-loss-coef", c->model.name);
    if (word)
        json_object_set_new(moe, "aux_loss", json_string(word));
    if (coef)
        json_object_set_new(moe, "aux_loss_coef",
                            str_to_f64(&number, coef) == 0 ? json_real(number) : json_string(coef));
    r = pl_model_parse(&c->model, model, e);
    return r < 0 ? err_under(e, "/model") : 0;
}

static int take_model(struct tr_config *c, const json_t *root, struct err *e)
{
    const json_t *v = json_object_get(root, "model");
    int r;

    if (!v && !c->init)
        return err_at(e, -EINVAL, "/model",
                      "no model: say --model NAME, or --config FILE with one");
    r = v ? pl_model_parse(&c->model, v, e) : tr_hf_model_load(&c->model, c->init, e);
    if (r < 0)
        return v ? err_under(e, "/model") : r;
    r = put_aux_loss(c, e);
    return r == 0 && v && c->init ? check_init(c, e) : r;
}

/* profiles/local.json, if this machine was calibrated. */
static bool local_profile(struct pl_cluster *ret, const struct tr_config *c)
{
    AUTO_FREE char *path = mem_printf("%s/profiles/local.json", c->data_dir);
    AUTO_JSON *v = NULL;

    return file_exists(path) && jx_load(&v, path, FILE_MAX, NULL) == 0 &&
           pl_cluster_parse(ret, v, NULL, NULL) == 0;
}

/* Who names no cluster means this machine, with as many ranks as he started. */
static int take_cluster(struct tr_config *c, const json_t *root, struct err *e)
{
    const json_t *v = json_object_get(root, "cluster");
    struct pl_cluster local;
    bool have = local_profile(&local, c);
    int r = pl_cluster_parse(&c->cluster, v, have ? &local : NULL, e);

    if (r < 0)
        return err_under(e, "/cluster");
    c->cluster_given = v && !json_is_null(v);
    if (!c->cluster_given)
        c->cluster.oversubscribe = true;
    return 0;
}

/* A shell user may leave out what follows: world from the number of ranks, sp where experts demand
 * it. */
static int take_layout(struct tr_config *c, json_t *root, const struct tr_launch *launch,
                       struct err *e)
{
    json_t *l = json_object_get(root, "layout"), *tp = json_object_get(l, "tp");
    int r;

    if (!json_object_get(l, "world") && !json_object_get(l, "dp"))
        json_object_set_new(l, "world", json_integer(launch->size));
    if (!json_object_get(l, "sp") && pl_model_is_moe(&c->model) && json_integer_value(tp) > 1)
        json_object_set_new(l, "sp", json_integer(1));
    r = pl_layout_parse(&c->layout, l, &c->model, &c->cluster, &c->workload, e);
    return r < 0 ? err_under(e, "/layout") : 0;
}

/* A verdict of many rules does not fit into an error: then the names of all, and the text of the
 * first. */
static int refuse_layout(const struct pl_verdict *v, struct err *e)
{
    AUTO_FREE char *text = mem_alloc(8192);
    AUTO_STR names = {0};

    pl_verdict_text(text, 8192, v);
    if (strlen(text) < sizeof(e->text) - 32)
        return err_at(e, -EINVAL, "/layout", "illegal layout: %s", text);
    for (int i = 0; i < v->count; i++)
        if (i == 0 || strcmp(v->v[i].rule, v->v[i - 1].rule) != 0)
            str_addf(&names, "%s%s", i ? ", " : "", v->v[i].rule);
    return err_at(e, -EINVAL, "/layout", "illegal layout by the rules %s; %s: %s", str_text(&names),
                  v->v[0].rule, v->v[0].text);
}

static int check_layout(const struct tr_config *c, const struct tr_launch *launch, struct err *e)
{
    struct pl_verdict verdict;

    if (!pl_layout_check(&verdict, &c->model, &c->cluster, &c->layout, &c->workload,
                         pl_trainer_find("partune")))
        return refuse_layout(&verdict, e);
    if (c->layout.world != launch->size)
        return err_at(e, -EINVAL, "/layout/world",
                      "illegal layout: world-launched: the layout has %d ranks and %d %s started "
                      "(mpiexec -n %d)",
                      c->layout.world, launch->size, launch->size == 1 ? "was" : "were",
                      c->layout.world);
    return 0;
}

/* ---- settings ---- */

static int read_setting(struct tr_config *c, const struct tr_setting *s, const json_t *o,
                        struct err *e)
{
    char *at = (char *)c + s->offset;
    const char *text = NULL;
    int64_t n = -1;
    int r;

    switch (s->type) {
    case OPT_FLAG:
        return jx_get_bool((bool *)at, o, s->key, e);
    case OPT_INT:
        return jx_get_int((int *)at, o, s->key, (int)s->min, (int)s->max, e);
    case OPT_F64:
        return jx_get_f64((double *)at, o, s->key, s->min, s->max, e);
    case OPT_BYTES:
        r = jx_get_i64(&n, o, s->key, 0, INT64_MAX, e);
        if (r == 0 && n >= 0)
            *(uint64_t *)at = (uint64_t)n;
        return r;
    case OPT_STR:
        r = jx_get_str(&text, o, s->key, 4000, e);
        if (r == 0 && text)
            *(const char **)at = tr_options_keep(c->options, text);
        return r;
    }
    return 0;
}

/* Settings of one section: keys checked as a whole, then each value where the command line said
 * none. */
static int read_section(struct tr_config *c, const char *name, const json_t *root, struct err *e)
{
    const json_t *o = json_object_get(root, name);
    const char *keys[32] = {NULL};
    size_t n = 0;
    int r = 0;

    if (!o || json_is_null(o))
        return 0;
    for (size_t i = 0; i < tr_settings_count; i++)
        if (str_eq(tr_settings[i].section, name) && n + 1 < ARRAY_LEN(keys))
            keys[n++] = tr_settings[i].key;
    r = jx_keys(o, keys, e);
    for (size_t i = 0; i < tr_settings_count && r == 0; i++)
        if (str_eq(tr_settings[i].section, name) &&
            !tr_options_given(c->options, tr_settings[i].option))
            r = read_setting(c, &tr_settings[i], o, e);
    if (r < 0) {
        AUTO_FREE char *at = mem_printf("/%s", name);

        return err_under(e, at);
    }
    return 0;
}

static int read_settings(struct tr_config *c, const json_t *root, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < tr_settings_count; i++)
        tr_options_store(c->options, i, c);
    for (size_t i = 0; i < ARRAY_LEN(sections) && r == 0; i++)
        r = read_section(c, sections[i], root, e);
    return r;
}

static int check_settings(const struct tr_config *c, struct err *e)
{
    int r = pl_trial_limits_check(&c->trial, e);

    if (r < 0)
        return r;
    if (c->train.min_lr > c->train.lr)
        return err_at(e, -EINVAL, "/train/min_lr", "min_lr %g is more than lr %g", c->train.min_lr,
                      c->train.lr);
    if (c->train.lr_decay_steps && c->train.lr_decay_steps <= c->train.warmup_steps)
        return err_at(e, -EINVAL, "/train/lr_decay_steps",
                      "lr_decay_steps %d is not more than warmup_steps %d (--lr-warmup)",
                      c->train.lr_decay_steps, c->train.warmup_steps);
    if (!c->checkpoint.dir && (c->checkpoint.every || c->checkpoint.resume || c->checkpoint.keep))
        return err_at(e, -EINVAL, "/checkpoint/dir", "checkpoints need a folder: --checkpoint DIR");
    if (c->checkpoint.load && c->init)
        return err_at(e, -EINVAL, "/run/init", "--init and --resume-from exclude each other");
    if (c->promised.lo > c->promised.tokens_per_s)
        return err_at(e, -EINVAL, "/promised/lo", "lo %g is more than tokens_per_s %g",
                      c->promised.lo, c->promised.tokens_per_s);
    return 0;
}

/* ---- defaults that depend on the machine ---- */

static void default_data_dir(struct tr_config *c)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    AUTO_FREE char *path = NULL;

    if (c->data_dir)
        return;
    path = state && *state ? mem_printf("%s/partune", state)
                           : mem_printf("%s/.local/state/partune", home ? home : "");
    c->data_dir = tr_options_keep(c->options, path);
}

/* A rank's share of its node: a device's memory, less where ranks outnumber devices. */
static void default_memory(struct tr_config *c)
{
    const struct pl_cluster *k = &c->cluster;
    int ranks = (c->layout.world + k->nodes - 1) / k->nodes;
    double bytes = k->device.memory_gib * 0x1p30;

    if (c->device_memory)
        return;
    if (ranks > k->devices_per_node)
        bytes = bytes * k->devices_per_node / ranks;
    c->device_memory = bytes >= 1 ? (uint64_t)bytes : 1;
}

static bool holds_trial(const json_t *root)
{
    return json_is_object(json_object_get(root, "trial"));
}

static void choose_mode(struct tr_config *c, const json_t *root)
{
    const struct tr_options *o = c->options;

    c->mode = TR_MODE_TRAIN;
    if (tr_options_flag(o, "trial") || (holds_trial(root) && !tr_options_given(o, "steps")))
        c->mode = TR_MODE_TRIAL;
}

/* Better now than after the training. */
static int check_save_hf(const struct tr_config *c, struct err *e)
{
    AUTO_JSON *config = NULL;
    int r = tr_hf_config(&config, &c->model, e);

    return r < 0 ? err_wrap(e, "--save-hf") : 0;
}

/* ---- all of it ---- */

static int load_root(json_t **ret, const struct tr_options *o, struct err *e)
{
    const char *path = tr_options_text(o, "config");
    int r;

    if (!path) {
        *ret = json_object();
        return 0;
    }
    r = jx_load(ret, path, FILE_MAX, e);
    if (r == 0)
        r = jx_keys(*ret, top_keys, e);
    return r < 0 ? err_wrap(e, "configuration %s", path) : 0;
}

/* Everything but the legality of the layout: what fails here is the user's way of saying it. */
static int read_all(struct tr_config *c, json_t *root, const struct tr_launch *launch,
                    struct err *e)
{
    const struct tr_options *o = c->options;
    int r = read_settings(c, root, e);

    if (r < 0)
        return r;
    default_data_dir(c);
    if (c->calibrate) {
        c->mode = TR_MODE_CALIBRATE;
        return 0;
    }
    choose_mode(c, root);
    if ((r = check_settings(c, e)) < 0 ||
        (r = resolve(root, "model", tr_options_text(o, "model"), e)) < 0 ||
        (r = resolve(root, "cluster", tr_options_text(o, "cluster"), e)) < 0 ||
        (r = put_workload(c, root, e)) < 0 || (r = put_layout(root, o, e)) < 0 ||
        (r = take_model(c, root, e)) < 0 || (r = take_cluster(c, root, e)) < 0)
        return r;
    r = c->save_hf ? check_save_hf(c, e) : 0;
    if (r < 0)
        return r;
    r = pl_workload_parse(&c->workload, json_object_get(root, "workload"), &c->model,
                          pl_trainer_find("partune"), e);
    if (r < 0)
        return err_under(e, "/workload");
    if (!c->data)
        c->data = tr_options_keep(c->options, c->workload.data);
    r = take_layout(c, root, launch, e);
    if (r == 0)
        default_memory(c);
    return r;
}

/* --help, --manual, --version and --dump-config: true if nothing else is to be done. */
static bool answer(struct tr_config *c, const struct tr_launch *launch, bool complete)
{
    const struct tr_options *o = c->options;
    bool print = launch->rank == 0;

    if (!complete && tr_options_flag(o, "help")) {
        if (print)
            opt_help(&o->set, stdout);
    } else if (!complete && tr_options_flag(o, "manual")) {
        if (print)
            opt_manual(&o->set, &tr_manual, stdout);
    } else if (!complete && tr_options_flag(o, "version")) {
        if (print)
            printf("partune-train %s\n", PACKAGE_VERSION);
    } else if (complete && tr_options_flag(o, "dump-config")) {
        AUTO_JSON *v = tr_config_json(c);
        AUTO_FREE char *text = json_dumps(v, JSON_INDENT(2));

        if (print)
            printf("%s\n", text);
    } else {
        return false;
    }
    c->mode = TR_MODE_HELP;
    return true;
}

static int read_argv(struct tr_options *o, int argc, char **argv, struct err *e)
{
    int operands = 0, r = opt_from_env(&o->set, e);

    if (r == 0)
        r = opt_from_argv(&o->set, &operands, argc, argv, 0, e);
    if (r == 0 && operands)
        r = err_set(e, -EINVAL, "`%.80s` is not an option; see --help", argv[1]);
    return r;
}

static int load(struct tr_config *c, int *ret_exit, int argc, char **argv,
                const struct tr_launch *launch, struct err *e)
{
    AUTO_JSON *root = NULL;
    int r = read_argv(c->options, argc, argv, e);

    if (r < 0)
        return r;
    c->events = tr_options_text(c->options, "events");
    if (answer(c, launch, false))
        return 0;
    r = load_root(&root, c->options, e);
    if (r == 0)
        r = read_all(c, root, launch, e);
    if (r < 0 || c->mode == TR_MODE_CALIBRATE)
        return r;
    if (answer(c, launch, true))
        return 0;
    *ret_exit = TR_EXIT_ILLEGAL;
    return check_layout(c, launch, e);
}

int tr_config_load(struct tr_config **ret_config, int *ret_exit, char **ret_events, int argc,
                   char **argv, const struct tr_launch *launch, struct err *e)
{
    AUTO(tr_config) *c = mem_alloc(sizeof(*c));
    struct err own = {0};
    int r;

    if (!e)
        e = &own;
    c->options = tr_options_new();
    *ret_exit = TR_EXIT_USAGE;
    r = load(c, ret_exit, argc, argv, launch, e);
    if (r < 0) {
        if (e->pointer[0] && *ret_exit == TR_EXIT_USAGE)
            err_wrap(e, "%s", e->pointer);
        if (ret_events)
            *ret_events = mem_strdup(c->events);
        return r;
    }
    *ret_exit = TR_EXIT_OK;
    *ret_config = TAKE(c);
    return 0;
}

struct tr_config *tr_config_free(struct tr_config *c)
{
    if (!c)
        return NULL;
    tr_options_free(c->options);
    free(c);
    return NULL;
}

/* ---- back to JSON ---- */

static json_t *setting_json(const struct tr_config *c, const struct tr_setting *s)
{
    const char *at = (const char *)c + s->offset, *text;

    switch (s->type) {
    case OPT_FLAG:
        return json_boolean(*(const bool *)at);
    case OPT_INT:
        return json_integer(*(const int *)at);
    case OPT_F64:
        return json_real(*(const double *)at);
    case OPT_BYTES:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case OPT_STR:
        text = *(const char *const *)at;
        return text ? json_string(text) : NULL;
    }
    return NULL;
}

json_t *tr_config_json(const struct tr_config *c)
{
    json_t *root = json_object();

    json_object_set_new(root, "model", pl_model_json(&c->model));
    if (c->cluster_given)
        json_object_set_new(root, "cluster", pl_cluster_json(&c->cluster));
    json_object_set_new(root, "workload", pl_workload_json(&c->workload));
    json_object_set_new(root, "layout", pl_layout_json(&c->layout));
    for (size_t i = 0; i < tr_settings_count; i++) {
        const struct tr_setting *s = &tr_settings[i];
        json_t *v = s->section ? setting_json(c, s) : NULL;
        json_t *o;

        if (!v || (str_eq(s->section, "trial") && c->mode != TR_MODE_TRIAL)) {
            json_decref(v);
            continue;
        }
        o = json_object_get(root, s->section);
        if (!o) {
            o = json_object();
            json_object_set_new(root, s->section, o);
        }
        json_object_set_new(o, s->key, v);
    }
    return root;
}
