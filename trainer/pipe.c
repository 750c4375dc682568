/*
 * Interpreter of a pipeline schedule.
 *
 * Buffers: a stage's output is written to one of two send buffers (act_out); its input is received
 * directly into the slot of the micro-batch. A gradient is received into one of three ring buffers,
 * turned in place into the gradient of the stage's input and sent from there; on the last virtual
 * stage it starts, and stays, in the slot. A buffer is taken only when its last send is complete.
 * The unit test of the schedules runs this with less: two buffers each way, and sends that end only
 * when received. Between GPUs with links (link.h), waits are the stream's, not the host's.
 *
 * With overlap_p2p the next step's receive is posted before this step computes: activations into
 * one of two buffers of their own (act_in), because their slot is still in use, and gradients into
 * the ring.
 *
 * What the "huggingface" load-balancing loss pools over the layers of a micro-batch
 * (tr_router_pool) travels in messages of its own: so far with the activations, whole with the
 * gradients. A part of it is overwritten only when its last send is complete, which is so by then:
 * what arrives has passed through the receiver of that send.
 *
 * Gradients of a bucket are complete when the last micro-batch has passed its lowest layer
 * backwards. With overlap_grad_reduce their sum over the replicas starts there and overlaps the
 * rest of the step. Those of a window (window.h) go with each micro-batch.
 */
#include "trainer/pipe.h"

#include "base/base.h"
#include "trainer/layer.h"
#include "trainer/mtp.h"

#include <assert.h>

/* A receive: of step STEP's input, -1: none. */
struct fetch {
    int step;
    struct tr_message message;
    char *buf;
    struct tr_message *sent; /* of a ring buffer: what is sent from it later */
};

struct run {
    struct tr_rank *r;
    const struct pl_step *steps;
    int nsteps;
    bool train;
    int ins, outs, grads; /* transfers started: they choose the next buffer */
    struct fetch next;
};

/* MESSAGE is a transfer NAME with stage neighbor PEER. */
static void wait_for(struct tr_rank *rank, enum tr_op_name name, int peer,
                     struct tr_message *message)
{
    struct tr_op op = {name, TR_IN_PP, peer};
    enum tr_phase was;

    if (message->req == MPI_REQUEST_NULL && !message->link)
        return;
    was = tr_phase(&rank->clock, TR_PHASE_PP_WAIT);
    tr_message_wait(&rank->comms.progress, op, message);
    tr_phase(&rank->clock, was);
}

/* The same of a message in the host's memory, which is MPI's. */
static void wait_for_pool(struct tr_rank *rank, enum tr_op_name name, int peer, MPI_Request *req)
{
    struct tr_message message = {.req = *req};

    wait_for(rank, name, peer, &message);
    *req = MPI_REQUEST_NULL;
}

static size_t bytes(const struct tr_rank *rank)
{
    return rank->d.local_rows * rank->d.hidden * rank->d.elem;
}

/* The chunk whose output this chunk receives is one lower on stage 0, which follows the last stage.
 */
static int chunk_before(const struct tr_rank *rank, int chunk)
{
    return rank->comms.stage == 0 ? chunk - 1 : chunk;
}

static int chunk_after(const struct tr_rank *rank, int chunk)
{
    return rank->comms.stage == rank->layout.pp - 1 ? chunk + 1 : chunk;
}

/* Whether STEP waits for another stage. */
static bool receives(const struct tr_rank *rank, const struct pl_step *step)
{
    const struct tr_chunk *k = &rank->chunk[step->chunk];

    return step->op == PL_FORWARD ? !k->first : step->op != PL_BACKWARD_WEIGHT && !k->last;
}

/* Where the layers of a step read; the final norm on a last virtual stage without layers. */
static void *input(const struct tr_rank *rank, const struct pl_step *step)
{
    const struct tr_chunk *k = &rank->chunk[step->chunk];

    assert(k->n > 0 || k->last);
    if (!k->n)
        return rank->work.xf;
    return tr_act(rank, &k->layer[0], k->slot[step->mb % k->nslots], PL_ACT_X);
}

/* Receive a gradient into a ring buffer that was SENT last: the receive waits for that, the host or
 * the pool does not. AHEAD: only if it is free now; false: it is not. */
static bool post_grad(struct tr_rank *rank, struct fetch *fetch, char *buf, struct tr_message *sent,
                      int tag, bool ahead)
{
    struct tr_link *link = rank->comms.link[TR_LINK_GRAD_IN];

    if (ahead && tr_message_open(&rank->comms.progress, sent))
        return false;
    if (link && sent->link) {
        tr_link_after(link, sent->link, sent->exchange);
        *sent = TR_NO_MESSAGE;
    }
    wait_for(rank, TR_OP_SEND, rank->comms.prev, sent);
    fetch->sent = sent;
    fetch->buf = buf;
    tr_message_recv(&fetch->message, &rank->comms, TR_LINK_GRAD_IN, buf, bytes(rank),
                    rank->comms.next, tag);
    return true;
}

/* Post the receive of STEP. AHEAD: only if a buffer is free now. */
static void post(struct run *run, int step, bool ahead)
{
    struct tr_rank *r = run->r;
    const struct pl_step *s = &run->steps[step];
    struct fetch f = {.step = step, .message = TR_NO_MESSAGE};

    assert(run->next.step < 0 && receives(r, s)); /* one receive ahead at most */
    if (s->op == PL_FORWARD) {
        f.buf = r->layout.overlap_p2p ? r->work.act_in[run->ins++ % PL_ACT_INS] : input(r, s);
        tr_message_recv(&f.message, &r->comms, TR_LINK_ACT_IN, f.buf, bytes(r), r->comms.prev,
                        TR_TAG_ACT + chunk_before(r, s->chunk));
    } else {
        int g = run->grads % PL_GRAD_RINGS;

        if (!post_grad(r, &f, r->work.grad_ring[g], &r->grad_sent[g],
                       TR_TAG_GRAD + chunk_after(r, s->chunk), ahead))
            return;
        run->grads++;
    }
    run->next = f;
}

/* The received input of STEP. */
static struct fetch take(struct run *run, int step)
{
    struct tr_rank *r = run->r;
    struct fetch f;

    if (run->next.step != step)
        post(run, step, false);
    assert(run->next.step == step);
    r->watch = NULL;
    wait_for(r, TR_OP_RECV, run->steps[step].op == PL_FORWARD ? r->comms.prev : r->comms.next,
             &run->next.message);
    f = run->next;
    run->next.step = -1;
    return f;
}

static void look_ahead(struct run *run, int step)
{
    struct tr_rank *r = run->r;

    if (!r->layout.overlap_p2p || run->next.step >= 0)
        return;
    while (++step < run->nsteps && !receives(r, &run->steps[step]))
        ;
    if (step < run->nsteps)
        post(run, step, true);
    if (run->next.step >= 0)
        r->watch = &run->next.message;
}

/* The layer whose weights are read first after STEP, or NULL. */
static const struct tr_layer *after(const struct run *run, int step)
{
    while (++step < run->nsteps) {
        const struct tr_chunk *k = &run->r->chunk[run->steps[step].chunk];

        if (k->n && run->steps[step].op != PL_BACKWARD_WEIGHT)
            return &k->layer[run->steps[step].op == PL_FORWARD ? 0 : k->n - 1];
    }
    return NULL;
}

/* Through the layers of a chunk; the last one writes to OUT. */
static void layers_fwd(struct run *run, int step, struct tr_slot slot, void *out)
{
    struct tr_rank *rank = run->r;
    const struct tr_chunk *chunk = &rank->chunk[run->steps[step].chunk];
    int all = chunk->n + (run->train ? chunk->mtp : 0);

    for (int i = 0; i < chunk->n; i++) {
        tr_now_layer(rank->comms.progress.now, chunk->layer[i].global);
        tr_async_wait(rank, (int)(chunk - rank->chunk), i);
        tr_window_weights(rank, &chunk->layer[i]);
        tr_window_prefetch(rank, &chunk->layer[i],
                           i + 1 < all ? &chunk->layer[i + 1] : after(run, step));
        tr_layer_fwd(rank, &chunk->layer[i], slot,
                     i + 1 < chunk->n ? tr_act(rank, &chunk->layer[i + 1], slot, PL_ACT_X) : out);
    }
}

/* The pool of micro-batch MB from stage FROM; -1: none, it begins here. */
static void pool_take(struct tr_rank *rank, int mb, int from, int tag)
{
    double *pool = tr_router_pool(rank, mb);
    MPI_Request req;

    if (!pool)
        return;
    wait_for_pool(rank, TR_OP_SEND, rank->comms.prev, &rank->pool_req[mb]);
    if (from < 0) {
        memset(pool, 0, tr_router_pool_bytes(rank));
        return;
    }
    tr_irecv(&req, &rank->comms.world, pool, tr_router_pool_bytes(rank), from, tag);
    wait_for_pool(rank, TR_OP_RECV, from, &req);
}

static void pool_give(struct tr_rank *rank, int mb, int to, int tag)
{
    double *pool = tr_router_pool(rank, mb);

    if (pool)
        tr_isend(&rank->pool_req[mb], &rank->comms.world, pool, tr_router_pool_bytes(rank), to,
                 tag);
}

/* Norms belong to all layers; an embedding of two stages waits for the other. */
static bool at_a_layer(const struct pl_bucket *bucket)
{
    return !pl_bucket_is_small(bucket) && bucket->kind != PL_BUCKET_TIED;
}

/* Micro-batch MB has passed LAYER of CHUNK (-1: the embedding, or a loss without layers) backwards:
 * the gradients of the buckets whose lowest layer that is are complete after the last one. */
static void complete(struct run *run, int chunk, int layer, int mb)
{
    struct tr_rank *r = run->r;

    if (!r->layout.overlap_grad_reduce || mb != r->d.microbatches - 1)
        return;
    for (int i = 0; i < r->params.table.nbuckets; i++) {
        const struct pl_bucket *b = &r->params.table.bucket[i];

        if (at_a_layer(b) && b->chunk == chunk && b->layer == layer) {
            tr_moe_wgrad(r);
            tr_async_reduce(r, i);
        }
    }
    tr_async_poll(r);
}

/* Both ends of the last virtual stage: DX, unless NULL, gets the gradient of its output. Pools over
 * layers are whole before the first way back. */
static void losses(struct run *run, int chunk, void *dx, int mb)
{
    struct tr_rank *rank = run->r;
    const struct tr_chunk *last = &rank->chunk[chunk];

    tr_async_wait(rank, chunk, last->n + last->mtp - 1);
    tr_head(rank, dx, mb);
    if (dx && last->mtp)
        tr_mtp_fwd(rank, mb);
    if (rank->work.moe_pool)
        tr_router_pooled(rank, mb);
    if (!dx || !last->mtp)
        return;
    tr_mtp_bwd(rank, dx, mb);
    /* a bucket of modules may hold the output projection, which has had all its losses only now */
    for (int i = last->n + last->mtp - 1; i >= last->n; i--)
        complete(run, chunk, i, mb);
}

static void forward(struct run *run, int step)
{
    struct tr_rank *r = run->r;
    const struct pl_step *s = &run->steps[step];
    struct tr_chunk *k = &r->chunk[s->chunk];
    struct tr_slot slot = k->slot[s->mb % k->nslots];
    void *x, *out = r->work.xf;
    int o = run->outs % PL_ACT_OUTS;

    assert(s->mb >= 0 && s->mb < r->d.microbatches && s->chunk < r->layout.vp);
    r->mb = s->mb;
    tr_now_pass(r->comms.progress.now, TR_PASS_FORWARD, s->mb, s->chunk);
    wait_for(r, TR_OP_SEND, r->comms.prev, &k->slot_sent[s->mb % k->nslots]);
    if (!k->last) {
        wait_for(r, TR_OP_SEND, r->comms.next, &r->act_sent[o]);
        out = r->work.act_out[o];
    }
    x = k->n ? input(r, s) : out;
    if (k->first) {
        look_ahead(run, step);
        tr_async_wait(r, 0, -1);
        tr_embed_fwd(r, x, s->mb);
    } else {
        struct fetch f = take(run, step);

        if (f.buf != x)
            kn_copy(r->pool, x, f.buf, bytes(r));
        look_ahead(run, step);
        if (!k->n)
            tr_async_wait(r, s->chunk, -1);
    }
    pool_take(r, s->mb, k->first ? -1 : r->comms.prev, TR_TAG_POOL + chunk_before(r, s->chunk));
    layers_fwd(run, step, slot, out);
    if (k->last) {
        losses(run, s->chunk, run->train ? slot.acts + k->dxf_at : NULL, s->mb);
    } else {
        tr_message_send(&r->act_sent[o], &r->comms, TR_LINK_ACT_OUT, out, bytes(r), r->comms.next,
                        TR_TAG_ACT + s->chunk);
        pool_give(r, s->mb, r->comms.next, TR_TAG_POOL + s->chunk);
        run->outs++;
    }
}

/* The same of a layer, whose windows are free then. */
static void passed(struct run *run, int chunk, int layer, int mb)
{
    tr_window_scatter(run->r, &run->r->chunk[chunk].layer[layer]);
    complete(run, chunk, layer, mb);
}

static void backward(struct run *run, int step)
{
    struct tr_rank *r = run->r;
    const struct pl_step *s = &run->steps[step];
    struct tr_chunk *k = &r->chunk[s->chunk];
    struct tr_slot slot = k->slot[s->mb % k->nslots];
    char *d = k->last ? slot.acts + k->dxf_at : NULL;
    char *keep = s->op == PL_BACKWARD_INPUT ? k->gslot[s->mb % k->ngslots] : NULL;
    struct tr_message *sent = &k->slot_sent[s->mb % k->nslots];

    assert(run->train && s->mb >= 0 && s->mb < r->d.microbatches && s->chunk < r->layout.vp);
    r->mb = s->mb;
    tr_now_pass(r->comms.progress.now, TR_PASS_BACKWARD, s->mb, s->chunk);
    if (!k->last) {
        struct fetch f = take(run, step);

        d = f.buf;
        sent = f.sent;
        pool_take(r, s->mb, r->comms.next, TR_TAG_POOL_BACK + chunk_after(r, s->chunk));
    }
    look_ahead(run, step);
    for (int y = k->n - 1; y >= 0; y--) {
        tr_now_layer(r->comms.progress.now, k->layer[y].global);
        tr_window_weights(r, &k->layer[y]);
        tr_window_prefetch(r, &k->layer[y], y > 0 ? &k->layer[y - 1] : after(run, step));
        if (!keep)
            tr_window_grads(r, &k->layer[y]);
        tr_layer_bwd(r, &k->layer[y], slot, keep, d);
        if (!keep)
            passed(run, s->chunk, y, s->mb);
    }
    if (!k->first) {
        tr_message_send(sent, &r->comms, TR_LINK_GRAD_OUT, d, bytes(r), r->comms.prev,
                        TR_TAG_GRAD + s->chunk);
        pool_give(r, s->mb, r->comms.prev, TR_TAG_POOL_BACK + s->chunk);
    } else {
        tr_embed_bwd(r, d, s->mb);
    }
    tr_moe_wgrad(r);
    if (k->first || !k->n)
        complete(run, s->chunk, -1, s->mb);
}

static void backward_weight(struct run *run, int step)
{
    struct tr_rank *r = run->r;
    const struct pl_step *s = &run->steps[step];
    struct tr_chunk *k = &r->chunk[s->chunk];

    assert(k->ngslots > 0);
    tr_now_pass(r->comms.progress.now, TR_PASS_WEIGHTS, s->mb, s->chunk);
    for (int y = k->n - 1; y >= 0; y--) {
        tr_now_layer(r->comms.progress.now, k->layer[y].global);
        tr_window_grads(r, &k->layer[y]);
        tr_layer_dw(r, &k->layer[y], k->slot[s->mb % k->nslots], k->gslot[s->mb % k->ngslots]);
        passed(run, s->chunk, y, s->mb);
    }
}

/* Complete all sends, so that the buffers are free. */
static void drain(struct tr_rank *rank)
{
    for (int i = 0; i < PL_ACT_OUTS; i++)
        wait_for(rank, TR_OP_SEND, rank->comms.next, &rank->act_sent[i]);
    for (int i = 0; i < PL_GRAD_RINGS; i++)
        wait_for(rank, TR_OP_SEND, rank->comms.prev, &rank->grad_sent[i]);
    for (int c = 0; c < rank->layout.vp; c++)
        for (int s = 0; s < rank->chunk[c].nslots; s++)
            wait_for(rank, TR_OP_SEND, rank->comms.prev, &rank->chunk[c].slot_sent[s]);
    for (int i = 0; i < rank->d.microbatches; i++)
        wait_for_pool(rank, TR_OP_SEND, rank->comms.prev, &rank->pool_req[i]);
    tr_now_pass(rank->comms.progress.now, TR_PASS_NONE, 0, 0);
}

void tr_pipe_run(struct tr_rank *rank)
{
    struct run u = {
        .r = rank, .steps = rank->steps, .nsteps = rank->nsteps, .train = true, .next.step = -1};

    for (int i = 0; i < rank->nsteps; i++) {
        if (rank->steps[i].op == PL_FORWARD) {
            tr_phase(&rank->clock, TR_PHASE_FORWARD);
            forward(&u, i);
        } else {
            tr_phase(&rank->clock, TR_PHASE_BACKWARD);
            if (rank->steps[i].op == PL_BACKWARD_WEIGHT)
                backward_weight(&u, i);
            else
                backward(&u, i);
        }
        tr_phase(&rank->clock, TR_PHASE_OTHER);
    }
    assert(u.next.step < 0); /* every receive has been taken */
    drain(rank);
}

void tr_pipe_forward(struct tr_rank *rank)
{
    struct pl_step s = {.op = PL_FORWARD};
    struct run u = {.r = rank, .steps = &s, .nsteps = 1, .next.step = -1};

    tr_phase(&rank->clock, TR_PHASE_FORWARD);
    for (int mb = 0; mb < rank->d.microbatches; mb++)
        for (int c = 0; c < rank->layout.vp; c++) {
            s.mb = mb;
            s.chunk = (uint16_t)c;
            forward(&u, 0);
        }
    drain(rank);
    tr_phase(&rank->clock, TR_PHASE_OTHER);
}
