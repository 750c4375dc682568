/* The rows of db/states.def: what every row has to hold, and questions about them. */
#include "tests/unit/unit.h"

#include "db/db.h"

static void every_row_is_found_by_its_name(void **state)
{
    (void)state;
    for (int i = 0; i < DB_STATES; i++)
        assert_int_equal(db_state_find(db_states[i].name), i);
    assert_int_equal(db_state_find("explosion"), -1);
    assert_int_equal(db_state_find(""), -1);
    assert_int_equal(db_state_find(NULL), -1);
}

static void a_state_of_a_trial_is_live_or_final(void **state)
{
    const char *names[DB_STATES + 1];
    int n = db_trial_state_names(names), live = 0, final = 0;

    (void)state;
    for (int i = 0; i < n; i++) {
        live += db_trial_live(names[i]);
        final += db_trial_final(names[i]);
        assert_int_not_equal(db_trial_live(names[i]), db_trial_final(names[i]));
    }
    assert_int_equal(live, 3); /* those of the transitions in db/trial.c */
    assert_int_equal(final, n - 3);
    assert_null(names[n]);
    assert_false(db_trial_final("explosion") || db_trial_live("explosion"));
}

static void an_outcome_that_is_no_state_settles_nothing(void **state)
{
    const char *names[DB_STATES + 1];
    int n = db_trial_state_names(names);

    (void)state;
    for (int i = 0; i < DB_STATES; i++) {
        const struct db_state_row *row = &db_states[i];
        bool listed = false;

        for (int k = 0; k < n; k++)
            listed |= str_eq(names[k], row->name);
        assert_int_equal(listed, row->life != DB_ATTEMPT);
        assert_int_equal(db_trial_final(row->name), row->life != DB_ATTEMPT && row->tries > 0);
    }
    assert_false(db_trial_final("data"));
    assert_false(db_trial_final("disturbed"));
    assert_true(db_trial_final("pruned"));
}

/* The codes are those of docs/reference/protocol.md, which trainers exit with. */
static void exit_codes_are_those_of_the_protocol(void **state)
{
    static const struct {
        const char *name;
        int code;
    } codes[] = {{"illegal", 65}, {"oom", 66}, {"numeric", 67},
                 {"data", 68},    {"io", 70},  {"node_fail", 71}};
    int with = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        assert_int_equal(db_states[db_state_find(codes[i].name)].code, codes[i].code);
    for (int i = 0; i < DB_STATES; i++)
        with += db_states[i].code != 0;
    assert_int_equal(with, ARRAY_LEN(codes));
}

/* What only the daemon knows, such as its own time limit, is no worker's to say. */
static void a_worker_reports_what_it_can_see(void **state)
{
    const char *names[DB_STATES + 1];
    int n = db_reported_names(names);

    (void)state;
    for (int i = 0; i < n; i++)
        assert_false(str_eq(names[i], "timeout") || str_eq(names[i], "pruned") ||
                     db_trial_live(names[i]));
    assert_int_equal(n, 9);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_row_is_found_by_its_name),
    cmocka_unit_test(a_state_of_a_trial_is_live_or_final),
    cmocka_unit_test(an_outcome_that_is_no_state_settles_nothing),
    cmocka_unit_test(exit_codes_are_those_of_the_protocol),
    cmocka_unit_test(a_worker_reports_what_it_can_see),
};

UNIT_MAIN(tests)
