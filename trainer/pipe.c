/*
 * Interpreter of a pipeline schedule.
 *
 * Buffers: a stage's output is written to one of two send buffers (act_out); its input is received
 * directly into the slot of the micro-batch. A gradient is received into one of three ring buffers,
 * turned in place into the gradient of the stage's input and sent from there; on the last virtual
 * stage it starts, and stays, in the slot. A buffer is taken only when its last send is complete.
 * The unit test of the schedules runs this machine with less: two buffers each way and sends that
 * end only when received.
 */
#include "base/base.h"
#include "trainer/layer.h"
#include "trainer/pipe.h"

struct run {
    struct tr_rank *r;
    int acts, grads; /* sends started: they choose the next buffer */
};

static void wait_for(struct tr_rank *r, MPI_Request *req)
{
    enum tr_phase was = tr_phase(&r->clock, TR_PHASE_PP_WAIT);

    tr_wait(&r->comms.progress, req, 1);
    tr_phase(&r->clock, was);
}

static size_t bytes(const struct tr_rank *r)
{
    return r->d.local_rows * r->d.hidden * r->d.elem;
}

static void receive(struct tr_rank *r, void *buf, int from, int tag)
{
    MPI_Request req;
    enum tr_phase was = tr_phase(&r->clock, TR_PHASE_PP_WAIT);

    tr_irecv(&r->comms.world, buf, bytes(r), from, tag, &req);
    tr_wait(&r->comms.progress, &req, 1);
    tr_phase(&r->clock, was);
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

/* Through the layers of a chunk; the last one writes to OUT. */
static void layers_fwd(struct tr_rank *r, const struct tr_chunk *k, char *slot, void *out)
{
    for (int i = 0; i < k->n; i++)
        tr_layer_fwd(r, &k->layer[i], slot,
                     i + 1 < k->n ? tr_act(r, &k->layer[i + 1], slot, PL_ACT_X) : out);
}

static void forward(struct run *u, int chunk, int mb, bool train)
{
    struct tr_rank *r = u->r;
    struct tr_chunk *k = &r->chunk[chunk];
    char *slot = k->slot[mb % k->nslots];
    void *x = tr_act(r, &k->layer[0], slot, PL_ACT_X), *out = r->work.xf;
    int i = u->acts % PL_ACT_OUTS;

    wait_for(r, &k->slot_req[mb % k->nslots]);
    if (!k->last) {
        wait_for(r, &r->act_req[i]);
        out = r->work.act_out[i];
    }
    if (k->first)
        tr_embed_fwd(r, x, mb);
    else
        receive(r, x, r->comms.prev, TR_TAG_ACT + chunk_before(r, chunk));
    layers_fwd(r, k, slot, out);
    if (k->last) {
        tr_head(r, train ? slot + k->dxf_at : NULL, mb);
    } else {
        tr_isend(&r->comms.world, out, bytes(r), r->comms.next, TR_TAG_ACT + chunk, &r->act_req[i]);
        u->acts++;
    }
}

static void backward(struct run *u, int chunk, int mb)
{
    struct tr_rank *r = u->r;
    struct tr_chunk *k = &r->chunk[chunk];
    char *slot = k->slot[mb % k->nslots], *d = slot + k->dxf_at;
    MPI_Request *req = &k->slot_req[mb % k->nslots];

    if (!k->last) {
        int i = u->grads++ % PL_GRAD_RINGS;

        d = r->work.grad_ring[i];
        req = &r->grad_req[i];
        wait_for(r, req);
        receive(r, d, r->comms.next, TR_TAG_GRAD + chunk_after(r, chunk));
    }
    for (int i = k->n - 1; i >= 0; i--)
        tr_layer_bwd(r, &k->layer[i], slot, d);
    if (k->first)
        tr_embed_bwd(r, d, mb);
    else
        tr_isend(&r->comms.world, d, bytes(r), r->comms.prev, TR_TAG_GRAD + chunk, req);
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
}

void tr_pipe_run(struct tr_rank *r)
{
    struct run u = {.r = r};

    for (int i = 0; i < r->nsteps; i++) {
        const struct pl_step *s = &r->steps[i];

        if (s->op == PL_FORWARD) {
            tr_phase(&r->clock, TR_PHASE_FORWARD);
            forward(&u, s->chunk, s->mb, true);
        } else {
            tr_phase(&r->clock, TR_PHASE_BACKWARD);
            backward(&u, s->chunk, s->mb);
        }
        tr_phase(&r->clock, TR_PHASE_OTHER);
    }
    drain(r);
}

void tr_pipe_forward(struct tr_rank *r)
{
    struct run u = {.r = r};

    tr_phase(&r->clock, TR_PHASE_FORWARD);
    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int c = 0; c < r->layout.vp; c++)
            forward(&u, c, mb, false);
    drain(r);
    tr_phase(&r->clock, TR_PHASE_OTHER);
}
