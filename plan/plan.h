/*
 * plan - the domain: models, clusters, layouts, the rules that make a layout legal, the bytes and
 * the seconds it needs. Pure functions of their arguments; no I/O but reading preset files.
 *
 * Words are those of docs/reference/campaign.md and layout.md: the JSON, SQL, HTTP and C names of
 * a thing are the same. Sizes are bytes (uint64_t or double where they feed a model), times are
 * seconds (double), bandwidths are 10^9 bytes/s, peaks are 10^12 floating-point operations/s.
 *
 * Structs here are plain values: copy them freely; none owns memory unless its comment says so.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "plan/layout.h"

/* ---- model --------------------------------------------------------------- */

enum pl_mlp { PL_SWIGLU, PL_GELU };
enum pl_norm { PL_RMSNORM, PL_LAYERNORM };
enum pl_positions { PL_ROPE, PL_LEARNED };

/*
 * The load-balancing loss, of which aux_loss_coef times is added to the cross-entropy. Over a pool
 * of tokens let f_e be the choices that fell on expert e divided by the tokens (so f adds up to
 * top_k) and P_e the mean router probability of e, by a softmax over all experts; only P is
 * differentiated (Fedus et al. 2021). The objective of a step is the mean over its pools of
 *
 *   sequence     E sum_e f_e P_e, a pool for each sequence of each layer
 *   huggingface  E sum_e f_e P_e, a pool for each micro-batch, of all its tokens in all layers:
 *                load_balancing_loss_func() of transformers' modeling_mixtral.py
 *   megatron     E / top_k sum_e f_e P_e, a pool for each micro-batch of each layer, the layers
 *                added up: "aux_loss" of megatron/core/transformer/moe/router.py
 */
enum pl_aux_loss { PL_AUX_SEQUENCE, PL_AUX_HUGGINGFACE, PL_AUX_MEGATRON };

extern const char *const pl_aux_loss_names[]; /* by enum pl_aux_loss, ends in NULL */

struct pl_moe {
    int experts; /* 0: a dense model, and the other fields mean nothing */
    int top_k;
    int expert_ffn;
    enum pl_aux_loss aux_loss; /* which load-balancing loss; "sequence" unless said */
    double aux_loss_coef;      /* its coefficient; 0.01 unless said */
    double capacity_factor;    /* 0: dropless */
    int shared_ffn;            /* width of the experts that every token visits; 0: none */
    int every;                 /* layer l is MoE if (l + 1) % every == 0; 1 unless said */
    int dense_layers;          /* the first ones are dense whatever `every` says */
};

struct pl_model {
    char name[64];
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
    enum pl_mlp mlp;
    enum pl_norm norm;
    enum pl_positions positions;
    double rope_theta, norm_eps, init_std;
    bool tied; /* output projection shares the embedding */
    struct pl_moe moe;
};

/* JSON is an object or the name of a preset. Unset fields get their defaults (kv_heads = heads,
 * head_dim = hidden / heads, the design's constants). Refused by pointer: unknown keys, absent or
 * absurd sizes. */
int pl_model_parse(struct pl_model *ret, const json_t *json, struct err *error);
json_t *pl_model_json(const struct pl_model *model); /* complete object, new reference */

bool pl_model_is_moe(const struct pl_model *model);
bool pl_layer_is_moe(const struct pl_model *model, int layer); /* LAYER in [0, layers) */
int pl_model_moe_layers(const struct pl_model *model);         /* how many are */
/* The coefficient that presses on the routers of MODEL (it has experts) under definition AS as
 * hard as its own does under its own: where the experts are used evenly the gradients are equal. */
double pl_aux_loss_coef(const struct pl_model *model, enum pl_aux_loss as);
uint64_t pl_model_params(const struct pl_model *model);        /* all parameters */
uint64_t pl_model_active_params(const struct pl_model *model); /* those that one token meets */

/* Model FLOPs of one token in a sequence of SEQ tokens, forward and backward: 3 x forward, full T x
 * T attention, no recompute (Megatron's convention). */
double pl_model_flops_per_token(const struct pl_model *model, int seq);

/* The same with the forward pass of every layer done again, the head's not: what "hardware FLOPs"
 * count under full recomputation (Narayanan et al. 2021, equation 3; Megatron-DeepSpeed's log). */
double pl_model_hardware_flops_per_token(const struct pl_model *model, int seq);

/* ---- cluster ------------------------------------------------------------- */

enum { PL_MAX_LINKS = 8 };

struct pl_link {
    int span;      /* smallest group of consecutive ranks that needs this link; INT_MAX is "all" */
    double gbs;    /* each way per device */
    double share;  /* of gbs that collectives reach, where it was measured; 0: the usual share */
    bool per_pair; /* gbs is of one pair: a device sends to all others of the span at once */
    double latency_us;
    char kind[48];
};

struct pl_device {
    char name[64];
    double tflops_fp32, tflops_bf16, tflops_fp8; /* dense peaks; 0: unknown */
    double gemm_tflops; /* best measured GEMM in bf16 (fp32 on a CPU); 0: unknown */
    double
        sustained; /* share of that under the load of a long run (clocks, power); 0.9 unless said */
    double memory_gib; /* what the vendor's tool shows as usable */
    double memory_gbs;
    bool cpu; /* a processor core (JSON "kind": "cpu") */
};

struct pl_cluster {
    char name[64];
    int nodes, devices_per_node;
    struct pl_device device; /* on a CPU the device is one core with its share of memory */
    struct pl_link link[PL_MAX_LINKS];
    int nlinks;         /* ascending span */
    bool oversubscribe; /* more ranks than devices are allowed */
    bool measured;      /* constants were measured here, not copied from a data sheet */
};

/* True where a device is a processor core: ranks share memory and threads count against cores. */
bool pl_cluster_is_cpu(const struct pl_cluster *cluster);

/* JSON is an object, {"profile": name, "nodes": n}, a profile's name, or NULL for `local`.
 * LOCAL is the parsed profiles/local.json, or NULL: then `local` is this machine's cores and memory
 * with conservative assumed rates. */
int pl_cluster_parse(struct pl_cluster *ret, const json_t *json, const struct pl_cluster *local,
                     struct err *error);
json_t *pl_cluster_json(const struct pl_cluster *cluster);
int pl_cluster_devices(const struct pl_cluster *cluster);

/* This machine as a cluster of one node of cores; rates are assumed, memory is the system's. */
void pl_cluster_here(struct pl_cluster *ret);

/* Slowest link that a group of SIZE ranks with stride STRIDE crosses. */
const struct pl_link *pl_cluster_link(const struct pl_cluster *cluster, int size, int stride);

/* Names of presets and profiles, NULL-terminated, and the JSON text of one (NULL if unknown). */
const char *const *pl_model_presets(void);
const char *const *pl_cluster_presets(void);
const char *pl_model_preset(const char *name);
const char *pl_cluster_preset(const char *name);

/* ---- workload and trainer ------------------------------------------------ */

enum pl_precision { PL_FP32, PL_BF16, PL_FP8 };

extern const char *const pl_precision_names[]; /* "fp32" …, NULL */

struct pl_workload {
    int global_batch; /* sequences a step: the same in every trial */
    int seq;          /* tokens a sequence; the model's unless the workload says otherwise */
    enum pl_precision precision; /* default of a layout that does not say */
    char data[64];               /* name of a data set; "synthetic" always exists */
};

struct pl_trainer;
/* Without a precision: fp32 for the bundled trainer, bf16 for those that run on GPUs. */
int pl_workload_parse(struct pl_workload *ret, const json_t *json, const struct pl_model *model,
                      const struct pl_trainer *trainer, struct err *error);
json_t *pl_workload_json(const struct pl_workload *workload);

struct pl_check;

/* What a trainer can do; the rule trainer-supports speaks from it. A trainer's space is what its
 * own exporter writes without loss. */
struct pl_trainer {
    const char *name;
    unsigned by;                                   /* its PL_BY_ bit in plan/keys.def */
    bool bundled;                                  /* partune-train: its memory plan is exact */
    bool gelu, layernorm, learned, tied, capacity; /* of the model, as are these: */
    bool shared_expert, moe_every, dense_layers;
    /* Of the layout, beside the column of plan/keys.def: values of keys that have several. */
    bool gpipe, zero_bubble, selective, full, bf16, fp8;
    bool uneven_layers;     /* layers need not divide by pp * vp */
    int min_zero, max_zero; /* stages of sharding beside 0; 0, 0: none */
    /* What it does by itself: no layout can say otherwise. */
    bool always_overlaps;   /* reduction of gradients, and the gathers of zero 2 and 3 */
    bool pair_overlaps;     /* pipeline sends of two interleaved stages */
    bool experts_follow_tp; /* etp is tp where ep is 1, and 1 elsewhere */
    void (*limits)(
        struct pl_check *check); /* what depends on several keys (plan/supports.c), or NULL */
    /* How it runs, for the cost and memory models. */
    bool tp_overlap;    /* tensor-parallel collectives run in pieces beside the products */
    bool tp_async;      /* those of the backward pass run beside the weight gradient's product */
    bool half_grads;    /* gradients are kept and reduced in the layout's precision, not in fp32 */
    bool summed_grads;  /* and summed over micro-batches in fp32 besides */
    bool tensor_gather; /* zero 3 gathers tensor by tensor, not layer by layer */
    bool eager; /* each operation a kernel of its own: what lies between products crosses memory
                   twice */
    double selective_share; /* of a layer's forward pass that recompute "selective" repeats; 0:
                               attention's core */
    bool flash;             /* attention keeps no T x T matrix for the backward pass */
    int flash_units;  /* generation of matrix units that its kernels were written for: 1 before
                         Ampere (FlashAttention, Triton), 2 Ampere (FlashAttention-2), 3 Hopper
                         (FlashAttention-3, cuDNN 9); 0: whatever the device has */
    bool eager_loss;  /* PyTorch's cross entropy as it is, of logits in fp32 */
    bool fp8_delayed; /* fp8 scales come from earlier steps; weights are cast once a step */
    bool fp8_current; /* fp8 scales are of the moment, one a tensor; weights are cast once a step */
    bool weighs_rows; /* router's weights meet the experts' hidden rows, not their outputs */
    bool whole_start; /* zero 3: the model is built whole on the device before it is sharded */
};

/* "partune", "megatron", "torchtitan", "deepspeed", "any"; NULL if unknown. */
const struct pl_trainer *pl_trainer_find(const char *name);
const char *const *pl_trainer_names(void); /* NULL-terminated */

/*
 * What a layout is judged for: this model, on this cluster, doing this work, in this trainer.
 *
 * Every member is borrowed and none is NULL, unless a function says that it does not read it. The
 * struct itself is four pointers: it is copied freely, and only what it points to must live on.
 */
struct pl_problem {
    const struct pl_model *model;
    const struct pl_cluster *cluster;
    const struct pl_workload *workload;
    const struct pl_trainer *trainer;
};

/* ---- legality ------------------------------------------------------------ */

enum { PL_MAX_VIOLATIONS = 24 };

struct pl_violation {
    const char *rule; /* "batch-divides" */
    const char *key;  /* layout key that is at fault first: "micro_batch" */
    char text[160];   /* "global_batch 32 is not a multiple of micro_batch 5 x dp 2" */
};

struct pl_verdict {
    int count; /* 0: legal */
    struct pl_violation v[PL_MAX_VIOLATIONS];
};

/* The one engine: every broken rule with its numbers. Returns true if the layout is legal.
 * RET may be NULL when only the answer matters: the check then stops at the first broken rule. */
bool pl_layout_check(struct pl_verdict *ret, const struct pl_problem *problem,
                     const struct pl_layout *layout);

const char *const *pl_rule_names(void); /* NULL-terminated */

/* "batch-divides: global_batch ...; heads-tp: ..." into BUF. */
char *pl_verdict_text(char *buf, size_t size, const struct pl_verdict *verdict);

/* ---- spaces and the baseline --------------------------------------------- */

enum { PL_SPACE_VALUES = 256 };

/* The values that one key may take, ascending. */
struct pl_space_axis {
    bool given; /* listed by the campaign; else they are what the trainer and the model admit */
    int n;
    int value[PL_SPACE_VALUES];
};

/* A set of layouts: the legal ones of a product. Row I of pl_layout_keys is axis I; a derived key
 * restricts if it is given and follows from the others if not (n = 0). */
struct pl_space {
    struct pl_space_axis axis[PL_LAYOUT_KEYS];
};

/*
 * Read a campaign's "space": {<layout key>: value | [values] | "auto"}; JSON may be NULL. An absent
 * key means every value that the trainer supports for tp, sp, pp, vp, schedule, ep, etp, zero,
 * zero_scope, micro_batch, recompute and the overlap flags, all devices for world, powers of two
 * for cp where the trainer has it and a sequence has 8,192 tokens or more, and else the default
 * for cp, precision and threads; "auto" means every supported value for any key. Refused by
 * pointer: unknown keys and words, values out of range, a value given twice.
 */
int pl_space_parse(struct pl_space *ret, const json_t *json, const struct pl_problem *problem,
                   struct err *error);
/* {"tp":[1,2],…}: the axes with values, words where a key has them. */
json_t *pl_space_json(const struct pl_space *space);
const struct pl_space_axis *pl_space_axis(const struct pl_space *space, const char *key);

/* How long work over a whole space may take: SPENT says which share of it is gone, and is asked
 * every millisecond or so; at 1 the work ends with what it has. NULL is patience without end. */
struct pl_patience {
    double (*spent)(void *arg);
    void *arg;
};

bool pl_patience_over(const struct pl_patience *patience); /* PATIENCE may be NULL */

/* Called once for each legal layout, in a fixed order; false stops. */
typedef bool pl_space_visit(void *arg, const struct pl_layout *layout);

/* Visit every legal layout of SPACE; returns how many were visited. */
size_t pl_space_enumerate(const struct pl_space *space, const struct pl_problem *problem,
                          pl_space_visit *visit, void *arg);

/* The legal layouts as an array that the caller frees, at most MAX of them. *RET_COUNT is their
 * number. Returns 0, or -E2BIG when the space holds more than MAX (nothing is returned then). */
int pl_space_list(struct pl_layout **ret, size_t *ret_count, size_t max,
                  const struct pl_space *space, const struct pl_problem *problem,
                  struct err *error);
/* The same; -ECANCELED if PATIENCE (may be NULL) is over before. */
int pl_space_list_within(struct pl_layout **ret, size_t *ret_count, size_t max,
                         const struct pl_space *space, const struct pl_problem *problem,
                         const struct pl_patience *patience, struct err *error);

/* Is this layout a legal member? (A warm start or a baseline may lie outside.) */
bool pl_space_has(const struct pl_space *space, const struct pl_problem *problem,
                  const struct pl_layout *layout);

/*
 * Why SPACE has no legal layout: the smallest change that would admit one ("add 2 to tp",
 * "global_batch 32 instead of 30"), the candidate with the fewest broken rules, and the rules with
 * how many candidates each excludes, most first; a short BUF loses the end of that. Returns false,
 * and an empty text, if SPACE has a legal layout after all. Into BUF. PATIENCE may be NULL.
 */
bool pl_space_explain(char *buf, size_t size, const struct pl_space *space,
                      const struct pl_problem *problem, const struct pl_patience *patience);

enum { PL_MAX_EXCLUSIONS = 32 };

/* A rule, how many candidates of a space break it (each may break several), what one is told. */
struct pl_exclusion {
    const char *rule;
    uint64_t count;
    char example[160];
};

/*
 * What the rules exclude from the product of SPACE's axes, the strictest rule first; returns how
 * many rules exclude anything. *RET_CANDIDATES is the size of the product (less what a key that
 * means nothing beside another would repeat). Exact up to 16,384 candidates, above that the counts
 * are scaled from an even sample of so many. If PATIENCE (may be NULL) ends it early, both are of
 * the first part of the product.
 */
size_t pl_space_excluded(struct pl_exclusion ret[PL_MAX_EXCLUSIONS], uint64_t *ret_candidates,
                         const struct pl_space *space, const struct pl_problem *problem,
                         const struct pl_patience *patience);

/* Which rule chooses a campaign's baseline; pl_baseline_names has their words. */
enum pl_baseline_rule { PL_BASELINE_DEFAULT, PL_BASELINE_NAIVE };

extern const char *const pl_baseline_names[]; /* "default", "naive", NULL */

enum { PL_BASELINE_NOTE = 160 };

/*
 * The layout that a campaign's winner is compared with, of at most MAX_WORLD ranks (0: all devices)
 * and within device memory less the share HEADROOM.
 *
 * default: what a competent engineer would start from. All devices; sharded optimizer state, and
 * sequence parallelism and overlap where the trainer has them; tp inside the fastest link; experts
 * spread inside the node; no recomputation; tp, cp and pp of which none could be smaller; then the
 * micro-batch and the virtual stages. Where these leave a choice, the cost model's fastest. What
 * does not fit so may have tp up to the node, experts on several nodes, recomputation, any degrees,
 * and devices left over, in this order; RET_NOTE (may be NULL) says in words that one of the last
 * was needed, and is empty otherwise.
 *
 * naive: the largest legal dp with micro_batch 1, tp = pp = ep = 1 and zero 0, then zero 1, then
 * the smallest tp * pp (the smaller pp of two) that fits, then with recomputation, then with
 * experts spread.
 *
 * What is looked at is bounded, to a few tenths of a second, by counting it: the same problem has
 * the same baseline on any machine. Beyond it the best so far is taken, and RET_NOTE says so.
 *
 * Returns 0, -ENOENT where nothing legal fits, or -E2BIG where nothing did before the bound.
 */
int pl_baseline(struct pl_layout *ret, char ret_note[PL_BASELINE_NOTE],
                const struct pl_problem *problem, enum pl_baseline_rule rule, int max_world,
                double headroom, struct err *error);

/* Does the worst rank of LAYOUT fit in a device's memory less the share HEADROOM? */
bool pl_fits(const struct pl_problem *problem, const struct pl_layout *layout, double headroom);

/* ---- meshes -------------------------------------------------------------- */

/* The greatest common divisor; LEFT and RIGHT are not negative and not both 0. */
int pl_gcd(int left, int right);

/* Ranks are numbered with tp fastest and pp slowest (Megatron's tp-cp-ep-dp-pp); the expert mesh
 * (etp, ep, edp, pp) is a second numbering of the same ranks. */
enum pl_axis { PL_TP, PL_CP, PL_DP, PL_PP, PL_ETP, PL_EP, PL_EDP, PL_AXES };

int pl_axis_size(const struct pl_layout *layout, enum pl_axis axis);
int pl_axis_stride(const struct pl_layout *layout, enum pl_axis axis);
int pl_axis_coord(const struct pl_layout *layout, enum pl_axis axis, int rank);
/* Rank that differs from RANK on one axis only, where it has coordinate COORD. */
int pl_axis_peer(const struct pl_layout *layout, enum pl_axis axis, int rank, int coord);

/* Layers [*ret_first, *ret_first + n) of chunk CHUNK (0..vp-1) on stage STAGE; returns n. Chunk c
 * of stage s is the (c * pp + s)-th of pp * vp runs, equal or the first ones a layer longer. */
int pl_stage_layers(int *ret_first, const struct pl_layout *layout, int layers, int stage,
                    int chunk);

/* ---- memory -------------------------------------------------------------- */

enum pl_mem_class {
    PL_MEM_WEIGHTS,
    PL_MEM_GRADS,
    PL_MEM_MASTER,
    PL_MEM_OPTIMIZER,
    PL_MEM_ACTIVATIONS,
    PL_MEM_COMM,
    PL_MEM_LOGITS,
    PL_MEM_WORKSPACE,
    PL_MEM_CLASSES
};

extern const char *const pl_mem_class_names[PL_MEM_CLASSES + 1]; /* "weights" …, NULL */

struct pl_memory {
    double bytes[PL_MEM_CLASSES];
    double total;
    int rank; /* the rank that this is about: of a worst case, the worst rank */
};

/* Bytes of one rank. Exact for the bundled trainer, which allocates from the same arithmetic.
 * Neither reads the problem's cluster. */
void pl_memory_rank(struct pl_memory *ret, const struct pl_problem *problem,
                    const struct pl_layout *layout, int rank);
/* The rank that needs most. */
void pl_memory_worst(struct pl_memory *ret, const struct pl_problem *problem,
                     const struct pl_layout *layout);

/* The same for many layouts of one problem: what they share is computed once. What PROBLEM points
 * to must outlive the context. Not thread-safe. */
struct pl_memory_ctx;
struct pl_memory_ctx *pl_memory_ctx_new(const struct pl_problem *problem);
struct pl_memory_ctx *pl_memory_ctx_free(struct pl_memory_ctx *ctx);
void pl_memory_at(struct pl_memory *ret, struct pl_memory_ctx *ctx, const struct pl_layout *layout);

/* Bytes of a device of CLUSTER less the share HEADROOM: what a rank has to fit into. */
double pl_memory_offered(const struct pl_cluster *cluster, double headroom);

json_t *pl_memory_json(const struct pl_memory *memory); /* {"total":…, "rank":…, "<class>":…} */

/* ---- cost ---------------------------------------------------------------- */

enum pl_cost_class {
    PL_COST_FORWARD,
    PL_COST_BACKWARD,
    PL_COST_RECOMPUTE,
    PL_COST_TP,
    PL_COST_CP,
    PL_COST_EP,
    PL_COST_PP,
    PL_COST_BUBBLE,
    PL_COST_DP,
    PL_COST_OPTIMIZER,
    PL_COST_OTHER,
    PL_COST_CLASSES
};

extern const char *const pl_cost_class_names[PL_COST_CLASSES + 1];

struct pl_cost {
    double
        seconds[PL_COST_CLASSES]; /* exposed seconds on the critical path; they add up to total */
    double total;                 /* seconds an iteration */
    double tokens_per_s;          /* of the whole job */
};

/* Constants of machines and software that no profile holds (docs/explanation/cost-model.md). */
struct pl_constants {
    double memory, near, far, attention, kernel_us, collective_us, hidden, tp_hidden, expert,
        jitter;
};

struct pl_constant_name {
    const char *name;
    size_t offset;   /* of the double in struct pl_constants */
    double min, max; /* what physics leaves open */
};

extern const struct pl_constants pl_default_constants;
extern const struct pl_constant_name pl_constant_names[]; /* ends with a NULL name */

/* Expected seconds of one iteration of a legal layout. */
void pl_cost(struct pl_cost *ret, const struct pl_problem *problem, const struct pl_layout *layout);
json_t *pl_cost_json(const struct pl_cost *cost);

/* The same for many layouts of one problem: what they share is computed once. What PROBLEM points
 * to and CONSTANTS (may be NULL: the default ones) must outlive the context. Not thread-safe. */
struct pl_cost_ctx;
struct pl_cost_ctx *pl_cost_ctx_new(const struct pl_problem *problem,
                                    const struct pl_constants *constants);
struct pl_cost_ctx *pl_cost_ctx_free(struct pl_cost_ctx *ctx);
void pl_cost_at(struct pl_cost *ret, struct pl_cost_ctx *ctx, const struct pl_layout *layout);

/* ---- pipeline simulator -------------------------------------------------- */

/* Seconds of one micro-batch on one stage's chunk; backward includes what is computed again. Of a
 * split backward pass (zero-bubble), `weight` is the part that nobody waits for. */
struct pl_stage_time {
    double forward, backward, weight;
};

struct pl_pipe {
    enum pl_schedule schedule;
    int pp, vp, microbatches;
    const struct pl_stage_time *at; /* [chunk * pp + stage] */
    double message_s;
    bool overlap; /* messages travel while the receiver computes */
};

struct pl_span {
    double start, end;
    int stage, chunk, mb, op; /* enum pl_step_op */
};

struct pl_timeline {
    struct pl_span *span; /* stage after stage, each in order of time */
    size_t n;
    double total; /* seconds from the first start to the last end */
    double idle;  /* share of all stages' time that is bubble */
};

/* Execute the schedule by events. -EINVAL: the shape has no schedule, -EDEADLK: it cannot end. */
int pl_simulate(struct pl_timeline *ret, const struct pl_pipe *pipe, struct err *error);
void pl_timeline_done(struct pl_timeline *timeline);
/* The pipeline of a legal layout as the cost model sees it; the caller frees *STORE, its times. */
void pl_pipe_of(struct pl_pipe *ret, struct pl_stage_time **store, struct pl_cost_ctx *ctx,
                const struct pl_layout *layout);
/* What the closed form says of the same pipeline: steady state, bubble and messages. */
double pl_pipe_seconds(const struct pl_pipe *pipe);
/* As a Chrome trace: a lane for each stage, microseconds. */
json_t *pl_timeline_trace(const struct pl_timeline *timeline);

/* ---- ranking ------------------------------------------------------------- */

struct pl_plan_entry {
    struct pl_layout layout;
    struct pl_cost cost;
    struct pl_memory memory; /* of the worst rank */
    char why[200]; /* why it comes after the first: where the seconds go; "" for the first */
    /* Layouts that are left out, since to the model each is this one: same seconds, same memory. */
    size_t equivalents;
    /* Of a plan of families: further layouts of its family that fit, and their least tokens/s. */
    size_t variants;
    double worst;
};

struct pl_plan {
    struct pl_plan_entry *at; /* best first; all fit in memory */
    size_t n;
    size_t legal;   /* layouts that were looked at */
    size_t fitting; /* of those, how many fit */
    bool exact;     /* they are all that the space has; else it has more, perhaps better ones */
    bool families;  /* each entry is the best of its family */
    struct pl_layout smallest; /* of those that do not fit, the one that needs least */
    double smallest_bytes;     /* 0: there is none */
};

/*
 * The TOP best layouts of the space by the cost model, among those that fit in memory less the
 * share HEADROOM. PER_DEVICE ranks by tokens/s a device instead of the whole job's. Of layouts that
 * are one to the model (they differ in a key that changes nothing here) the first is listed. The
 * caller calls pl_plan_done, which accepts a zeroed struct.
 *
 * When PATIENCE (may be NULL) is over the list is of what was looked at so far: first the shapes
 * (degrees, micro_batch, schedule) evenly, each by a few of its layouts, then all layouts of the
 * shapes in order of how they did.
 */
void pl_plan_look(struct pl_plan *ret, const struct pl_space *space,
                  const struct pl_problem *problem, size_t top, double headroom, bool per_device,
                  const struct pl_patience *patience);
/* The same, but an entry is a family: layouts of the same degrees, micro_batch, schedule, zero,
 * recompute, precision and threads, which differ in sp, zero_scope and overlap flags only. The best
 * of a family is listed, with the number of its variants. */
void pl_plan_families(struct pl_plan *ret, const struct pl_space *space,
                      const struct pl_problem *problem, size_t top, double headroom,
                      bool per_device, const struct pl_patience *patience);
/* Why PLAN lists nothing: -ENOENT with the reason. */
int pl_plan_nothing(const struct pl_plan *plan, const struct pl_space *space,
                    const struct pl_problem *problem, double headroom,
                    const struct pl_patience *patience, struct err *error);
/* pl_plan_look of the whole space; -ENOENT with the reason where nothing is legal or fits. */
int pl_plan_rank(struct pl_plan *ret, const struct pl_space *space,
                 const struct pl_problem *problem, size_t top, double headroom, bool per_device,
                 struct err *error);
void pl_plan_done(struct pl_plan *plan);

/*
 * At most MOST layouts of a space that has more, in the order of its walk; the caller frees them.
 * The share BEST (0..1) of them are all layouts of the shapes that do best by the cost model among
 * those that fit, the others an even sample of the rest. The same arguments give the same list,
 * which is not cut short: -ECANCELED if PATIENCE (may be NULL) is over before it is whole.
 */
int pl_plan_shortlist(struct pl_layout **ret, size_t *ret_count, size_t most, double best,
                      const struct pl_space *space, const struct pl_problem *problem,
                      double headroom, bool per_device, const struct pl_patience *patience,
                      struct err *error);
/* {"legal":…, "fitting":…, "exact":…, "layouts":[{"rank":1, "layout":…, "tokens_per_s":…, "mfu":…,
 * "cost":…, "memory":…, "why":…}]} */
json_t *pl_plan_json(const struct pl_plan *plan, const struct pl_problem *problem);

/* Model FLOP utilisation of TOKENS_PER_S on WORLD devices; negative where the peak is unknown. */
double pl_mfu(const struct pl_problem *problem, const struct pl_layout *layout,
              double tokens_per_s);

/* Dense peak of a device in PRECISION (PL_FP32 ...), TFLOP/s; 0 where it is unknown. */
double pl_device_peak(const struct pl_device *device, int precision);
/*
 * Share of its devices' peak, in its precision, that LAYOUT needs at the least for TOKENS_PER_S:
 * the FLOPs of pl_mfu without the half of the attention matrix that a causal mask hides, which
 * kernels may leave out. Above 1 no machine can have done it, while at long sequences pl_mfu may be
 * above 1. Negative where the peak is unknown.
 */
double pl_peak_share(const struct pl_problem *problem, const struct pl_layout *layout,
                     double tokens_per_s);

#include "plan/example.h"
#include "plan/limits.h"
#include "plan/partune.h"
#include "plan/project.h"

#endif
