#include "base/base.h"
#include "trainer/nccl.h"
#include "trainer/dispatch.h"
#include "trainer/graphs.h"
#include "trainer/layer.h"
#include "trainer/mtp.h"
#include "trainer/optim.h"
#include "trainer/rank.h"
#include "trainer/ring.h"

#include <assert.h>
#include <errno.h>

_Static_assert((int)KN_SCRATCH_BYTES == (int)PL_KERNEL_SCRATCH,
               "the plan counts the kernels' scratch");
_Static_assert((int)KN_MAX_HEAD_DIM == (int)PL_MAX_HEAD_DIM, "the plan refuses wider heads");
_Static_assert((int)KN_MAX_GROUPS == (int)PL_MAX_GROUPS, "the plan refuses more groups");
_Static_assert(TR_TAG_POOL + PL_MAX_CHUNKS <= TR_TAG_ACT &&
                   TR_TAG_ACT + PL_MAX_CHUNKS <= TR_TAG_GRAD &&
                   TR_TAG_GRAD + PL_MAX_CHUNKS <= TR_TAG_POOL_BACK &&
                   TR_TAG_POOL_BACK + PL_MAX_CHUNKS <= TR_TAG_MOE &&
                   TR_TAG_MOE + PL_MAX_EXPERTS < TR_TAG_RING && TR_TAG_RING + 2 <= TR_TAG_COLL,
               "tags differ");

static struct tr_weight weight(const struct tr_params *params, enum pl_tensor tensor, int layer,
                               int expert)
{
    int i = tr_param_find(params, tensor, layer, expert);

    if (i < 0)
        return (struct tr_weight){0};
    return (struct tr_weight){tr_param_weight(params, i), tr_param_grad(params, i)};
}

static void params_init(struct tr_rank *rank)
{
    struct tr_params *t = &rank->params;

    pl_params_build(&t->table, &rank->model, &rank->layout, rank->rank);
    t->pool = rank->pool;
    t->optimizer = rank->workload.optimizer;
    tr_params_lay_out(t);
    t->rank = rank->rank;
    t->type = rank->type;
    t->weight = tr_device_get(&rank->device, PL_BUF_WEIGHT, 0, 0);
    t->grad_type = rank->layout.grad_dtype == PL_GRADS_BF16 ? KN_BF16 : KN_F32;
    t->grad = tr_device_get(&rank->device, PL_BUF_GRAD, 0, 0);
    t->master = tr_device_get(&rank->device, PL_BUF_MASTER, 0, 0);
    t->m = tr_device_get(&rank->device, PL_BUF_MOMENT1, 0, 0);
    t->v = tr_device_get(&rank->device, PL_BUF_MOMENT2, 0, 0);
    t->balance = tr_device_get(&rank->device, PL_BUF_BALANCE, 0, 0);
    assert(tr_device_bytes(&rank->device, PL_BUF_WEIGHT) >= t->table.weight.count * rank->d.elem);
    assert(tr_device_bytes(&rank->device, PL_BUF_GRAD) >=
           t->table.grad.count * kn_type_size(t->grad_type));
    assert(tr_device_bytes(&rank->device, PL_BUF_MOMENT1) >= t->table.state_count * sizeof(*t->m));
    assert((t->master != NULL) == (rank->type == KN_BF16));
    rank->embed = weight(t, PL_T_EMBED, -1, -1);
    rank->head = weight(t, rank->model.tied ? PL_T_EMBED : PL_T_HEAD, -1, -1);
    rank->positions = weight(t, PL_T_POSITIONS, -1, -1);
    rank->final_norm.scale = weight(t, PL_T_FINAL_NORM, -1, -1);
    rank->final_norm.bias = weight(t, PL_T_FINAL_NORM_BIAS, -1, -1);
}

static void latent_init(struct tr_rank *rank, struct tr_layer *layer, int global)
{
    const struct tr_params *t = &rank->params;
    bool q = rank->d.q_latent > 0;

    if (!rank->d.latent)
        return;
    layer->latent = weight(t, q ? PL_T_Q_DOWN : PL_T_KV_DOWN, global, -1);
    layer->latent_bias = weight(t, q ? PL_T_Q_DOWN_BIAS : PL_T_KV_DOWN_BIAS, global, -1);
    layer->q_latent = weight(t, PL_T_Q_LATENT, global, -1);
    layer->kv_latent = weight(t, PL_T_KV_LATENT, global, -1);
    layer->q_up = weight(t, q ? PL_T_Q_UP : PL_T_Q, global, -1);
    layer->kv_up = weight(t, PL_T_K_UP, global, -1);
    assert(layer->latent.w && layer->kv_latent.w && layer->q_up.w && layer->kv_up.w);
}

static void experts_init(struct tr_rank *rank, struct tr_layer *layer, int global)
{
    const struct tr_params *t = &rank->params;
    int first = pl_axis_coord(&rank->layout, PL_EP, rank->rank) * (int)rank->d.local_experts;
    int bias = tr_param_find(t, PL_T_EXPERT_DOWN_BIAS, global, first);

    layer->router = weight(t, PL_T_ROUTER, global, -1);
    layer->router_bias = weight(t, PL_T_ROUTER_BIAS, global, -1);
    layer->expert = weight(t, PL_T_EXPERT_GATE, global, first);
    layer->expert_gu_bias = weight(t, PL_T_EXPERT_GATE_BIAS, global, first);
    layer->expert_down_bias = weight(t, PL_T_EXPERT_DOWN_BIAS, global, first);
    if (bias >= 0)
        layer->out = (struct tr_slice){t->table.p[bias].first, t->table.p[bias].valid,
                                       t->table.p[bias].count};
}

static void layer_init(struct tr_rank *rank, struct tr_layer *layer, int global)
{
    const struct tr_params *t = &rank->params;
    bool gated = pl_mlp_is_gated(rank->model.mlp);

    layer->global = global;
    layer->moe = pl_layer_is_moe(&rank->model, global);
    layer->moe_index = layer->moe ? rank->moe_here++ : -1;
    layer->shared_gate = weight(t, PL_T_SHARED_GATE, global, -1);
    if (layer->moe && t->balance)
        layer->balance = t->balance + (uint64_t)layer->moe_index * rank->d.experts;
    layer->acts = &rank->acts[layer->moe];
    layer->norm1.scale = weight(t, PL_T_NORM1, global, -1);
    layer->norm1.bias = weight(t, PL_T_NORM1_BIAS, global, -1);
    layer->norm2.scale = weight(t, PL_T_NORM2, global, -1);
    layer->norm2.bias = weight(t, PL_T_NORM2_BIAS, global, -1);
    layer->post1.scale = weight(t, PL_T_POST_NORM1, global, -1);
    layer->post2.scale = weight(t, PL_T_POST_NORM2, global, -1);
    layer->qkv = weight(t, PL_T_Q, global, -1);
    layer->qkv_bias = weight(t, PL_T_Q_BIAS, global, -1);
    layer->q_norm = weight(t, PL_T_Q_NORM, global, -1);
    layer->k_norm = weight(t, PL_T_K_NORM, global, -1);
    latent_init(rank, layer, global);
    layer->o = weight(t, PL_T_O, global, -1);
    layer->o_bias = weight(t, PL_T_O_BIAS, global, -1);
    layer->gu = weight(t, gated ? PL_T_GATE : PL_T_UP, global, -1);
    layer->gu_bias = weight(t, gated ? PL_T_GATE_BIAS : PL_T_UP_BIAS, global, -1);
    layer->down = weight(t, PL_T_DOWN, global, -1);
    layer->down_bias = weight(t, PL_T_DOWN_BIAS, global, -1);
    layer->sinks = weight(t, PL_T_SINKS, global, -1);
    if (layer->moe)
        experts_init(rank, layer, global);
}

static void chunk_init(struct tr_rank *rank, int chunk)
{
    const struct pl_layout *l = &rank->layout;
    struct tr_chunk *k = &rank->chunk[chunk];
    int stage = rank->comms.stage, first;
    struct pl_act_bytes slot = {0};
    uint64_t at = 0;

    k->n = pl_stage_layers(&first, l, rank->model.layers, stage, chunk);
    k->mtp = pl_chunk_layers(&first, l, &rank->model, stage, chunk) - k->n;
    k->first = stage == 0 && chunk == 0;
    k->last = stage == l->pp - 1 && chunk == l->vp - 1;
    assert(k->n > 0 || (k->n == 0 && k->first != k->last)); /* stages-fit */
    assert(first >= 0 && first + k->n <= rank->model.layers);
    k->layer = mem_alloc(sizeof(*k->layer) * (size_t)(k->n + k->mtp));
    for (int i = 0; i < k->n + k->mtp; i++) {
        layer_init(rank, &k->layer[i], first + i);
        tr_window_layer(&k->layer[i], rank, chunk, i);
        if (i >= k->n) /* it has a buffer of its own */
            continue;
        k->layer[i].at = slot;
        slot.acts += k->layer[i].acts->slot.acts;
        slot.routes += k->layer[i].acts->slot.routes;
    }
    k->dxf_at = slot.acts;
    for (int i = 0; i < k->n; i++)
        at = pl_grad_acts(&k->layer[i].keep, &rank->d, k->layer[i].moe, at);
    k->ngslots =
        pl_schedule_live_grads((enum pl_schedule)l->schedule, stage, l->vp, rank->d.microbatches);
    k->gslot = mem_alloc(sizeof(*k->gslot) * (size_t)k->ngslots);
    for (int s = 0; s < k->ngslots; s++)
        k->gslot[s] = tr_device_get(&rank->device, PL_BUF_GRAD_SLOT, chunk, s);
    k->nslots = pl_schedule_live((enum pl_schedule)l->schedule, stage, l->pp, l->vp,
                                 rank->d.microbatches, chunk);
    k->slot = mem_alloc(sizeof(*k->slot) * (size_t)k->nslots);
    k->slot_sent = mem_alloc(sizeof(*k->slot_sent) * (size_t)k->nslots);
    for (int s = 0; s < k->nslots; s++) {
        k->slot[s] = (struct tr_slot){tr_device_get(&rank->device, PL_BUF_SLOT, chunk, s),
                                      tr_device_get(&rank->device, PL_BUF_ROUTES, chunk, s)};
        k->slot_sent[s] = TR_NO_MESSAGE;
    }
}

/* Does this rank hold a layer; with EXPERTS, one of those? */
static bool holds_layer(const struct tr_rank *rank, bool experts)
{
    for (int c = 0; c < rank->layout.vp; c++)
        for (int i = 0; i < rank->chunk[c].n + rank->chunk[c].mtp; i++)
            if (!experts || rank->chunk[c].layer[i].moe)
                return true;
    return false;
}

/* Rows of a table of the rotation: tokens here, or where positions reset, positions. */
static size_t rope_rows(const struct tr_rank *rank)
{
    return rank->workload.reset_position_ids ? (size_t)rank->workload.seq : rank->d.seq;
}

/* TO = BYTES of the host's FROM. */
static void put(struct tr_rank *rank, void *to, const void *from, size_t bytes)
{
    kn_copy(rank->pool, to, from, bytes);
    kn_wait(rank->pool);
}

/* Tables of the rotation by KIND, in the first or the second half of their buffer. */
static void rope_init(struct tr_rank *rank, enum tr_rope kind, float *table)
{
    size_t rows = rope_rows(rank), turned = (size_t)pl_rotary_dim(&rank->model), run;
    AUTO_FREE float *cosines = mem_alloc(rows * turned * sizeof(*cosines));
    float *sines = cosines + rows * turned / 2;
    double frequency[PL_MAX_HEAD_DIM / 2],
        amplitude = tr_rope_frequencies(frequency, &rank->model, kind);

    rank->work.rope_cos[kind] = table;
    rank->work.rope_sin[kind] = table + rows * turned / 2;
    for (size_t i = 0; i < rows; i += run) {
        size_t first = 0, at = i * turned / 2;

        run = rows;
        if (!rank->workload.reset_position_ids)
            first = tr_ring_position(&run, rank, i);

        kn_rope_tables(cosines + at, sines + at, first, run, turned, frequency, amplitude);
    }
    put(rank, table, cosines, rows * turned * sizeof(*cosines));
}

/* Tables of the rotation, or the number of each row's position. */
static void positions_init(struct tr_rank *rank)
{
    size_t seq = rank->d.seq, turned = (size_t)pl_rotary_dim(&rank->model), run;
    const struct tr_device *d = &rank->device;
    struct tr_work *w = &rank->work;

    if (rank->model.positions == PL_ROPE) {
        size_t kinds = (size_t)pl_rope_tables(&rank->model);
        float *table = tr_device_get(d, PL_BUF_ROPE, 0, 0);

        if (!holds_layer(rank, false))
            return;
        assert(kinds <= TR_ROPES);
        assert(tr_device_bytes(d, PL_BUF_ROPE) >=
               kinds * rope_rows(rank) * turned * sizeof(*table));
        for (size_t kind = 0; kind < kinds; kind++)
            rope_init(rank, (enum tr_rope)kind, table + kind * rope_rows(rank) * turned);
        return;
    }
    w->positions = tr_device_get(d, PL_BUF_POSITIONS, 0, 0);
    assert(rank->model.seq >= rank->workload.seq &&
           (rank->positions.w && !rank->workload.reset_position_ids) == (w->positions != NULL));
    for (size_t r = 0; w->positions && r < rank->d.rows; r++)
        w->positions[r] = (int32_t)tr_ring_position(&run, rank, r % seq);
}

static void ones_init(struct tr_rank *rank)
{
    const struct pl_dims *d = &rank->d;
    uint64_t n = d->expert_rows > d->local_rows ? d->expert_rows : d->local_rows;
    AUTO_FREE char *ones = mem_alloc(n * d->elem);
    const float one = 1;

    rank->work.ones = tr_device_get(&rank->device, PL_BUF_ONES, 0, 0);
    if (!rank->work.ones)
        return;
    for (uint64_t i = 0; i < n; i++)
        kn_convert(NULL, rank->type, ones + i * d->elem, KN_F32, &one, 1);
    put(rank, rank->work.ones, ones, n * d->elem);
}

static void gate_init(struct tr_rank *rank)
{
    struct tr_work *w = &rank->work;
    uint64_t rows = rank->d.local_rows;
    AUTO_FREE int32_t *place = mem_alloc(2 * rows * sizeof(*place)); /* then zeros */

    w->gate = tr_device_get(&rank->device, PL_BUF_GATE, 0, 0);
    if (!w->gate)
        return;
    w->gate_logit = (float *)(void *)(w->gate + rows * rank->d.hidden * rank->d.elem);
    w->gate_dw = w->gate_logit + rows;
    w->gate_place = (int32_t *)(void *)(w->gate_dw + rows);
    w->gate_zero = w->gate_place + rows;
    for (uint64_t i = 0; i < rows; i++)
        place[i] = (int32_t)i;
    put(rank, w->gate_place, place, 2 * rows * sizeof(*place));
}

static void work_init(struct tr_rank *rank)
{
    const struct tr_device *d = &rank->device;
    struct tr_work *w = &rank->work;
    size_t tokens = (size_t)rank->d.microbatches * rank->d.rows;

    w->scratch = (struct tr_slot){tr_device_get(d, PL_BUF_SCRATCH, 0, 0),
                                  tr_device_get(d, PL_BUF_SCRATCH_ROUTES, 0, 0)};
    w->gather = tr_device_get(d, PL_BUF_GATHER, 0, 0);
    w->partial = tr_device_get(d, PL_BUF_PARTIAL, 0, 0);
    w->tp_recv = tr_device_get(d, PL_BUF_TP_RECV, 0, 0);
    w->dh = tr_device_get(d, PL_BUF_DH, 0, 0);
    w->dx2 = tr_device_get(d, PL_BUF_DX2, 0, 0);
    w->dao = tr_device_get(d, PL_BUF_DAO, 0, 0);
    w->dqkv = tr_device_get(d, PL_BUF_DQKV, 0, 0);
    w->dlatent = tr_device_get(d, PL_BUF_DLATENT, 0, 0);
    w->attn = tr_device_get(d, PL_BUF_ATTN, 0, 0);
    rank->attn_bytes = tr_device_bytes(d, PL_BUF_ATTN);
    for (int i = 0; i < PL_RING_KVS; i++)
        w->ring_kv[i] = tr_device_get(d, PL_BUF_RING_KV, 0, i);
    for (int i = 0; i < PL_RING_DKVS; i++)
        w->ring_dkv[i] = tr_device_get(d, PL_BUF_RING_DKV, 0, i);
    w->ring_sum = tr_device_get(d, PL_BUF_RING_SUM, 0, 0);
    w->xf = tr_device_get(d, PL_BUF_XF, 0, 0);
    w->hf = tr_device_get(d, PL_BUF_HF, 0, 0);
    w->rrmsf = tr_device_get(d, PL_BUF_RRMSF, 0, 0);
    w->xent = tr_device_get(d, PL_BUF_XENT, 0, 0);
    w->logits = tr_device_get(d, PL_BUF_LOGITS, 0, 0);
    w->moe_send = tr_device_get(d, PL_BUF_MOE_SEND, 0, 0);
    w->moe_recv = tr_device_get(d, PL_BUF_MOE_RECV, 0, 0);
    w->moe_part = tr_device_get(d, PL_BUF_MOE_PART, 0, 0);
    w->moe_dea = tr_device_get(d, PL_BUF_MOE_DEA, 0, 0);
    w->moe_router = tr_device_get(d, PL_BUF_MOE_ROUTER, 0, 0);
    w->moe_stats = tr_device_get(d, PL_BUF_MOE_STATS, 0, 0);
    w->moe_pool = tr_device_get(d, PL_BUF_MOE_POOL, 0, 0);
    w->moe_total = tr_device_get(d, PL_BUF_MOE_LOAD, 0, 0);
    if (w->moe_total)
        w->moe_load = (float *)(w->moe_total + (uint64_t)rank->moe_here * rank->d.experts);
    for (int i = 0; i < PL_ACT_OUTS; i++)
        w->act_out[i] = tr_device_get(d, PL_BUF_ACT_OUT, 0, i);
    for (int i = 0; i < PL_ACT_INS; i++)
        w->act_in[i] = tr_device_get(d, PL_BUF_ACT_IN, 0, i);
    for (int i = 0; i < PL_GRAD_RINGS; i++)
        w->grad_ring[i] = tr_device_get(d, PL_BUF_GRAD_RING, 0, i);
    w->grad_sum = tr_device_get(d, PL_BUF_GRAD_SUM, 0, 0);
    w->qk_sum = tr_device_get(d, PL_BUF_QK_SUM, 0, 0);
    assert((w->grad_sum != NULL) == (rank->params.grad_type == KN_BF16));
    w->ids = tr_device_get(d, PL_BUF_TOKENS, 0, 0);
    w->targets = w->ids + tokens;
    w->age = pl_workload_has_documents(&rank->workload) ? w->targets + tokens : NULL;
    w->sample = (w->age ? w->age : w->targets) + tokens;
    assert(tr_device_bytes(d, PL_BUF_TOKENS) >=
           ((size_t)(w->sample - w->ids) + (size_t)rank->workload.seq + 1) * sizeof(*w->ids));
    positions_init(rank);
    gate_init(rank);
    ones_init(rank);
}

/* A group's collectives find their scratch as large as they take it to be (comm.h). */
static bool has_scratch(const struct tr_device *device, enum pl_buf buf,
                        const struct tr_group *group)
{
    return tr_device_bytes(device, buf) >= pl_coll_scratch(group->size) * sizeof(float);
}

static void comm_init(struct tr_rank *rank)
{
    const struct tr_device *d = &rank->device;
    struct tr_comms *c = &rank->comms;
    static const enum pl_buf of[] = {PL_BUF_COLL_DP, PL_BUF_COLL_EDP};

    assert(has_scratch(d, PL_BUF_COLL_TP, &c->tp));
    assert(!pl_embeds_twice(&rank->model, &rank->layout) ||
           has_scratch(d, PL_BUF_COLL_TP, &c->tied));
    assert(!rank->moe_layers || has_scratch(d, PL_BUF_COLL_TP, &c->cp));
    for (int i = 0; i < 1 + holds_layer(rank, true); i++)
        assert(has_scratch(d, of[i], &c->shard[i]) && has_scratch(d, of[i], &c->copy[i]));
    c->tp.scratch = c->tied.scratch = c->cp.scratch = tr_device_get(d, PL_BUF_COLL_TP, 0, 0);
    for (int i = 0; i < 2; i++)
        c->shard[i].scratch = c->copy[i].scratch = tr_device_get(d, of[i], 0, 0);
    tr_tp_init(rank);
    for (size_t i = 0; i < ARRAY_LEN(rank->ring_req); i++)
        rank->ring_req[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < PL_ACT_OUTS; i++)
        rank->act_sent[i] = TR_NO_MESSAGE;
    for (int i = 0; i < PL_GRAD_RINGS; i++)
        rank->grad_sent[i] = TR_NO_MESSAGE;
    /* a dispatch and a collect, each with a send and a receive for every member and expert */
    rank->moe_req_cap = 4 * c->moe.size * ((int)rank->d.local_experts + 1) + 1;
    rank->moe_req = mem_alloc(sizeof(*rank->moe_req) * (size_t)rank->moe_req_cap);
    rank->moe_out = mem_alloc(sizeof(*rank->moe_out) * (size_t)rank->moe_req_cap);
    rank->wgrad = mem_alloc(sizeof(*rank->wgrad) * (size_t)rank->moe_here);
    rank->pool_req = mem_alloc(sizeof(*rank->pool_req) * (size_t)rank->d.microbatches);
    for (int i = 0; i < rank->d.microbatches; i++)
        rank->pool_req[i] = MPI_REQUEST_NULL;
}

static void schedule_make(struct tr_rank *rank)
{
    const struct pl_layout *l = &rank->layout;

    rank->nsteps = pl_schedule_fewer(rank->steps, (enum pl_schedule)l->schedule, rank->comms.stage,
                                     l->pp, l->vp, rank->d.microbatches, rank->most);
    assert(rank->nsteps >= 2 * l->vp * rank->d.microbatches &&
           rank->nsteps <= 3 * l->vp * rank->d.microbatches);
}

static void schedule_init(struct tr_rank *rank)
{
    rank->most = rank->d.microbatches;
    schedule_make(rank);
    rank->steps = mem_alloc(sizeof(*rank->steps) * (size_t)rank->nsteps);
    schedule_make(rank);
}

void tr_rank_batch(struct tr_rank *rank, int batch)
{
    int share = rank->layout.micro_batch * rank->layout.dp;

    assert(batch > 0 && batch % share == 0 && batch / share <= rank->most);
    if (batch == rank->workload.global_batch)
        return;
    rank->workload.global_batch = batch;
    rank->d.microbatches = batch / share;
    schedule_make(rank);
}

/*
 * Called by the kernels now and then inside long operations. A test moves at most one message, over
 * TCP one buffer of it: over a socket a rendezvous is an offer, an answer, the data in several
 * reads, and an end. So a visit tests several times, and then not again for a while.
 */
enum { VISIT_TESTS = 16, VISIT_GAP_NS = 200000 };

/* True if one of the COUNT is not complete; a test of them has driven progress then. */
static bool drive(struct tr_rank *rank, MPI_Request *req, int count)
{
    for (int i = 0; i < count; i++)
        if (req[i] != MPI_REQUEST_NULL)
            return !tr_test(&rank->comms.progress, req, count);
    return false;
}

static bool drive_messages(struct tr_rank *rank, struct tr_message *message, int count)
{
    bool open = false;

    for (int i = 0; i < count; i++)
        open |= tr_message_open(&rank->comms.progress, &message[i]);
    return open;
}

/* Between stages: the receive that was posted ahead, and sends. */
static bool drive_stages(struct tr_rank *rank)
{
    bool open = rank->watch && drive_messages(rank, rank->watch, 1);

    open |= drive_messages(rank, rank->act_sent, PL_ACT_OUTS);
    open |= drive_messages(rank, rank->grad_sent, PL_GRAD_RINGS);
    for (int c = 0; c < rank->layout.vp; c++)
        open |= drive_messages(rank, rank->chunk[c].slot_sent, rank->chunk[c].nslots);
    return open;
}

static bool drive_tp(struct tr_rank *rank)
{
    int count = 2 * (rank->comms.tp.size - 1);
    bool open = drive(rank, rank->tp.gather, count);

    open |= drive(rank, rank->tp.reduce, count);
    return open;
}

/* False if nothing is under way. */
static bool visit_once(struct tr_rank *rank)
{
    bool open = tr_async_busy(rank);

    if (open)
        tr_async_poll(rank);
    open |= tr_dispatch_poll(rank);
    if (rank->layout.overlap_p2p)
        open |= drive_stages(rank);
    if (rank->layout.tp_overlap)
        open |= drive_tp(rank);
    if (rank->comms.cp.size > 1)
        open |= drive(rank, rank->ring_req, (int)ARRAY_LEN(rank->ring_req));
    return open;
}

static void visit(void *arg)
{
    struct tr_rank *r = arg;

    if (clock_mono_ns() < r->visit_ns)
        return;
    for (int i = 0; i < VISIT_TESTS && visit_once(r); i++)
        ;
    r->visit_ns = clock_mono_ns() + VISIT_GAP_NS;
}

static void visit_init(struct tr_rank *rank)
{
    const struct pl_layout *l = &rank->layout;

    if (l->overlap_grad_reduce || l->overlap_param_gather || l->overlap_p2p || l->overlap_moe_a2a ||
        l->tp_overlap || l->cp > 1)
        kn_pool_set_poll(rank->pool, visit, rank);
}

int tr_rank_init(enum pl_mem_class *ret_class, double *ret_asked, struct tr_rank *rank,
                 MPI_Comm parent, const struct pl_model *model, const struct pl_layout *layout,
                 const struct pl_workload *workload, uint64_t budget, tr_fail_fn *fail,
                 struct err *error)
{
    struct tr_link_plan plan;
    size_t unused;
    int k;

    *rank = (struct tr_rank){.model = *model,
                             .layout = *layout,
                             .workload = *workload,
                             .type = layout->precision == PL_BF16 ? KN_BF16 : KN_F32};
    MPI_Comm_rank(parent, &rank->rank);
    k = tr_device_init(ret_class, ret_asked, &rank->device, model, layout, workload, rank->rank,
                       budget, error);
    if (k < 0)
        return k;
    rank->pool = kn_pool_new(layout->threads);
    if (!rank->pool) {
        tr_device_done(&rank->device);
        *ret_class = PL_MEM_WORKSPACE;
        *ret_asked = (double)kn_pool_bytes(layout->threads);
        return err_set(error, -ENOMEM,
                       "workspace: cannot allocate memory or threads for the kernels' pool");
    }
    pl_dims(&rank->d, model, layout, workload);
    pl_acts(&rank->acts[0], model, layout, &rank->d, false);
    if (pl_model_is_moe(model))
        pl_acts(&rank->acts[1], model, layout, &rank->d, true);
    rank->moe_layers = pl_moe_layers(model);
    tr_clock_init(&rank->clock, rank->pool);
    tr_comms_init(&rank->comms, parent, layout, &rank->clock, fail);
    rank->comms.progress.pool = rank->pool;
    if (kn_apart(rank->pool))
        rank->comms.progress.staging =
            (struct tr_staging){.own = rank->device.own.base, .bytes = rank->device.own.bytes};
    if (rank->comms.progress.yield)
        kn_pool_set_spin(rank->pool, 0);
    params_init(rank);
    tr_optim_init(rank);
    tr_windows_clear(rank);
    rank->chunk = mem_alloc(sizeof(*rank->chunk) * (size_t)layout->vp);
    for (int c = 0; c < layout->vp; c++)
        chunk_init(rank, c);
    rank->mtp_tokens = mem_alloc(sizeof(*rank->mtp_tokens) * (size_t)model->mtp);
    tr_mtp_init(rank, &rank->chunk[layout->vp - 1]);
    work_init(rank);
    comm_init(rank);
    unused = kn_unused_own();
    tr_nccl_init(&rank->comms, fail);
    plan = tr_link_plan(&rank->comms, layout);
    tr_links_init(&rank->comms, &plan);
    rank->device.nccl_bytes = (double)unused - (double)kn_unused_own();
    schedule_init(rank);
    rank->graphs = tr_graphs_new(rank);
    tr_async_init(rank);
    visit_init(rank);
    return 0;
}

void tr_rank_done(struct tr_rank *rank)
{
    rank->graphs = tr_graphs_free(rank->graphs, rank);
    for (int c = 0; rank->chunk && c < rank->layout.vp; c++) {
        free(rank->chunk[c].layer);
        free(rank->chunk[c].slot);
        free(rank->chunk[c].slot_sent);
        free(rank->chunk[c].gslot);
    }
    free(rank->chunk);
    tr_mtp_done(rank);
    free(rank->mtp_tokens);
    free(rank->steps);
    free(rank->moe_req);
    free(rank->moe_out);
    free(rank->wgrad);
    free(rank->pool_req);
    tr_tp_done(rank);
    tr_async_done(rank);
    tr_links_done(&rank->comms);
    tr_nccl_done(&rank->comms);
    tr_comms_done(&rank->comms);
    pl_params_done(&rank->params.table);
    free(rank->params.v_at);
    tr_optim_done(rank);
    tr_clock_done(&rank->clock);
    kn_pool_free(rank->pool);
    tr_device_done(&rank->device);
    *rank = (struct tr_rank){0};
}
