/*
 * The states of a trial and the outcomes of an attempt, as rows. Included by db/db.h.
 */
#ifndef DB_STATES_H
#define DB_STATES_H

#include <stdbool.h>

/* In the order of states.def, which says what the columns mean. */
enum db_state {
#define STATE(NAME, ...) DB_STATE_##NAME,
#include "db/states.def"
    DB_STATES
};

enum db_life { DB_LIVE, DB_GOOD, DB_BOUND, DB_FAILURE, DB_ENDED, DB_ATTEMPT };
enum db_pauses { DB_NEVER, DB_AT_ONCE, DB_IF_ALL };

struct db_state_row {
    const char *name;
    enum db_life life;
    int tries;
    enum db_pauses pauses;
    int code;
    bool reported;
    const char *tone;
};

extern const struct db_state_row db_states[DB_STATES];

/* The row called NAME; -1 if there is none, or NAME is NULL. */
int db_state_find(const char *name);

/* Is STATE final; is it one in which a trial waits or runs? False for an unknown state. */
bool db_trial_final(const char *state);
bool db_trial_live(const char *state);

/* Names of the rows that are states of a trial, and of those that a worker may report, in the
 * order of the rows, NULL at the end. Return their number. */
int db_trial_state_names(const char *ret[DB_STATES + 1]);
int db_reported_names(const char *ret[DB_STATES + 1]);

#endif
