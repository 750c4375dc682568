/*
 * The bundled trainer's arithmetic: which tensors a rank holds and where, the order of its pipeline
 * steps, and every buffer that it allocates.
 *
 * A part of plan.h. The memory plan, the trainer's allocation, initial weights, checkpoints,
 * the sharded optimizer and the tests all walk the tables made here, so that what is planned is
 * what is handed out, and a tensor is described in one place.
 */
#ifndef PLAN_PARTUNE_H
#define PLAN_PARTUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/layout.h"
#include "plan/memory.h"
#include "plan/mesh.h"
#include "plan/problem.h"
#include "plan/stages.h"

/* ---- parameters ---------------------------------------------------------- */

enum pl_tensor {
    PL_T_EMBED,
    PL_T_NORM1,
    PL_T_Q,
    PL_T_K,
    PL_T_V,
    PL_T_O,
    PL_T_NORM2,
    PL_T_GATE, /* the dense MLP, or the shared expert of a layer with experts */
    PL_T_UP,
    PL_T_DOWN,
    PL_T_ROUTER,
    PL_T_EXPERT_GATE, /* w1 */
    PL_T_EXPERT_UP,   /* w3 */
    PL_T_EXPERT_DOWN, /* w2 */
    PL_T_FINAL_NORM,
    PL_T_HEAD,
    PL_T_POSITIONS,  /* learned, a row for each position */
    PL_T_NORM1_BIAS, /* biases: of layernorm */
    PL_T_NORM2_BIAS,
    PL_T_FINAL_NORM_BIAS,
    PL_T_Q_BIAS, /* of products */
    PL_T_K_BIAS,
    PL_T_V_BIAS,
    PL_T_O_BIAS,
    PL_T_GATE_BIAS,
    PL_T_UP_BIAS,
    PL_T_DOWN_BIAS,
    PL_T_Q_NORM, /* of each head of the queries, of the keys; or of all their heads */
    PL_T_K_NORM,
    PL_T_SHARED_GATE, /* (1, hidden): weighs the shared experts of a token */
    PL_T_BALANCE,     /* bias of the choice of experts, which no gradient moves */
    PL_T_Q_DOWN,      /* latent attention: queries to their latent */
    PL_T_KV_DOWN,     /* keys and values to theirs, and behind it what all heads' keys share */
    PL_T_Q_UP,        /* and back, head by head */
    PL_T_K_UP,
    PL_T_V_UP,
    PL_T_Q_DOWN_BIAS,
    PL_T_KV_DOWN_BIAS,
    PL_T_Q_LATENT, /* norms of the latents */
    PL_T_KV_LATENT,
    PL_T_MTP_ENORM, /* multi-token prediction: norms of the embedding and of the hidden row, */
    PL_T_MTP_HNORM,
    PL_T_MTP_PROJ,   /* (hidden, 2 hidden): the product that joins both, the embedding first, */
    PL_T_MTP_NORM,   /* and the norm before the output projection */
    PL_T_POST_NORM1, /* of attention's output, of the feed-forward's */
    PL_T_POST_NORM2,
    PL_T_SINKS,       /* (heads): a logit of each head in its softmax's sum */
    PL_T_ROUTER_BIAS, /* (experts) */
    PL_T_EXPERT_GATE_BIAS,
    PL_T_EXPERT_UP_BIAS,
    PL_T_EXPERT_DOWN_BIAS, /* divided over etp, whose ranks add slices of the output */
    PL_TENSORS
};

/* A matrix between the embedding and the output: what muon orthogonalizes. */
bool pl_tensor_is_hidden(enum pl_tensor tensor);

/*
 * One tensor of the model, or the slice of it that a rank holds. A slice is contiguous, row-major,
 * and differs from the whole in one dimension at most: elements [first, first + valid) of dimension
 * `split`, then local[split] - valid elements of padding (of the vocabulary, or of a bias of the
 * experts' outputs), which stay zero.
 */
struct pl_param {
    char name[96]; /* Hugging Face's: "model.layers.3.self_attn.q_proj.weight" */
    enum pl_tensor tensor;
    int layer, expert; /* -1: none; numbers are those of the whole model, whose modules of
                        * multi-token prediction follow its layers */
    int dims;
    uint64_t shape[2]; /* of the whole tensor; shape[1] is 1 for a vector */
    int split;         /* 0, 1, or -1: held whole */
    enum pl_axis axis; /* of the mesh that `split` is divided over: PL_TP, PL_ETP */
    uint64_t first;
    uint64_t local[2];
    uint64_t valid;  /* local[split] without padding; local[0] where split is -1 */
    uint64_t offset; /* flat number of its first element */
    uint64_t count;  /* local[0] * local[1] */
    int bucket;
    bool decay; /* weight decay applies (matrices, not norms) */
};

/*
 * Elements are numbered flat, parameter after parameter, and cut into buckets: consecutive
 * parameters whose gradients are ready together and are reduced by one collective. With zero a
 * bucket is divided evenly over `shards` ranks (count is a multiple of 16 x shards), and this rank
 * keeps optimizer state only for elements [shard_first, shard_first + shard_count).
 *
 * zero 2 and 3 make a bucket of each layer. Its gradients are computed in a window, which buckets
 * take turns with, and added to the shard that is kept; zero 3 keeps only the shard of its weights,
 * too, and gathers them in a window before use. Embedding, output projection, norms, sinks, biases
 * of whole rows, routers and what makes latents, which both ends of a step use or all ranks of tp
 * have, are held whole as with zero 1, and so is what has a single replica.
 */
enum pl_bucket_kind {
    /* matrices of the dense mesh, and biases and sinks that are cut with them; replicas are the
     * dp x cp ranks */
    PL_BUCKET_DENSE,
    /* norms, biases of whole rows, routers, what makes latents and learned positions, whole on
     * every tp rank; with sp their gradients are partial sums over tp, too */
    PL_BUCKET_SMALL,
    /* norms of queries and keys, whole on every tp rank, which sees its own heads: their gradients
     * are always partial sums over tp */
    PL_BUCKET_HEADS,
    /* experts; replicas are the edp group */
    PL_BUCKET_EXPERT,
    /* the embedding of a model whose output projection shares it, or whose modules of multi-token
     * prediction do, where pp > 1: the first stage and the last hold it alike, with its state, and
     * each has a part of its gradient; else as DENSE */
    PL_BUCKET_TIED
};

/* Where the weights or the gradients of a bucket are, in elements of the rank's buffer of them. */
struct pl_place {
    int window;        /* that the whole bucket takes turns with; -1: it is held */
    uint64_t at;       /* of the whole bucket */
    uint64_t shard_at; /* of this rank's shard: inside the bucket if that is held */
};

struct pl_bucket {
    enum pl_bucket_kind kind;
    int chunk; /* model chunk (virtual stage) of the parameters */
    int layer; /* lowest layer in it, as index in its chunk; -1: needs the embedding's gradient, or
                * the loss on a last virtual stage without layers */
    uint64_t first, count; /* flat elements, padding at the end included */
    bool layers;           /* matrices of layers */
    int shards, shard;
    int copy;                          /* of the shard: 0 on the rank that saves it */
    uint64_t shard_first, shard_count; /* flat elements */
    uint64_t state_first;              /* of the shard in the optimizer state buffers */
    uint64_t adam_count;               /* elements that are not of hidden matrices */
    struct pl_place weight, grad;
};

/* Windows of dense layers and of experts: at most two of a kind, one to work in while another's
 * collective is under way. They follow what is held. */
enum { PL_WINDOWS = 2 };

struct pl_store {
    uint64_t count;                         /* elements of the buffer */
    int windows[2], users[2];               /* by kind; how many buckets take turns with them */
    uint64_t window_at[2], window_count[2]; /* of the first, and elements of each */
};

struct pl_params {
    struct pl_param *p;
    int n;
    /* Rows behind the n: vectors that no gradient moves, of no bucket. They are fp32, whole on each
     * rank of their stage, and `offset` counts the elements of a buffer of their own. */
    int fixed;
    struct pl_bucket *bucket;
    int nbuckets;
    uint64_t count; /* flat elements */
    struct pl_store weight, grad;
    uint64_t state_count; /* elements of an optimizer state buffer */
    /* with muon, of the second moment: room for the elements of hidden matrices is not needed, nor
     * for more of the others than a bucket's shard has */
    uint64_t adam_count;
};

/* The table of RANK. Layout must be legal. pl_params_done accepts a zeroed struct. */
void pl_params_build(struct pl_params *ret, const struct pl_model *model,
                     const struct pl_layout *layout, int rank);
void pl_params_done(struct pl_params *params);
/* The elements of the buffers of any rank of STAGE, without the table. */
struct pl_param_sizes {
    uint64_t weight, grad, state, adam;
};
void pl_params_count(struct pl_param_sizes *ret, const struct pl_model *model,
                     const struct pl_layout *layout, int stage);

/* Whole on every tp rank, and needed from the start of a step: SMALL and HEADS. */
bool pl_bucket_is_small(const struct pl_bucket *bucket);

/* Elements of the largest hidden matrix of the model, whole, and of the largest square of a shorter
 * side. */
struct pl_muon_room {
    uint64_t matrix, square;
};
void pl_muon_room(struct pl_muon_room *ret, const struct pl_model *model);

/* Layers of CHUNK of STAGE as pl_stage_layers() has them, and behind those of the last virtual
 * stage the modules of multi-token prediction. */
int pl_chunk_layers(int *ret_first, const struct pl_layout *layout, const struct pl_model *model,
                    int stage, int chunk);
/* First and last stage both hold the embedding. */
bool pl_embeds_twice(const struct pl_model *model, const struct pl_layout *layout);

/* Set PARAM's name, of its tensor, layer and expert. */
void pl_param_name(struct pl_param *param, const struct pl_model *model);

/* Index of the whole tensor's element that the slice's element INDEX is, or -1 for padding. */
int64_t pl_param_global(const struct pl_param *param, uint64_t index);

/* The vocabulary rounded up to a multiple of tp: one tp rank has a tp-th of these rows of the
 * embedding. */
int pl_vocab_padded(const struct pl_model *model, const struct pl_layout *layout);

/*
 * How the replicas of dense state (PL_DP_CP), or of experts (PL_EDP), share it: `size` ranks that
 * are `stride` apart on that axis hold a shard each, as often as they fit the axis.
 *   zero 0            size 1
 *   ep-aware scope    size all, or `shard` neighbors, and for experts as many copies as that makes
 *   plain scope       dense state is shared by ranks of one expert coordinate, which are ep apart,
 *                     or with etp = 1 ep / gcd(tp, ep)
 */
struct pl_cut {
    enum pl_axis axis;
    int size, stride;
};
void pl_cut(struct pl_cut *ret, const struct pl_layout *layout, bool expert);

/* ---- pipeline schedules -------------------------------------------------- */

/* PL_BACKWARD is the whole backward pass; zero-bubble splits it into the gradient of the inputs and
 * the gradient of the weights, and so do zb-v and, at the ends of a step, dualpipe-v and dualpipe.
 */
enum pl_step_op { PL_FORWARD, PL_BACKWARD, PL_BACKWARD_INPUT, PL_BACKWARD_WEIGHT };

struct pl_step {
    uint8_t op;     /* enum pl_step_op */
    bool with_next; /* one computation with the next step: both start, and end, together */
    uint16_t chunk;
    int32_t mb;
};

/*
 * The steps of one stage for MICROBATCHES micro-batches, in order, into RET (NULL: count only).
 * Returns how many: at most 3 x vp x microbatches. DualPipe's chunk is the direction; the first
 * half of the micro-batches goes in direction 0, and pp and microbatches are even.
 * A forward step of any virtual stage but the
 * first is preceded by the receipt of its input from the previous virtual stage, and so on; each
 * virtual stage handles micro-batches in ascending order in every pass, so the n-th message between
 * two of them belongs to the n-th micro-batch.
 */
int pl_schedule_steps(struct pl_step *ret, enum pl_schedule schedule, int stage, int pp, int vp,
                      int microbatches);
/* The same for a smaller step of a run whose buffers are those of MOST micro-batches: no chunk
 * holds more at a time than pl_schedule_live() and pl_schedule_live_grads() say of MOST. With vp >
 * 1 both counts are multiples of pp. */
int pl_schedule_fewer(struct pl_step *ret, enum pl_schedule schedule, int stage, int pp, int vp,
                      int microbatches, int most);

/* Most micro-batches whose activations one chunk holds at a time: from forward to backward (with
 * zero-bubble: to the gradient of the weights). Micro-batch i uses slot i % live. */
int pl_schedule_live(enum pl_schedule schedule, int stage, int pp, int vp, int microbatches,
                     int chunk);
/* The same for gradients kept between the halves of a split backward pass; 0 without a split. Not
 * of a schedule shaped like a V, nor of DualPipe. */
int pl_schedule_live_grads(enum pl_schedule schedule, int stage, int vp, int microbatches);

int pl_microbatches(const struct pl_layout *layout, const struct pl_workload *workload);

/* ---- buffers ------------------------------------------------------------- */

/*
 * Sizes of one micro-batch on one rank. "rows" are tokens: all of the micro-batch inside attention
 * and the MLP, and with sequence parallelism only this tp rank's share between them.
 */
struct pl_dims {
    uint64_t seq;        /* tokens of a sequence on this rank: seq / cp */
    uint64_t rows;       /* micro_batch x those */
    uint64_t local_rows; /* rows / tp with sp, else rows */
    uint64_t hidden, head_dim;
    uint64_t heads, kv_heads; /* of this tp rank */
    uint64_t v_dim;           /* of a value's head; head_dim without latents */
    uint64_t qkv;             /* heads head_dim + kv_heads (head_dim + v_dim) */
    uint64_t qk;              /* (heads + kv_heads) head_dim */
    uint64_t attn;            /* heads x v_dim */
    uint64_t dqkv;            /* rows x qkv; with latents what latent.c keeps */
    /* Of latent attention, else 0: widths of the latents, of both with the shared part of keys, of
     * that, and of a head's own part of a key. */
    uint64_t q_latent, kv_latent, latent, rope, nope;
    uint64_t ffn, shared_ffn, expert_ffn; /* of this tp (etp) rank */
    uint64_t gates;                       /* products before the activation: 2 if gated, else 1 */
    uint64_t stats;                       /* floats that a norm keeps of a row */
    uint64_t vocab;                       /* padded, of this tp rank */
    uint64_t experts, local_experts, top_k;
    uint64_t choices;     /* local_rows x top_k: rows that this rank sends to experts */
    uint64_t expert_rows; /* most rows that its experts can receive: every token of the ep group may
                           * choose them, and a token chooses an expert once. Equal to choices when
                           * ep is 1 */
    uint64_t elem;        /* bytes of an activation or weight */
    int microbatches;
};

void pl_dims(struct pl_dims *ret, const struct pl_model *model, const struct pl_layout *layout,
             const struct pl_workload *workload);

/* What a layer's forward pass leaves for its backward pass. */
enum pl_act {
    PL_ACT_X,      /* (local_rows, hidden) input of the layer */
    PL_ACT_RRMS1,  /* (local_rows, stats) float */
    PL_ACT_H1,     /* (local_rows, hidden) after the first norm */
    PL_ACT_LATENT, /* (local_rows, latent) before the norms */
    PL_ACT_NORMED, /* (local_rows, latent) after the norms */
    PL_ACT_LRRMS,  /* 1 or 2 x (local_rows) float, of keys and values first */
    PL_ACT_QKV,    /* (rows, qkv) after the rotation, with norms of queries and keys before both;
                    * with latents three matrices one after the other */
    PL_ACT_QK,     /* (rows, qk) queries and keys after their norms and the rotation */
    PL_ACT_QKRRMS, /* (rows, heads), then (rows, kv_heads) float; of all heads (rows) each */
    PL_ACT_LSE,    /* (heads x rows) float */
    PL_ACT_O,      /* (rows, attn) */
    PL_ACT_Y1,     /* (local_rows, hidden) attention's output before its norm */
    PL_ACT_YRRMS1, /* (local_rows) float */
    PL_ACT_X2,     /* (local_rows, hidden) after attention */
    PL_ACT_RRMS2,  /* (local_rows, stats) float */
    PL_ACT_H2,     /* (local_rows, hidden) */
    PL_ACT_GU,     /* (rows, gates ffn) gate and up, of the dense MLP or the shared expert */
    PL_ACT_A,      /* (rows, ffn) */
    PL_ACT_Y2,     /* (local_rows, hidden) the MLP's output before its norm */
    PL_ACT_YRRMS2, /* (local_rows) float */
    PL_ACT_PROBS,  /* (local_rows, experts) float */
    PL_ACT_IDX,    /* (local_rows, top_k) int32 */
    PL_ACT_W,      /* (local_rows, top_k) float */
    PL_ACT_PLACE,  /* (local_rows, top_k) int32 */
    PL_ACT_SRC,    /* (choices) int32 */
    PL_ACT_FREQ,   /* (pools, experts) float: choices that fell on each expert; a pool is a
                    * sequence, or for the "megatron" loss the micro-batch */
    PL_ACT_COUNTS, /* (experts + 1) int32 offsets of the rows sent, (ep x etp x local_experts) int32
                    * counts received, (local_experts + 1) int32 offsets of the rows received */
    PL_ACT_SHARED, /* (local_rows, hidden) output of the shared experts, with a gate */
    PL_ACT_GATE,   /* 2 x (local_rows) float: what it was multiplied by, as score and weight */
    PL_ACT_EX,     /* (expert_rows, hidden) input of the experts */
    PL_ACT_EGU,    /* (expert_rows, 2 expert_ffn) */
    PL_ACT_EA,     /* (expert_rows, expert_ffn) */
    PL_ACT_EY,     /* (choices, hidden) outputs of the experts, back at the token's rank */
    PL_ACTS
};

/* What of it the host reads or writes: how tokens travel. */
bool pl_act_is_route(enum pl_act act);

/* Bytes of a layer: of what kernels alone touch, and of its routes. */
struct pl_act_bytes {
    uint64_t acts, routes;
};

/*
 * Where they are: at OFFSET of the micro-batch's slot if SAVED, else of the scratch that all layers
 * share and that recomputation fills again; routes in the slot or scratch of their own. Bytes, all
 * multiples of 64; absent ones have 0 bytes. Without norms of inputs H1 is X, and H2 is X2; with
 * one that both share H2 is H1.
 */
struct pl_acts {
    uint64_t bytes[PL_ACTS], offset[PL_ACTS];
    bool saved[PL_ACTS];
    struct pl_act_bytes slot, scratch;
};

void pl_acts(struct pl_acts *ret, const struct pl_model *model, const struct pl_layout *layout,
             const struct pl_dims *dims, bool moe);

/* Gradients that a layer keeps from the first half of a split backward pass (zero-bubble) for the
 * second, at these bytes of a gradient slot. */
struct pl_grad_acts {
    uint64_t dy;   /* (local_rows, hidden) of the layer's output */
    uint64_t d2;   /* (local_rows, hidden) of X2 */
    uint64_t dqkv; /* (dqkv) */
    uint64_t dey;  /* (expert_rows, hidden) of the experts' outputs */
    uint64_t
        dbias; /* (ffn) float of up's bias without a gate; the kernel adds it up before rounding */
};

/* Returns where the next layer's begin. */
uint64_t pl_grad_acts(struct pl_grad_acts *ret, const struct pl_dims *dims, bool moe, uint64_t at);

/*
 * What the forward pass of a module of multi-token prediction leaves for its backward pass, which
 * follows in the same step: at these bytes of its buffer, behind what its layer keeps.
 */
enum { PL_MTP_NORMS = 3 }; /* of the embedding, of the hidden row, before the output projection */

struct pl_mtp_acts {
    uint64_t embed;   /* (local_rows, hidden) embedding of the token further on */
    uint64_t enormed; /* (local_rows, hidden) the same after its norm */
    uint64_t hnormed; /* (local_rows, hidden) hidden rows of the depth before, likewise */
    uint64_t out;     /* (local_rows, hidden) output of the layer */
    uint64_t normed;  /* (local_rows, hidden) the same after the norm */
    uint64_t stats[PL_MTP_NORMS]; /* (local_rows, stats) float */
    uint64_t bytes;
};

/* LAYER is that of the module's layer. */
void pl_mtp_acts(struct pl_mtp_acts *ret, const struct pl_dims *dims, const struct pl_acts *layer);

enum pl_buf {
    PL_BUF_WEIGHT,
    PL_BUF_GRAD,
    PL_BUF_MASTER,
    PL_BUF_MOMENT1,
    PL_BUF_MOMENT2,
    PL_BUF_BALANCE, /* (layers with experts, experts) float: biases of the choice, or absent */
    PL_BUF_SLOT,    /* (chunk, slot): saved activations of a micro-batch, layer after layer; on the
                  * last virtual stage then the gradient of its output */
    PL_BUF_GRAD_SLOT, /* (chunk, slot): gradients between the halves of a split backward pass */
    PL_BUF_ACT_IN,    /* (0, i): input of a stage received ahead of time, with overlap_p2p */
    PL_BUF_ACT_OUT,   /* (0, i): output of a stage, being sent */
    PL_BUF_GRAD_RING, /* (0, i): gradient received, turned into that of the input, being sent */
    PL_BUF_SCRATCH,
    PL_BUF_GATHER,     /* (rows, max(hidden, latent)), with sp */
    PL_BUF_PARTIAL,    /* (rows, hidden) float, with sp, in bf16 with tp or two products */
    PL_BUF_TP_RECV,    /* (tp - 1, local_rows, hidden) float: the other ranks' terms of a sum, with
                        * tp_overlap */
    PL_BUF_DH,         /* (local_rows, hidden) */
    PL_BUF_DX2,        /* (local_rows, hidden), of a parallel block, or before norms of outputs or
                        * a multiplier of them */
    PL_BUF_DAO,        /* (rows, max(ffn, attn)) */
    PL_BUF_DQKV,       /* (dqkv), with latents then the keys' (rows, heads head_dim) */
    PL_BUF_DLATENT,    /* (rows, latent) float: the sum over tp, with sp or in bf16 */
    PL_BUF_ATTN,       /* workspace of the attention's backward pass */
    PL_BUF_RING_KV,    /* (0, i): (rows, kv_heads (head_dim + v_dim)) under way, with cp */
    PL_BUF_RING_DKV,   /* (0, i): the same in float, their gradients */
    PL_BUF_RING_SUM,   /* (rows, heads max(head_dim, v_dim)) float: outputs, then queries'
                        * gradients; cp in bf16 */
    PL_BUF_XF,         /* (local_rows, hidden) input of the final norm, last stage */
    PL_BUF_HF,         /* (local_rows, hidden) its output */
    PL_BUF_RRMSF,      /* (local_rows, stats) float */
    PL_BUF_XENT,       /* 3 x (rows) float: max, sum, target */
    PL_BUF_LOGITS,     /* (rows, vocab) */
    PL_BUF_MTP,        /* (0, i): what module i of multi-token prediction keeps, last stage */
    PL_BUF_MTP_GRAD,   /* (0, i): (local_rows, hidden), of the same */
    PL_BUF_MTP_TOKENS, /* 2 x (mtp, microbatches, rows) int32: inputs and targets of the same */
    PL_BUF_MOE_SEND,   /* (choices, hidden) */
    PL_BUF_MOE_RECV,   /* (expert_rows, hidden), with ep x etp > 1; float with etp > 1 */
    PL_BUF_MOE_PART,   /* etp x (choices, hidden) float, with etp > 1 */
    PL_BUF_MOE_DEA,    /* (expert_rows, expert_ffn) */
    PL_BUF_MOE_ROUTER, /* 2 x (local_rows, experts) float, (choices) float */
    PL_BUF_MOE_STATS,  /* 2 x (micro_batch, experts) float */
    PL_BUF_MOE_POOL,   /* (microbatches, 2, experts) double, for the "huggingface" loss */
    PL_BUF_GATE,      /* of a gate of shared experts: (local_rows, hidden) gradient of their output,
                        * 2 x (local_rows) float, 2 x (local_rows) int32 */
    PL_BUF_MOE_LOAD,  /* (layers with experts, experts) double, then float: choices in the steps
                        * that are counted, and in this one */
    PL_BUF_TOKENS,    /* (microbatches x rows) int32: inputs, targets, with documents their ages;
                       * (seq + 1) int32 */
    PL_BUF_ROPE,      /* for each table 2 x (seq / cp, rotated elements of a head / 2) float */
    PL_BUF_POSITIONS, /* (rows) int32, with learned positions, first stage; none where they reset */
    PL_BUF_COLL_TP,   /* what a collective of the group receives before it is added */
    PL_BUF_COLL_DP,
    PL_BUF_COLL_EDP,
    PL_BUF_MUON,     /* two of the largest hidden matrix, two squares of its shorter side; float */
    PL_BUF_KERNEL,   /* the kernels' own scratch; accounted here, allocated by their pool */
    PL_BUF_SNAPSHOT, /* a writer's buffer; float: a copy of the weights (bf16: masters) of which the
                      * rank has the state, and of this state */
    PL_BUF_GRAD_SUM, /* (pl_grad_sum) float: with gradients in bf16, where what is added to one, or
                      * updates weights, is in fp32 */
    PL_BUF_ONES,     /* (max(expert_rows, local_rows)), of the type of activations: what biases of
                      * experts and routers are multiplied by */
    PL_BUF_QK_SUM,   /* (rows), (rows) float: sums of the norms of whole queries and keys over tp */
    PL_BUF_ROUTES,   /* (chunk, slot), (0, i), 1: routes that belong to PL_BUF_SLOT ... */
    PL_BUF_MTP_ROUTES,     /* ... to PL_BUF_MTP ... */
    PL_BUF_SCRATCH_ROUTES, /* ... and to PL_BUF_SCRATCH */
    PL_BUFS
};

extern const char *const pl_buf_names[PL_BUFS];

enum {
    PL_SNAPSHOT_BOUNCE = (1 << 20) + 4096, /* what is written at a time, at an aligned address */
    PL_RING_KVS = 2,                       /* in use and being sent, and arriving */
    PL_RING_DKVS = 3,                      /* being sent, arriving, and being computed */
    PL_ACT_INS = 2,
    PL_ACT_OUTS = 2,
    PL_GRAD_RINGS = 3,
    PL_MTP_GRADS = 3,           /* of the layer, of a norm's output, of the hidden rows before */
    PL_GRAD_PIECE = 1 << 16,    /* gradients that an update converts at a time */
    PL_COLL_AHEAD = 4,          /* pieces of a reduction under way */
    PL_KERNEL_SCRATCH = 6 << 20 /* bytes a thread */
};

/* The most of each that a rank can have: rows that the kernels hold in their scratch as fp32, their
 * tables, and tags of messages. */
enum {
    PL_MAX_COLUMNS = PL_KERNEL_SCRATCH / 4, /* a row: logits, rotated heads */
    PL_MAX_FFN = PL_MAX_COLUMNS / 5,        /* SwiGLU's gradient holds five */
    PL_MAX_HIDDEN = PL_MAX_COLUMNS / 50,    /* the norm's gradient 3 x 16 + 2 */
    PL_MAX_LATENT = PL_MAX_COLUMNS / 98,    /* that of heads 3 x 32 + 2 */
    PL_MAX_HEAD_DIM = 256,
    PL_MAX_THREADS = 256,
    PL_MAX_CHUNKS = 256,
    PL_MAX_EXPERTS = 3000,
    PL_MAX_GROUPS = 64
};

/*
 * A reduction among several members works in pieces, PL_COLL_AHEAD of them under way. Bytes under
 * way are what keeps a link busy that a computing rank visits now and then, and they come from all
 * peers together: so a piece is a mebibyte of floats in all, but at least 256 KiB from each peer.
 */
/* Elements that a reduction receives before it adds them; 0 for MEMBERS = 1. Never falls with
 * MEMBERS. */
uint64_t pl_coll_scratch(int members);
/* Elements of a piece, from each peer. MEMBERS > 1. */
uint64_t pl_coll_piece(int members);

/* Elements of PL_BUF_GRAD_SUM: the gradients of a layer's longest vector, or of a norm's scale and
 * bias. */
uint64_t pl_grad_sum(const struct pl_dims *dims);

struct pl_buffer {
    enum pl_buf id;
    int chunk, slot;
    enum pl_mem_class cls;
    uint64_t bytes; /* a multiple of 64 */
};

struct pl_buffers {
    struct pl_buffer *b;
    int n, cap;
};

/* Every buffer of RANK, in the order of allocation. None is empty. */
void pl_buffers_build(struct pl_buffers *ret, const struct pl_model *model,
                      const struct pl_layout *layout, const struct pl_workload *workload, int rank);
void pl_buffers_done(struct pl_buffers *buffers);

#endif
