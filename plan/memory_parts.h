/* Private to plan/: the parts of the memory plan. */
#ifndef PLAN_MEMORY_PARTS_H
#define PLAN_MEMORY_PARTS_H

#include "plan/partune.h"

/* Parameters that one rank holds, without padding. */
struct pl_held {
    double dense;  /* replicated over dp x cp: attention, norms, routers, dense and shared
                      feed-forward, embeddings */
    double expert; /* replicated over edp */
    double layer;  /* of the largest layer, both kinds together: what zero 3 gathers at a time */
    double narrow; /* of both kinds those of products that a narrow precision reads: the layers'
                      matrices without the routers */
};

/* Parameters of a layer on one rank, as in struct pl_held: [0] of one without experts, [1] of one
 * with them; 0 where the model has none. They follow from tp, ep and etp. */
struct pl_layer_params {
    double dense, expert, narrow;
};
void pl_layer_params_of(struct pl_layer_params ret[2], const struct pl_model *model,
                        const struct pl_layout *layout);

/* Ranks over which a shard of dense or expert state is cut under the layout's zero_scope; 1 without
 * zero. */
double pl_dense_shards(const struct pl_layout *layout);
double pl_expert_shards(const struct pl_layout *layout);

/* Bytes that the exchange of context parallelism holds while a layer computes. */
double pl_context_bytes(const struct pl_problem *problem, const struct pl_layout *layout);

/* Bytes that a layer, with experts or without, keeps of one micro-batch for the backward pass. */
double pl_layer_activation_bytes(const struct pl_problem *problem, const struct pl_layout *layout,
                                 bool moe);

/* FLOPs of Newton-Schulz over the hidden matrices of all layers, for a rank of LAYOUT: each of tp
 * has the whole matrix; as many ranks as share a state share its matrices. */
double pl_muon_rank_flops(const struct pl_model *model, const struct pl_layout *layout,
                          double dense_shards, double expert_shards);

/* Bytes that a step of OPTIMIZER moves for each parameter whose state a rank has. */
double pl_optimizer_traffic(enum pl_optimizer optimizer);

/* Moments of each parameter in the mean of ALL, of which HIDDEN are in hidden matrices. */
double pl_optimizer_moments(enum pl_optimizer optimizer, double hidden, double all);

/* How many layers without and with experts stage STAGE holds. */
struct pl_layer_count {
    int dense, moe;
};

struct pl_layer_count pl_stage_count(const struct pl_model *model, const struct pl_layout *layout,
                                     int stage);

/* Of a STAGE that has COUNT layers with PARAMS. */
void pl_held_params(struct pl_held *ret, const struct pl_model *model,
                    const struct pl_layout *layout, int stage, struct pl_layer_count count,
                    const struct pl_layer_params params[2]);

/* Those of them that full recomputation repeats. */
struct pl_layer_count pl_recomputed_count(const struct pl_model *model,
                                          const struct pl_layout *layout, int stage);

/* Are there layers with experts and layers without? */
bool pl_model_is_mixed(const struct pl_model *model);

/* Elements of the bundled trainer's flat buffers on one stage, and what they depend on. */
enum { PL_COUNTS = 1024 };
struct pl_param_counts {
    int key[14]; /* tp, pp, vp, stages, ep, etp, dp x cp, edp, zero, zero_scope, shard, the
                  * overlaps of gradients and weights, stage; all 0: empty */
    struct pl_param_sizes sizes;
};

/* Adds the bytes of a rank of STAGE to RET's classes. COUNTS is a table of PL_COUNTS rows that
 * remembers them from one layout of a model to the next, or NULL. */
void pl_memory_partune_stage(struct pl_memory *ret, const struct pl_problem *problem,
                             const struct pl_layout *layout, int stage,
                             struct pl_param_counts *counts);

/* What all stages of a GPU trainer share: of a layer, without experts and with them, and of a
 * rank. */
struct pl_gpu_layers {
    struct pl_layer_params params[2];
    double kept[2];    /* bytes of activations of one micro-batch; unless layers are recomputed in
                       part, by block or in units of several */
    double live[2];    /* with full recomputation, bytes beyond those while it is repeated */
    double tokens;     /* of a micro-batch, on a rank */
    int micro_batches; /* of a replica and step */
    double dense_shards, expert_shards; /* of what zero shards */
    double context;                     /* bytes of pl_context_bytes */
};

void pl_gpu_layers_of(struct pl_gpu_layers *ret, const struct pl_problem *problem,
                      const struct pl_layout *layout);

/* Sets the classes of a rank of STAGE of a GPU trainer. */
void pl_memory_gpu_stage(struct pl_memory *ret, const struct pl_problem *problem,
                         const struct pl_layout *layout, const struct pl_gpu_layers *layers,
                         int stage);

/* What the stages of one layout share, by trainer. */
struct pl_memory_shared {
    struct pl_param_counts *counts; /* of the bundled one, or NULL */
    struct pl_gpu_layers layers;    /* of the others */
};

void pl_memory_shared_of(struct pl_memory_shared *ret, const struct pl_problem *problem,
                         const struct pl_layout *layout, struct pl_param_counts *counts);

/* All classes and the total of a rank of STAGE. What a layout names is divided as it says: not as
 * pl_divided() does. */
void pl_memory_stage(struct pl_memory *ret, const struct pl_problem *problem,
                     const struct pl_layout *layout, int stage,
                     const struct pl_memory_shared *shared);

#endif
