#include "trainer/hello.h"

#include "base/base.h"
#include "trainer/algorithms.h"
#include "trainer/backend.h"
#include "trainer/nccl.h"

#include <sched.h>
#include <unistd.h>

struct place {
    char host[128];
    char cpus[128];
    char mig[96]; /* instance; empty: none */
};

/* "0-3,8": the CPUs that this thread may run on. Into BUF, cut at a comma if it is too long. */
static char *cpu_list(char *buf, size_t size)
{
    cpu_set_t set;
    size_t at = 0;

    buf[0] = '\0';
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return buf;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        char run[32];
        int first = i, n;

        if (!CPU_ISSET(i, &set))
            continue;
        while (i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, &set))
            i++;
        n = first == i ? snprintf(run, sizeof(run), "%s%d", at ? "," : "", first)
                       : snprintf(run, sizeof(run), "%s%d-%d", at ? "," : "", first, i);
        if (at + (size_t)n >= size)
            break;
        memcpy(buf + at, run, (size_t)n + 1);
        at += (size_t)n;
    }
    return buf;
}

static int by_name_then_rank(const void *left, const void *right)
{
    const struct place *x = *(const struct place *const *)left,
                       *y = *(const struct place *const *)right;
    int order = strcmp(x->host, y->host);

    return order ? order : (x > y) - (x < y);
}

static int by_rank(const void *left, const void *right)
{
    const struct place *x = *(const struct place *const *)left,
                       *y = *(const struct place *const *)right;

    return (x > y) - (x < y);
}

/* Names in order of their first rank; HOST has room for all. */
static int distinct(const char **host, const struct place *all, int ranks)
{
    AUTO_FREE const struct place **at = mem_alloc(sizeof(*at) * (size_t)ranks);
    size_t n = 0;

    for (int i = 0; i < ranks; i++)
        at[i] = &all[i];
    qsort(at, (size_t)ranks, sizeof(*at), by_name_then_rank);
    for (int i = 0; i < ranks; i++)
        if (n == 0 || !str_eq(at[n - 1]->host, at[i]->host))
            at[n++] = at[i];
    qsort(at, n, sizeof(*at), by_rank);
    for (size_t i = 0; i < n; i++)
        host[i] = at[i]->host;
    return (int)n;
}

static void send(struct tr_events *events, const struct tr_config *config,
                 const struct tr_comms *comms, const struct place *all)
{
    int ranks = config->layout.world;
    const char **host = mem_alloc(sizeof(*host) * 3 * (size_t)ranks), **cpus = host + ranks;
    const char **mig = cpus + ranks;
    int nccl = tr_nccl_version(comms);
    char build[256], mpi[64], between[32] = "", products[96] = "";
    struct tr_hello h = {.program = "partune-train",
                         .version = PACKAGE_VERSION,
                         .build = build,
                         .model = &config->model,
                         .layout = &config->layout,
                         .workload = &config->workload,
                         .ranks = ranks,
                         .host = host,
                         .nhosts = distinct(host, all, ranks),
                         .device = tr_backend_device(),
                         .binding = cpus};

    for (int i = 0; i < ranks; i++)
        cpus[i] = all[i].cpus;
    for (int i = 0; i < ranks; i++) {
        mig[i] = all[i].mig;
        if (*mig[i])
            h.mig = mig;
    }
    if (nccl)
        snprintf(between, sizeof(between), ", NCCL %d.%d.%d", nccl / 10000, nccl / 100 % 100,
                 nccl % 100);
    if (tr_algorithms_used())
        snprintf(products, sizeof(products), ", %.48s with %d measured products", kn_gemm_library(),
                 tr_algorithms_used());
    snprintf(build, sizeof(build), "%.40s, %s, %s%s%s", __VERSION__, kn_isa_name(kn_isa()),
             tr_mpi_name(mpi, sizeof(mpi)), between, products);
    tr_event_hello(events, &h);
    free(host);
}

void tr_hello(struct tr_events *events, const struct tr_config *config, struct tr_comms *comms)
{
    struct tr_group *world = &comms->world;
    struct place mine = {0}, *all = NULL;
    MPI_Request req;

    (void)gethostname(mine.host, sizeof(mine.host) - 1);
    cpu_list(mine.cpus, sizeof(mine.cpus));
    snprintf(mine.mig, sizeof(mine.mig), "%s", tr_backend_instance() ? tr_backend_instance() : "");
    if (events)
        all = mem_alloc(sizeof(*all) * (size_t)world->size);
    MPI_Igather(&mine, (int)sizeof(mine), MPI_BYTE, all, (int)sizeof(mine), MPI_BYTE, 0,
                world->comm, &req);
    tr_wait(world->progress, tr_op_begin(TR_OP_GATHER, world), &req, 1);
    if (events)
        send(events, config, comms, all);
    free(all);
}
