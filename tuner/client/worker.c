/*
 * `partune worker`: run the trials of a campaign whose launcher is `remote`.
 *
 * It asks for a trial, runs it under partune-run in a folder of its own, sends what the trainer
 * writes into its event file with each heartbeat, and reports the end. Each of the two may die: a
 * daemon that comes back knows the lease, and a trial whose worker dies is stopped by its
 * supervisor and given to somebody else when the lease is over. A completion is repeated until it
 * has an answer; the daemon counts it once.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "db/db.h"
#include "tuner/client/client.h"
#include "tuner/machine/mpi.h"
#include "tuner/machine/proc.h"

enum { LOOK_MS = 100, MAX_BATCH = 500, TAIL = 64 << 10, MAX_EVENTS = 256 << 20 };

struct job {
    const char *campaign, *lease;
    int64_t n, attempt;
    double lease_s;
    char *path;   /* of the trial's resource */
    char *folder; /* of this attempt */
    int64_t sent; /* events that the daemon has */
    off_t offset; /* of the first that it does not have */
    int pid;
};

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    stopped = sig;
}

static uint64_t now_ms(void)
{
    return clock_mono_ns() / 1000000;
}

static void nap(int ms)
{
    usleep((useconds_t)ms * 1000);
}

/* ---- starting ------------------------------------------------------------ */

/* A data set is a folder below DATA/datasets; its name comes from the campaign. */
static int add_data(struct cl *client, const json_t *config, char **argv, int argc,
                    struct err *error)
{
    const char *data =
        json_string_value(json_object_get(json_object_get(config, "workload"), "data"));

    argv[argc++] = mem_strdup("--data-dir");
    argv[argc++] = mem_strdup(client->args.data);
    if (!data || str_eq(data, "synthetic"))
        return argc;
    if (strchr(data, '/') || data[0] == '.')
        return err_set(error, -EINVAL, "invalid data set name \"%.64s\"", data);
    argv[argc++] = mem_strdup("--data");
    argv[argc++] = mem_printf("%s/datasets/%s", client->args.data, data);
    return argc;
}

static char *need(const char *given, const char *name, struct err *error)
{
    char *found = tn_find_program(given, name);

    if (!found)
        err_set(error, -ENOENT, "%s was not found", given ? given : name);
    return found;
}

/* mpiexec of the bundled trainer's MPI, and the trainer; returns how many, or negative. */
static int mpi_argv(const struct cl *client, int world, char **argv, int argc, struct err *error)
{
    struct tn_mpi_job job = {.ranks = world, .grace_s = 1, .as_root = tn_mpi_as_root(NULL)};
    struct tn_mpi mpi = {0};
    struct tn_argv v = {0};
    int r;

    tn_mpi_find(&mpi, client->args.mpiexec, NULL);
    r = tn_mpi_ready(&mpi, error);
    if (r == 0)
        r = tn_mpi_suits(&mpi, error);
    if (r == 0 && !mpi.train.path)
        r = err_set(error, -ENOENT, "partune-train was not found");
    if (r == 0)
        r = tn_mpi_argv(&v, &mpi, &job, error);
    for (int i = 0; r == 0 && i < v.n; i++)
        argv[argc++] = mem_strdup(v.v[i]);
    if (r == 0)
        argv[argc++] = mem_strdup(mpi.train.path);
    tn_argv_done(&v);
    tn_mpi_done(&mpi);
    return r < 0 ? r : argc;
}

/* The bundled trainer under mpiexec, or the program of --exec; returns how many, or negative. */
static int trainer_argv(struct cl *client, const struct job *job, const json_t *offer, char **argv,
                        int argc, struct err *error)
{
    const json_t *config = json_object_get(offer, "config");
    int world = (int)cl_number(offer, "layout.world");

    if (client->args.exec) {
        argv[argc++] = need(client->args.exec, client->args.exec, error);
        argv[argc++] = mem_printf("%s/config.json", job->folder);
        argv[argc++] = mem_printf("%s/events", job->folder);
        return argv[argc - 3] ? argc : -ENOENT;
    }
    argc = mpi_argv(client, world, argv, argc, error);
    if (argc < 0)
        return argc;
    argv[argc++] = mem_strdup("--config");
    argv[argc++] = mem_printf("%s/config.json", job->folder);
    argv[argc++] = mem_strdup("--events");
    argv[argc++] = mem_printf("%s/events", job->folder);
    if (cl_number(offer, "device_memory") > 0) {
        argv[argc++] = mem_strdup("--device-memory");
        argv[argc++] = mem_printf("%.0f", cl_number(offer, "device_memory"));
    }
    return add_data(client, config, argv, argc, error);
}

/* The supervisor dies with us (TERM, which ends all of the trial), so no trial outlives its worker.
 */
static int launch(struct job *job, char **argv, const char *traceparent, struct err *error)
{
    AUTO_FREE char *mark = mem_printf("worker-%d/%s/%lld/%lld", (int)getpid(), job->campaign,
                                      (long long)job->n, (long long)job->attempt);
    AUTO_FREE char *config = mem_printf("%s/config.json", job->folder);
    AUTO_FREE char *events = mem_printf("%s/events", job->folder);
    int parent = getpid();

    job->pid = fork();
    if (job->pid < 0)
        return err_set(error, -errno, "fork: %s", strerror(errno));
    if (job->pid > 0)
        return 0;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setenv(TN_MARK_ENV, mark, 1);
    if (traceparent)
        setenv(TN_TRACE_ENV, traceparent, 1);
    setenv("PARTUNE_TRIAL_CONFIG", config, 1);
    setenv("PARTUNE_TRIAL_EVENTS", events, 1);
    unsetenv("PARTUNE_TOKEN");
    setpgid(0, 0);
    if (getppid() == parent && chdir(job->folder) == 0)
        execv(argv[0], argv);
    _exit(127);
}

static int start(struct cl *client, struct job *job, const json_t *offer, struct err *error)
{
    AUTO_FREE char *config = jx_dump(json_object_get(offer, "config"));
    AUTO_FREE char *path = mem_printf("%s/config.json", job->folder);
    char *argv[40] = {NULL};
    int n = 0, r;

    if ((r = file_remove_tree(job->folder, error)) < 0 ||
        (r = file_mkdirs(job->folder, 0700, error)) < 0 ||
        (r = file_write_atomic(path, config, strlen(config), 0600, error)) < 0)
        return r;
    argv[n++] = need(NULL, "partune-run", error);
    if (!argv[0])
        return -ENOENT;
    argv[n++] = mem_strdup("--folder");
    argv[n++] = mem_strdup(job->folder);
    argv[n++] = mem_strdup("--");
    r = trainer_argv(client, job, offer, argv, n, error);
    if (r >= 0)
        r = launch(job, argv, cl_string(offer, "traceparent"), error);
    for (size_t i = 0; i < ARRAY_LEN(argv); i++)
        free(argv[i]);
    return r;
}

/* ---- telling ------------------------------------------------------------- */

/* Whole lines of the event file that the daemon does not have, as an array; *RET_END is the offset
 * behind them. */
static json_t *new_events(off_t *ret_end, const struct job *job)
{
    AUTO_FREE char *path = mem_printf("%s/events", job->folder), *text = NULL;
    json_t *list = json_array();
    size_t size = 0;
    char *line, *nl;

    *ret_end = job->offset;
    if (file_read_all(&text, &size, path, MAX_EVENTS, NULL) < 0 || (off_t)size <= job->offset)
        return list;
    for (line = text + job->offset; json_array_size(list) < MAX_BATCH &&
                                    (nl = memchr(line, '\n', (size_t)(text + size - line)));
         line = nl + 1) {
        json_t *v = NULL;

        if (nl - line < (64 << 10) && jx_parse(&v, line, (size_t)(nl - line), NULL) == 0 &&
            json_is_string(json_object_get(v, "event")))
            json_array_append_new(list, v);
        else
            json_decref(v);
        *ret_end = nl + 1 - text;
    }
    return list;
}

/* POST what is new; *RET_MORE when there is more than fits into one request. The status, or 0. */
static long tell(bool *ret_more, struct cl *client, struct job *job, const char *verb, json_t *body)
{
    AUTO_FREE char *path = mem_printf("%s%s", job->path, verb);
    AUTO_JSON *answer = NULL;
    off_t end;
    json_t *events = new_events(&end, job);
    int64_t count = (int64_t)json_array_size(events);
    long status;

    *ret_more = count == MAX_BATCH;
    json_object_set_new(body, "lease", json_string(job->lease));
    json_object_set_new(body, "from", json_integer(job->sent));
    json_object_set_new(body, "events", events);
    status = cl_try(&answer, client, "POST", path, body);
    if (status >= 200 && status < 300) {
        job->sent += count;
        job->offset = end;
    } else if (status >= 400 && status < 500) {
        fprintf(stderr, "partune: trial %lld: %s\n", (long long)job->n,
                cl_string(answer, "detail"));
    }
    return status;
}

/* False when the lease is no longer ours. */
static bool heartbeat(struct cl *client, struct job *job)
{
    bool more = true;

    while (more) {
        AUTO_JSON *body = json_object();
        long status = tell(&more, client, job, ":heartbeat", body);

        if (status >= 400 && status < 500)
            return false;
        if (status == 0 || status >= 500)
            return true; /* nobody there: the trial keeps running */
    }
    return true;
}

/* The end of a stream of the trial as UTF-8. */
static json_t *tail(const struct job *job, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s", job->folder, name), *text = NULL;
    size_t n = 0, from;

    if (file_read_all(&text, &n, path, 64 << 20, NULL) < 0)
        return json_string("");
    from = n > TAIL ? n - TAIL : 0;
    for (size_t i = from; i < n; i++)
        if (text[i] == '\0')
            text[i] = '?';
    if (!str_is_utf8(text + from, n - from))
        for (size_t i = from; i < n; i++)
            text[i] = (text[i] & 0x80) ? '?' : text[i];
    return json_stringn(text + from, n - from);
}

static json_t *report(const struct job *job)
{
    json_t *body = json_object();
    struct tn_exit x;

    tn_exit_read(&x, job->folder);
    json_object_set_new(body, "stdout", tail(job, "stdout"));
    json_object_set_new(body, "stderr", tail(job, "stderr"));
    if (stopped) {
        json_object_set_new(body, "status", json_string(db_states[DB_STATE_NODE_FAIL].name));
        json_object_set_new(body, "detail", json_string("the worker was stopped"));
    } else if (!x.known) {
        json_object_set_new(body, "status", json_string(db_states[DB_STATE_NODE_FAIL].name));
        json_object_set_new(body, "detail", json_string("the supervisor was killed"));
    } else {
        json_object_set_new(body, "exit_code", json_integer(x.code));
        json_object_set_new(body, "signal", json_integer(x.signal));
    }
    return body;
}

/* Until there is an answer, or patience is over. */
static int complete(struct cl *client, struct job *job)
{
    uint64_t give_up = now_ms() + 1000 * (uint64_t)client->args.patience;
    int pause = 100;

    if (!heartbeat(client, job)) /* all but the last batch of events */
        return CL_OK;
    for (;;) {
        AUTO_JSON *body = report(job);
        bool more;
        long status = tell(&more, client, job, ":complete", body);

        if (status >= 200 && status < 500)
            return CL_OK;
        if (now_ms() > give_up) {
            fprintf(stderr, "partune: no daemon answers at %s\n", client->args.server);
            return CL_NO_SERVER;
        }
        nap(pause);
        pause = pause < 2000 ? 2 * pause : 2000;
    }
}

/* ---- one trial ----------------------------------------------------------- */

static bool ended(struct job *job, bool wait)
{
    int status, r;

    do
        r = waitpid(job->pid, &status, wait ? 0 : WNOHANG);
    while (r < 0 && errno == EINTR);
    return r == job->pid || (r < 0 && errno == ECHILD);
}

/* Run to its end: false if it was stopped because the lease had ended. */
static bool watch(struct cl *client, struct job *job)
{
    uint64_t every = (uint64_t)(1000 * job->lease_s / 3), next = now_ms();
    bool ours = true;

    every = every > 1000 ? 1000 : every;
    while (!ended(job, false)) {
        if (now_ms() >= next && !stopped) {
            ours = heartbeat(client, job);
            next = now_ms() + every;
        }
        if (!ours || stopped) {
            kill(job->pid, SIGTERM);
            ended(job, true);
            break;
        }
        nap(LOOK_MS);
    }
    return ours;
}

/* Outside text: the daemon's word for the layout. */
static void say_trial(const struct cl *client, const json_t *offer, int64_t number)
{
    if (client->args.json) {
        AUTO_JSON *v = json_pack("{s:s, s:I, s:s}", "campaign", cl_string(offer, "campaign"), "n",
                                 (json_int_t)number, "text", cl_string(offer, "text"));

        cl_print_event("trial", v);
        return;
    }
    printf("trial %lld: %s\n", (long long)number, cl_string(offer, "text"));
    fflush(stdout);
}

static int run_trial(struct cl *client, const json_t *offer, const char *folder)
{
    struct job j = {.campaign = cl_string(offer, "campaign"),
                    .lease = cl_string(offer, "lease"),
                    .n = (int64_t)cl_number(offer, "trial"),
                    .attempt = (int64_t)cl_number(offer, "attempt"),
                    .lease_s = cl_number(offer, "lease_s")};
    struct err e = {0};
    int code = CL_OK;

    j.path = mem_printf("/v1/campaigns/%s/trials/%lld", client->operand[0], (long long)j.n);
    j.folder = mem_printf("%s/%lld-%lld", folder, (long long)j.n, (long long)j.attempt);
    say_trial(client, offer, j.n);
    if (start(client, &j, offer, &e) < 0) {
        AUTO_JSON *body =
            json_pack("{s:s, s:s}", "status", db_states[DB_STATE_NODE_FAIL].name, "detail", e.text);
        bool more;

        tell(&more, client, &j, ":complete",
             body); /* somebody else may have what is missing here */
        fprintf(stderr, "partune: %s\n", e.text);
        code = CL_FAILED;
    } else if (watch(client, &j)) {
        code = complete(client, &j);
    }
    file_remove_tree(j.folder, NULL);
    free(j.path);
    free(j.folder);
    return code;
}

/* ---- the loop ------------------------------------------------------------ */

static char *own_name(const struct cl *client)
{
    char host[64] = "worker";

    if (client->args.name)
        return mem_strdup(client->args.name);
    gethostname(host, sizeof(host) - 1);
    return mem_printf("%.40s-%d", host, (int)getpid());
}

/* Ask once: an offer, NULL with *RET_CODE >= 0 at the end, or NULL to ask again. */
static json_t *ask(int *ret_code, struct cl *client, const char *name, uint64_t *heard)
{
    AUTO_FREE char *path = mem_printf("/v1/campaigns/%s:suggest", client->operand[0]);
    AUTO_JSON *body =
        json_pack("{s:s, s:i, s:i}", "worker", name, "wait_s", 20, "devices", client->args.devices);
    json_t *answer;
    long status;
    const char *state;

    if (client->args.cluster)
        json_object_set_new(body, "cluster", json_string(client->args.cluster));
    status = cl_try(&answer, client, "POST", path, body);
    state = cl_string(answer, "state");

    *ret_code = -1;
    if (status == 200) {
        *heard = now_ms();
        if (str_eq(state, "trial"))
            return answer;
        if (str_eq(state, "done")) {
            if (client->args.json)
                cl_print_event("done", answer);
            else
                printf("done: %s\n", cl_string(answer, "reason"));
            *ret_code = CL_OK;
        }
    } else if (status >= 400 && status < 500) {
        fprintf(stderr, "partune: %s\n", cl_string(answer, "detail"));
        *ret_code = status == 404                    ? CL_NOT_FOUND
                    : status == 401 || status == 403 ? CL_NO_ACCESS
                                                     : CL_REFUSED;
    } else if (now_ms() - *heard > 1000 * (uint64_t)client->args.patience) {
        fprintf(stderr, "partune: no daemon answers at %s\n", client->args.server);
        *ret_code = CL_NO_SERVER;
    } else {
        nap(500);
    }
    json_decref(answer);
    return NULL;
}

int cl_worker(struct cl *client)
{
    AUTO_FREE char *name = own_name(client);
    const char *tmp = getenv("TMPDIR");
    AUTO_FREE char *folder = client->args.folder
                                 ? mem_strdup(client->args.folder)
                                 : mem_printf("%s/partune-XXXXXX", tmp ? tmp : "/tmp");
    struct sigaction sa = {.sa_handler = on_signal};
    uint64_t heard = now_ms();
    int code = -1;

    if (!client->args.folder && !mkdtemp(folder)) {
        fprintf(stderr, "partune: %s: %s\n", folder, strerror(errno));
        return CL_FAILED;
    }
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    while (code < 0 && !stopped) {
        AUTO_JSON *offer = ask(&code, client, name, &heard);

        if (offer) {
            int r = run_trial(client, offer, folder);

            code = r == CL_OK ? -1 : r;
            heard = now_ms();
        }
    }
    if (!client->args.folder)
        file_remove_tree(folder, NULL);
    return code < 0 ? CL_OK : code;
}

int cl_workers(struct cl *client)
{
    static const struct cl_column columns[] = {
        {.title = "worker", .shrink = true},
        {.title = "state"},
        {.title = "campaign"},
        {.title = "trial", .align = CL_RIGHT},
        {.title = "completed", .align = CL_RIGHT, .drop = 1},
        {.title = "seen", .drop = 2},
    };
    static const char *const paths[] = {"name", "state", "campaign", "trial", "completed", "seen"};
    struct cl_table t = {.column = columns, .ncolumns = (int)ARRAY_LEN(columns)};
    AUTO_JSON *v = NULL;
    json_t *w;
    size_t i;
    int code = cl_call(&v, client, "GET", "/v1/workers?page_size=1000", NULL);

    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    json_array_foreach(json_object_get(v, "items"), i, w) {
        for (int k = 0; k < t.ncolumns; k++) {
            char buf[64];

            cl_table_add(&t, k, "%s", cl_text(buf, w, paths[k]));
        }
    }
    cl_table_print(client, &t, stdout);
    cl_table_done(&t);
    return CL_OK;
}
