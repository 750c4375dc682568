/* partune-train: options, launch, exit code. Everything is checked before the first step. */
#include "base/base.h"
#include "trainer/algorithms.h"
#include "trainer/backend.h"
#include "trainer/calibrate.h"
#include "trainer/comm.h"
#include "trainer/config.h"
#include "trainer/events.h"
#include "trainer/fail.h"
#include "trainer/finalize.h"
#include "trainer/run.h"
#include "trainer/start.h"

#include <errno.h>
#include <mpi.h>
#include <unistd.h>

static enum tr_error class_of_exit(int code)
{
    switch (code) {
    case TR_EXIT_ILLEGAL:
        return TR_ERROR_ILLEGAL;
    case TR_EXIT_DATA:
        return TR_ERROR_DATA;
    case TR_EXIT_OOM:
        return TR_ERROR_OOM;
    case TR_EXIT_COMM:
        return TR_ERROR_COMM;
    case TR_EXIT_NODE_FAIL:
        return TR_ERROR_NODE_FAIL;
    default:
        return TR_ERROR_IO;
    }
}

/* One rank reports; all exit with the same code. A usage error has no event class: it is the
 * caller's. */
static void refuse(const struct tr_launch *at, const char *path, int code, const char *text)
{
    struct tr_events *ev = NULL;
    struct err e = {0};

    if (at->rank != 0)
        return;
    fprintf(stderr, "partune-train: %s\n", text);
    if (path && code != TR_EXIT_USAGE && tr_events_open(&ev, path, NULL, &e) == 0)
        tr_event_error(ev, class_of_exit(code), -1, text);
    tr_events_free(ev);
}

/* Why memory does not suffice, in detail: known on the rank that found it. */
struct shortage {
    int rank; /* the first one that does not fit */
    enum pl_mem_class cls;
    double asked;
};

static void refuse_memory(const struct tr_launch *at, const struct tr_config *config,
                          const struct shortage *shortage, const char *text)
{
    struct tr_events *ev = NULL;
    struct err e = {0};

    if (at->rank != 0)
        return;
    fprintf(stderr, "partune-train: rank %d: oom: %s\n", shortage->rank, text);
    if (config->events && tr_events_open(&ev, config->events, NULL, &e) == 0)
        tr_event_oom(ev, shortage->rank, shortage->cls, shortage->asked,
                     (double)tr_config_buffers(config), text);
    tr_events_free(ev);
}

/* Ranks whose MPI does not know the launcher would each train alone, all into the same files. */
static int start_mpi(const struct tr_launch *at, struct err *error)
{
    enum { RANK_0_S = 1 };
    int provided, size;

    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == at->size)
        return 0;
    if (at->rank != 0)
        sleep(RANK_0_S); /* nothing holds the ranks together, and rank 0 has to say why */
    if (!at->by)
        return err_set(error, -EINVAL,
                       "%s sees %d ranks, but none of PMI_RANK, OMPI_COMM_WORLD_RANK and PMIX_RANK "
                       "is set: start them with mpiexec or srun",
                       at->mpi, size);
    return err_set(error, -EINVAL,
                   "%d ranks were started (%s), but the MPI of this program, %s, sees %d: start "
                   "them with the mpiexec of that MPI, or with srun and the --mpi that it needs",
                   at->size, at->by, at->mpi, size);
}

static int train(struct tr_config *config, const struct tr_launch *at, struct tr_events *ev)
{
    int code, provided;
    char why[800];

    tr_fail_setup(ev, config->events, at->rank);
    tr_calibrate_use(config->data_dir);
    tr_backend_agree(config->device, at->size, at->rank);
    if (config->host_memory && str_eq(tr_backend_device(), "cpu")) /* perhaps in a GPU's place */
        config->device_memory = config->host_memory;
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_FUNNELED)
        tr_fail(TR_ERROR_COMM, "this MPI does not support threads (MPI_THREAD_FUNNELED)");
    tr_algorithms_use(why, sizeof(why), config->data_dir);
    if (*why)
        tr_event_warning(ev, "other-algorithms", why);
    code = tr_run(config, ev);
    if (tr_events_status(ev))
        code = TR_EXIT_IO;
    tr_events_free(ev);
    tr_finalize();
    return code;
}

static int calibrate(const struct tr_config *config, const struct tr_launch *at)
{
    struct err e = {0};
    int code;

    tr_fail_setup(NULL, NULL, at->rank);
    tr_backend_agree(config->device, at->size, at->rank);
    code = str_eq(tr_backend_device(), "cpu") ? tr_calibrate_cpu(config, &e)
                                              : tr_calibrate_gpu(config, &e);
    if (code && at->rank == 0)
        fprintf(stderr, "partune-train: %s\n", e.text);
    tr_finalize();
    return code;
}

/* Where no budget was given, it is the memory of what computes: as long as no rank has made its
 * tensors, since ranks may share a GPU. What the plan says of the context is there already. */
static void set_budget(struct tr_config *config)
{
    uint64_t gpu = tr_backend_memory();
    double context = config->cluster.device.cpu ? 0 : config->cluster.device.context_gib * 0x1p30;

    if (config->host_memory)
        config->device_memory = gpu ? gpu + (uint64_t)context : config->host_memory;
}

/* The exit code that this rank asks for. */
static int use_device(const struct tr_config *config, struct err *error)
{
    int r = tr_backend_use(config->device, error);

    return r == 0 ? 0 : r == -EBUSY ? TR_EXIT_NODE_FAIL : TR_EXIT_USAGE;
}

/* The exit code that this rank asks for: the device, memory and the event file. */
static int prepare(struct tr_events **ret, struct tr_config *config, const struct tr_launch *at,
                   struct shortage *shortage, struct err *error)
{
    int code = use_device(config, error);

    if (code)
        return code;
    set_budget(config);
    if (tr_run_check_memory(&shortage->rank, &shortage->cls, &shortage->asked, config, error) < 0)
        return TR_EXIT_OOM;
    if (at->rank == 0 &&
        tr_events_open(ret, config->events, config->quiet ? NULL : stdout, error) < 0)
        return TR_EXIT_IO;
    return 0;
}

/* MINE is the exit code that this rank asks for; returns the one that all exit with, 0 to train or
 * calibrate. A single rank needs no MPI for that. */
static int begin(const struct tr_config *config, const struct tr_launch *at, int mine,
                 struct err *error)
{
    int code = mine;

    if (at->size == 1 && mine)
        return mine;
    if (start_mpi(at, error) < 0)
        return TR_EXIT_COMM;
    if (at->size > 1)
        code = tr_start_together(mine, error);
    if (at->size > 1 && code == 0 && config->mode != TR_MODE_CALIBRATE)
        code = tr_start_same(config, error);
    return code;
}

/* Only when the reason is written: a launcher ends the others as soon as one has left with a code,
 * and no rank leaves before all are here. */
static void leave_mpi(void)
{
    int started;

    MPI_Initialized(&started);
    if (started)
        MPI_Finalize();
}

int main(int argc, char **argv)
{
    AUTO(tr_config) *c = NULL;
    AUTO_FREE char *events = NULL;
    struct tr_events *ev = NULL;
    struct ranks ranks;
    struct tr_launch at;
    struct shortage shortage;
    struct err e = {0};
    int mine = 0, code;
    char mpi[64];

    log_setup("partune-train", LOG_WARN);
    ranks_from_env(&ranks);
    at = (struct tr_launch){ranks.rank, ranks.size, ranks.by, tr_mpi_name(mpi, sizeof(mpi))};
    if (tr_config_load(&c, &mine, &events, argc, argv, &at, &e) == 0) {
        if (c->mode == TR_MODE_HELP)
            return TR_EXIT_OK;
        mine =
            c->mode == TR_MODE_CALIBRATE ? use_device(c, &e) : prepare(&ev, c, &at, &shortage, &e);
    }
    code = begin(c, &at, mine, &e);
    if (code == 0)
        return c->mode == TR_MODE_CALIBRATE ? calibrate(c, &at) : train(c, &at, ev);
    tr_events_free(ev);
    if (mine == TR_EXIT_OOM && code == mine)
        refuse_memory(&at, c, &shortage, e.text);
    else
        refuse(&at, c ? c->events : events, code, e.text);
    leave_mpi();
    return code;
}
