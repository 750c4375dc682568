/*
 * Speed of training steps, one JSON object a line: {"bench", "case", "value", "unit", "reference",
 * "ratio"}. Run by bench_trainer.sh under mpiexec with 8 ranks, of which a case uses some; the
 * others sleep.
 *
 *   train_step_1     one rank: share of the multiply-add peak of one core
 *   train_step_2     two ranks on two cores over one, same global batch; pp as a share of what its
 *                    schedule allows two stages of these layers
 *   oversubscribed   eight ranks on two cores over two ranks, same global batch
 *   allocations      of the trainer's own code in the steps above
 *
 * Both sides of a comparison take turns; value is the median of the first side, ratio the median of
 * the quotients of neighbours. Every number is wall time of the slowest rank, the optimizer
 * included.
 *
 * Options: --bench=GLOB, --repeats=N.
 */
#include <fnmatch.h>

#include "tests/bench/trainer_side.h"
#include "tests/mpi/allocations.h"

enum { MAX_REPEATS = 101, BATCH = 16 };

static const char dense[] = "{\"name\":\"dense 8x512\",\"layers\":8,\"hidden\":512,\"heads\":8,"
                            "\"kv_heads\":8,\"ffn\":1536,\"vocab\":4096,\"seq\":256}";
static const char experts[] =
    "{\"name\":\"experts 8x512\",\"layers\":8,\"hidden\":512,\"heads\":8,\"kv_heads\":8,"
    "\"vocab\":4096,\"seq\":256,\"moe\":{\"experts\":8,\"top_k\":2,\"expert_ffn\":768}}";
static const char one_rank[] = "{\"world\":1,\"micro_batch\":4}";

static struct {
    const char *glob;
    int repeats, rank;
} opt = {.glob = "*", .repeats = 3};

static bool wanted(const char *bench)
{
    return fnmatch(opt.glob, bench, 0) == 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void print(const char *bench, const char *what, double value, const char *unit,
                  const char *reference, double ratio)
{
    if (opt.rank != 0)
        return;
    printf("{\"bench\":\"%s\",\"case\":\"%s\",\"value\":%.4g,\"unit\":\"%s\"", bench, what, value,
           unit);
    if (reference)
        printf(",\"reference\":\"%s\",\"ratio\":%.3f", reference, ratio);
    printf("}\n");
    fflush(stdout);
}

static double step(struct side *s, bool count)
{
    double t;

    allocations_counted = count;
    t = side_step(s);
    allocations_counted = false;
    return t;
}

/* ---- one rank ---- */

/* Rank 0 alone; the others hold still in side_step's meeting or on their way to it. */
static double fma_peak(void)
{
    double best = 0;

    side_meet();
    for (int i = 0; opt.rank == 0 && i < 20; i++) {
        uint64_t begin = clock_mono_ns();
        double flops = kn_fma_loop(400000);

        best = fmax(best, flops / ((double)(clock_mono_ns() - begin) * 1e-9));
    }
    side_meet();
    MPI_Bcast(&best, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return best;
}

static void bench_one(void)
{
    struct side s;
    double share[MAX_REPEATS], rate[MAX_REPEATS];

    side_open(&s, dense, one_rank, 4);
    step(&s, false);
    for (int i = 0; i < opt.repeats + 2; i++) {
        double peak = fma_peak();

        rate[i] = s.flops / step(&s, true);
        share[i] = rate[i] / peak;
    }
    print("train_step_1", s.model.name, median(rate, opt.repeats + 2) / 1e9, "GFLOP/s",
          "fma peak of one core", median(share, opt.repeats + 2));
    side_close(&s);
}

/* ---- two sides ---- */

struct pair {
    double seconds;  /* of the first side, median */
    double quotient; /* the second side's seconds over the first's, median of neighbours */
};

static struct pair compare(const char *model, const char *first, const char *second)
{
    struct side a, b;
    double t[MAX_REPEATS], q[MAX_REPEATS];

    side_open(&a, model, first, BATCH);
    side_open(&b, model, second, BATCH);
    step(&a, false);
    step(&b, false);
    for (int i = 0; i < opt.repeats; i++) {
        t[i] = step(&a, true);
        q[i] = step(&b, true) / t[i];
    }
    side_close(&a);
    side_close(&b);
    return (struct pair){median(t, opt.repeats), median(q, opt.repeats)};
}

/* FLOPs of one stage's part of a micro-batch as times; the output and its whole gradient are
 * computed in the forward step of the last stage. */
static struct pl_stage_time stage_time(const struct pl_model *m, const struct pl_layout *l,
                                       int stage, int chunk)
{
    struct pl_model part = *m;
    double tokens = (double)l->micro_batch * m->seq, head = 6.0 * tokens * m->vocab * m->hidden;
    double all, attention;
    int first;

    part.layers = pl_stage_layers(l, m->layers, stage, chunk, &first);
    all = side_flops(&part, m->seq, tokens) - head;
    attention = 6.0 * (m->seq + 1) * m->heads * m->head_dim * part.layers * tokens;
    return (struct pl_stage_time){.forward = all / 3 +
                                             (stage == l->pp - 1 && chunk == l->vp - 1 ? head : 0),
                                  .backward = all * 2 / 3,
                                  .weight = (all - attention) / 3};
}

/* How much faster than one rank the schedule would be if only its bubbles cost time. */
static double schedule_bound(const char *model, const char *layout)
{
    struct side s;
    struct pl_timeline t;
    struct pl_stage_time at[64];
    struct pl_pipe p = {.at = at};
    struct err e = {0};
    double bound;

    side_open(&s, model, layout, BATCH);
    p.schedule = (enum pl_schedule)s.layout.schedule;
    p.pp = s.layout.pp;
    p.vp = s.layout.vp;
    p.microbatches = pl_microbatches(&s.layout, &s.workload);
    for (int i = 0; i < p.pp * p.vp; i++)
        at[i] = stage_time(&s.model, &s.layout, i % p.pp, i / p.pp);
    if (pl_simulate(&t, &p, &e) < 0)
        side_die(e.text);
    bound = s.flops / t.total;
    pl_timeline_done(&t);
    side_close(&s);
    return bound;
}

static void bench_two(void)
{
    static const struct {
        const char *name, *model, *layout;
    } cases[] = {
        {"train_step_2 dp", dense, "{\"world\":2,\"dp\":2,\"zero\":1,\"micro_batch\":4}"},
        {"train_step_2 ep", experts, "{\"world\":2,\"ep\":2,\"zero\":1,\"micro_batch\":4}"},
        {"train_step_2 tp", dense, "{\"world\":2,\"tp\":2,\"sp\":1,\"micro_batch\":4}"},
        {"train_step_2 pp", dense, "{\"world\":2,\"pp\":2,\"micro_batch\":2}"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pair p;
        bool pp = i == 3;
        double bound = 1;

        if (!wanted("train_step_2") && !wanted(cases[i].name))
            continue;
        p = compare(cases[i].model, cases[i].layout, one_rank);
        if (pp)
            bound = schedule_bound(cases[i].model, cases[i].layout);
        print("train_step_2", cases[i].name + strlen("train_step_2 "), p.seconds * 1e3, "ms",
              pp ? "bound of its schedule" : "one rank", p.quotient / bound);
    }
}

static void bench_oversubscribed(void)
{
    static const char two[] = "{\"world\":2,\"dp\":2,\"zero\":1,\"micro_batch\":4}";
    static const struct {
        const char *name, *model, *layout;
    } cases[] = {
        {"oversubscribed dense tp2 pp2 dp2", dense,
         "{\"world\":8,\"tp\":2,\"sp\":1,\"pp\":2,\"zero\":1,\"micro_batch\":2}"},
        {"oversubscribed experts tp2 pp2 dp2 ep2", experts,
         "{\"world\":8,\"tp\":2,\"sp\":1,\"pp\":2,\"ep\":2,\"zero\":1,\"micro_batch\":2}"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pair p;

        if (!wanted("oversubscribed") && !wanted(cases[i].name))
            continue;
        p = compare(cases[i].model, cases[i].layout, two);
        print("oversubscribed", cases[i].name + strlen("oversubscribed "), p.seconds * 1e3, "ms",
              "two ranks, dp2", 1 / p.quotient);
    }
}

static int parse(int argc, char **argv)
{
    int64_t n = 1;

    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];

        if (str_starts(a, "--bench="))
            opt.glob = a + 8;
        else if (str_starts(a, "--repeats=") && str_to_i64(&n, a + 10, 1, MAX_REPEATS - 2) == 0)
            opt.repeats = (int)n;
        else
            return fprintf(stderr, "usage: bench_trainer [--bench=GLOB] [--repeats=N]\n"), 2;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int size, code = parse(argc, argv);

    if (code)
        return code;
    /* A side's ranks decide by their own number whether they outnumber the cores. */
    unsetenv("MPI_LOCALNRANKS");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &opt.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 8)
        side_die("start it with 8 ranks");
    if (wanted("train_step_1"))
        bench_one();
    bench_two();
    bench_oversubscribed();
    MPI_Allreduce(MPI_IN_PLACE, &allocations, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (wanted("allocations"))
        print("allocations", "in the steps above, all ranks", (double)allocations, "times", NULL,
              0);
    MPI_Finalize();
    return 0;
}
