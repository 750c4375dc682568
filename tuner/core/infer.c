/*
 * What the search makes of trials of smaller problems for the full size: its posterior, which every
 * further trial moves. It is stored with the trials, so that answers need no search, and stored
 * again when it has moved by MOVED. After a restart all of it is stored anew.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "tuner/core/engine.h"
#include "tuner/core/campaign_log.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"

static const double MOVED = 0.01; /* of tokens/s or an end of the interval, relative */

static bool moved(double from, double to)
{
    return !(fabs(to - from) <= MOVED * from);
}

static bool is_news(const struct se_predicted *said, const struct se_predicted *now)
{
    return moved(said->tokens_per_s, now->tokens_per_s) || moved(said->lo, now->lo) ||
           moved(said->hi, now->hi);
}

static void make_room(struct tn_engine *en)
{
    if (en->said_cap > en->ids)
        return;
    en->said = mem_realloc(en->said, (size_t)en->cap * sizeof(en->said[0]));
    memset(en->said + en->said_cap, 0, (size_t)(en->cap - en->said_cap) * sizeof(en->said[0]));
    en->said_cap = en->cap;
}

struct tn_inferred *tn_infer(int *ret_count, struct tn_engine *en)
{
    struct tn_inferred *list = NULL;
    int count = 0, cap = 0;

    make_room(en);
    for (int id = 1; en->spec->se.nfidelities > 0 && id <= en->ids; id++) {
        struct se_predicted now;

        assert(id < en->said_cap);
        if (!se_inferred(&now, en->search, id) || !is_news(&en->said[id], &now))
            continue;
        en->said[id] = now;
        MEM_GROW(list, count, cap);
        list[count++] = (struct tn_inferred){en->n_of[id], now};
    }
    *ret_count = count;
    return list;
}

struct storing {
    const char *campaign;
    const struct tn_inferred *list;
    int count;
};

static int store_job(struct db *writer, void *arg, struct err *error)
{
    const struct storing *s = arg;
    int r = 0;

    for (int i = 0; r == 0 && i < s->count; i++) {
        const struct se_predicted *p = &s->list[i].full;
        AUTO_JSON *v =
            json_pack("{s:o, s:o, s:o, s:o}", "tokens_per_s", tn_number(p->tokens_per_s), "lo",
                      tn_number(p->lo), "hi", tn_number(p->hi), "p_fits", tn_number(p->p_fits));
        AUTO_FREE char *text = jx_dump(v);

        r = db_trial_infer(writer, s->campaign, s->list[i].n, text, error);
        if (r == 0)
            r = tn_event_trial(writer, s->campaign, s->list[i].n, error);
    }
    return r;
}

void tn_infer_store(struct tn_service *svc, const char *campaign, const struct tn_inferred *list,
                    int count)
{
    struct storing s = {campaign, list, count};
    struct err e = {0};

    if (count > 0 && tn_write(svc, store_job, &s, &e) < 0 && e.code != -ESTALE)
        tn_log_id(LOG_WARN, svc, campaign, ": inferences from smaller trials were not stored: %s",
                  e.text);
}
