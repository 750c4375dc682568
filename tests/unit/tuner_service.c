/* Campaigns on a real loop with real processes: mpiexec, partune-run and a trainer that only
 * sleeps. */
#include <math.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/unit/tuner_fixture.h"

static void a_campaign_runs_to_its_budget(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c;

    (void)state;
    fixture_open(&f, "budget", "");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 6}"));
    c = fixture_wait(&f, id, "done");
    assert_string_equal(text_at(c, "reason"), "budget");
    assert_int_equal(number_at(c, "progress", "trials"), 6);
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(json_object_get(c, "progress"), "by_state"), "ok")),
                     6);
    assert_true(number_at(c, "best", "ratio") >= 1.0);
    assert_int_equal(number_at(c, "baseline", "trial"), 1);
    json_decref(c);
    fixture_close(&f);
}

static void each_outcome_is_recognized(void **state)
{
    static const struct {
        const char *fault, *state, *cls;
        int attempts;
    } cases[] = {
        {"--fault oom", "oom", "oom", 1},
        {"--fault illegal", "illegal", "illegal", 1},
        {"--fault numeric", "numeric", "numeric", 1},
        {"--fault node_fail", "node_fail", "node_fail", 5},
        {"--fault lazy", "illegal", "illegal", 1}, /* half of the batch, for a fine rate */
        {"--fault comm", "crash", "crash", 2},
        {"--fault exit=66", "oom", "oom", 1},
        {"--fault exit=3", "crash", "crash", 2},
        {"--fault signal=9", "crash", "crash", 2},
        {"--fault once=exit=3", "ok", NULL, 2},
        {"--fault once=disturbed", "ok", NULL, 2},
        {"--fault garbage", "ok", NULL, 1},
        {"--fault child", "ok", NULL, 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture f;
        char id[32];
        json_t *c, *t;

        fixture_open(&f, "outcome", cases[i].fault);
        fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 1}"));
        c = fixture_wait(&f, id, "done");
        t = fixture_trial(&f, id, 1);
        if (strcmp(text_at(t, "state"), cases[i].state) != 0)
            fail_msg("%s: %s", cases[i].fault, text_at(t, "state"));
        if (json_integer_value(json_object_get(t, "attempts")) != cases[i].attempts)
            fail_msg("%s: attempts", cases[i].fault);
        if (cases[i].cls)
            assert_string_equal(
                json_string_value(json_object_get(json_object_get(t, "failure"), "class")),
                cases[i].cls);
        else
            assert_true(json_is_null(json_object_get(t, "failure")));
        assert_int_equal(fixture_processes(&f), 0);
        json_decref(t);
        json_decref(c);
        fixture_close(&f);
    }
}

static void a_slow_trial_times_out_and_bounds_its_throughput(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c, *t;

    (void)state;
    fixture_open(&f, "timeout", "--fault slow");
    fixture_create(
        &f, id, CAMPAIGN("'budget': {'trials': 1}, 'trial': {'timeout_s': 0.8, 'min_steps': 3}"));
    c = fixture_wait(&f, id, "done");
    t = fixture_trial(&f, id, 1);
    assert_string_equal(text_at(t, "state"), "timeout");
    assert_int_equal(fixture_processes(&f), 0);
    json_decref(t);
    json_decref(c);
    fixture_close(&f);
}

static void a_silent_trial_is_a_hang_and_is_tried_once_more(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c;

    (void)state;
    fixture_open(&f, "hang", "--fault hang");
    f.config.hang_s = 1;
    fixture_reopen(&f);
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 1}"));
    c = fixture_wait(&f, id, "done");
    fixture_expect_trial(&f, id, 1, "hang", 2);
    json_decref(c);
    fixture_close(&f);
}

static void a_fault_of_the_data_pauses_and_resume_tries_again(void **state)
{
    struct fixture f;
    char id[32];
    struct err e = {0};
    json_t *c;

    (void)state;
    fixture_open(&f, "data", "--fault once=data");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 1}"));
    c = fixture_wait(&f, id, "paused");
    assert_non_null(strstr(text_at(c, "reason"), "made to fail"));
    json_decref(c);
    assert_int_equal(tn_campaign_resume(&c, f.svc, id, &e), 0);
    json_decref(c);
    c = fixture_wait(&f, id, "done");
    assert_int_equal(number_at(c, "baseline", "trial"), 1);
    json_decref(c);
    fixture_close(&f);
}

static void a_campaign_in_which_everything_crashes_pauses(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c;

    (void)state;
    fixture_open(&f, "crashes", "--fault exit=3");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 9}"));
    c = fixture_wait(&f, id, "paused");
    assert_non_null(strstr(text_at(c, "reason"), "exit code 3"));
    assert_int_equal(number_at(c, "progress", "trials"), 3);
    json_decref(c);
    fixture_close(&f);
}

static void canceling_kills_even_what_ignores_term(void **state)
{
    struct fixture f;
    char id[32];
    struct err e = {0};
    json_t *c, *t;

    (void)state;
    fixture_open(&f, "cancel", "--fault deaf");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 3}"));
    fixture_run_until_trial(&f, id, 1, "running");
    assert_true(fixture_processes(&f) > 0);
    assert_int_equal(tn_campaign_cancel(&c, f.svc, id, &e), 0);
    json_decref(c);
    t = fixture_wait_trial(&f, id, 1);
    assert_string_equal(text_at(t, "state"), "cancelled");
    assert_int_equal(fixture_processes(&f), 0);
    json_decref(t);
    fixture_close(&f);
}

static void pausing_lets_the_running_trial_finish(void **state)
{
    struct fixture f;
    char id[32];
    struct err e = {0};
    json_t *c, *t;

    (void)state;
    fixture_open(&f, "pause", "--step-ms 40");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 3}"));
    fixture_run_until_trial(&f, id, 1, "running");
    assert_int_equal(tn_campaign_pause(&c, f.svc, id, &e), 0);
    json_decref(c);
    t = fixture_wait_trial(&f, id, 1);
    assert_string_equal(text_at(t, "state"), "ok");
    json_decref(t);
    fixture_spin(&f, 500);
    assert_int_equal(db_count(tn_db(f.svc), "trial"), 1);
    assert_int_equal(tn_campaign_resume(&c, f.svc, id, &e), 0);
    json_decref(c);
    json_decref(fixture_wait(&f, id, "done"));
    fixture_close(&f);
}

static void an_open_trial_is_adopted_by_the_next_service(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c, *steps = NULL;
    struct err e = {0};
    int64_t total;

    (void)state;
    fixture_open(&f, "adopt", "--step-ms 100");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 2}, 'trial': {'min_steps': 8}"));
    fixture_run_until_trial(&f, id, 1, "running");
    fixture_reopen(&f);
    {
        struct tn_stats s;

        tn_stats(&s, f.svc);
        assert_int_equal(s.adopted, 1);
    }
    c = fixture_wait(&f, id, "done");
    assert_int_equal(number_at(c, "progress", "trials"), 2);
    assert_int_equal(tn_step_list(&steps, &total, f.svc, id, 1, 0, 100, &e), 0);
    assert_int_equal(total, 10); /* each step once, before and after */
    json_decref(steps);
    json_decref(c);
    fixture_close(&f);
}

static void a_campaign_that_cannot_be_brought_back_leaves_nothing_running(void **state)
{
    const char *build = getenv("PT_BUILD") ? getenv("PT_BUILD") : ".";
    AUTO_FREE char *text =
        mem_printf("[trainer \"other\"]\nlaunch = mpiexec\ncommand = "
                   "\\\"%s/tests/fault/fake_train\\\" --config {config} --events {folder}/events "
                   "--step-ms 100\n",
                   build);
    struct fixture f;
    struct conf *conf = NULL;
    struct err e = {0};
    char id[32];
    json_t *c = NULL;

    (void)state;
    assert_int_equal(conf_parse(&conf, text, "test.conf", &e), 0);
    fixture_open(&f, "gone", "");
    f.config.conf = conf;
    fixture_reopen(&f);
    fixture_create(&f, id,
                   CAMPAIGN("'budget': {'trials': 2}, 'trainer': 'other', 'trial': "
                            "{'min_steps': 8, 'max_steps': 8}"));
    fixture_run_until_trial(&f, id, 1, "running");
    f.config.conf = NULL; /* the administrator took the trainer away */
    fixture_reopen(&f);
    assert_int_equal(fixture_processes(&f), 0);
    assert_int_equal(tn_campaign_get(&c, f.svc, id, &e), 0);
    assert_string_equal(text_at(c, "state"), "paused");
    assert_non_null(strstr(text_at(c, "reason"), "unknown trainer \"other\""));
    json_decref(c);
    fixture_expect_trial(&f, id, 1, "queued", 0);
    assert_int_equal(tn_campaign_resume(&c, f.svc, id, &e), -ESTALE);
    f.config.conf = conf;
    fixture_reopen(&f);
    assert_int_equal(tn_campaign_resume(&c, f.svc, id, &e), 0);
    json_decref(c);
    c = fixture_wait(&f, id, "done");
    assert_int_equal(number_at(c, "progress", "trials"), 2);
    json_decref(c);
    fixture_expect_trial(&f, id, 1, "ok", 0);
    fixture_close(&f);
    conf_free(conf);
}

static void verification_interleaves_runs_and_gives_an_interval(void **state)
{
    static const struct {
        const char *fault, *verdict;
    } rows[] = {
        {"", "holds"},
        {"--fault turned", "does not hold"},
        {"--fault noisy", "within noise"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fixture f;
        char id[32];
        struct err e = {0};
        AUTO_JSON *body = unit_json("{'pairs': 3, 'steps': 3}");
        json_t *c, *v, *t;

        fixture_open(&f, "verify", rows[i].fault);
        fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 5}"));
        json_decref(fixture_wait(&f, id, "done"));
        assert_int_equal(tn_campaign_verify(&c, f.svc, id, body, &e), 0);
        assert_string_equal(text_at(c, "state"), "verifying");
        json_decref(c);
        c = fixture_wait(&f, id, "done");
        v = json_object_get(c, "verify");
        assert_string_equal(text_at(v, "state"), "done");
        if (strcmp(text_at(v, "verdict"), rows[i].verdict))
            fail_msg("`%s` gave %s", rows[i].fault, text_at(v, "verdict"));
        assert_int_equal(json_array_size(json_object_get(v, "ratios")), 3);
        assert_int_equal(json_integer_value(json_object_get(v, "pairs")), 3);
        assert_true(json_number_value(json_object_get(v, "lo")) <=
                    json_number_value(json_object_get(v, "ratio")));
        assert_true(json_number_value(json_object_get(v, "ratio")) <=
                    json_number_value(json_object_get(v, "hi")));
        assert_true(number_at(v, "prediction", "lo") <= number_at(v, "prediction", "tokens_per_s"));
        assert_true(number_at(v, "prediction", "tokens_per_s") <= number_at(v, "prediction", "hi"));
        t = fixture_trial(&f, id, 6);
        assert_string_equal(text_at(t, "kind"), "verify");
        json_decref(t);
        /* verification is not part of the budget */
        assert_int_equal(number_at(c, "progress", "trials"), 5);
        json_decref(c);
        fixture_close(&f);
    }
}

/* Where the winner is the baseline there is nothing to compare: it runs as often as there were to
 * be pairs, for what to expect of it. */
static void a_baseline_that_won_is_not_compared_with_itself(void **state)
{
    struct fixture f;
    char id[32];
    struct err e = {0};
    AUTO_JSON *body = unit_json("{'pairs': 3, 'steps': 3}");
    json_t *c, *v, *t;

    (void)state;
    fixture_open(&f, "same", "");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 1}"));
    json_decref(fixture_wait(&f, id, "done"));
    assert_int_equal(tn_campaign_verify(&c, f.svc, id, body, &e), 0);
    json_decref(c);
    c = fixture_wait(&f, id, "done");
    v = json_object_get(c, "verify");
    assert_string_equal(text_at(v, "state"), "done");
    assert_string_equal(text_at(v, "verdict"), "same");
    assert_int_equal(json_integer_value(json_object_get(v, "done")), 3);
    assert_int_equal(json_array_size(json_object_get(v, "ratios")), 0);
    assert_true(json_is_null(json_object_get(v, "ratio")));
    assert_true(json_is_null(json_object_get(v, "lo")) && json_is_null(json_object_get(v, "hi")));
    assert_true(number_at(v, "prediction", "lo") <= number_at(v, "prediction", "tokens_per_s"));
    assert_true(number_at(v, "prediction", "tokens_per_s") <= number_at(v, "prediction", "hi"));
    t = fixture_trial(&f, id, 4);
    assert_string_equal(text_at(t, "kind"), "verify");
    assert_string_equal(text_at(t, "why"), "verification of the winner, which is the baseline");
    json_decref(t);
    assert_int_equal(tn_trial_get(&t, f.svc, id, 5, &e), -ENOENT); /* three runs, not six */
    json_decref(c);
    fixture_close(&f);
}

/* What was projected is compared with what a later campaign measures, and only with that. */
static void a_projection_is_judged_by_later_trials(void **state)
{
    struct fixture f;
    char id[32], again[32];
    struct err e = {0};
    json_t *c, *first, *second, *row;
    size_t i;

    (void)state;
    fixture_open(&f, "project", "");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 5}"));
    json_decref(fixture_wait(&f, id, "done"));
    AUTO_JSON *body = json_pack("{s:s, s:[i, i, i]}", "campaign", id, "devices", 1, 2, 7);
    if (tn_project(&first, f.svc, body, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(first, "calibration"), "trials")), 5);
    assert_int_equal(json_array_size(json_object_get(first, "earlier")), 0);
    row = json_array_get(json_object_get(first, "rows"), 1);
    assert_true(json_number_value(json_object_get(row, "lo")) <
                json_number_value(json_object_get(row, "tokens_per_s")));
    assert_true(json_number_value(json_object_get(row, "tokens_per_s")) <
                json_number_value(json_object_get(row, "hi")));
    row = json_array_get(json_object_get(first, "rows"), 2); /* 7 devices divide nothing */
    assert_true(json_is_null(json_object_get(row, "tokens_per_s")));
    assert_non_null(json_string_value(json_object_get(row, "reason")));
    assert_int_equal(tn_project_keep(f.svc, first, &e), 0);
    if (tn_project(&second, f.svc, body, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(json_array_size(json_object_get(second, "earlier")), 0); /* nothing is new */
    json_decref(second);
    /* What is said of another kind of device is no claim about this one, nor is this one's rate
     * what those are measured by. */
    json_object_set_new(body, "cluster",
                        json_pack("{s:s, s:i}", "profile", "dgx-a100", "nodes", 1));
    if (tn_project(&second, f.svc, body, &e) < 0)
        fail_msg("%s", e.text);
    json_array_foreach(json_object_get(second, "rows"), i, row)
        if (json_is_number(json_object_get(row, "tokens_per_s")))
            break;
    assert_non_null(row);
    assert_true(json_number_value(json_object_get(row, "efficiency")) == 1);
    assert_int_equal(tn_project_keep(f.svc, second, &e), 0);
    json_decref(second);
    json_object_del(body, "cluster");
    fixture_create(&f, again, CAMPAIGN("'budget': {'trials': 30}"));
    c = fixture_wait(&f, again, "done");
    if (tn_project(&second, f.svc, body, &e) < 0)
        fail_msg("%s", e.text);
    json_array_foreach(json_object_get(second, "earlier"), i, row) {
        json_t *said =
            json_array_get(json_object_get(first, "rows"),
                           (size_t)json_integer_value(json_object_get(row, "devices")) - 1);

        assert_true(fabs(json_number_value(json_object_get(row, "projected")) /
                             json_number_value(json_object_get(said, "tokens_per_s")) -
                         1) < 1e-9);
    }
    row = json_array_get(json_object_get(second, "earlier"), 0);
    assert_non_null(row);
    assert_string_equal(text_at(row, "measured_by"), again);
    assert_true(fabs(json_number_value(json_object_get(row, "error")) -
                     (json_number_value(json_object_get(row, "projected")) /
                          json_number_value(json_object_get(row, "measured")) -
                      1)) < 1e-9);
    json_decref(first);
    json_decref(second);
    json_decref(c);
    fixture_close(&f);
}

/* Step time of the stand-alone program is 10 ms / (1 + 0.2 log2(mb)) x (1 + 0.3 log2(tp)); for the
 * baseline (micro_batch 1) it says 10 ms, 512 tokens: 51,200 tokens/s, whatever the log looks like.
 * torchtitan rounds tokens/s of a device. */
static void logs_of_other_trainers_are_read(void **state)
{
    static const char *const parsers[] = {"megatron", "torchtitan", "deepspeed"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(parsers); i++) {
        const char *build = getenv("PT_BUILD") ? getenv("PT_BUILD") : ".";
        AUTO_FREE char *text =
            mem_printf("[trainer \"other\"]\nparser = %s\nlog = %s\ncommand = "
                       "\\\"%s/tests/fault/fake_train\\\" "
                       "--log %s --config {config} --events {folder}/unused --step-ms 10 tp{tp}\n",
                       parsers[i], i == 1 ? "stderr" : "stdout", build, parsers[i]);
        struct fixture f;
        struct conf *conf = NULL;
        struct err e = {0};
        char id[32];
        json_t *c, *t;

        if (conf_parse(&conf, text, "test.conf", &e) < 0)
            fail_msg("%s", e.text);
        fixture_open(&f, parsers[i], "");
        f.config.conf = conf;
        fixture_reopen(&f);
        fixture_create(
            &f, id, CAMPAIGN("'budget': {'trials': 1}, 'trainer': 'other', 'baseline': 'naive'"));
        c = fixture_wait(&f, id, "done");
        t = fixture_trial(&f, id, 1);
        assert_string_equal(text_at(t, "state"), "ok");
        assert_true(fabs(json_number_value(json_object_get(t, "tokens_per_s")) / 51200 - 1) < 1e-3);
        assert_int_equal(fixture_processes(&f), 0);
        json_decref(t);
        json_decref(c);
        fixture_close(&f);
        conf_free(conf);
    }
}

/* CAMPAIGN on devices of 1e-5 TFLOP/s in PRECISION, a thousandth of what the stand-alone program
 * says: 51,200 tokens/s, a step of 512 tokens each 10 ms. Other peaks are unknown. */
static void create_on_slow_devices(struct fixture *f, char id[32], const char *precision,
                                   int trials)
{
    static const char text[] = CAMPAIGN("'trainer': 'partune'"), peak[] = "{'fp32': 0.1}";
    const char *at = strstr(text, peak);
    AUTO_FREE char *slow =
        mem_printf("%.*s{'%s': 1e-5}%.*s, 'budget': {'trials': %d}, 'workload': {'global_batch': "
                   "8, 'seq': 64, 'precision': 'fp32'}}",
                   (int)(at - text), text, precision, (int)strlen(at + strlen(peak)) - 1,
                   at + strlen(peak), trials);

    fixture_create(f, id, slow);
}

/* A log whose numbers no machine reaches: the trial runs to its end and is not counted. */
static void a_rate_above_the_peak_is_a_warning_and_no_result(void **state)
{
    struct fixture f;
    struct err e = {0};
    char id[32];
    json_t *c, *t, *v = NULL;
    const char *warning;

    (void)state;
    fixture_open(&f, "implausible", "--step-ms 10");
    create_on_slow_devices(&f, id, "fp32", 2);
    c = fixture_wait(&f, id, "done");
    assert_true(json_is_null(json_object_get(c, "best")));
    assert_true(json_is_null(json_object_get(c, "baseline")));
    json_decref(c);
    for (int n = 1; n <= 2; n++) {
        t = fixture_trial(&f, id, n);
        warning = text_at(t, "warning");
        assert_string_equal(text_at(t, "state"), "implausible");
        assert_true(json_is_null(json_object_get(t, "tokens_per_s")));
        assert_true(json_is_null(json_object_get(t, "failure")));
        assert_non_null(strstr(warning, " tokens/s are "));
        assert_non_null(strstr(warning, " % MFU, "));
        assert_non_null(strstr(warning, "above its fp32 peak of 1e-05"));
        assert_non_null(strstr(warning, "Likely causes: "));
        json_decref(t);
    }
    assert_int_equal(tn_pareto(&v, f.svc, id, &e), 0);
    assert_int_equal(json_array_size(v), 0);
    json_decref(v);
    assert_int_equal(tn_predictions(&v, f.svc, id, &e), 0);
    assert_int_equal(json_array_size(v), 0);
    json_decref(v);
    assert_int_equal(tn_best(&v, f.svc, id, &e), -ENOENT);
    assert_int_equal(fixture_processes(&f), 0);
    fixture_close(&f);
}

/* What something else slows is measured again, but not for ever. */
static void a_third_disturbed_attempt_counts_with_a_warning(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c, *t;

    (void)state;
    fixture_open(&f, "disturbed", "--fault disturbed");
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 1}"));
    c = fixture_wait(&f, id, "done");
    t = fixture_trial(&f, id, 1);
    assert_string_equal(text_at(t, "state"), "ok");
    assert_string_equal(text_at(t, "warning"), "it was hot");
    assert_true(json_is_null(json_object_get(t, "failure")));
    assert_int_equal(json_integer_value(json_object_get(t, "attempts")), 3);
    assert_true(json_number_value(json_object_get(t, "tokens_per_s")) > 0);
    assert_false(json_is_null(json_object_get(c, "best")));
    json_decref(t);
    json_decref(c);
    fixture_close(&f);
}

/* The peak that counts is that of the layout's precision: of another one it says nothing. */
static void a_rate_is_plausible_where_the_peak_is_unknown(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c, *t;

    (void)state;
    fixture_open(&f, "unknown-peak", "--step-ms 10");
    create_on_slow_devices(&f, id, "bf16", 1);
    c = fixture_wait(&f, id, "done");
    t = fixture_trial(&f, id, 1);
    assert_string_equal(text_at(t, "state"), "ok");
    assert_true(json_is_null(json_object_get(t, "warning")));
    assert_true(json_is_null(json_object_get(t, "mfu")));
    json_decref(t);
    json_decref(c);
    fixture_close(&f);
}

static void a_campaign_of_nothing_but_implausible_trials_pauses(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c;

    (void)state;
    fixture_open(&f, "all-implausible", "--step-ms 10");
    create_on_slow_devices(&f, id, "fp32", 20);
    c = fixture_wait(&f, id, "paused");
    assert_non_null(strstr(text_at(c, "reason"), "implausible: "));
    json_decref(c);
    fixture_close(&f);
}

static void a_large_cluster_can_be_simulated(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c;

    (void)state;
    fixture_open(&f, "simulated", "");
    fixture_create(&f, id,
                   "{'name': 'large', 'model': 'gpt-22B', 'cluster': {'profile': 'dgx-a100', "
                   "'nodes': 8}, 'trainer': 'megatron',"
                   " 'workload': {'global_batch': 64}, 'launcher': {'kind': 'simulated', 'speed': "
                   "1000000}, 'budget':"
                   " {'trials': 8}, 'space': {'precision': ['bf16']}, 'trial': {'warmup_steps': 1, "
                   "'min_steps': 5}}");
    c = fixture_wait(&f, id, "done");
    assert_int_equal(number_at(c, "progress", "trials"), 8);
    assert_true(number_at(c, "best", "ratio") >= 1.0);
    json_decref(c);
    fixture_close(&f);
}

static void two_services_cannot_share_a_directory(void **state)
{
    struct fixture f;
    struct tn_service *second = NULL;
    struct err e = {0};

    (void)state;
    fixture_open(&f, "lock", "");
    assert_int_equal(tn_service_open(&second, &f.loop, &f.config, &e), -EBUSY);
    assert_non_null(strstr(e.text, "another partuned (pid "));
    fixture_close(&f);
}

static void a_campaign_without_mpiexec_pauses_and_loses_nothing(void **state)
{
    struct fixture f;
    char id[32];
    json_t *c;

    (void)state;
    fixture_open(&f, "nompi", "");
    f.config.mpiexec = "/nonexistent/mpiexec";
    fixture_reopen(&f);
    fixture_create(&f, id, CAMPAIGN("'budget': {'trials': 1}"));
    c = fixture_wait(&f, id, "paused");
    assert_non_null(strstr(text_at(c, "reason"), "mpiexec was not found"));
    json_decref(c);
    f.config.mpiexec = NULL;
    fixture_reopen(&f);
    {
        struct err e = {0};

        assert_int_equal(tn_campaign_resume(&c, f.svc, id, &e), 0);
        json_decref(c);
    }
    json_decref(fixture_wait(&f, id, "done"));
    fixture_close(&f);
}

static void bad_campaigns_are_refused_with_the_field(void **state)
{
    static const struct {
        const char *body, *pointer;
    } cases[] = {
        {"{}", "/model"},
        {CAMPAIGN("'notes': 7"), "/notes"},
        {CAMPAIGN("'budgets': {}"), "/budgets"},
        {CAMPAIGN("'budget': {'trials': 0}"), "/budget/trials"},
        {CAMPAIGN("'workload': {'global_batch': 8, 'seq': 64, 'data': 'nowhere'}"),
         "/workload/data"},
        {CAMPAIGN("'trial': {'min_steps': 9, 'max_steps': 3}"), "/trial/max_steps"},
        {CAMPAIGN("'trial': {'min_steps': 1}"), "/trial/min_steps"},
        {CAMPAIGN("'launcher': {'kind': 'rocket'}"), "/launcher/kind"},
        {CAMPAIGN("'trainer': 'nobody'"), "/trainer"},
        {CAMPAIGN("'space': {'tp': [64]}"), "/space"},
        {CAMPAIGN("'tags': [1]"), "/tags"},
    };
    struct fixture f;

    (void)state;
    fixture_open(&f, "refuse", "");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_JSON *body = fixture_body(cases[i].body);
        struct tn_draft *d = NULL;
        struct err e = {0};

        assert_int_equal(tn_campaign_check(&d, NULL, f.svc, body, NULL, &e), -EINVAL);
        if (strncmp(e.pointer, cases[i].pointer, strlen(cases[i].pointer)) != 0)
            fail_msg("%s: pointer %s, %s", cases[i].body, e.pointer, e.text);
    }
    assert_int_equal(db_count(tn_db(f.svc), "campaign"), 0);
    fixture_close(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_campaign_runs_to_its_budget),
    cmocka_unit_test(each_outcome_is_recognized),
    cmocka_unit_test(a_slow_trial_times_out_and_bounds_its_throughput),
    cmocka_unit_test(a_silent_trial_is_a_hang_and_is_tried_once_more),
    cmocka_unit_test(a_fault_of_the_data_pauses_and_resume_tries_again),
    cmocka_unit_test(a_campaign_in_which_everything_crashes_pauses),
    cmocka_unit_test(canceling_kills_even_what_ignores_term),
    cmocka_unit_test(pausing_lets_the_running_trial_finish),
    cmocka_unit_test(an_open_trial_is_adopted_by_the_next_service),
    cmocka_unit_test(a_campaign_that_cannot_be_brought_back_leaves_nothing_running),
    cmocka_unit_test(verification_interleaves_runs_and_gives_an_interval),
    cmocka_unit_test(a_baseline_that_won_is_not_compared_with_itself),
    cmocka_unit_test(a_projection_is_judged_by_later_trials),
    cmocka_unit_test(logs_of_other_trainers_are_read),
    cmocka_unit_test(a_rate_above_the_peak_is_a_warning_and_no_result),
    cmocka_unit_test(a_third_disturbed_attempt_counts_with_a_warning),
    cmocka_unit_test(a_rate_is_plausible_where_the_peak_is_unknown),
    cmocka_unit_test(a_campaign_of_nothing_but_implausible_trials_pauses),
    cmocka_unit_test(a_large_cluster_can_be_simulated),
    cmocka_unit_test(two_services_cannot_share_a_directory),
    cmocka_unit_test(a_campaign_without_mpiexec_pauses_and_loses_nothing),
    cmocka_unit_test(bad_campaigns_are_refused_with_the_field),
};

UNIT_MAIN(tests)
