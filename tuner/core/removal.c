/*
 * Deleted campaigns leave the database piece by piece (db/removal.c), and so do old events.
 *
 * The writer's thread works, and the loop asks for the next piece a moment after the one before, so
 * that what others write goes between them and the WAL is checkpointed meanwhile. Whatever a killed
 * daemon left is taken up at the start.
 */
#include <errno.h>
#include <stdatomic.h>

#include "tuner/core/keep.h"
#include "tuner/core/work.h"
#include "tuner/state/state.h"

enum { PAUSE_MS = 5, RETRY_MS = 1000, KEEP_EVENTS = 200000 };

struct tn_removal {
    uv_timer_t timer;
    /* Written by the writer's thread while a piece is there. */
    atomic_bool posted;
    atomic_int result; /* of the last piece: negative, 0 nothing is left, 1 there may be more */
};

static int piece_job(struct db *writer, void *arg, struct err *error)
{
    struct tn_removal *m = arg;
    int r = db_removal_piece(writer, error);

    if (r == 0)
        r = db_event_trim(writer, KEEP_EVENTS, error);
    atomic_store(&m->result, r);
    return r < 0 ? r : 0;
}

static void piece_done(void *arg)
{
    struct tn_removal *m = arg;

    atomic_store(&m->posted, false);
}

static void on_timer(uv_timer_t *timer)
{
    struct tn_service *svc = timer->data;
    struct tn_removal *m = tn_work(svc)->removal;
    int result = atomic_load(&m->result);

    if (atomic_load(&m->posted))
        return;
    if (result == 0) {
        uv_timer_stop(timer);
        return;
    }
    uv_timer_set_repeat(timer, result < 0 ? RETRY_MS : PAUSE_MS);
    atomic_store(&m->result, -EIO); /* stays where not even a transaction can begin */
    atomic_store(&m->posted, true);
    db_writer_post(tn_writer(svc), piece_job, m, piece_done);
}

void tn_removal_go(struct tn_service *svc)
{
    struct tn_work *work = tn_work(svc);

    atomic_store(&work->removal->result, 1);
    uv_timer_start(&work->removal->timer, on_timer, PAUSE_MS, PAUSE_MS);
}

int tn_removal_open(struct tn_service *svc, struct err *error)
{
    struct tn_work *work = tn_work(svc);
    struct arena a = {0};
    const char **ids = NULL;
    int n = 0, r;

    work->removal = mem_alloc(sizeof(*work->removal));
    uv_timer_init(tn_loop(svc), &work->removal->timer);
    work->removal->timer.data = svc;
    r = db_removal_list(&ids, &n, tn_db(svc), &a, error);
    for (int i = 0; r == 0 && i < n; i++) { /* killed before its folder went */
        AUTO_FREE char *folder = mem_printf("%s/campaigns/%s", tn_data_dir(svc), ids[i]);

        r = tn_trash(svc, folder, error);
    }
    if (r == 0 && n > 0)
        tn_removal_go(svc);
    arena_done(&a);
    return r;
}

void tn_removal_close(struct tn_service *svc)
{
    struct tn_work *work = tn_work(svc);

    if (work->removal)
        uv_close((uv_handle_t *)&work->removal->timer, NULL);
}
