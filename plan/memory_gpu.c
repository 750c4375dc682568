/*
 * Memory of a rank of a GPU trainer, in bytes.
 *
 * State: Megatron's mixed precision keeps 2 bytes of weight, 4 of gradient, 4 of master weight and
 * 8 of Adam moments for each parameter (fp32: 4 + 4 + 0 + 8). zero 1 shards master and moments,
 * zero 2 also gradients, zero 3 also weights, less the one layer that is gathered. Under a pipeline
 * gradients stay whole until the last micro-batch, and so do the weights that zero 3 gathers for
 * it.
 *
 * Logits: in fp32 once, where the loss works in place or is compiled. PyTorch's cross entropy keeps
 * their log-probabilities, and backward makes the gradient of those and of the logits.
 *
 * Activations: Korthikanti et al., "Reducing activation recomputation in large transformer models"
 * (2022), table 2, with each term kept apart, so that gated, grouped-query and MoE layers follow
 * from the same count. For the GPT layer (f = 4h, kv_heads = heads) the terms add up to s b h (34 +
 * 5 a s / h), over tp as in the paper.
 */
#include "plan/memory.h"

#include "base/base.h"

/* What the device context, the communication library and fragmentation take beside the plan; of the
 * order that NVIDIA's tools show on A100 and H100 with NCCL. */
static const double OVERHEAD_BYTES = 2.0 * (1 << 30);

/* The rank with the most tokens decides in a dropless MoE layer; a balanced router stays within
 * this share. */
static const double MOE_IMBALANCE = 1.1;

static double min(double a, double b)
{
    return a < b ? a : b;
}

static double matrices(const struct pl_model *m)
{
    return m->mlp == PL_SWIGLU ? 3 : 2;
}

static double layer_dense_params(const struct pl_model *m, const struct pl_layout *l, bool moe)
{
    double h = m->hidden, q = (double)m->heads * m->head_dim,
           kv = (double)m->kv_heads * m->head_dim;
    double n = h * (2 * q + 2 * kv) / l->tp + (m->norm == PL_LAYERNORM ? 4 : 2) * h;

    if (!moe)
        return n + matrices(m) * h * m->ffn / l->tp;
    return n + matrices(m) * h * m->moe.shared_ffn / l->tp + h * m->moe.experts;
}

static double layer_expert_params(const struct pl_model *m, const struct pl_layout *l, bool moe)
{
    if (!moe)
        return 0;
    return matrices(m) * m->hidden * m->moe.expert_ffn * m->moe.experts / ((double)l->ep * l->etp);
}

struct pl_layer_count pl_stage_count(const struct pl_model *m, const struct pl_layout *l, int stage)
{
    struct pl_layer_count ret = {0};
    int runs = l->pp * l->vp, n = m->layers / runs * l->vp;

    if (m->layers % runs) {
        n = 0;
        for (int c = 0; c < l->vp; c++)
            n += pl_stage_layers(l, m->layers, stage, c, NULL);
    }
    if (!pl_model_is_mixed(m)) {
        *(m->moe.experts ? &ret.moe : &ret.dense) = n;
        return ret;
    }
    for (int c = 0; c < l->vp; c++) {
        int first, many = pl_stage_layers(l, m->layers, stage, c, &first);

        for (int i = first; i < first + many; i++)
            ret.moe += pl_layer_is_moe(m, i);
    }
    ret.dense = n - ret.moe;
    return ret;
}

void pl_held_params(struct pl_held *ret, const struct pl_model *m, const struct pl_layout *l,
                    int stage)
{
    double h = m->hidden, table = (double)m->vocab * h / l->tp;

    struct pl_layer_count n = pl_stage_count(m, l, stage);
    double plain = layer_dense_params(m, l, false);

    *ret = (struct pl_held){.dense = n.dense * plain, .layer = n.dense ? plain : 0};
    if (n.moe) {
        double dense = layer_dense_params(m, l, true), expert = layer_expert_params(m, l, true);

        ret->dense += n.moe * dense;
        ret->expert = n.moe * expert;
        if (dense + expert > ret->layer)
            ret->layer = dense + expert;
    }
    if (stage == 0)
        ret->dense += table + (m->positions == PL_LEARNED ? (double)m->seq * h : 0);
    if (stage == l->pp - 1)
        ret->dense += h + (m->tied && l->pp == 1 ? 0 : table);
}

double pl_dense_shards(const struct pl_layout *l)
{
    double group = (double)l->dp * l->cp;

    if (!l->zero)
        return 1;
    return l->zero_scope == PL_SCOPE_PLAIN ? group / pl_layout_expert_replicas(l) : group;
}

double pl_expert_shards(const struct pl_layout *l)
{
    return l->zero ? l->edp : 1;
}

double pl_chunks_in_flight(const struct pl_layout *l, int microbatches, int stage)
{
    switch (l->pp == 1 ? PL_1F1B : l->schedule) {
    case PL_GPIPE:
        return microbatches;
    case PL_INTERLEAVED:
        return min(2.0 * (l->pp - 1 - stage) + (double)(l->vp - 1) * l->pp + 1,
                   (double)microbatches * l->vp);
    default: /* 1f1b, and zero-bubble's ZB-H1, which keeps its memory */
        return min(l->pp - stage, microbatches);
    }
}

/* Bytes of one token in the feed-forward of width F: fc1 input is counted by the caller. */
static double ffn_bytes(const struct pl_model *m, double f)
{
    return (m->mlp == PL_SWIGLU ? 6 : 4) * f;
}

/* Dropout came with learned positions and went with them. */
static bool has_dropout(const struct pl_model *m)
{
    return m->positions == PL_LEARNED && m->norm == PL_LAYERNORM;
}

/* What a trainer keeps of a token that saves outputs of products, all but SHARE of them, and the
 * attention's, and computes the rest again. */
static double saved_products(const struct pl_model *m, double share)
{
    double q = (double)m->heads * m->head_dim, kv = (double)m->kv_heads * m->head_dim;
    double outputs = q + 2 * kv + 2 * m->hidden + (matrices(m) - 1) * m->ffn;

    return 2 * q + 2 * (1 - share) * outputs;
}

double pl_layer_activation_bytes(const struct pl_model *m, const struct pl_layout *l,
                                 const struct pl_workload *w, const struct pl_trainer *t, bool moe)
{
    double tokens = (double)w->seq / l->cp * l->micro_batch, h = m->hidden, tp = l->tp;
    double q = (double)m->heads * m->head_dim, kv = (double)m->kv_heads * m->head_dim;
    double wide = l->precision == PL_FP32 ? 2 : 1; /* formulas count 2-byte elements */
    double outside = 2 * 2 * h + 2 * h;            /* norm inputs, input of qkv */
    double inside = 2 * q + 4 * kv + 2 * q;        /* q, k, v, input of the output projection */
    double masks = has_dropout(m) ? 2 * h : 0;     /* one byte an element */
    double scores = 0;

    if (l->recompute == PL_RECOMPUTE_FULL)
        return wide * 2 * tokens * h / (l->sp ? tp : 1);
    if (l->recompute == PL_RECOMPUTE_SELECTIVE && t->selective_share > 0 && !moe)
        return wide * tokens *
               (2 * h / (l->sp ? tp : 1) + saved_products(m, t->selective_share) / tp);
    if (l->recompute == PL_RECOMPUTE_NONE && !t->flash)
        scores = 5.0 * m->heads * w->seq / l->cp / tp; /* softmax, its mask and its dropout */
    if (moe) {
        double routed = m->moe.capacity_factor > 0 ? m->moe.capacity_factor : MOE_IMBALANCE;
        double copies = routed * m->moe.top_k / tp; /* of a token on one rank */
        /* Inputs of the experts are kept as gathered over etp, for the weights' gradient; outputs
         * as scattered again, for the router's, which needs only the hidden rows where those are
         * weighted. */
        double outputs = t->weighs_rows ? 0 : 2 * h;

        inside += 2 * h + ffn_bytes(m, m->moe.shared_ffn);
        return wide * tokens *
               (outside / (l->sp ? tp : 1) + inside / tp + scores +
                copies * (l->etp * 2 * h + outputs + ffn_bytes(m, m->moe.expert_ffn)));
    }
    inside += ffn_bytes(m, m->ffn);
    outside += 2 * h; /* input of fc1 */
    return tokens * (wide * ((outside) / (l->sp ? tp : 1) + inside / tp + scores) +
                     masks / (l->sp ? tp : 1));
}

static double activations(const struct pl_model *m, const struct pl_layout *l,
                          const struct pl_workload *w, const struct pl_trainer *t, int stage)
{
    int micro = w->global_batch / (l->micro_batch * l->dp);
    double flight = pl_chunks_in_flight(l, micro, stage), chunk = 0, live = 0;
    double tokens = (double)w->seq / l->cp * l->micro_batch;

    struct pl_layer_count n = pl_stage_count(m, l, stage);

    if (n.dense)
        chunk += n.dense * pl_layer_activation_bytes(m, l, w, t, false) / l->vp;
    if (n.moe)
        chunk += n.moe * pl_layer_activation_bytes(m, l, w, t, true) / l->vp;
    if (l->recompute == PL_RECOMPUTE_FULL) {
        struct pl_layout one = *l;

        one.recompute = PL_RECOMPUTE_SELECTIVE; /* the layer that is being recomputed, whose input
                                                   is counted already */
        live = pl_layer_activation_bytes(m, &one, w, t, n.moe > 0) -
               pl_layer_activation_bytes(m, l, w, t, n.moe > 0);
    }
    if (stage == 0 &&
        has_dropout(m)) /* mask of the embedding's dropout, for each micro-batch in flight */
        live += tokens * m->hidden / (l->sp ? l->tp : 1) * min(l->pp, micro);
    return flight * chunk + live;
}

/* A model that is built before it is sharded is whole on the device at first: if that is the peak,
 * the weights are what it consists of. */
static void whole_start(struct pl_memory *m, double whole)
{
    double later = 0;

    for (int i = 0; i < PL_MEM_CLASSES; i++)
        later += m->bytes[i];
    if (whole + OVERHEAD_BYTES > later)
        m->bytes[PL_MEM_WEIGHTS] += whole + OVERHEAD_BYTES - later;
}

/* Of HELD parameters' gradients and of SPLIT parameters that this rank updates. Half-precision
 * gradients become fp32 as they meet the master weights (Megatron's 4 + 16/d bytes a parameter);
 * fp32 sums of them stay whole. */
static double gradients(const struct pl_trainer *t, bool fp32, double held, double split)
{
    if (fp32 || !t->half_grads)
        return 4 * held;
    return t->summed_grads ? (2 + 4) * held : 2 * held + 4 * split;
}

void pl_memory_gpu_rank(struct pl_memory *ret, const struct pl_model *m, const struct pl_layout *l,
                        const struct pl_workload *w, const struct pl_trainer *t, int rank)
{
    bool fp32 = l->precision == PL_FP32;
    int stage = pl_axis_coord(l, PL_PP, rank);
    double tokens = (double)w->seq / l->cp * l->micro_batch;
    double weight = fp32 ? 4 : 2, master = fp32 ? 0 : 4;
    struct pl_held p;
    double all, split;

    pl_held_params(&p, m, l, stage);
    all = p.dense + p.expert;
    split = p.dense / pl_dense_shards(l) + p.expert / pl_expert_shards(l);
    ret->bytes[PL_MEM_WEIGHTS] = weight * (l->zero >= 3 && l->pp == 1 ? split + p.layer : all);
    ret->bytes[PL_MEM_GRADS] = gradients(t, fp32, l->zero >= 2 && l->pp == 1 ? split : all, split);
    ret->bytes[PL_MEM_MASTER] = master * split;
    ret->bytes[PL_MEM_OPTIMIZER] = 8 * split;
    ret->bytes[PL_MEM_ACTIVATIONS] = activations(m, l, w, t, stage);
    if (l->pp > 1) /* one boundary tensor each way, received while the last one is in use */
        ret->bytes[PL_MEM_COMM] = 4 * (fp32 ? 4 : 2) * tokens * m->hidden / (l->sp ? l->tp : 1);
    if (stage == l->pp - 1) /* input of the output norm and of the head, and logits in fp32 */
        ret->bytes[PL_MEM_LOGITS] = 4 * tokens * m->hidden / (l->sp ? l->tp : 1.0) +
                                    (t->eager_loss ? 12 : 4) * tokens * m->vocab / l->tp;
    ret->bytes[PL_MEM_WORKSPACE] = OVERHEAD_BYTES;
    if (l->zero >= 3 && t->whole_start)
        whole_start(ret, weight * all);
}
