/*
 * The exact memory of the bundled trainer: the list of its buffers.
 *
 * The trainer allocates by walking this list (trainer/device.c), so planned and handed-out bytes
 * are the same number; a plan of many layouts adds the list up without making it. Experts receive a
 * number of rows that depends on the data; their buffers are made for the worst case, every token
 * of the expert-parallel group choosing experts of one rank, because a dropless layer may meet it.
 * With ep = 1 that is also the only case.
 */
#include "base/base.h"
#include "plan/memory_parts.h"
#include "plan/shape.h"

#include <assert.h>

const char *const pl_buf_names[PL_BUFS] = {
    "weight",     "grad",      "master",     "moment1",
    "moment2",    "balance",   "slot",       "grad_slot",
    "act_in",     "act_out",   "grad_ring",  "scratch",
    "gather",     "partial",   "tp_recv",    "dh",
    "dx2",        "dao",       "dqkv",       "dlatent",
    "attn",       "ring_kv",   "ring_dkv",   "ring_sum",
    "xf",         "hf",        "rrmsf",      "xent",
    "logits",     "mtp",       "mtp_grad",   "mtp_tokens",
    "moe_send",   "moe_recv",  "moe_part",   "moe_dea",
    "moe_router", "moe_stats", "moe_pool",   "gate",
    "moe_load",   "tokens",    "rope",       "positions",
    "coll_tp",    "coll_dp",   "coll_edp",   "muon",
    "kernel",     "snapshot",  "grad_sum",   "ones",
    "qk_sum",     "routes",    "mtp_routes", "scratch_routes",
};

static uint64_t round64(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static uint64_t max(uint64_t left, uint64_t right)
{
    return left > right ? left : right;
}

static void dims_moe(struct pl_dims *dims, const struct pl_moe *moe, const struct pl_layout *layout)
{
    dims->experts = (uint64_t)moe->experts;
    dims->local_experts = dims->experts / (uint64_t)layout->ep;
    dims->top_k = (uint64_t)moe->top_k;
    dims->expert_ffn = (uint64_t)(moe->expert_ffn / layout->etp);
    dims->shared_ffn = (uint64_t)(moe->shared_ffn / layout->tp);
    dims->choices = dims->local_rows * dims->top_k;
    dims->expert_rows = (uint64_t)(layout->ep * layout->etp) * dims->local_rows *
                        (dims->top_k < dims->local_experts ? dims->top_k : dims->local_experts);
}

static void dims_attention(struct pl_dims *dims, const struct pl_model *model)
{
    const struct pl_mla *mla = &model->mla;

    dims->v_dim = (uint64_t)pl_value_dim(model);
    dims->qk = (dims->heads + dims->kv_heads) * dims->head_dim;
    dims->qkv = dims->qk + dims->kv_heads * dims->v_dim;
    dims->dqkv = dims->rows * dims->qkv;
    dims->attn = dims->heads * dims->v_dim;
    if (!pl_model_is_mla(model))
        return;
    dims->q_latent = (uint64_t)mla->q_lora_rank;
    dims->kv_latent = (uint64_t)mla->kv_lora_rank;
    dims->rope = (uint64_t)mla->qk_rope_head_dim;
    dims->nope = (uint64_t)mla->qk_nope_head_dim;
    dims->latent = dims->q_latent + dims->kv_latent + dims->rope;
    dims->dqkv = dims->rows * dims->heads * (dims->head_dim + dims->nope + dims->v_dim) +
                 dims->local_rows * dims->latent;
}

void pl_dims(struct pl_dims *ret, const struct pl_model *model, const struct pl_layout *layout,
             const struct pl_workload *workload)
{
    uint64_t tp = (uint64_t)layout->tp, seq = (uint64_t)(workload->seq / layout->cp);

    *ret = (struct pl_dims){.seq = seq,
                            .rows = (uint64_t)layout->micro_batch * seq,
                            .hidden = (uint64_t)model->hidden,
                            .head_dim = (uint64_t)model->head_dim,
                            .heads = (uint64_t)model->heads / tp,
                            .kv_heads = (uint64_t)model->kv_heads / tp,
                            .ffn = (uint64_t)model->ffn / tp,
                            .vocab = (uint64_t)pl_vocab_padded(model, layout) / tp,
                            .elem = layout->precision == PL_BF16 ? 2 : 4,
                            .microbatches = pl_microbatches(layout, workload)};
    ret->local_rows = layout->sp ? ret->rows / tp : ret->rows;
    ret->gates = pl_mlp_is_gated(model->mlp) ? 2 : 1;
    ret->stats = model->norm == PL_LAYERNORM ? 2 : 1;
    dims_attention(ret, model);
    if (pl_model_is_moe(model))
        dims_moe(ret, &model->moe, layout);
}

static void acts_moe(uint64_t *bytes, const struct pl_layout *layout, const struct pl_dims *dims)
{
    uint64_t e = dims->elem;

    bytes[PL_ACT_PROBS] = dims->local_rows * dims->experts * 4;
    bytes[PL_ACT_IDX] = bytes[PL_ACT_W] = bytes[PL_ACT_PLACE] = bytes[PL_ACT_SRC] =
        dims->choices * 4;
    bytes[PL_ACT_FREQ] = (uint64_t)layout->micro_batch * dims->experts * 4;
    bytes[PL_ACT_COUNTS] =
        ((uint64_t)(1 + layout->etp) * dims->experts + dims->local_experts + 2) * 4;
    bytes[PL_ACT_EX] = dims->expert_rows * dims->hidden * e;
    bytes[PL_ACT_EGU] = dims->expert_rows * 2 * dims->expert_ffn * e;
    bytes[PL_ACT_EA] = dims->expert_rows * dims->expert_ffn * e;
    bytes[PL_ACT_EY] = dims->choices * dims->hidden * e;
}

/* full keeps the input alone; selective gives up what one cheap pass over memory restores: the
 * outputs of the norms and of SwiGLU. */
static bool kept(const struct pl_layout *layout, enum pl_act act)
{
    if (act == PL_ACT_X || layout->recompute == PL_RECOMPUTE_NONE)
        return true;
    if (layout->recompute == PL_RECOMPUTE_FULL)
        return false;
    /* zero-bubble replaces gate and up by their gradients in the first half of the backward pass,
     * after which the product of SwiGLU cannot be made again. */
    if (layout->schedule == PL_ZERO_BUBBLE && (act == PL_ACT_A || act == PL_ACT_EA))
        return true;
    return act != PL_ACT_H1 && act != PL_ACT_H2 && act != PL_ACT_A && act != PL_ACT_EA &&
           act != PL_ACT_NORMED;
}

bool pl_act_is_route(enum pl_act act)
{
    return act == PL_ACT_PROBS || act == PL_ACT_IDX || act == PL_ACT_PLACE || act == PL_ACT_SRC ||
           act == PL_ACT_FREQ || act == PL_ACT_COUNTS;
}

/* ACT is OTHER, and has no bytes of its own. */
static void same_place(struct pl_acts *acts, enum pl_act act, enum pl_act other)
{
    assert(acts->bytes[act] == 0);
    acts->offset[act] = acts->offset[other];
    acts->saved[act] = acts->saved[other];
}

static void acts_norms(uint64_t *bytes, const struct pl_model *model, const struct pl_dims *dims)
{
    uint64_t rows = dims->local_rows * dims->hidden * dims->elem;

    if (model->pre_norms) {
        bytes[PL_ACT_H1] = rows;
        bytes[PL_ACT_RRMS1] = dims->local_rows * dims->stats * 4;
    }
    if (pl_input_norms(model) > 1) {
        bytes[PL_ACT_H2] = rows;
        bytes[PL_ACT_RRMS2] = dims->local_rows * dims->stats * 4;
    }
    if (model->post_norms) {
        bytes[PL_ACT_Y1] = bytes[PL_ACT_Y2] = rows;
        bytes[PL_ACT_YRRMS1] = bytes[PL_ACT_YRRMS2] = dims->local_rows * 4;
    }
}

void pl_acts(struct pl_acts *ret, const struct pl_model *model, const struct pl_layout *layout,
             const struct pl_dims *dims, bool moe)
{
    uint64_t e = dims->elem, lh = dims->local_rows * dims->hidden * e;
    uint64_t ffn = moe ? dims->shared_ffn : dims->ffn;
    uint64_t *b = ret->bytes;

    *ret = (struct pl_acts){0};
    b[PL_ACT_X] = b[PL_ACT_X2] = lh;
    acts_norms(b, model, dims);
    b[PL_ACT_QKV] = dims->rows * dims->qkv * e;
    if (model->qk_norm == PL_QK_HEAD) {
        b[PL_ACT_QK] = dims->rows * dims->qk * e;
        b[PL_ACT_QKRRMS] = dims->rows * (dims->heads + dims->kv_heads) * 4;
    }
    if (model->qk_norm == PL_QK_FULL) {
        b[PL_ACT_QK] = dims->rows * dims->qk * e;
        b[PL_ACT_QKRRMS] = 2 * dims->rows * 4;
    }
    if (dims->latent) {
        b[PL_ACT_LATENT] = b[PL_ACT_NORMED] = dims->local_rows * dims->latent * e;
        b[PL_ACT_LRRMS] = dims->local_rows * (dims->q_latent ? 2 : 1) * 4;
    }
    b[PL_ACT_LSE] = dims->rows * dims->heads * 4;
    b[PL_ACT_O] = dims->rows * dims->attn * e;
    b[PL_ACT_GU] = dims->rows * dims->gates * ffn * e;
    b[PL_ACT_A] = dims->rows * ffn * e;
    if (moe)
        acts_moe(b, layout, dims);
    if (moe && model->moe.shared_gate) {
        b[PL_ACT_SHARED] = lh;
        b[PL_ACT_GATE] = 2 * dims->local_rows * 4;
    }
    for (int i = 0; i < PL_ACTS; i++) {
        struct pl_act_bytes *in;
        uint64_t *at;

        b[i] = round64(b[i]);
        ret->saved[i] = kept(layout, (enum pl_act)i);
        in = ret->saved[i] ? &ret->slot : &ret->scratch;
        at = pl_act_is_route((enum pl_act)i) ? &in->routes : &in->acts;
        ret->offset[i] = *at;
        *at += b[i];
    }
    if (model->shared_norm)
        same_place(ret, PL_ACT_H2, PL_ACT_H1);
    if (!model->pre_norms) {
        same_place(ret, PL_ACT_H1, PL_ACT_X);
        same_place(ret, PL_ACT_H2, PL_ACT_X2);
    }
}

uint64_t pl_grad_acts(struct pl_grad_acts *ret, const struct pl_dims *dims, bool moe, uint64_t at)
{
    uint64_t lh = round64(dims->local_rows * dims->hidden * dims->elem);

    ret->dy = at;
    ret->d2 = ret->dy + lh;
    ret->dqkv = ret->d2 + lh;
    ret->dey = ret->dqkv + round64(dims->dqkv * dims->elem);
    ret->dbias = ret->dey + (moe ? round64(dims->expert_rows * dims->hidden * dims->elem) : 0);
    return ret->dbias + (!moe && dims->gates == 1 ? round64(dims->ffn * sizeof(float)) : 0);
}

/* ---- the list ------------------------------------------------------------ */

struct build {
    struct pl_buffers *list; /* NULL: only their sum is wanted */
    struct pl_memory *sum;   /* without LIST */
    struct pl_param_counts *counts;
    const struct pl_model *model;
    const struct pl_layout *layout;
    const struct pl_workload *workload;
    struct pl_dims dims;
    struct pl_acts act[2]; /* of a dense layer, of one with experts */
    int stage;
    struct pl_layer_count layers; /* of the stage, all chunks, and modules of mtp */
};

static bool any_layer(const struct build *build)
{
    return build->layers.dense + build->layers.moe > 0;
}

/* Slots 0 to SLOTS - 1 of CHUNK, each of BYTES. */
static void add(struct build *build, enum pl_buf id, int chunk, int slots, enum pl_mem_class cls,
                uint64_t bytes)
{
    struct pl_buffers *t = build->list;

    if (bytes == 0)
        return;
    if (!t)
        build->sum->bytes[cls] += (double)slots * (double)round64(bytes);
    for (int slot = 0; t && slot < slots; slot++) {
        MEM_GROW(t->b, t->n, t->cap);
        t->b[t->n++] = (struct pl_buffer){id, chunk, slot, cls, round64(bytes)};
    }
}

static void add1(struct build *build, enum pl_buf id, enum pl_mem_class cls, uint64_t bytes)
{
    add(build, id, 0, 1, cls, bytes);
}

static struct pl_param_sizes sizes_of(const struct build *build)
{
    const struct pl_layout *layout = build->layout;
    struct pl_param_counts x = {.key = {layout->tp, layout->pp, layout->vp, layout->stages,
                                        layout->ep, layout->etp, pl_axis_size(layout, PL_DP_CP),
                                        layout->edp, layout->zero, layout->zero_scope,
                                        layout->shard, layout->overlap_grad_reduce,
                                        layout->overlap_param_gather, build->stage}};
    struct pl_param_counts *known;
    uint64_t hash = 0;

    for (size_t i = 0; i < ARRAY_LEN(x.key); i++)
        hash = (hash ^ (unsigned)x.key[i]) * 0x9e3779b97f4a7c15U;
    known = build->counts ? &build->counts[(hash >> 40) % PL_COUNTS] : NULL;
    if (known && !memcmp(known->key, x.key, sizeof(x.key)))
        return known->sizes;
    pl_params_count(&x.sizes, build->model, layout, build->stage);
    if (known)
        *known = x;
    return x.sizes;
}

/* How many second moments there are of STATE elements, of which ADAM are not of hidden matrices. */
static uint64_t second_moments(enum pl_optimizer optimizer, uint64_t state, uint64_t adam)
{
    if (optimizer == PL_SGD)
        return 0;
    return optimizer == PL_MUON ? adam : state;
}

static void build_muon(struct build *build)
{
    struct pl_muon_room room;

    if (build->workload->optimizer != PL_MUON)
        return;
    pl_muon_room(&room, build->model);
    add1(build, PL_BUF_MUON, PL_MEM_WORKSPACE, 2 * (room.matrix + room.square) * 4);
}

static uint64_t balance_bytes(const struct build *build)
{
    return build->model->moe.balance_bias
               ? (uint64_t)build->layers.moe * build->dims.experts * sizeof(float)
               : 0;
}

uint64_t pl_grad_sum(const struct pl_dims *dims)
{
    uint64_t vector = max(2 * dims->hidden, max(dims->gates * dims->ffn, dims->qkv));

    return max(PL_GRAD_PIECE, max(vector, dims->latent));
}

static void build_state(struct build *build)
{
    struct pl_param_sizes n = sizes_of(build);

    add1(build, PL_BUF_WEIGHT, PL_MEM_WEIGHTS, n.weight * build->dims.elem);
    add1(build, PL_BUF_GRAD, PL_MEM_GRADS, n.grad * (uint64_t)pl_grad_bytes(build->layout));
    if (build->layout->grad_dtype == PL_GRADS_BF16)
        add1(build, PL_BUF_GRAD_SUM, PL_MEM_WORKSPACE, pl_grad_sum(&build->dims) * 4);
    if (build->layout->precision == PL_BF16)
        add1(build, PL_BUF_MASTER, PL_MEM_MASTER, n.state * 4);
    add1(build, PL_BUF_MOMENT1, PL_MEM_OPTIMIZER, n.state * 4);
    add1(build, PL_BUF_MOMENT2, PL_MEM_OPTIMIZER,
         second_moments(build->workload->optimizer, n.state, n.adam) * 4);
    build_muon(build);
    add1(build, PL_BUF_BALANCE, PL_MEM_OPTIMIZER, balance_bytes(build));
}

/* fp32 weights, or masters, of which a rank has state, and their moments; behind what its writer
 * writes from. */
static void build_snapshot(struct build *build)
{
    struct pl_param_sizes n;

    if (!build->workload->snapshot)
        return;
    n = sizes_of(build);
    add1(build, PL_BUF_SNAPSHOT, PL_MEM_SNAPSHOT,
         PL_SNAPSHOT_BOUNCE +
             (2 * n.state + second_moments(build->workload->optimizer, n.state, n.adam)) * 4 +
             balance_bytes(build));
}

static struct pl_act_bytes slot_bytes(const struct build *build, int chunk)
{
    int first,
        moe = 0,
        n = pl_stage_layers(&first, build->layout, build->model->layers, build->stage, chunk);
    const struct pl_acts *act = build->act;
    struct pl_act_bytes bytes;

    if (!pl_model_is_mixed(build->model))
        moe = pl_model_is_moe(build->model) ? n : 0;
    for (int i = first; pl_model_is_mixed(build->model) && i < first + n; i++)
        moe += pl_layer_is_moe(build->model, i);
    bytes.acts = (uint64_t)(n - moe) * act[0].slot.acts + (uint64_t)moe * act[1].slot.acts;
    bytes.routes = (uint64_t)moe * act[1].slot.routes;
    if (build->stage == build->layout->pp - 1 && chunk == build->layout->vp - 1)
        bytes.acts += round64(build->dims.local_rows * build->dims.hidden * build->dims.elem);
    return bytes;
}

static uint64_t grad_slot_bytes(const struct build *build, int chunk)
{
    int first,
        n = pl_stage_layers(&first, build->layout, build->model->layers, build->stage, chunk);
    struct pl_grad_acts g;
    uint64_t at = 0;

    for (int i = first; i < first + n; i++)
        at = pl_grad_acts(&g, &build->dims, pl_layer_is_moe(build->model, i), at);
    return at;
}

static void build_slots(struct build *build)
{
    const struct pl_layout *layout = build->layout;

    for (int c = 0; c < layout->vp; c++) {
        enum pl_schedule schedule = (enum pl_schedule)layout->schedule;
        int micro = build->dims.microbatches;
        int live = pl_schedule_live(schedule, build->stage, layout->pp, layout->vp, micro, c);
        int grads = pl_schedule_live_grads(schedule, build->stage, layout->vp, micro);
        struct pl_act_bytes slot = slot_bytes(build, c);

        add(build, PL_BUF_SLOT, c, live, PL_MEM_ACTIVATIONS, slot.acts);
        add(build, PL_BUF_ROUTES, c, live, PL_MEM_ACTIVATIONS, slot.routes);
        if (grads)
            add(build, PL_BUF_GRAD_SLOT, c, grads, PL_MEM_ACTIVATIONS, grad_slot_bytes(build, c));
    }
    add1(build, PL_BUF_SCRATCH, PL_MEM_ACTIVATIONS,
         max(build->layers.dense ? build->act[0].scratch.acts : 0,
             build->layers.moe ? build->act[1].scratch.acts : 0));
    if (build->layers.moe)
        add1(build, PL_BUF_SCRATCH_ROUTES, PL_MEM_ACTIVATIONS, build->act[1].scratch.routes);
}

uint64_t pl_coll_scratch(int members)
{
    uint64_t peers = (uint64_t)members - 1, all = UINT64_C(1) << 18, each = UINT64_C(1) << 16;

    return members > 1 ? PL_COLL_AHEAD * max(all, peers * each) : 0;
}

uint64_t pl_coll_piece(int members)
{
    assert(members > 1);
    return pl_coll_scratch(members) / PL_COLL_AHEAD / ((uint64_t)members - 1) / 16 * 16;
}

/* The first and the last stage add up the gradient of an embedding of both in the scratch of tp,
 * and cp its sums of routers: all three are waited for, so they never meet. */
static int tp_members(const struct build *build)
{
    const struct pl_layout *layout = build->layout;
    bool pair = pl_embeds_twice(build->model, layout) &&
                (build->stage == 0 || build->stage == layout->pp - 1);
    int cp = pl_model_is_moe(build->model) ? layout->cp : 1, most = layout->tp;

    if (pair && most < 2)
        most = 2;
    return most < cp ? cp : most;
}

/* Keys and values, and their gradients, on their way round the ranks of cp. */
static void build_ring(struct build *build)
{
    const struct pl_dims *dims = &build->dims;
    uint64_t kv = dims->rows * dims->kv_heads * (dims->head_dim + dims->v_dim);

    if (build->layout->cp == 1 || !any_layer(build))
        return;
    add(build, PL_BUF_RING_KV, 0, PL_RING_KVS, PL_MEM_COMM, kv * dims->elem);
    add(build, PL_BUF_RING_DKV, 0, PL_RING_DKVS, PL_MEM_COMM, kv * 4);
    if (dims->elem == 2)
        add1(build, PL_BUF_RING_SUM, PL_MEM_WORKSPACE,
             dims->rows * dims->heads * max(dims->head_dim, dims->v_dim) * 4);
}

static void build_comm(struct build *build)
{
    const struct pl_layout *layout = build->layout;
    uint64_t lh = build->dims.local_rows * build->dims.hidden * build->dims.elem;

    if (layout->overlap_p2p)
        add(build, PL_BUF_ACT_IN, 0, PL_ACT_INS, PL_MEM_COMM, lh);
    if (layout->pp > 1) {
        add(build, PL_BUF_ACT_OUT, 0, PL_ACT_OUTS, PL_MEM_COMM, lh);
        add(build, PL_BUF_GRAD_RING, 0, PL_GRAD_RINGS, PL_MEM_COMM, lh);
    }
    add1(build, PL_BUF_COLL_TP, PL_MEM_COMM, pl_coll_scratch(tp_members(build)) * sizeof(float));
    add1(build, PL_BUF_COLL_DP, PL_MEM_COMM,
         pl_coll_scratch(pl_axis_size(layout, PL_DP_CP)) * sizeof(float));
    if (build->layers.moe) {
        add1(build, PL_BUF_COLL_EDP, PL_MEM_COMM, pl_coll_scratch(layout->edp) * sizeof(float));
        add1(build, PL_BUF_MOE_SEND, PL_MEM_COMM,
             build->dims.choices * build->dims.hidden * build->dims.elem);
        if (layout->ep * layout->etp > 1)
            add1(build, PL_BUF_MOE_RECV, PL_MEM_COMM,
                 build->dims.expert_rows * build->dims.hidden *
                     (layout->etp > 1 ? 4 : build->dims.elem));
        if (layout->etp > 1)
            add1(build, PL_BUF_MOE_PART, PL_MEM_COMM,
                 (uint64_t)layout->etp * build->dims.choices * build->dims.hidden * 4);
    }
}

static void build_head(struct build *build)
{
    const struct pl_dims *dims = &build->dims;
    uint64_t lh = dims->local_rows * dims->hidden * dims->elem;

    if (build->stage != build->layout->pp - 1)
        return;
    add1(build, PL_BUF_XF, PL_MEM_LOGITS, lh);
    add1(build, PL_BUF_HF, PL_MEM_LOGITS, lh);
    add1(build, PL_BUF_RRMSF, PL_MEM_LOGITS, dims->local_rows * dims->stats * 4);
    add1(build, PL_BUF_XENT, PL_MEM_LOGITS, dims->rows * 12);
    add1(build, PL_BUF_LOGITS, PL_MEM_LOGITS, dims->rows * dims->vocab * dims->elem);
}

/* Multi-token prediction: one micro-batch at a time, since loss and gradient of its modules are
 * computed where those of the model are. */
static void build_mtp(struct build *build)
{
    const struct pl_dims *dims = &build->dims;
    uint64_t depth = (uint64_t)build->model->mtp;
    const struct pl_acts *layer = &build->act[pl_layer_is_moe(build->model, build->model->layers)];
    struct pl_mtp_acts acts;

    if (build->stage != build->layout->pp - 1 || !depth)
        return;
    pl_mtp_acts(&acts, dims, layer);
    add(build, PL_BUF_MTP, 0, build->model->mtp, PL_MEM_ACTIVATIONS, acts.bytes);
    add(build, PL_BUF_MTP_ROUTES, 0, build->model->mtp, PL_MEM_ACTIVATIONS, layer->slot.routes);
    add(build, PL_BUF_MTP_GRAD, 0, PL_MTP_GRADS, PL_MEM_WORKSPACE,
        dims->local_rows * dims->hidden * dims->elem);
    add1(build, PL_BUF_MTP_TOKENS, PL_MEM_WORKSPACE,
         2 * depth * (uint64_t)dims->microbatches * dims->rows * sizeof(int32_t));
}

static void build_moe(struct build *build)
{
    const struct pl_dims *dims = &build->dims;

    add1(build, PL_BUF_MOE_DEA, PL_MEM_WORKSPACE,
         dims->expert_rows * dims->expert_ffn * dims->elem);
    add1(build, PL_BUF_MOE_ROUTER, PL_MEM_WORKSPACE,
         (2 * dims->local_rows * dims->experts + dims->choices) * 4);
    add1(build, PL_BUF_MOE_STATS, PL_MEM_WORKSPACE,
         2 * (uint64_t)build->layout->micro_batch * dims->experts * 4);
    if (build->model->moe.shared_gate)
        add1(build, PL_BUF_GATE, PL_MEM_WORKSPACE,
             dims->local_rows * (dims->hidden * dims->elem + 4 * 4));
    if (build->model->mlp_bias || build->model->moe.router_bias)
        add1(build, PL_BUF_ONES, PL_MEM_WORKSPACE,
             max(dims->expert_rows, dims->local_rows) * dims->elem);
    add1(build, PL_BUF_MOE_LOAD, PL_MEM_WORKSPACE,
         (uint64_t)build->layers.moe * dims->experts * (sizeof(double) + sizeof(float)));
}

/* What layers work in. */
static void build_layers(struct build *build)
{
    const struct pl_dims *dims = &build->dims;
    const struct pl_layout *layout = build->layout;
    uint64_t e = dims->elem;

    if (build->model->parallel_block || build->model->post_norms ||
        pl_residual_is_scaled(build->model))
        add1(build, PL_BUF_DX2, PL_MEM_WORKSPACE, dims->local_rows * dims->hidden * e);
    add1(build, PL_BUF_DAO, PL_MEM_WORKSPACE,
         dims->rows * max(dims->attn, max(dims->ffn, dims->shared_ffn)) * e);
    add1(build, PL_BUF_DQKV, PL_MEM_WORKSPACE,
         (dims->dqkv + (dims->latent ? dims->rows * dims->heads * dims->head_dim : 0)) * e);
    if (layout->sp || e == 2)
        add1(build, PL_BUF_DLATENT, PL_MEM_WORKSPACE, dims->rows * dims->latent * 4);
    /* bf16: the gradients of keys and values are summed in fp32, with cp in the ring's buffers */
    add1(build, PL_BUF_ATTN, PL_MEM_WORKSPACE,
         dims->rows *
             (dims->heads +
              (e == 2 && layout->cp == 1 ? dims->kv_heads * (dims->head_dim + dims->v_dim) : 0)) *
             4);
    if (build->model->qk_norm == PL_QK_FULL)
        add1(build, PL_BUF_QK_SUM, PL_MEM_WORKSPACE, 2 * dims->rows * 4);
    if (build->model->positions == PL_ROPE)
        add1(
            build, PL_BUF_ROPE, PL_MEM_WORKSPACE,
            (uint64_t)pl_rope_tables(build->model) *
                (build->workload->reset_position_ids ? (uint64_t)build->workload->seq : dims->seq) *
                (uint64_t)pl_rotary_dim(build->model) * 4);
    if (build->layers.moe)
        build_moe(build);
}

/* The gradient of a layer's input is that of the latents' product and of the queries' own. */
static bool sums_products(const struct pl_dims *dims)
{
    return dims->latent && !dims->q_latent;
}

static void build_workspace(struct build *build)
{
    const struct pl_dims *dims = &build->dims;
    const struct pl_layout *layout = build->layout;
    uint64_t e = dims->elem;

    if (layout->sp)
        add1(build, PL_BUF_GATHER, PL_MEM_WORKSPACE,
             dims->rows * max(dims->hidden, dims->latent) * e);
    if (layout->sp || (e == 2 && (layout->tp > 1 || sums_products(dims))))
        add1(build, PL_BUF_PARTIAL, PL_MEM_WORKSPACE, dims->rows * dims->hidden * 4);
    if (layout->tp_overlap)
        add1(build, PL_BUF_TP_RECV, PL_MEM_COMM,
             (uint64_t)(layout->tp - 1) * dims->local_rows * dims->hidden * 4);
    add1(build, PL_BUF_DH, PL_MEM_WORKSPACE, dims->local_rows * dims->hidden * e);
    if (any_layer(build))
        build_layers(build);
    if (pl_model_is_moe(build->model) && build->model->moe.aux_loss == PL_AUX_HUGGINGFACE)
        add1(build, PL_BUF_MOE_POOL, PL_MEM_WORKSPACE,
             2 * (uint64_t)dims->microbatches * dims->experts * sizeof(double));
    add1(build, PL_BUF_TOKENS, PL_MEM_WORKSPACE,
         ((pl_workload_has_documents(build->workload) ? 3 : 2) * (uint64_t)dims->microbatches *
              dims->rows +
          (uint64_t)build->workload->seq + 1) *
             4);
    if (build->model->positions == PL_LEARNED && build->stage == 0 &&
        !build->workload->reset_position_ids)
        add1(build, PL_BUF_POSITIONS, PL_MEM_WORKSPACE, dims->rows * 4);
    add1(build, PL_BUF_KERNEL, PL_MEM_WORKSPACE, (uint64_t)layout->threads * PL_KERNEL_SCRATCH);
}

static void build_all(struct build *build)
{
    pl_dims(&build->dims, build->model, build->layout, build->workload);
    build->layers = pl_stage_count(build->model, build->layout, build->stage);
    if (build->stage == build->layout->pp - 1)
        *(pl_layer_is_moe(build->model, build->model->layers) ? &build->layers.moe
                                                              : &build->layers.dense) +=
            build->model->mtp;
    pl_acts(&build->act[0], build->model, build->layout, &build->dims, false);
    if (pl_model_is_moe(build->model))
        pl_acts(&build->act[1], build->model, build->layout, &build->dims, true);
    build_state(build);
    build_slots(build);
    build_comm(build);
    build_ring(build);
    build_head(build);
    build_mtp(build);
    build_workspace(build);
    build_snapshot(build);
}

void pl_buffers_build(struct pl_buffers *ret, const struct pl_model *model,
                      const struct pl_layout *layout, const struct pl_workload *workload, int rank)
{
    struct build b = {.list = ret,
                      .model = model,
                      .layout = layout,
                      .workload = workload,
                      .stage = pl_axis_coord(layout, PL_PP, rank)};

    assert(rank >= 0 && rank < layout->world);
    *ret = (struct pl_buffers){0};
    build_all(&b);
}

void pl_buffers_done(struct pl_buffers *buffers)
{
    free(buffers->b);
    *buffers = (struct pl_buffers){0};
}

void pl_memory_partune_stage(struct pl_memory *ret, const struct pl_problem *problem,
                             const struct pl_layout *layout, int stage,
                             struct pl_param_counts *counts)
{
    struct build b = {.sum = ret,
                      .counts = counts,
                      .model = problem->model,
                      .layout = layout,
                      .workload = problem->workload,
                      .stage = stage};

    build_all(&b);
}
