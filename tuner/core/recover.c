/*
 * After a restart: the database says what there is, the attempt folders and /proc say what lives.
 *
 * Each campaign that is not over comes back to work (revive.c). Each attempt that has not ended is
 * adopted or settled (readopt.c). A campaign that cannot be brought back (its data set is gone,
 * say) is paused with the reason; what runs of it is ended, and its trials are queued again for the
 * day when it is resumed.
 */
#include "tuner/core/campaign.h"
#include "tuner/core/revive.h"
#include "tuner/state/state.h"

static bool has_attempt(const struct db_attempt *at, int count, const char *id)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(at[i].campaign, id))
            return true;
    return false;
}

static int revive_state(struct tn_service *svc, const char *state, const struct db_attempt *at,
                        int nat, bool only_with_attempts, struct err *error)
{
    struct arena a = {0};
    struct db_filter f = {.state = state, .limit = 100000};
    struct db_campaign *c = NULL;
    int n = 0;
    int64_t total;
    int r = db_campaign_list(&c, &n, &total, tn_db(svc), &a, &f, error);

    for (int i = 0; r == 0 && i < n; i++) {
        struct err why = {0};

        if (only_with_attempts && !has_attempt(at, nat, c[i].id))
            continue;
        if (tn_campaign_revive(svc, &c[i], true, &why) < 0)
            tn_campaign_give_up(svc, &c[i], &why);
    }
    arena_done(&a);
    return r;
}

int tn_recover(struct tn_service *svc, struct err *error)
{
    static const char *const over[] = {DB_DONE, DB_CANCELLED, DB_FAILED};
    static const char *const live[] = {DB_RUNNING, DB_PAUSED, DB_VERIFYING};
    struct arena a = {0};
    struct db_attempt *at = NULL;
    int n = 0;
    int r = db_attempt_open_list(&at, &n, tn_db(svc), &a, error);

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(live); i++)
        r = revive_state(svc, live[i], at, n, false, error);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(over); i++)
        r = revive_state(svc, over[i], at, n, true, error);
    for (int i = 0; r == 0 && i < n; i++)
        if (!tn_campaign_reviving(svc, at[i].campaign)) /* else it is taken up then */
            tn_recover_attempt(svc, &at[i]);
    arena_done(&a);
    return r;
}
