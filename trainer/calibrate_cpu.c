/*
 * Each figure is the best of several short repeats: what the machine can do, which other load can
 * only hide. The work of a core is divided by the time that its thread had the core, so that a busy
 * machine does not lower the peak that MFU refers to; the share of time that other load took is in
 * the profile (busy_share). Rank 0 measures the cores with a pool of as many threads while other
 * ranks wait in usleep(), not in MPI's spinning. Only the transfers need two ranks.
 */
#include "trainer/calibrate.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include "base/base.h"
#include "kernels/kernels.h"
#include "trainer/coll.h"
#include "trainer/events.h"

static const double BUSY = 0.1; /* of the cores' time taken by others: worth a warning */

enum { REPEATS = 15, GEMM_N = 768, SMALL_ROUNDS = 300, LARGE = 1 << 20 };

struct found {
    double fma, fma_alone; /* GFLOP/s of a core: with all cores busy, alone */
    double gemm, gemm_alone;
    double triad, triad_alone;    /* GB/s of a core */
    double reduce_us, reduce_gbs; /* all-reduce of one number; bytes/s each way in one of 4 MiB */
    double transfer_us, transfer_gbs; /* one way of a ping-pong; both ways at once */
    double yield_ns, probe_ns;
    double busy; /* share of the cores' time that other work took while cores were measured */
    struct kn_blocking blocking;
    struct pl_cluster cluster;
};

static double seconds(void)
{
    return (double)clock_mono_ns() * 1e-9;
}

/* Highest or lowest of what RATE returns in REPEATS calls, after one that warms up. */
static double best(double (*rate)(void *), void *arg, bool high)
{
    double x = rate(arg);

    for (int i = 0; i < REPEATS; i++)
        x = high ? fmax(x, rate(arg)) : fmin(x, rate(arg));
    return x;
}

static double highest(double (*rate)(void *), void *arg)
{
    return best(rate, arg, true);
}

static double lowest(double (*rate)(void *), void *arg)
{
    return best(rate, arg, false);
}

/* ---- cores --------------------------------------------------------------- */

/* Work of one thread, on its own arrays. */
struct load {
    struct kn_pool *pool; /* of as many threads as take part */
    int threads;
    struct kn_pool **own; /* (threads): each of one thread */
    size_t n; /* numbers in an array: beyond any cache, less where many cores share the memory */
    float **array;                             /* (threads): 3 x n floats */
    double (*work)(struct load *, int thread); /* returns what it has done */
    double *rate;                              /* (threads): of that, a second on the core */
    double *spent;                             /* (threads): seconds on the core */
    double on_core, elapsed;                   /* seconds of all threads so far */
};

static double core_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work_thread(void *arg, int thread, int threads)
{
    struct load *k = arg;
    double t = core_seconds(), done = k->work(k, thread);

    (void)threads;
    t = core_seconds() - t;
    k->rate[thread] = done / t;
    k->spent[thread] = t;
}

/* Mean rate of the threads, all at once, in 10^9 a second. */
static double rate_of(struct load *load, double (*work)(struct load *, int))
{
    double t = seconds(), sum = 0;

    load->work = work;
    kn_pool_run(load->pool, work_thread, load);
    load->elapsed += (seconds() - t) * load->threads;
    for (int i = 0; i < load->threads; i++) {
        sum += load->rate[i];
        load->on_core += load->spent[i];
    }
    return sum * 1e-9 / load->threads;
}

static double fma_work(struct load *load, int thread)
{
    (void)load;
    (void)thread;
    return kn_fma_loop(1000000);
}

static double fma_once(void *arg)
{
    return rate_of(arg, fma_work);
}

/* Bytes named by the source, as STREAM counts: 12 a number. */
static double triad_work(struct load *load, int thread)
{
    float *restrict a = load->array[thread];
    const float *restrict b = a + load->n, *restrict c = b + load->n;

    for (size_t i = 0; i < load->n; i++)
        a[i] = b[i] + 3.0f * c[i];
    return 12.0 * (double)load->n;
}

static double triad_once(void *arg)
{
    return rate_of(arg, triad_work);
}

static void touch_thread(void *arg, int thread, int threads)
{
    struct load *k = arg;

    (void)threads;
    for (size_t i = 0; i < 3 * k->n; i++)
        k->array[thread][i] = (float)(i % 7) * 0.25f;
}

static double gemm_work(struct load *load, int thread)
{
    float *a = load->array[thread], *b = a + GEMM_N * GEMM_N, *c = b + GEMM_N * GEMM_N;

    kn_gemm_f32(load->own[thread], false, true, GEMM_N, GEMM_N, GEMM_N, a, GEMM_N, b, GEMM_N, 0.0f,
                c, GEMM_N);
    return 2.0 * GEMM_N * GEMM_N * GEMM_N;
}

static double gemm_once(void *arg)
{
    return rate_of(arg, gemm_work);
}

static int load_begin(struct load *load, int threads, struct err *error)
{
    *load = (struct load){
        .pool = kn_pool_new(threads), .threads = threads, .n = threads > 16 ? 2 << 20 : 8 << 20};
    load->own = mem_alloc((size_t)threads * sizeof(struct kn_pool *));
    load->array = mem_alloc((size_t)threads * sizeof(*load->array));
    load->rate = mem_alloc((size_t)threads * sizeof(*load->rate));
    load->spent = mem_alloc((size_t)threads * sizeof(*load->spent));
    for (int i = 0; i < threads; i++) {
        load->array[i] = mem_try_alloc(3 * load->n * sizeof(float));
        load->own[i] = kn_pool_new(1);
    }
    for (int i = 0; i < threads; i++)
        if (!load->pool || !load->array[i] || !load->own[i])
            return err_set(error, -ENOMEM, "no memory to measure %d cores with", threads);
    kn_pool_run(load->pool, touch_thread, load);
    return 0;
}

static void load_end(struct load *load)
{
    for (int i = 0; load->array && i < load->threads; i++)
        free(load->array[i]);
    for (int i = 0; load->own && i < load->threads; i++)
        kn_pool_free(load->own[i]);
    free(load->own);
    free(load->array);
    free(load->rate);
    free(load->spent);
    kn_pool_free(load->pool);
}

/* The fastest blocking of the kernels' candidates, if it is better than the present one by more
 * than 2 %. */
static void choose_blocking(struct load *load)
{
    const struct kn_blocking *candidate;
    size_t n = kn_blocking_candidates(&candidate);
    struct kn_blocking best = kn_blocking_get();
    double rate = highest(gemm_once, load) * 1.02;

    for (size_t i = 0; i < n; i++) {
        double x;

        if (!kn_blocking_set(&candidate[i]))
            continue;
        x = highest(gemm_once, load);
        if (x > rate) {
            rate = x;
            best = candidate[i];
        }
    }
    kn_blocking_set(&best);
}

static double yield_once(void *arg)
{
    double t = seconds();

    (void)arg;
    for (int i = 0; i < 10000; i++)
        sched_yield();
    return (seconds() - t) * 1e9 / 10000;
}

static int measure_cores(struct found *found, struct err *error)
{
    struct load alone, all;
    int cores = found->cluster.devices_per_node;
    int r = load_begin(&alone, 1, error);

    if (r == 0) {
        choose_blocking(&alone);
        found->blocking = kn_blocking_get();
        found->fma_alone = highest(fma_once, &alone);
        found->gemm_alone = highest(gemm_once, &alone);
        found->triad_alone = highest(triad_once, &alone);
        found->yield_ns = lowest(yield_once, NULL);
    }
    load_end(&alone);
    if (r < 0)
        return r;
    r = load_begin(&all, cores, error);
    if (r == 0) {
        found->fma = highest(fma_once, &all);
        found->gemm = highest(gemm_once, &all);
        found->triad = highest(triad_once, &all);
        found->busy = fmax(0, 1 - all.on_core / all.elapsed);
        assert(found->fma > 0 && found->busy <= 1);
    }
    load_end(&all);
    return r;
}

/* ---- two ranks ----------------------------------------------------------- */

struct pair {
    struct tr_comms c;
    struct tr_clock clock;
    float *buf, *in; /* (LARGE) */
};

static void fail_comm(const char *reason)
{
    log_error("%s", reason);
    MPI_Abort(MPI_COMM_WORLD, TR_EXIT_COMM);
}

static double reduce_small(void *arg)
{
    struct pair *p = arg;
    double t = seconds();

    for (int i = 0; i < SMALL_ROUNDS; i++)
        tr_all_reduce(&p->c.copy[0], KN_F32, p->buf, 1);
    return (seconds() - t) * 1e6 / SMALL_ROUNDS;
}

/* Each of two ranks sends and receives half of the array twice: in all the array's bytes each way.
 */
static double reduce_large(void *arg)
{
    struct pair *p = arg;
    double t = seconds();

    for (int i = 0; i < 4; i++)
        tr_all_reduce(&p->c.copy[0], KN_F32, p->buf, LARGE);
    return 4.0 * LARGE * sizeof(float) / (seconds() - t) * 1e-9;
}

static void transfer(struct pair *pair, size_t bytes, bool send, bool receive)
{
    struct tr_group *g = &pair->c.copy[0];
    MPI_Request req[2];
    int n = 0;

    if (send)
        tr_isend(&req[n++], g, pair->buf, bytes, 1 - g->rank, TR_TAG_ACT);
    if (receive)
        tr_irecv(&req[n++], g, pair->in, bytes, 1 - g->rank, TR_TAG_ACT);
    tr_wait(&pair->c.progress, tr_op_of(TR_OP_SEND_RECV, g), req, n);
}

static double transfer_small(void *arg)
{
    struct pair *p = arg;
    double t = seconds();

    for (int i = 0; i < SMALL_ROUNDS; i++) {
        transfer(p, 8, p->c.copy[0].rank == 0, p->c.copy[0].rank == 1);
        transfer(p, 8, p->c.copy[0].rank == 1, p->c.copy[0].rank == 0);
    }
    return (seconds() - t) * 1e6 / (2 * SMALL_ROUNDS);
}

static double transfer_large(void *arg)
{
    struct pair *p = arg;
    double t = seconds();

    for (int i = 0; i < 4; i++)
        transfer(p, LARGE * sizeof(float), true, true);
    return 4.0 * LARGE * sizeof(float) / (seconds() - t) * 1e-9;
}

/* A probe for a message that is not there: what a waiting loop costs in addition to the yield.
 */
static double probe_once(void *arg)
{
    struct pair *p = arg;
    double t = seconds();
    int flag;

    for (int i = 0; i < 1000; i++)
        MPI_Iprobe(MPI_ANY_SOURCE, TR_TAG_MOE, p->c.copy[0].comm, &flag, MPI_STATUS_IGNORE);
    return (seconds() - t) * 1e9 / 1000;
}

static void measure_pair(struct found *found, MPI_Comm comm)
{
    struct pl_layout l;
    struct pair p = {.clock = {0}};
    AUTO_FREE void *scratch = mem_alloc(pl_coll_scratch(2) * sizeof(float));

    pl_layout_replicas(&l, 2);
    p.buf = mem_alloc(LARGE * sizeof(float));
    p.in = mem_alloc(LARGE * sizeof(float));
    tr_comms_init(&p.c, comm, &l, &p.clock, fail_comm);
    p.c.copy[0].scratch = scratch;
    found->reduce_us = lowest(reduce_small, &p);
    found->reduce_gbs = highest(reduce_large, &p);
    found->transfer_us = lowest(transfer_small, &p);
    found->transfer_gbs = highest(transfer_large, &p);
    found->probe_ns = lowest(probe_once, &p);
    tr_comms_done(&p.c);
    free(p.buf);
    free(p.in);
}

/* ---- the stamp ----------------------------------------------------------- */

static json_t *stamp_json(const struct found *found)
{
    char cpu[128], build[128], date[CLOCK_TEXT];

    tr_cpu_name(cpu);
    tr_build_name(build, kn_isa_name(kn_isa()));
    clock_format(date, clock_wall_ms());
    return json_pack(
        "{s:s, s:s, s:s, s:{s:i, s:i, s:i}, s:{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}}",
        "cpu", cpu, "build", build, "date", date, "blocking", "rows", (int)found->blocking.rows,
        "kc", (int)found->blocking.kc, "nc", (int)found->blocking.nc, "measured",
        "core_alone_fma_gflops", found->fma_alone, "core_alone_gemm_gflops", found->gemm_alone,
        "core_alone_triad_gbs", found->triad_alone, "all_reduce_us", found->reduce_us,
        "all_reduce_gbs", found->reduce_gbs, "transfer_us", found->transfer_us, "transfer_gbs",
        found->transfer_gbs, "yield_ns", found->yield_ns, "probe_ns", found->probe_ns, "busy_share",
        found->busy);
}

/* Links take the all-reduce's figures: most of a step's communication is made of its exchanges. */
static json_t *profile_json(struct found *found)
{
    struct pl_cluster *c = &found->cluster;
    json_t *v;

    c->device.tflops_fp32 = c->device.tflops_bf16 =
        found->fma * 1e-3; /* bf16 is stored, the arithmetic is fp32 */
    c->device.gemm_tflops = fmin(found->gemm, found->fma) * 1e-3;
    c->device.memory_gbs = found->triad;
    c->link[0] = (struct pl_link){.span = INT_MAX,
                                  .gbs = found->reduce_gbs,
                                  .latency_us = found->reduce_us,
                                  .kind = "shared memory"};
    c->nlinks = 1;
    c->measured = true;
    v = pl_cluster_json(c);
    json_object_set_new(v, "stamp", stamp_json(found));
    return v;
}

static void tell(const struct tr_config *config, const struct found *found)
{
    if (config->quiet)
        return;
    printf("%d cores, each with all of them busy (alone):\n", found->cluster.devices_per_node);
    printf("  multiply-add  %7.1f GFLOP/s (%.1f)\n", found->fma, found->fma_alone);
    printf("  GEMM          %7.1f GFLOP/s (%.1f), blocking rows %u kc %u nc %u\n", found->gemm,
           found->gemm_alone, found->blocking.rows, found->blocking.kc, found->blocking.nc);
    printf("  triad         %7.2f GB/s (%.2f)\n", found->triad, found->triad_alone);
    printf("two ranks:\n");
    printf("  all-reduce    %7.2f us, %.2f GB/s\n", found->reduce_us, found->reduce_gbs);
    printf("  transfer      %7.2f us, %.2f GB/s each way\n", found->transfer_us,
           found->transfer_gbs);
    printf("  yield %.0f ns, probe %.0f ns\n", found->yield_ns, found->probe_ns);
    if (found->busy > BUSY)
        printf("the machine was busy: other work took %.0f %% of the cores' time; transfers and "
               "memory "
               "may be faster than measured\n",
               100 * found->busy);
    printf("written to %s\n", config->calibrate);
}

/* A barrier; early ranks sleep. */
static void meet(void)
{
    MPI_Request req;
    int done = 0;

    MPI_Ibarrier(MPI_COMM_WORLD, &req);
    while (!done) {
        MPI_Test(&req, &done, MPI_STATUS_IGNORE);
        if (!done)
            usleep(2000);
    }
}

int tr_calibrate_cpu(const struct tr_config *config, struct err *error)
{
    struct found f = {.fma = 0};
    MPI_Comm two;
    int rank, size, r = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2) {
        err_set(error, -EINVAL,
                "calibration measures transfers too: start it as mpiexec -n 2 partune-train "
                "--calibrate %s",
                config->calibrate);
        return TR_EXIT_USAGE;
    }
    pl_cluster_here(&f.cluster);
    if (rank == 0)
        r = measure_cores(&f, error);
    meet();
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &two);
    if (rank < 2) {
        measure_pair(&f, two);
        MPI_Comm_free(&two);
    }
    meet();
    if (rank == 0 && r == 0)
        r = tr_profile_write(config->calibrate, profile_json(&f), error);
    if (rank == 0 && r == 0)
        tell(config, &f);
    return r < 0 ? TR_EXIT_IO : TR_EXIT_OK;
}
