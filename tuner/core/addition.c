/* A new trial of a campaign: stored, and put into the queue. */
#include <math.h>

#include "search/search.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"

struct addition {
    struct db_trial row;
    int64_t n;
};

static int add_job(struct db *writer, void *arg, struct err *error)
{
    struct addition *ad = arg;
    int r = db_trial_add(&ad->n, writer, &ad->row, error);

    if (r == 0)
        r = tn_event_trial(writer, ad->row.campaign, ad->n, error);
    return r;
}

int tn_trial_add_chosen(int64_t *ret_n, struct tn_campaign *campaign, const struct se_trial *st,
                        const struct pl_reduced *run, int64_t repeat_of, const char *kind,
                        struct err *error)
{
    AUTO_JSON *layout = se_layout_json(&campaign->engine->spec->se, &st->layout);
    AUTO_JSON *run_json = run ? tn_run_json(run) : NULL;
    AUTO_FREE char *json = jx_dump(layout), *run_text = run ? jx_dump(run_json) : NULL;
    char text[160];
    struct addition ad;
    struct db_trial *t = &ad.row;
    int r;

    db_trial_blank(t);
    t->campaign = campaign->id;
    t->kind = kind;
    t->repeat_of = repeat_of;
    t->search_id = st->id > 0 ? st->id : DB_NULL;
    t->layout = json;
    t->layout_text = se_layout_text(text, &campaign->engine->spec->se, &st->layout);
    t->why = st->why;
    if (st->predicted.tokens_per_s > 0)
        t->predicted_tokens_per_s = st->predicted.tokens_per_s;
    if (st->predicted.memory_bytes > 0)
        t->predicted_memory = st->predicted.memory_bytes;
    t->predicted_fits = st->predicted.p_fits;
    t->devices = pl_layout_devices(run ? &run->layout : &st->layout);
    t->fidelity = run ? st->fidelity : DB_NULL;
    t->run = run_text;
    t->created = clock_wall_ms();
    r = tn_write(campaign->svc, add_job, &ad, error);

    if (r < 0)
        return r;
    tn_campaign_enqueue(campaign, tn_trial_new(&ad.row, campaign->engine->spec, &st->layout, run));
    *ret_n = ad.n;
    return 0;
}

int tn_trial_add(int64_t *ret_n, struct tn_campaign *campaign, const struct pl_layout *layout,
                 int64_t repeat_of, const char *kind, const char *why, struct err *error)
{
    struct se_trial st = {.layout = *layout, .predicted = {.p_fits = NAN}};

    snprintf(st.why, sizeof(st.why), "%s", why);
    return tn_trial_add_chosen(ret_n, campaign, &st, NULL, repeat_of, kind, error);
}
