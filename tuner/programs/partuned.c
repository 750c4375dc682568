/*
 * partuned - the daemon: campaigns over HTTP.
 *
 *     partuned [options]              serve until TERM or INT
 *     partuned [options] backup FILE  a consistent copy of the database, even while a daemon runs
 *     partuned [options] check        check that everything campaigns need is available
 *     partuned [options] check-config         validate the configuration file
 *     partuned [options] token add NAME [read|submit|admin]   also: token list, token drop ID
 */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tuner/tuner.h"

struct values {
    const char *data, *config, *listen, *mpiexec, *train, *supervisor, *hosts, *log, *token_file,
        *ui_dir, *tls_cert;
    const char *tls_key, *stop, *trial_user, *trial_limits, *gpus;
    int cores, grace, hang;
    double retain;
    uint64_t quota, log_limit;
    bool help, manual, version;
};

#define AT(field) offsetof(struct values, field)

static const struct opt table[] = {
    {"data", 'd', OPT_STR, AT(data), 0, 0, NULL, "PARTUNE_DATA", "DIR", "data directory"},
    {"config", 'c', OPT_STR, AT(config), 0, 0, NULL, "PARTUNE_CONFIG", "FILE",
     "configuration file"},
    {"listen", 'l', OPT_STR, AT(listen), 0, 0, "127.0.0.1:8417", "PARTUNE_LISTEN", "ADDRESS",
     "HOST:PORT or unix:PATH, several separated by spaces; port 0 picks a free one"},
    {"mpiexec", 0, OPT_STR, AT(mpiexec), 0, 0, NULL, NULL, "PROGRAM", "mpiexec that starts trials"},
    {"train", 0, OPT_STR, AT(train), 0, 0, NULL, NULL, "PROGRAM",
     "path of partune-train, the bundled trainer"},
    {"supervisor", 0, OPT_STR, AT(supervisor), 0, 0, NULL, NULL, "PROGRAM", "partune-run"},
    {"hosts", 0, OPT_STR, AT(hosts), 0, 0, NULL, NULL, "FILE",
     "hosts for trials, one HOST:CORES per line"},
    {"cores", 0, OPT_INT, AT(cores), 0, 1024, "0", NULL, "N", "cores for trials (0: all)"},
    {"gpus", 0, OPT_STR, AT(gpus), 0, 0, NULL, NULL, "LIST",
     "GPUs for trials, as nvidia-smi numbers them (default: $CUDA_VISIBLE_DEVICES, else all)"},
    {"grace", 0, OPT_INT, AT(grace), 0, 600000, "2000", NULL, "MS",
     "milliseconds between TERM and KILL of a trial"},
    {"hang", 0, OPT_INT, AT(hang), 1, 86400, "60", NULL, "S",
     "shortest time without output that counts as a hang"},
    {"stop", 0, OPT_STR, AT(stop), 0, 0, "leave", NULL, "HOW",
     "what happens to running trials when the daemon ends: leave or requeue"},
    {"retain", 0, OPT_F64, AT(retain), 0, 36500, "0", NULL, "DAYS",
     "remove campaigns this many days after they end (0: keep them)"},
    {"quota", 0, OPT_BYTES, AT(quota), 0, 0, "0", NULL, "SIZE",
     "disk quota for attempt files (0: no limit)"},
    {"log-limit", 0, OPT_BYTES, AT(log_limit), 0, 0, "16m", NULL, "SIZE",
     "largest stdout and stderr log of an attempt"},
    {"trial-user", 0, OPT_STR, AT(trial_user), 0, 0, NULL, NULL, "USER",
     "run local trials as this user; the daemon must be root"},
    {"trial-limits", 0, OPT_STR, AT(trial_limits), 0, 0, NULL, NULL, "LIST",
     "resource limits of each process of a trial: "
     "data=32g,fsize=10g,nofile=4096,nproc=512,cpu=3600,core=0"},
    {"token-file", 0, OPT_STR, AT(token_file), 0, 0, NULL, NULL, "FILE",
     "file for the token of the loopback listener"},
    {"ui-dir", 0, OPT_STR, AT(ui_dir), 0, 0, NULL, NULL, "DIR",
     "serve the dashboard from this directory"},
    {"tls-cert", 0, OPT_STR, AT(tls_cert), 0, 0, NULL, NULL, "FILE", "TLS certificate, PEM"},
    {"tls-key", 0, OPT_STR, AT(tls_key), 0, 0, NULL, NULL, "FILE",
     "key of the TLS certificate, PEM"},
    {"log", 0, OPT_STR, AT(log), 0, 0, "info", "PARTUNE_LOG", "LEVEL",
     "error, warn, info or debug"},
    {"help", 'h', OPT_FLAG, AT(help), 0, 0, NULL, NULL, NULL, "print this help and exit"},
    {"manual", 0, OPT_FLAG, AT(manual), 0, 0, NULL, NULL, NULL,
     "print the manual page in roff and exit"},
    {"version", 'V', OPT_FLAG, AT(version), 0, 0, NULL, NULL, NULL, "print the version and exit"},
};

static const struct opt_manual manual = {
    .section = 8,
    .summary = "the daemon that finds the parallel layout that trains a model fastest",
    .description =
        "Serves campaigns over HTTP and runs their trials, until TERM or INT. Campaigns are made "
        "with\n.BR partune (1),\ncurl or a browser. Without configured tokens it listens on "
        "loopback and Unix sockets only, and writes the token of these to a file.",
    .more =
        ".SH COMMANDS\n"
        ".TP\n.B backup \\fIFILE\\fR\nWrite a consistent copy of the database, even while a daemon "
        "is running.\n"
        ".TP\n.B check\nCheck that everything that campaigns need is available, and print a fix "
        "for each problem; no daemon may be using the directory.\n"
        ".TP\n.B check\\-config\nValidate the configuration file as at startup, and do nothing "
        "else.\n"
        ".TP\n.B token add \\fINAME\\fR [read|submit|admin]\nCreate a token and print it; the "
        "default scope is read.\n"
        ".TP\n.B token list\nList tokens, without their secrets.\n"
        ".TP\n.B token drop \\fIID\\fR\nRevoke a token.\n"
        ".SH CONFIGURATION\nA file in git's dialect of INI. Each option above but config, help, "
        "manual and version is a key of its section [partuned]; the command line overrides the "
        "environment, which overrides the file. Further sections are [http], [dataset \"NAME\"], "
        "[trainer \"NAME\"], [slurm] and [webhook \"NAME\"]; an unknown key is an error that names "
        "its line. reference/configuration.md among the installed documents explains them.\n"
        ".SH EXIT STATUS\n0 success or stopped on request, 1 failure, 2 wrong usage or "
        "configuration.\n"
        ".SH FILES\n.TP\n.I partune.db\nin the data directory: all campaigns, trials, tokens.\n"
        ".TP\n.I token\nin the data directory: the token of the loopback listener.\n"
        ".SH SEE ALSO\n.BR partune (1),\n.BR partune\\-train (1),\n.BR partune\\-run (8)\n",
};

enum { LATE_S = 4 };

struct daemon {
    uv_loop_t loop;
    struct tn_service *service;
    struct tn_http *http;
    uv_signal_t term, interrupt;
    enum tn_stop stop;
    int signals;
};

/* ---- the end ------------------------------------------------------------- */

static void on_stopped(void *arg)
{
    struct daemon *d = arg;

    uv_stop(&d->loop);
}

static void on_signal(uv_signal_t *handle, int sig)
{
    struct daemon *d = handle->data;

    log_info("stopping: %s", strsignal(sig));
    if (++d->signals > 1) { /* twice: do not wait for trials */
        uv_stop(&d->loop);
        return;
    }
    if (d->http)
        tn_http_quiesce(d->http);
    tn_service_stop(d->service, d->stop, on_stopped, d);
}

static void watch_signals(struct daemon *daemon)
{
    uv_signal_init(&daemon->loop, &daemon->term);
    uv_signal_init(&daemon->loop, &daemon->interrupt);
    daemon->term.data = daemon->interrupt.data = daemon;
    uv_signal_start(&daemon->term, on_signal, SIGTERM);
    uv_signal_start(&daemon->interrupt, on_signal, SIGINT);
    signal(SIGPIPE, SIG_IGN);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* What still runs may be left at any instant, as by a kill: nothing is lost. */
static void on_late(int sig)
{
    (void)sig;
    _exit(0);
}

/* Ends within LATE_S, whatever other threads are doing. */
static void finish(struct daemon *daemon)
{
    signal(SIGALRM, on_late);
    alarm(LATE_S);
    daemon->http = tn_http_stop(daemon->http);
    daemon->service = tn_service_close(daemon->service);
    uv_walk(&daemon->loop, close_handle, NULL);
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    uv_loop_close(&daemon->loop);
}

/* ---- the start ----------------------------------------------------------- */

/* Each connection and each running trial needs descriptors. */
static void raise_limits(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max < 65536 ? l.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

static char *default_data_dir(void)
{
    const char *state = getenv("STATE_DIRECTORY"), *xdg = getenv("XDG_STATE_HOME"),
               *home = getenv("HOME");

    if (state && *state)
        return mem_strdup(state); /* the systemd unit says so */
    if (xdg && *xdg)
        return mem_printf("%s/partune", xdg);
    return mem_printf("%s/.local/state/partune", home && *home ? home : "");
}

static struct tn_config service_config(const struct values *values, const struct conf *conf)
{
    return (struct tn_config){.data_dir = values->data,
                              .mpiexec = values->mpiexec,
                              .train = values->train,
                              .supervisor = values->supervisor,
                              .hosts = values->hosts,
                              .cores = values->cores,
                              .gpus = values->gpus,
                              .grace_ms = values->grace,
                              .hang_s = values->hang,
                              .retain_days = values->retain,
                              .quota = values->quota,
                              .log_limit = values->log_limit,
                              .trial_user = values->trial_user,
                              .trial_limits = values->trial_limits,
                              .conf = conf};
}

/* "a b" as a NULL-terminated list of 1 to MAX - 1; TEXT is cut up. */
static int split_listen(const char **list, int max, char *text, struct err *error)
{
    char *save = NULL;
    int n = 0;

    for (char *p = strtok_r(text, " ,", &save); p; p = strtok_r(NULL, " ,", &save)) {
        if (n == max - 1)
            return err_set(error, -EINVAL, "--listen has more than %d addresses", max - 1);
        list[n++] = p;
    }
    list[n] = NULL;
    return n > 0 ? 0 : err_set(error, -EINVAL, "--listen names no address");
}

static int start_http(struct daemon *daemon, const struct values *values, const struct conf *conf,
                      struct err *error)
{
    const char *listen[16];
    AUTO_FREE char *text = mem_strdup(values->listen);
    struct tn_http_config h = {.listen = listen,
                               .token_file = values->token_file,
                               .ui_dir = values->ui_dir,
                               .tls_cert = values->tls_cert,
                               .tls_key = values->tls_key,
                               .conf = conf};

    if (split_listen(listen, (int)ARRAY_LEN(listen), text, error) < 0)
        return -EINVAL;
    return tn_http_start(&daemon->http, daemon->service, &daemon->loop, &h, error);
}

static int serve(const struct values *values, const struct conf *conf, struct err *error)
{
    struct daemon d = {.stop = !strcmp(values->stop, "requeue") ? TN_STOP_REQUEUE : TN_STOP_LEAVE};
    struct tn_config config = service_config(values, conf);
    int r;

    raise_limits();
    uv_loop_init(&d.loop);
    watch_signals(&d);
    r = tn_service_open(&d.service, &d.loop, &config, error);
    if (r == 0)
        r = start_http(&d, values, conf, error);
    if (r == 0) {
        log_info("ready at %s data=%s", tn_http_url(d.http), tn_data_dir(d.service));
        uv_run(&d.loop, UV_RUN_DEFAULT);
    }
    finish(&d);
    return r;
}

/* ---- other commands ------------------------------------------------------ */

static int backup(const struct values *values, const char *file, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", values->data);
    AUTO_DB *db = NULL;
    int r;

    if (!file_exists(path))
        return err_set(error, -ENOENT, "no database in %s", values->data);
    r = db_open(&db, path, DB_READ, error);
    return r < 0 ? r : db_backup(db, file, error);
}

static int check(const struct values *values, const struct conf *conf, struct err *error)
{
    struct tn_config config = service_config(values, conf);
    struct tn_service *svc = NULL;
    uv_loop_t loop;
    json_t *health, *checks, *c;
    size_t i;
    int r;

    uv_loop_init(&loop);
    r = tn_service_open(&svc, &loop, &config, error);
    if (r < 0)
        return r;
    while (tn_campaigns_coming(svc) > 0)
        uv_run(&loop, UV_RUN_ONCE);
    health = tn_health_json(svc);
    checks = json_object_get(health, "checks");
    json_array_foreach(checks, i, c) {
        bool ok = json_is_true(json_object_get(c, "ok"));

        printf("%-4s %-14s %s%s%s\n", ok ? "ok" : "FAIL",
               json_string_value(json_object_get(c, "name")),
               json_string_value(json_object_get(c, "detail")), ok ? "" : "; ",
               ok ? "" : json_string_value(json_object_get(c, "fix")));
        r = ok ? r : 1;
    }
    json_decref(health);
    tn_service_close(svc);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return r;
}

/* configure() has read and judged it already. */
static int check_config(const struct values *values, struct err *error)
{
    if (!values->config)
        return err_set(error, -EINVAL, "check-config needs --config FILE");
    printf("%s: valid\n", values->config);
    return 0;
}

static int fail(const struct err *error, int status)
{
    fprintf(stderr, "partuned: %s\n", error->text);
    return status;
}

/* The command line is read on a copy, which the parser sorts, to find the configuration file first.
 */
static int peek_argv(struct opt_set *set, int argc, char **argv, struct err *error)
{
    AUTO_FREE char **copy = mem_alloc(((size_t)argc + 1) * sizeof(*copy));
    int operands;

    memcpy(copy, argv, (size_t)argc * sizeof(*copy));
    return opt_from_argv(&operands, set, argc, copy, 0, error);
}

/* Configuration: default < file < environment < command line. */
static int configure(struct conf **ret_conf, int *ret_operands, struct opt_set *set,
                     struct values *values, int argc, char **argv, struct err *error)
{
    int r;

    opt_init(set);
    if ((r = opt_from_env(set, error)) < 0 || (r = peek_argv(set, argc, argv, error)) < 0)
        return r;
    if (!values->config)
        return opt_from_argv(ret_operands, set, argc, argv, 0, error);
    if ((r = conf_load(ret_conf, values->config, error)) < 0 ||
        (r = opt_from_conf(set, *ret_conf, error)) < 0 ||
        (r = tn_settings_check(*ret_conf, error)) < 0 ||
        (r = tn_http_settings_check(*ret_conf, error)) < 0 || (r = opt_from_env(set, error)) < 0)
        return r;
    return opt_from_argv(ret_operands, set, argc, argv, 0, error);
}

static int dispatch(const struct opt_set *set, const struct values *values, const struct conf *conf,
                    int operands, char **argv, struct err *error)
{
    if (values->help) {
        opt_help(set, stdout);
        return 0;
    }
    if (values->manual) {
        opt_manual(set, &manual, stdout);
        return 0;
    }
    if (values->version) {
        printf("partuned %s\n", PACKAGE_VERSION);
        return 0;
    }
    if (strcmp(values->stop, "leave") != 0 && strcmp(values->stop, "requeue") != 0)
        return err_set(error, -EINVAL, "--stop must be leave or requeue, not %s", values->stop);
    if (operands == 0)
        return serve(values, conf, error);
    if (operands == 2 && !strcmp(argv[1], "backup"))
        return backup(values, argv[2], error);
    if (operands == 1 && !strcmp(argv[1], "check"))
        return check(values, conf, error);
    if (operands == 1 && !strcmp(argv[1], "check-config"))
        return check_config(values, error);
    if (!strcmp(argv[1], "token"))
        return tn_token_command(values->data, operands - 1, argv + 2, error);
    return err_set(error, -EINVAL, "unknown command %s (backup FILE, check, check-config, token)",
                   argv[1]);
}

int main(int argc, char **argv)
{
    struct values v = {0};
    struct opt_set set = {.program = "partuned",
                          .usage =
                              "partuned [options] [backup FILE | check | check-config | token …]",
                          .section = "partuned",
                          .table = table,
                          .count = ARRAY_LEN(table),
                          .values = &v};
    struct conf *conf = NULL;
    struct err e = {0};
    enum log_level level = LOG_INFO;
    char *data = NULL;
    int operands = 0, r;

    log_setup("partuned", level);
    if (configure(&conf, &operands, &set, &v, argc, argv, &e) < 0) {
        r = fail(&e, 2);
    } else if (log_level_parse(&level, v.log) < 0) {
        r = fail(&(struct err){.text = "--log must be error, warn, info or debug"}, 2);
    } else {
        log_setup("partuned", level);
        if (!v.data)
            v.data = data = default_data_dir();
        r = dispatch(&set, &v, conf, operands, argv, &e);
        if (r < 0)
            r = fail(&e, r == -EINVAL ? 2 : 1);
    }
    free(data);
    conf_free(conf);
    opt_done(&set);
    return r;
}
