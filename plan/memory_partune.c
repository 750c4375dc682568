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
#include "plan/memory.h"

const char *const pl_buf_names[PL_BUFS] = {
    "weight",   "grad",     "master",    "moment1",  "moment2", "slot",       "grad_slot",
    "act_in",   "act_out",  "grad_ring", "scratch",  "gather",  "partial",    "dh",
    "dao",      "dqkv",     "attn",      "xf",       "hf",      "rrmsf",      "xent",
    "logits",   "moe_send", "moe_recv",  "moe_part", "moe_dea", "moe_router", "moe_stats",
    "moe_pool", "tokens",   "rope",      "coll_tp",  "coll_dp", "coll_edp",   "kernel",
};

static uint64_t round64(uint64_t n)
{
    return (n + 63) / 64 * 64;
}

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void dims_moe(struct pl_dims *d, const struct pl_moe *moe, const struct pl_layout *l)
{
    d->experts = (uint64_t)moe->experts;
    d->local_experts = d->experts / (uint64_t)l->ep;
    d->top_k = (uint64_t)moe->top_k;
    d->expert_ffn = (uint64_t)(moe->expert_ffn / l->etp);
    d->shared_ffn = (uint64_t)(moe->shared_ffn / l->tp);
    d->choices = d->local_rows * d->top_k;
    d->expert_rows = (uint64_t)(l->ep * l->etp) * d->local_rows *
                     (d->top_k < d->local_experts ? d->top_k : d->local_experts);
}

void pl_dims(struct pl_dims *ret, const struct pl_model *m, const struct pl_layout *l,
             const struct pl_workload *w)
{
    uint64_t tp = (uint64_t)l->tp;

    *ret = (struct pl_dims){.rows = (uint64_t)l->micro_batch * (uint64_t)w->seq,
                            .hidden = (uint64_t)m->hidden,
                            .head_dim = (uint64_t)m->head_dim,
                            .heads = (uint64_t)m->heads / tp,
                            .kv_heads = (uint64_t)m->kv_heads / tp,
                            .ffn = (uint64_t)m->ffn / tp,
                            .vocab = (uint64_t)pl_vocab_padded(m, l) / tp,
                            .elem = l->precision == PL_BF16 ? 2 : 4,
                            .microbatches = pl_microbatches(l, w)};
    ret->local_rows = l->sp ? ret->rows / tp : ret->rows;
    ret->qkv = (ret->heads + 2 * ret->kv_heads) * ret->head_dim;
    ret->attn = ret->heads * ret->head_dim;
    if (pl_model_is_moe(m))
        dims_moe(ret, &m->moe, l);
}

static void acts_moe(uint64_t *b, const struct pl_layout *l, const struct pl_dims *d)
{
    uint64_t e = d->elem;

    b[PL_ACT_PROBS] = d->local_rows * d->experts * 4;
    b[PL_ACT_IDX] = b[PL_ACT_W] = b[PL_ACT_PLACE] = b[PL_ACT_SRC] = d->choices * 4;
    b[PL_ACT_FREQ] = (uint64_t)l->micro_batch * d->experts * 4;
    b[PL_ACT_COUNTS] = ((uint64_t)(1 + l->etp) * d->experts + d->local_experts + 2) * 4;
    b[PL_ACT_EX] = d->expert_rows * d->hidden * e;
    b[PL_ACT_EGU] = d->expert_rows * 2 * d->expert_ffn * e;
    b[PL_ACT_EA] = d->expert_rows * d->expert_ffn * e;
    b[PL_ACT_EY] = d->choices * d->hidden * e;
}

/* full keeps the input alone; selective gives up what one cheap pass over memory restores: the
 * outputs of the norms and of SwiGLU. */
static bool kept(const struct pl_layout *l, enum pl_act a)
{
    if (a == PL_ACT_X || l->recompute == PL_RECOMPUTE_NONE)
        return true;
    if (l->recompute == PL_RECOMPUTE_FULL)
        return false;
    /* zero-bubble replaces gate and up by their gradients in the first half of the backward pass,
     * after which the product of SwiGLU cannot be made again. */
    if (l->schedule == PL_ZERO_BUBBLE && (a == PL_ACT_A || a == PL_ACT_EA))
        return true;
    return a != PL_ACT_H1 && a != PL_ACT_H2 && a != PL_ACT_A && a != PL_ACT_EA;
}

void pl_acts(struct pl_acts *ret, const struct pl_model *m, const struct pl_layout *l,
             const struct pl_dims *d, bool moe)
{
    uint64_t e = d->elem, lh = d->local_rows * d->hidden * e;
    uint64_t ffn = moe ? d->shared_ffn : d->ffn;
    uint64_t *b = ret->bytes;

    (void)m;
    *ret = (struct pl_acts){0};
    b[PL_ACT_X] = b[PL_ACT_H1] = b[PL_ACT_X2] = b[PL_ACT_H2] = lh;
    b[PL_ACT_RRMS1] = b[PL_ACT_RRMS2] = d->local_rows * 4;
    b[PL_ACT_QKV] = d->rows * d->qkv * e;
    b[PL_ACT_LSE] = d->rows * d->heads * 4;
    b[PL_ACT_O] = d->rows * d->attn * e;
    b[PL_ACT_GU] = d->rows * 2 * ffn * e;
    b[PL_ACT_A] = d->rows * ffn * e;
    if (moe)
        acts_moe(b, l, d);
    for (int i = 0; i < PL_ACTS; i++) {
        uint64_t *at;

        b[i] = round64(b[i]);
        ret->saved[i] = kept(l, (enum pl_act)i);
        at = ret->saved[i] ? &ret->slot_bytes : &ret->scratch_bytes;
        ret->offset[i] = *at;
        *at += b[i];
    }
}

uint64_t pl_grad_acts(struct pl_grad_acts *ret, const struct pl_dims *d, bool moe, uint64_t at)
{
    uint64_t lh = round64(d->local_rows * d->hidden * d->elem);

    ret->dy = at;
    ret->d2 = ret->dy + lh;
    ret->dqkv = ret->d2 + lh;
    ret->dey = ret->dqkv + round64(d->rows * d->qkv * d->elem);
    return ret->dey + (moe ? round64(d->expert_rows * d->hidden * d->elem) : 0);
}

/* ---- the list ---- */

struct build {
    struct pl_buffers *t;  /* NULL: only their sum is wanted */
    struct pl_memory *sum; /* without T */
    struct pl_param_counts *counts;
    const struct pl_model *m;
    const struct pl_layout *l;
    const struct pl_workload *w;
    struct pl_dims d;
    struct pl_acts act[2]; /* of a dense layer, of one with experts */
    int stage;
};

/* Slots 0 to N - 1 of CHUNK, each of BYTES. */
static void add(struct build *b, enum pl_buf id, int chunk, int n, enum pl_mem_class cls,
                uint64_t bytes)
{
    struct pl_buffers *t = b->t;

    if (bytes == 0)
        return;
    if (!t)
        b->sum->bytes[cls] += (double)n * (double)round64(bytes);
    for (int slot = 0; t && slot < n; slot++) {
        MEM_GROW(t->b, t->n, t->cap);
        t->b[t->n++] = (struct pl_buffer){id, chunk, slot, cls, round64(bytes)};
    }
}

static void add1(struct build *b, enum pl_buf id, enum pl_mem_class cls, uint64_t bytes)
{
    add(b, id, 0, 1, cls, bytes);
}

static struct pl_param_counts counts_of(const struct build *b)
{
    const struct pl_layout *l = b->l;
    struct pl_param_counts x = {.key = {l->tp, l->pp, l->vp, l->ep, l->etp, l->dp, l->edp, l->zero,
                                        l->zero_scope, b->stage}};
    struct pl_param_counts *known;
    uint64_t hash = 0;

    for (size_t i = 0; i < ARRAY_LEN(x.key); i++)
        hash = (hash ^ (unsigned)x.key[i]) * 0x9e3779b97f4a7c15U;
    known = b->counts ? &b->counts[(hash >> 40) % PL_COUNTS] : NULL;
    if (known && !memcmp(known->key, x.key, sizeof(x.key)))
        return *known;
    pl_params_count(&x.count, &x.state_count, b->m, l, b->stage);
    if (known)
        *known = x;
    return x;
}

static void build_state(struct build *b)
{
    struct pl_param_counts n = counts_of(b);

    add1(b, PL_BUF_WEIGHT, PL_MEM_WEIGHTS, n.count * b->d.elem);
    add1(b, PL_BUF_GRAD, PL_MEM_GRADS, n.count * 4);
    if (b->l->precision == PL_BF16)
        add1(b, PL_BUF_MASTER, PL_MEM_MASTER, n.state_count * 4);
    add1(b, PL_BUF_MOMENT1, PL_MEM_OPTIMIZER, n.state_count * 4);
    add1(b, PL_BUF_MOMENT2, PL_MEM_OPTIMIZER, n.state_count * 4);
}

static uint64_t slot_bytes(const struct build *b, int chunk)
{
    int first, n = pl_stage_layers(b->l, b->m->layers, b->stage, chunk, &first);
    uint64_t bytes = 0;

    if (!pl_model_is_mixed(b->m))
        bytes = (uint64_t)n * b->act[pl_model_is_moe(b->m)].slot_bytes;
    for (int i = first; pl_model_is_mixed(b->m) && i < first + n; i++)
        bytes += b->act[pl_layer_is_moe(b->m, i)].slot_bytes;
    if (b->stage == b->l->pp - 1 && chunk == b->l->vp - 1)
        bytes += round64(b->d.local_rows * b->d.hidden * b->d.elem);
    return bytes;
}

static uint64_t grad_slot_bytes(const struct build *b, int chunk)
{
    int first, n = pl_stage_layers(b->l, b->m->layers, b->stage, chunk, &first);
    struct pl_grad_acts g;
    uint64_t at = 0;

    for (int i = first; i < first + n; i++)
        at = pl_grad_acts(&g, &b->d, pl_layer_is_moe(b->m, i), at);
    return at;
}

static void build_slots(struct build *b)
{
    const struct pl_layout *l = b->l;

    for (int c = 0; c < l->vp; c++) {
        enum pl_schedule schedule = (enum pl_schedule)l->schedule;
        int micro = b->d.microbatches;
        int live = pl_schedule_live(schedule, b->stage, l->pp, l->vp, micro, c);
        int grads = pl_schedule_live_grads(schedule, b->stage, l->vp, micro);

        add(b, PL_BUF_SLOT, c, live, PL_MEM_ACTIVATIONS, slot_bytes(b, c));
        if (grads)
            add(b, PL_BUF_GRAD_SLOT, c, grads, PL_MEM_ACTIVATIONS, grad_slot_bytes(b, c));
    }
    add1(b, PL_BUF_SCRATCH, PL_MEM_ACTIVATIONS,
         max(b->act[0].scratch_bytes, b->act[1].scratch_bytes));
}

uint64_t pl_coll_scratch(int p)
{
    uint64_t peers = (uint64_t)p - 1, all = UINT64_C(1) << 18, each = UINT64_C(1) << 16;

    return p > 1 ? PL_COLL_AHEAD * max(all, peers * each) : 0;
}

uint64_t pl_coll_piece(int p)
{
    return pl_coll_scratch(p) / PL_COLL_AHEAD / ((uint64_t)p - 1) / 16 * 16;
}

/* The first and the last stage add up the gradient of a tied embedding in the scratch of tp: both
 * kinds of sums are waited for, so they never meet. */
static int tp_members(const struct build *b)
{
    const struct pl_layout *l = b->l;
    bool pair = b->m->tied && l->pp > 1 && (b->stage == 0 || b->stage == l->pp - 1);

    return l->tp == 1 && pair ? 2 : l->tp;
}

static void build_comm(struct build *b)
{
    const struct pl_layout *l = b->l;
    uint64_t lh = b->d.local_rows * b->d.hidden * b->d.elem;

    if (l->overlap_p2p)
        add(b, PL_BUF_ACT_IN, 0, PL_ACT_INS, PL_MEM_COMM, lh);
    if (l->pp > 1) {
        add(b, PL_BUF_ACT_OUT, 0, PL_ACT_OUTS, PL_MEM_COMM, lh);
        add(b, PL_BUF_GRAD_RING, 0, PL_GRAD_RINGS, PL_MEM_COMM, lh);
    }
    add1(b, PL_BUF_COLL_TP, PL_MEM_COMM, pl_coll_scratch(tp_members(b)) * sizeof(float));
    add1(b, PL_BUF_COLL_DP, PL_MEM_COMM, pl_coll_scratch(l->dp) * sizeof(float));
    if (pl_model_is_moe(b->m)) {
        add1(b, PL_BUF_COLL_EDP, PL_MEM_COMM, pl_coll_scratch(l->edp) * sizeof(float));
        add1(b, PL_BUF_MOE_SEND, PL_MEM_COMM, b->d.choices * b->d.hidden * b->d.elem);
        if (l->ep * l->etp > 1)
            add1(b, PL_BUF_MOE_RECV, PL_MEM_COMM,
                 b->d.expert_rows * b->d.hidden * (l->etp > 1 ? 4 : b->d.elem));
        if (l->etp > 1)
            add1(b, PL_BUF_MOE_PART, PL_MEM_COMM,
                 (uint64_t)l->etp * b->d.choices * b->d.hidden * 4);
    }
}

static void build_head(struct build *b)
{
    const struct pl_dims *d = &b->d;
    uint64_t lh = d->local_rows * d->hidden * d->elem;

    if (b->stage != b->l->pp - 1)
        return;
    add1(b, PL_BUF_XF, PL_MEM_LOGITS, lh);
    add1(b, PL_BUF_HF, PL_MEM_LOGITS, lh);
    add1(b, PL_BUF_RRMSF, PL_MEM_LOGITS, d->local_rows * 4);
    add1(b, PL_BUF_XENT, PL_MEM_LOGITS, d->rows * 12);
    add1(b, PL_BUF_LOGITS, PL_MEM_LOGITS, d->rows * d->vocab * d->elem);
}

static void build_workspace(struct build *b)
{
    const struct pl_dims *d = &b->d;
    const struct pl_layout *l = b->l;
    uint64_t e = d->elem;

    if (l->sp)
        add1(b, PL_BUF_GATHER, PL_MEM_WORKSPACE, d->rows * d->hidden * e);
    if (l->sp || (l->tp > 1 && e == 2))
        add1(b, PL_BUF_PARTIAL, PL_MEM_WORKSPACE, d->rows * d->hidden * 4);
    add1(b, PL_BUF_DH, PL_MEM_WORKSPACE, d->local_rows * d->hidden * e);
    add1(b, PL_BUF_DAO, PL_MEM_WORKSPACE, d->rows * max(d->attn, max(d->ffn, d->shared_ffn)) * e);
    add1(b, PL_BUF_DQKV, PL_MEM_WORKSPACE, d->rows * d->qkv * e);
    /* bf16: the gradients of keys and values are summed in fp32 */
    add1(b, PL_BUF_ATTN, PL_MEM_WORKSPACE,
         d->rows * (d->heads + (e == 2 ? 2 * d->kv_heads * d->head_dim : 0)) * 4);
    if (pl_model_is_moe(b->m)) {
        add1(b, PL_BUF_MOE_DEA, PL_MEM_WORKSPACE, d->expert_rows * d->expert_ffn * e);
        add1(b, PL_BUF_MOE_ROUTER, PL_MEM_WORKSPACE,
             (2 * d->local_rows * d->experts + d->choices) * 4);
        add1(b, PL_BUF_MOE_STATS, PL_MEM_WORKSPACE, 2 * (uint64_t)l->micro_batch * d->experts * 4);
        if (b->m->moe.aux_loss == PL_AUX_HUGGINGFACE)
            add1(b, PL_BUF_MOE_POOL, PL_MEM_WORKSPACE,
                 2 * (uint64_t)d->microbatches * d->experts * sizeof(double));
    }
    add1(b, PL_BUF_TOKENS, PL_MEM_WORKSPACE,
         (2 * (uint64_t)d->microbatches * d->rows + (uint64_t)b->w->seq + 1) * 4);
    add1(b, PL_BUF_ROPE, PL_MEM_WORKSPACE, (uint64_t)b->w->seq * d->head_dim * 4);
    add1(b, PL_BUF_KERNEL, PL_MEM_WORKSPACE, (uint64_t)l->threads * PL_KERNEL_SCRATCH);
}

static void build_all(struct build *b)
{
    pl_dims(&b->d, b->m, b->l, b->w);
    pl_acts(&b->act[0], b->m, b->l, &b->d, false);
    if (pl_model_is_moe(b->m))
        pl_acts(&b->act[1], b->m, b->l, &b->d, true);
    build_state(b);
    build_slots(b);
    build_comm(b);
    build_head(b);
    build_workspace(b);
}

void pl_buffers_build(struct pl_buffers *ret, const struct pl_model *m, const struct pl_layout *l,
                      const struct pl_workload *w, int rank)
{
    struct build b = {.t = ret, .m = m, .l = l, .w = w, .stage = pl_axis_coord(l, PL_PP, rank)};

    *ret = (struct pl_buffers){0};
    build_all(&b);
}

void pl_buffers_done(struct pl_buffers *t)
{
    free(t->b);
    *t = (struct pl_buffers){0};
}

void pl_memory_partune_stage(struct pl_memory *ret, const struct pl_model *m,
                             const struct pl_layout *l, const struct pl_workload *w, int stage,
                             struct pl_param_counts *counts)
{
    struct build b = {.sum = ret, .counts = counts, .m = m, .l = l, .w = w, .stage = stage};

    build_all(&b);
}
