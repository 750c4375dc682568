/*
 * The parameter table of the bundled trainer.
 *
 * Order of the flat buffers: dense matrices (embedding, layers chunk by chunk, output), then norms
 * and routers, then experts layer by layer. q, k and v are neighbors, and gate and up are, so that
 * one GEMM serves each group, and so are their biases, which follow; the three matrices of an
 * expert are neighbors and experts follow each other at a constant stride, as the grouped GEMM
 * wants; their biases come behind the matrices of all. What makes the latents of queries and of
 * keys and values are neighbors likewise, and what makes keys and values of a latent.
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
    const struct pl_model *model;
    const struct pl_layout *layout;
    struct pl_params *params;
    bool counting;
    struct pl_bucket bucket; /* of a count */
    int rank, stage;
    int cap, bucket_cap;
    int tp, tpc, etp, etpc;
};

int pl_vocab_padded(const struct pl_model *model, const struct pl_layout *layout)
{
    return (model->vocab + layout->tp - 1) / layout->tp * layout->tp;
}

bool pl_bucket_is_small(const struct pl_bucket *bucket)
{
    return bucket->kind == PL_BUCKET_SMALL || bucket->kind == PL_BUCKET_HEADS;
}

/* Ranks of one stage are i = tp_c + tp * c, c the coordinate on PL_DP_CP; the expert coordinate is
 * (i / etp) % ep. With etp = tp it is c % ep; with etp = 1 it recurs in c every ep / gcd(tp, ep).
 */
static int plain_stride(const struct pl_layout *layout)
{
    return layout->etp == layout->tp ? layout->ep : layout->ep / pl_gcd(layout->tp, layout->ep);
}

void pl_cut(struct pl_cut *ret, const struct pl_layout *layout, bool expert)
{
    enum pl_axis axis = expert ? PL_EDP : PL_DP_CP;
    int all = pl_axis_size(layout, axis), copies = pl_shard_copies(layout);

    *ret = (struct pl_cut){.axis = axis, .size = 1, .stride = 1};
    if (layout->zero == 0)
        return;
    if (!expert && layout->zero_scope == PL_SCOPE_PLAIN) {
        ret->stride = plain_stride(layout);
        copies = ret->stride;
    }
    assert(all % copies == 0);
    ret->size = all / copies;
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
    struct pl_params *params = walk->params;

    if (walk->counting)
        params->nbuckets = 0;
    else
        MEM_GROW(params->bucket, params->nbuckets, walk->bucket_cap);
    params->bucket[params->nbuckets++] =
        (struct pl_bucket){.kind = kind, .chunk = chunk, .layer = layer, .first = params->count};
}

static void bucket_shards(const struct walk *walk, struct pl_bucket *bucket)
{
    struct pl_cut cut;
    int at;

    pl_cut(&cut, walk->layout, bucket->kind == PL_BUCKET_EXPERT);
    at = pl_axis_coord(walk->layout, cut.axis, walk->rank);
    bucket->shards = cut.size;
    bucket->shard = at / cut.stride % cut.size;
    bucket->copy = at % cut.stride + cut.stride * (at / (cut.stride * cut.size));
}

/* Give BUCKET its place among what is held of STORE: all of it, or its shard if it works in a
 * WINDOW. */
static void bucket_place(struct pl_store *store, struct pl_place *place,
                         const struct pl_bucket *bucket, bool window)
{
    int kind = bucket->kind == PL_BUCKET_EXPERT;

    *place = (struct pl_place){.window = -1, .at = store->count, .shard_at = store->count};
    if (!window) {
        place->shard_at += bucket->shard_first - bucket->first;
        store->count += bucket->count;
        return;
    }
    place->window = store->users[kind]++;
    store->count += bucket->shard_count;
    if (store->window_count[kind] < bucket->count)
        store->window_count[kind] = bucket->count;
}

/* Close the open bucket: pad it to whole shards and give it its optimizer state. An empty one, of
 * what no layer of the stage has, is dropped. */
static void bucket_close(struct walk *walk)
{
    struct pl_params *params = walk->params;
    struct pl_bucket *bucket = &params->bucket[params->nbuckets - 1];
    uint64_t unit;
    bool sharded;

    if (params->count == bucket->first) {
        params->nbuckets--;
        return;
    }
    bucket_shards(walk, bucket);
    unit = (uint64_t)bucket->shards * ALIGN;
    bucket->count = (params->count - bucket->first + unit - 1) / unit * unit;
    bucket->shard_count = bucket->count / (uint64_t)bucket->shards;
    bucket->shard_first = bucket->first + (uint64_t)bucket->shard * bucket->shard_count;
    bucket->state_first = params->state_count;
    params->state_count += bucket->shard_count;
    params->adam_count += bucket->adam_count < bucket->shard_count
                              ? (bucket->adam_count + ALIGN - 1) / ALIGN * ALIGN
                              : bucket->shard_count;
    params->count = bucket->first + bucket->count;
    sharded = bucket->layers && bucket->shards > 1;
    bucket_place(&params->weight, &bucket->weight, bucket, sharded && walk->layout->zero >= 3);
    bucket_place(&params->grad, &bucket->grad, bucket, sharded && walk->layout->zero >= 2);
}

/* Continue the open bucket with the parameters of LAYER of CHUNK, or start the next one. Backward
 * visits layers downwards, so a bucket is ready when its lowest layer is: merging never crosses a
 * chunk. */
static void bucket_continue(struct walk *walk, int chunk, int layer)
{
    struct pl_params *params = walk->params;
    struct pl_bucket *bucket = &params->bucket[params->nbuckets - 1];

    if (params->count == bucket->first) {
        bucket->chunk = chunk;
        bucket->layer = layer;
    } else if (bucket->chunk != chunk || params->count - bucket->first >= BUCKET_MIN ||
               walk->layout->zero >= 2) {
        enum pl_bucket_kind kind = bucket->kind;

        bucket_close(walk);
        bucket_open(walk, kind, chunk, layer);
    }
    params->bucket[params->nbuckets - 1].layers = true;
}

/* Add N elements of TENSOR to what the open bucket has. */
static void count(struct walk *walk, enum pl_tensor tensor, uint64_t n)
{
    struct pl_params *params = walk->params;

    params->count += n;
    if (!pl_tensor_is_hidden(tensor))
        params->bucket[params->nbuckets - 1].adam_count += n;
}

/* The next of the list, of ROWS x COLS; COLS 0: a vector. What this rank has of it is not set. */
static struct pl_param *next_param(struct walk *walk, enum pl_tensor tensor, int layer, int expert,
                                   uint64_t rows, uint64_t cols)
{
    struct pl_params *params = walk->params;
    struct pl_param *param;

    MEM_GROW(params->p, params->n, walk->cap);
    param = &params->p[params->n++];
    *param = (struct pl_param){.tensor = tensor,
                               .layer = layer,
                               .expert = expert,
                               .dims = cols ? 2 : 1,
                               .shape = {rows, cols ? cols : 1},
                               .split = -1,
                               .bucket = params->nbuckets - 1,
                               .offset = params->count,
                               .decay = cols != 0};
    param->local[0] = param->valid = rows;
    param->local[1] = param->shape[1];
    return param;
}

static void emit(struct walk *walk, enum pl_tensor tensor, int layer, int expert, uint64_t rows,
                 uint64_t cols)
{
    uint64_t n = rows * (cols ? cols : 1);

    if (!walk->counting)
        next_param(walk, tensor, layer, expert, rows, cols)->count = n;
    count(walk, tensor, n);
}

/* The same for a matrix divided over AXIS in dimension DIM, whose size padded to whole slices is
 * PADDED. */
static void emit_split(struct walk *walk, enum pl_tensor tensor, int layer, int expert,
                       uint64_t rows, uint64_t cols, int dim, enum pl_axis axis, uint64_t padded)
{
    int n = axis == PL_TP ? walk->tp : walk->etp, c = axis == PL_TP ? walk->tpc : walk->etpc;
    uint64_t each = padded / (uint64_t)n, across = dim ? rows : cols ? cols : 1;

    if (!walk->counting) {
        struct pl_param *param = next_param(walk, tensor, layer, expert, rows, cols);
        uint64_t whole = param->shape[dim];

        param->split = dim;
        param->axis = axis;
        param->first = each * (uint64_t)c;
        param->local[dim] = each;
        param->valid = param->first >= whole         ? 0
                       : whole - param->first < each ? whole - param->first
                                                     : each;
        param->count = each * across;
    }
    count(walk, tensor, each * across);
}

static void split(struct walk *walk, enum pl_tensor tensor, int layer, int rows, int cols, int dim)
{
    emit_split(walk, tensor, layer, -1, (uint64_t)rows, (uint64_t)cols, dim, PL_TP,
               (uint64_t)(dim ? cols : rows));
}

static void walk_attention(struct walk *walk, int layer)
{
    const struct pl_model *model = walk->model;
    int hd = model->head_dim;

    split(walk, PL_T_Q, layer, model->heads * hd, model->hidden, 0);
    split(walk, PL_T_K, layer, model->kv_heads * hd, model->hidden, 0);
    split(walk, PL_T_V, layer, model->kv_heads * hd, model->hidden, 0);
    if (model->qkv_bias) {
        split(walk, PL_T_Q_BIAS, layer, model->heads * hd, 0, 0);
        split(walk, PL_T_K_BIAS, layer, model->kv_heads * hd, 0, 0);
        split(walk, PL_T_V_BIAS, layer, model->kv_heads * hd, 0, 0);
    }
    split(walk, PL_T_O, layer, model->hidden, model->heads * hd, 1);
}

/* What is cut over tp of latent attention; the rest is in walk_latents(). */
static void walk_latent_attention(struct walk *walk, int layer)
{
    const struct pl_model *model = walk->model;
    const struct pl_mla *mla = &model->mla;
    int q = model->heads * model->head_dim;

    if (mla->q_lora_rank)
        split(walk, PL_T_Q_UP, layer, q, mla->q_lora_rank, 0);
    else
        split(walk, PL_T_Q, layer, q, model->hidden, 0);
    split(walk, PL_T_K_UP, layer, model->heads * mla->qk_nope_head_dim, mla->kv_lora_rank, 0);
    split(walk, PL_T_V_UP, layer, model->heads * mla->v_head_dim, mla->kv_lora_rank, 0);
    split(walk, PL_T_O, layer, model->hidden, model->heads * mla->v_head_dim, 1);
}

static void walk_dense_layer(struct walk *walk, int layer)
{
    const struct pl_model *model = walk->model;
    bool moe = pl_layer_is_moe(model, layer), gated = pl_mlp_is_gated(model->mlp);
    int ffn = moe ? model->moe.shared_ffn : model->ffn;

    if (pl_model_is_mla(model))
        walk_latent_attention(walk, layer);
    else
        walk_attention(walk, layer);
    if (ffn) {
        if (gated)
            split(walk, PL_T_GATE, layer, ffn, model->hidden, 0);
        split(walk, PL_T_UP, layer, ffn, model->hidden, 0);
        if (model->mlp_bias && gated)
            split(walk, PL_T_GATE_BIAS, layer, ffn, 0, 0);
        if (model->mlp_bias)
            split(walk, PL_T_UP_BIAS, layer, ffn, 0, 0);
        split(walk, PL_T_DOWN, layer, model->hidden, ffn, 1);
    }
}

/* Biases of experts [FIRST, END): like their matrices at constant strides, behind all of these. */
static void walk_expert_biases(struct walk *walk, int layer, int first, int end)
{
    const struct pl_model *model = walk->model;
    uint64_t f = (uint64_t)model->moe.expert_ffn, h = (uint64_t)model->hidden,
             etp = (uint64_t)walk->etp;

    for (int x = first; x < end && model->mlp_bias; x++) {
        emit_split(walk, PL_T_EXPERT_GATE_BIAS, layer, x, f, 0, 0, PL_ETP, f);
        emit_split(walk, PL_T_EXPERT_UP_BIAS, layer, x, f, 0, 0, PL_ETP, f);
    }
    for (int x = first; x < end && model->mlp_bias; x++)
        emit_split(walk, PL_T_EXPERT_DOWN_BIAS, layer, x, h, 0, 0, PL_ETP,
                   (h + etp - 1) / etp * etp);
}

static void walk_experts(struct walk *walk, int layer)
{
    const struct pl_model *model = walk->model;
    int n = model->moe.experts / walk->layout->ep;
    int first = n * pl_axis_coord(walk->layout, PL_EP, walk->rank),
        end = first + (walk->counting ? 1 : n);
    uint64_t f = (uint64_t)model->moe.expert_ffn, h = (uint64_t)model->hidden, more;
    struct pl_bucket before = walk->params->bucket[walk->params->nbuckets - 1];
    uint64_t all = walk->params->count;

    for (int x = first; x < end; x++) {
        emit_split(walk, PL_T_EXPERT_GATE, layer, x, f, h, 0, PL_ETP, f);
        emit_split(walk, PL_T_EXPERT_UP, layer, x, f, h, 0, PL_ETP, f);
        emit_split(walk, PL_T_EXPERT_DOWN, layer, x, h, f, 1, PL_ETP, f);
    }
    walk_expert_biases(walk, layer, first, end);
    if (!walk->counting)
        return;
    more = walk->params->bucket[walk->params->nbuckets - 1].adam_count - before.adam_count;
    walk->params->count += (uint64_t)(n - 1) * (walk->params->count - all);
    walk->params->bucket[walk->params->nbuckets - 1].adam_count += (uint64_t)(n - 1) * more;
}

/* A row for each word, divided over tp. */
static void emit_table(struct walk *walk, enum pl_tensor tensor)
{
    emit_split(walk, tensor, -1, -1, (uint64_t)walk->model->vocab, (uint64_t)walk->model->hidden, 0,
               PL_TP, (uint64_t)pl_vocab_padded(walk->model, walk->layout));
}

static bool holds_first(const struct walk *walk)
{
    return walk->stage == 0;
}

static bool holds_last(const struct walk *walk)
{
    return walk->stage == pl_loss_stage(walk->layout);
}

static void walk_dense(struct walk *walk)
{
    const struct pl_model *model = walk->model;
    bool twice = pl_embeds_twice(model, walk->layout);
    int first, n = 0, last = walk->layout->vp - 1;

    if (holds_first(walk)) {
        bucket_open(walk, twice ? PL_BUCKET_TIED : PL_BUCKET_DENSE, 0, -1);
        emit_table(walk, PL_T_EMBED);
        bucket_close(walk);
    }
    bucket_open(walk, PL_BUCKET_DENSE, 0, 0);
    for (int c = 0; c <= last; c++) {
        n = pl_chunk_layers(&first, walk->layout, model, walk->stage, c);
        for (int i = 0; i < n; i++) {
            bucket_continue(walk, c, i);
            walk_dense_layer(walk, first + i);
        }
    }
    if (holds_last(walk) && !model->tied) {
        const struct pl_bucket *open = &walk->params->bucket[walk->params->nbuckets - 1];

        if (walk->layout->zero >= 2 || walk->params->count == open->first) {
            bucket_close(walk);
            bucket_open(walk, PL_BUCKET_DENSE, last, n - 1);
        }
        emit_table(walk, PL_T_HEAD);
    }
    bucket_close(walk);
    if (holds_last(walk) && twice) {
        bucket_open(walk, PL_BUCKET_TIED, last, n - 1);
        emit_table(walk, PL_T_EMBED);
        bucket_close(walk);
    }
}

/* What is added to whole rows or scales them. */
static void walk_vectors(struct walk *walk, int layer)
{
    const struct pl_model *model = walk->model;
    uint64_t h = (uint64_t)model->hidden;
    int norms = pl_input_norms(model);

    if (norms > 0)
        emit(walk, PL_T_NORM1, layer, -1, h, 0);
    if (norms > 0 && model->norm_bias)
        emit(walk, PL_T_NORM1_BIAS, layer, -1, h, 0);
    if (model->out_bias)
        emit(walk, PL_T_O_BIAS, layer, -1, h, 0);
    if (norms > 1)
        emit(walk, PL_T_NORM2, layer, -1, h, 0);
    if (norms > 1 && model->norm_bias)
        emit(walk, PL_T_NORM2_BIAS, layer, -1, h, 0);
    if (model->mlp_bias && !pl_layer_is_moe(model, layer))
        emit(walk, PL_T_DOWN_BIAS, layer, -1, h, 0);
    if (model->moe.router_bias && pl_layer_is_moe(model, layer))
        emit(walk, PL_T_ROUTER_BIAS, layer, -1, (uint64_t)model->moe.experts, 0);
    if (model->post_norms) {
        emit(walk, PL_T_POST_NORM1, layer, -1, h, 0);
        emit(walk, PL_T_POST_NORM2, layer, -1, h, 0);
    }
}

/* What a module of multi-token prediction has beside its layer: norms, or (MATRICES) a product. */
static void walk_mtp(struct walk *walk, int layer, bool matrices)
{
    uint64_t h = (uint64_t)walk->model->hidden;

    if (layer < walk->model->layers)
        return;
    if (matrices) {
        emit(walk, PL_T_MTP_PROJ, layer, -1, h, 2 * h);
        return;
    }
    emit(walk, PL_T_MTP_ENORM, layer, -1, h, 0);
    emit(walk, PL_T_MTP_HNORM, layer, -1, h, 0);
    emit(walk, PL_T_MTP_NORM, layer, -1, h, 0);
}

/* What makes the latents of LAYER: their norms and biases, or (MATRICES) the products before. */
static void walk_latents(struct walk *walk, int layer, bool matrices)
{
    const struct pl_model *model = walk->model;
    uint64_t q = (uint64_t)model->mla.q_lora_rank, kv = (uint64_t)model->mla.kv_lora_rank,
             down = kv + (uint64_t)model->mla.qk_rope_head_dim,
             hidden = matrices ? (uint64_t)model->hidden : 0;

    if (!pl_model_is_mla(model))
        return;
    if (!matrices && q)
        emit(walk, PL_T_Q_LATENT, layer, -1, q, 0);
    if (!matrices)
        emit(walk, PL_T_KV_LATENT, layer, -1, kv, 0);
    if (!matrices && !model->qkv_bias)
        return;
    if (q)
        emit(walk, matrices ? PL_T_Q_DOWN : PL_T_Q_DOWN_BIAS, layer, -1, q, hidden);
    emit(walk, matrices ? PL_T_KV_DOWN : PL_T_KV_DOWN_BIAS, layer, -1, down, hidden);
}

static void walk_routers(struct walk *walk, int layer)
{
    const struct pl_model *model = walk->model;

    if (!pl_layer_is_moe(model, layer))
        return;
    emit(walk, PL_T_ROUTER, layer, -1, (uint64_t)model->moe.experts, (uint64_t)model->hidden);
    if (model->moe.shared_gate)
        emit(walk, PL_T_SHARED_GATE, layer, -1, 1, (uint64_t)model->hidden);
}

/* Norms and biases, then routers, what makes latents, joins of multi-token prediction, and
 * positions: so weight decay covers one run of elements. */
static void walk_small(struct walk *walk)
{
    const struct pl_model *model = walk->model;
    uint64_t h = (uint64_t)model->hidden;
    int first, n;

    bucket_open(walk, PL_BUCKET_SMALL, 0, -1);
    for (int c = 0; c < walk->layout->vp; c++) {
        n = pl_chunk_layers(&first, walk->layout, model, walk->stage, c);
        for (int i = first; i < first + n; i++) {
            walk_vectors(walk, i);
            walk_latents(walk, i, false);
            walk_mtp(walk, i, false);
        }
    }
    if (holds_last(walk)) {
        emit(walk, PL_T_FINAL_NORM, -1, -1, h, 0);
        if (model->norm_bias)
            emit(walk, PL_T_FINAL_NORM_BIAS, -1, -1, h, 0);
    }
    for (int c = 0; c < walk->layout->vp; c++) {
        n = pl_chunk_layers(&first, walk->layout, model, walk->stage, c);
        for (int i = first; i < first + n; i++) {
            walk_routers(walk, i);
            walk_latents(walk, i, true);
            walk_mtp(walk, i, true);
        }
    }
    if (holds_first(walk) && model->positions == PL_LEARNED)
        emit(walk, PL_T_POSITIONS, -1, -1, (uint64_t)model->seq, h);
    bucket_close(walk);
}

/* Norms of all queries and keys together, and the heads' sinks: cut over tp as the heads are, but
 * in no layer's bucket. Their gradients come in the first half of a split backward pass, when the
 * layer's gradients may have no window. */
static void walk_heads(struct walk *walk)
{
    const struct pl_model *model = walk->model;
    int first, n, dim = model->head_dim;
    bool full = model->qk_norm == PL_QK_FULL;

    if (!full && !model->attn_sinks)
        return;
    bucket_open(walk, PL_BUCKET_DENSE, 0, -1);
    for (int c = 0; c < walk->layout->vp; c++) {
        n = pl_chunk_layers(&first, walk->layout, model, walk->stage, c);
        for (int i = first; i < first + n; i++) {
            if (full) {
                split(walk, PL_T_Q_NORM, i, model->heads * dim, 0, 0);
                split(walk, PL_T_K_NORM, i, model->kv_heads * dim, 0, 0);
            }
            if (model->attn_sinks)
                split(walk, PL_T_SINKS, i, model->heads, 0, 0);
        }
    }
    bucket_close(walk);
}

/* Norms that all heads share. */
static void walk_head_norms(struct walk *walk)
{
    const struct pl_model *model = walk->model;
    int first, n;

    if (model->qk_norm != PL_QK_HEAD)
        return;
    bucket_open(walk, PL_BUCKET_HEADS, 0, -1);
    for (int c = 0; c < walk->layout->vp; c++) {
        n = pl_chunk_layers(&first, walk->layout, model, walk->stage, c);
        for (int i = first; i < first + n; i++) {
            emit(walk, PL_T_Q_NORM, i, -1, (uint64_t)model->head_dim, 0);
            emit(walk, PL_T_K_NORM, i, -1, (uint64_t)model->head_dim, 0);
        }
    }
    bucket_close(walk);
}

static void walk_all_experts(struct walk *walk)
{
    if (!pl_model_is_moe(walk->model))
        return;
    bucket_open(walk, PL_BUCKET_EXPERT, 0, 0);
    for (int c = 0; c < walk->layout->vp; c++) {
        int first, n = pl_chunk_layers(&first, walk->layout, walk->model, walk->stage, c);

        for (int i = 0; i < n; i++) {
            if (!pl_layer_is_moe(walk->model, first + i))
                continue;
            bucket_continue(walk, c, i);
            walk_experts(walk, first + i);
        }
    }
    bucket_close(walk);
}

/* Lay the windows of STORE after what is held. OVERLAP: one more, while another's collective is
 * under way. */
static void windows_place(struct pl_store *store, bool overlap)
{
    for (int kind = 0; kind < 2; kind++) {
        int n = overlap ? PL_WINDOWS : 1;

        store->windows[kind] = store->users[kind] < n ? store->users[kind] : n;
        store->window_at[kind] = store->count;
        store->count += (uint64_t)store->windows[kind] * store->window_count[kind];
    }
}

/* The window of PLACE, from the number of its bucket among those that take turns. */
static void window_choose(struct pl_place *place, const struct pl_store *store, int kind)
{
    if (place->window < 0)
        return;
    place->window %= store->windows[kind];
    place->at = store->window_at[kind] + (uint64_t)place->window * store->window_count[kind];
}

/* Biases of the choice of experts, layer by layer. */
static void add_fixed(struct pl_params *params, const struct pl_model *model,
                      const struct pl_layout *layout, int stage)
{
    uint64_t experts = (uint64_t)model->moe.experts;
    int cap = params->n;

    for (int c = 0; c < layout->vp && pl_model_is_moe(model) && model->moe.balance_bias; c++) {
        int first, n = pl_chunk_layers(&first, layout, model, stage, c);

        for (int i = first; i < first + n; i++) {
            if (!pl_layer_is_moe(model, i))
                continue;
            MEM_GROW(params->p, params->n + params->fixed, cap);
            params->p[params->n + params->fixed] =
                (struct pl_param){.tensor = PL_T_BALANCE,
                                  .layer = i,
                                  .expert = -1,
                                  .dims = 1,
                                  .shape = {experts, 1},
                                  .split = -1,
                                  .local = {experts, 1},
                                  .valid = experts,
                                  .offset = (uint64_t)params->fixed * experts,
                                  .count = experts,
                                  .bucket = -1};
            params->fixed++;
        }
    }
}

static void walk_all(struct pl_params *ret, const struct pl_model *model,
                     const struct pl_layout *layout, int rank, bool counting)
{
    struct walk w = {.model = model,
                     .layout = layout,
                     .params = ret,
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
    walk_heads(&w);
    walk_head_norms(&w);
    walk_all_experts(&w);
    windows_place(&ret->weight, layout->overlap_param_gather);
    windows_place(&ret->grad, layout->overlap_grad_reduce);
}

void pl_params_build(struct pl_params *ret, const struct pl_model *model,
                     const struct pl_layout *layout, int rank)
{
    assert(rank >= 0 && rank < layout->world);
    walk_all(ret, model, layout, rank, false);
    add_fixed(ret, model, layout, pl_axis_coord(layout, PL_PP, rank));
    for (int i = 0; i < ret->n + ret->fixed; i++)
        pl_param_name(&ret->p[i], model);
    for (int i = 0; i < ret->nbuckets; i++) {
        struct pl_bucket *bucket = &ret->bucket[i];

        window_choose(&bucket->weight, &ret->weight, bucket->kind == PL_BUCKET_EXPERT);
        window_choose(&bucket->grad, &ret->grad, bucket->kind == PL_BUCKET_EXPERT);
    }
}

void pl_params_count(struct pl_param_sizes *ret, const struct pl_model *model,
                     const struct pl_layout *layout, int stage)
{
    struct pl_params params;

    assert(stage >= 0 && stage < layout->pp);
    walk_all(&params, model, layout, stage * pl_axis_stride(layout, PL_PP), true);
    *ret = (struct pl_param_sizes){.weight = params.weight.count,
                                   .grad = params.grad.count,
                                   .state = params.state_count,
                                   .adam = params.adam_count};
}

void pl_params_done(struct pl_params *params)
{
    free(params->p);
    free(params->bucket);
    *params = (struct pl_params){0};
}
