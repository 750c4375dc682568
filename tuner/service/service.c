/* The service as a whole: its data directory, its loop handles, its events. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/keep.h"
#include "tuner/core/revive.h"
#include "tuner/core/scheduler.h"
#include "tuner/core/work.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/supervised.h"
#include "tuner/machine/command.h"
#include "tuner/machine/hosts.h"
#include "tuner/machine/machine.h"
#include "tuner/machine/proc.h"
#include "tuner/machine/rlimits.h"
#include "tuner/machine/slots.h"
#include "tuner/service/webhooks.h"
#include "tuner/state/service.h"
#include "tuner/tuner.h"

enum { CLOCK_MS = 250, TRIM_MS = 3600 * 1000 };

/* ---- events -------------------------------------------------------------- */

static void turn_launchers(struct tn_service *svc)
{
    for (const struct tn_launcher *const *l = svc->kinds->launchers; *l; l++)
        if ((*l)->turn)
            (*l)->turn(svc);
}

/* Is there nothing left that a stop waits for? */
static void check_stopped(struct tn_service *svc)
{
    if (!svc->phase->stopping || !svc->stopped)
        return;
    if (svc->phase->stop_how == TN_STOP_REQUEUE && tn_reviving(svc, false) > 0)
        return;
    if (svc->phase->stop_how == TN_STOP_REQUEUE)
        for (struct tn_attempt *a = svc->work->attempts; a; a = a->next)
            if (!a->ended && !a->unadopted)
                return;
    svc->stopped(svc->stopped_arg);
    svc->stopped = NULL;
}

static void on_wake(uv_async_t *handle)
{
    struct tn_service *svc = handle->data;

    if (svc->phase->closing)
        return;
    tn_events_deliver(svc);
    if (svc->phase->kicked)
        turn_launchers(svc);
    tn_sched_run(svc);
    check_stopped(svc); /* the last: its callback may close everything */
}

/* ---- the clock: retries, wall budgets, housekeeping ---------------------- */

static void on_clock(uv_timer_t *timer)
{
    struct tn_service *svc = timer->data;
    struct err e = {0};

    if (db_writer_failure(svc->writer, &e) < 0)
        log_error("the database cannot be written: %s", e.text);
    if (tn_now_ms() >= svc->trim_at) {
        svc->trim_at = tn_now_ms() + TRIM_MS;
        tn_removal_go(svc);
    }
    turn_launchers(svc);
    tn_webhooks_tick(svc);
    tn_retain_tick(svc);
    tn_sched_run(svc);
}

/* ---- the data directory -------------------------------------------------- */

static int refuse_holder(const char *path, struct err *error)
{
    AUTO_FREE char *text = NULL;

    if (file_read_all(&text, NULL, path, 4096, NULL) < 0 || !text[0])
        return err_set(error, -EBUSY, "another partuned holds this data directory (%s)", path);
    text[strcspn(text, "\n")] = '\0';
    return err_set(error, -EBUSY, "another partuned (%s) holds this data directory", text);
}

static int lock_dir(struct tn_service *svc, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/lock", svc->data_dir);
    AUTO_FREE char *text = NULL;
    char host[256] = "";
    int r = file_lock(&svc->lock_fd, path, error);

    if (r == -EBUSY || r == -EAGAIN || r == -EWOULDBLOCK)
        return refuse_holder(path, error);
    if (r < 0)
        return r;
    gethostname(host, sizeof(host) - 1);
    text = mem_printf("pid %ld on %s\n", (long)getpid(), host);
    if (ftruncate(svc->lock_fd, 0) < 0 || pwrite(svc->lock_fd, text, strlen(text), 0) < 0)
        return err_set(error, -errno, "write %s: %s", path, strerror(errno));
    return 0;
}

static int make_dir(struct tn_service *svc, const char *dir, struct err *error)
{
    static const char *const below[] = {"", "/campaigns", "/datasets", "/profiles"};
    char real[4096];

    for (size_t i = 0; i < ARRAY_LEN(below); i++) {
        AUTO_FREE char *path = mem_printf("%s%s", dir, below[i]);
        int r = file_mkdirs(path, 0700, error);

        if (r < 0)
            return err_wrap(error, "data directory");
    }
    if (access(dir, W_OK | X_OK) < 0)
        return err_set(error, -errno,
                       "the data directory %s cannot be written: %s; choose another with --data",
                       dir, strerror(errno));
    if (!realpath(dir, real))
        return err_set(error, -errno, "%s: %s", dir, strerror(errno));
    svc->data_dir = mem_strdup(real);
    return 0;
}

static int instance_job(struct db *writer, void *arg, struct err *error)
{
    return db_meta_set(writer, "instance", arg, error);
}

static int know_instance(struct tn_service *svc, struct err *error)
{
    struct arena a = {0};
    const char *have = NULL;
    unsigned char bytes[6];
    int r = db_meta_get(&have, svc->db, &a, "instance", error);

    if (r == 0 && have)
        svc->instance = mem_strdup(have);
    arena_done(&a);
    if (r < 0 || svc->instance)
        return r;
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return err_set(error, -EIO, "no random numbers");
    svc->instance = mem_printf("%02x%02x%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3],
                               bytes[4], bytes[5]);
    return tn_write(svc, instance_job, svc->instance, error);
}

static int open_store(struct tn_service *svc, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", svc->data_dir);
    struct db *w = NULL;
    int r = db_open(&w, path, DB_WRITE, error);

    if (r == 0)
        r = db_writer_start(&svc->writer, w, error);
    if (r == 0)
        r = db_open(&svc->db, path, DB_READ, error);
    return r < 0 ? r : know_instance(svc, error);
}

static int load_profile(struct tn_service *svc, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/profiles/local.json", svc->data_dir);
    AUTO_JSON *v = NULL;
    struct pl_cluster c;
    int r;

    if (!file_exists(path))
        return 0;
    r = jx_load(&v, path, 1 << 20, error);
    if (r == 0)
        r = pl_cluster_parse(&c, v, NULL, error);
    if (r < 0)
        return err_wrap(error, "%s", path);
    svc->local = mem_alloc(sizeof(*svc->local));
    *svc->local = c;
    return 0;
}

/* ---- opening and closing ------------------------------------------------- */

/* What trials are held to: a mistake ends the daemon now, not each trial later. */
static int check_trials(struct tn_service *svc, struct err *error)
{
    static const char *const passed[] = {"", "/campaigns", "/datasets"};
    struct tn_rlimits limits;
    struct tn_user user;
    int r = tn_rlimits_parse(&limits, svc->config.trial_limits, error);

    if (r < 0)
        return err_wrap(error, "--trial-limits");
    if (!svc->config.trial_user)
        return 0;
    r = tn_user_find(&user, svc->config.trial_user, error);
    if (r < 0)
        return err_wrap(error, "--trial-user");
    tn_user_done(&user);
    for (size_t i = 0; i < ARRAY_LEN(passed); i++) { /* to go through, not to look into */
        AUTO_FREE char *path = mem_printf("%s%s", svc->data_dir, passed[i]);

        if (chmod(path, 0711) < 0)
            return err_set(error, -errno, "%s: %s", path, strerror(errno));
    }
    return 0;
}

static void copy_config(struct tn_service *svc, const struct tn_config *config)
{
    svc->config = *config;
    svc->config.data_dir = NULL; /* svc->data_dir */
    svc->config.gpus = NULL;     /* svc->machine->gpus */
    svc->config.mpiexec = mem_strdup(config->mpiexec);
    svc->config.train = mem_strdup(config->train);
    svc->config.supervisor = mem_strdup(config->supervisor);
    svc->config.hosts = mem_strdup(config->hosts);
    svc->config.trial_user = mem_strdup(config->trial_user);
    svc->config.trial_limits = mem_strdup(config->trial_limits);
    tn_mpi_find(&svc->machine->mpi, config->mpiexec, config->train);
    svc->machine->supervisor = tn_find_program(config->supervisor, "partune-run");
    tn_slots_init(&svc->machine->slots, config->cores);
}

/* GPUs of hosts are not counted, so that one trial at a time has them. */
static int find_devices(struct tn_service *svc, const char *gpus, struct err *error)
{
    struct tn_machine *machine = svc->machine;
    int r;

    if (svc->config.hosts && gpus)
        return err_set(error, -EINVAL, "--gpus is for this machine, --hosts names others");
    if (svc->config.hosts) {
        machine->gpus.one = true;
        r = tn_hosts_read(&machine->hosts, svc->config.hosts, error);
        if (machine->hosts)
            tn_hosts_slots(&machine->slots, machine->hosts);
        return r;
    }
    r = tn_gpu_slots_init(&machine->gpus, gpus, error);
    return r < 0 ? err_wrap(error, "--gpus") : 0;
}

static void start_handles(struct tn_service *svc)
{
    uv_async_init(svc->loop, &svc->wake, on_wake);
    svc->wake.data = svc;
    uv_timer_init(svc->loop, &svc->clock);
    svc->clock.data = svc;
    uv_timer_start(&svc->clock, on_clock, CLOCK_MS, CLOCK_MS);
}

int tn_service_open(struct tn_service **ret, uv_loop_t *loop, const struct tn_config *config,
                    struct err *error)
{
    struct tn_service *svc = mem_alloc(sizeof(*svc));
    int r;

    svc->phase = mem_alloc(sizeof(*svc->phase));
    svc->machine = mem_alloc(sizeof(*svc->machine));
    svc->work = mem_alloc(sizeof(*svc->work));
    svc->launching = mem_alloc(sizeof(*svc->launching));
    svc->loop = svc->machine->commands.loop = loop;
    svc->kinds = &tn_kinds;
    svc->lock_fd = -1;
    svc->work->texts = json_object();
    copy_config(svc, config);
    start_handles(svc);
    r = make_dir(svc, config->data_dir, error);
    if (r == 0)
        r = lock_dir(svc, error);
    if (r == 0)
        r = open_store(svc, error);
    if (r == 0) {
        tn_retain_open(svc);
        r = tn_removal_open(svc, error);
    }
    if (r == 0)
        r = check_trials(svc, error);
    if (r == 0)
        r = load_profile(svc, error);
    if (r == 0)
        r = find_devices(svc, config->gpus, error);
    if (r == 0)
        r = tn_webhooks_open(svc, error); /* before recovery, which changes states */
    if (r == 0)
        r = tn_recover(svc, error);
    if (r < 0) {
        tn_service_close(svc);
        return r;
    }
    svc->delivered = db_event_last(svc->db);
    for (const struct tn_launcher *const *l = svc->kinds->launchers; *l; l++)
        if ((*l)->opened)
            (*l)->opened(svc);
    tn_changed(svc);
    *ret = svc;
    return 0;
}

void tn_service_stop(struct tn_service *svc, enum tn_stop how, void (*done)(void *arg), void *arg)
{
    svc->phase->stopping = true;
    if (how == TN_STOP_LEAVE)
        atomic_store(&svc->phase->ending, true);
    svc->phase->stop_how = how;
    svc->stopped = done;
    svc->stopped_arg = arg;
    if (how == TN_STOP_REQUEUE)
        for (struct tn_attempt *a = svc->work->attempts; a; a = a->next)
            tn_attempt_stop(a, TN_STOP_SERVICE);
    check_stopped(svc);
}

static void close_attempts(struct tn_service *svc)
{
    struct tn_attempt *next;

    for (struct tn_attempt *a = svc->work->attempts; a; a = next) {
        next = a->next;
        tn_attempt_abandon(a);
    }
}

/* A supervisor continues without us: only the handle ends. */
static void close_process(uv_handle_t *handle, void *svc)
{
    if (handle->type == UV_PROCESS && handle->data == svc && !uv_is_closing(handle))
        uv_close(handle, tn_process_closed);
}

struct tn_service *tn_service_close(struct tn_service *svc)
{
    if (!svc)
        return NULL;
    svc->phase->closing = true;
    atomic_store(&svc->phase->ending, true);
    uv_close((uv_handle_t *)&svc->clock, NULL);
    tn_removal_close(svc);
    if (svc->writer)
        close_attempts(svc);
    for (const struct tn_launcher *const *l = svc->kinds->launchers; *l; l++)
        if ((*l)->closed)
            (*l)->closed(svc);
    tn_command_forget_all(&svc->machine->commands);
    tn_webhooks_close(svc);
    while (svc->phase->works > 0 || svc->work->attempts || svc->machine->commands.first)
        uv_run(svc->loop, UV_RUN_ONCE);
    db_writer_stop(svc->writer);
    uv_close((uv_handle_t *)&svc->wake, NULL);
    uv_walk(svc->loop, close_process, svc);
    for (int i = 0; i < 4 || svc->machine->processes > 0; i++)
        uv_run(svc->loop, UV_RUN_NOWAIT);
    for (struct tn_campaign *c = svc->work->campaigns; c; c = c->next)
        c->running = 0;
    tn_campaign_unload_idle(svc);
    assert(!svc->work->campaigns && !svc->work->attempts);
    while (svc->subscriptions)
        tn_unsubscribe(svc->subscriptions);
    db_close(svc->db);
    if (svc->lock_fd >= 0)
        close(svc->lock_fd);
    json_decref(svc->work->texts);
    free((char *)svc->config.mpiexec);
    free((char *)svc->config.train);
    free((char *)svc->config.supervisor);
    free((char *)svc->config.hosts);
    free((char *)svc->config.trial_user);
    free((char *)svc->config.trial_limits);
    free(svc->work->retain);
    free(svc->work->removal);
    tn_hosts_free(svc->machine->hosts);
    tn_mpi_done(&svc->machine->mpi);
    free(svc->machine->supervisor);
    free(svc->phase);
    free(svc->machine);
    free(svc->work);
    free(svc->launching);
    free(svc->local);
    free(svc->data_dir);
    free(svc->instance);
    free(svc);
    return NULL;
}

int tn_campaigns_coming(const struct tn_service *svc)
{
    return tn_reviving(svc, true);
}
