/* The rows: what must hold between them is held by SQL. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "db/db.h"

struct store {
    char *folder, *path;
    struct db *db;
};

static void open_store(struct store *s, const char *name)
{
    struct err e = {0};

    s->folder = unit_folder(name);
    s->path = mem_printf("%s/partune.db", s->folder);
    if (db_open(&s->db, s->path, DB_WRITE, &e) < 0)
        fail_msg("%s", e.text);
}

static void close_store(struct store *s)
{
    db_close(s->db);
    file_remove_tree(s->folder, NULL);
    free(s->folder);
    free(s->path);
}

static void add_campaign(struct db *db, const char *id)
{
    struct db_campaign c = {.id = id,
                            .name = id,
                            .state = DB_RUNNING,
                            .spec = "{}",
                            .resolved = "{}",
                            .objective = "tokens_per_s",
                            .trainer = "partune",
                            .launcher = "local",
                            .tags = "[\"a\",\"b\"]",
                            .notes = "",
                            .owner = "me",
                            .created = 1000,
                            .started = 1000,
                            .ended = DB_NULL,
                            .budget_trials = DB_NULL,
                            .active_since = 1000,
                            .rev = 1};
    struct err e = {0};

    if (db_campaign_add(db, &c, &e) < 0)
        fail_msg("%s", e.text);
}

static int64_t add_layout(struct db *db, const char *id, const char *kind, int64_t repeat_of,
                          const char *layout)
{
    struct db_trial t = {.campaign = id,
                         .kind = kind,
                         .repeat_of = repeat_of,
                         .search_id = DB_NULL,
                         .layout = layout,
                         .layout_text = "dp2",
                         .predicted_tokens_per_s = NAN,
                         .tokens_per_s = NAN,
                         .created = 1,
                         .started = DB_NULL,
                         .ended = DB_NULL,
                         .fidelity = str_eq(kind, "small") ? 1 : DB_NULL};
    struct err e = {0};
    int64_t n = -1;

    if (db_trial_add(&n, db, &t, &e) < 0)
        fail_msg("%s", e.text);
    return n;
}

static int64_t add_trial(struct db *db, const char *id, const char *kind, int64_t repeat_of)
{
    return add_layout(db, id, kind, repeat_of, "{\"world\":2}");
}

static int settle_energy(struct db *db, const char *id, int64_t n, const char *state, double rate,
                         double tokens_per_joule)
{
    struct db_trial t = {.campaign = id,
                         .n = n,
                         .state = state,
                         .tokens_per_s = rate,
                         .tokens_per_s_se = 1,
                         .tokens_per_s_max = NAN,
                         .mfu = NAN,
                         .memory = NAN,
                         .imbalance = 1.5,
                         .tokens_per_joule = tokens_per_joule,
                         .ended = 5000};
    struct err e;

    return db_trial_settle(db, &t, &e);
}

static int settle(struct db *db, const char *id, int64_t n, const char *state, double rate)
{
    return settle_energy(db, id, n, state, rate, 0.25);
}

static void add_measured(struct db *db, const char *id, double rate)
{
    assert_int_equal(settle(db, id, add_trial(db, id, "search", DB_NULL), "ok", rate), 0);
}

static void a_new_database_has_the_latest_schema(void **state)
{
    struct store s;
    struct err e;

    (void)state;
    open_store(&s, "schema");
    assert_int_equal(db_version(s.db), db_latest_version());
    assert_int_equal(db_check(s.db, &e), 0);
    close_store(&s);
}

static void a_database_of_the_future_is_refused(void **state)
{
    struct store s;
    struct err e = {0};
    struct db *again = NULL;
    sqlite3 *h;

    (void)state;
    open_store(&s, "future");
    s.db = db_close(s.db);
    sqlite3_open(s.path, &h);
    sqlite3_exec(h, "PRAGMA user_version = 999", NULL, NULL, NULL);
    sqlite3_close(h);
    assert_int_equal(db_open(&again, s.path, DB_WRITE, &e), -EPROTO);
    assert_non_null(strstr(e.text, "999"));
    close_store(&s);
}

/* Overwrite a page in the middle: the open must say so, not crash or carry on. */
static void a_damaged_database_is_refused(void **state)
{
    struct store s;
    struct err e = {0};
    struct db *again = NULL;
    FILE *f;

    (void)state;
    open_store(&s, "damaged");
    add_campaign(s.db, "one");
    for (int i = 0; i < 200; i++)
        add_trial(s.db, "one", "search", DB_NULL);
    s.db = db_close(s.db);
    f = fopen(s.path, "r+");
    fseek(f, 4096, SEEK_SET);
    for (int i = 0; i < 40960; i++)
        fputc(0xa5, f);
    fclose(f);
    assert_int_equal(db_open(&again, s.path, DB_WRITE, &e), -EUCLEAN);
    close_store(&s);
}

static void a_file_that_is_no_database_is_refused(void **state)
{
    struct store s;
    struct err e = {0};
    struct db *again = NULL;

    (void)state;
    open_store(&s, "nodb");
    s.db = db_close(s.db);
    assert_int_equal(
        file_write_atomic(s.path, "this is a text, and no database at all", 38, 0600, &e), 0);
    assert_int_equal(db_open(&again, s.path, DB_WRITE, &e), -EUCLEAN);
    close_store(&s);
}

static void trials_are_numbered_from_one_without_gaps(void **state)
{
    struct store s;

    (void)state;
    open_store(&s, "numbers");
    add_campaign(s.db, "one");
    add_campaign(s.db, "two");
    assert_int_equal(add_trial(s.db, "one", "baseline", DB_NULL), 1);
    assert_int_equal(add_trial(s.db, "two", "baseline", DB_NULL), 1);
    assert_int_equal(add_trial(s.db, "one", "search", DB_NULL), 2);
    close_store(&s);
}

static void a_trial_is_settled_once(void **state)
{
    struct store s;
    struct arena a = {0};
    struct db_trial t;
    struct err e;

    (void)state;
    open_store(&s, "once");
    add_campaign(s.db, "one");
    add_trial(s.db, "one", "baseline", DB_NULL);
    assert_int_equal(db_trial_start(s.db, "one", 1, 2000, &e), 0);
    assert_int_equal(db_trial_start(s.db, "one", 1, 2000, &e), -ESTALE);
    assert_int_equal(settle(s.db, "one", 1, "ok", 100), 0);
    assert_int_equal(settle(s.db, "one", 1, "crash", NAN), -ESTALE);
    assert_int_equal(db_trial_get(&t, s.db, &a, "one", 1, &e), 0);
    assert_string_equal(t.state, "ok");
    assert_true(t.seconds == 3.0 && t.tokens_per_s == 100 && t.imbalance == 1.5 &&
                t.tokens_per_joule == 0.25);
    arena_done(&a);
    close_store(&s);
}

/* Every pair of states: only the arrows of the table in db/trial.c are passable. */
static void only_the_arrows_of_the_table_are_passable(void **state)
{
    struct store s;
    struct err e;

    (void)state;
    open_store(&s, "arrows");
    add_campaign(s.db, "one");
    for (int from = 0; from < 4; from++) { /* queued starting running ok */
        static const int allowed[4][4] = { /* start run requeue settle */
                                          {1, 0, 0, 1},
                                          {0, 1, 1, 1},
                                          {0, 0, 1, 1},
                                          {0, 0, 0, 0}};
        for (int to = 0; to < 4; to++) {
            int64_t n = add_trial(s.db, "one", "search", DB_NULL);
            int r;

            if (from > 0)
                assert_int_equal(db_trial_start(s.db, "one", n, 1, &e), 0);
            if (from > 1)
                assert_int_equal(db_trial_run(s.db, "one", n, &e), 0);
            if (from > 2)
                assert_int_equal(settle(s.db, "one", n, "ok", 1), 0);
            r = to == 0   ? db_trial_start(s.db, "one", n, 1, &e)
                : to == 1 ? db_trial_run(s.db, "one", n, &e)
                : to == 2 ? db_trial_requeue(s.db, "one", n, &e)
                          : settle(s.db, "one", n, "crash", NAN);
            assert_int_equal(r, allowed[from][to] ? 0 : -ESTALE);
        }
    }
    close_store(&s);
}

static int64_t counted;
static void count_state(void *ctx, const char *state, int64_t n)
{
    if (!strcmp(state, ctx))
        counted = n;
}

static void counts_by_state_follow_every_change(void **state)
{
    struct store s;
    struct err e;

    (void)state;
    open_store(&s, "counts");
    add_campaign(s.db, "one");
    for (int i = 0; i < 5; i++)
        add_trial(s.db, "one", "search", DB_NULL);
    db_trial_start(s.db, "one", 1, 1, &e);
    settle(s.db, "one", 2, "oom", NAN);
    counted = 0;
    db_campaign_counts(s.db, "one", count_state, (void *)"queued", &e);
    assert_int_equal(counted, 3);
    db_trial_cancel_queued(s.db, "one", 9, &e);
    db_campaign_counts(s.db, "one", count_state, (void *)"cancelled", &e);
    assert_int_equal(counted, 3);
    close_store(&s);
}

static void a_campaign_moves_only_from_the_states_named(void **state)
{
    struct store s;
    struct arena a = {0};
    struct db_campaign c;
    struct err e;

    (void)state;
    open_store(&s, "move");
    add_campaign(s.db, "one");
    assert_int_equal(db_campaign_move(s.db, "one", "paused", DB_RUNNING, NULL, 2000, &e), -ESTALE);
    assert_int_equal(db_campaign_move(s.db, "none", "paused", DB_RUNNING, NULL, 2000, &e), -ENOENT);
    assert_int_equal(db_campaign_move(s.db, "one", "running verifying", DB_PAUSED, "why", 3000, &e),
                     0);
    assert_int_equal(db_campaign_move(s.db, "one", "paused", DB_RUNNING, NULL, 10000, &e), 0);
    assert_int_equal(db_campaign_move(s.db, "one", "running", DB_DONE, "budget", 11000, &e), 0);
    assert_int_equal(db_campaign_get(&c, s.db, &a, "one", &e), 0);
    assert_true(c.active_s == 3.0); /* 2 s, a pause, 1 s */
    assert_int_equal(c.ended, 11000);
    arena_done(&a);
    close_store(&s);
}

static void a_running_campaign_cannot_be_deleted_and_a_deleted_one_leaves_nothing(void **state)
{
    struct store s;
    struct arena arena = {0};
    struct db_trial t;
    struct err e;
    const char **ids = NULL;
    int64_t id, rev;
    int n = 0, pieces = 0, r;
    struct db_attempt at = {.campaign = "one",
                            .n = 1,
                            .attempt = 1,
                            .state = "starting",
                            .folder = "f",
                            .started = DB_NULL,
                            .ended = DB_NULL};

    (void)state;
    open_store(&s, "delete");
    add_campaign(s.db, "one");
    add_trial(s.db, "one", "baseline", DB_NULL);
    db_attempt_add(s.db, &at, &e);
    db_step_add(s.db, "one", 1, &(struct db_step){1, 1, 2.0, "{}"}, &e);
    db_event_add(
        &id, s.db,
        &(struct db_event){.campaign = "one", .trial = DB_NULL, .kind = "campaign", .data = "{}"},
        &e);
    assert_int_equal(db_campaign_delete(s.db, "one", &e), -EBUSY);
    db_campaign_move(s.db, "one", "running", DB_CANCELLED, NULL, 1, &e);
    assert_int_equal(db_campaign_delete(s.db, "one", &e), 0);
    assert_int_equal(db_count(s.db, "trial"), 1); /* still there, and nobody sees it */
    assert_int_equal(db_campaign_rev(&rev, s.db, "one", &e), -ENOENT);
    assert_int_equal(db_trial_get(&t, s.db, &arena, "one", 1, &e), -ENOENT);
    assert_int_equal(db_campaign_delete(s.db, "one", &e), -ENOENT);
    assert_int_equal(db_campaign_move(s.db, "one", "cancelled", DB_RUNNING, NULL, 1, &e), -ENOENT);
    assert_int_equal(db_removal_list(&ids, &n, s.db, &arena, &e), 0);
    assert_int_equal(n, 1);
    assert_string_equal(ids[0], "one");
    while ((r = db_removal_piece(s.db, &e)) == 1)
        pieces++;
    assert_int_equal(r, 0);
    assert_true(pieces >= 1);
    arena_done(&arena);
    assert_int_equal(db_count(s.db, "campaign"), 0);
    assert_int_equal(db_count(s.db, "trial") + db_count(s.db, "attempt") + db_count(s.db, "step") +
                         db_count(s.db, "event"),
                     0);
    close_store(&s);
}

static void leaders_count_repeats_with_their_layout(void **state)
{
    struct store s;
    struct arena a = {0};
    struct db_trial *t;
    struct err e;
    int64_t leader[4];
    int n;

    (void)state;
    open_store(&s, "leaders");
    add_campaign(s.db, "one");
    add_trial(s.db, "one", "baseline", DB_NULL);
    add_trial(s.db, "one", "search", DB_NULL);
    add_trial(s.db, "one", "repeat", 2);
    add_trial(s.db, "one", "verify", 2);
    settle(s.db, "one", 1, "ok", 10);
    settle(s.db, "one", 2, "ok", 12);
    settle(s.db, "one", 3, "ok", 14);
    settle(s.db, "one", 4, "ok", 99);
    assert_int_equal(db_trial_leaders(leader, &n, s.db, 4, "one", "tokens_per_s", NULL, &e), 0);
    assert_int_equal(n, 2);
    assert_int_equal(leader[0], 2);
    assert_int_equal(db_trial_group(&t, &n, s.db, &a, "one", 2, &e), 0);
    assert_int_equal(n, 2);
    arena_done(&a);
    close_store(&s);
}

static void leaders_are_ordered_by_the_objective(void **state)
{
    static const struct {
        const char *layout;
        double rate, tokens_per_joule;
    } row[] = {{"{\"world\":8}", 80, 0.2}, /* most tokens a second */
               {"{\"world\":2}", 30, 0.3}, /* 15 a device */
               {"{\"world\":2,\"threads\":2}", 32, 0.4},
               {"{\"world\":2}", 31, NAN}}; /* a meter was missing: never the leader by energy */
    static const struct {
        const char *objective;
        int64_t leader[4];
    } want[] = {{"tokens_per_s", {1, 3, 4, 2}},
                {"tokens_per_s_per_device", {4, 2, 1, 3}},
                {"tokens_per_joule", {3, 2, 1, 4}}};
    struct store s;
    struct err e = {0};

    (void)state;
    open_store(&s, "objectives");
    add_campaign(s.db, "one");
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        assert_int_equal(settle_energy(s.db, "one",
                                       add_layout(s.db, "one", "search", DB_NULL, row[i].layout),
                                       "ok", row[i].rate, row[i].tokens_per_joule),
                         0);
    for (size_t k = 0; k < ARRAY_LEN(want); k++) {
        int64_t leader[4] = {0};
        int n = 0;

        assert_int_equal(db_trial_leaders(leader, &n, s.db, 4, "one", want[k].objective, NULL, &e),
                         0);
        assert_int_equal(n, 4);
        for (int i = 0; i < n; i++)
            assert_int_equal(leader[i], want[k].leader[i]);
    }
    close_store(&s);
}

static void a_slice_has_its_own_leaders_and_costs(void **state)
{
    static const struct db_slice two = {"world", 2, NULL}, eight = {"world", 8, NULL},
                                 none = {"world", 4, NULL};
    struct store s;
    struct err e = {0};
    int64_t leader[4], count = -1;
    double device_s = -1;
    int n;

    (void)state;
    open_store(&s, "slices");
    add_campaign(s.db, "one");
    settle(s.db, "one", add_layout(s.db, "one", "baseline", DB_NULL, "{\"world\":8}"), "ok", 80);
    settle(s.db, "one", add_layout(s.db, "one", "search", DB_NULL, "{\"world\":2}"), "ok", 20);
    settle(s.db, "one", add_layout(s.db, "one", "search", DB_NULL, "{\"world\":2}"), "ok", 30);
    settle(s.db, "one", add_layout(s.db, "one", "verify", DB_NULL, "{\"world\":2}"), "ok", 90);
    assert_int_equal(db_trial_leaders(leader, &n, s.db, 4, "one", "tokens_per_s", &two, &e), 0);
    assert_true(n == 2 && leader[0] == 3 && leader[1] == 2);
    assert_int_equal(db_trial_leaders(leader, &n, s.db, 4, "one", "tokens_per_s", &eight, &e), 0);
    assert_true(n == 1 && leader[0] == 1);
    assert_int_equal(db_trial_spent(&count, &device_s, s.db, "one", &two, &e), 0);
    assert_true(count == 2 && device_s == 0); /* verification is no trial; no attempt ran */
    assert_int_equal(db_trial_spent(&count, &device_s, s.db, "one", &none, &e), 0);
    assert_true(count == 0 && device_s == 0);
    close_store(&s);
}

static void smaller_trials_are_never_results_of_their_layout(void **state)
{
    struct store s;
    struct err e;
    int64_t leader[4], count = -1;
    double device_s = -1;
    int n;

    (void)state;
    open_store(&s, "smaller");
    add_campaign(s.db, "one");
    add_measured(s.db, "one", 10);
    settle(s.db, "one", add_trial(s.db, "one", "small", DB_NULL), "ok", 99);
    assert_int_equal(db_trial_leaders(leader, &n, s.db, 4, "one", "tokens_per_s", NULL, &e), 0);
    assert_true(n == 1 && leader[0] == 1);
    assert_int_equal(db_trial_infer(s.db, "one", 1, "{}", &e), -ESTALE); /* it was measured */
    assert_int_equal(db_trial_infer(s.db, "one", 2, "{}", &e), 0);
    assert_int_equal(db_trial_smaller(&count, &device_s, s.db, "one", &e), 0);
    assert_true(count == 0 && device_s == 0); /* it never began */
    close_store(&s);
}

/* Trials of one page after another, while rows come, go and move between them: those that stay
 * where they are appear once. */
static void pages_continue_after_the_last_row(void **state)
{
    enum { ROWS = 12, PAGE = 5 };
    static const char *const sorts[] = {"n", "tokens_per_s", "kind"};
    struct store s;
    struct err e = {0};

    (void)state;
    for (size_t k = 0; k < 2 * ARRAY_LEN(sorts); k++) {
        struct db_filter f = {.sort = sorts[k / 2], .descending = k % 2, .limit = PAGE};
        int seen[ROWS + 8] = {0}, pages = 0;
        struct arena a = {0};
        int n = PAGE;

        open_store(&s, "pages");
        add_campaign(s.db, "one");
        for (int i = 0; i < ROWS; i++) /* a third of them has no throughput, some have the same */
            add_measured(s.db, "one", i % 3 == 2 ? (double)NAN : 100 + i / 6);
        while (n == PAGE) {
            struct db_trial *t = NULL;
            int64_t total;

            assert_int_equal(db_trial_list(&t, &n, &total, s.db, &a, "one", &f, &e), 0);
            for (int i = 0; i < n; i++)
                seen[t[i].n]++;
            if (n == 0)
                break;
            f.after = db_trial_position(&a, &f, &t[n - 1]);
            /* before the first page and behind the last, in either direction, and by any order */
            add_measured(s.db, "one", pages % 2 ? 1000 : 1);
            pages++;
            assert_true(pages < 10);
        }
        for (int i = 1; i <= ROWS; i++)
            if (seen[i] != 1)
                fail_msg("%s%s: trial %d appeared %d times", f.descending ? "-" : "", f.sort, i,
                         seen[i]);
        for (int i = ROWS + 1; i < ROWS + 8; i++)
            assert_true(seen[i] <= 1);
        arena_done(&a);
        close_store(&s);
    }
}

/* The same of campaigns, of which some are deleted. */
static void pages_of_campaigns_outlive_deletions(void **state)
{
    struct store s;
    struct err e = {0};
    struct arena a = {0};
    struct db_filter f = {.sort = "name", .limit = 2};
    struct db_campaign *c = NULL;
    int64_t total;
    int n = 0;

    (void)state;
    open_store(&s, "pages2");
    for (const char *id = "a\0b\0c\0d\0f\0"; *id; id += strlen(id) + 1)
        add_campaign(s.db, id);
    assert_int_equal(db_campaign_list(&c, &n, &total, s.db, &a, &f, &e), 0);
    assert_int_equal(n, 2);
    f.after = db_campaign_position(&a, &f, &c[1]);
    assert_int_equal(db_campaign_move(s.db, "a", DB_RUNNING, DB_DONE, NULL, 1, &e), 0);
    assert_int_equal(db_campaign_delete(s.db, "a", &e), 0);
    assert_int_equal(db_campaign_list(&c, &n, &total, s.db, &a, &f, &e), 0);
    assert_int_equal(n, 2);
    assert_string_equal(c[0].id, "c");
    assert_string_equal(c[1].id, "d");
    assert_int_equal(total, 4);
    f.after = db_campaign_position(&a, &f, &c[1]);
    assert_int_equal(db_campaign_list(&c, &n, &total, s.db, &a, &f, &e), 0);
    assert_int_equal(n, 1);
    assert_string_equal(c[0].id, "f");
    f.after = "no position";
    assert_int_equal(db_campaign_list(&c, &n, &total, s.db, &a, &f, &e), -EINVAL);
    arena_done(&a);
    close_store(&s);
}

static void event_ids_never_go_back(void **state)
{
    struct store s;
    struct err e;
    int64_t id;
    struct db_event ev = {.campaign = "one", .trial = DB_NULL, .kind = "campaign", .data = "{}"};

    (void)state;
    open_store(&s, "events");
    add_campaign(s.db, "one");
    for (int i = 0; i < 3; i++)
        db_event_add(&id, s.db, &ev, &e);
    assert_int_equal(id, 3);
    assert_int_equal(db_event_trim(s.db, 0, &e), 0);
    assert_int_equal(db_count(s.db, "event"), 0);
    assert_int_equal(db_event_last(s.db), 3);
    db_event_add(&id, s.db, &ev, &e);
    assert_int_equal(id, 4);
    close_store(&s);
}

/* One thread writes: nobody may wait for it until a hundred thousand rows are gone. */
static void old_events_go_in_pieces(void **state)
{
    enum { ALL = 5000, KEEP = 700 };
    struct store s;
    struct err e;
    int64_t id, before = ALL, most = 0, now;
    struct db_event ev = {.campaign = "one", .trial = DB_NULL, .kind = "campaign", .data = "{}"};
    int r = 1;

    (void)state;
    open_store(&s, "trim");
    add_campaign(s.db, "one");
    for (int i = 0; i < ALL; i++)
        assert_int_equal(db_event_add(&id, s.db, &ev, &e), 0);
    while (r == 1) {
        r = db_event_trim(s.db, KEEP, &e);
        now = db_count(s.db, "event");
        most = before - now > most ? before - now : most;
        before = now;
    }
    assert_int_equal(r, 0);
    assert_int_equal(before, KEEP);
    assert_true(most <= 1000);
    close_store(&s);
}

/* One page of everything is what pages must add up to: values first, from the smallest or from the
 * largest, then trials without one; equal ones by number. */
static void unknown_values_are_last_in_either_direction(void **state)
{
    enum { ROWS = 12 };
    struct store s;
    struct err e = {0};

    (void)state;
    open_store(&s, "unknown");
    add_campaign(s.db, "one");
    for (int i = 0; i < ROWS; i++)
        add_measured(s.db, "one", i % 3 == 2 ? (double)NAN : 100 + i % 4);
    for (int k = 0; k < 4; k++) {
        struct db_filter f = {.sort = "tokens_per_s", .descending = k % 2, .limit = 100};
        struct db_trial *all = NULL, *part = NULL;
        struct arena a = {0};
        int n = 0, m = 0;
        int64_t total;

        f.state = k / 2 ? "ok" : NULL;
        assert_int_equal(db_trial_list(&all, &n, &total, s.db, &a, "one", &f, &e), 0);
        assert_int_equal(n, ROWS);
        for (int i = 1; i < n; i++) {
            double before = all[i - 1].tokens_per_s, here = all[i].tokens_per_s;
            bool same = before == here || (isnan(before) && isnan(here));

            assert_false(isnan(before) && !isnan(here));
            assert_false(f.descending ? here > before : here < before);
            assert_true(!same ||
                        (f.descending ? all[i].n < all[i - 1].n : all[i].n > all[i - 1].n));
        }
        for (f.offset = 0, f.limit = 5; f.offset <= ROWS; f.offset++) {
            assert_int_equal(db_trial_list(&part, &m, &total, s.db, &a, "one", &f, &e), 0);
            assert_int_equal(m, ROWS - f.offset < 5 ? ROWS - f.offset : 5);
            for (int i = 0; i < m; i++)
                assert_int_equal(part[i].n, all[f.offset + i].n);
        }
        arena_done(&a);
    }
    close_store(&s);
}

static void a_backup_is_a_whole_database(void **state)
{
    struct store s;
    struct err e = {0};
    AUTO_FREE char *file = NULL, *missing = NULL, *wal = NULL, *bytes = NULL;
    struct db *copy = NULL;

    (void)state;
    open_store(&s, "backup");
    add_campaign(s.db, "one");
    file = mem_printf("%s/copy.db", s.folder);
    assert_int_equal(db_backup(s.db, file, &e), 0);
    assert_int_equal(db_backup(s.db, file, &e), -EEXIST);
    missing = mem_printf("%s/none/copy.db", s.folder);
    assert_int_equal(db_backup(s.db, missing, &e), -EACCES);
    assert_non_null(strstr(e.text, missing));
    /* the copy is one file, which may be read where nothing can be written */
    wal = mem_printf("%s-wal", file);
    assert_false(file_exists(wal));
    assert_int_equal(file_read_all(&bytes, NULL, file, 16 << 20, &e), 0);
    assert_true(bytes[18] == 1 && bytes[19] == 1); /* of the file's header: no WAL */
    assert_int_equal(db_open(&copy, file, DB_WRITE, &e), 0);
    assert_int_equal(db_count(copy, "campaign"), 1);
    db_close(copy);
    close_store(&s);
}

/* ---- the writer ---------------------------------------------------------- */

static int add_one(struct db *w, void *arg, struct err *e)
{
    const char *id = arg;
    struct db_campaign c = {.id = id,
                            .name = id,
                            .state = DB_RUNNING,
                            .spec = "{}",
                            .resolved = "{}",
                            .objective = "o",
                            .trainer = "t",
                            .launcher = "l",
                            .tags = "[]",
                            .notes = "",
                            .owner = "",
                            .budget_trials = DB_NULL};

    return db_campaign_add(w, &c, e);
}

static int add_one_and_fail(struct db *w, void *arg, struct err *e)
{
    int r = add_one(w, arg, e);

    return r < 0 ? r : err_set(e, -ECANCELED, "changed my mind");
}

static void a_failed_job_undoes_itself_alone(void **state)
{
    struct store s;
    struct err e = {0};
    struct db_writer *wr = NULL;
    struct db *reader = NULL;

    (void)state;
    open_store(&s, "writer");
    assert_int_equal(db_writer_start(&wr, TAKE(s.db), &e), 0);
    assert_int_equal(db_open(&reader, s.path, DB_READ, &e), 0);
    db_writer_post(wr, add_one, (void *)"a", NULL);
    db_writer_post(wr, add_one_and_fail, (void *)"b", NULL);
    db_writer_post(wr, add_one, (void *)"c", NULL);
    db_writer_flush(wr);
    assert_int_equal(db_count(reader, "campaign"), 2);
    assert_int_equal(db_writer_failure(wr, &e), -ECANCELED);
    assert_int_equal(db_writer_failure(wr, &e), 0);
    assert_int_equal(db_writer_call(wr, add_one, (void *)"a", &e), -EEXIST);
    assert_int_equal(db_writer_call(wr, add_one, (void *)"d", &e), 0);
    assert_int_equal(db_count(reader, "campaign"), 3);
    db_close(reader);
    db_writer_stop(wr);
    close_store(&s);
}

/* A full disk: the limit on the size of files stands for it. Writes fail, the store stays whole,
 * and works again when there is room. */
static void a_full_disk_fails_the_write_and_nothing_else(void **state)
{
    struct store s;
    struct err e = {0};
    struct db_writer *wr = NULL;
    struct rlimit old, small = {512 << 10, RLIM_INFINITY};
    char id[32];
    int r = 0, i, failed;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    open_store(&s, "full");
    assert_int_equal(db_writer_start(&wr, TAKE(s.db), &e), 0);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    for (i = 0; i < 100000 && r == 0; i++) {
        snprintf(id, sizeof(id), "c%d", i);
        r = db_writer_call(wr, add_one, id, &e);
    }
    failed = i - 1;
    assert_true(r < 0);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(db_writer_call(wr, add_one, id, &e), 0);
    db_writer_stop(wr);
    assert_int_equal(db_open(&s.db, s.path, DB_WRITE, &e), 0);
    assert_int_equal(db_check(s.db, &e), 0);
    assert_int_equal(db_count(s.db, "campaign"), failed + 1);
    close_store(&s);
}

static int64_t answers_of(struct store *s, char owner, int n)
{
    struct arena a = {0};
    int64_t found = 0;

    for (int i = 0; i < n; i++) {
        AUTO_FREE char *key = mem_printf("%c%015d%048d", owner, 0, i);
        struct db_answer row;

        found += db_answer_get(&row, s->db, &a, key, NULL) == 0;
    }
    arena_done(&a);
    return found;
}

static void put_answers(struct store *s, char owner, int n, const char *body)
{
    struct err e = {0};

    for (int i = 0; i < n; i++) {
        AUTO_FREE char *key = mem_printf("%c%015d%048d", owner, 0, i);
        struct db_answer row = {
            .key = key, .hash = "h", .type = "t", .body = body, .status = 201, .created = i};

        if (db_answer_put(s->db, &row, &e) < 0)
            fail_msg("%s", e.text);
    }
}

static void answers_of_a_caller_are_bounded(void **state)
{
    AUTO_FREE char *large = mem_alloc((1 << 20) + 1);
    struct store s;

    (void)state;
    memset(large, ' ', 1 << 20);
    open_store(&s, "answers");
    put_answers(&s, 'a', 3, "{}");
    put_answers(&s, 'b', 1100, "{}");
    assert_int_equal(answers_of(&s, 'b', 100), 0); /* the oldest went */
    assert_int_equal(answers_of(&s, 'b', 1100), 1000);
    put_answers(&s, 'c', 20, large);
    assert_int_equal(answers_of(&s, 'c', 20), 8);
    assert_int_equal(answers_of(&s, 'a', 3), 3); /* whatever others keep */
    close_store(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(answers_of_a_caller_are_bounded),
    cmocka_unit_test(a_new_database_has_the_latest_schema),
    cmocka_unit_test(a_database_of_the_future_is_refused),
    cmocka_unit_test(a_damaged_database_is_refused),
    cmocka_unit_test(a_file_that_is_no_database_is_refused),
    cmocka_unit_test(trials_are_numbered_from_one_without_gaps),
    cmocka_unit_test(a_trial_is_settled_once),
    cmocka_unit_test(only_the_arrows_of_the_table_are_passable),
    cmocka_unit_test(counts_by_state_follow_every_change),
    cmocka_unit_test(a_campaign_moves_only_from_the_states_named),
    cmocka_unit_test(a_running_campaign_cannot_be_deleted_and_a_deleted_one_leaves_nothing),
    cmocka_unit_test(leaders_count_repeats_with_their_layout),
    cmocka_unit_test(leaders_are_ordered_by_the_objective),
    cmocka_unit_test(a_slice_has_its_own_leaders_and_costs),
    cmocka_unit_test(smaller_trials_are_never_results_of_their_layout),
    cmocka_unit_test(pages_continue_after_the_last_row),
    cmocka_unit_test(pages_of_campaigns_outlive_deletions),
    cmocka_unit_test(event_ids_never_go_back),
    cmocka_unit_test(old_events_go_in_pieces),
    cmocka_unit_test(unknown_values_are_last_in_either_direction),
    cmocka_unit_test(a_backup_is_a_whole_database),
    cmocka_unit_test(a_failed_job_undoes_itself_alone),
    cmocka_unit_test(a_full_disk_fails_the_write_and_nothing_else),
};

UNIT_MAIN(tests)
