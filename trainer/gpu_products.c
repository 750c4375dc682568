/*
 * Matrix products of GPUs: their rates, and the algorithm of each that is fastest.
 *
 * A library (cuBLASLt) has several algorithms for a product, of which its heuristic names some.
 * Each of the first few runs as often as it takes to compare it, on all GPUs at once; rank 0 names
 * them, so all ranks measure and keep the same. Another one than the heuristic's first is kept only
 * if it is clearly faster, twice.
 */
#include "trainer/gpu_bench.h"

#include <math.h>

#include "base/base.h"

const char *const tr_product_forms[] = {"forward", "dgrad", "wgrad"};

enum { TRIED = 8, ALIGN = 256, MOST_DEGREES = 4, MOST_ROWS = 4 };

static const double CLEARLY = 1.02; /* times as fast */
static const double MODEL_S = 60;   /* for all products of a model */

static void run_gemm(struct tr_bench *bench, const struct tr_bench_job *job)
{
    kn_gemm(bench->pool, &job->gemm);
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Room for A, B and C in a row; C of a weight's gradient is added to, in fp32. */
static size_t place(struct kn_gemm *ret, const struct tr_product *product, char *own)
{
    size_t m = product->m, n = product->n, k = product->k, width = kn_type_size(product->type);
    bool wgrad = product->form == TR_WGRAD;
    size_t a = aligned(m * k * width), b = aligned(k * n * width);

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
                            .ct = wgrad || product->wide ? KN_F32 : product->type};
    ret->lda = ret->ta ? m : k;
    ret->ldb = ret->tb ? k : n;
    ret->ldc = n;
    return a + b + m * n * kn_type_size(ret->ct);
}

static double flops_of(const struct tr_product *product)
{
    return 2.0 * (double)product->m * (double)product->n * (double)product->k;
}

/* ---- algorithms ---------------------------------------------------------- */

/* Rank 0's algorithms for GEMM, on all ranks. */
static int candidates(struct kn_algo ret[TRIED], struct tr_bench *bench, const struct kn_gemm *gemm)
{
    struct tr_group *world = &bench->comms.world;
    struct {
        struct kn_algo algo[TRIED];
        int count;
    } said = {.count = 0};
    MPI_Request req;

    if (world->rank == 0)
        said.count = (int)kn_gemm_algos(said.algo, TRIED, gemm);
    MPI_Ibcast(&said, (int)sizeof(said), MPI_BYTE, 0, world->comm, &req);
    tr_wait(world->progress, tr_op_begin(TR_OP_BROADCAST, world), &req, 1);
    memcpy(ret, said.algo, sizeof(said.algo));
    return said.count;
}

/* Use ALGO on all ranks; false: one refuses it. */
static bool use(struct tr_bench *bench, const struct kn_algo *algo)
{
    return tr_bench_agree(bench, kn_gemm_use(algo), MPI_MIN) > 0;
}

/* Is PRODUCT's algorithm clearly faster than FIRST when both run once more? Of several that are
 * equal the best time is the luckiest one. Their rates become those of this time. */
static bool confirmed(struct tr_product *product, struct tr_bench *bench,
                      const struct tr_bench_job *job, const struct kn_algo *first)
{
    double flops = flops_of(product), again;

    (void)use(bench, first);
    again = flops / tr_bench_quick(bench, run_gemm, job);
    product->first_flops = fmax(product->first_flops, again);
    (void)use(bench, &product->algo);
    product->algo_flops = flops / tr_bench_quick(bench, run_gemm, job);
    return product->algo_flops > CLEARLY * product->first_flops;
}

/* Choose the algorithm of PRODUCT, whose arrays JOB has, and use it from here on. */
static void tune(struct tr_product *product, struct tr_bench *bench, const struct tr_bench_job *job)
{
    struct kn_algo algo[TRIED], first = {.product = {.m = 0}};
    int n = candidates(algo, bench, &job->gemm);

    for (int i = 0; i < n; i++) {
        double rate;

        if (!use(bench, &algo[i]))
            continue;
        rate = flops_of(product) / tr_bench_quick(bench, run_gemm, job);
        if (product->tried++ == 0) {
            first = algo[i];
            product->first_flops = rate;
        } else if (rate <= product->algo_flops) {
            continue;
        }
        product->algo = algo[i];
        product->algo_number = i;
        product->algo_flops = rate;
    }
    if (product->algo_number && !confirmed(product, bench, job, &first)) {
        product->algo = first;
        product->algo_number = 0;
        product->algo_flops = product->first_flops;
        (void)use(bench, &first);
    } else if (product->tried) {
        (void)use(bench, &product->algo);
    } else {
        product->algo_flops = flops_of(product) / tr_bench_quick(bench, run_gemm, job);
    }
    product->flops = product->algo_flops;
}

/* PRODUCT joins RET's. False: the memory or, at RATE (0: unknown), the patience has no room. */
static bool add(struct tr_gpu_rates *ret, struct tr_bench *bench, struct tr_product product,
                double rate, bool thorough)
{
    struct tr_bench_job job;
    size_t bytes = place(&job.gemm, &product, bench->own);

    if (bytes > bench->room || ret->products == TR_PRODUCTS ||
        (rate > 0 && flops_of(&product) > rate * TR_BENCH_PATIENCE))
        return false;
    tr_bench_fill(bench, bytes);
    tune(&product, bench, &job);
    if (thorough)
        product.flops = flops_of(&product) / tr_bench_time(bench, run_gemm, &job);
    ret->product[ret->products++] = product;
    return true;
}

/* ---- what every profile has ---------------------------------------------- */

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

_Static_assert(2 * ARRAY_LEN(shapes) < TR_PRODUCTS, "room for each in two types");

/* All that fit the memory and, at the rate of the one before, the patience. */
static void basic(struct tr_gpu_rates *ret, struct tr_bench *bench, enum kn_type type)
{
    double rate = 0;

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct tr_product product = shapes[i];

        product.type = type;
        if (add(ret, bench, product, rate, true))
            rate = ret->product[ret->products - 1].flops;
    }
}

/* ---- a model's ------------------------------------------------------------ */

static void list_product(struct tr_gpu_rates *list, enum tr_product_form form, size_t m, size_t n,
                         size_t k, bool wide)
{
    if (list->products < TR_PRODUCTS)
        list->product[list->products++] = (struct tr_product){
            .form = form, .m = m, .n = n, .k = k, .type = KN_BF16, .wide = wide};
}

/* Products in bf16 between rows of the hidden width and of WIDTH elements, which tp divides: from
 * the former to the latter (IN), or back. WIDE: what adds up over tp is in fp32. */
static void add_pair(struct tr_gpu_rates *list, const struct pl_dims *dims, size_t width, bool in,
                     bool wide)
{
    size_t rows = dims->rows, hidden = dims->hidden;

    if (!width)
        return;
    if (in) {
        list_product(list, TR_FORWARD, rows, width, hidden, false);
        list_product(list, TR_DGRAD, rows, hidden, width, wide);
        list_product(list, TR_WGRAD, width, hidden, rows, false);
    } else {
        list_product(list, TR_FORWARD, rows, hidden, width, wide);
        list_product(list, TR_DGRAD, rows, width, hidden, false);
        list_product(list, TR_WGRAD, hidden, width, rows, false);
    }
}

static bool divides(int tp, const struct pl_model *model)
{
    return model->heads % tp == 0 && model->kv_heads % tp == 0 && model->ffn % tp == 0 &&
           model->moe.shared_ffn % tp == 0;
}

/* Of attention without latents, feed-forwards that are no routed experts, and the output. */
static void add_dims(struct tr_gpu_rates *list, const struct pl_model *model, int tp, int rows)
{
    struct pl_workload workload = {.seq = model->seq, .global_batch = rows};
    struct pl_layout layout;
    struct pl_dims dims;

    pl_layout_replicas(&layout, 1);
    layout.tp = tp;
    layout.world = tp;
    layout.micro_batch = rows;
    layout.precision = PL_BF16;
    pl_dims(&dims, model, &layout, &workload);
    if (!pl_model_is_mla(model))
        add_pair(list, &dims, dims.qkv, true, tp > 1);
    add_pair(list, &dims, dims.attn, false, tp > 1);
    for (int moe = 0; moe < 2; moe++) {
        size_t ffn = moe ? dims.shared_ffn : dims.ffn;

        add_pair(list, &dims, dims.gates * ffn, true, tp > 1);
        add_pair(list, &dims, ffn, false, tp > 1);
    }
    add_pair(list, &dims, dims.vocab, true, tp > 1);
}

static bool has(const struct tr_gpu_rates *rates, const struct tr_product *product)
{
    for (int i = 0; i < rates->products; i++) {
        const struct tr_product *p = &rates->product[i];

        if (p->form == product->form && p->m == product->m && p->n == product->n &&
            p->k == product->k && p->type == product->type && p->wide == product->wide)
            return true;
    }
    return false;
}

static void of_model(struct tr_gpu_rates *ret, struct tr_bench *bench, const struct pl_model *model)
{
    AUTO_FREE struct tr_gpu_rates *list = mem_alloc(sizeof(*list));
    double rate = tr_best_product(ret, KN_BF16), begun = (double)clock_mono_ns() * 1e-9;
    int ranks = bench->comms.world.size, tp = 1;

    for (int rows = 1; rows <= MOST_ROWS; rows *= 2)
        for (int i = 0; i < MOST_DEGREES; i++)
            if ((tp = 1 << i) <= ranks && divides(tp, model))
                add_dims(list, model, tp, rows);
    for (int i = 0; i < list->products; i++) {
        double spent = tr_bench_agree(bench, (double)clock_mono_ns() * 1e-9 - begun, MPI_MAX);

        if (!has(ret, &list->product[i]) &&
            (spent > MODEL_S || !add(ret, bench, list->product[i], rate, false)))
            ret->left_out++;
    }
}

void tr_bench_products(struct tr_gpu_rates *ret, struct tr_bench *bench,
                       const struct pl_model *model)
{
    basic(ret, bench, KN_BF16);
    basic(ret, bench, KN_F32);
    if (model)
        of_model(ret, bench, model);
}

double tr_best_product(const struct tr_gpu_rates *rates, enum kn_type type)
{
    double best = 0;

    for (int i = 0; i < rates->products; i++)
        if (rates->product[i].type == type)
            best = fmax(best, rates->product[i].flops);
    return best;
}

/* ---- watts --------------------------------------------------------------- */

static const double IDLE_S = 1, BUSY_S = 2, PART_S = 0.1;

static double joules(const struct tr_bench *bench)
{
    return bench->meter.gpu ? tr_nvml_joules(bench->meter.gpu) : (double)NAN;
}

/* Mean over the GPUs of JOULES, those of each, over SECONDS; 0: unknown. */
static double mean_watts(struct tr_bench *bench, double joules, double seconds)
{
    double all = tr_bench_agree(bench, joules / seconds, MPI_SUM);

    return isfinite(all) && all > 0 ? all / bench->comms.world.size : 0;
}

void tr_bench_idle_watts(struct tr_gpu_rates *ret, struct tr_bench *bench)
{
    struct timespec nap = {.tv_sec = (time_t)IDLE_S};
    double from, begun;

    if (tr_bench_agree(bench, bench->meter.gpu != NULL, MPI_MIN) <= 0)
        return;
    kn_wait(bench->pool);
    from = joules(bench);
    begun = (double)clock_mono_ns() * 1e-9;
    (void)nanosleep(&nap, NULL);
    ret->idle_watts =
        mean_watts(bench, joules(bench) - from, (double)clock_mono_ns() * 1e-9 - begun);
}

/* While all GPUs run the fastest product in bf16. */
void tr_bench_busy_watts(struct tr_gpu_rates *ret, struct tr_bench *bench)
{
    double best = tr_best_product(ret, KN_BF16), spent = 0, from;
    const struct tr_product *product = ret->product;
    struct tr_bench_job job;
    int count;

    if (ret->idle_watts <= 0 || best <= 0)
        return;
    while (product->type != KN_BF16 || product->flops < best)
        product++;
    tr_bench_fill(bench, place(&job.gemm, product, bench->own));
    count = (int)fmin(fmax(PART_S * best / flops_of(product), 1), 1e6);
    from = joules(bench);
    while (spent < BUSY_S)
        spent += tr_bench_batch(bench, run_gemm, &job, count);
    ret->busy_watts = mean_watts(bench, joules(bench) - from, spent);
    if (ret->busy_watts < ret->idle_watts) /* the counter is wrong, or others used the GPUs */
        ret->busy_watts = ret->idle_watts = 0;
}
