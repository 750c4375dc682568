/* Is everything there that a campaign needs? For /readyz, `partune doctor` and people. */
#include <errno.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tuner/core/attempt.h"
#include "tuner/core/keep.h"
#include "tuner/core/launcher.h"
#include "tuner/core/work.h"
#include "tuner/launch/launch.h"
#include "tuner/machine/machine.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

static bool add(json_t *checks, const char *name, bool ok, const char *fix, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static bool add(json_t *checks, const char *name, bool ok, const char *fix, const char *fmt, ...)
{
    AUTO_STR detail = {0};
    va_list ap;

    va_start(ap, fmt);
    str_vaddf(&detail, fmt, ap);
    va_end(ap);
    json_array_append_new(checks,
                          json_pack("{s:s, s:b, s:s, s:o}", "name", name, "ok", ok, "detail",
                                    detail.text, "fix", ok ? json_null() : json_string(fix)));
    return ok;
}

static bool check_disk(json_t *checks, const struct tn_service *svc)
{
    struct statvfs v;
    char human[24];
    double bytes;

    if (statvfs(tn_data_dir(svc), &v) < 0)
        return add(checks, "disk", false, "check the data directory", "%s: %s", tn_data_dir(svc),
                   strerror(errno));
    bytes = (double)v.f_bavail * (double)v.f_frsize;
    return add(checks, "disk", bytes > 256e6, "free disk space, or move the data directory",
               "%s free below %s", str_human_bytes(human, bytes), tn_data_dir(svc));
}

static bool check_quota(json_t *checks, const struct tn_service *svc)
{
    const struct tn_config *settings = tn_settings(svc);
    struct tn_stats t = {0};
    char used[24], quota[24];
    struct err e;

    if (settings->quota == 0)
        return true;
    tn_retain_stats(&t, svc);
    return add(checks, "quota", tn_retain_room(svc, &e) == 0, "delete campaigns, or raise --quota",
               "%s of %s", str_human_bytes(used, t.files_bytes < 0 ? 0 : (double)t.files_bytes),
               str_human_bytes(quota, (double)settings->quota));
}

/* The daemon serves without them: other launchers do not need them. */
static void check_launchers(json_t *checks, const struct tn_service *svc)
{
    for (const struct tn_launcher *const *l = tn_kinds_of(svc)->launchers; *l; l++) {
        struct err e = {0};
        int r = (*l)->health ? (*l)->health(svc, &e) : -ENOTSUP;

        if (r != -ENOTSUP)
            add(checks, (*l)->name, r == 0, (*l)->health_fix, "%s",
                r == 0 ? "its commands were found" : e.text);
    }
}

static bool check_program(json_t *checks, const char *name, const char *path, const char *fix)
{
    return add(checks, name, path != NULL && access(path, X_OK) == 0, fix, "%s",
               path ? path : "not found");
}

/* Campaigns without the local launcher need neither. */
static void check_mpi(json_t *checks, const struct tn_service *svc)
{
    const struct tn_mpi *mpi = &tn_machine(svc)->mpi;
    bool root = mpi->mpiexec.kind == TN_MPI_OPEN && tn_mpi_as_root(tn_settings(svc)->trial_user);
    struct err e;

    if (tn_mpi_ready(mpi, &e) < 0 || tn_mpi_suits(mpi, &e) < 0)
        add(checks, "mpiexec", false,
            "install the mpiexec of the trainer's MPI, or give --mpiexec PATH", "%s", e.text);
    else
        add(checks, "mpiexec", true, NULL, "%s%s%s%s", mpi->mpiexec.path,
            *mpi->mpiexec.name ? ", " : "", mpi->mpiexec.name,
            root ? ", with --allow-run-as-root" : "");
    if (check_program(checks, "partune-train", mpi->train.path,
                      "build the trainer: install libmpich-dev or libopenmpi-dev, then run "
                      "configure again") &&
        *mpi->train.name)
        json_object_set_new(json_array_get(checks, json_array_size(checks) - 1), "detail",
                            json_sprintf("%s, with %s", mpi->train.path, mpi->train.name));
}

/* A machine of another vendor has GPUs that nobody counts, most have none: neither is a problem. */
static void check_gpus(json_t *checks, const struct tn_gpu_slots *gpus)
{
    if (gpus->counted)
        add(checks, "GPUs", true, NULL, "%d, %d free", gpus->slots.count, gpus->slots.free);
}

json_t *tn_health_json(struct tn_service *svc)
{
    struct tn_machine *machine = tn_machine(svc);
    json_t *checks = json_array();
    int64_t rows = db_count(tn_db(svc), "campaign");
    int coming = tn_campaigns_coming(svc);
    struct err e = {0};
    bool ready;

    tn_launcher_local.ready(svc, NULL, &e);
    ready = add(checks, "database", rows >= 0, "restore a backup", "schema %d, %lld campaigns",
                db_version(tn_db(svc)), (long long)rows);
    if (coming)
        ready &= add(checks, "campaigns", false, "wait a moment", "%d are being restored", coming);
    ready &= add(checks, "data directory", access(tn_data_dir(svc), W_OK) == 0, "make it writable",
                 "%s", tn_data_dir(svc));
    ready &= check_disk(checks, svc);
    ready &= check_quota(checks, svc);
    check_mpi(checks, svc);
    ready &=
        check_program(checks, "partune-run", machine->supervisor, "install it next to partuned");
    check_launchers(checks, svc);
    ready &= add(checks, "cores", machine->slots.count > 0,
                 "give the daemon at least one core (--cores)", "%d, %d free", machine->slots.count,
                 machine->slots.free);
    check_gpus(checks, &machine->gpus);
    return json_pack("{s:b, s:o}", "ready", ready && !tn_phase(svc)->stopping, "checks", checks);
}

const char *const tn_delivery_states[TN_DELIVERY_STATES] = {"pending", "delivered", "failed"};

void tn_stats(struct tn_stats *ret, struct tn_service *svc)
{
    struct tn_work *work = tn_work(svc);
    struct tn_machine *machine = tn_machine(svc);

    *ret = work->stats;
    for (int i = 0; i < DB_CAMPAIGN_STATES; i++)
        db_campaign_count(&ret->all.campaigns_by_state[i], &ret->simulated.campaigns_by_state[i],
                          tn_db(svc), db_campaign_states[i], TN_SIMULATED);
    for (const struct tn_attempt *a = work->attempts; a; a = a->next) {
        ret->all.running_attempts += !a->ended;
        ret->simulated.running_attempts += !a->ended && tn_is_simulated(a->launcher->name);
    }
    ret->cores = machine->slots.count;
    ret->free_cores = machine->slots.free;
    ret->gpus = machine->gpus.counted ? machine->gpus.slots.count : -1;
    ret->free_gpus = machine->gpus.counted ? machine->gpus.slots.free : -1;
    ret->events_last_id = db_event_last(tn_db(svc));
    tn_retain_stats(ret, svc);
    for (size_t i = 0; i < ARRAY_LEN(tn_delivery_states); i++)
        db_delivery_count(&ret->deliveries[i], tn_db(svc), tn_delivery_states[i]);
}
