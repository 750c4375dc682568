/*
 * What a layout is judged for: workloads and trainers, and the problem that they make with a model
 * and a cluster. A part of plan.h.
 */
#ifndef PLAN_PROBLEM_H
#define PLAN_PROBLEM_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "plan/cluster.h"
#include "plan/layout.h"
#include "plan/model.h"
#include "plan/stack.h"

/* From PL_FP8 on products read narrow operands (plan/precision.c). PL_FP8 scales them as the
 * trainer does unless told otherwise. */
enum pl_precision {
    PL_FP32,
    PL_BF16,
    PL_FP8,
    PL_FP8_CURRENT,
    PL_FP8_BLOCKWISE,
    PL_MXFP8,
    PL_NVFP4,
    PL_PRECISIONS
};

extern const char *const pl_precision_names[]; /* "fp32" …, NULL */

/* Optimizers: their state and the work of their step (plan/optimizer.c). */
enum pl_optimizer { PL_ADAMW, PL_SGD, PL_LAMB, PL_MUON, PL_OPTIMIZERS };

extern const char *const pl_optimizer_names[]; /* "adamw" …, NULL */

enum { PL_MAX_BATCHES = 16 };

struct pl_workload {
    enum pl_optimizer optimizer;
    int global_batch;          /* sequences a step; of several, the first */
    int nbatches;              /* 0: one for all layouts; else each layout names one of these: */
    int batch[PL_MAX_BATCHES]; /* distinct, as the campaign lists them */
    int seq; /* tokens a sequence; the model's unless the workload says otherwise */
    enum pl_precision precision; /* default of a layout that does not say */
    char data[64];               /* name of a data set; "synthetic" always exists */

    /* Samples hold several documents, each ended by the token `eod`. Attention does not cross them;
     * positions restart with each; what follows an eod is not predicted. Megatron-LM's
     * --reset-attention-mask, --reset-position-ids and --eod-mask-loss. */
    bool reset_attention_mask, reset_position_ids, eod_mask_loss;
    int eod; /* in [0, the model's vocab) */

    /* The bundled trainer has room for a copy of what a checkpoint saves. Set by its own
     * configuration; no key of a workload. */
    bool snapshot;
};

/* Whether a trainer has to know where documents begin. */
static inline bool pl_workload_has_documents(const struct pl_workload *workload)
{
    return workload->reset_attention_mask || workload->reset_position_ids;
}

/* Sequences a step of LAYOUT. */
static inline int pl_batch(const struct pl_workload *workload, const struct pl_layout *layout)
{
    return layout->global_batch ? layout->global_batch : workload->global_batch;
}

/* Does WORKLOAD have BATCH, a layout's global_batch? */
bool pl_batch_known(const struct pl_workload *workload, int batch);
/* "256, 512 and 1024": what WORKLOAD has, for errors. Into BUF, returns it. */
char *pl_batches_text(char buf[160], const struct pl_workload *workload);

/* Make LAYOUT's batch the only one of WORKLOAD; LAYOUT then names none. */
void pl_batch_settle(struct pl_workload *workload, struct pl_layout *layout);

struct pl_trainer;

/* Without a precision: fp32 for the bundled trainer, bf16 for those that run on GPUs. */
int pl_workload_parse(struct pl_workload *ret, const json_t *json, const struct pl_model *model,
                      const struct pl_trainer *trainer, struct err *error);
json_t *pl_workload_json(const struct pl_workload *workload); /* new reference */

struct pl_check;

/* What a trainer can do; the rule trainer-supports reads it. A trainer's space is what its own
 * exporter writes without loss. */
struct pl_trainer {
    const char *name;
    unsigned by;                                   /* its PL_BY_ bit in plan/keys.def */
    bool bundled;                                  /* partune-train: its memory plan is exact */
    bool gelu, layernorm, learned, tied, capacity; /* of the model, as are these: */
    bool shared_expert, moe_every, dense_layers;
    /* Of the layout, in addition to the column `trainers` of plan/keys.def: values of keys that
     * have several. */
    bool gpipe, zero_bubble, v_schedules, dualpipe, selective, full, bf16, fp8;
    bool fp8_recipes; /* fp8-current and fp8-blockwise */
    bool mxfp8, nvfp4;
    bool uneven_layers;     /* layers need not divide by pp * vp */
    int min_zero, max_zero; /* ZeRO stages other than 0; 0, 0: none */
    int usual_zero;         /* largest of a space and a baseline that do not name it; 0: max_zero */
    /* What it always does: no layout can change it. */
    bool always_overlaps;   /* reduction of gradients, and the gathers of zero 2 and 3 */
    bool fsdp_overlaps;     /* reduction of gradients of zero 2 and 3, and the gathers of zero 3 */
    bool pair_overlaps;     /* pipeline sends of two interleaved stages */
    bool half_replicas;     /* zero 0: a model in half precision never has gradients in fp32 */
    bool experts_follow_tp; /* etp is tp where ep is 1, and 1 elsewhere */
    /* What depends on several keys (plan/supports_*.c), or NULL. */
    void (*limits)(struct pl_check *check);
    /* How it runs, for the cost and memory models. */
    bool tp_overlap;     /* tensor-parallel collectives in chunks that overlap the products */
    int tp_buffers;      /* of a micro-batch's gathered tokens, which the key tp_overlap holds */
    bool tp_async;       /* those of the backward pass overlap the weight gradient's product */
    bool half_grads;     /* gradients are kept and reduced in the layout's precision, not in fp32 */
    bool summed_grads;   /* and also summed over micro-batches in fp32 */
    bool whole_reduce;   /* zero 0 and 1 all-reduce all gradients, in fp32 */
    bool tensor_gather;  /* zero 3 gathers tensor by tensor, not layer by layer */
    bool prunes_repeats; /* recomputation leaves out what the backward pass does not read */
    bool windows; /* zero 2 and 3: layers work in windows (plan/partune.h), all else is held whole,
                     and each micro-batch scatters and gathers, under a pipeline, too */
    /* With offload_optimizer gradients leave the device, too, from zero 2 on, in the backward pass.
     */
    bool offloads_grads;
    bool fp32_shards;       /* what offload_params brings to the device are the master weights */
    bool copies_meet_often; /* with shard, each micro-batch reduces gradients over replicas */
    /* Nothing is fused: what lies between products is written to memory and read again. */
    bool eager;
    bool eager_mlp;    /* only those of the feed-forward */
    bool eager_rotary; /* the rotation of queries and keys; time only */
    bool whole_logits; /* every tp rank gathers them for the loss */
    bool cost_stages;  /* stages of an even division are cut by weighing head and layers */
    /* Of a layer's forward pass that recompute "selective" repeats; 0: attention's core. */
    double selective_share;
    bool flash; /* attention keeps no T x T matrix for the backward pass */
    /* Generation of matrix units that its kernels were written for: 1 before Ampere
     * (FlashAttention, Triton), 2 Ampere (FlashAttention-2), 3 Hopper (FlashAttention-3, cuDNN 9);
     * 0: whatever the device has. */
    int flash_units;
    int expert_streams; /* that products of local experts take in turn; 0: one kernel has all */
    bool fused_experts; /* under mxfp8 one kernel has all, with their activation and its cast */
    bool fp8_attention; /* attention's products, too, have fp8 operands under a narrow precision */
    bool fp8_head;      /* the head's, too, under mxfp8 */
    bool eager_loss;    /* PyTorch's cross entropy as it is, of logits in fp32 */
    bool fp8_delayed;   /* delayed scaling; weights are cast once a step */
    bool fp8_current;   /* per-tensor current scaling; weights are cast once a step */
    bool weighs_rows;   /* router's weights meet the experts' hidden rows, not their outputs */
    bool whole_start;   /* zero 3: the model is built whole on the device before it is sharded */
    bool fsdp_units;    /* PyTorch's FSDP: shards are the fp32 weights; all that is in no layer is
                           one unit, which stays gathered */
    bool copies_kv; /* where heads share no keys, they are copied out of the product that stays */
    bool flat_step; /* DeepSpeed: buckets, and a rank's gradients flat and in fp64 for the norm */
    bool keeps_outputs;    /* of a stage, of each micro-batch in flight */
    struct pl_stack stack; /* how well it runs; no name: the shipped constants */
};

/* The largest ZeRO stage of a space and of a baseline that do not name one. */
int pl_usual_zero(const struct pl_trainer *trainer);

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

#endif
