/*
 * One rank of a run: what it computes with. Made once from (model, layout, workload); every pointer
 * is a view of device memory or of the parameter table; nothing is allocated after tr_rank_init().
 *
 * Shapes in comments use the names of struct pl_dims (plan/partune.h).
 */
#ifndef TRAINER_RANK_H
#define TRAINER_RANK_H

#include "trainer/async.h"
#include "trainer/coll.h"
#include "trainer/comm.h"
#include "trainer/device.h"
#include "trainer/link.h"
#include "trainer/param.h"
#include "trainer/phase.h"
#include "trainer/rope.h"
#include "trainer/window.h"

/* Parts of the experts of a rank, at most, that compute one after the other while tokens travel. */
enum { TR_MOE_PARTS = 4 };

/* The activations of a micro-batch in a chunk; the host reaches its routes alone. */
struct tr_slot {
    char *acts, *routes;
};

struct tr_weight {
    void *w; /* weights' type */
    void *g; /* gradient, of params.grad_type */
};

struct tr_norm {
    struct tr_weight scale; /* (hidden) */
    struct tr_weight bias;  /* (hidden); NULL: RMSNorm */
};

struct tr_layer {
    int global; /* number in the model */
    bool moe;
    int moe_index; /* among the rank's layers with experts; -1: it has none */
    int bucket[2]; /* of its matrices and of its experts, where these use windows; else -1 */
    const struct pl_acts *acts;
    struct pl_act_bytes at;      /* of the layer's saved activations in a slot */
    struct pl_grad_acts keep;    /* of the layer's gradients in a gradient slot */
    struct tr_norm norm1, norm2; /* of their inputs; scale NULL: none */
    struct tr_norm post1, post2; /* of attention's output, of the MLP's; scale NULL: none */
    struct tr_weight qkv;        /* (qkv, hidden): q, k, v rows one after the other */
    struct tr_weight o;          /* (hidden, attn) */
    /* Of latent attention, which has them in place of qkv: */
    struct tr_weight latent, latent_bias; /* (latent, hidden); its bias, or NULL */
    struct tr_weight q_latent, kv_latent; /* norms (q_latent), or NULL; (kv_latent) */
    struct tr_weight q_up;                /* (heads head_dim, q_latent or else hidden) */
    struct tr_weight kv_up;               /* (heads nope, then heads v_dim; kv_latent) */
    struct tr_weight gu;   /* (gates ffn, hidden): gate rows, if gated, then up rows */
    struct tr_weight down; /* (hidden, ffn) */
    struct tr_weight qkv_bias, o_bias, gu_bias, down_bias; /* NULL: none */
    struct tr_weight q_norm, k_norm;                       /* (head_dim); NULL: none */
    struct tr_weight router;                               /* (experts, hidden) */
    struct tr_weight router_bias;                          /* (experts); NULL: none */
    struct tr_weight sinks;                                /* (heads); NULL: none */
    struct tr_weight shared_gate;                          /* (1, hidden); NULL: none */
    const float *balance;    /* (experts) bias of the choice; NULL: none */
    struct tr_weight expert; /* local_experts x (w1 (f, hidden), w3 (f, hidden), w2 (hidden, f)) */
    struct tr_weight expert_gu_bias;   /* local_experts x (b1 (f), b3 (f)); NULL: none */
    struct tr_weight expert_down_bias; /* local_experts x (out.held); NULL: none */
    struct tr_slice {
        uint64_t first, count, held; /* elements of the outputs that it has, and with padding */
    } out;
};

/* Requests [first, end) of an array. */
struct tr_reqs {
    int first, end;
};

/* Rows to be sent to a member of the experts' group, or back, of its EXPERT or of this rank's. */
struct tr_moe_out {
    const char *from;
    size_t bytes;
    int member, expert;
};

/* Delayed gradients of a layer's experts (moe.c), EXPERT's next. */
struct tr_wgrad {
    const struct tr_layer *layer;
    struct tr_slot slot;
    uint64_t expert;
};

/* A module of multi-token prediction (mtp.h). */
struct tr_mtp {
    const struct tr_layer *layer;
    struct tr_slot slot; /* its activations, those of the layer first */
    struct pl_mtp_acts at;
    struct tr_norm norm[PL_MTP_NORMS];
    struct tr_weight join; /* (hidden, 2 hidden) */
};

struct tr_chunk {
    struct tr_layer *layer; /* (n + mtp) */
    int n;
    int mtp;              /* modules of multi-token prediction: on the last virtual stage */
    bool first, last;     /* virtual stage of the whole pipeline */
    struct tr_slot *slot; /* (nslots) */
    int nslots;
    uint64_t dxf_at; /* on the last virtual stage: gradient of its output, in the slot */
    struct tr_message *slot_sent; /* (nslots): of a gradient that lies in the slot */
    char **gslot; /* (ngslots): gradients kept between the halves of a split backward pass */
    int ngslots;
};

struct tr_work { /* buffers by their names in enum pl_buf */
    struct tr_slot scratch;
    char *gather, *partial, *tp_recv, *dh, *dx2, *dao, *dqkv, *attn, *xf, *hf, *logits;
    char *ring_kv[PL_RING_KVS];
    float *ring_dkv[PL_RING_DKVS], *ring_sum;
    char *moe_send, *moe_recv, *moe_part, *moe_dea;
    float *dlatent; /* NULL where it lies in dqkv */
    float *rrmsf, *xent, *moe_router, *moe_stats;
    double *moe_pool;            /* NULL but for the "huggingface" loss */
    char *gate;                  /* (local_rows, hidden); NULL without a gate of shared experts */
    float *gate_logit, *gate_dw; /* (local_rows) */
    int32_t *gate_place, *gate_zero; /* (local_rows) 0, 1, 2, ... and zeros */
    double *moe_total;               /* (moe_here, experts) choices in the steps that are counted */
    float *moe_load;                 /* (moe_here, experts) choices in this step */
    char *act_out[PL_ACT_OUTS], *act_in[PL_ACT_INS], *grad_ring[PL_GRAD_RINGS];
    int32_t *ids, *targets; /* (microbatches, rows) */
    int32_t *age;           /* (microbatches, rows): tokens of its document before each; or NULL */
    int32_t *sample;        /* (seq + 1) */
    int32_t *positions;     /* (rows) learned, on the first stage, that do not reset; else NULL */
    char *mtp_grad[PL_MTP_GRADS];   /* (local_rows, hidden); NULL but for mtp on the last stage */
    int32_t *mtp_ids, *mtp_targets; /* (mtp, most, rows), likewise */
    float *grad_sum;                /* NULL: gradients are fp32 */
    void *ones;                     /* (max(expert_rows, local_rows)) 1; NULL: nothing needs them */
    float *qk_sum;                  /* NULL but for norms of whole queries and keys */
    float *rope_cos[TR_ROPES], *rope_sin[TR_ROPES]; /* by enum tr_rope; NULL: unused */
};

/* Exchanges over tp behind computation: receives, sends; or by a link one with each peer. */
struct tr_tp {
    MPI_Request *gather, *reduce;
    tr_exchange *linked_gather, *linked_reduce;
    const void *input; /* of tr_gather_ahead(), until it is finished */
    const void *sum;   /* of tr_linear_dx_reduce(), likewise */
};

void tr_tp_init(struct tr_rank *rank);
void tr_tp_done(struct tr_rank *rank);

struct tr_rank {
    struct pl_model model;
    struct pl_layout layout;
    struct pl_workload workload;
    int rank;
    struct pl_dims d;
    struct pl_acts acts[2]; /* of a dense layer, of one with experts */
    enum kn_type type;
    struct kn_pool *pool;
    struct tr_clock clock;
    struct tr_comms comms;
    struct tr_device device;
    struct tr_params params;
    struct tr_async async;
    struct tr_windows windows;
    struct tr_graphs *graphs;
    double *tensor_norms;     /* of lamb, which sums them: optim_lamb.c */
    struct tr_message *watch; /* a receive that runs behind computation, or NULL */
    uint64_t visit_ns;        /* transfers are looked after by the next visit after this time */
    struct tr_chunk *chunk;   /* (vp) */
    struct tr_mtp *mtp;       /* (model.mtp) on the last stage, else NULL */
    struct tr_weight embed, positions, head;
    struct tr_norm final_norm;
    struct tr_work work;
    struct pl_step *steps; /* the schedule of d.microbatches */
    int nsteps;
    int most; /* micro-batches of the largest step: what buffers are made for */
    struct tr_message act_sent[PL_ACT_OUTS], grad_sent[PL_GRAD_RINGS];
    MPI_Request *moe_req;
    struct tr_tp tp;
    MPI_Request ring_req[4];    /* of keys and values, of their gradients: send, receive */
    tr_exchange ring_linked[2]; /* the same by a link */
    bool ring_waits; /* for measurements: each exchange of the ring is waited for at its start */
    MPI_Request *pool_req; /* (microbatches): the send of that part of work.moe_pool */
    int mb;                /* micro-batch of the current forward or backward pass */
    /* For tests: called with the choices (local_rows, top_k) of each layer with experts, once a
     * forward pass. */
    void (*routed)(void *arg, const struct tr_rank *rank, int layer, const int32_t *idx);
    /* For tests: called with choices IDX (local_rows, top_k) made of PROBS (local_rows, experts),
     * also where a layer is recomputed. True: it has changed some, whose weights are made anew. */
    bool (*replay)(void *arg, const struct tr_rank *rank, int layer, const struct kn_router *router,
                   const float *probs, int32_t *idx);
    void *routed_arg;          /* of both */
    int moe_nreq, moe_req_cap; /* of moe_req: while tokens travel, and room for */
    struct tr_reqs moe_recv[TR_MOE_PARTS], moe_send[TR_MOE_PARTS]; /* of the dispatch's parts */
    struct tr_moe_out *moe_out; /* (moe_req_cap) messages of a dispatch and a collect, in turn */
    int moe_outs, moe_sent;     /* how many, and how many are started */
    int moe_sending;            /* parts of a dispatch that are started; 0: none is under way */
    int moe_part_end[TR_MOE_PARTS]; /* where they end in moe_out */
    /* By a link, in place of all these: of the dispatch's parts, of the last collect. */
    tr_exchange moe_dispatch[TR_MOE_PARTS], moe_collect;
    struct tr_wgrad *wgrad; /* (moe_here) [first, end) are yet to be computed */
    int wgrad_first, wgrad_end;
    size_t attn_bytes;        /* of work.attn */
    int moe_layers, moe_here; /* with experts: of the whole model, of this rank */
    bool moe_counts;          /* the choices of this step are added to work.moe_total */
    double loss_sum;    /* of this step on this rank: cross-entropy over tokens, last stage only */
    double loss_tokens; /* of this step on all ranks: what the loss is the mean of */
    double *mtp_tokens; /* (model.mtp) the same of each depth of multi-token prediction */
    double mtp_sum; /* of this step on this rank: its loss, a mean over depths, last stage only */
    double aux_sum; /* load-balancing loss, added over this rank's pools (enum pl_aux_loss) */
    double z_loss_coef; /* of the output's z-loss; set after tr_rank_init(), which leaves 0: none */
    double z_sum;       /* of this step on this rank: (log Z)^2 over tokens, last stage only */
    double moe_z_sum;   /* routers' (log Z)^2, added over this rank's own rows and layers */
};

/* Build rank RANK of PARENT, whose size is layout->world. Collective. On failure (-ENOMEM)
 * *RET_CLASS and *RET_ASKED say what did not fit, before anything is mapped; nothing is left
 * behind. Weights are not yet set. */
int tr_rank_init(enum pl_mem_class *ret_class, double *ret_asked, struct tr_rank *rank,
                 MPI_Comm parent, const struct pl_model *model, const struct pl_layout *layout,
                 const struct pl_workload *workload, uint64_t budget, tr_fail_fn *fail,
                 struct err *error);
void tr_rank_done(struct tr_rank *rank);

/* Steps from now on have BATCH sequences: at most those of tr_rank_init(), and divisible alike (by
 * micro_batch x dp, with vp > 1 also by pp). Between steps only; allocates nothing. */
void tr_rank_batch(struct tr_rank *rank, int batch);

/* Sample k of this rank's micro-batch MB is number `tr_sample_index` of the step's global batch. */
uint64_t tr_sample_index(const struct tr_rank *rank, int mb, int k);

/* (rows) int32 of micro-batch MB: how many tokens of its document precede each. */
static inline const int32_t *tr_ages(const struct tr_rank *rank, int mb)
{
    return rank->work.age + (uint64_t)mb * rank->d.rows;
}

/* Activation ACT of LAYER in SLOT, wherever the layout keeps it. */
static inline void *tr_act(const struct tr_rank *rank, const struct tr_layer *layer,
                           struct tr_slot slot, enum pl_act act)
{
    char *at = layer->acts->saved[act] ? slot.acts + layer->at.acts : rank->work.scratch.acts;

    if (pl_act_is_route(act))
        at = layer->acts->saved[act] ? slot.routes + layer->at.routes : rank->work.scratch.routes;
    return at + layer->acts->offset[act];
}

#endif
