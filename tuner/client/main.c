/*
 * `partune`: the table of commands, the table of options, and who may use which.
 *
 * Order of precedence for options: default < [client] of the configuration file < environment <
 * command line.
 */
#include "tuner/client/client.h"

#include <errno.h>
#include <locale.h>
#include <unistd.h>

#define OPT_AT(field) offsetof(struct cl_args, field)

static const struct opt options[] = {
    {"server", 's', OPT_STR, OPT_AT(server), 0, 0, "http://127.0.0.1:8417", "PARTUNE_SERVER", "URL",
     "daemon to talk to; unix:PATH for a socket"},
    {"cacert", 0, OPT_STR, OPT_AT(cacert), 0, 0, NULL, "PARTUNE_CACERT", "FILE",
     "trust these certificates (PEM) instead of the system's"},
    {"token", 0, OPT_STR, OPT_AT(token), 0, 0, NULL, "PARTUNE_TOKEN", "TOKEN", "access token"},
    {"data", 0, OPT_STR, OPT_AT(data), 0, 0, NULL, "PARTUNE_DATA", "DIR",
     "data directory of a daemon on this machine, which holds its token"},
    {"config", 0, OPT_STR, OPT_AT(config), 0, 0, NULL, "PARTUNE_CONFIG", "FILE",
     "configuration file"},
    {"json", 'j', OPT_FLAG, OPT_AT(json), 0, 0, NULL, NULL, NULL, "print the server's JSON"},
    {"no-color", 0, OPT_FLAG, OPT_AT(no_color), 0, 0, NULL, NULL, NULL, "no color on a terminal"},
    {"help", 'h', OPT_FLAG, OPT_AT(help), 0, 0, NULL, NULL, NULL,
     "print this help; after a command, its options"},
    {"version", 0, OPT_FLAG, OPT_AT(version), 0, 0, NULL, NULL, NULL, "print the version"},
    {"dry-run", 'n', OPT_FLAG, OPT_AT(dry_run), 0, 0, NULL, NULL, NULL,
     "validate and count layouts; start nothing"},
    {"watch", 'w', OPT_FLAG, OPT_AT(watch), 0, 0, NULL, NULL, NULL,
     "follow the campaign after it is submitted"},
    {"follow", 'f', OPT_FLAG, OPT_AT(follow), 0, 0, NULL, NULL, NULL, "keep printing new output"},
    {"wait", 0, OPT_FLAG, OPT_AT(wait), 0, 0, NULL, NULL, NULL, "wait until it has finished"},
    {"force", 0, OPT_FLAG, OPT_AT(force), 0, 0, NULL, NULL, NULL, "replace an existing file"},
    {"allow-loss", 0, OPT_FLAG, OPT_AT(allow_loss), 0, 0, NULL, NULL, NULL,
     "export what the target can express and list what is lost"},
    {"unfold", 0, OPT_FLAG, OPT_AT(unfold), 0, 0, NULL, NULL, NULL,
     "list every layout, not only the best of each family"},
    {"allow-submit", 0, OPT_FLAG, OPT_AT(allow_submit), 0, 0, NULL, NULL, NULL,
     "also offer the tool that starts campaigns"},
    {"allow-simulated", 0, OPT_FLAG, OPT_AT(allow_simulated), 0, 0, NULL, NULL, NULL,
     "export a layout that only the simulator has run"},
    {"explain", 0, OPT_FLAG, OPT_AT(explain), 0, 0, NULL, NULL, NULL,
     "annotate each line with the layout key or fact that it depends on"},
    {"to", 't', OPT_STR, OPT_AT(to), 0, 0, NULL, NULL, "TARGET", "export target"},
    {"output", 'o', OPT_STR, OPT_AT(output), 0, 0, NULL, NULL, "FILE",
     "write to FILE instead of standard output"},
    {"format", 0, OPT_STR, OPT_AT(format), 0, 0, "csv", NULL, "NAME", "csv or jsonl"},
    {"state", 0, OPT_STR, OPT_AT(state), 0, 0, NULL, NULL, "STATE", "only rows in this state"},
    {"sort", 0, OPT_STR, OPT_AT(sort), 0, 0, NULL, NULL, "KEY", "sort by KEY, -KEY for descending"},
    {"stream", 0, OPT_STR, OPT_AT(stream), 0, 0, "stdout", NULL, "NAME",
     "stdout, stderr or events"},
    {"name", 0, OPT_STR, OPT_AT(name), 0, 0, NULL, NULL, "NAME",
     "name of the campaign or worker; with ls: part of the name"},
    {"notes", 0, OPT_STR, OPT_AT(notes), 0, 0, NULL, NULL, "TEXT", "notes of the campaign"},
    {"priority", 0, OPT_STR, OPT_AT(priority), 0, 0, NULL, NULL, "N",
     "scheduling priority, -100 to 100; higher runs first"},
    {"tags", 0, OPT_STR, OPT_AT(tags), 0, 0, NULL, NULL, "A,B", "tags of the campaign"},
    {"pairs", 0, OPT_INT, OPT_AT(pairs), 2, 50, "5", NULL, NULL,
     "pairs of runs of winner and baseline; of one layout, its runs"},
    {"pin", 0, OPT_STR, OPT_AT(pin), 0, 0, NULL, NULL, "FILE",
     "wait, then write the winner and the interval of its runs to FILE"},
    {"against", 0, OPT_STR, OPT_AT(against), 0, 0, NULL, NULL, "FILE|N",
     "verify: re-run the layout that --pin wrote to FILE and report whether it is now slower than "
     "its interval; why: compare with trial N instead of the baseline"},
    {"kind", 0, OPT_STR, OPT_AT(kind), 0, 0, NULL, NULL, "KIND",
     "only baseline, search, repeat or verify trials"},
    {"tag", 0, OPT_STR, OPT_AT(tag), 0, 0, NULL, NULL, "TAG", "only campaigns with this tag"},
    {"with", 0, OPT_STR, OPT_AT(with), 0, 0, NULL, NULL, "FILE",
     "campaign file with the keys to change"},
    {"scope", 0, OPT_STR, OPT_AT(scope), 0, 0, "read", NULL, "SCOPE", "read, submit or admin"},
    {"expires", 0, OPT_INT, OPT_AT(expires), 1, 1 << 30, NULL, NULL, "SECONDS",
     "lifetime of the token (default: it does not expire)"},
    {"model", 0, OPT_STR, OPT_AT(model), 0, 0, NULL, NULL, "NAME",
     "model preset, its Hugging Face repository, or a Hugging Face directory or config.json"},
    {"cluster", 0, OPT_STR, OPT_AT(cluster), 0, 0, NULL, NULL, "NAME",
     "cluster profile, or a file with a cluster; local is this machine; of a worker, which of a "
     "campaign's clusters it is on"},
    {"nodes", 0, OPT_INT, OPT_AT(nodes), 1, 1 << 20, NULL, NULL, NULL, "nodes of the cluster"},
    {"trainer", 0, OPT_STR, OPT_AT(trainer), 0, 0, NULL, NULL, "NAME",
     "trainer of the trials: partune, megatron, torchtitan, deepspeed or one configured at your "
     "site"},
    {"launcher", 0, OPT_STR, OPT_AT(launcher), 0, 0, NULL, NULL, "KIND", "launcher of the trials:"
#define LAUNCHER(name, ...) " " #name
#include "tuner/launch/launchers.def"
    },
    {"baseline", 0, OPT_STR, OPT_AT(baseline), 0, 0, NULL, NULL, "FILE",
     "baseline: your current job script or configuration, on all devices or --world"},
    {"from", 0, OPT_STR, OPT_AT(from), 0, 0, NULL, NULL, "TARGET",
     "format of --baseline: megatron, deepspeed or torchtitan (default: by FILE's extension)"},
    {"call", 0, OPT_STR, OPT_AT(call), 0, 0, NULL, NULL, "COMMAND",
     "command line that starts the job script, whose variables and arguments the script reads: "
     "\"TP=4 sbatch job.sh 8b\""},
    {"world", 0, OPT_INT, OPT_AT(world), 1, 1 << 24, NULL, NULL, "RANKS", "ranks of the job"},
    {"steps", 0, OPT_INT, OPT_AT(steps), 5, 100000, "50", NULL, NULL, "steps of each run"},
    {"top", 0, OPT_INT, OPT_AT(top), 1, 1000, "20", NULL, NULL, "layouts to print"},
    {"objective", 0, OPT_STR, OPT_AT(objective), 0, 0, NULL, NULL, "NAME",
     "rank by tokens_per_s, tokens_per_s_per_device or tokens_per_joule"},
    {"example", 0, OPT_STR, OPT_AT(example), 0, 0, NULL, NULL, "NAME",
     "reproduce a published study, such as frontier-1t"},
    {"sizes", 0, OPT_STR, OPT_AT(sizes), 0, 0, NULL, NULL, "N,N,...", "device counts"},
    {"tokens", 0, OPT_COUNT, OPT_AT(tokens), 1, 1e18, NULL, NULL, "N",
     "tokens to train on, such as 15T or 15e12"},
    {"days", 0, OPT_F64, OPT_AT(days), 1e-3, 1e5, NULL, NULL, NULL,
     "deadline in days for --tokens"},
    {"price", 0, OPT_F64, OPT_AT(price), 1e-6, 1e6, NULL, NULL, NULL, "price of a device-hour"},
    {"scaling", 0, OPT_STR, OPT_AT(scaling), 0, 0, NULL, NULL, "HOW",
     "strong: fixed global batch; weak: the batch grows with the devices"},
    {"layouts", 0, OPT_STR, OPT_AT(layouts), 0, 0, NULL, NULL, "WHICH",
     "winner: the winner with more replicas; best: the cost model's fastest layout at each size"},
    {"on", 0, OPT_STR, OPT_AT(on), 0, 0, NULL, NULL, "CLUSTER",
     "project to this cluster profile instead of the campaign's cluster; of a campaign over "
     "several, the one of them to project"},
    {"trial", 0, OPT_INT, OPT_AT(trial), 1, 1 << 24, NULL, NULL, NULL,
     "export this trial instead of the winner"},
    {"limit", 0, OPT_INT, OPT_AT(limit), 1, 1000, "100", NULL, NULL, "rows to print"},
    {"folder", 0, OPT_STR, OPT_AT(folder), 0, 0, NULL, NULL, "DIR",
     "directory for the files of the worker's trials (default: below $TMPDIR)"},
    {"exec", 0, OPT_STR, OPT_AT(exec), 0, 0, NULL, NULL, "PROGRAM",
     "run PROGRAM CONFIG EVENTS for each trial instead of the bundled trainer"},
    {"mpiexec", 0, OPT_STR, OPT_AT(mpiexec), 0, 0, NULL, NULL, "PROGRAM",
     "mpiexec that starts the worker's trials"},
    {"devices", 0, OPT_INT, OPT_AT(devices), 0, 1 << 24, "0", NULL, NULL,
     "devices of this worker (0: accept any layout)"},
    {"timeout", 0, OPT_INT, OPT_AT(timeout), 1, 1 << 30, NULL, NULL, "S",
     "seconds to wait (default: no limit)"},
    {"patience", 0, OPT_INT, OPT_AT(patience), 1, 1 << 24, "600", NULL, "S",
     "seconds a worker keeps trying to reach the daemon"},
    {NULL, 0, OPT_FLAG, 0, 0, 0, NULL, NULL, NULL, NULL},
};

static const char common_options[] = " server cacert token data config json no-color help version ";

static const struct cl_command commands[] = {
    {"new", "[FILE]", 0, 1, " force model cluster nodes trainer launcher ", cl_new,
     "write a commented campaign file; asks at a terminal (- is standard output)"},
    {"check", "FILE", 1, 1, " model baseline from world call ", cl_check,
     "validate a campaign file, or check one layout for legality and memory"},
    {"submit", "FILE", 1, 1, " dry-run watch name baseline from world call ", cl_submit,
     "start a campaign (- reads standard input)"},
    {"ls", "", 0, 0, " state tag name sort limit ", cl_ls, "list campaigns"},
    {"show", "ID", 1, 1, " ", cl_show, "show a campaign"},
    {"watch", "ID", 1, 1, " ", cl_watch, "follow a campaign live"},
    {"wait", "ID", 1, 1, " timeout ", cl_wait,
     "wait until a campaign has ended; the exit code tells its outcome"},
    {"pause", "ID", 1, 1, " ", cl_pause,
     "pause a campaign: running trials finish, no new ones start"},
    {"resume", "ID", 1, 1, " ", cl_resume, "resume a paused campaign"},
    {"cancel", "ID", 1, 1, " ", cl_cancel, "cancel a campaign and stop its running trials"},
    {"clone", "ID", 1, 1, " name with ", cl_clone,
     "start a copy of a campaign, optionally with changes"},
    {"edit", "ID", 1, 1, " name notes tags priority ", cl_edit,
     "change a campaign's name, notes, tags or priority"},
    {"rm", "ID", 1, 1, " ", cl_rm, "delete a campaign and its files"},
    {"best", "ID", 1, 1, " ", cl_best, "show the best layout so far"},
    {"baseline", "ID", 1, 1, " ", cl_baseline, "show the baseline layout"},
    {"verify", "ID | --against FILE", 0, 1, " pairs steps wait timeout pin against ", cl_verify,
     "re-run winner and baseline in interleaved pairs, or a pinned layout"},
    {"export", "ID --to TARGET", 1, 1, " to output allow-loss allow-simulated explain trial ",
     cl_export, "export the winner as another trainer's configuration"},
    {"trials", "ID", 1, 1, " state kind sort limit ", cl_trials, "list the trials of a campaign"},
    {"results", "ID", 1, 1, " format output ", cl_results, "write all trials as CSV or JSON lines"},
    {"report", "ID", 1, 1, " output ", cl_report,
     "write a campaign as one HTML file with charts, to read or print"},
    {"log-to", "tensorboard|mlflow DIR|URL ID", 3, 3, " ", cl_log_to,
     "log the trials to a TensorBoard directory or an MLflow server"},
    {"trial", "ID N", 2, 2, " ", cl_trial, "show a trial"},
    {"steps", "ID N", 2, 2, " limit ", cl_steps, "list the steps of a trial"},
    {"log", "ID N", 2, 2, " stream follow ", cl_log, "print the output of a trial"},
    {"timeline", "ID N", 2, 2, " output ", cl_timeline,
     "write one step of a trial as a Chrome trace, for Perfetto"},
    {"why", "ID N", 2, 2, " against ", cl_why,
     "explain a trial's step time against the baseline's, by class and by changed key"},
    {"importance", "ID", 1, 1, " ", cl_importance, "show which layout keys mattered"},
    {"pareto", "ID", 1, 1, " limit ", cl_pareto, "list the Pareto front of throughput and memory"},
    {"predictions", "ID", 1, 1, " limit ", cl_predictions,
     "list predicted and measured throughput of the trials"},
    {"surface", "ID X Y", 3, 3, " ", cl_surface, "show the surrogate model over two layout keys"},
    {"diagnosis", "ID", 1, 1, " ", cl_diagnosis, "print the state of the search as JSON"},
    {"compare", "A B [...]", 2, 5, " ", cl_compare,
     "compare campaigns (ID ID) or trials (ID/N ID/N) side by side"},
    {"worker", "ID", 1, 1, " name folder exec mpiexec devices cluster patience ", cl_worker,
     "run trials of a campaign with launcher `remote` on this machine"},
    {"workers", "", 0, 0, " ", cl_workers, "list the workers known to the daemon"},
    {"plan", "FILE | --model NAME", 0, 1,
     " top example unfold objective model cluster nodes trainer ", cl_plan,
     "rank the layouts of a campaign file, or of a model on a cluster, by the cost model; runs no "
     "trial"},
    {"import", "TARGET FILE", 2, 2, " model world call ", cl_import,
     "convert another trainer's configuration to a layout, for a baseline"},
    {"project", "ID --sizes N,N,...", 1, 1, " sizes scaling layouts on ", cl_project,
     "project throughput to other device counts"},
    {"size", "FILE | --model NAME", 0, 1, " sizes tokens days price model cluster nodes trainer ",
     cl_size,
     "compare days, cost and efficiency of a job at several device counts, by the cost model"},
    {"calibrate-stack", "FILE", 1, 1, " output name ", cl_calibrate_stack,
     "learn a trainer's \"stack\" (how efficiently it runs) from measured rows"},
    {"presets", "models|clusters|stacks", 1, 1, " ", cl_presets,
     "list bundled models, cluster profiles or stacks"},
    {"datasets", "", 0, 0, " ", cl_datasets, "list the daemon's data sets"},
    {"exporters", "", 0, 0, " ", cl_exporters, "list export targets"},
    {"tokens", "", 0, 0, " ", cl_tokens, "list access tokens, without their secrets"},
    {"token-add", "NAME", 1, 1, " scope expires ", cl_token_add, "create an access token"},
    {"token-rm", "ID", 1, 1, " ", cl_token_rm, "revoke an access token"},
    {"events", "[ID]", 0, 1, " ", cl_events,
     "print events as they happen, one JSON object per line"},
    {"get", "PATH", 1, 1, " ", cl_get,
     "fetch a resource of the HTTP API, such as /readyz or /openapi.json"},
    {"doctor", "", 0, 0, " ", cl_doctor, "check this machine and print a fix for each problem"},
    {"mcp", "", 0, 0, " allow-submit ", cl_mcp,
     "serve tools to agents over the Model Context Protocol (MCP) on standard input and output"},
    {"completion", "bash|zsh|fish", 1, 1, " ", cl_completion,
     "print a completion script for the shell"},
    {"manual", "", 0, 0, " ", cl_manual,
     "print the manual page in roff; with --json: commands, options and exit codes"},
    {NULL, NULL, 0, 0, NULL, NULL, NULL},
};

static const struct cl_tables tables = {
    .commands = commands, .options = options, .common = common_options};

/* Where the help begins a new group of commands. */
static const struct {
    const char *first, *title;
} groups[] = {
    {"new", "campaigns"},       {"best", "results"},
    {"trial", "one trial"},     {"importance", "analysis"},
    {"worker", "workers"},      {"plan", "planning, without running anything"},
    {"datasets", "the daemon"}, {"doctor", "this machine and its tools"},
};

static void usage(FILE *out)
{
    size_t group = 0;

    fputs("usage: partune [options] COMMAND [operands]\n", out);
    for (const struct cl_command *command = commands; command->name; command++) {
        AUTO_FREE char *left = mem_printf("%s %s", command->name, command->operands);

        if (group < ARRAY_LEN(groups) && !strcmp(groups[group].first, command->name))
            fprintf(out, "\n%s:\n", groups[group++].title);
        opt_columns(left, command->help, out);
    }
    fputs("\n`partune COMMAND --help` lists the options of a command.\n"
          "`last` in place of an ID is the newest campaign.\n"
          "exit status:",
          out);
    for (const struct cl_exit_row *row = cl_exit_rows; row->word; row++)
        fprintf(out, "%s %d %s", row->code ? "," : "", row->code, row->word);
    fputc('\n', out);
}

static const struct cl_command *find_command(const char *name)
{
    const char *names[ARRAY_LEN(commands)] = {NULL};
    const char *near;

    for (size_t i = 0; i < (ARRAY_LEN(commands) - 1); i++) {
        if (!strcmp(commands[i].name, name))
            return &commands[i];
        names[i] = commands[i].name;
    }
    near = str_nearest(name, names);
    fprintf(stderr, "partune: unknown command `%s`%s%s%s\n", name, near ? "; did you mean `" : "",
            near ? near : "", near ? "`?" : "");
    fputs("  `partune --help` lists them\n", stderr);
    return NULL;
}

/* The options that COMMAND knows, common ones last; caller frees. */
static struct opt *options_of(size_t *ret_count, size_t *ret_common, const struct cl_command *cmd)
{
    struct opt *t = mem_alloc(sizeof(options));
    size_t own = 0;

    *ret_count = 0;
    for (int shared = 0; shared < 2; shared++) {
        own = shared ? *ret_count : 0;
        for (size_t i = 0; i < (ARRAY_LEN(options) - 1); i++) {
            char word[40];

            snprintf(word, sizeof(word), " %s ", options[i].name);
            if (strstr(shared ? common_options : cmd ? cmd->options : " ", word))
                t[(*ret_count)++] = options[i];
        }
    }
    *ret_common = *ret_count - own;
    return t;
}

static const char *default_data(void)
{
    static char path[1024];
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (state && *state)
        snprintf(path, sizeof(path), "%s/partune", state);
    else
        snprintf(path, sizeof(path), "%s/.local/state/partune", home ? home : "");
    return path;
}

/* The token of a daemon on this machine, from its 0600 file; NULL where there is none. */
static char *find_token(const struct cl_args *args)
{
    AUTO_FREE char *path = mem_printf("%s/token", args->data);
    char *text = NULL;
    size_t n;

    if (args->token)
        return mem_strdup(args->token);
    if (file_read_all(&text, &n, path, 4096, NULL) < 0)
        return NULL;
    text[strcspn(text, " \t\r\n")] = '\0';
    return text;
}

/* The file that --config names on the command line, which must be read before the rest of it
 * counts. */
static const char *config_argument(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (str_starts(argv[i], "--config="))
            return argv[i] + strlen("--config=");
        if (!strcmp(argv[i], "--config") && i + 1 < argc)
            return argv[i + 1];
    }
    return getenv("PARTUNE_CONFIG");
}

static int load_config(struct opt_set *set, const char *asked, struct err *error)
{
    AUTO_FREE char *path = NULL;
    AUTO(conf) *conf = NULL;
    const char *home = getenv("XDG_CONFIG_HOME");
    int r;

    if (asked)
        path = mem_strdup(asked);
    else if (home && *home)
        path = mem_printf("%s/partune/config", home);
    else
        path = mem_printf("%s/.config/partune/config", getenv("HOME") ? getenv("HOME") : "");
    if (!asked && !file_exists(path))
        return 0;
    r = conf_load(&conf, path, error);
    return r < 0 ? r : opt_from_conf(set, conf, error);
}

static void find_terminal(struct cl *client)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM"), *columns = getenv("COLUMNS");
    int64_t asked;
    int lines = 0;

    setlocale(LC_CTYPE, "C.UTF-8"); /* what is printed is UTF-8, wherever we are */
    client->key_fd = -1;
    client->tty = isatty(STDOUT_FILENO) && !str_eq(term, "dumb");
    client->color = client->tty && !client->args.no_color && !(no_color && *no_color);
    client->width = client->tty ? 80 : 200;
    if (client->tty)
        cl_terminal_size(&client->width, &lines);
    if (columns && str_to_i64(&asked, columns, CL_LEAST_WIDTH, 10000) == 0)
        client->width = (int)asked;
}

/* Which operand of COMMAND is the ID of a campaign; -1: none. */
static int id_operand(const struct cl_command *command)
{
    int at = 0;

    for (const char *word = command->operands; *word && command->run != cl_token_rm; at++) {
        size_t n = strcspn(word, " ");

        if ((n == 2 && !memcmp(word, "ID", 2)) || (n == 4 && !memcmp(word, "[ID]", 4)))
            return at;
        word += n + strspn(word + n, " ");
    }
    return -1;
}

/* ID of the newest campaign. *RET is the caller's. */
static int newest(char **ret, struct cl *client)
{
    AUTO_JSON *v = NULL;
    int code = cl_call(&v, client, "GET", "/v1/campaigns?page_size=1&sort=-created", NULL);
    const char *id;

    if (code != CL_OK)
        return code;
    id = cl_string(json_array_get(json_object_get(v, "items"), 0), "id");
    if (!*id) {
        fprintf(stderr, "partune: there is no campaign yet; `partune new` writes a file to start "
                        "one from\n");
        return CL_NOT_FOUND;
    }
    *ret = mem_strdup(id);
    return CL_OK;
}

/* "last" in place of an ID is the newest campaign, and last/N its trial where operands are ID/N.
 * FOUND: CL_OPERANDS places, of which those that are not NULL afterwards are the caller's. */
static int resolve_last(char **found, struct cl *client, const struct cl_command *cmd)
{
    int at = id_operand(cmd), code = CL_OK;
    AUTO_FREE char *id = NULL;

    for (int i = 0; i < client->noperands && code == CL_OK; i++) {
        const char *word = client->operand[i];
        bool compared = cmd->run == cl_compare;

        if ((!compared || strncmp(word, "last/", 5) != 0) &&
            ((!compared && i != at) || !str_eq(word, "last")))
            continue;
        if (!id)
            code = newest(&id, client);
        if (code == CL_OK)
            client->operand[i] = found[i] = mem_printf("%s%s", id, word + 4);
    }
    return code;
}

static int run_command(const struct cl_command *cmd, int argc, char **argv)
{
    struct cl c = {.tables = &tables};
    size_t count, common;
    AUTO_FREE struct opt *table = options_of(&count, &common, cmd);
    AUTO_FREE char *line =
        mem_printf("partune %s [options]%s%s", cmd->name, *cmd->operands ? " " : "", cmd->operands);
    struct opt_set set = {.program = "partune",
                          .usage = line,
                          .section = "client",
                          .table = table,
                          .count = count,
                          .values = &c.args,
                          .about = cmd->help,
                          .last = common,
                          .last_title = "common options"};
    struct err e = {0};
    char *last[CL_OPERANDS] = {NULL};
    int n = 0, code = CL_USAGE;

    opt_init(&set);
    if (load_config(&set, config_argument(argc, argv), &e) < 0 || opt_from_env(&set, &e) < 0 ||
        opt_from_argv(&n, &set, argc, argv, 0, &e) < 0) {
        fprintf(stderr, "partune: %s\n  `partune %s --help` lists the options\n", e.text,
                cmd->name);
    } else if (c.args.help) {
        opt_help(&set, stdout);
        code = CL_OK;
    } else if (n < cmd->min || n > cmd->max) {
        if (n > cmd->max)
            fprintf(stderr, "partune: one operand too many: `%s`\n  usage: %s\n",
                    argv[cmd->max + 1], line);
        else
            fprintf(stderr, "partune: usage: %s\n", line);
    } else {
        for (int i = 0; i < n; i++)
            c.operand[i] = argv[i + 1];
        c.noperands = n;
        if (!c.args.data)
            c.args.data = default_data();
        c.token = find_token(&c.args);
        find_terminal(&c);
        code = resolve_last(last, &c, cmd);
        if (code == CL_OK)
            code = cmd->run(&c);
    }
    for (size_t i = 0; i < ARRAY_LEN(last); i++)
        free(last[i]);
    free(c.token);
    opt_done(&set);
    return code;
}

int main(int argc, char **argv)
{
    const struct cl_command *cmd;

    log_setup("partune", LOG_WARN);
    /* Options may stand before the command too: move the command to the front. */
    for (int i = 1; i < argc; i++) {
        bool takes_value = false;

        if (argv[i][0] != '-') {
            char *name = argv[i];

            memmove(&argv[2], &argv[1], (size_t)(i - 1) * sizeof(*argv));
            argv[1] = name;
            break;
        }
        for (size_t k = 0; k < (ARRAY_LEN(options) - 1); k++)
            if (options[k].type != OPT_FLAG &&
                ((argv[i][1] == '-' && !strcmp(argv[i] + 2, options[k].name)) ||
                 (argv[i][1] == options[k].letter && !argv[i][2])))
                takes_value = true;
        i += takes_value;
    }
    if (argc < 2) {
        usage(stderr);
        return CL_USAGE;
    }
    if (argv[1][0] == '-') {
        if (str_eq(argv[1], "--version")) {
            puts("partune " PACKAGE_VERSION);
            return CL_OK;
        }
        usage(str_eq(argv[1], "--help") || str_eq(argv[1], "-h") ? stdout : stderr);
        return str_eq(argv[1], "--help") || str_eq(argv[1], "-h") ? CL_OK : CL_USAGE;
    }
    cmd = find_command(argv[1]);
    return cmd ? run_command(cmd, argc - 1, argv + 1) : CL_USAGE;
}
