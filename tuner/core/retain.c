/*
 * How much is kept: campaigns that ended long ago go (--retain), and files of attempts go when all
 * of them take more than their share of the disk (--quota).
 *
 * A campaign that is kept too long is deleted as by a request. The quota is about files only
 * (logs, events, timelines): results are rows, which are small, and stay. Those of the campaign
 * that ended first go first; where what is left belongs to campaigns that have not ended, no
 * further trial is started.
 *
 * Nothing is removed on the loop: a folder is renamed into trash/, which is emptied in libuv's
 * pool, and at the start of the daemon for one that was killed meanwhile. Folders are measured
 * there, too; a round of that takes 1 % of the time at most.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>

#include "tuner/core/campaign.h"
#include "tuner/core/keep.h"
#include "tuner/core/revive.h"
#include "tuner/core/work.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

enum { ROUND_MS = 5000, AT_A_TIME = 1000, SHARE = 100 };

/* ---- age ----------------------------------------------------------------- */

static void drop_old(struct tn_service *svc)
{
    struct tn_work *work = tn_work(svc);
    const struct tn_config *settings = tn_settings(svc);
    int64_t before = clock_wall_ms() - (int64_t)(settings->retain_days * 86400e3);
    struct arena a = {0};
    const char **ids = NULL;
    struct err e = {0};
    int n = 0;

    /* One a round, so that a thousand of them do not hold the loop up. */
    if (db_campaign_ended(&ids, &n, tn_db(svc), &a, before, 1, &e) == 0 && n == 1) {
        if (tn_campaign_delete(svc, ids[0], &e) == 0) {
            tn_log_id(LOG_INFO, svc, ids[0], " ended more than %g days ago and is removed",
                      settings->retain_days);
            work->retain->removed++;
            work->retain->next = 0;
        } else if (e.code != -EBUSY && e.code != -EAGAIN) {
            tn_log_id(LOG_WARN, svc, ids[0], " cannot be removed: %s", e.text);
        }
    }
    arena_done(&a);
}

/* ---- quota --------------------------------------------------------------- */

struct measuring {
    uv_work_t work;
    struct tn_service *svc;
    char *folder; /* campaigns/ */
    int64_t used;
    uint64_t took_ms;
    const char **ids; /* that have ended, the first to end first; in ARENA */
    int64_t *bytes;
    int count;
    struct arena arena;
};

static void measure_work(uv_work_t *work)
{
    struct measuring *m = work->data;
    uint64_t from = tn_now_ms();

    m->used = file_tree_bytes(m->folder);
    for (int i = 0; i < m->count; i++) {
        AUTO_FREE char *path = mem_printf("%s/%s", m->folder, m->ids[i]);

        m->bytes[i] = file_tree_bytes(path);
    }
    m->took_ms = tn_now_ms() - from;
}

static void drop_files(struct measuring *measuring, int index)
{
    AUTO_FREE char *path = mem_printf("%s/%s", measuring->folder, measuring->ids[index]);
    struct tn_campaign *c = tn_campaign_find(measuring->svc, measuring->ids[index]);
    struct err e = {0};

    if ((c && c->running > 0) || tn_campaign_reviving(measuring->svc, measuring->ids[index]))
        return;
    if (tn_trash(measuring->svc, path, &e) < 0) {
        log_warn("quota: %s", e.text);
        return;
    }
    tn_log_id(LOG_INFO, measuring->svc, measuring->ids[index],
              ": files removed for the quota bytes=%lld", (long long)measuring->bytes[index]);
    measuring->used -= measuring->bytes[index];
    tn_work(measuring->svc)->retain->dropped++;
}

static void measure_done(uv_work_t *work, int status)
{
    struct measuring *m = work->data;
    struct tn_service *svc = m->svc;
    struct tn_retain *k = tn_work(svc)->retain;
    int64_t quota = (int64_t)tn_settings(svc)->quota;
    bool full;

    assert(k->at_work && tn_phase(svc)->works > 0);
    (void)status;
    for (int i = 0; !tn_phase(svc)->closing && i < m->count && m->used > quota; i++)
        if (m->bytes[i] > 0)
            drop_files(m, i);
    full = m->used > quota;
    if (full && !k->full)
        log_warn("quota: files of campaigns that have not ended take %lld of %lld bytes",
                 (long long)m->used, (long long)quota);
    k->full = full;
    k->used = m->used;
    k->at_work = false;
    k->next = tn_now_ms() + ROUND_MS + m->took_ms * SHARE;
    tn_phase(svc)->works--;
    arena_done(&m->arena);
    free(m->folder);
    free(m->bytes);
    free(m);
}

static void measure(struct tn_service *svc)
{
    struct measuring *m = mem_alloc(sizeof(*m));
    struct err e = {0};

    m->svc = svc;
    m->work.data = m;
    m->folder = mem_printf("%s/campaigns", tn_data_dir(svc));
    if (db_campaign_ended(&m->ids, &m->count, tn_db(svc), &m->arena, INT64_MAX, AT_A_TIME, &e) < 0)
        m->count = 0;
    m->bytes = mem_alloc(sizeof(*m->bytes) * (size_t)(m->count + 1));
    tn_work(svc)->retain->at_work = true;
    tn_phase(svc)->works++;
    uv_queue_work(tn_loop(svc), &m->work, measure_work, measure_done);
}

/* ---- the clock ----------------------------------------------------------- */

void tn_retain_tick(struct tn_service *svc)
{
    const struct tn_config *settings = tn_settings(svc);
    struct tn_retain *k = tn_work(svc)->retain;

    if (tn_phase(svc)->stopping || k->at_work || tn_now_ms() < k->next)
        return;
    k->next = tn_now_ms() + ROUND_MS;
    if (settings->retain_days > 0)
        drop_old(svc);
    if (settings->quota > 0)
        measure(svc);
}
