#include "trainer/gpu_rates.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <mpi.h>

#include "base/base.h"
#include "trainer/coll.h"
#include "trainer/fail.h"
#include "trainer/link.h"
#include "trainer/meter.h"
#include "trainer/nccl.h"
#include "trainer/start.h"

static const double BATCH_S = 0.02;    /* a batch takes at least so long ... */
static const double LIMIT_S = 0.3;     /* ... and all batches of an operation not much more */
static const double PATIENCE_S = 0.05; /* a run that takes longer is not made larger */

enum { REPEATS = 10, GROWTH = 4 };
enum { LEAST_BYTES = 1 << 20, ROOM_MIN = 8 << 20, ROOM_MAX = 1 << 30, HOST_BYTES = 64 << 20 };

const char *const tr_product_forms[] = {"forward", "dgrad", "wgrad"};

struct bench {
    struct tr_comms comms;
    struct tr_clock clock;
    struct tr_meter meter;
    struct kn_pool *pool;
    char *own;     /* (room) the GPU's memory that operations work in */
    char *host;    /* (HOST_BYTES) random numbers in memory that the host reaches, too */
    char *scratch; /* of all-reduces by MPI */
    size_t room, scratch_bytes;
};

/* What a run works on. */
struct job {
    size_t bytes;
    char *to;
    const char *from;
    struct kn_gemm gemm;
};

/* ---- all ranks at once --------------------------------------------------- */

static double agree(struct bench *bench, double value, MPI_Op which)
{
    struct tr_group *world = &bench->comms.world;
    MPI_Request req;

    MPI_Iallreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, which, world->comm, &req);
    tr_wait(world->progress, tr_op_begin(TR_OP_ALL_REDUCE, world), &req, 1);
    return value;
}

/* ---- time ---------------------------------------------------------------- */

typedef void run_fn(struct bench *bench, const struct job *job);

/* Seconds of COUNT runs on the rank that took longest. Ranks begin together. */
static double batch(struct bench *bench, run_fn *run, const struct job *job, int count)
{
    uint64_t begun;
    double took;

    kn_wait(bench->pool);
    (void)agree(bench, 0, MPI_MAX);
    begun = clock_mono_ns();
    for (int i = 0; i < count; i++)
        run(bench, job);
    kn_wait(bench->pool);
    took = (double)(clock_mono_ns() - begun) * 1e-9;
    return agree(bench, fmax(took, 1e-9), MPI_MAX);
}

/* Seconds of one run. */
static double time_of(struct bench *bench, run_fn *run, const struct job *job)
{
    int count = 1;
    double took, best, spent;

    (void)batch(bench, run, job, 1); /* code is loaded, algorithms are chosen */
    while ((took = batch(bench, run, job, count)) < BATCH_S)
        count *= (int)fmin(fmax(1.2 * BATCH_S / took, 2), 64);
    best = spent = took;
    for (int i = 1; i < REPEATS && spent < LIMIT_S; i++) {
        took = batch(bench, run, job, count);
        best = fmin(best, took);
        spent += took;
    }
    tr_meter_read(&bench->meter, true);
    return best / count;
}

/* Set the job's bytes: as many as MOST, but for what a run may take. */
static void grow(struct bench *bench, run_fn *run, struct job *job, size_t most)
{
    for (job->bytes = LEAST_BYTES; GROWTH * job->bytes <= most; job->bytes *= GROWTH) {
        (void)batch(bench, run, job, 1);
        if (GROWTH * batch(bench, run, job, 1) > PATIENCE_S)
            break;
    }
}

/* ---- random numbers ------------------------------------------------------ */

/* Pairs of bf16 between 0.5 and 1 with a random sign, each pair a number in fp32, too: products of
 * zeros draw less power, and so run faster. */
static void draw(char *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t x = (rng_mix(i) & 0x807f807f807f807f) | 0x3f003f003f003f00;

        memcpy(to + i, &x, sizeof(x));
    }
}

static void fill(struct bench *bench, size_t bytes)
{
    assert(bytes <= bench->room);
    for (size_t at = 0; at < bytes; at += HOST_BYTES)
        kn_copy(bench->pool, bench->own + at, bench->host,
                bytes - at < HOST_BYTES ? bytes - at : HOST_BYTES);
}

/* ---- products ------------------------------------------------------------ */

static void run_gemm(struct bench *bench, const struct job *job)
{
    kn_gemm(bench->pool, &job->gemm);
}

/* Room for A, B and C in a row; C of a weight's gradient is added to, in fp32. */
static size_t place(struct kn_gemm *ret, const struct tr_product *product, char *own)
{
    size_t m = product->m, n = product->n, k = product->k, width = kn_type_size(product->type);
    bool wgrad = product->form == TR_WGRAD;
    size_t a = m * k * width, b = k * n * width;

    *ret = (struct kn_gemm){.m = m,
                            .n = n,
                            .k = k,
                            .a = own,
                            .b = own + a,
                            .c = own + a + b,
                            .ta = wgrad,
                            .tb = product->form == TR_FORWARD,
                            .beta = wgrad ? 1.0f : 0.0f,
                            .at = product->type,
                            .bt = product->type,
                            .ct = wgrad ? KN_F32 : product->type};
    ret->lda = ret->ta ? m : k;
    ret->ldb = ret->tb ? k : n;
    ret->ldc = n;
    return a + b + m * n * kn_type_size(ret->ct);
}

/* Squares, and a layer of Llama-3-8B with 8,192 tokens; from small to large. */
static const struct tr_product shapes[] = {
    {.m = 128, .n = 128, .k = 128},
    {.form = TR_DGRAD, .m = 128, .n = 128, .k = 128},
    {.form = TR_WGRAD, .m = 128, .n = 128, .k = 128},
    {.m = 512, .n = 512, .k = 512},
    {.m = 2048, .n = 2048, .k = 2048},
    {.m = 4096, .n = 4096, .k = 4096},
    {.m = 8192, .n = 14336, .k = 4096},
    {.form = TR_DGRAD, .m = 8192, .n = 4096, .k = 14336},
    {.form = TR_WGRAD, .m = 14336, .n = 4096, .k = 8192},
    {.m = 8192, .n = 8192, .k = 8192},
};

_Static_assert(2 * ARRAY_LEN(shapes) <= TR_PRODUCTS, "room for each in two types");

/* All that fit the memory and, at the rate of the one before, the patience. */
static void products(struct tr_gpu_rates *ret, struct bench *bench, enum kn_type type)
{
    double rate = 0;

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct tr_product product = shapes[i];
        struct job job;
        double flops = 2.0 * (double)product.m * (double)product.n * (double)product.k;
        size_t bytes;

        product.type = type;
        bytes = place(&job.gemm, &product, bench->own);
        if (bytes > bench->room || (rate > 0 && flops > rate * PATIENCE_S))
            continue;
        fill(bench, bytes);
        rate = product.flops = flops / time_of(bench, run_gemm, &job);
        ret->product[ret->products++] = product;
    }
}

/* ---- memory -------------------------------------------------------------- */

static void run_add(struct bench *bench, const struct job *job)
{
    char *y = bench->own, *a = y + job->bytes, *b = a + job->bytes;

    kn_add(bench->pool, KN_BF16, y, a, b, job->bytes / kn_type_size(KN_BF16));
}

/* W, m, v and g are JOB's bytes each, what W is rounded to is half of that. */
static void run_adamw(struct bench *bench, const struct job *job)
{
    static const struct kn_adamw hyper = {
        .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .grad_scale = 1, .step = 1};
    float *at[5];

    for (size_t i = 0; i < ARRAY_LEN(at); i++)
        at[i] = (float *)(void *)(bench->own + i * job->bytes);
    kn_adamw(bench->pool, &hyper, at[0], (kn_bf16 *)at[4], at[1], at[2], at[3],
             job->bytes / sizeof(float));
}

static void memory(struct tr_gpu_rates *ret, struct bench *bench)
{
    struct job job;

    fill(bench, LEAST_BYTES * 3);
    grow(bench, run_add, &job, bench->room / 3);
    fill(bench, job.bytes * 3);
    ret->add_bytes = 3 * job.bytes; /* two are read, one is written */
    ret->add_bps = (double)ret->add_bytes / time_of(bench, run_add, &job);
    grow(bench, run_adamw, &job, bench->room / 5);
    fill(bench, job.bytes * 4);
    kn_zero(bench->pool, bench->own + 2 * job.bytes, job.bytes); /* v is not negative */
    ret->adamw_bytes = 15 * job.bytes / 2; /* four are read, three and a half written */
    ret->adamw_bps = (double)ret->adamw_bytes / time_of(bench, run_adamw, &job);
}

static void run_copy(struct bench *bench, const struct job *job)
{
    kn_copy(bench->pool, job->to, job->from, job->bytes);
}

static double copy_bps(struct bench *bench, char *to, const char *from)
{
    struct job job = {.to = to, .from = from};

    grow(bench, run_copy, &job, bench->room < HOST_BYTES ? bench->room : HOST_BYTES);
    return (double)job.bytes / time_of(bench, run_copy, &job);
}

/* ---- between ranks ------------------------------------------------------- */

static void run_reduce(struct bench *bench, const struct job *job)
{
    tr_all_reduce(&bench->comms.copy[0], KN_F32, bench->own, job->bytes / sizeof(float));
}

/* Up to ENOUGH bytes, which take longer than their latency, in any case. Each size is at most RATIO
 * times the one before. */
static void reduces(struct tr_gpu_rates *ret, struct bench *bench)
{
    enum { RATIO = 16, ENOUGH = 1 << 20 };
    struct job job = {.bytes = sizeof(float)};
    double took = 0;

    while (job.bytes <= bench->room && ret->reduces < TR_REDUCES &&
           (job.bytes <= ENOUGH || RATIO * took <= PATIENCE_S)) {
        kn_zero(bench->pool, bench->own, job.bytes); /* whose sums stay finite */
        took = time_of(bench, run_reduce, &job);
        ret->reduce[ret->reduces++] = (struct tr_reduce){job.bytes, took};
        job.bytes = job.bytes < 1 << 12 ? 1 << 12 : job.bytes * RATIO;
    }
}

/* As a trial does: by a link, or by MPI, the send first (comm.h). */
static void run_ring(struct bench *bench, const struct job *job)
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

static void transfers(struct tr_gpu_rates *ret, struct bench *bench)
{
    struct job job = {.bytes = 8};
    size_t most = bench->room / 2 < HOST_BYTES ? bench->room / 2 : HOST_BYTES;

    ret->transfer_s = time_of(bench, run_ring, &job);
    grow(bench, run_ring, &job, most);
    ret->ring_bps = (double)job.bytes / time_of(bench, run_ring, &job);
}

/* ---- all of them --------------------------------------------------------- */

/* Half of what is free, which on a large GPU is more than is needed. */
static size_t room_of(const struct kn_pool *pool)
{
    size_t unused = kn_unused_own();

    if (!pool)
        return 0;
    return unused && unused / 2 < ROOM_MAX ? unused / 2 / LEAST_BYTES * LEAST_BYTES : ROOM_MAX;
}

/* 0 on all ranks, or -ENOMEM. */
static int take_memory(struct bench *bench, struct err *error)
{
    size_t mine = room_of(bench->pool);
    bool have = false;

    bench->room = (size_t)agree(bench, (double)mine, MPI_MIN);
    if (bench->room >= ROOM_MIN) {
        bench->own = kn_alloc_own(bench->room);
        bench->host = kn_alloc(HOST_BYTES);
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
static void links_open(struct bench *bench, int ranks)
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

static int bench_open(struct bench *bench, struct err *error)
{
    struct pl_layout layout;
    int ranks;

    *bench = (struct bench){.pool = kn_pool_new(1)};
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    pl_layout_replicas(&layout, ranks);
    tr_comms_init(&bench->comms, MPI_COMM_WORLD, &layout, &bench->clock, tr_fail_comm);
    bench->comms.progress.pool = bench->pool;
    bench->scratch_bytes = pl_coll_scratch(ranks) * sizeof(float);
    if (take_memory(bench, error) < 0)
        return -ENOMEM;
    draw(bench->host, HOST_BYTES);
    bench->comms.copy[0].scratch = bench->scratch;
    if (kn_apart(bench->pool))
        bench->comms.progress.staging =
            (struct tr_staging){.own = bench->own, .bytes = bench->room};
    tr_nccl_init(&bench->comms, tr_fail_comm);
    links_open(bench, ranks);
    tr_meter_open(&bench->meter, &bench->comms, true);
    return 0;
}

static void bench_close(struct bench *bench)
{
    tr_meter_close(&bench->meter);
    tr_links_done(&bench->comms);
    tr_nccl_done(&bench->comms);
    tr_comms_done(&bench->comms);
    if (bench->own)
        kn_free_own(bench->own, bench->room);
    if (bench->host)
        kn_free(bench->host, HOST_BYTES);
    if (bench->scratch)
        kn_free(bench->scratch, bench->scratch_bytes);
    kn_pool_free(bench->pool);
}

static void disturbed(struct tr_gpu_rates *ret, struct bench *bench)
{
    struct tr_group *world = &bench->comms.world;
    struct tr_reading mine = tr_meter_reading(&bench->meter);
    AUTO_FREE struct tr_reading *all = mem_alloc(sizeof(*all) * (size_t)world->size);

    tr_gather_double((double *)all, world, (const double *)&mine, sizeof(mine) / sizeof(double));
    if (world->rank == 0)
        tr_meter_disturbed(ret->disturbed, sizeof(ret->disturbed), all, world->size);
}

int tr_gpu_rates(struct tr_gpu_rates *ret, struct err *error)
{
    struct bench bench;
    double unused;
    int r = bench_open(&bench, error);

    *ret = (struct tr_gpu_rates){.products = 0};
    if (r == 0) {
        memory(ret, &bench);
        products(ret, &bench, KN_BF16);
        products(ret, &bench, KN_F32);
        ret->to_bps = copy_bps(&bench, bench.own, bench.host);
        ret->from_bps = copy_bps(&bench, bench.host, bench.own);
        if (bench.comms.world.size > 1) {
            reduces(ret, &bench);
            transfers(ret, &bench);
        }
        ret->nccl = tr_nccl_version(&bench.comms);
        unused = (double)kn_unused_own();
        ret->memory = agree(&bench, unused > 0 ? unused + (double)bench.room : 0, MPI_MIN);
        disturbed(ret, &bench);
    }
    bench_close(&bench);
    return r;
}

double tr_best_product(const struct tr_gpu_rates *rates, enum kn_type type)
{
    double best = 0;

    for (int i = 0; i < rates->products; i++)
        if (rates->product[i].type == type)
            best = fmax(best, rates->product[i].flops);
    return best;
}
