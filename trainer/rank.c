#include "base/base.h"
#include "trainer/rank.h"

#include <assert.h>
#include <errno.h>

_Static_assert((int)KN_SCRATCH_BYTES == (int)PL_KERNEL_SCRATCH,
               "the plan counts the kernels' scratch");
_Static_assert((int)KN_MAX_HEAD_DIM == (int)PL_MAX_HEAD_DIM, "the plan refuses wider heads");
_Static_assert(TR_TAG_POOL + PL_MAX_CHUNKS <= TR_TAG_ACT &&
                   TR_TAG_ACT + PL_MAX_CHUNKS <= TR_TAG_GRAD &&
                   TR_TAG_GRAD + PL_MAX_CHUNKS <= TR_TAG_POOL_BACK &&
                   TR_TAG_POOL_BACK + PL_MAX_CHUNKS <= TR_TAG_MOE &&
                   TR_TAG_MOE + PL_MAX_EXPERTS < TR_TAG_COLL,
               "tags differ");

static struct tr_weight weight(const struct tr_params *t, enum pl_tensor tensor, int layer,
                               int expert)
{
    int i = tr_param_find(t, tensor, layer, expert);

    if (i < 0)
        return (struct tr_weight){0};
    return (struct tr_weight){tr_param_weight(t, i), tr_param_grad(t, i)};
}

static void params_init(struct tr_rank *r)
{
    struct tr_params *t = &r->params;

    pl_params_build(&t->table, &r->model, &r->layout, r->rank);
    t->rank = r->rank;
    t->type = r->type;
    t->weight = tr_device_get(&r->device, PL_BUF_WEIGHT, 0, 0);
    t->grad = tr_device_get(&r->device, PL_BUF_GRAD, 0, 0);
    t->master = tr_device_get(&r->device, PL_BUF_MASTER, 0, 0);
    t->m = tr_device_get(&r->device, PL_BUF_MOMENT1, 0, 0);
    t->v = tr_device_get(&r->device, PL_BUF_MOMENT2, 0, 0);
    r->embed = weight(t, PL_T_EMBED, -1, -1);
    r->head = weight(t, r->model.tied ? PL_T_EMBED : PL_T_HEAD, -1, -1);
    r->final_norm = weight(t, PL_T_FINAL_NORM, -1, -1);
}

static void layer_init(struct tr_rank *r, struct tr_layer *y, int global)
{
    const struct tr_params *t = &r->params;
    int first_expert = pl_axis_coord(&r->layout, PL_EP, r->rank) * (int)r->d.local_experts;

    y->global = global;
    y->moe = pl_layer_is_moe(&r->model, global);
    y->acts = &r->acts[y->moe];
    y->norm1 = weight(t, PL_T_NORM1, global, -1);
    y->norm2 = weight(t, PL_T_NORM2, global, -1);
    y->qkv = weight(t, PL_T_Q, global, -1);
    y->o = weight(t, PL_T_O, global, -1);
    y->gu = weight(t, PL_T_GATE, global, -1);
    y->down = weight(t, PL_T_DOWN, global, -1);
    y->router = weight(t, PL_T_ROUTER, global, -1);
    if (y->moe)
        y->expert = weight(t, PL_T_EXPERT_GATE, global, first_expert);
}

static void chunk_init(struct tr_rank *r, int c)
{
    const struct pl_layout *l = &r->layout;
    struct tr_chunk *k = &r->chunk[c];
    int stage = r->comms.stage, first;
    uint64_t at = 0;

    k->n = pl_stage_layers(l, r->model.layers, stage, c, &first);
    k->first = stage == 0 && c == 0;
    k->last = stage == l->pp - 1 && c == l->vp - 1;
    k->layer = mem_alloc(sizeof(*k->layer) * (size_t)k->n);
    for (int i = 0; i < k->n; i++) {
        layer_init(r, &k->layer[i], first + i);
        k->layer[i].at = at;
        at += k->layer[i].acts->slot_bytes;
    }
    k->dxf_at = at;
    at = 0;
    for (int i = 0; i < k->n; i++)
        at = pl_grad_acts(&k->layer[i].keep, &r->d, k->layer[i].moe, at);
    k->ngslots =
        pl_schedule_live_grads((enum pl_schedule)l->schedule, stage, l->vp, r->d.microbatches);
    k->gslot = mem_alloc(sizeof(*k->gslot) * (size_t)k->ngslots);
    for (int s = 0; s < k->ngslots; s++)
        k->gslot[s] = tr_device_get(&r->device, PL_BUF_GRAD_SLOT, c, s);
    k->nslots =
        pl_schedule_live((enum pl_schedule)l->schedule, stage, l->pp, l->vp, r->d.microbatches, c);
    k->slot = mem_alloc(sizeof(*k->slot) * (size_t)k->nslots);
    k->slot_req = mem_alloc(sizeof(*k->slot_req) * (size_t)k->nslots);
    for (int s = 0; s < k->nslots; s++) {
        k->slot[s] = tr_device_get(&r->device, PL_BUF_SLOT, c, s);
        k->slot_req[s] = MPI_REQUEST_NULL;
    }
}

static void work_init(struct tr_rank *r)
{
    const struct tr_device *d = &r->device;
    struct tr_work *w = &r->work;
    size_t tokens = (size_t)r->d.microbatches * r->d.rows;

    w->scratch = tr_device_get(d, PL_BUF_SCRATCH, 0, 0);
    w->gather = tr_device_get(d, PL_BUF_GATHER, 0, 0);
    w->partial = tr_device_get(d, PL_BUF_PARTIAL, 0, 0);
    w->dh = tr_device_get(d, PL_BUF_DH, 0, 0);
    w->dao = tr_device_get(d, PL_BUF_DAO, 0, 0);
    w->dqkv = tr_device_get(d, PL_BUF_DQKV, 0, 0);
    w->attn = tr_device_get(d, PL_BUF_ATTN, 0, 0);
    r->attn_bytes = tr_device_bytes(d, PL_BUF_ATTN);
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
    for (int i = 0; i < PL_ACT_OUTS; i++)
        w->act_out[i] = tr_device_get(d, PL_BUF_ACT_OUT, 0, i);
    for (int i = 0; i < PL_ACT_INS; i++)
        w->act_in[i] = tr_device_get(d, PL_BUF_ACT_IN, 0, i);
    for (int i = 0; i < PL_GRAD_RINGS; i++)
        w->grad_ring[i] = tr_device_get(d, PL_BUF_GRAD_RING, 0, i);
    w->ids = tr_device_get(d, PL_BUF_TOKENS, 0, 0);
    w->targets = w->ids + tokens;
    w->sample = w->targets + tokens;
    w->rope_cos = tr_device_get(d, PL_BUF_ROPE, 0, 0);
    w->rope_sin = w->rope_cos + (size_t)r->workload.seq * r->d.head_dim / 2;
    kn_rope_tables(w->rope_cos, w->rope_sin, (size_t)r->workload.seq, r->d.head_dim,
                   r->model.rope_theta);
}

static void comm_init(struct tr_rank *r)
{
    const struct tr_device *d = &r->device;
    struct tr_comms *c = &r->comms;

    c->tp.scratch = c->tied.scratch = tr_device_get(d, PL_BUF_COLL_TP, 0, 0);
    c->dp.scratch = c->shard.scratch = c->outer.scratch = tr_device_get(d, PL_BUF_COLL_DP, 0, 0);
    c->edp.scratch = tr_device_get(d, PL_BUF_COLL_EDP, 0, 0);
    for (int i = 0; i < PL_ACT_OUTS; i++)
        r->act_req[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < PL_GRAD_RINGS; i++)
        r->grad_req[i] = MPI_REQUEST_NULL;
    /* a dispatch and a collect, each with a send and a receive for every member and expert */
    r->moe_req =
        mem_alloc(sizeof(*r->moe_req) * (4 * (size_t)c->moe.size * (r->d.local_experts + 1) + 1));
    r->pool_req = mem_alloc(sizeof(*r->pool_req) * (size_t)r->d.microbatches);
    for (int i = 0; i < r->d.microbatches; i++)
        r->pool_req[i] = MPI_REQUEST_NULL;
}

static void schedule_init(struct tr_rank *r)
{
    const struct pl_layout *l = &r->layout;
    enum pl_schedule s = (enum pl_schedule)l->schedule;

    r->nsteps = pl_schedule_steps(NULL, s, r->comms.stage, l->pp, l->vp, r->d.microbatches);
    r->steps = mem_alloc(sizeof(*r->steps) * (size_t)r->nsteps);
    pl_schedule_steps(r->steps, s, r->comms.stage, l->pp, l->vp, r->d.microbatches);
}

/*
 * What the kernels call now and then inside long operations. A test moves one message at most, and
 * over TCP one buffer of it: over a socket a rendezvous is an offer, an answer, the data in several
 * reads, and an end. So a visit tests several times, and leaves the rank alone for a while then.
 */
enum { VISIT_TESTS = 16, VISIT_GAP_NS = 200000 };

/* True if one of the N is not complete; a test of them has driven progress then. */
static bool drive(MPI_Request *req, int n)
{
    for (int i = 0; i < n; i++)
        if (req[i] != MPI_REQUEST_NULL)
            return !tr_test(req, n);
    return false;
}

/* Between stages: what is received ahead, and what is being sent. */
static bool drive_stages(struct tr_rank *r)
{
    bool open = r->watch && drive(r->watch, 1);

    open |= drive(r->act_req, PL_ACT_OUTS);
    open |= drive(r->grad_req, PL_GRAD_RINGS);
    for (int c = 0; c < r->layout.vp; c++)
        open |= drive(r->chunk[c].slot_req, r->chunk[c].nslots);
    return open;
}

/* False if nothing is under way. */
static bool visit_once(struct tr_rank *r)
{
    bool open = tr_async_busy(r);

    if (open)
        tr_async_poll(r);
    if (r->moe_nreq)
        open |= drive(r->moe_req, r->moe_nreq);
    if (r->layout.overlap_p2p)
        open |= drive_stages(r);
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

static void visit_init(struct tr_rank *r)
{
    const struct pl_layout *l = &r->layout;

    if (l->overlap_grad_reduce || l->overlap_param_gather || l->overlap_p2p || l->overlap_moe_a2a)
        kn_pool_set_poll(r->pool, visit, r);
}

int tr_rank_init(struct tr_rank *r, MPI_Comm parent, const struct pl_model *m,
                 const struct pl_layout *l, const struct pl_workload *w, uint64_t budget,
                 tr_fail_fn *fail, enum pl_mem_class *ret_class, double *ret_asked, struct err *e)
{
    int k;

    *r = (struct tr_rank){.model = *m,
                          .layout = *l,
                          .workload = *w,
                          .type = l->precision == PL_BF16 ? KN_BF16 : KN_F32};
    MPI_Comm_rank(parent, &r->rank);
    k = tr_device_init(&r->device, m, l, w, r->rank, budget, ret_class, ret_asked, e);
    if (k < 0)
        return k;
    r->pool = kn_pool_new(l->threads);
    if (!r->pool) {
        tr_device_done(&r->device);
        *ret_class = PL_MEM_WORKSPACE;
        *ret_asked = (double)kn_pool_bytes(l->threads);
        return err_set(e, -ENOMEM, "workspace: no memory or threads for the kernels' pool");
    }
    pl_dims(&r->d, m, l, w);
    pl_acts(&r->acts[0], m, l, &r->d, false);
    if (pl_model_is_moe(m))
        pl_acts(&r->acts[1], m, l, &r->d, true);
    for (int i = 0; i < m->layers; i++)
        r->moe_layers += pl_layer_is_moe(m, i);
    tr_clock_reset(&r->clock);
    tr_comms_init(&r->comms, parent, l, &r->clock, fail);
    r->comms.progress.pool = r->pool;
    if (r->comms.progress.yield)
        kn_pool_set_spin(r->pool, 0);
    params_init(r);
    r->chunk = mem_alloc(sizeof(*r->chunk) * (size_t)l->vp);
    for (int c = 0; c < l->vp; c++)
        chunk_init(r, c);
    work_init(r);
    comm_init(r);
    schedule_init(r);
    tr_async_init(r);
    visit_init(r);
    return 0;
}

void tr_rank_done(struct tr_rank *r)
{
    for (int c = 0; r->chunk && c < r->layout.vp; c++) {
        free(r->chunk[c].layer);
        free(r->chunk[c].slot);
        free(r->chunk[c].slot_req);
        free(r->chunk[c].gslot);
    }
    free(r->chunk);
    free(r->steps);
    free(r->moe_req);
    free(r->pool_req);
    tr_async_done(r);
    tr_comms_done(&r->comms);
    pl_params_done(&r->params.table);
    kn_pool_free(r->pool);
    tr_device_done(&r->device);
    *r = (struct tr_rank){0};
}
