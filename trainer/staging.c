#include "trainer/staging.h"

#include "base/base.h"
#include "kernels/kernels.h"

#include <assert.h>

enum { HEAD = 64, LEAST = 1 << 16 };

/* The head of a buffer, which begins HEAD bytes after it. */
struct tr_staged {
    struct tr_staged *next;
    size_t room; /* bytes of the buffer */
    MPI_Request req;
    void *to; /* where its bytes belong; NULL: it is a message that is sent */
    size_t bytes;
    bool marked;
};

_Static_assert(sizeof(struct tr_staged) <= HEAD, "the head of a buffer has room");

void tr_staging_done(struct tr_staging *staging)
{
    assert(!staging->flying);
    while (staging->idle) {
        struct tr_staged *s = staging->idle;

        staging->idle = s->next;
        kn_free(s, HEAD + s->room);
    }
}

/* The smallest idle buffer that has room, or NULL. */
static struct tr_staged *take_idle(struct tr_staging *staging, size_t bytes)
{
    struct tr_staged **best = NULL, *s;

    for (struct tr_staged **at = &staging->idle; *at; at = &(*at)->next)
        if ((*at)->room >= bytes && (!best || (*at)->room < (*best)->room))
            best = at;
    if (!best)
        return NULL;
    s = *best;
    *best = s->next;
    return s;
}

static struct tr_staged *make(size_t bytes)
{
    size_t room = LEAST;
    struct tr_staged *s;

    while (room < bytes)
        room *= 2;
    s = kn_alloc(HEAD + room);
    if (s)
        s->room = room;
    return s;
}

static struct tr_staged *take(void **ret_buffer, struct tr_staging *staging, void *to, size_t bytes)
{
    struct tr_staged *s = take_idle(staging, bytes);

    if (!s && !(s = make(bytes)))
        return NULL;
    s->req = MPI_REQUEST_NULL;
    s->to = to;
    s->bytes = bytes;
    s->marked = false;
    s->next = staging->flying;
    staging->flying = s;
    *ret_buffer = (char *)s + HEAD;
    return s;
}

struct tr_staged *tr_stage_send(void **ret_buffer, struct tr_staging *staging, struct kn_pool *pool,
                                const void *from, size_t bytes)
{
    struct tr_staged *s = take(ret_buffer, staging, NULL, bytes);

    if (s)
        kn_copy(pool, *ret_buffer, from, bytes);
    return s;
}

struct tr_staged *tr_stage_receive(void **ret_buffer, struct tr_staging *staging, void *to,
                                   size_t bytes)
{
    assert(tr_staging_has(staging, to));
    return take(ret_buffer, staging, to, bytes);
}

void tr_staged_as(struct tr_staged *staged, MPI_Request req)
{
    staged->req = req;
}

/* By its handle: the variable that holds it may be another one by now. MPI gives several messages
 * one handle only if all of them are complete. */
void tr_staging_mark(struct tr_staging *staging, const MPI_Request *req, int count)
{
    for (struct tr_staged *s = staging->flying; s; s = s->next) {
        s->marked = false;
        for (int i = 0; i < count && !s->marked; i++)
            s->marked = req[i] != MPI_REQUEST_NULL && req[i] == s->req;
    }
}

void tr_staging_land(struct tr_staging *staging, struct kn_pool *pool)
{
    struct tr_staged *landed = NULL;
    bool copied = false;

    for (struct tr_staged **at = &staging->flying, *s; (s = *at);) {
        if (!s->marked) {
            at = &s->next;
            continue;
        }
        if (s->to)
            kn_copy(pool, s->to, (const char *)s + HEAD, s->bytes);
        copied |= s->to != NULL;
        *at = s->next;
        s->next = landed;
        landed = s;
    }
    if (copied)
        kn_wait(pool);
    while (landed) {
        struct tr_staged *s = landed;

        landed = s->next;
        s->next = staging->idle;
        staging->idle = s;
    }
}
