/*
 * The trash, and whether there is room for another trial's files.
 *
 * A folder that goes is renamed into trash/, which is emptied in libuv's pool, and at the start of
 * the daemon for one that was killed meanwhile.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>

#include "tuner/core/keep.h"
#include "tuner/core/work.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

struct emptying {
    uv_work_t work;
    struct tn_service *svc;
    char *path;
};

static void empty_work(uv_work_t *work)
{
    struct emptying *t = work->data;
    struct err e = {0};

    if (file_remove_tree(t->path, &e) < 0)
        log_warn("%s", e.text);
}

static void empty_done(uv_work_t *work, int status)
{
    struct emptying *t = work->data;

    assert(tn_phase(t->svc)->works > 0);
    (void)status;
    tn_phase(t->svc)->works--;
    free(t->path);
    free(t);
}

static void remove_async(struct tn_service *svc, char *owned_path)
{
    struct emptying *t = mem_alloc(sizeof(*t));

    *t = (struct emptying){.svc = svc, .path = owned_path};
    t->work.data = t;
    tn_phase(svc)->works++;
    uv_queue_work(tn_loop(svc), &t->work, empty_work, empty_done);
}

int tn_trash(struct tn_service *svc, const char *path, struct err *error)
{
    AUTO_FREE char *folder = mem_printf("%s/trash", tn_data_dir(svc));
    char *to = mem_printf("%s/%lld.%u", folder, (long long)clock_wall_ms(),
                          tn_work(svc)->retain->trash_count++);
    int r = file_mkdirs(folder, 0700, error);

    if (r == 0 && rename(path, to) < 0 && errno != ENOENT)
        r = err_set(error, -errno, "remove %s: %s", path, strerror(errno));
    if (r == 0)
        remove_async(svc, TAKE(to));
    free(to);
    return r;
}

/* ---- room ---------------------------------------------------------------- */

void tn_retain_open(struct tn_service *svc)
{
    struct tn_work *work = tn_work(svc);
    AUTO_FREE char *trash = mem_printf("%s/trash", tn_data_dir(svc));

    work->retain = mem_alloc(sizeof(*work->retain));
    work->retain->used = -1;
    if (file_exists(trash))
        remove_async(svc, mem_strdup(trash));
}

int tn_retain_room(const struct tn_service *svc, struct err *error)
{
    struct tn_work *work = tn_work(svc);
    char used[24], quota[24];

    if (!work->retain->full)
        return 0;
    return err_set(error, -EDQUOT,
                   "the disk quota for attempt files is used up (%s of %s): delete campaigns, or "
                   "raise --quota",
                   str_human_bytes(used, (double)work->retain->used),
                   str_human_bytes(quota, (double)tn_settings(svc)->quota));
}

void tn_retain_stats(struct tn_stats *ret, const struct tn_service *svc)
{
    struct tn_work *work = tn_work(svc);

    ret->files_bytes = work->retain->used;
    ret->files_dropped = work->retain->dropped;
    ret->campaigns_removed = work->retain->removed;
}
