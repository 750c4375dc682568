/*
 * The same losses in every layout.
 *
 * Ten steps of a dense model and of one with experts, on one rank and then in every legal (tp, sp,
 * pp, ep, dp, zero, scope) on all powers of two of ranks up to those given. Many layouts run inside
 * one mpiexec: the ranks are cut into teams and each team takes the next layout. Every loss and
 * auxiliary loss must agree with one rank within 1e-4 relative; the norm of the first gradient
 * within 1e-5, later ones, which follow ten steps of AdamW, within 1e-3.
 *
 * Orders of fp32 summation differ by some 1e-7 to 1e-6 and ten steps of AdamW raise that little:
 * differences seen are below 2e-6. Leaving out the smallest sum there is, that of the norms'
 * gradients over the ranks of sequence parallelism, is seen as 1.6e-4 in the losses.
 */
#include "base/base.h"
#include "tests/mpi/allocations.h"
#include "trainer/step.h"

#include <assert.h>
#include <math.h>

enum { STEPS = 10, MAX_LAYOUTS = 4096 };

struct curve {
    double loss[STEPS], aux[STEPS], norm[STEPS];
};

static int world_rank, world_size, test_number, failures;
static int every = 1; /* of the layouts of a size, take each so-manieth */

static void die(const char *why)
{
    fprintf(stderr, "rank %d: %s\n", world_rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void parse(json_t **ret, const char *text)
{
    json_error_t je;

    *ret = json_loads(text, 0, &je);
    if (!*ret)
        die(je.text);
}

static void model_of(struct pl_model *m, int kind)
{
    static const char dense[] = "{\"name\":\"tiny\",\"layers\":4,\"hidden\":32,\"heads\":4,\"kv_"
                                "heads\":4,\"ffn\":48,\"vocab\":61,"
                                "\"seq\":16}";
    static const char mixtral[] =
        "{\"name\":\"tinymoe\",\"layers\":4,\"hidden\":32,\"heads\":4,\"kv_heads\":4,\"ffn\":48,"
        "\"vocab\":61,"
        "\"seq\":16,\"moe\":{\"experts\":4,\"top_k\":2,\"expert_ffn\":24,\"aux_loss_coef\":0.02}}";
    static const char shared[] =
        "{\"name\":\"shared\",\"layers\":4,\"hidden\":32,\"heads\":4,\"kv_heads\":4,\"ffn\":48,"
        "\"vocab\":61,\"seq\":16,\"moe\":{\"experts\":4,\"top_k\":1,\"expert_ffn\":24,\"shared_"
        "ffn\":16,"
        "\"every\":2}}";
    struct err e = {0};
    json_t *v;

    parse(&v, kind == 0 ? dense : kind == 1 ? mixtral : shared);
    if (pl_model_parse(m, v, &e) < 0)
        die(e.text);
    json_decref(v);
}

/* A fixed text with structure: token i of sample s. */
static int32_t token(uint64_t s, int i, int vocab)
{
    return (int32_t)((rng_mix(s * 31 + (uint64_t)i / 3) + (uint64_t)i) % (uint64_t)vocab);
}

/* SHUFFLE changes the order of summation within a global batch and nothing else. */
static void put_samples(struct tr_rank *r, uint64_t first, int shuffle)
{
    uint64_t batch = (uint64_t)r->workload.global_batch;

    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < r->layout.micro_batch; k++) {
            uint64_t s = first + (tr_sample_index(r, mb, k) + (uint64_t)shuffle) % batch;

            for (int i = 0; i <= r->workload.seq; i++)
                r->work.sample[i] = token(s, i, r->model.vocab);
            tr_sample_put(r, mb, k, r->work.sample);
        }
}

/* ---- which experts each token chose ---- */

enum { LAYERS = 4, BATCH = 4, SEQ = 16, TOP_K = 2 };

struct choices {
    int32_t expert[STEPS][LAYERS][BATCH][SEQ][TOP_K];
};

struct watch {
    const struct choices *want; /* NULL: record */
    struct choices *out;
    int step;
    bool off;           /* of a run whose samples stand elsewhere */
    double differ, all; /* choices that are not among the wanted ones */
};

static bool among(const int32_t *set, int k, int32_t x)
{
    for (int i = 0; i < k; i++)
        if (set[i] == x)
            return true;
    return false;
}

static void on_routed(void *arg, const struct tr_rank *r, int layer, const int32_t *idx)
{
    struct watch *w = arg;
    int k = (int)r->d.top_k, seq = r->workload.seq;
    int row0 = r->layout.sp ? (int)r->d.local_rows * r->comms.tp.rank : 0;

    if (w->off)
        return;
    for (int i = 0; i < (int)r->d.local_rows; i++) {
        int sample = (int)tr_sample_index(r, r->mb, (row0 + i) / seq), t = (row0 + i) % seq;

        for (int j = 0; j < k; j++) {
            if (!w->want) {
                w->out->expert[w->step][layer][sample][t][j] = idx[i * k + j];
                continue;
            }
            w->all += 1;
            w->differ += !among(w->want->expert[w->step][layer][sample][t], k, idx[i * k + j]);
        }
    }
}

static void run(struct curve *ret, MPI_Comm comm, const struct pl_model *m,
                const struct pl_layout *l, const struct pl_workload *w, int shuffle,
                struct watch *watch)
{
    static const struct tr_optim o = {.lr = 3e-3,
                                      .min_lr = 1e-4,
                                      .warmup_steps = 3,
                                      .steps = STEPS,
                                      .weight_decay = 0.1,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .clip = 1.0};
    struct tr_rank r;
    enum pl_mem_class cls;
    double asked;
    struct err e = {0};

    if (tr_rank_init(&r, comm, m, l, w, UINT64_MAX, die, &cls, &asked, &e) < 0)
        die(e.text);
    tr_params_init(&r.params, m, 7);
    r.routed = on_routed;
    r.routed_arg = watch;
    for (int n = 1; n <= STEPS; n++) {
        struct tr_result t;

        put_samples(&r, (uint64_t)(n - 1) * (uint64_t)w->global_batch, shuffle);
        watch->step = n - 1;
        allocations_counted = true;
        tr_step_grads(&r, &t, 0);
        tr_optim_step(&r, &o, n, t.norm);
        allocations_counted = false;
        ret->loss[n - 1] = t.loss;
        ret->aux[n - 1] = t.aux;
        ret->norm[n - 1] = t.norm;
    }
    tr_rank_done(&r);
}

static double rel(double a, double b)
{
    return fabs(a - b) / fmax(fabs(b), 1e-12);
}

/* Largest relative difference of two curves; NaN counts as infinite. The norm of the first gradient
 * is compared ten times as closely: AdamW forgives a gradient of the wrong size, the norm before
 * the first step does not. */
static double distance(const struct curve *a, const struct curve *b)
{
    double d = 0;

    for (int i = 0; i < STEPS; i++) {
        double x =
            fmax(rel(a->loss[i], b->loss[i]), rel(a->norm[i], b->norm[i]) * (i == 0 ? 10 : 0.1));

        if (b->aux[i] != 0)
            x = fmax(x, rel(a->aux[i], b->aux[i]));
        if (!(x < INFINITY))
            return INFINITY;
        d = fmax(d, x);
    }
    return d;
}

/* The axes that a schedule or a way of recomputing does not meet rotate with the layout's number.
 */
static void rotate(struct pl_layout *l, const struct pl_model *m, int i)
{
    struct pl_layout c;

    l->recompute = i % (l->schedule == PL_ZERO_BUBBLE ? 2 : 3);
    l->micro_batch = 1 + i % 2;
    l->overlap_grad_reduce = i / 2 % 2;
    l->overlap_param_gather = i / 3 % 2;
    l->overlap_p2p = (i + 1) / 2 % 2;
    l->overlap_moe_a2a = i % 2;
    c = *l; /* flags with nothing to overlap are not canonical */
    pl_layout_derive(&c);
    pl_layout_canonical(&c, m);
    l->overlap_grad_reduce = c.overlap_grad_reduce;
    l->overlap_param_gather = c.overlap_param_gather;
    l->overlap_p2p = c.overlap_p2p;
    l->overlap_moe_a2a = c.overlap_moe_a2a;
}

struct list {
    struct pl_layout *out;
    int n;
    const struct pl_model *m;
    const struct pl_workload *w;
    struct pl_cluster c;
    enum pl_precision precision;
};

static void consider(struct list *k, struct pl_layout l)
{
    const struct pl_trainer *t = pl_trainer_find("partune");

    l.precision = k->precision;
    rotate(&l, k->m, k->n);
    for (int mb = l.micro_batch; mb >= 1; mb--) {
        l.micro_batch = mb;
        if (pl_layout_derive(&l) && pl_layout_check(NULL, k->m, &k->c, &l, k->w, t)) {
            assert(k->n < MAX_LAYOUTS);
            k->out[k->n++] = l;
            return;
        }
    }
}

static void consider_schedules(struct list *k, struct pl_layout l)
{
    static const struct {
        enum pl_schedule s;
        int vp;
    } all[] = {{PL_1F1B, 1}, {PL_GPIPE, 1}, {PL_ZERO_BUBBLE, 1}, {PL_INTERLEAVED, 2}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        l.schedule = (int)all[i].s;
        l.vp = all[i].vp;
        if (i == 0 || l.zero_scope != PL_SCOPE_PLAIN) /* a schedule does not meet the optimizer */
            consider(k, l);
    }
}

/* Every legal mesh with WORLD ranks that the trainer has: tp, sp, pp, ep, etp, zero and its scope,
 * schedules. */
static void enumerate(struct list *k, int world)
{
    for (int tp = 1; tp <= world; tp *= 2)
        for (int pp = 1; tp * pp <= world; pp *= 2)
            for (int sp = 0; sp <= 1; sp++)
                for (int ep = 1; ep <= 4; ep *= 2)
                    for (int etp = 1; etp <= tp; etp += tp - 1 + (tp == 1))
                        for (int scope = 0; scope <= PL_SCOPE_PLAIN; scope++) {
                            struct pl_layout l;

                            pl_layout_default(&l, k->w);
                            l.world = world;
                            l.tp = tp;
                            l.pp = pp;
                            l.sp = sp;
                            l.ep = ep;
                            l.etp = etp;
                            l.zero = scope != PL_SCOPE_NONE;
                            l.zero_scope = scope;
                            consider_schedules(k, l);
                        }
}

/* D is the difference of the curves, then how many of the choices of experts differ, and of how
 * many. */
static void report(const struct pl_model *m, const struct pl_layout *l, const double *d,
                   double allowed)
{
    char text[160];
    bool good = d[0] < allowed;

    failures += !good;
    printf("%sok %d - %s %s world %d: largest difference %.2e of %.1e", good ? "" : "not ",
           ++test_number, m->name, pl_layout_text(text, l), l->world, d[0], allowed);
    if (d[2] > 0)
        printf(", %.0f of %.0f choices of experts differ", d[1], d[2]);
    printf("\n");
    fflush(stdout);
}

/* Layouts of one size: team i of the ranks takes layouts i, i + teams, ... */
static void run_size(struct list *k, int size, const struct curve *want,
                     const struct choices *choices, double allowed)
{
    static double d[MAX_LAYOUTS][3];
    struct tr_progress progress = {.yield = true};
    int teams = world_size / size, team = world_rank / size;
    MPI_Request req;
    MPI_Comm comm;

    k->n = 0;
    enumerate(k, size);
    memset(d, 0, sizeof(d));
    MPI_Comm_split(MPI_COMM_WORLD, team < teams ? team : MPI_UNDEFINED, world_rank, &comm);
    if (comm != MPI_COMM_NULL) {
        for (int i = team * every; i < k->n; i += teams * every) {
            struct watch watch = {.want = choices};
            struct curve got;
            int rank;

            run(&got, comm, k->m, &k->out[i], k->w, 0, &watch);
            MPI_Comm_rank(comm, &rank);
            d[i][0] = rank == 0 ? distance(&got, want) : 0; /* the same on every rank */
            d[i][1] = watch.differ;
            d[i][2] = watch.all;
        }
        MPI_Comm_free(&comm);
    }
    MPI_Iallreduce(MPI_IN_PLACE, d, 3 * k->n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &req);
    tr_wait(&progress, &req, 1);
    for (int i = 0; world_rank == 0 && i < k->n; i += every)
        report(k->m, &k->out[i], d[i], allowed);
}

/*
 * How far apart runs of one rank are that differ in nothing but the order of summation: over
 * samples and micro-batches (gradients), and inside every product by the instruction set, whose
 * block sizes differ.
 */
static double spread(const struct curve *want, const struct pl_model *m,
                     const struct pl_layout *one, const struct pl_workload *w)
{
    struct tr_progress progress = {.yield = true};
    enum kn_isa best = kn_isa();
    double most = 0;
    int i = 0;
    MPI_Request req;

    for (int isa = 0; isa <= (int)best; isa++)
        for (int shuffle = 0; kn_isa_set((enum kn_isa)isa) && shuffle < w->global_batch; shuffle++)
            for (int mb = 1; mb <= w->global_batch; mb *= 2) {
                struct pl_layout l = *one;
                struct curve got;

                if (i++ % world_size != world_rank)
                    continue;
                l.micro_batch = mb;
                run(&got, MPI_COMM_SELF, m, &l, w, shuffle, &(struct watch){.off = true});
                most = fmax(most, distance(&got, want));
            }
    kn_isa_set(best);
    MPI_Iallreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &req);
    tr_wait(&progress, &req, 1);
    return most;
}

static void run_model(int kind, enum pl_precision precision, int smallest)
{
    static struct pl_layout layout[MAX_LAYOUTS];
    struct pl_model m;
    struct pl_workload w = {.global_batch = 4, .precision = precision, .data = "synthetic"};
    struct pl_layout one;
    struct curve want;
    static struct choices choices;
    double allowed = 1e-4;
    struct list k = {.out = layout, .m = &m, .w = &w, .precision = precision};

    model_of(&m, kind);
    w.seq = m.seq;
    pl_cluster_here(&k.c);
    k.c.oversubscribe = true;
    pl_layout_default(&one, &w);
    one.precision = precision;
    one.world = 1;
    pl_layout_derive(&one);
    run(&want, MPI_COMM_SELF, &m, &one, &w, 0, &(struct watch){.out = &choices});
    if (precision == PL_BF16)
        allowed = 2 * spread(&want, &m, &one, &w);
    if (world_rank == 0)
        printf("# %s: loss %.6f -> %.6f, aux %.6f -> %.6f, norm %.4f -> %.4f\n", m.name,
               want.loss[0], want.loss[STEPS - 1], want.aux[0], want.aux[STEPS - 1], want.norm[0],
               want.norm[STEPS - 1]);
    for (int size = smallest; size <= world_size; size *= 2)
        run_size(&k, size, &want, &choices, allowed);
}

static int number(int argc, char **argv, int i, int otherwise)
{
    return argc > i ? (int)strtol(argv[i], NULL, 10) : otherwise;
}

/* parity [model and precision, 0 to 5; -1: all] [fewest ranks] [take every so-manieth layout] */
int main(int argc, char **argv)
{
    int only = number(argc, argv, 1, -1), smallest = number(argc, argv, 2, 1);

    every = number(argc, argv, 3, 1);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (int i = 0; i < 6; i++)
        if (only < 0 || only == i)
            run_model(i % 3, i < 3 ? PL_FP32 : PL_BF16, smallest);
    if (world_rank == 0) {
        failures += allocations != 0;
        printf("%sok %d - the step loop allocates nothing: %ld times\n", allocations ? "not " : "",
               ++test_number, allocations);
        printf("1..%d\n", test_number);
    }
    MPI_Finalize();
    return failures != 0;
}
