/* Ring attention; ring.h has the algorithm. */
#include "trainer/ring.h"

#include "base/base.h"

#include <assert.h>

/* Of rank->ring_req: the first of a send and a receive; their tags are TR_TAG_RING + half of it. */
enum way { KV = 0, DKV = 2 };

size_t tr_ring_position(size_t *ret_run, const struct tr_rank *rank, size_t token)
{
    size_t chunk = rank->d.seq / 2, cp = (size_t)rank->comms.cp.size,
           me = (size_t)rank->comms.cp.rank;

    assert(token < rank->d.seq);
    if (cp == 1) {
        *ret_run = rank->d.seq - token;
        return token;
    }
    if (token < chunk) {
        *ret_run = chunk - token;
        return me * chunk + token;
    }
    *ret_run = rank->d.seq - token;
    return (2 * cp - 1 - me) * chunk + token - chunk;
}

/* ARRAY + INDEX elements. */
static void *at(enum kn_type type, const void *array, size_t index)
{
    return (char *)(uintptr_t)array + index * kn_type_size(type);
}

/* Keys and values travel as (rows, kv_heads (d + dv)), keys of a row first. */
static size_t keys_width(const struct kn_attn *attn)
{
    return attn->kv_heads * attn->d;
}

static size_t width(const struct kn_attn *attn)
{
    return keys_width(attn) + attn->kv_heads * attn->dv;
}

static size_t rows(const struct kn_attn *attn)
{
    return attn->batch * attn->seq;
}

static void finish(struct tr_rank *rank, enum way way)
{
    struct tr_link *link = rank->comms.link[TR_LINK_CP];
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_CP);
    struct tr_op op = tr_op_begin(TR_OP_SEND_RECV, &rank->comms.cp);

    if (link)
        tr_link_wait(link, rank->ring_linked[way / 2]);
    else
        tr_wait(&rank->comms.progress, op, rank->ring_req + way, 2);
    tr_phase(&rank->clock, was);
}

/* Send SEND to the next rank, receive RECV from the one before. */
static void start(struct tr_rank *rank, enum way way, const void *send, void *recv, size_t bytes)
{
    struct tr_group *cp = &rank->comms.cp;
    int next = (cp->rank + 1) % cp->size, prev = (cp->rank + cp->size - 1) % cp->size,
        tag = TR_TAG_RING + way / 2;
    MPI_Request *req = rank->ring_req + way;
    struct tr_link *link = rank->comms.link[TR_LINK_CP];

    assert(req[0] == MPI_REQUEST_NULL && req[1] == MPI_REQUEST_NULL);
    if (link) {
        tr_link_begin(link);
        tr_link_send(link, send, bytes, next);
        tr_link_recv(link, recv, bytes, prev);
        rank->ring_linked[way / 2] = tr_link_end(link);
    } else {
        tr_isend(&req[0], cp, send, bytes, next, tag);
        tr_irecv(&req[1], cp, recv, bytes, prev, tag);
    }
    if (rank->ring_waits)
        finish(rank, way);
}

static void pass_on(struct tr_rank *rank, const struct kn_attn *attn, int step)
{
    start(rank, KV, rank->work.ring_kv[step % PL_RING_KVS],
          rank->work.ring_kv[(step + 1) % PL_RING_KVS],
          rows(attn) * width(attn) * kn_type_size(attn->type));
}

void tr_ring_ahead(struct tr_rank *rank, const struct kn_attn *attn)
{
    size_t keys = keys_width(attn), all = width(attn);

    kn_convert_rows(rank->pool, attn->type, rank->work.ring_kv[0], all, attn->type, attn->k,
                    attn->ldk, rows(attn), keys);
    kn_convert_rows(rank->pool, attn->type, at(attn->type, rank->work.ring_kv[0], keys), all,
                    attn->type, attn->v, attn->ldv, rows(attn), all - keys);
    pass_on(rank, attn, 0);
}

/* Wait for the keys and values of step STEP, and send them on. */
static void receive(struct tr_rank *rank, const struct kn_attn *attn, int step)
{
    finish(rank, KV);
    if (step + 1 < rank->comms.cp.size)
        pass_on(rank, attn, step);
}

/* Some queries that see something of step STEP, and what: those from `skip` on of a sample, of its
 * keys those from `skip_k` on. */
struct meeting {
    struct kn_attn a;
    struct kn_attn_part part;
    size_t skip, skip_k;
};

/* One meeting is all of a step; if it is cut, or with a window or documents, each chunk of queries
 * meets each of keys. */
enum { CHUNKS = 2, MEETINGS = CHUNKS * CHUNKS };

static struct meeting whole_meeting(const struct tr_rank *rank, const struct kn_attn *attn,
                                    int step)
{
    struct meeting m = {.a = *attn,
                        .part = {.keys = attn->seq,
                                 .q_rows = attn->seq,
                                 .k_rows = attn->seq,
                                 .causal = step == 0,
                                 .merge = step > 0}};
    size_t chunk = attn->seq / 2;
    char *kv = rank->work.ring_kv[step % PL_RING_KVS];

    if (step == 0)
        return m;
    m.a.k = kv;
    m.a.v = at(attn->type, kv, keys_width(attn));
    m.a.ldk = m.a.ldv = width(attn);
    if (step <= rank->comms.cp.rank) {
        m.part.keys = chunk;
    } else {
        m.skip = m.a.seq = chunk;
        m.a.q = at(attn->type, attn->q, m.skip * attn->ldq);
    }
    return m;
}

/* Of rank RANK of SIZE: the number of its chunk CHUNK in the sequence. */
static size_t chunk_number(int rank, int size, size_t chunk)
{
    return (size_t)(chunk == 0 ? rank : 2 * size - 1 - rank);
}

/* A window or documents keep each query from meeting a key at least DISTANCE before its chunk of
 * queries, which begins at token SKIP here: of a later query neither reaches farther. */
static bool too_far(const struct kn_attn *attn, size_t skip, size_t distance)
{
    if (attn->window > 0 && distance >= attn->window)
        return true;
    for (size_t b = 0; attn->age && b < attn->batch; b++)
        if (distance <= (size_t)attn->age[b * attn->seq + skip])
            return false;
    return attn->age != NULL;
}

/* Queries of chunk Q against keys of chunk K, where window and documents let them meet. */
static bool chunk_meeting(struct meeting *ret, const struct tr_rank *rank,
                          const struct kn_attn *attn, int step, size_t q, size_t k)
{
    const struct tr_group *cp = &rank->comms.cp;
    size_t chunk = attn->seq / CHUNKS, lead;
    size_t mine = chunk_number(cp->rank, cp->size, q),
           theirs = chunk_number((cp->rank + cp->size - step) % cp->size, cp->size, k);
    struct meeting m = {.a = *attn, .skip = q * chunk, .skip_k = k * chunk};
    const char *kv = rank->work.ring_kv[step % PL_RING_KVS];

    if (theirs > mine)
        return false;
    lead = (mine - theirs) * chunk;
    if (lead > 0 &&
        too_far(attn, m.skip, lead - chunk + 1)) /* from the first query to the last key */
        return false;
    if (step > 0) {
        m.a.k = kv;
        m.a.v = at(attn->type, kv, keys_width(attn));
        m.a.ldk = m.a.ldv = width(attn);
    }
    m.a.seq = chunk;
    if (attn->age)
        m.a.age = attn->age + m.skip;
    m.a.q = at(attn->type, m.a.q, m.skip * m.a.ldq);
    m.a.k = at(attn->type, m.a.k, m.skip_k * m.a.ldk);
    m.a.v = at(attn->type, m.a.v, m.skip_k * m.a.ldv);
    m.part = (struct kn_attn_part){.keys = chunk,
                                   .q_rows = attn->seq,
                                   .k_rows = attn->seq,
                                   .lead = lead,
                                   .causal = lead == 0,
                                   .merge = step > 0 || lead > 0};
    *ret = m;
    return true;
}

/* The meetings of step STEP; returns how many. The first that a query has is with its own chunk. */
static int meetings_of(struct meeting *ret, const struct tr_rank *rank, const struct kn_attn *attn,
                       int step, bool cut)
{
    int n = 0;

    if (!cut && attn->window == 0 && !attn->age) {
        ret[0] = whole_meeting(rank, attn, step);
        return 1;
    }
    for (size_t q = 0; q < CHUNKS; q++)
        for (size_t k = CHUNKS; k-- > 0;) /* of the second chunk's keys it sees its own first */
            n += chunk_meeting(&ret[n], rank, attn, step, q, k);
    return n;
}

/* ---- forward ------------------------------------------------------------- */

void tr_ring_fwd(struct tr_rank *rank, const struct kn_attn *attn, void *out, float *lse)
{
    size_t wide = attn->heads * attn->dv;
    float *sum = attn->type == KN_F32 ? out : rank->work.ring_sum;

    tr_ring_ahead(rank, attn);
    for (int step = 0; step < rank->comms.cp.size; step++) {
        struct meeting m[MEETINGS];
        int n = meetings_of(m, rank, attn, step, false);

        if (step > 0)
            receive(rank, attn, step);
        for (int i = 0; i < n; i++)
            kn_attn_part_fwd(rank->pool, &m[i].a, &m[i].part, sum + m[i].skip * wide, wide,
                             lse + m[i].skip);
    }
    if (attn->type != KN_F32)
        kn_convert(rank->pool, attn->type, out, KN_F32, sum, rows(attn) * wide);
}

/* ---- backward ------------------------------------------------------------ */

/* DKV += what the queries of M add to the gradients of its keys and values; theirs are added to DQ
 * (rows, LDDQ). */
static void gradients_of(struct tr_rank *rank, const struct kn_attn *attn,
                         const struct kn_attn_grad *grad, const struct meeting *m, float *dq,
                         size_t lddq, float *dkv)
{
    float *dk = dkv + m->skip_k * width(attn);
    struct kn_attn_grad g = {.o = at(attn->type, grad->o, m->skip * grad->ldo),
                             .d_o = at(attn->type, grad->d_o, m->skip * grad->lddo),
                             .ldo = grad->ldo,
                             .lddo = grad->lddo,
                             .lse = grad->lse + m->skip,
                             .dq = dq + m->skip * lddq,
                             .dk = dk,
                             .dv = dk + keys_width(attn),
                             .lddq = lddq,
                             .lddk = width(attn),
                             .lddv = width(attn)};

    assert(attn->batch * attn->heads * m->a.seq * sizeof(float) <= rank->attn_bytes);
    kn_attn_part_bwd(rank->pool, &m->a, &m->part, &g, rank->work.attn);
}

/* FIRST: of step 0, the first chunk with itself, a quarter of the work. */
enum part { FIRST, REST, WHOLE };

/* DKV = PART of the same for all queries here and the keys and values of STEP; += the REST. */
static void gradients(struct tr_rank *rank, const struct kn_attn *attn,
                      const struct kn_attn_grad *grad, int step, enum part part, float *dq,
                      size_t lddq, float *dkv)
{
    struct meeting m[MEETINGS];
    int n = meetings_of(m, rank, attn, step, part != WHOLE);

    assert(part == WHOLE || (step == 0 && n > 1));
    if (part != REST)
        kn_zero(rank->pool, dkv, rows(attn) * width(attn) * sizeof(*dkv));
    for (int i = part == REST; i < (part == FIRST ? 1 : n); i++)
        gradients_of(rank, attn, grad, &m[i], dq, lddq, dkv);
}

void tr_ring_bwd(struct tr_rank *rank, const struct kn_attn *attn, const struct kn_attn_grad *grad)
{
    size_t count = rows(attn) * width(attn), wide = attn->heads * attn->d, keys = keys_width(attn);
    bool f32 = attn->type == KN_F32, pair = rank->comms.cp.size == 2;
    float *const *dkv = rank->work.ring_dkv, *mine = dkv[PL_RING_DKVS - 1];
    float *dq = f32 ? grad->dq : rank->work.ring_sum, *sum = NULL;
    size_t lddq = f32 ? grad->lddq : wide;

    kn_zero(rank->pool, dq,
            rows(attn) * lddq * sizeof(*dq)); /* with dk and dv, where these lie in its rows */
    if (pair)
        gradients(rank, attn, grad, 0, FIRST, dq, lddq, mine);
    for (int step = 1; step < rank->comms.cp.size; step++) {
        receive(rank, attn, step);
        sum = dkv[(step - 1) % 2];
        gradients(rank, attn, grad, step, WHOLE, dq, lddq, step == 1 ? sum : mine);
        if (step > 1) {
            finish(rank, DKV);
            kn_add(rank->pool, KN_F32, sum, sum, mine, count);
        }
        start(rank, DKV, sum, dkv[step % 2], count * sizeof(*sum));
    }
    gradients(rank, attn, grad, 0, pair ? REST : WHOLE, dq, lddq, mine);
    finish(rank, DKV);
    sum = dkv[(rank->comms.cp.size - 1) % 2];
    kn_add(rank->pool, KN_F32, sum, sum, mine, count);
    kn_convert_rows(rank->pool, attn->type, grad->dk, grad->lddk, KN_F32, sum, width(attn),
                    rows(attn), keys);
    kn_convert_rows(rank->pool, attn->type, grad->dv, grad->lddv, KN_F32, sum + keys, width(attn),
                    rows(attn), width(attn) - keys);
    if (!f32)
        kn_convert_rows(rank->pool, attn->type, grad->dq, grad->lddq, KN_F32, dq, wide, rows(attn),
                        wide);
}
