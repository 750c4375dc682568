#include "trainer/ckpt_async.h"

#include "base/base.h"
#include "kernels/kernels.h"
#include "trainer/bounce.h"
#include "trainer/ckpt_save.h"
#include "trainer/folder.h"
#include "trainer/stop.h"
#include "trainer/thread.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>

/* Where a save is: the step that it is in, in this turn. */
enum place { MAKE, PUT, PUBLISH, PLACES };

struct flight {
    struct tr_save save;
    uint64_t begun_ns, held_ns, published_ns; /* the first two are moments, too */
    bool made, said;
};

struct tr_ckpt_async {
    const char *dir;
    int keep;
    struct tr_ckpt_what what; /* whose parts are COPY */
    struct kn_pool *pool;     /* of whose memory the run's own parts are */
    struct tr_part *from;     /* (what.count) the run's own, those that this rank saves */
    struct tr_part *copy;     /* (what.count) the same in the room */
    struct tr_bounce bounce;  /* the writer's, its buffer in the room */
    const struct tr_team *team;
    uint64_t number; /* of the next folder */
    bool swept;
    struct flight *flight[PLACES]; /* the writer's while it is busy, else the trainer's */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool over, busy;
    int status; /* of the turns so far: the first error stays */
    struct err error;
};

/* ---- the writer ---------------------------------------------------------- */

static int do_step(struct tr_ckpt_async *async, enum place place, struct err *error)
{
    struct flight *flight = async->flight[place];
    struct tr_save *save = &flight->save;
    int r;

    if (place == MAKE) {
        r = flight->made ? 0 : tr_save_make(save, !async->swept, error);
        flight->made = async->swept = true;
    } else if (place == PUT) {
        r = tr_save_put(save, error);
    } else {
        r = tr_save_publish(save, error);
        flight->published_ns = clock_mono_ns();
    }
    if (r < 0)
        err_wrap(error, "save %s", save->path);
    return r;
}

/* The oldest first: what is nearly there is soon out of the way. */
static int do_turn(struct tr_ckpt_async *async, struct err *error)
{
    int r = 0;

    for (int place = PUBLISH; place >= MAKE && r == 0; place--)
        if (async->flight[place])
            r = do_step(async, (enum place)place, error);
    return r;
}

static void *write_turns(void *arg)
{
    struct tr_ckpt_async *async = arg;

    pthread_mutex_lock(&async->lock);
    for (;;) {
        struct err error = {0};
        int r;

        while (!async->over && !async->busy)
            pthread_cond_wait(&async->changed, &async->lock);
        if (async->over)
            break;
        pthread_mutex_unlock(&async->lock);
        r = do_turn(async, &error);
        pthread_mutex_lock(&async->lock);
        async->status = r;
        async->error = error;
        async->busy = false;
        pthread_cond_broadcast(&async->changed);
    }
    pthread_mutex_unlock(&async->lock);
    return NULL;
}

/* ---- the trainer --------------------------------------------------------- */

static_assert(PL_SNAPSHOT_BOUNCE >= TR_BOUNCE_BYTES + TR_BOUNCE_ALIGN, "the plan has room for it");

/* The parts that this rank saves, and their places in ROOM, behind the writer's buffer. */
static void lay_out(struct tr_ckpt_async *async, const struct tr_ckpt_what *what, char *room,
                    size_t bytes)
{
    size_t at = PL_SNAPSHOT_BOUNCE, n = 0;

    async->bounce.buffer = room + (-(uintptr_t)room & (TR_BOUNCE_ALIGN - 1));
    async->from = mem_alloc(sizeof(*async->from) * (what->count + 1));
    async->copy = mem_alloc(sizeof(*async->copy) * (what->count + 1));
    for (size_t i = 0; i < what->count; i++) {
        const struct tr_part *part = &what->part[i];

        if (!part->save)
            continue;
        async->from[n] = async->copy[n] = *part;
        async->copy[n++].data = room + at;
        at += (size_t)part->count * tr_dtype_bytes(part->dtype);
        assert(at <= bytes);
    }
    (void)bytes;
    async->pool = what->pool;
    async->what = *what;
    async->what.pool = NULL;
    async->what.part = async->copy;
    async->what.count = n;
}

static void release(struct tr_ckpt_async *async)
{
    pthread_mutex_destroy(&async->lock);
    pthread_cond_destroy(&async->changed);
    free(async->from);
    free(async->copy);
    free(async);
}

int tr_ckpt_async_new(struct tr_ckpt_async **ret, const char *dir, int keep,
                      const struct tr_ckpt_what *what, void *room, size_t bytes,
                      const struct tr_team *team, struct err *error)
{
    struct tr_ckpt_async *async = mem_alloc(sizeof(*async));
    int mine, r;

    async->dir = dir;
    async->keep = keep;
    async->team = team;
    async->number = tr_folder_number(team);
    lay_out(async, what, room, bytes);
    pthread_mutex_init(&async->lock, NULL);
    pthread_cond_init(&async->changed, NULL);
    mine = r = tr_thread_start(&async->thread, write_turns, async);
    if (r < 0)
        err_set(error, -EAGAIN, "no thread for asynchronous checkpoints: %s", strerror(-r));
    r = tr_team_agree(team, r < 0 ? -EAGAIN : 0, error);
    if (r < 0 && mine < 0)
        release(async);
    else if (r < 0)
        tr_ckpt_async_free(async);
    else
        *ret = async;
    return r;
}

static struct flight *flight_free(struct flight *flight)
{
    if (flight)
        tr_save_done(&flight->save);
    free(flight);
    return NULL;
}

struct tr_ckpt_async *tr_ckpt_async_free(struct tr_ckpt_async *async)
{
    if (!async)
        return NULL;
    pthread_mutex_lock(&async->lock);
    async->over = true;
    pthread_cond_broadcast(&async->changed);
    pthread_mutex_unlock(&async->lock);
    pthread_join(async->thread, NULL);
    for (int place = 0; place < PLACES; place++)
        flight_free(async->flight[place]);
    release(async);
    return NULL;
}

enum tr_writer tr_ckpt_async_writer(struct tr_ckpt_async *async)
{
    enum tr_writer is;

    pthread_mutex_lock(&async->lock);
    is = async->busy ? TR_WRITER_BUSY : async->status < 0 ? TR_WRITER_FAILED : TR_WRITER_IDLE;
    pthread_mutex_unlock(&async->lock);
    return is;
}

/* In pieces, since a stop may have a deadline. */
static void wait_idle(struct tr_ckpt_async *async)
{
    enum { PIECE_NS = 50000000 };

    pthread_mutex_lock(&async->lock);
    while (async->busy) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PIECE_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&async->changed, &async->lock, &until) == ETIMEDOUT)
            tr_stop_check();
    }
    pthread_mutex_unlock(&async->lock);
}

int tr_ckpt_async_settle(struct tr_ckpt_async *async, struct err *error)
{
    struct err own = {0};

    error = error ? error : &own;
    wait_idle(async);
    if (async->status < 0)
        *error = async->error;
    return tr_team_agree(async->team, async->status, error);
}

bool tr_ckpt_async_flying(const struct tr_ckpt_async *async)
{
    return async->flight[PUT] || async->flight[PUBLISH];
}

bool tr_ckpt_async_made(const struct tr_ckpt_async *async, int step)
{
    return async->flight[MAKE] && async->flight[MAKE]->save.state.step == step;
}

static void take_copy(struct tr_ckpt_async *async, struct flight *flight,
                      const struct tr_ckpt_state *state, uint64_t held_ns)
{
    flight->save.state = *state;
    for (size_t i = 0; i < async->what.count; i++)
        kn_copy(async->pool, async->copy[i].data, async->from[i].data,
                (size_t)async->copy[i].count * tr_dtype_bytes(async->copy[i].dtype));
    kn_wait(async->pool);
    flight->begun_ns = held_ns;
    flight->held_ns = clock_mono_ns();
}

static struct flight *flight_new(struct tr_ckpt_async *async, int step)
{
    struct flight *flight = mem_alloc(sizeof(*flight));

    tr_save_init(&flight->save, async->dir, async->keep, &async->what, step, async->number++,
                 async->team);
    flight->save.bounce = &async->bounce;
    return flight;
}

void tr_ckpt_async_turn(struct tr_ckpt_async *async, const struct tr_ckpt_state *state,
                        uint64_t held_ns, int next)
{
    struct flight **flight = async->flight;

    assert(tr_ckpt_async_writer(async) == TR_WRITER_IDLE);
    flight_free(flight[PUBLISH]);
    flight[PUBLISH] = TAKE(flight[PUT]);
    if (state) {
        assert(tr_ckpt_async_made(async, state->step));
        flight[PUT] = TAKE(flight[MAKE]);
        take_copy(async, flight[PUT], state, held_ns);
    }
    if (next > 0) {
        assert(!flight[MAKE]);
        flight[MAKE] = flight_new(async, next);
    }
    pthread_mutex_lock(&async->lock);
    async->busy = next > 0 || tr_ckpt_async_flying(async);
    pthread_cond_broadcast(&async->changed);
    pthread_mutex_unlock(&async->lock);
}

bool tr_ckpt_async_done(struct tr_ckpt_done *ret, struct tr_ckpt_async *async)
{
    struct flight *flight = async->flight[PUBLISH];

    if (tr_ckpt_async_writer(async) != TR_WRITER_IDLE || !flight || flight->said)
        return false;
    flight->said = true;
    *ret = (struct tr_ckpt_done){
        .step = flight->save.state.step,
        .path = flight->save.path,
        .bytes = tr_save_bytes(&flight->save),
        .ms = (double)(flight->published_ns - flight->begun_ns) * 1e-6,
        .held_ms = (double)(flight->held_ns - flight->begun_ns) * 1e-6,
    };
    return true;
}
