/*
 * The parameter table of the bundled trainer.
 *
 * Order of the flat buffers: dense matrices (embedding, layers chunk by chunk, output), then norms
 * and routers, then experts layer by layer. q, k and v are neighbours, and gate and up are, so that
 * one GEMM serves each group; the three matrices of an expert are neighbours and experts follow
 * each other at a constant stride, as the grouped GEMM wants.
 *
 * A walk emits the parameters in that order. Building the table keeps them; counting keeps the last
 * one and the open bucket only, and counts the experts of a layer, which are alike, at once.
 */
#include "base/base.h"
#include "plan/plan.h"

#include <assert.h>

enum {
    ALIGN = 16,          /* elements: every shard starts on a cache line */
    BUCKET_MIN = 1 << 20 /* elements: smaller runs are merged, a collective costs its latency */
};

struct walk {
    const struct pl_model *m;
    const struct pl_layout *l;
    struct pl_params *t;
    bool counting;
    struct pl_param last;    /* of a count */
    struct pl_bucket bucket; /* of a count */
    int rank, stage;
    int cap, bucket_cap;
    int tp, tpc, etp, etpc;
};

int pl_vocab_padded(const struct pl_model *model, const struct pl_layout *layout)
{
    return (model->vocab + layout->tp - 1) / layout->tp * layout->tp;
}

/* Ranks of one stage are i = tp_c + tp * dp_c (cp is 1); the expert coordinate is (i / etp) % ep.
 * With etp = tp it is dp_c % ep; with etp = 1 it recurs in dp every ep / gcd(tp, ep). */
int pl_zero_period(const struct pl_layout *layout)
{
    if (layout->zero == 0 || layout->zero_scope != PL_SCOPE_PLAIN)
        return 1;
    return layout->etp == layout->tp ? layout->ep : layout->ep / pl_gcd(layout->tp, layout->ep);
}

int64_t pl_param_global(const struct pl_param *param, uint64_t index)
{
    uint64_t r = index / param->local[1], c = index % param->local[1];

    if (param->split == 0) {
        if (r >= param->valid)
            return -1;
        r += param->first;
    } else if (param->split == 1) {
        if (c >= param->valid)
            return -1;
        c += param->first;
    }
    return (int64_t)(r * param->shape[1] + c);
}

static void bucket_open(struct walk *walk, enum pl_bucket_kind kind, int chunk, int layer)
{
    struct pl_params *t = walk->t;

    if (walk->counting)
        t->nbuckets = 0;
    else
        MEM_GROW(t->bucket, t->nbuckets, walk->bucket_cap);
    t->bucket[t->nbuckets++] =
        (struct pl_bucket){.kind = kind, .chunk = chunk, .layer = layer, .first = t->count};
}

static void bucket_shards(const struct walk *walk, struct pl_bucket *bucket)
{
    const struct pl_layout *l = walk->l;
    int period = pl_zero_period(l);

    bucket->shards = 1;
    bucket->shard = 0;
    if (l->zero == 0)
        return;
    if (bucket->kind == PL_BUCKET_EXPERT) {
        bucket->shards = l->edp;
        bucket->shard = pl_axis_coord(l, PL_EDP, walk->rank);
    } else {
        bucket->shards = l->dp / period;
        bucket->shard = pl_axis_coord(l, PL_DP, walk->rank) / period;
    }
}

/* Close the open bucket: pad it to whole shards and give it its optimizer state. */
static void bucket_close(struct walk *walk)
{
    struct pl_params *t = walk->t;
    struct pl_bucket *b = &t->bucket[t->nbuckets - 1];
    uint64_t unit;

    bucket_shards(walk, b);
    unit = (uint64_t)b->shards * ALIGN;
    b->count = (t->count - b->first + unit - 1) / unit * unit;
    b->shard_count = b->count / (uint64_t)b->shards;
    b->shard_first = b->first + (uint64_t)b->shard * b->shard_count;
    b->state_first = t->state_count;
    t->state_count += b->shard_count;
    t->count = b->first + b->count;
}

/* Continue the open bucket with the parameters of LAYER of CHUNK, or start the next one. Backward
 * visits layers downwards, so a bucket is ready when its lowest layer is: merging never crosses a
 * chunk. */
static void bucket_continue(struct walk *walk, int chunk, int layer)
{
    struct pl_params *t = walk->t;
    struct pl_bucket *b = &t->bucket[t->nbuckets - 1];

    if (t->count == b->first) {
        b->chunk = chunk;
        b->layer = layer;
    } else if (b->chunk != chunk || t->count - b->first >= BUCKET_MIN) {
        enum pl_bucket_kind kind = b->kind;

        bucket_close(walk);
        bucket_open(walk, kind, chunk, layer);
    }
}

static struct pl_param *emit(struct walk *walk, enum pl_tensor tensor, int layer, int expert,
                             uint64_t rows, uint64_t cols)
{
    struct pl_params *t = walk->t;
    struct pl_param *p;

    if (!walk->counting)
        MEM_GROW(t->p, t->n, walk->cap);
    p = walk->counting ? &walk->last : &t->p[t->n++];
    *p = (struct pl_param){.tensor = tensor,
                           .layer = layer,
                           .expert = expert,
                           .dims = cols ? 2 : 1,
                           .shape = {rows, cols ? cols : 1},
                           .split = -1,
                           .bucket = t->nbuckets - 1,
                           .offset = t->count,
                           .decay = cols != 0};
    p->local[0] = p->valid = rows;
    p->local[1] = p->shape[1];
    p->count = p->local[0] * p->local[1];
    t->count += p->count;
    return p;
}

/* The same for a matrix divided over AXIS in dimension DIM, whose size padded to whole slices is
 * PADDED. */
static void emit_split(struct walk *walk, enum pl_tensor tensor, int layer, int expert,
                       uint64_t rows, uint64_t cols, int dim, enum pl_axis axis, uint64_t padded)
{
    struct pl_param *p = emit(walk, tensor, layer, expert, rows, cols);
    int n = axis == PL_TP ? walk->tp : walk->etp, c = axis == PL_TP ? walk->tpc : walk->etpc;
    uint64_t each = padded / (uint64_t)n, whole = p->shape[dim];

    walk->t->count -= p->count;
    p->split = dim;
    p->axis = axis;
    p->first = each * (uint64_t)c;
    p->local[dim] = each;
    p->valid = p->first >= whole ? 0 : whole - p->first < each ? whole - p->first : each;
    p->count = p->local[0] * p->local[1];
    walk->t->count += p->count;
}

static void split(struct walk *walk, enum pl_tensor tensor, int layer, int rows, int cols, int dim)
{
    emit_split(walk, tensor, layer, -1, (uint64_t)rows, (uint64_t)cols, dim, PL_TP,
               (uint64_t)(dim ? cols : rows));
}

static void walk_dense_layer(struct walk *walk, int layer)
{
    const struct pl_model *m = walk->m;
    int hd = m->head_dim;
    bool moe = pl_layer_is_moe(m, layer);
    int ffn = moe ? m->moe.shared_ffn : m->ffn;

    split(walk, PL_T_Q, layer, m->heads * hd, m->hidden, 0);
    split(walk, PL_T_K, layer, m->kv_heads * hd, m->hidden, 0);
    split(walk, PL_T_V, layer, m->kv_heads * hd, m->hidden, 0);
    split(walk, PL_T_O, layer, m->hidden, m->heads * hd, 1);
    if (ffn) {
        split(walk, PL_T_GATE, layer, ffn, m->hidden, 0);
        split(walk, PL_T_UP, layer, ffn, m->hidden, 0);
        split(walk, PL_T_DOWN, layer, m->hidden, ffn, 1);
    }
}

static void walk_experts(struct walk *walk, int layer)
{
    const struct pl_model *m = walk->m;
    int n = m->moe.experts / walk->l->ep;
    int first = n * pl_axis_coord(walk->l, PL_EP, walk->rank);
    uint64_t f = (uint64_t)m->moe.expert_ffn, h = (uint64_t)m->hidden, before = walk->t->count;

    for (int x = first; x < first + (walk->counting ? 1 : n); x++) {
        emit_split(walk, PL_T_EXPERT_GATE, layer, x, f, h, 0, PL_ETP, f);
        emit_split(walk, PL_T_EXPERT_UP, layer, x, f, h, 0, PL_ETP, f);
        emit_split(walk, PL_T_EXPERT_DOWN, layer, x, h, f, 1, PL_ETP, f);
    }
    if (walk->counting)
        walk->t->count += (uint64_t)(n - 1) * (walk->t->count - before);
}

/* A row for each word, divided over tp. */
static void emit_table(struct walk *walk, enum pl_tensor tensor)
{
    emit_split(walk, tensor, -1, -1, (uint64_t)walk->m->vocab, (uint64_t)walk->m->hidden, 0, PL_TP,
               (uint64_t)pl_vocab_padded(walk->m, walk->l));
}

static bool holds_first(const struct walk *walk)
{
    return walk->stage == 0;
}

static bool holds_last(const struct walk *walk)
{
    return walk->stage == walk->l->pp - 1;
}

static void walk_dense(struct walk *walk)
{
    const struct pl_model *m = walk->m;
    bool twice = m->tied && walk->l->pp > 1;
    int first, n = 0, last = walk->l->vp - 1;

    if (holds_first(walk)) {
        bucket_open(walk, twice ? PL_BUCKET_TIED : PL_BUCKET_DENSE, 0, -1);
        emit_table(walk, PL_T_EMBED);
        bucket_close(walk);
    }
    bucket_open(walk, PL_BUCKET_DENSE, 0, 0);
    for (int c = 0; c <= last; c++) {
        n = pl_stage_layers(&first, walk->l, m->layers, walk->stage, c);
        for (int i = 0; i < n; i++) {
            bucket_continue(walk, c, i);
            walk_dense_layer(walk, first + i);
        }
    }
    if (holds_last(walk) && !m->tied)
        emit_table(walk, PL_T_HEAD);
    bucket_close(walk);
    if (holds_last(walk) && twice) {
        bucket_open(walk, PL_BUCKET_TIED, last, n - 1);
        emit_table(walk, PL_T_EMBED);
        bucket_close(walk);
    }
}

/* Norms, then routers: so weight decay covers one run of elements. */
static void walk_small(struct walk *walk)
{
    const struct pl_model *m = walk->m;
    uint64_t h = (uint64_t)m->hidden;
    int first, n;

    bucket_open(walk, PL_BUCKET_SMALL, 0, -1);
    for (int c = 0; c < walk->l->vp; c++) {
        n = pl_stage_layers(&first, walk->l, m->layers, walk->stage, c);
        for (int i = first; i < first + n; i++) {
            emit(walk, PL_T_NORM1, i, -1, h, 0);
            emit(walk, PL_T_NORM2, i, -1, h, 0);
        }
    }
    if (holds_last(walk))
        emit(walk, PL_T_FINAL_NORM, -1, -1, h, 0);
    for (int c = 0; c < walk->l->vp; c++) {
        n = pl_stage_layers(&first, walk->l, m->layers, walk->stage, c);
        for (int i = first; i < first + n; i++)
            if (pl_layer_is_moe(m, i))
                emit(walk, PL_T_ROUTER, i, -1, (uint64_t)m->moe.experts, h);
    }
    bucket_close(walk);
}

static void walk_all_experts(struct walk *walk)
{
    if (!pl_model_is_moe(walk->m))
        return;
    bucket_open(walk, PL_BUCKET_EXPERT, 0, 0);
    for (int c = 0; c < walk->l->vp; c++) {
        int first, n = pl_stage_layers(&first, walk->l, walk->m->layers, walk->stage, c);

        for (int i = 0; i < n; i++) {
            if (!pl_layer_is_moe(walk->m, first + i))
                continue;
            bucket_continue(walk, c, i);
            walk_experts(walk, first + i);
        }
    }
    bucket_close(walk);
}

static void param_name(struct pl_param *param)
{
    static const char *const tail[] = {
        [PL_T_NORM1] = "input_layernorm", [PL_T_Q] = "self_attn.q_proj",
        [PL_T_K] = "self_attn.k_proj",    [PL_T_V] = "self_attn.v_proj",
        [PL_T_O] = "self_attn.o_proj",    [PL_T_NORM2] = "post_attention_layernorm",
        [PL_T_GATE] = "mlp.gate_proj",    [PL_T_UP] = "mlp.up_proj",
        [PL_T_DOWN] = "mlp.down_proj",    [PL_T_ROUTER] = "block_sparse_moe.gate",
        [PL_T_EXPERT_GATE] = "w1",        [PL_T_EXPERT_UP] = "w3",
        [PL_T_EXPERT_DOWN] = "w2",
    };
    size_t n = sizeof(param->name);

    if (param->expert >= 0)
        snprintf(param->name, n, "model.layers.%d.block_sparse_moe.experts.%d.%s.weight",
                 param->layer, param->expert, tail[param->tensor]);
    else if (param->layer >= 0)
        snprintf(param->name, n, "model.layers.%d.%s.weight", param->layer, tail[param->tensor]);
    else
        snprintf(param->name, n, "%s",
                 param->tensor == PL_T_EMBED  ? "model.embed_tokens.weight"
                 : param->tensor == PL_T_HEAD ? "lm_head.weight"
                                              : "model.norm.weight");
}

static void walk_all(struct pl_params *ret, const struct pl_model *model,
                     const struct pl_layout *layout, int rank, bool counting)
{
    struct walk w = {.m = model,
                     .l = layout,
                     .t = ret,
                     .counting = counting,
                     .rank = rank,
                     .stage = pl_axis_coord(layout, PL_PP, rank),
                     .tp = layout->tp,
                     .tpc = pl_axis_coord(layout, PL_TP, rank),
                     .etp = layout->etp,
                     .etpc = pl_axis_coord(layout, PL_ETP, rank)};

    *ret = (struct pl_params){.bucket = counting ? &w.bucket : NULL};
    walk_dense(&w);
    walk_small(&w);
    walk_all_experts(&w);
}

void pl_params_build(struct pl_params *ret, const struct pl_model *model,
                     const struct pl_layout *layout, int rank)
{
    walk_all(ret, model, layout, rank, false);
    for (int i = 0; i < ret->n; i++)
        param_name(&ret->p[i]);
}

void pl_params_count(uint64_t *ret_count, uint64_t *ret_state_count, const struct pl_model *model,
                     const struct pl_layout *layout, int stage)
{
    struct pl_params t;

    walk_all(&t, model, layout, stage * pl_axis_stride(layout, PL_PP), true);
    *ret_count = t.count;
    *ret_state_count = t.state_count;
}

void pl_params_done(struct pl_params *params)
{
    free(params->p);
    free(params->bucket);
    *params = (struct pl_params){0};
}
