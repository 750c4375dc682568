/*
 * `partune new`: a commented campaign file, from options, from a person at a terminal, or from
 * defaults. It needs no daemon: models and cluster profiles are those that the program carries.
 */
#include "tuner/client/client.h"

#include <errno.h>
#include <unistd.h>

#include "plan/plan.h"

struct wish {
    const char *model, *cluster, *trainer, *launcher;
    int nodes;         /* 0: as many as the profile has */
    json_t *described; /* the cluster, where it is a file's; owned */
    int devices;       /* of that */
    bool takes_parts;  /* the cluster may have parts */
    char answer[4][256];
};

static const struct launcher {
    const char *name, *runs;
} launchers[] = {
#define LAUNCHER(name, runs) {#name, runs},
#include "tuner/launch/launchers.def"
};

static const char *const launcher_names[] = {
#define LAUNCHER(name, ...) #name,
#include "tuner/launch/launchers.def"
    NULL};

static bool is_local(const struct wish *wish)
{
    return str_eq(wish->cluster, "local");
}

static bool is_tiny(const char *model)
{
    return !strncmp(model, "tiny-", 5) || !strncmp(model, "nano-", 5);
}

static int check_model(struct wish *wish, const char *name, struct err *error)
{
    AUTO_JSON *v = NULL;
    struct pl_model m;
    int r = cl_model_of(&v, name, NULL, error);

    (void)wish;
    return r < 0 ? r : pl_model_parse(&m, v, error);
}

static int check_cluster(struct wish *wish, const char *name, struct err *error)
{
    AUTO_JSON *v = json_string(name);
    struct pl_cluster c;

    if (cl_cluster_is_file(name))
        return cl_cluster_load(&wish->described, &wish->devices, name, wish->takes_parts, error);
    return pl_cluster_parse(&c, v, NULL, error);
}

/* A trainer may be one of the administrator's configuration, which only the daemon knows. */
static int check_trainer(struct wish *wish, const char *name, struct err *error)
{
    (void)wish;
    if (*name && !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                    "-_.")])
        return 0;
    return err_set(error, -EINVAL, "\"%.64s\" is not a valid trainer name: letters, digits, - _ .",
                   name);
}

static int check_launcher(struct wish *wish, const char *name, struct err *error)
{
    const char *near = str_nearest(name, launcher_names);
    AUTO_STR all = {0};

    (void)wish;
    for (int i = 0; launcher_names[i]; i++) {
        if (str_eq(launcher_names[i], name))
            return 0;
        str_addf(&all, "%s%s", i ? ", " : "", launcher_names[i]);
    }
    return err_set(error, -EINVAL, "unknown launcher \"%.64s\"%s%s%s (%s)", name,
                   near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "",
                   str_text(&all));
}

static const char *usual_model(const struct wish *wish)
{
    (void)wish;
    return "tiny-moe";
}

static const char *usual_cluster(const struct wish *wish)
{
    return is_tiny(wish->model) ? "local" : "dgx-h100";
}

static const char *usual_trainer(const struct wish *wish)
{
    return is_local(wish) ? "partune" : "megatron";
}

static const char *usual_launcher(const struct wish *wish)
{
    return is_local(wish) ? "local" : "slurm";
}

/* One row a choice, in the order in which they are asked: each may depend on those above. */
static const struct choice {
    const char *option, *question;
    size_t at; /* of the text in struct wish */
    int (*check)(struct wish *wish, const char *name, struct err *error);
    const char *(*usual)(const struct wish *wish);
} choices[] = {
    {"model", "Model to train", offsetof(struct wish, model), check_model, usual_model},
    {"cluster", "Cluster to train on", offsetof(struct wish, cluster), check_cluster,
     usual_cluster},
    {"trainer", "Trainer to use", offsetof(struct wish, trainer), check_trainer, usual_trainer},
    {"launcher", "Launcher of the trials", offsetof(struct wish, launcher), check_launcher,
     usual_launcher},
};

/* What may be answered, below the question. */
static void show_names(const struct choice *choice)
{
    const char *const *names = pl_trainer_names();

    if (str_eq(choice->option, "model"))
        names = pl_model_presets();
    else if (str_eq(choice->option, "cluster"))
        names = pl_cluster_presets();
    else if (str_eq(choice->option, "launcher"))
        names = launcher_names;
    printf("  %s", str_eq(choice->option, "cluster") ? "local" : "");
    for (int width = 2; *names; names++) {
        if (str_eq(*names, "any") || str_eq(*names, "local"))
            continue;
        if (width + strlen(*names) > 90) {
            fputs("\n  ", stdout);
            width = 2;
        }
        width += printf(" %s", *names);
    }
    putchar('\n');
}

/* A line of the terminal without its end; false when there is no more. */
static bool read_line(char *buf, size_t size)
{
    fflush(stdout);
    if (!fgets(buf, (int)size, stdin))
        return false;
    buf[strcspn(buf, "\n")] = '\0';
    return true;
}

static bool ask(const struct choice *choice, struct wish *wish, char *answer, size_t size)
{
    const char *usual = choice->usual(wish);
    struct err e = {0};

    printf("%s:\n", choice->question);
    show_names(choice);
    for (;;) {
        printf("%s [%s]: ", choice->option, usual);
        if (!read_line(answer, size))
            return false;
        if (!*answer)
            snprintf(answer, size, "%s", usual);
        if (choice->check(wish, answer, &e) == 0)
            return true;
        printf("  %s\n", e.text);
    }
}

static bool ask_nodes(struct wish *wish)
{
    char answer[32];
    int64_t n = 0;

    for (;;) {
        printf("nodes [as in the profile]: ");
        if (!read_line(answer, sizeof(answer)))
            return false;
        if (!*answer)
            return true;
        if (str_to_i64(&n, answer, 1, 1 << 20) == 0) {
            wish->nodes = (int)n;
            return true;
        }
        printf("  nodes must be 1 or more\n");
    }
}

/* Options first, then answers, then what is usual. */
static int choose(struct wish *wish, bool asking)
{
    struct err e = {0};

    for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
        const char **name = (const char **)((char *)wish + choices[i].at);

        if (*name && choices[i].check(wish, *name, &e) < 0) {
            fprintf(stderr, "partune: --%s: %s\n", choices[i].option, e.text);
            return CL_USAGE;
        }
        if (*name)
            continue;
        if (!asking) {
            *name = choices[i].usual(wish);
            continue;
        }
        if (!ask(&choices[i], wish, wish->answer[i], sizeof(wish->answer[i])) ||
            (str_eq(choices[i].option, "cluster") && !str_eq(wish->answer[i], "local") &&
             !wish->described && !wish->nodes && !ask_nodes(wish))) {
            fprintf(stderr, "\npartune: nothing was written\n");
            return CL_FAILED;
        }
        *name = wish->answer[i];
    }
    if (wish->nodes && is_local(wish)) {
        fprintf(stderr, "partune: --nodes needs --cluster PROFILE: local is this machine\n");
        return CL_USAGE;
    }
    if (wish->nodes && wish->described) {
        fprintf(stderr, "partune: --nodes needs --cluster PROFILE: the file %s has its own\n",
                wish->cluster);
        return CL_USAGE;
    }
    return CL_OK;
}

/* A batch that every power of two, and every replica count that divides the devices, divides. */
static int usual_batch(const struct wish *wish)
{
    AUTO_JSON *v = json_string(wish->cluster);
    struct pl_cluster c;
    int devices = wish->devices;

    if (is_tiny(wish->model) || (!wish->described && pl_cluster_parse(&c, v, NULL, NULL) < 0))
        return 16;
    if (!wish->described)
        devices = (wish->nodes ? wish->nodes : c.nodes) * c.devices_per_node;
    return devices * ((511 + devices) / devices);
}

static void write_cluster(struct str *out, const struct wish *wish)
{
    AUTO_FREE char *text = json_dumps(wish->described, JSON_REAL_PRECISION(15));

    str_add(out,
            "  // The cluster: \"local\" is this machine. Others: {\"profile\": \"dgx-h100\", "
            "\"nodes\": 16} (partune presets clusters).\n"
            "  // A campaign has one. Several: a campaign for each, then partune compare ID ID. "
            "One job on two kinds of\n"
            "  // devices: partune plan --cluster FILE with {\"parts\": [CLUSTER, CLUSTER], "
            "\"between\": {\"gbs\": 25}}.\n");
    if (wish->described)
        str_addf(out, "  \"cluster\": %s,\n\n", text);
    else if (is_local(wish))
        str_add(out, "  \"cluster\": \"local\",\n\n");
    else if (wish->nodes)
        str_addf(out, "  \"cluster\": {\"profile\": \"%s\", \"nodes\": %d},\n\n", wish->cluster,
                 wish->nodes);
    else
        str_addf(out, "  \"cluster\": {\"profile\": \"%s\"},\n\n", wish->cluster);
}

/* A path is written whole: that in a file is relative to the file's folder. */
static void write_model(struct str *out, const char *name)
{
    AUTO_FREE char *path = pl_model_preset(name) ? NULL : realpath(name, NULL);
    AUTO_JSON *v = json_string(path ? path : name);
    AUTO_FREE char *text = json_dumps(v, JSON_ENCODE_ANY);

    str_addf(out, "  \"model\": %s,\n\n", text);
}

static void write_campaign(struct str *out, const struct wish *wish)
{
    str_add(out,
            "// A campaign for partune. Lines that begin with // are comments.\n"
            "// Check it:  partune check FILE     Rank its layouts by the cost model:  partune "
            "plan FILE\n"
            "// Start it:  partune submit FILE\n"
            "{\n"
            "  \"name\": \"my-first-campaign\",\n\n"
            "  // The model: a preset (partune presets models) or its Hugging Face repository, a "
            "Hugging Face directory or\n  // config.json, or an object:\n"
            "  // {\"layers\": 32, \"hidden\": 4096, \"heads\": 32, \"kv_heads\": 8, \"ffn\": "
            "14336, \"vocab\": 32000, \"seq\": 4096,\n"
            "  //  \"moe\": {\"experts\": 8, \"top_k\": 2, \"expert_ffn\": 14336}}\n");
    write_model(out, wish->model);
    write_cluster(out, wish);
    str_add(out, "  // The trainer: \"partune\" is the bundled one, for CPUs. Others are [trainer "
                 "\"NAME\"] sections of the daemon's\n  // configuration, such as megatron, "
                 "torchtitan, deepspeed (docs/howto).\n");
    str_addf(out, "  \"trainer\": \"%s\",\n\n", wish->trainer);
    str_add(out, "  // The launcher decides where trials run:\n");
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++)
        str_addf(out, "  //   %-10s %s\n", launchers[i].name, launchers[i].runs);
    str_addf(out, "  \"launcher\": {\"kind\": \"%s\"},\n\n", wish->launcher);
    str_addf(out,
             "  // What every trial does. global_batch is in sequences; from a list, such as [64, "
             "128], the search\n"
             "  // chooses one, and results have the best of each.\n"
             "  // The default precision is fp32 for partune-train and bf16 for trainers on GPUs.\n"
             "  // data is the name of a data set (partune datasets; made by partune-data "
             "prepare), or \"synthetic\".\n"
             "  \"workload\": {\"global_batch\": %d, \"data\": \"synthetic\"},\n\n",
             usual_batch(wish));
    str_add(out,
            "  // Keys to restrict; by default the search tries every value that the trainer "
            "supports.\n"
            "  // \"space\": {\"tp\": [1, 2], \"micro_batch\": [1, 2, 4, 8]},\n"
            "  // Several numbers of devices: \"space\": {\"world\": [8, 16]}; results have the "
            "best of each.\n\n"
            "  // Smaller, cheaper trials, from which the full size is inferred:\n"
            "  // \"trial\": {\"fidelity\": \"auto\"},\n\n"
            "  // The layout to beat: your own, \"default\" (what a competent engineer would "
            "start from)\n"
            "  // or \"naive\" (the largest data parallelism that fits).\n"
            "  \"baseline\": \"default\",\n\n"
            "  // When to stop. Also: wall_s, device_s.\n"
            "  \"budget\": {\"trials\": 16}\n"
            "}\n");
}

static struct wish wish_of(const struct cl *client)
{
    return (struct wish){.model = client->args.model,
                         .cluster = client->args.cluster,
                         .trainer = client->args.trainer,
                         .launcher = client->args.launcher,
                         .nodes = client->args.nodes};
}

static int without_comments(json_t **ret, const char *text)
{
    AUTO_FREE char *plain = mem_strdup(text);
    struct err e = {0};

    cl_strip_comments(plain);
    if (jx_parse(ret, plain, strlen(plain), &e) < 0) {
        fprintf(stderr, "partune: %s\n", e.text);
        return CL_FAILED;
    }
    return CL_OK;
}

int cl_new_campaign(json_t **ret, const struct cl *client)
{
    struct wish wish = wish_of(client);
    AUTO_STR text = {0};
    int code;

    wish.takes_parts = true;
    code = choose(&wish, false);
    if (code == CL_OK)
        write_campaign(&text, &wish);
    json_decref(wish.described);
    if (code != CL_OK)
        return code;
    return without_comments(ret, str_text(&text));
}

int cl_new(struct cl *client)
{
    const char *path = client->noperands ? client->operand[0] : "campaign.json";
    bool out = str_eq(path, "-");
    struct wish wish = wish_of(client);
    AUTO_JSON *campaign = NULL;
    AUTO_STR text = {0};
    struct err e = {0};
    int code;

    if (!out && file_exists(path) && !client->args.force) {
        fprintf(stderr, "partune: %s exists; --force replaces it\n", path);
        return CL_FAILED;
    }
    code = choose(&wish, !out && client->tty && isatty(STDIN_FILENO) && !client->args.json);
    if (code == CL_OK)
        write_campaign(&text, &wish);
    json_decref(wish.described);
    if (code != CL_OK)
        return code;
    if (out && client->args.json) {
        code = without_comments(&campaign, str_text(&text));
        if (code == CL_OK)
            cl_print_json(campaign);
        return code;
    }
    if (out) {
        fputs(str_text(&text), stdout);
        return CL_OK;
    }
    if (file_write_atomic(path, str_text(&text), text.len, 0644, &e) < 0) {
        fprintf(stderr, "partune: %s\n", e.text);
        return CL_FAILED;
    }
    if (client->args.json)
        return cl_say_done(client, "wrote", path);
    printf("wrote %s; edit it, then: partune check %s, partune submit %s\n", path, path, path);
    return CL_OK;
}
