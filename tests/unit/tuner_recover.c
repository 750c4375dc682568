/* What a kill, a restart, a clock that jumps or a trial that plays tricks must not change. */
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "tests/unit/tuner_fixture.h"

static const char *build(void)
{
    return getenv("PT_BUILD") ? getenv("PT_BUILD") : ".";
}

static void write_script(const char *path, const char *text)
{
    struct err e = {0};

    if (file_write_atomic(path, text, strlen(text), 0700, &e) < 0)
        fail_msg("%s", e.text);
}

static char *attempt_folder(const struct fixture *f, const char *id, int n, int attempt)
{
    return mem_printf("%s/campaigns/%s/trials/%d/%d", f->data, id, n, attempt);
}

static int64_t attempts_of(struct fixture *f, const char *id, int64_t n)
{
    json_t *t = fixture_trial(f, id, n);
    int64_t attempts = json_integer_value(json_object_get(t, "attempts"));

    json_decref(t);
    return attempts;
}

static void sql(const struct fixture *f, const char *text)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", f->data);
    sqlite3 *db = NULL;
    char *why = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s", why);
    sqlite3_close(db);
}

/* The supervisor is the reaper of all that its trial starts, whatever environment it has. */
static void a_process_that_hides_its_mark_ends_with_its_trial(void **state)
{
    AUTO_FREE char *folder = unit_folder("stray");
    AUTO_FREE char *path = mem_printf("%s/stray", folder), *text = NULL;
    AUTO_FREE char *command =
        mem_printf("%s=stray/a/1/1 '%s/partune-run' --folder '%s' -- sh -c "
                   "'env -i setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $! >\"$0\"' '%s'",
                   TN_MARK_ENV, build(), folder, path);
    struct tn_exit x;
    struct err e = {0};
    int pid;

    (void)state;
    assert_int_equal(system(command), 0);
    assert_int_equal(file_read_all(&text, NULL, path, 4096, &e), 0);
    pid = (int)strtol(text, NULL, 10);
    assert_true(pid > 0);
    if (kill(pid, 0) == 0) {
        kill(pid, SIGKILL);
        fail_msg("process %d outlived its trial", pid);
    }
    tn_exit_read(&x, folder);
    assert_true(x.known);
    assert_int_equal(x.code, 0);
    assert_int_equal(x.leftovers, 1);
    file_remove_tree(folder, NULL);
}

/* However often: that daemons die says nothing about the trial. */
static void a_trial_never_launched_is_launched_later(void **state)
{
    struct fixture f;
    char id[32];
    AUTO_FREE char *slow = NULL, *script = NULL;
    json_t *c;

    (void)state;
    fixture_open(&f, "early", "");
    slow = mem_printf("%s/slow", f.folder);
    script = mem_printf("#!/bin/sh\nsleep 1\nexec '%s' \"$@\"\n", f.supervisor);
    write_script(slow, script);
    f.config.supervisor = slow;
    fixture_reopen(&f);
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 1}"));
    for (int k = 1; k <= 6; k++) {
        for (int i = 0; i < 1000 && attempts_of(&f, id, 1) < k; i++)
            fixture_spin(&f, 10);
        assert_int_equal(attempts_of(&f, id, 1), k);
        fixture_reopen(&f); /* before its supervisor has claimed it */
    }
    f.config.supervisor = f.supervisor;
    fixture_reopen(&f);
    c = fixture_wait(&f, id, "done");
    fixture_expect_trial(&f, id, 1, "ok", 0);
    json_decref(c);
    assert_int_equal(fixture_processes(&f), 0);
    fixture_close(&f);
}

static void a_trial_stopped_from_outside_is_no_crash(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c;

    (void)state;
    fixture_open(&f, "outside", "--step-ms 50");
    fixture_create(
        &f, id, CAMPAIGN("'budget': {'trials': 1}, 'trial': {'min_steps': 30, 'max_steps': 30}"));
    for (int k = 1; k <= 2; k++) { /* a crash would be tried again only once */
        AUTO_FREE char *folder = attempt_folder(&f, id, 1, k);
        struct tn_proc p = {.pid = 0};

        for (int i = 0; i < 1000 && tn_run_read(&p, folder, NULL) < 0; i++)
            fixture_spin(&f, 10);
        fixture_run_until_trial(&f, id, 1, "running");
        assert_true(p.pid > 0);
        kill(p.pid, SIGTERM);
        for (int i = 0; i < 1000 && attempts_of(&f, id, 1) == k; i++)
            fixture_spin(&f, 10);
    }
    c = fixture_wait(&f, id, "done");
    fixture_expect_trial(&f, id, 1, "ok", 3);
    json_decref(c);
    fixture_close(&f);
}

/* A full disk, a file system that is away: what cannot be told at the start is asked again. */
static void what_cannot_be_adopted_now_is_adopted_later(void **state)
{
    struct fixture f;
    char id[32];
    AUTO_FREE char *folder = NULL, *aside = NULL;
    struct tn_stats s;
    json_t *c;

    (void)state;
    fixture_open(&f, "later", "--step-ms 50");
    fixture_create(
        &f, id, CAMPAIGN("'budget': {'trials': 1}, 'trial': {'min_steps': 40, 'max_steps': 40}"));
    fixture_run_until_trial(&f, id, 1, "running");
    folder = attempt_folder(&f, id, 1, 1);
    aside = mem_printf("%s/aside", f.folder);
    fixture_stop(&f);
    assert_int_equal(rename(folder, aside), 0);
    write_script(folder, "no folder");
    fixture_start(&f);
    fixture_spin(&f, 300);
    fixture_expect_trial(&f, id, 1, "running", 0);
    assert_true(fixture_processes(&f) > 0);
    tn_stats(&s, f.svc);
    assert_int_equal(s.adopted, 0);
    assert_int_equal(unlink(folder), 0);
    assert_int_equal(rename(aside, folder), 0);
    c = fixture_wait(&f, id, "done");
    tn_stats(&s, f.svc);
    assert_int_equal(s.adopted, 1);
    fixture_expect_trial(&f, id, 1, "ok", 1);
    json_decref(c);
    fixture_close(&f);
}

/* The row says that it was started a day ago, the process knows better. */
static void a_clock_that_jumps_ends_no_trial(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c;

    (void)state;
    fixture_open(&f, "clock", "--step-ms 50");
    fixture_create(&f, id,
                   CAMPAIGN("'budget': {'trials': 1}, 'trial': {'min_steps': 20, 'max_steps': 20, "
                            "'timeout_s': 600}"));
    fixture_run_until_trial(&f, id, 1, "running");
    fixture_stop(&f);
    sql(&f, "UPDATE attempt SET created = created - 86400000, started = started - 86400000");
    fixture_start(&f);
    c = fixture_wait(&f, id, "done");
    fixture_expect_trial(&f, id, 1, "ok", 0);
    json_decref(c);
    fixture_close(&f);
}

/* What a trial puts in the place of its log is no way to other files, and keeps nobody waiting. */
static void a_log_that_is_no_file_is_ignored(void **state)
{
    static const char *const tricks[] = {"a link", "a pipe"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tricks); i++) {
        struct fixture f;
        char id[32];
        AUTO_FREE char *trick = NULL, *script = NULL, *path = NULL, *failure = NULL;
        json_t *c, *t;

        fixture_open(&f, "trick", "");
        path = mem_printf("%s/secret", f.folder);
        write_script(path, "the secret");
        trick = mem_printf(i ? "mkfifo stderr" : "ln -s '%s' stderr", path);
        script = mem_printf("#!/bin/sh\nrm -f stderr\n%s\nexit 3\n", trick);
        write_script(f.train, script);
        fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 1}, 'space': {'world': [1]}"));
        c = fixture_wait(&f, id, "done");
        t = fixture_trial(&f, id, 1);
        assert_string_equal(text_at(t, "state"), "crash");
        failure = jx_dump(json_object_get(t, "failure"));
        if (strstr(failure, "the secret"))
            fail_msg("%s: %s", tricks[i], failure);
        json_decref(t);
        json_decref(c);
        fixture_close(&f);
    }
}

static json_t *verify(struct fixture *f, const char *id, const char *wish)
{
    AUTO_JSON *body = unit_json(wish);
    struct err e = {0};
    json_t *c = NULL;

    if (tn_campaign_verify(&c, f->svc, id, body, &e) < 0)
        fail_msg("verify: %s", e.text);
    return c;
}

/* Another one after one that was paused counts its own trials. */
static void a_verification_begins_anew(void **state)
{
    struct fixture f;
    char id[32];
    struct err e = {0};
    json_t *c, *v, *t = NULL;

    (void)state;
    fixture_open(&f, "anew", "--step-ms 20");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 3}"));
    json_decref(fixture_wait(&f, id, "done"));
    json_decref(verify(&f, id, "{'pairs': 4, 'steps': 3}"));
    for (int i = 0; i < 1000 && tn_trial_get(&t, f.svc, id, 6, &e) < 0; i++)
        fixture_spin(&f, 10);
    json_decref(t); /* its third trial is there */
    assert_int_equal(tn_campaign_pause(&c, f.svc, id, &e), 0);
    json_decref(c);
    json_decref(fixture_wait(&f, id, "paused"));
    json_decref(verify(&f, id, "{'pairs': 2, 'steps': 3}"));
    c = fixture_wait(&f, id, "done");
    v = json_object_get(c, "verify");
    assert_string_equal(text_at(v, "state"), "done");
    assert_int_equal(json_array_size(json_object_get(v, "ratios")), 2);
    json_decref(c);

    json_decref(verify(&f, id, "{'pairs': 4, 'steps': 3}"));
    assert_int_equal(tn_campaign_cancel(&c, f.svc, id, &e), 0);
    assert_string_equal(text_at(json_object_get(c, "verify"), "state"), "cancelled");
    json_decref(c);
    json_decref(fixture_wait(&f, id, "cancelled"));
    fixture_close(&f);
}

static bool is_ready(struct fixture *f)
{
    json_t *v = tn_health_json(f->svc);
    bool ready = json_is_true(json_object_get(v, "ready"));

    json_decref(v);
    return ready;
}

/* Fitting earlier campaigns takes seconds: the daemon answers meanwhile, and says that it is not
 * ready. */
static void an_informed_campaign_comes_back_in_the_background(void **state)
{
    struct fixture f;
    char source[32], id[32];
    AUTO_FREE char *text = NULL;
    struct err e = {0};
    json_t *c = NULL;

    (void)state;
    fixture_open(&f, "informed", "--step-ms 50");
    fixture_create(&f, source,
                   CAMPAIGN("'budget': {'trials': 5}, 'launcher': {'kind': 'simulated', 'speed': "
                            "1000000}"));
    json_decref(fixture_wait(&f, source, "done"));
    text = mem_printf(CAMPAIGN("'budget': {'trials': 2}, 'search': {'warm_start': ['%s']}, "
                               "'trial': {'min_steps': 20, 'max_steps': 20}"),
                      source);
    fixture_create(&f, id, text);
    fixture_run_until_trial(&f, id, 1, "running");
    fixture_reopen(&f);
    assert_false(is_ready(&f));
    assert_int_equal(tn_campaigns_coming(f.svc), 1);
    assert_int_equal(tn_campaign_get(&c, f.svc, id, &e), 0);
    assert_string_equal(text_at(c, "state"), "running");
    json_decref(c);
    assert_int_equal(tn_campaign_delete(f.svc, id, &e), -EAGAIN);
    assert_int_equal(tn_campaign_verify(&c, f.svc, id, NULL, &e), -EAGAIN);
    assert_int_equal(tn_campaign_pause(&c, f.svc, id, &e), 0);
    json_decref(c);
    assert_int_equal(tn_campaign_resume(&c, f.svc, id, &e), -EAGAIN);
    for (int i = 0; i < 3000 && tn_campaigns_coming(f.svc) > 0; i++)
        fixture_spin(&f, 10);
    assert_true(is_ready(&f));
    c = fixture_wait(&f, id, "paused"); /* what was said meanwhile holds */
    json_decref(c);
    fixture_expect_trial(&f, id, 1, "ok", 1);
    assert_int_equal(tn_campaign_resume(&c, f.svc, id, &e), 0);
    json_decref(c);
    c = fixture_wait(&f, id, "done");
    assert_int_equal(number_at(c, "progress", "trials"), 2);
    json_decref(c);
    fixture_close(&f);
}

static void count_call(void *arg)
{
    ++*(int *)arg;
}

/* A stop that wants its trials back waits for those that are not known yet. */
static void a_stop_ends_campaigns_that_are_being_restored(void **state)
{
    struct fixture f;
    char source[32], id[32];
    AUTO_FREE char *text = NULL;
    int stopped = 0;

    (void)state;
    fixture_open(&f, "coming", "--step-ms 50");
    fixture_create(&f, source,
                   CAMPAIGN("'budget': {'trials': 5}, 'launcher': {'kind': 'simulated', 'speed': "
                            "1000000}"));
    json_decref(fixture_wait(&f, source, "done"));
    text = mem_printf(CAMPAIGN("'budget': {'trials': 2}, 'search': {'warm_start': ['%s']}, "
                               "'trial': {'min_steps': 200, 'max_steps': 200}"),
                      source);
    fixture_create(&f, id, text);
    fixture_run_until_trial(&f, id, 1, "running");
    fixture_reopen(&f);
    tn_service_stop(f.svc, TN_STOP_REQUEUE, count_call, &stopped);
    assert_int_equal(stopped, 0);
    for (int i = 0; i < 3000 && !stopped; i++)
        fixture_spin(&f, 10);
    assert_int_equal(stopped, 1);
    assert_int_equal(fixture_processes(&f), 0);
    fixture_expect_trial(&f, id, 1, "queued", 0);
    fixture_close(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_process_that_hides_its_mark_ends_with_its_trial),
    cmocka_unit_test(a_trial_never_launched_is_launched_later),
    cmocka_unit_test(a_trial_stopped_from_outside_is_no_crash),
    cmocka_unit_test(what_cannot_be_adopted_now_is_adopted_later),
    cmocka_unit_test(a_clock_that_jumps_ends_no_trial),
    cmocka_unit_test(a_log_that_is_no_file_is_ignored),
    cmocka_unit_test(a_verification_begins_anew),
    cmocka_unit_test(an_informed_campaign_comes_back_in_the_background),
    cmocka_unit_test(a_stop_ends_campaigns_that_are_being_restored),
};

UNIT_MAIN(tests)
