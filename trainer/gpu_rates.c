#include "trainer/gpu_bench.h"

#include <errno.h>
#include <math.h>
#include <mpi.h>

#include "base/base.h"
#include "trainer/backend.h"
#include "trainer/coll.h"
#include "trainer/fail.h"
#include "trainer/link.h"
#include "trainer/nccl.h"
#include "trainer/start.h"

enum { ROOM_MIN = 8 << 20, ROOM_MAX = 1 << 30 };

/* ---- memory -------------------------------------------------------------- */

static void run_add(struct tr_bench *bench, const struct tr_bench_job *job)
{
    char *y = bench->own, *a = y + job->bytes, *b = a + job->bytes;

    kn_add(bench->pool, KN_BF16, y, a, b, job->bytes / kn_type_size(KN_BF16));
}

/* W, m, v and g are JOB's bytes each, what W is rounded to is half of that. */
static void run_adamw(struct tr_bench *bench, const struct tr_bench_job *job)
{
    static const struct kn_adamw hyper = {
        .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .grad_scale = 1, .step = 1};
    float *at[5];

    for (size_t i = 0; i < ARRAY_LEN(at); i++)
        at[i] = (float *)(void *)(bench->own + i * job->bytes);
    kn_adamw(bench->pool, &hyper, at[0], (kn_bf16 *)at[4], at[1], at[2], at[3],
             job->bytes / sizeof(float));
}

static void memory(struct tr_gpu_rates *ret, struct tr_bench *bench)
{
    struct tr_bench_job job;

    tr_bench_fill(bench, TR_BENCH_LEAST * 3);
    tr_bench_grow(bench, run_add, &job, bench->room / 3);
    tr_bench_fill(bench, job.bytes * 3);
    ret->add_bytes = 3 * job.bytes; /* two are read, one is written */
    ret->add_bps = (double)ret->add_bytes / tr_bench_time(bench, run_add, &job);
    tr_bench_grow(bench, run_adamw, &job, bench->room / 5);
    tr_bench_fill(bench, job.bytes * 4);
    kn_zero(bench->pool, bench->own + 2 * job.bytes, job.bytes); /* v is not negative */
    ret->adamw_bytes = 15 * job.bytes / 2; /* four are read, three and a half written */
    ret->adamw_bps = (double)ret->adamw_bytes / tr_bench_time(bench, run_adamw, &job);
}

static void run_copy(struct tr_bench *bench, const struct tr_bench_job *job)
{
    kn_copy(bench->pool, job->to, job->from, job->bytes);
}

static double copy_bps(struct tr_bench *bench, char *to, const char *from)
{
    struct tr_bench_job job = {.to = to, .from = from};

    tr_bench_grow(bench, run_copy, &job, bench->room < TR_BENCH_HOST ? bench->room : TR_BENCH_HOST);
    return (double)job.bytes / tr_bench_time(bench, run_copy, &job);
}

/* ---- between ranks ------------------------------------------------------- */

static void run_reduce(struct tr_bench *bench, const struct tr_bench_job *job)
{
    tr_all_reduce(&bench->comms.copy[0], KN_F32, bench->own, job->bytes / sizeof(float));
}

/* Up to ENOUGH bytes, which take longer than their latency, in any case. Each size is at most RATIO
 * times the one before. */
static void reduces(struct tr_gpu_rates *ret, struct tr_bench *bench)
{
    enum { RATIO = 16, ENOUGH = 1 << 20 };
    struct tr_bench_job job = {.bytes = sizeof(float)};
    double took = 0;

    while (job.bytes <= bench->room && ret->reduces < TR_REDUCES &&
           (job.bytes <= ENOUGH || RATIO * took <= TR_BENCH_PATIENCE)) {
        kn_zero(bench->pool, bench->own, job.bytes); /* whose sums stay finite */
        took = tr_bench_time(bench, run_reduce, &job);
        ret->reduce[ret->reduces++] = (struct tr_reduce){job.bytes, took};
        job.bytes = job.bytes < 1 << 12 ? 1 << 12 : job.bytes * RATIO;
    }
}

/* As a trial does: by a link, or by MPI, the send first (comm.h). */
static void run_ring(struct tr_bench *bench, const struct tr_bench_job *job)
{
    struct tr_group *g = &bench->comms.copy[0];
    int next = (g->rank + 1) % g->size, last = (g->rank + g->size - 1) % g->size;
    struct tr_link *link = bench->comms.link[TR_LINK_CP];
    MPI_Request req[2];

    if (link) {
        tr_link_begin(link);
        tr_link_send(link, bench->own, job->bytes, next);
        tr_link_recv(link, bench->own + bench->room / 2, job->bytes, last);
        tr_link_wait(link, tr_link_end(link));
        return;
    }
    tr_isend(&req[0], g, bench->own, job->bytes, next, TR_TAG_ACT);
    tr_irecv(&req[1], g, bench->own + bench->room / 2, job->bytes, last, TR_TAG_ACT);
    tr_wait(&bench->comms.progress, tr_op_begin(TR_OP_SEND_RECV, g), req, 2);
}

static void transfers(struct tr_gpu_rates *ret, struct tr_bench *bench)
{
    struct tr_bench_job job = {.bytes = 8};
    size_t most = bench->room / 2 < TR_BENCH_HOST ? bench->room / 2 : TR_BENCH_HOST;

    ret->transfer_s = tr_bench_time(bench, run_ring, &job);
    tr_bench_grow(bench, run_ring, &job, most);
    ret->ring_bps = (double)job.bytes / tr_bench_time(bench, run_ring, &job);
}

/* ---- all of them --------------------------------------------------------- */

/* Half of what is free, which on a large GPU is more than is needed. */
static size_t room_of(const struct kn_pool *pool)
{
    size_t unused = kn_unused_own();

    if (!pool)
        return 0;
    return unused && unused / 2 < ROOM_MAX ? unused / 2 / TR_BENCH_LEAST * TR_BENCH_LEAST
                                           : ROOM_MAX;
}

/* 0 on all ranks, or -ENOMEM. */
static int take_memory(struct tr_bench *bench, struct err *error)
{
    size_t mine = room_of(bench->pool);
    bool have = false;

    bench->room = (size_t)tr_bench_agree(bench, (double)mine, MPI_MIN);
    if (bench->room >= ROOM_MIN) {
        bench->own = kn_alloc_own(bench->room);
        bench->host = kn_alloc(TR_BENCH_HOST);
        bench->scratch = kn_alloc(bench->scratch_bytes);
        have = bench->own && bench->host && bench->scratch;
    } else {
        have = mine >= ROOM_MIN;
    }
    if (!have)
        err_set(error, -ENOMEM,
                "no memory to measure with: %zu bytes of the GPU's are free next to the library's",
                kn_unused_own());
    return tr_start_together(have ? 0 : TR_EXIT_OOM, error) ? -ENOMEM : 0;
}

/* Each link over all ranks: no trial has more of them or more neighbors, so what is left of the
 * memory next to their buffers is left for every trial. */
static void links_open(struct tr_bench *bench, int ranks)
{
    struct tr_group *all = &bench->comms.copy[0];
    struct tr_link_plan plan = {.stage = all->rank,
                                .stages = ranks,
                                .prev = (all->rank + ranks - 1) % ranks,
                                .next = (all->rank + 1) % ranks,
                                .wraps = true,
                                .cp = all,
                                .ep = all,
                                .tp = all};

    if (ranks > 1)
        tr_links_init(&bench->comms, &plan);
}

static int bench_open(struct tr_bench *bench, struct err *error)
{
    struct pl_layout layout;
    int ranks;

    *bench = (struct tr_bench){.unused = (double)kn_unused_own()};
    bench->pool = kn_pool_new(1);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    pl_layout_replicas(&layout, ranks);
    tr_comms_init(&bench->comms, MPI_COMM_WORLD, &layout, &bench->clock, tr_fail_comm);
    bench->comms.progress.pool = bench->pool;
    bench->scratch_bytes = pl_coll_scratch(ranks) * sizeof(float);
    if (take_memory(bench, error) < 0)
        return -ENOMEM;
    tr_bench_draw(bench->host, TR_BENCH_HOST);
    bench->comms.copy[0].scratch = bench->scratch;
    if (kn_apart(bench->pool))
        bench->comms.progress.staging =
            (struct tr_staging){.own = bench->own, .bytes = bench->room};
    bench->nccl = (double)kn_unused_own();
    tr_nccl_init(&bench->comms, tr_fail_comm);
    links_open(bench, ranks);
    bench->nccl -= (double)kn_unused_own();
    tr_meter_open(&bench->meter, &bench->comms, true);
    return 0;
}

static void bench_close(struct tr_bench *bench)
{
    tr_meter_close(&bench->meter);
    tr_links_done(&bench->comms);
    tr_nccl_done(&bench->comms);
    tr_comms_done(&bench->comms);
    if (bench->own)
        kn_free_own(bench->own, bench->room);
    if (bench->host)
        kn_free(bench->host, TR_BENCH_HOST);
    if (bench->scratch)
        kn_free(bench->scratch, bench->scratch_bytes);
    kn_pool_free(bench->pool);
}

/* At the end, when all code is loaded and each library has what it needs. */
static void held(struct tr_gpu_rates *ret, struct tr_bench *bench)
{
    double unused = (double)kn_unused_own(), room = (double)bench->room;
    bool known = tr_bench_agree(bench, unused > 0 && tr_backend_context() > 0, MPI_MIN) > 0;
    double library = known ? bench->unused - unused - room - bench->nccl : 0;

    ret->memory = tr_bench_agree(bench, known ? unused + room : 0, MPI_MIN);
    ret->context = tr_bench_agree(bench, known ? (double)tr_backend_context() : 0, MPI_MAX);
    ret->nccl_bytes = tr_bench_agree(bench, known ? fmax(bench->nccl, 0) : 0, MPI_MAX);
    ret->library = tr_bench_agree(bench, fmax(library, 0), MPI_MAX);
}

static void disturbed(struct tr_gpu_rates *ret, struct tr_bench *bench)
{
    struct tr_group *world = &bench->comms.world;
    struct tr_reading mine = tr_meter_reading(&bench->meter);
    AUTO_FREE struct tr_reading *all = mem_alloc(sizeof(*all) * (size_t)world->size);

    tr_gather_double((double *)all, world, (const double *)&mine, sizeof(mine) / sizeof(double));
    if (world->rank == 0)
        tr_meter_disturbed(ret->disturbed, sizeof(ret->disturbed), all, world->size);
}

int tr_gpu_rates(struct tr_gpu_rates *ret, const struct pl_model *model, struct err *error)
{
    struct tr_bench bench;
    int r = bench_open(&bench, error);

    *ret = (struct tr_gpu_rates){.products = 0};
    if (r == 0) {
        tr_bench_idle_watts(ret, &bench);
        memory(ret, &bench);
        tr_bench_products(ret, &bench, model);
        tr_bench_busy_watts(ret, &bench);
        ret->to_bps = copy_bps(&bench, bench.own, bench.host);
        ret->from_bps = copy_bps(&bench, bench.host, bench.own);
        if (bench.comms.world.size > 1) {
            reduces(ret, &bench);
            transfers(ret, &bench);
        }
        ret->nccl = tr_nccl_version(&bench.comms);
        held(ret, &bench);
        disturbed(ret, &bench);
    }
    bench_close(&bench);
    return r;
}
