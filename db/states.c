/* The states of campaigns; the rows of states.def, and questions about them. */
#include "db/db.h"

#include <string.h>

/* States of a trial. */
static bool is_trials(const struct db_state_row *row)
{
    return row->life != DB_ATTEMPT;
}

static bool is_reported(const struct db_state_row *row)
{
    return row->reported;
}

const char *const db_campaign_states[DB_CAMPAIGN_STATES + 1] = {
    DB_RUNNING, DB_PAUSED, DB_VERIFYING, DB_DONE, DB_CANCELLED, DB_FAILED, NULL};

enum { SEEN = false, REPORTED = true };

const struct db_state_row db_states[DB_STATES] = {
#define STATE(NAME, name, life, tries, pauses, learns, code, report, sign, tone, ...)              \
    {#name, DB_##life, tries, DB_##pauses, code, report, tone},
#include "db/states.def"
};

int db_state_find(const char *name)
{
    for (int i = 0; name && i < DB_STATES; i++)
        if (!strcmp(db_states[i].name, name))
            return i;
    return -1;
}

bool db_trial_live(const char *state)
{
    int found = db_state_find(state);

    return found >= 0 && db_states[found].life == DB_LIVE;
}

bool db_trial_final(const char *state)
{
    int found = db_state_find(state);

    return found >= 0 && is_trials(&db_states[found]) && db_states[found].life != DB_LIVE;
}

static int names_of(const char *ret[DB_STATES + 1], bool (*wanted)(const struct db_state_row *row))
{
    int n = 0;

    for (int i = 0; i < DB_STATES; i++)
        if (wanted(&db_states[i]))
            ret[n++] = db_states[i].name;
    ret[n] = NULL;
    return n;
}

int db_trial_state_names(const char *ret[DB_STATES + 1])
{
    return names_of(ret, is_trials);
}

int db_reported_names(const char *ret[DB_STATES + 1])
{
    return names_of(ret, is_reported);
}
