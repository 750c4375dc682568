#include "trainer/gpu_bench.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"
#include "trainer/coll.h"

/* A batch takes at least so long, and all batches of an operation not much more than LIMIT. */
struct patience {
    double batch, limit; /* seconds */
};

static const struct patience thorough = {0.02, 0.3}, quick = {0.005, 0.03};

enum { REPEATS = 10, GROWTH = 4 };

double tr_bench_agree(struct tr_bench *bench, double value, MPI_Op which)
{
    struct tr_group *world = &bench->comms.world;
    MPI_Request req;

    MPI_Iallreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, which, world->comm, &req);
    tr_wait(world->progress, tr_op_begin(TR_OP_ALL_REDUCE, world), &req, 1);
    return value;
}

/* ---- time ---------------------------------------------------------------- */

double tr_bench_batch(struct tr_bench *bench, tr_bench_run *run, const struct tr_bench_job *job,
                      int count)
{
    uint64_t begun;
    double took;

    kn_wait(bench->pool);
    (void)tr_bench_agree(bench, 0, MPI_MAX);
    begun = clock_mono_ns();
    for (int i = 0; i < count; i++)
        run(bench, job);
    kn_wait(bench->pool);
    took = (double)(clock_mono_ns() - begun) * 1e-9;
    return tr_bench_agree(bench, fmax(took, 1e-9), MPI_MAX);
}

static double time_within(struct tr_bench *bench, tr_bench_run *run, const struct tr_bench_job *job,
                          struct patience patience)
{
    int count = 1;
    double took, best, spent;

    (void)tr_bench_batch(bench, run, job, 1); /* code is loaded, algorithms are chosen */
    while ((took = tr_bench_batch(bench, run, job, count)) < patience.batch)
        count *= (int)fmin(fmax(1.2 * patience.batch / took, 2), 64);
    best = spent = took;
    for (int i = 1; i < REPEATS && spent < patience.limit; i++) {
        took = tr_bench_batch(bench, run, job, count);
        best = fmin(best, took);
        spent += took;
    }
    tr_meter_read(&bench->meter, true);
    return best / count;
}

double tr_bench_time(struct tr_bench *bench, tr_bench_run *run, const struct tr_bench_job *job)
{
    return time_within(bench, run, job, thorough);
}

double tr_bench_quick(struct tr_bench *bench, tr_bench_run *run, const struct tr_bench_job *job)
{
    return time_within(bench, run, job, quick);
}

void tr_bench_grow(struct tr_bench *bench, tr_bench_run *run, struct tr_bench_job *job, size_t most)
{
    for (job->bytes = TR_BENCH_LEAST; GROWTH * job->bytes <= most; job->bytes *= GROWTH) {
        (void)tr_bench_batch(bench, run, job, 1);
        if (GROWTH * tr_bench_batch(bench, run, job, 1) > TR_BENCH_PATIENCE)
            break;
    }
}

/* ---- random numbers ------------------------------------------------------ */

/* Pairs of bf16 between 0.5 and 1 with a random sign, each pair a number in fp32, too: products of
 * zeros draw less power, and so run faster. */
void tr_bench_draw(char *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t x = (rng_mix(i) & 0x807f807f807f807f) | 0x3f003f003f003f00;

        memcpy(to + i, &x, sizeof(x));
    }
}

void tr_bench_fill(struct tr_bench *bench, size_t bytes)
{
    assert(bytes <= bench->room);
    for (size_t at = 0; at < bytes; at += TR_BENCH_HOST)
        kn_copy(bench->pool, bench->own + at, bench->host,
                bytes - at < TR_BENCH_HOST ? bytes - at : TR_BENCH_HOST);
}
