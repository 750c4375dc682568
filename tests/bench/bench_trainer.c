/*
 * Speed of training steps, one JSON object a line: {"bench", "case", "value", "unit", "reference",
 * "ratio"}, where there is a bar with it ("least", "most") and whether it is "met". Run by
 * bench_trainer.sh: with 8 ranks, of which a case uses some while the others sleep, and with 2 for
 * overlap.
 *
 *   train_step_1     one rank: share of the multiply-add peak of one core
 *   train_step_2     two ranks on two cores over one, same global batch; pp as a share of what its
 *                    schedule allows two stages of these layers; cp with one sequence of 16,384
 *                    tokens. After each:
 *                    where one more step's time went; before them, what the machine gives to two
 *                    ranks that share nothing
 *   oversubscribed   eight ranks on two cores over two ranks, same global batch
 *   overlap          with 2 ranks, meant to be on two hosts with a slow link: overlap on against
 *                    off, and how much of the communication that shows without it it hides
 *   allocations      of the trainer's own code in the steps above
 *   checkpoint       by bench_trainer.sh, with runs of partune-train: two ranks on two cores, from
 *                    one step to the next, with an asynchronous checkpoint after each over none
 *   pytorch          by bench_trainer.sh: a step of the same model in plain PyTorch, over ours
 *
 * Both sides of a comparison take turns; value is the median of the first side, ratio the median of
 * the quotients of neighbors. Every number is wall time of the slowest rank, the optimizer
 * included.
 *
 * Options: --bench=GLOB, --repeats=N.
 */
#include <fnmatch.h>
#include <unistd.h>

#include "tests/bench/trainer_side.h"
#include "tests/mpi/allocations.h"
#include "tests/mpi/cover.h"
#include "trainer/finalize.h"

enum { MAX_REPEATS = 101, BATCH = 16, MEMORY_BATCH = 8, MAX_TURNS = 256, MAX_MEMBERS = 8 };

static const char dense[] = "{\"name\":\"dense 8x512\",\"layers\":8,\"hidden\":512,\"heads\":8,"
                            "\"kv_heads\":8,\"ffn\":1536,\"vocab\":4096,\"seq\":256}";
static const char experts[] =
    "{\"name\":\"experts 8x512\",\"layers\":8,\"hidden\":512,\"heads\":8,\"kv_heads\":8,"
    "\"vocab\":4096,\"seq\":256,\"moe\":{\"experts\":8,\"top_k\":2,\"expert_ffn\":768}}";
/* Nine tenths of its step are attention. */
static const char longer[] = "{\"name\":\"long 1x256\",\"layers\":1,\"hidden\":256,\"heads\":4,"
                             "\"kv_heads\":2,\"ffn\":256,\"vocab\":256,\"seq\":16384}";
/* One layer whose products are wide enough to hide what tp exchanges at 1 Gbit/s. */
static const char wide[] = "{\"name\":\"wide 1x2048\",\"layers\":1,\"hidden\":2048,\"heads\":16,"
                           "\"kv_heads\":16,\"ffn\":6144,\"vocab\":4096,\"seq\":256}";
static const char one_rank[] = "{\"world\":1,\"micro_batch\":4}";

static struct {
    const char *glob;
    int repeats, rank;
} opt = {.glob = "*", .repeats = 3};

static void bench_cores(void);
static void bench_crowd(void);
static void bench_overlap(void);

/* Each part is a job of its own: ranks that a benchmark has no work for wake to ask whether it is
 * done, on the cores that it measures. */
static const struct part {
    const char *name;
    int ranks;
    void (*run)(void);
} parts[] = {
    {"cores", 2, bench_cores}, {"oversubscribed", 8, bench_crowd}, {"hosts", 2, bench_overlap}};

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

/* What the quotient (without a reference: the value) of a line must reach. */
struct bar {
    double least, most;
};

#define AT_LEAST(x) ((struct bar){x, HUGE_VAL})
#define AT_MOST(x) ((struct bar){-HUGE_VAL, x})
static const struct bar no_bar = {-HUGE_VAL, HUGE_VAL};

static void print_bar(const char *bench, const char *what, double value, const char *unit,
                      const char *reference, double ratio, struct bar bar)
{
    double judged = reference ? ratio : value;

    if (opt.rank != 0)
        return;
    printf("{\"bench\":\"%s\",\"case\":\"%s\",\"value\":%.4g,\"unit\":\"%s\"", bench, what, value,
           unit);
    if (reference)
        printf(",\"reference\":\"%s\",\"ratio\":%.3f", reference, ratio);
    if (isfinite(bar.least))
        printf(",\"least\":%g", bar.least);
    if (isfinite(bar.most))
        printf(",\"most\":%g", bar.most);
    if (isfinite(bar.least) || isfinite(bar.most))
        printf(",\"met\":%s", judged >= bar.least && judged <= bar.most ? "true" : "false");
    printf("}\n");
    fflush(stdout);
}

static void print(const char *bench, const char *what, double value, const char *unit)
{
    print_bar(bench, what, value, unit, NULL, 0, no_bar);
}

static double step(struct side *s, bool count)
{
    double t;

    allocations_counted = count;
    t = side_step(s);
    allocations_counted = false;
    return t;
}

/* ---- one rank ------------------------------------------------------------ */

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
    print_bar("train_step_1", s.model.name, 1e3 * s.flops / median(rate, opt.repeats + 2), "ms",
              "fma peak of one core", median(share, opt.repeats + 2), AT_LEAST(0.72));
    side_close(&s);
}

/* ---- two sides ----------------------------------------------------------- */

struct pair {
    double seconds;  /* of the first side, median */
    double bound;    /* of the first side, with pp or ep */
    double quotient; /* the second side's seconds over the first's, median of neighbors */
    double computes; /* seconds of the first side's rank that computes longest, in one step */
    double talks;    /* seconds that its ranks exchange data or wait for others, mean */
};

/* FLOPs of one stage's part of a micro-batch as times; the output and its whole gradient are
 * computed in the forward step of the last stage. */
static struct pl_stage_time stage_time(const struct pl_model *m, const struct pl_layout *l,
                                       int stage, int chunk)
{
    struct pl_model part = *m;
    double tokens = (double)l->micro_batch * m->seq, head = 6.0 * tokens * m->vocab * m->hidden;
    double all, attention;
    int first;

    part.layers = pl_stage_layers(&first, l, m->layers, stage, chunk);
    all = side_flops(&part, m->seq, tokens) - head;
    attention = 6.0 * (m->seq + 1) * m->heads * m->head_dim * part.layers * tokens;
    return (struct pl_stage_time){.forward = all / 3 +
                                             (stage == l->pp - 1 && chunk == l->vp - 1 ? head : 0),
                                  .backward = all * 2 / 3,
                                  .weight = (all - attention) / 3};
}

/* How much faster than one rank the schedule would be if only its bubbles cost time. */
static double schedule_bound(const struct side *s)
{
    struct pl_timeline t;
    struct pl_stage_time at[64];
    struct pl_pipe p = {.at = at,
                        .schedule = (enum pl_schedule)s->layout.schedule,
                        .pp = s->layout.pp,
                        .vp = s->layout.vp,
                        .microbatches = pl_microbatches(&s->layout, &s->workload)};
    struct err e = {0};
    double bound;

    for (int i = 0; i < p.pp * p.vp; i++)
        at[i] = stage_time(&s->model, &s->layout, i % p.pp, i / p.pp);
    if (pl_simulate(&t, &p, &e) < 0)
        side_die(e.text);
    bound = s->flops / t.total;
    pl_timeline_done(&t);
    return bound;
}

/* Rows that each member of the experts' group gets, by pass through a layer with experts. */
static struct {
    double rows[MAX_TURNS][MAX_MEMBERS];
    int n;
} turns;

static void on_routed(void *arg, const struct tr_rank *r, int layer, const int32_t *idx)
{
    (void)arg;
    (void)layer;
    if (turns.n == MAX_TURNS || r->layout.ep > MAX_MEMBERS)
        side_die("more experts' passes or members than this benchmark has room for");
    for (uint64_t i = 0; i < r->d.choices; i++)
        turns.rows[turns.n][(uint64_t)idx[i] / r->d.local_experts]++;
    turns.n++;
}

/* One more step, with a look at its clock and at where its tokens went. */
static void look(struct side *s, struct pair *ret)
{
    static const enum tr_phase talk[] = {TR_PHASE_TP, TR_PHASE_CP, TR_PHASE_EP, TR_PHASE_PP_WAIT,
                                         TR_PHASE_DP};
    static const enum tr_phase compute[] = {TR_PHASE_FORWARD, TR_PHASE_BACKWARD,
                                            TR_PHASE_OPTIMIZER};
    uint64_t talks = 0, computes = 0;

    memset(&turns, 0, sizeof(turns));
    s->r.routed = on_routed;
    tr_clock_reset(&s->r.clock);
    step(s, false);
    s->r.routed = NULL;
    if (s->comm == MPI_COMM_NULL)
        return;
    for (size_t i = 0; i < ARRAY_LEN(talk); i++)
        talks += s->r.clock.ns[talk[i]];
    for (size_t i = 0; i < ARRAY_LEN(compute); i++)
        computes += s->r.clock.ns[compute[i]];
    ret->talks = (double)talks * 1e-9 / s->layout.world;
    ret->computes = (double)computes * 1e-9;
    MPI_Allreduce(MPI_IN_PLACE, &ret->talks, 1, MPI_DOUBLE, MPI_SUM, s->comm);
    MPI_Allreduce(MPI_IN_PLACE, &ret->computes, 1, MPI_DOUBLE, MPI_MAX, s->comm);
}

/* How much faster than one rank SIDE would be, without pp, if only the experts' uneven rows cost
 * time and at every pass all waited for the member with most rows. Delayed weight gradients let it
 * be faster. After look(). */
static double rows_bound(const struct side *s)
{
    const struct pl_model *m = &s->model;
    double busiest = 0, mean = 0, uneven = 0, tokens = (double)BATCH * m->seq;

    if (s->comm == MPI_COMM_NULL)
        return 1;
    MPI_Allreduce(MPI_IN_PLACE, turns.rows, MAX_TURNS * MAX_MEMBERS, MPI_DOUBLE, MPI_SUM, s->comm);
    for (int i = 0; i < turns.n; i++) {
        double most = 0;

        for (int k = 0; k < s->layout.ep; k++) {
            mean += turns.rows[i][k] / s->layout.ep;
            most = fmax(most, turns.rows[i][k]);
        }
        busiest += most;
    }
    for (int i = 0; i < m->layers; i++)
        if (pl_layer_is_moe(m, i))
            uneven += 18.0 * m->moe.top_k * m->moe.expert_ffn * m->hidden * tokens;
    return s->layout.world * s->flops / (s->flops + uneven * (busiest / mean - 1));
}

static struct pair compare(const char *model, const char *first, const char *second, int batch)
{
    struct side a, b;
    struct pair r;
    double t[MAX_REPEATS], q[MAX_REPEATS];

    side_open(&a, model, first, batch);
    side_open(&b, model, second, batch);
    step(&a, false);
    step(&b, false);
    for (int i = 0; i < opt.repeats; i++) {
        t[i] = step(&a, true);
        q[i] = step(&b, true) / t[i];
    }
    r = (struct pair){.seconds = median(t, opt.repeats), .quotient = median(q, opt.repeats)};
    look(&a, &r);
    if (a.layout.pp > 1)
        r.bound = schedule_bound(&a);
    else if (a.layout.ep > 1)
        r.bound = rows_bound(&a);
    side_close(&a);
    side_close(&b);
    return r;
}

/* Lines next to the one of train_step_2 WHAT. */
static void print_look(const char *what, const struct pair *p)
{
    char line[80];

    snprintf(line, sizeof(line), "%s: computes, longest rank", what);
    print("train_step_2", line, p->computes * 1e3, "ms");
    snprintf(line, sizeof(line), "%s: exchanges and waits, mean", what);
    print("train_step_2", line, p->talks * 1e3, "ms");
    if (p->bound == 0)
        return;
    snprintf(line, sizeof(line), "%s: if all wait for the longest in each pass", what);
    print("train_step_2", line, p->bound, "times one rank");
}

/* What the machine itself gives to two ranks: each does the work of one, and neither knows of the
 * other. */
static void bench_machine(void)
{
    struct side both, one;
    double t[MAX_REPEATS], q[MAX_REPEATS];

    side_open_copies(&both, dense, one_rank, BATCH, 2);
    side_open(&one, dense, one_rank, BATCH);
    step(&both, false);
    step(&one, false);
    for (int i = 0; i < opt.repeats; i++) {
        t[i] = step(&both, true);
        q[i] = 2 * step(&one, true) / t[i];
    }
    print_bar("train_step_2", "two ranks that share nothing", 1e3 * median(t, opt.repeats), "ms",
              "one rank", median(q, opt.repeats), no_bar);
    side_close(&both);
    side_close(&one);
}

static void bench_two(void)
{
    static const struct {
        const char *name, *model, *layout;
        double least;
        int batch;
    } cases[] = {
        {"train_step_2 dp", dense, "{\"world\":2,\"dp\":2,\"zero\":1,\"micro_batch\":4}", 1.9,
         BATCH},
        {"train_step_2 fsdp", dense, /* 0.9 of dp's */
         "{\"world\":2,\"dp\":2,\"zero\":3,\"micro_batch\":4,\"overlap_grad_reduce\":1,"
         "\"overlap_param_gather\":1}",
         1.71, BATCH},
        {"train_step_2 ep", experts,
         "{\"world\":2,\"ep\":2,\"zero\":1,\"micro_batch\":4,\"overlap_moe_a2a\":1}", 1.8, BATCH},
        {"train_step_2 tp", dense, "{\"world\":2,\"tp\":2,\"sp\":1,\"micro_batch\":4}", 1.75,
         BATCH},
        {"train_step_2 pp", dense, "{\"world\":2,\"pp\":2,\"micro_batch\":2}", 0.93, BATCH},
        {"train_step_2 cp", longer, "{\"world\":2,\"cp\":2}", 1.85, 1},
    };

    if (wanted("train_step_2"))
        bench_machine();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pair p;
        bool pp = strstr(cases[i].layout, "pp") != NULL;
        const char *one = cases[i].batch == BATCH ? one_rank : "{\"world\":1}";

        if (!wanted("train_step_2") && !wanted(cases[i].name))
            continue;
        p = compare(cases[i].model, cases[i].layout, one, cases[i].batch);
        print_bar("train_step_2", cases[i].name + strlen("train_step_2 "), p.seconds * 1e3, "ms",
                  pp ? "bound of its schedule" : "one rank", p.quotient / (pp ? p.bound : 1),
                  AT_LEAST(cases[i].least));
        print_look(cases[i].name + strlen("train_step_2 "), &p);
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
        p = compare(cases[i].model, cases[i].layout, two, BATCH);
        print_bar("oversubscribed", cases[i].name + strlen("oversubscribed "), p.seconds * 1e3,
                  "ms", "two ranks, dp2", 1 / p.quotient, AT_MOST(1.3));
    }
}

/* ---- memory -------------------------------------------------------------- */

static double resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%*s %ld", &pages) != 1)
        side_die("no /proc/self/statm");
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Planned bytes of every rank of every legal layout on up to 8 ranks against those handed out.
 * Returns how many layouts. */
static int handed_out(struct cover *all, const char *model, const struct pl_workload *w,
                      double *worst)
{
    struct pl_model m;
    struct pl_problem problem = {&m, NULL, w, pl_trainer_find("partune")};

    side_model(&m, model);
    for (int size = 1; size <= 8; size++)
        cover_enumerate(all, &m, w, size, 16, PL_GRADS_FP32);
    for (int i = opt.rank; i < all->n; i += 8)
        for (int rank = 0; rank < all->l[i].world; rank++) {
            struct pl_memory planned;
            struct tr_device d;
            enum pl_mem_class cls;
            struct err e = {0};
            double asked;

            pl_memory_rank(&planned, &problem, &all->l[i], rank);
            if (tr_device_init(&cls, &asked, &d, &m, &all->l[i], w, rank, UINT64_MAX, &e) < 0)
                side_die(e.text);
            /* the mapping, and what the kernels' pool takes besides */
            *worst = fmax(*worst, fabs((double)(d.own.bytes + d.shared.bytes +
                                                kn_pool_bytes(all->l[i].threads)) /
                                           planned.total -
                                       1));
            tr_device_done(&d);
        }
    MPI_Allreduce(MPI_IN_PLACE, worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all->n;
}

/* Growth of resident memory of the rank that grows most over its plan, after one step. */
static double growth(const char *model, const struct pl_layout *l)
{
    struct side s;
    double before = resident_bytes(), ratio = 0;
    json_t *v = pl_layout_json(l);
    char *json = json_dumps(v, JSON_COMPACT);

    side_open(&s, model, json, MEMORY_BATCH);
    (void)side_step(&s);
    if (s.comm != MPI_COMM_NULL)
        ratio = (resident_bytes() - before) / s.r.device.used.total;
    side_close(&s);
    free(json);
    json_decref(v);
    MPI_Allreduce(MPI_IN_PLACE, &ratio, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return ratio;
}

static void bench_memory(void)
{
    static const struct {
        const char *name, *model;
    } models[] = {{"dense", dense}, {"experts", experts}};
    static const char *const layouts[] = {
        "{\"world\":1,\"micro_batch\":1}",
        "{\"world\":2,\"zero\":1,\"micro_batch\":1}",
        "{\"world\":4,\"tp\":2,\"sp\":1,\"pp\":2,\"micro_batch\":1}",
        ("{\"world\":8,\"tp\":2,\"sp\":1,\"pp\":2,\"zero\":1,\"micro_batch\":1,"
         "\"overlap_grad_reduce\":1}"),
        "{\"world\":4,\"pp\":4,\"micro_batch\":1,\"schedule\":\"zero-bubble\"}",
        "{\"world\":4,\"ep\":2,\"zero\":1,\"micro_batch\":1}",
    };

    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct pl_workload w = {.global_batch = BATCH, .seq = 256, .data = "synthetic"};
        struct cover all = {0};
        double off = 0;
        char what[120];
        int n = handed_out(&all, models[i].model, &w, &off);

        cover_done(&all);
        snprintf(what, sizeof(what), "%s: worst of %d layouts, largest difference", models[i].name,
                 n);
        print_bar("memory", what, off, "share of the plan", NULL, 0, AT_MOST(0.03));
        for (size_t k = 0; k < ARRAY_LEN(layouts); k++) {
            struct pl_layout l;
            char name[160];

            if (strstr(layouts[k], "\"ep\"") && i == 0)
                continue;
            side_layout(&l, models[i].model, layouts[k], MEMORY_BATCH);
            snprintf(what, sizeof(what), "%s: %.90s", models[i].name, pl_layout_text(name, &l));
            print_bar("memory", what, growth(models[i].model, &l), "resident growth over plan",
                      NULL, 0, (struct bar){0.9, 1.1});
        }
    }
}

/* ---- two hosts ----------------------------------------------------------- */

static struct side *open_overlap(struct side *s, const char *model, const char *layout, int batch,
                                 bool on)
{
    char text[256], sep = ',';

    snprintf(text, sizeof(text), "{\"world\":2%c%s", sep, layout);
    if (!on) /* the flags come last and are ones; ring attention has none */
        for (char *p = strstr(text, "overlap"); p && *p; p++)
            if (*p == '1')
                *p = '0';
    side_open(s, model, text, batch);
    s->r.ring_waits = !on; /* which no layout asks for */
    return s;
}

static void bench_overlap(void)
{
    static const struct {
        const char *name, *model, *layout;
        int batch;
        double hides; /* at least, of its communication; 0: no bar */
    } cases[] = {
        {"overlap dp", dense,
         "\"zero\":1,\"micro_batch\":8,\"overlap_grad_reduce\":1,\"overlap_param_gather\":1}",
         BATCH, 0.9},
        {"overlap tp", wide, "\"tp\":2,\"sp\":1,\"micro_batch\":4,\"tp_overlap\":1}", 8, 0.6},
        {"overlap cp", longer, "\"cp\":2}", 1, 0.8},
        {"overlap pp", dense, "\"pp\":2,\"micro_batch\":4,\"overlap_p2p\":1}", BATCH, 0},
        {"overlap ep", experts, "\"ep\":2,\"zero\":1,\"micro_batch\":4,\"overlap_moe_a2a\":1}",
         BATCH, 0.6},
        {"overlap ep and dp", experts,
         "\"ep\":2,\"zero\":1,\"micro_batch\":4,\"overlap_moe_a2a\":1,"
         "\"overlap_grad_reduce\":1,\"overlap_param_gather\":1}",
         BATCH, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct side on, off;
        double t[MAX_REPEATS], q[MAX_REPEATS], hidden[MAX_REPEATS], comm_on, comm_off, bound;
        double waits[MAX_REPEATS], slower[MAX_REPEATS];
        char what[120];

        if (!wanted("overlap") && !wanted(cases[i].name))
            continue;
        open_overlap(&on, cases[i].model, cases[i].layout, cases[i].batch, true);
        open_overlap(&off, cases[i].model, cases[i].layout, cases[i].batch, false);
        /* A pipeline also waits for its bubbles, which no overlap removes. */
        bound = on.layout.pp > 1 ? schedule_bound(&on) : on.layout.world;
        for (int k = 0; k < opt.repeats; k++) {
            double without, least;

            t[k] = side_steady(&on, 2, &comm_on);
            without = side_steady(&off, 2, &comm_off);
            q[k] = without / t[k];
            least = (without - comm_off) * on.layout.world / bound;
            hidden[k] = (without - t[k]) / (without - least);
            waits[k] = comm_on / comm_off;
            slower[k] = (t[k] - comm_on) / (without - comm_off);
        }
        side_close(&on);
        side_close(&off);
        print_bar("overlap", cases[i].name + strlen("overlap "), median(t, opt.repeats) * 1e3, "ms",
                  "the same without overlap", median(q, opt.repeats), AT_LEAST(1));
        snprintf(what, sizeof(what), "%s: share of its communication that is hidden",
                 cases[i].name + strlen("overlap "));
        print_bar("overlap", what, median(hidden, opt.repeats), "share", NULL, 0,
                  cases[i].hides > 0 ? AT_LEAST(cases[i].hides) : no_bar);
        snprintf(what, sizeof(what), "%s: time in exchanges and waits, on over off",
                 cases[i].name + strlen("overlap "));
        print("overlap", what, median(waits, opt.repeats), "times");
        snprintf(what, sizeof(what), "%s: time in everything else, on over off",
                 cases[i].name + strlen("overlap "));
        print("overlap", what, median(slower, opt.repeats), "times");
    }
}

static void bench_cores(void)
{
    if (wanted("train_step_1"))
        bench_one();
    bench_two();
}

static void bench_crowd(void)
{
    bench_oversubscribed();
    if (wanted("memory"))
        bench_memory();
}

static bool take_option(const char *a)
{
    int64_t n = 1;

    if (str_starts(a, "--bench=")) {
        opt.glob = a + 8;
        return true;
    }
    if (str_starts(a, "--repeats=") && str_to_i64(&n, a + 10, 1, MAX_REPEATS - 2) == 0) {
        opt.repeats = (int)n;
        return true;
    }
    return false;
}

/* The part that the arguments ask for, or NULL. */
static const struct part *parse(int argc, char **argv)
{
    const struct part *ret = NULL;

    for (size_t k = 0; argc > 1 && k < ARRAY_LEN(parts); k++)
        if (str_eq(argv[1], parts[k].name))
            ret = &parts[k];
    for (int i = 2; i < argc; i++)
        if (!take_option(argv[i]))
            ret = NULL;
    return ret;
}

int main(int argc, char **argv)
{
    const struct part *part = parse(argc, argv);
    int size;

    if (!part) {
        fprintf(stderr, "usage: bench_trainer cores|oversubscribed|hosts [--bench=GLOB] "
                        "[--repeats=N]\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &opt.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != part->ranks)
        side_die(part->ranks == 2 ? "this part is for 2 ranks" : "this part is for 8 ranks");
    /* A side's ranks decide by their own number whether they outnumber the cores. (On two hosts
     * every rank steps, and tr_finalize() knows its process manager by this.) */
    if (part->run != bench_overlap)
        unsetenv("MPI_LOCALNRANKS");
    part->run();
    MPI_Allreduce(MPI_IN_PLACE, &allocations, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (wanted("allocations"))
        print_bar("allocations", "in the steps above, all ranks", (double)allocations, "times",
                  NULL, 0, AT_MOST(0));
    tr_finalize();
    return 0;
}
