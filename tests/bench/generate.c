/* Random landscapes; see generate.h. */
#include "tests/bench/generate.h"

#include <math.h>

/* Standard deviations of log factors. */
static const double CLASS_SD = 0.35, BYTES_SD = 0.2, LEVEL_SD = 0.2, SMOOTH_SD = 0.12,
                    WORD_SD = 0.06, OWN_SD = 0.015;
/* Shares of stacks without fused attention, with gradients sharded from zero 1 on, without a
 * context of their own on the device. */
static const double KEEPS_MATRICES = 0.4, SHARDS_GRADIENTS = 0.5, NO_CONTEXT = 0.4;
/* Share of stacks where a constant that is 0 as shipped, as host time for a kernel, is not. */
static const double OTHER_STACK = 0.5;
static const double ACROSS_SD = 0.7; /* of tp over more than a node, one-sided */
/* By how much the log factors of a campaign differ from another's on one machine and stack; half of
 * its smooth factor is its own, too. */
static const double KIN_CLASS_SD = 0.1, KIN_BYTES_SD = 0.07, KIN_LEVEL_SD = 0.1;
/* Of the slopes in log devices and log layers and micro-batches, and of a layout at a fidelity. */
static const double SLOPE_SD = 0.03, SMALL_SD = 0.02, SMALL_OWN_SD = 0.015;
enum { MOST_EVENTS = 4096 };
enum { LEAST_LEGAL = 300, LEAST_FITTING = 60, WAVES = 6, AXES = 4 };

#define PICK(r, list) ((list)[rng_below(r, ARRAY_LEN(list))])

/* ---- the campaign -------------------------------------------------------- */

static int model_of(struct rng *r, json_t **ret)
{
    static const int layers[] = {16, 24, 32, 36, 40, 48, 60, 64, 80, 96, 120};
    static const int heads[] = {12, 16, 24, 32, 40, 48, 64, 80, 96, 128};
    static const int width[] = {64, 80, 96, 128, 128}, seq[] = {1024, 2048, 4096, 8192};
    static const int vocab[] = {32000, 50304, 51200, 100352, 128256};
    int l = PICK(r, layers), a = PICK(r, heads), h = a * PICK(r, width);
    bool gated = rng_unit(r) < 0.5;
    double parameters = 12.0 * l * h * (double)h;

    *ret = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s}", "name", "generated",
                     "layers", l, "hidden", h, "heads", a, "ffn",
                     gated ? (h * 8 / 3 + 255) / 256 * 256 : 4 * h, "seq", PICK(r, seq), "vocab",
                     PICK(r, vocab), "mlp", gated ? "swiglu" : "gelu", "norm",
                     gated ? "rmsnorm" : "layernorm", "positions", gated ? "rope" : "learned");
    return (int)(parameters / 1e9);
}

/* A random part of ascending values, the first and the last as wide as drawn. */
static json_t *some(struct rng *r, const int *value, size_t n, size_t least)
{
    size_t upto = least + rng_below(r, n - least + 1);
    json_t *list = json_array();

    for (size_t i = 0; i < upto; i++)
        json_array_append_new(list, json_integer(value[i]));
    return list;
}

static json_t *space_of(struct rng *r)
{
    static const int tp[] = {1, 2, 4, 8, 16}, pp[] = {1, 2, 4, 8, 16, 32},
                     vp[] = {1, 2, 3, 4, 6, 8}, mb[] = {1, 2, 4, 8, 16}, zero[] = {0, 1, 2, 3},
                     flag[] = {0, 1};

    return json_pack("{s:o, s:o, s:o, s:o, s:[s,s,s], s:o, s:o, s:[s,s], s:o, s:i, s:i, s:i}", "tp",
                     some(r, tp, ARRAY_LEN(tp), 4), "pp", some(r, pp, ARRAY_LEN(pp), 4), "vp",
                     some(r, vp, ARRAY_LEN(vp), 2), "micro_batch", some(r, mb, ARRAY_LEN(mb), 3),
                     "recompute", "none", "selective", "full", "zero",
                     some(r, zero, ARRAY_LEN(zero), 1), "sp", some(r, flag, ARRAY_LEN(flag), 1),
                     "schedule", "1f1b", "interleaved", "overlap_grad_reduce",
                     some(r, flag, ARRAY_LEN(flag), 1), "overlap_param_gather", 0, "overlap_p2p", 0,
                     "overlap_moe_a2a", 0);
}

/* On the cluster profile number GIVEN, or one that is drawn if that is negative; *RET_PROFILE says
 * which. SIZES: with as many times more devices as is drawn, for replicas of what fits in few. */
static json_t *campaign_of(struct rng *r, int given, bool sizes, int *ret_profile)
{
    static const struct {
        const char *name;
        int devices; /* a node */
        double gib;
    } profile[] = {{"dgx-a100", 8, 80},        {"dgx-h100", 8, 80},    {"h200", 8, 141},
                   {"frontier-mi250x", 8, 64}, {"aurora-pvc", 12, 64}, {"a100-800g", 8, 40}};
    static const int larger[] = {1, 4, 16};
    static const double of_memory[] = {0.12, 0.25, 0.5, 0.8}, each[] = {0.5, 1, 1.5, 2, 4};
    size_t drawn = rng_below(r, ARRAY_LEN(profile)), p = given < 0 ? drawn : (size_t)given;
    json_t *model = NULL;
    int billions = model_of(r, &model);
    /* So many devices that weights, gradients and optimizer take the share drawn, 4 to 4096 */
    double want = 18.0 * (billions + 1) * 1e9 / (PICK(r, of_memory) * profile[p].gib * 0x1p30);
    int nodes = 1;

    *ret_profile = (int)p;
    while (nodes * profile[p].devices < want && nodes * profile[p].devices < 2048)
        nodes *= 2;
    if (sizes)
        nodes *= PICK(r, larger);
    return json_pack("{s:s, s:o, s:{s:s, s:i}, s:{s:i, s:s}, s:s, s:o}", "name", "generated",
                     "model", model, "cluster", "profile", profile[p].name, "nodes", nodes,
                     "workload", "global_batch", (int)(PICK(r, each) * nodes * profile[p].devices),
                     "precision", "bf16", "trainer", "megatron", "space", space_of(r));
}

/* ---- its truth ----------------------------------------------------------- */

struct truth {
    int profile;
    struct pl_constants constants;
    double seconds[PL_COST_CLASSES], bytes[PL_MEM_CLASSES]; /* log factors */
    double level, words[3][4], across;
    bool shards_gradients, no_context;
    double wave[WAVES][AXES], phase[WAVES];
    struct pl_trainer trainer;
    double capacity;
    bool by_events; /* pipelines take what the event simulator says */
    uint64_t seed;
    double devices_slope, work_slope; /* what scale adds to log seconds, beyond all above */
};

/* Those shipped, by a factor each. What is 0 among them may be as in an unknown stack
 * (plan/stack.c); it is drawn from a stream of its own, which leaves the others as they were. */
static void constants_init(struct pl_constants *ret, struct rng *r)
{
    struct rng zeros = *r;

    *ret = pl_default_constants;
    rng_seed(&zeros, rng_mix(rng_u64(&zeros)));
    for (const struct pl_constant_name *n = pl_constant_names; n->name; n++) {
        double *v = pl_constant(ret, n), shipped = *v;
        double factor = exp(0.3 * rng_normal(r));

        if (shipped == 0.0 && rng_unit(&zeros) < OTHER_STACK) {
            shipped = n->start;
            factor = exp(n->other * rng_normal(&zeros));
        }
        *v = fmin(fmax(shipped * factor, n->min), n->max);
    }
}

static void truth_init(struct truth *x, const struct landscape *l, struct rng *r)
{
    memset(x, 0, sizeof(*x));
    constants_init(&x->constants, r);
    for (int c = 0; c < PL_COST_CLASSES; c++)
        x->seconds[c] = CLASS_SD * rng_normal(r);
    for (int c = 0; c < PL_MEM_SNAPSHOT; c++)
        x->bytes[c] = BYTES_SD * rng_normal(r);
    x->level = LEVEL_SD * rng_normal(r);
    for (int k = 0; k < 3; k++)
        for (int v = 0; v < 4; v++)
            x->words[k][v] = WORD_SD * rng_normal(r);
    for (int k = 0; k < WAVES; k++) {
        for (int a = 0; a < AXES; a++)
            x->wave[k][a] = 0.7 * rng_normal(r);
        x->phase[k] = 2.0 * M_PI * rng_unit(r);
    }
    x->trainer = *l->spec.trainer;
    x->trainer.flash = rng_unit(r) >= KEEPS_MATRICES;
    x->shards_gradients = rng_unit(r) < SHARDS_GRADIENTS;
    x->no_context = rng_unit(r) < NO_CONTEXT;
    x->across = exp(ACROSS_SD * fabs(rng_normal(r)));
    x->capacity = l->spec.cluster[0].device.memory_gib * 0x1p30;
}

/* The truth of another campaign on the machine and stack of X. */
static void truth_kin(struct truth *x, enum landscape_kin kin, struct rng *r)
{
    double sign = kin == LANDSCAPE_OPPOSED ? -1.0 : 1.0;

    for (int c = 0; c < PL_COST_CLASSES; c++)
        x->seconds[c] = sign * x->seconds[c] + KIN_CLASS_SD * rng_normal(r);
    for (int c = 0; c < PL_MEM_SNAPSHOT; c++)
        x->bytes[c] = sign * x->bytes[c] + KIN_BYTES_SD * rng_normal(r);
    x->level = sign * x->level + KIN_LEVEL_SD * rng_normal(r);
    for (int k = 0; k < 3; k++)
        for (int v = 0; v < 4; v++)
            x->words[k][v] *= sign;
    for (int k = 0; k < WAVES / 2; k++) {
        for (int a = 0; a < AXES; a++)
            x->wave[k][a] = 0.7 * rng_normal(r);
        x->phase[k] = 2.0 * M_PI * rng_unit(r);
    }
    if (kin == LANDSCAPE_OPPOSED)
        x->trainer.flash = !x->trainer.flash;
}

static double smooth(const struct truth *x, const struct pl_layout *l)
{
    const int v[AXES] = {l->tp, l->pp, l->vp, l->micro_batch};
    double sum = 0.0;

    for (int k = 0; k < WAVES; k++) {
        double at = x->phase[k];

        for (int a = 0; a < AXES; a++)
            at += x->wave[k][a] * log2(v[a]);
        sum += cos(at);
    }
    return SMOOTH_SD * sum * sqrt(2.0 / WAVES);
}

static double bytes_of(const struct truth *x, const struct pl_problem *of,
                       const struct pl_layout *at)
{
    struct pl_problem problem = *of;
    struct pl_layout stored = *at;
    struct pl_memory memory;
    double bytes = 0.0;

    if (x->shards_gradients && stored.zero == 1)
        stored.zero = 2;
    problem.trainer = &x->trainer;
    pl_memory_worst(&memory, &problem, &stored);
    for (int c = 0; c < PL_MEM_SNAPSHOT; c++)
        if (c != PL_MEM_WORKSPACE || !x->no_context)
            bytes += memory.bytes[c] * exp(x->bytes[c]);
    return bytes;
}

/* What the schedule takes event by event, over its closed form; 1 where there are so many
 * micro-batches that both agree. */
static double by_events(struct pl_cost_ctx *ctx, const struct pl_layout *at)
{
    struct pl_stage_time *store = NULL;
    struct pl_timeline line;
    struct pl_pipe pipe;
    double over = 1.0;

    pl_pipe_of(&pipe, &store, ctx, at);
    if (pipe.pp > 1 && pipe.microbatches <= MOST_EVENTS / (pipe.pp * pipe.vp) &&
        pl_simulate(&line, &pipe, NULL) == 0) {
        over = line.total / pl_pipe_seconds(&pipe);
        pl_timeline_done(&line);
    }
    free(store);
    return over;
}

/* tokens/s of PROBLEM, or 0 where it does not fit. OWN is the layout's own log factor. */
static double tokens_of(const struct truth *x, const struct pl_problem *problem,
                        struct pl_cost_ctx *ctx, const struct pl_layout *at, double own)
{
    double seconds = 0.0, tokens, pipeline = 1.0;
    struct pl_cost cost;

    if (bytes_of(x, problem, at) > x->capacity)
        return 0.0;
    pl_cost_at(&cost, ctx, at);
    if (at->tp > problem->cluster->devices_per_node)
        cost.seconds[PL_COST_TP] *= x->across;
    if (x->by_events)
        pipeline = by_events(ctx, at);
    for (int c = 0; c < PL_COST_CLASSES; c++)
        seconds += cost.seconds[c] * exp(x->seconds[c]) * (c <= PL_COST_BUBBLE ? pipeline : 1.0);
    tokens = (double)problem->workload->global_batch * problem->workload->seq;
    return tokens / seconds *
           exp(x->level + own + smooth(x, at) + x->words[0][at->recompute] + x->words[1][at->zero] +
               x->words[2][at->sp]);
}

static void fill(struct landscape *l, const struct truth *x, struct rng *r)
{
    struct pl_problem p = se_spec_problem(&l->spec);
    struct pl_cost_ctx *ctx;

    ctx = pl_cost_ctx_new(&p, &x->constants);
    l->tokens = mem_alloc(l->n * sizeof(double));
    for (size_t i = 0; i < l->n; i++) {
        l->tokens[i] = tokens_of(x, &p, ctx, &l->layout[i], OWN_SD * rng_normal(r));
        l->best = fmax(l->best, l->tokens[i]);
    }
    pl_cost_ctx_free(ctx);
}

/* Is there enough to search in? Its truth is X if KNOWN, else that is drawn too. */
static bool draw(struct landscape *l, struct rng *r, struct truth *x, bool known, bool sizes)
{
    struct pl_problem p;
    int profile = 0;
    size_t fitting = 0;
    struct err e = {0};

    memset(l, 0, sizeof(*l));
    l->campaign = campaign_of(r, known ? x->profile : -1, sizes, &profile);
    if (se_spec_parse(&l->spec, l->campaign, NULL, &e) < 0) {
        fprintf(stderr, "generate: %s: %s\n", e.pointer, e.text);
        exit(1);
    }
    p = se_spec_problem(&l->spec);
    if (pl_space_list(&l->layout, &l->n, SE_MAX_LAYOUTS, l->spec.space, &p, NULL, &e) < 0 ||
        l->n < LEAST_LEGAL)
        return false;
    if (!known)
        truth_init(x, l, r);
    x->profile = profile;
    fill(l, x, r);
    for (size_t i = 0; i < l->n; i++)
        fitting += l->tokens[i] > 0.0;
    return fitting >= LEAST_FITTING;
}

static void generate(struct landscape *ret, struct truth *x, uint64_t seed, bool sizes)
{
    struct rng r;

    rng_seed(&r, rng_mix(seed + 1));
    while (!draw(ret, &r, x, false, sizes))
        landscape_done(ret);
    snprintf(ret->name, sizeof(ret->name), "generated");
}

void landscape_generate(struct landscape *ret, uint64_t seed)
{
    struct truth x;

    generate(ret, &x, seed, false);
}

void landscape_generate_kin(struct landscape *ret, uint64_t seed, enum landscape_kin kin)
{
    struct truth x;
    struct rng r;

    if (kin == LANDSCAPE_UNRELATED) {
        landscape_generate(ret, seed + 1000000);
        return;
    }
    generate(ret, &x, seed, false);
    landscape_done(ret);
    rng_seed(&r, rng_mix(seed + 2000000));
    truth_kin(&x, kin, &r);
    while (!draw(ret, &r, &x, true, false))
        landscape_done(ret);
    snprintf(ret->name, sizeof(ret->name), "generated");
}

/* ---- smaller problems ---------------------------------------------------- */

struct truth *landscape_generate_sized(struct landscape *ret, uint64_t seed)
{
    struct truth *x = mem_alloc(sizeof(*x));
    struct rng r;

    generate(ret, x, seed, true);
    rng_seed(&r, rng_mix(seed + 3000000));
    x->by_events = true;
    x->seed = seed;
    x->devices_slope = SLOPE_SD * rng_normal(&r);
    x->work_slope = SLOPE_SD * rng_normal(&r);
    free(ret->tokens);
    ret->best = 0.0;
    rng_seed(&r, rng_mix(seed + 4000000));
    fill(ret, x, &r);
    snprintf(ret->name, sizeof(ret->name), "sized");
    return x;
}

/* The log factor that layout INDEX has by itself in fill(), which is the same at every size. */
static double own_of(const struct truth *x, size_t index)
{
    struct rng r;
    double own = 0.0;

    rng_seed(&r, rng_mix(x->seed + 4000000));
    for (size_t i = 0; i <= index; i++)
        own = OWN_SD * rng_normal(&r);
    return own;
}

double landscape_small(const struct truth *x, const struct landscape *l, size_t index, int fidelity)
{
    const struct pl_layout *whole = &l->layout[index];
    struct pl_problem p = se_spec_problem(&l->spec), small;
    struct pl_cost_ctx *ctx;
    struct pl_reduced reduced;
    uint64_t key = rng_mix(x->seed + 5000000 + (uint64_t)fidelity);
    double tokens, layers, batches, factor;

    if (!pl_reduce(&reduced, &p, whole, &l->spec.fidelity[fidelity - 1]))
        return -1.0;
    small = pl_reduced_problem(&reduced, &p);
    layers = (double)l->spec.model.layers / reduced.model.layers;
    batches = (double)l->spec.workload.global_batch / whole->dp * reduced.layout.dp /
              reduced.workload.global_batch;
    factor = x->devices_slope * log((double)whole->world / reduced.layout.world) +
             x->work_slope * log(layers * batches) + SMALL_SD * rng_normal_at(key, 0) +
             SMALL_OWN_SD * rng_normal_at(key, index + 1);
    ctx = pl_cost_ctx_new(&small, &x->constants);
    tokens = tokens_of(x, &small, ctx, &reduced.layout, own_of(x, index) + factor);
    pl_cost_ctx_free(ctx);
    return tokens;
}
