/* Databases of every earlier schema (tests/data/schema-K.sql, dumps of real ones) are brought up to
 * date: nothing is lost, and what results is what a new database has. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>

#include "db/db.h"
#include "plan/plan.h"

static char *dump_of(int version)
{
    const char *src = getenv("PT_SRC") ? getenv("PT_SRC") : ".";
    AUTO_FREE char *path = mem_printf("%s/tests/data/schema-%d.sql", src, version);
    struct err e = {0};
    char *text = NULL;

    if (file_read_all(&text, NULL, path, 16 << 20, &e) < 0)
        fail_msg("%s", e.text);
    return text;
}

static void make_old(const char *path, int version)
{
    AUTO_FREE char *sql = dump_of(version);
    AUTO_FREE char *verify = mem_printf("UPDATE campaign SET verify = '{\"state\":\"done\",\"%s\":"
                                        "{\"tokens_per_s\":5,\"lo\":4,\"hi\":6}}'",
                                        version < 7 ? "promise" : "prediction");
    char *message = NULL;
    sqlite3 *h;

    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    if (sqlite3_exec(h, sql, NULL, NULL, &message) != SQLITE_OK ||
        sqlite3_exec(h, verify, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s", message);
    sqlite3_close(h);
}

/* Every table, index and trigger with its text, in order of name. */
static char *schema_of(const char *path)
{
    AUTO_STR s = {0};
    sqlite3_stmt *st;
    sqlite3 *h;

    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    sqlite3_prepare_v2(h,
                       "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"
                       " ORDER BY name",
                       -1, &st, NULL);
    while (sqlite3_step(st) == SQLITE_ROW)
        str_addf(&s, "%s: %s\n", (const char *)sqlite3_column_text(st, 0),
                 sqlite3_column_text(st, 1) ? (const char *)sqlite3_column_text(st, 1) : "");
    sqlite3_finalize(st);
    sqlite3_close(h);
    return str_take(&s);
}

static void add_up(void *ctx, const char *state, int64_t n)
{
    (void)state;
    *(int64_t *)ctx += n;
}

/* No campaign of a dump asks for fewer steps than today's trials accept. */
static void check_limits(const char *campaign)
{
    AUTO_JSON *root = json_loads(campaign, 0, NULL);
    struct pl_trial_limits limits;
    struct err e = {0};

    if (pl_trial_limits_parse(&limits, root, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
}

/* The campaign of the dump: three trials, counted by state and by list, each with its attempt. */
static void check_rows(struct db *db)
{
    struct db_filter f = {.limit = 100};
    struct arena a = {0};
    struct db_campaign *c = NULL;
    struct db_trial *t = NULL;
    struct err e = {0};
    int64_t total = 0, counted = 0;
    double spent = 0;
    int n = 0;

    assert_int_equal(db_campaign_list(&c, &n, &total, db, &a, &f, &e), 0);
    assert_int_equal(total, 1);
    assert_int_equal(strlen(c[0].traceparent), 55);
    assert_int_equal(db_campaign_counts(db, c[0].id, add_up, &counted, &e), 0);
    assert_int_equal(counted, c[0].trials);
    assert_int_equal(db_trial_list(&t, &n, &total, db, &a, c[0].id, &f, &e), 0);
    assert_int_equal(total, 3);
    for (int i = 0; i < n; i++) {
        assert_true(t[i].fidelity == DB_NULL && !t[i].run && !t[i].inferred);
        assert_true(t[i].devices == 8 && t[i].device_s >= 0);
        assert_true(isnan(t[i].tokens_per_joule));
        spent += t[i].device_s;
    }
    assert_float_equal(spent, c[0].device_s, 1e-9 + 1e-9 * spent);
    f.state = "ok";
    f.sort = "tokens_per_s";
    f.descending = true;
    assert_int_equal(db_trial_list(&t, &n, &total, db, &a, c[0].id, &f, &e), 0);
    assert_int_equal(n, total);
    for (int i = 1; i < n; i++)
        assert_true(t[i - 1].tokens_per_s >= t[i].tokens_per_s);
    f.kind = "baseline";
    assert_int_equal(db_trial_list(&t, &n, &total, db, &a, c[0].id, &f, &e), 0);
    assert_int_equal(total, 1);
    assert_int_equal(db_count(db, "attempt"), 3);
    check_limits(c[0].spec);
    check_limits(c[0].resolved);
    assert_string_equal(c[0].verify, "{\"state\":\"done\",\"prediction\":"
                                     "{\"tokens_per_s\":5,\"lo\":4,\"hi\":6}}");
    assert_true(db_event_last(db) > 0);
    arena_done(&a);
}

static void every_earlier_schema_is_brought_up_to_date(void **state)
{
    AUTO_FREE char *folder = unit_folder("upgrade");
    AUTO_FREE char *fresh = mem_printf("%s/fresh.db", folder);
    AUTO_FREE char *wanted = NULL;
    struct err e = {0};
    struct db *db = NULL;

    (void)state;
    if (db_open(&db, fresh, DB_WRITE, &e) < 0)
        fail_msg("%s", e.text);
    db_close(db);
    wanted = schema_of(fresh);
    assert_true(db_latest_version() > 1);
    for (int v = 1; v < db_latest_version(); v++) {
        AUTO_FREE char *path = mem_printf("%s/%d.db", folder, v), *got = NULL;

        make_old(path, v);
        if (db_open(&db, path, DB_WRITE, &e) < 0)
            fail_msg("schema %d: %s", v, e.text);
        assert_int_equal(db_version(db), db_latest_version());
        check_rows(db);
        if (db_check(db, &e) < 0)
            fail_msg("schema %d: %s", v, e.text);
        db_close(db);
        got = schema_of(path);
        assert_string_equal(got, wanted);
    }
    file_remove_tree(folder, NULL);
}

static void a_newer_schema_is_refused(void **state)
{
    AUTO_FREE char *folder = unit_folder("newer");
    AUTO_FREE char *path = mem_printf("%s/new.db", folder);
    struct err e = {0};
    struct db *db = NULL;
    sqlite3 *h;

    (void)state;
    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    sqlite3_exec(h, "CREATE TABLE later (x); PRAGMA user_version = 1000", NULL, NULL, NULL);
    sqlite3_close(h);
    assert_int_equal(db_open(&db, path, DB_WRITE, &e), -EPROTO);
    file_remove_tree(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_earlier_schema_is_brought_up_to_date),
        cmocka_unit_test(a_newer_schema_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
