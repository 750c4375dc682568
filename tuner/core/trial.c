/* Trials, their steps and files, for the handlers. */
#include <errno.h>

#include "tuner/output/observe.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

int tn_trial_get(json_t **ret, struct tn_service *svc, const char *id, int64_t trial,
                 struct err *error)
{
    struct arena a = {0};
    struct db_trial t;
    bool simulated;
    int r = db_trial_get(&t, tn_db(svc), &a, id, trial, error);

    if (r == 0)
        r = tn_simulated(&simulated, tn_db(svc), id, error);
    if (r == 0)
        *ret = tn_trial_view(&t, simulated);
    arena_done(&a);
    return r;
}

/* An unknown campaign is an error, an empty one is not. */
static int known(struct tn_service *svc, const char *id, struct err *error)
{
    int64_t rev;

    return db_campaign_rev(&rev, tn_db(svc), id, error);
}

int tn_trial_list(struct str *ret_items, const char **ret_next, int64_t *ret_total,
                  struct tn_service *svc, const char *id, struct arena *arena,
                  const struct db_filter *filter, struct err *error)
{
    struct db_filter more = *filter; /* one row more, to know whether there is one */
    struct db_trial *t = NULL;
    bool simulated;
    int n = 0;
    int r = known(svc, id, error);

    more.limit++;
    if (r == 0)
        r = tn_simulated(&simulated, tn_db(svc), id, error);
    if (r == 0)
        r = db_trial_list(&t, &n, ret_total, tn_db(svc), arena, id, &more, error);
    if (r < 0)
        return r;
    *ret_next = n > filter->limit ? db_trial_position(arena, filter, &t[--n - 1]) : NULL;
    for (int i = 0; i < n; i++) {
        str_addc(ret_items, i ? ',' : '[');
        tn_trial_text(ret_items, &t[i], simulated);
    }
    str_add(ret_items, n ? "]" : "[]");
    return 0;
}

static int known_trial(struct tn_service *svc, struct db_trial *row, struct arena *arena,
                       const char *id, int64_t trial, struct err *error)
{
    int r = known(svc, id, error);

    return r < 0 ? r : db_trial_get(row, tn_db(svc), arena, id, trial, error);
}

int tn_step_list(json_t **ret_items, int64_t *ret_total, struct tn_service *svc, const char *id,
                 int64_t trial, int64_t offset, int64_t limit, struct err *error)
{
    struct arena a = {0};
    struct db_trial t;
    struct db_step *s = NULL;
    bool simulated;
    int count = 0;
    int r = known_trial(svc, &t, &a, id, trial, error);

    if (r == 0)
        r = tn_simulated(&simulated, tn_db(svc), id, error);
    if (r == 0)
        r = db_step_list(&s, &count, ret_total, tn_db(svc), &a, id, trial, offset, limit, error);
    if (r == 0) {
        *ret_items = json_array();
        for (int i = 0; i < count; i++) {
            json_t *v = json_loads(s[i].data, 0, NULL);

            if (!v)
                continue;
            json_object_set_new(v, "simulated", json_boolean(simulated));
            json_array_append_new(*ret_items, v);
        }
    }
    arena_done(&a);
    return r;
}

int tn_trial_file(char **ret, struct tn_service *svc, const char *id, int64_t trial,
                  enum tn_log which, struct err *error)
{
    static const char *const names[] = {"stdout", "stderr", "events", TN_TIMELINE_FILE};
    struct arena a = {0};
    struct db_trial t;
    int r = known_trial(svc, &t, &a, id, trial, error);

    if (r == 0 && t.attempts < 1)
        r = err_set(error, -ENOENT, "trial %lld has not been started", (long long)trial);
    if (r == 0) /* ID is one of the database: no path leads out of the data directory */
        *ret = mem_printf("%s/campaigns/%s/trials/%lld/%lld/%s", tn_data_dir(svc), id,
                          (long long)trial, (long long)t.attempts, names[which]);
    arena_done(&a);
    return r;
}
