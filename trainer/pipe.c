/*
 * Interpreter of a pipeline schedule.
 *
 * Buffers: a stage's output is written to one of two send buffers (act_out); its input is received
 * directly into the slot of the micro-batch. A gradient is received into one of three ring buffers,
 * turned in place into the gradient of the stage's input and sent from there; on the last virtual
 * stage it starts, and stays, in the slot. A buffer is taken only when its last send is complete.
 * The unit test of the schedules runs this machine with less: two buffers each way and sends that
 * end only when received.
 *
 * With overlap_p2p the next step's receive is posted before this step computes: activations into
 * one of two buffers of their own (act_in), because their slot is still in use, and gradients into
 * the ring.
 *
 * What the "huggingface" load-balancing loss pools over the layers of a micro-batch
 * (tr_router_pool) travels in messages of its own: so far with the activations, whole with the
 * gradients. A part of it is overwritten only when its last send is complete, which it is by then:
 * what arrives has gone through the receiver of that send.
 *
 * Gradients of a bucket are complete when the last micro-batch has passed its lowest layer
 * backwards. With overlap_grad_reduce their sum over the replicas starts there, behind what is left
 * of the step.
 */
#include "trainer/pipe.h"

#include "base/base.h"
#include "trainer/layer.h"

/* A receive: of step STEP's input, -1: none. */
struct fetch {
    int step;
    MPI_Request req;
    char *buf;
    MPI_Request *send; /* of a ring buffer: what is sent from it later */
};

struct run {
    struct tr_rank *r;
    const struct pl_step *steps;
    int nsteps;
    bool train;
    int ins, outs, grads; /* transfers started: they choose the next buffer */
    struct fetch next;
};

static void wait_for(struct tr_rank *r, MPI_Request *req)
{
    enum tr_phase was;

    if (*req == MPI_REQUEST_NULL)
        return;
    was = tr_phase(&r->clock, TR_PHASE_PP_WAIT);
    tr_wait(&r->comms.progress, req, 1);
    tr_phase(&r->clock, was);
}

static size_t bytes(const struct tr_rank *r)
{
    return r->d.local_rows * r->d.hidden * r->d.elem;
}

/* The chunk whose output this chunk receives is one lower on stage 0, which follows the last stage.
 */
static int chunk_before(const struct tr_rank *r, int chunk)
{
    return r->comms.stage == 0 ? chunk - 1 : chunk;
}

static int chunk_after(const struct tr_rank *r, int chunk)
{
    return r->comms.stage == r->layout.pp - 1 ? chunk + 1 : chunk;
}

/* Whether step S waits for another stage. */
static bool receives(const struct tr_rank *r, const struct pl_step *s)
{
    const struct tr_chunk *k = &r->chunk[s->chunk];

    return s->op == PL_FORWARD ? !k->first : s->op != PL_BACKWARD_WEIGHT && !k->last;
}

static void *input(const struct tr_rank *r, const struct pl_step *s)
{
    const struct tr_chunk *k = &r->chunk[s->chunk];

    return tr_act(r, &k->layer[0], k->slot[s->mb % k->nslots], PL_ACT_X);
}

/* Post the receive of step I. AHEAD: only if a buffer is free now. */
static void post(struct run *u, int i, bool ahead)
{
    struct tr_rank *r = u->r;
    const struct pl_step *s = &u->steps[i];
    struct fetch f = {.step = i};

    if (s->op == PL_FORWARD) {
        f.buf = r->layout.overlap_p2p ? r->work.act_in[u->ins++ % PL_ACT_INS] : input(r, s);
        tr_irecv(&r->comms.world, f.buf, bytes(r), r->comms.prev,
                 TR_TAG_ACT + chunk_before(r, s->chunk), &f.req);
    } else {
        int g = u->grads % PL_GRAD_RINGS;

        f.send = &r->grad_req[g];
        if (ahead && !tr_test(f.send, 1))
            return;
        wait_for(r, f.send);
        u->grads++;
        f.buf = r->work.grad_ring[g];
        tr_irecv(&r->comms.world, f.buf, bytes(r), r->comms.next,
                 TR_TAG_GRAD + chunk_after(r, s->chunk), &f.req);
    }
    u->next = f;
}

/* The received input of step I; then the receive that follows, ahead of its time. */
static struct fetch take(struct run *u, int i)
{
    struct tr_rank *r = u->r;
    struct fetch f;

    if (u->next.step != i)
        post(u, i, false);
    r->watch = NULL;
    wait_for(r, &u->next.req);
    f = u->next;
    u->next.step = -1;
    return f;
}

static void look_ahead(struct run *u, int i)
{
    struct tr_rank *r = u->r;

    if (!r->layout.overlap_p2p || u->next.step >= 0)
        return;
    while (++i < u->nsteps && !receives(r, &u->steps[i]))
        ;
    if (i < u->nsteps)
        post(u, i, true);
    if (u->next.step >= 0)
        r->watch = &u->next.req;
}

/* Through the layers of a chunk; the last one writes to OUT. */
static void layers_fwd(struct tr_rank *r, const struct tr_chunk *k, char *slot, void *out)
{
    for (int i = 0; i < k->n; i++) {
        tr_async_need(r, (int)(k - r->chunk), i);
        tr_layer_fwd(r, &k->layer[i], slot,
                     i + 1 < k->n ? tr_act(r, &k->layer[i + 1], slot, PL_ACT_X) : out);
    }
}

/* The pool of micro-batch MB from stage FROM; -1: none, it begins here. */
static void pool_take(struct tr_rank *r, int mb, int from, int tag)
{
    double *pool = tr_router_pool(r, mb);
    MPI_Request req;

    if (!pool)
        return;
    wait_for(r, &r->pool_req[mb]);
    if (from < 0) {
        memset(pool, 0, tr_router_pool_bytes(r));
        return;
    }
    tr_irecv(&r->comms.world, pool, tr_router_pool_bytes(r), from, tag, &req);
    wait_for(r, &req);
}

static void pool_give(struct tr_rank *r, int mb, int to, int tag)
{
    double *pool = tr_router_pool(r, mb);

    if (pool)
        tr_isend(&r->comms.world, pool, tr_router_pool_bytes(r), to, tag, &r->pool_req[mb]);
}

static void forward(struct run *u, int i)
{
    struct tr_rank *r = u->r;
    const struct pl_step *s = &u->steps[i];
    struct tr_chunk *k = &r->chunk[s->chunk];
    char *slot = k->slot[s->mb % k->nslots];
    void *x = input(r, s), *out = r->work.xf;
    int o = u->outs % PL_ACT_OUTS;

    r->mb = s->mb;
    wait_for(r, &k->slot_req[s->mb % k->nslots]);
    if (!k->last) {
        wait_for(r, &r->act_req[o]);
        out = r->work.act_out[o];
    }
    if (k->first) {
        look_ahead(u, i);
        tr_async_need(r, 0, -1);
        tr_embed_fwd(r, x, s->mb);
    } else {
        struct fetch f = take(u, i);

        if (f.buf != x)
            kn_copy(r->pool, x, f.buf, bytes(r));
        look_ahead(u, i);
    }
    pool_take(r, s->mb, k->first ? -1 : r->comms.prev, TR_TAG_POOL + chunk_before(r, s->chunk));
    layers_fwd(r, k, slot, out);
    if (k->last) {
        if (r->work.moe_pool)
            tr_router_pooled(r, s->mb);
        tr_head(r, u->train ? slot + k->dxf_at : NULL, s->mb);
    } else {
        tr_isend(&r->comms.world, out, bytes(r), r->comms.next, TR_TAG_ACT + s->chunk,
                 &r->act_req[o]);
        pool_give(r, s->mb, r->comms.next, TR_TAG_POOL + s->chunk);
        u->outs++;
    }
}

/* Norms belong to all layers; a tied embedding waits for the other stage that holds it. */
static bool at_a_layer(const struct pl_bucket *b)
{
    return b->kind != PL_BUCKET_SMALL && b->kind != PL_BUCKET_TIED;
}

/* Gradients of the buckets whose lowest layer is LAYER of CHUNK are complete. */
static void complete(struct run *u, int chunk, int layer, int mb)
{
    struct tr_rank *r = u->r;

    if (!r->layout.overlap_grad_reduce || mb != r->d.microbatches - 1)
        return;
    for (int i = 0; i < r->params.table.nbuckets; i++) {
        const struct pl_bucket *b = &r->params.table.bucket[i];

        if (at_a_layer(b) && b->chunk == chunk && b->layer == layer)
            tr_async_reduce(r, i);
    }
    tr_async_poll(r);
}

static void backward(struct run *u, int i)
{
    struct tr_rank *r = u->r;
    const struct pl_step *s = &u->steps[i];
    struct tr_chunk *k = &r->chunk[s->chunk];
    char *slot = k->slot[s->mb % k->nslots], *d = slot + k->dxf_at;
    char *keep = s->op == PL_BACKWARD_INPUT ? k->gslot[s->mb % k->ngslots] : NULL;
    MPI_Request *req = &k->slot_req[s->mb % k->nslots];

    r->mb = s->mb;
    if (!k->last) {
        struct fetch f = take(u, i);

        d = f.buf;
        req = f.send;
        pool_take(r, s->mb, r->comms.next, TR_TAG_POOL_BACK + chunk_after(r, s->chunk));
    }
    look_ahead(u, i);
    for (int y = k->n - 1; y >= 0; y--) {
        tr_layer_bwd(r, &k->layer[y], slot, keep, d);
        if (!keep)
            complete(u, s->chunk, y, s->mb);
    }
    if (!k->first) {
        tr_isend(&r->comms.world, d, bytes(r), r->comms.prev, TR_TAG_GRAD + s->chunk, req);
        pool_give(r, s->mb, r->comms.prev, TR_TAG_POOL_BACK + s->chunk);
        return;
    }
    tr_embed_bwd(r, d, s->mb);
    complete(u, s->chunk, -1, s->mb);
}

static void backward_weight(struct run *u, int i)
{
    struct tr_rank *r = u->r;
    const struct pl_step *s = &u->steps[i];
    struct tr_chunk *k = &r->chunk[s->chunk];

    for (int y = k->n - 1; y >= 0; y--) {
        tr_layer_dw(r, &k->layer[y], k->slot[s->mb % k->nslots], k->gslot[s->mb % k->ngslots]);
        complete(u, s->chunk, y, s->mb);
    }
}

/* All sends complete, so that the buffers are free for whatever follows. */
static void drain(struct tr_rank *r)
{
    for (int i = 0; i < PL_ACT_OUTS; i++)
        wait_for(r, &r->act_req[i]);
    for (int i = 0; i < PL_GRAD_RINGS; i++)
        wait_for(r, &r->grad_req[i]);
    for (int c = 0; c < r->layout.vp; c++)
        for (int s = 0; s < r->chunk[c].nslots; s++)
            wait_for(r, &r->chunk[c].slot_req[s]);
    for (int i = 0; i < r->d.microbatches; i++)
        wait_for(r, &r->pool_req[i]);
}

void tr_pipe_run(struct tr_rank *r)
{
    struct run u = {.r = r, .steps = r->steps, .nsteps = r->nsteps, .train = true, .next.step = -1};

    for (int i = 0; i < r->nsteps; i++) {
        if (r->steps[i].op == PL_FORWARD) {
            tr_phase(&r->clock, TR_PHASE_FORWARD);
            forward(&u, i);
        } else {
            tr_phase(&r->clock, TR_PHASE_BACKWARD);
            if (r->steps[i].op == PL_BACKWARD_WEIGHT)
                backward_weight(&u, i);
            else
                backward(&u, i);
        }
        tr_phase(&r->clock, TR_PHASE_OTHER);
    }
    drain(r);
}

void tr_pipe_forward(struct tr_rank *r)
{
    struct pl_step s = {.op = PL_FORWARD};
    struct run u = {.r = r, .steps = &s, .nsteps = 1, .next.step = -1};

    tr_phase(&r->clock, TR_PHASE_FORWARD);
    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int c = 0; c < r->layout.vp; c++) {
            s.mb = mb;
            s.chunk = (uint16_t)c;
            forward(&u, 0);
        }
    drain(r);
    tr_phase(&r->clock, TR_PHASE_OTHER);
}
