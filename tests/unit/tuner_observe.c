/* The daemon's end of the event file, the supervisor's files, and the arithmetic of verification.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <sys/wait.h>

#include "search/search.h"
#include "tuner/core/verify.h"
#include "tuner/machine/proc.h"
#include "tuner/machine/gpu_slots.h"
#include "tuner/machine/slots.h"
#include "tuner/output/observe.h"
#include "tuner/results/view.h"

/* ---- lines of a growing file --------------------------------------------- */

struct lines {
    struct str text;
    int count;
    int64_t end;
};

static void keep(void *ctx, const char *text, size_t n, int64_t end)
{
    struct lines *l = ctx;

    str_addn(&l->text, text, n);
    str_addc(&l->text, '|');
    l->count++;
    l->end = end;
}

static void a_torn_line_waits_for_its_end(void **state)
{
    AUTO_FREE char *folder = unit_folder("reader");
    AUTO_FREE char *path = mem_printf("%s/events", folder);
    const char *whole = "{\"a\":1}\n\n{\"b\":2}\nlast";
    struct tn_reader r;
    struct lines l = {0};
    FILE *f;

    (void)state;
    tn_reader_init(&r);
    assert_false(tn_reader_poll(&r, path, 1 << 20, keep, &l)); /* not there yet */
    f = fopen(path, "a");
    for (const char *p = whole; *p; p++) {
        fputc(*p, f);
        fflush(f);
        tn_reader_poll(&r, path, 1 << 20, keep, &l);
    }
    assert_string_equal(l.text.text, "{\"a\":1}||{\"b\":2}|");
    assert_int_equal(l.end, 17);
    fclose(f);
    str_done(&l.text);
    tn_reader_done(&r);
    file_remove_tree(folder, NULL);
}

static void a_line_without_an_end_is_skipped_in_bounded_memory(void **state)
{
    AUTO_FREE char *folder = unit_folder("long");
    AUTO_FREE char *path = mem_printf("%s/events", folder);
    struct tn_reader r;
    struct lines l = {0};
    FILE *f = fopen(path, "w");

    (void)state;
    fputs("first\n", f);
    for (int i = 0; i < 4 << 20; i++)
        fputc('x', f);
    fputs("\nlast\n", f);
    fclose(f);
    tn_reader_init(&r);
    while (tn_reader_poll(&r, path, 1 << 16, keep, &l))
        ;
    assert_string_equal(l.text.text, "first|last|");
    assert_true(r.cap <= 4 * TN_MAX_LINE);
    str_done(&l.text);
    tn_reader_done(&r);
    file_remove_tree(folder, NULL);
}

static void reading_continues_at_an_offset(void **state)
{
    AUTO_FREE char *folder = unit_folder("offset");
    AUTO_FREE char *path = mem_printf("%s/events", folder);
    struct tn_reader r;
    struct lines l = {0};
    struct err e;

    (void)state;
    file_write_atomic(path, "one\ntwo\nthree\n", 14, 0600, &e);
    tn_reader_init(&r);
    r.offset = 4;
    tn_reader_poll(&r, path, 1 << 20, keep, &l);
    assert_string_equal(l.text.text, "two|three|");
    assert_int_equal(l.end, 14);
    str_done(&l.text);
    tn_reader_done(&r);
    file_remove_tree(folder, NULL);
}

/* ---- the golden files that the trainer writes in its own tests ----------- */

static void see(struct tn_seen *s, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/tests/data/protocol/%s", getenv("PT_SRC"), name);
    AUTO_FREE char *text = NULL;
    char *save = NULL;
    struct err e = {0};

    tn_seen_init(s);
    if (file_read_all(&text, NULL, path, 1 << 20, &e) < 0)
        fail_msg("%s", e.text);
    for (char *p = strtok_r(text, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
        int64_t n;
        double ms;

        assert_true((tn_observe(&n, &ms, s, p, strlen(p)) == TN_LINE_NOTHING) ==
                    (strstr(p, "\"event\":\"hang\"") != NULL));
    }
}

/* Energy is of steps and never 0: what else a summary says is not a measurement. */
static void joules_that_cannot_be_are_unknown(void **state)
{
    static const char *const texts[] = {"",
                                        ",\"joules\":null",
                                        ",\"joules\":0",
                                        ",\"joules\":-5",
                                        ",\"joules\":\"5\"",
                                        ",\"joules\":5,\"steps\":0",
                                        ",\"joules\":5,\"steps\":null"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        AUTO_FREE char *line =
            mem_printf("{\"v\":1,\"event\":\"summary\",\"t\":1,\"tokens_per_s\":9%s%s}",
                       strstr(texts[i], "steps") ? "" : ",\"steps\":4", texts[i]);
        struct tn_seen s;
        int64_t n;
        double ms;

        tn_seen_init(&s);
        assert_int_equal(tn_observe(&n, &ms, &s, line, strlen(line)), TN_LINE_OTHER);
        assert_true(s.summary && isnan(s.joules_per_step));
        tn_seen_done(&s);
    }
}

static void the_golden_files_are_understood(void **state)
{
    struct tn_seen s;

    (void)state;
    see(&s, "ok.jsonl");
    assert_true(s.hello && s.summary && !s.error && s.steps > 0 && s.measured == s.steps - 1);
    assert_true(s.tokens_per_s > 0 && s.ms_median > 0 && s.planned && s.reached &&
                s.phase_ms[0] > 0);
    assert_true(s.imbalance == 1.3125);
    assert_true(s.joules_per_step == 2048.5 / 2);
    tn_seen_done(&s);
    see(&s, "oom.jsonl");
    assert_true(isnan(s.imbalance) && s.error && !s.summary && s.planned && s.error_rank == 1);
    assert_string_equal(s.error_class, "oom");
    tn_seen_done(&s);
    see(&s, "illegal.jsonl");
    assert_string_equal(s.error_class, "illegal");
    assert_int_equal(s.error_rank, -1);
    tn_seen_done(&s);
    see(&s, "numeric.jsonl");
    assert_string_equal(s.error_class, "numeric");
    tn_seen_done(&s);
    see(&s, "hang.jsonl");
    assert_string_equal(s.hang, "no progress for 10.2 s: rank 1 on node-b stopped by a signal");
    assert_true(s.steps == 1 && !s.error);
    tn_seen_done(&s);
    see(&s, "stopped.jsonl");
    assert_string_equal(s.hang, "");
    assert_true(s.stopped && !s.summary && !s.error);
    tn_seen_done(&s);
}

static void a_program_may_say_that_it_ends_itself(void **state)
{
    static const char *const hello[] = {
        "{\"v\":1,\"event\":\"hello\"}",
        "{\"v\":1,\"event\":\"hello\",\"ends_itself\":1}",
        "{\"v\":1,\"event\":\"hello\",\"ends_itself\":true}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hello); i++) {
        struct tn_seen s;
        int64_t n;
        double ms;

        tn_seen_init(&s);
        assert_int_equal(tn_observe(&n, &ms, &s, hello[i], strlen(hello[i])), TN_LINE_OTHER);
        assert_true(s.hello);
        assert_int_equal(s.ends_itself, i == 2);
        tn_seen_done(&s);
    }
}

static void foreign_lines_decide_nothing(void **state)
{
    static const char *const lines[] = {
        "",
        "{}",
        "[1]",
        "null",
        "{\"v\":2,\"event\":\"summary\",\"tokens_per_s\":5}",
        "{\"v\":1,\"event\":7}",
        "{\"v\":1,\"event\":\"step\"}",
        "{\"v\":1,\"event\":\"step\",\"n\":-1,\"ms\":5}",
        "{\"v\":1,\"event\":\"step\",\"n\":1,\"ms\":null}",
        "{\"v\":1,\"event\":\"step\",\"n\":1,\"ms\":1",
        "\xff\xfe",
    };
    struct tn_seen s;
    int64_t n;
    double ms;

    (void)state;
    tn_seen_init(&s);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        assert_int_equal(tn_observe(&n, &ms, &s, lines[i], strlen(lines[i])), TN_LINE_NOTHING);
    tn_observe(&n, &ms, &s, "{\"v\":1,\"event\":\"summary\",\"tokens_per_s\":-5}", 43);
    assert_true(!s.summary && s.steps == 0);
    tn_seen_done(&s);
}

static void the_first_error_is_the_cause(void **state)
{
    static const char *const lines[] = {
        "{\"v\":1,\"event\":\"error\",\"class\":\"oom\",\"rank\":1,\"detail\":\"a\"}",
        "{\"v\":1,\"event\":\"error\",\"class\":\"comm\",\"rank\":0,\"detail\":\"b\"}"};
    struct tn_seen s;
    int64_t n;
    double ms;

    (void)state;
    tn_seen_init(&s);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        tn_observe(&n, &ms, &s, lines[i], strlen(lines[i]));
    assert_string_equal(s.error_class, "oom");
    tn_seen_done(&s);
}

/* ---- processes ----------------------------------------------------------- */

static void an_attempt_is_claimed_once(void **state)
{
    AUTO_FREE char *folder = unit_folder("claim");
    struct tn_proc self, other;
    struct err e;

    (void)state;
    assert_int_equal(tn_proc_of(&self, getpid()), 0);
    assert_int_equal(tn_run_read(&other, folder, &e), -ENOENT);
    assert_int_equal(tn_run_claim(folder, &self, "m", &e), 0);
    assert_int_equal(tn_run_claim(folder, NULL, "m", &e), -EEXIST);
    assert_int_equal(tn_run_read(&other, folder, &e), 0);
    assert_true(tn_proc_alive(&other) && other.pid == getpid());
    other.start++; /* the same pid, used again */
    assert_false(tn_proc_alive(&other));
    file_remove_tree(folder, NULL);
}

static void a_zombie_does_not_live(void **state)
{
    struct tn_proc p;
    pid_t child = fork();

    (void)state;
    if (child == 0)
        _exit(0);
    for (int i = 0; i < 1000 && tn_proc_of(&p, child) == 0; i++)
        usleep(1000);
    assert_int_equal(tn_proc_of(&p, child), -ESRCH);
    waitpid(child, NULL, 0);
}

static void a_damaged_exit_file_counts_as_missing(void **state)
{
    AUTO_FREE char *folder = unit_folder("exit");
    AUTO_FREE char *path = mem_printf("%s/%s", folder, TN_EXIT_FILE);
    struct tn_exit x = {.code = 3, .stopped = true, .ended = 7}, y;
    struct err e;

    (void)state;
    tn_exit_read(&y, folder);
    assert_false(y.known);
    assert_int_equal(tn_exit_write(folder, &x, &e), 0);
    tn_exit_read(&y, folder);
    assert_true(y.known && y.code == 3 && y.stopped && y.ended == 7);
    file_write_atomic(path, "{\"v\":1,\"code\":", 14, 0600, &e);
    tn_exit_read(&y, folder);
    assert_false(y.known);
    file_remove_tree(folder, NULL);
}

/* ---- cores --------------------------------------------------------------- */

static void cores_belong_to_one_trial_at_a_time(void **state)
{
    struct tn_slots s = {.core = {4, 5, 6, 7}, .count = 4, .free = 4};
    int a[4], b[4], c[4];

    (void)state;
    assert_true(tn_slots_take(a, &s, 1));
    assert_true(tn_slots_take(b, &s, 2));
    assert_false(tn_slots_take(c, &s, 2));
    assert_true(a[0] == 4 && b[0] == 5 && b[1] == 6 && s.free == 1);
    tn_slots_give(&s, a, 1);
    assert_true(tn_slots_take(c, &s, 2)); /* no neighbors are left: any will do */
    assert_int_equal(s.free, 0);
    tn_slots_give(&s, b, 2);
    tn_slots_give(&s, b, 2); /* giving twice does no harm */
    assert_int_equal(s.free, 2);
}

static void gpus_that_are_not_counted_are_held_by_one_trial(void **state)
{
    struct tn_gpu_slots gpus = {.one = true};
    struct tn_gpus_held a, b;
    char text[64];

    (void)state;
    assert_true(tn_gpu_slots_take(&a, &gpus, 2));
    assert_false(tn_gpu_slots_take(&b, &gpus, 1));
    assert_string_equal(tn_gpus_held_text(text, sizeof(text), &gpus, &a), "all");
    tn_gpu_slots_give(&gpus, &a);
    assert_null(tn_gpus_held_text(text, sizeof(text), &gpus, &a));
    tn_gpus_held_parse(&b, &gpus, "all");
    tn_gpu_slots_take_held(&gpus, &b); /* adopted */
    assert_false(tn_gpu_slots_take(&a, &gpus, 1));
    gpus = (struct tn_gpu_slots){0}; /* a machine without any */
    assert_true(tn_gpu_slots_take(&a, &gpus, 2) && tn_gpu_slots_take(&b, &gpus, 2));
}

static void what_holds_gpus_is_read_as_it_was_written(void **state)
{
    static const char *const texts[] = {"0,2", "7", "all",   "MIG-1", "MIG-2,MIG-1",
                                        NULL,  "x", "MIG-9", "1-"};
    struct tn_gpu_slots gpus = {.instance = {"MIG-1", "MIG-2"}, .instances = 2};
    struct tn_gpus_held held;
    char text[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *back;

        tn_gpus_held_parse(&held, &gpus, texts[i]);
        back = tn_gpus_held_text(text, sizeof(text), &gpus, &held);
        if (i < 5)
            assert_string_equal(back, texts[i]);
        else
            assert_null(back);
    }
}

static void core_lists_are_read_and_refused(void **state)
{
    int cpus[8];
    char buf[64];

    (void)state;
    assert_int_equal(tn_cpus_parse(cpus, 8, "0,2-4"), 4);
    assert_int_equal(cpus[3], 4);
    assert_string_equal(tn_cpus_text(buf, sizeof(buf), cpus, 4), "0,2,3,4");
    assert_int_equal(tn_cpus_parse(cpus, 8, "3-1"), -EINVAL);
    assert_int_equal(tn_cpus_parse(cpus, 8, "a"), -EINVAL);
    assert_int_equal(tn_cpus_parse(cpus, 8, "0-99"), -EINVAL);
}

/* ---- verification -------------------------------------------------------- */

/* Abramowitz and Stegun, table 26.10 (two-sided 0.05); the expansion beyond 30 degrees is good to
 * its last digit. */
static void students_t_is_that_of_the_tables(void **state)
{
    (void)state;
    assert_true(fabs(se_student_975(1) - 12.706) < 5e-4);
    assert_true(fabs(se_student_975(4) - 2.776) < 5e-4);
    assert_true(fabs(se_student_975(40) - 2.021) < 1e-3);
    assert_true(fabs(se_student_975(60) - 2.000) < 1e-3);
    assert_true(fabs(se_student_975(120) - 1.980) < 1e-3);
    assert_true(isinf(se_student_975(0)));
}

/* By hand: logs of 1, 2, 4 are 0, l, 2l with l = ln 2; mean l, s = l, half-width 4.303 l / sqrt 3.
 */
static void the_interval_of_a_ratio_is_that_of_its_logarithms(void **state)
{
    const double ratio[] = {1, 2, 4};
    double mean, lo, hi, half = 4.303 * log(2) / sqrt(3);

    (void)state;
    tn_ratio_interval(&mean, &lo, &hi, ratio, 3);
    assert_true(fabs(mean - 2) < 1e-12);
    assert_true(fabs(log(hi) - (log(2) + half)) < 1e-12);
    assert_true(fabs(log(lo) - (log(2) - half)) < 1e-12);
    tn_ratio_interval(&mean, &lo, &hi, ratio, 1);
    assert_true(mean == 1 && lo == 0 && isinf(hi));
    /* One more run scatters by itself as well: the variance is s^2 (1 + 1/3), not s^2 / 3. */
    tn_prediction_interval(&mean, &lo, &hi, ratio, 3);
    assert_true(fabs(mean - 2) < 1e-12);
    assert_true(fabs(log(hi) - (log(2) + 2 * half)) < 1e-12);
    assert_true(fabs(log(lo) - (log(2) - 2 * half)) < 1e-12);
}

static void verdicts_say_on_which_side_of_one_the_interval_lies(void **state)
{
    (void)state;
    assert_string_equal(tn_verdict(1.01, 1.2, false), "holds");
    assert_string_equal(tn_verdict(0.9, 0.99, false), "does not hold");
    assert_string_equal(tn_verdict(0.9, 1.1, false), "within noise");
    assert_string_equal(tn_verdict(1, 1.1, false), "within noise");
    assert_string_equal(tn_verdict(0.9, 1.1, true), "same");
}

static void a_trial_as_text_is_the_json_that_was_meant(void **state)
{
    struct db_trial t;
    AUTO_JSON *v = NULL;

    (void)state;
    db_trial_blank(&t);
    t.campaign = "c";
    t.n = 7;
    t.why = "say \"no\"\n\\ \xc3\xa9";
    t.layout = "{\"tp\":2}";
    t.phases = "{\"forward\":1"; /* cut */
    t.failure = "";
    t.layout_text = "\xff"; /* no UTF-8 */
    t.tokens_per_s = 12345;
    t.mfu = 0.1;
    t.imbalance = 1.25;
    t.tokens_per_joule = 0.75;
    v = tn_trial_view(&t, false);
    assert_true(json_is_object(v));
    assert_string_equal(json_string_value(json_object_get(v, "why")), t.why);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "layout"), "tp")), 2);
    assert_true(json_is_null(json_object_get(v, "phases_ms")));
    assert_true(json_is_null(json_object_get(v, "failure")));
    assert_true(json_is_null(json_object_get(v, "text")));
    assert_true(json_is_null(json_object_get(v, "ended")));
    assert_true(json_is_real(json_object_get(v, "tokens_per_s")));
    assert_true(json_real_value(json_object_get(v, "tokens_per_s")) == 12345);
    assert_true(json_real_value(json_object_get(v, "mfu")) == 0.1);
    assert_true(json_real_value(json_object_get(v, "expert_imbalance")) == 1.25);
    assert_true(json_real_value(json_object_get(v, "tokens_per_joule")) == 0.75);
    assert_true(json_is_null(json_object_get(v, "seconds")));
}

/* Numbers of every size, with few digits and with all: what is read is what was written. */
static void numbers_survive_as_text(void **state)
{
    static const double few[] = {0,
                                 -0.0,
                                 0.001,
                                 -0.001,
                                 0.0005,
                                 1e-300,
                                 1e300,
                                 1e15,
                                 1e16,
                                 1e17,
                                 -1e22,
                                 0x1p53,
                                 99.8,
                                 1.05,
                                 1.0005,
                                 1234.56,
                                 -0.5,
                                 1e12 + 0.25,
                                 9e12,
                                 9007199254740.993,
                                 -9007199254740.992};
    struct rng rng;

    (void)state;
    rng_seed(&rng, 5);
    for (int i = 0; i < 20000; i++) {
        AUTO_STR text = {0};
        AUTO_JSON *v = NULL;
        struct db_trial t;
        double digits = pow(10, (int)(rng_unit(&rng) * 8)),
               drawn = (rng_unit(&rng) - 0.3) * pow(10, rng_unit(&rng) * 24 - 8);

        db_trial_blank(&t);
        t.campaign = "c";
        t.n = i % 3 ? (int64_t)(drawn * 1e3) : -i;
        t.seconds = i < (int)ARRAY_LEN(few) ? few[i]
                    : i % 2                 ? drawn
                                            : round(drawn * digits) / digits;
        tn_trial_text(&text, &t, false);
        v = unit_json(str_text(&text));
        assert_true(json_is_real(json_object_get(v, "seconds")));
        if (json_real_value(json_object_get(v, "seconds")) != t.seconds)
            fail_msg("%.17g: %s", t.seconds, str_text(&text));
        assert_true(json_integer_value(json_object_get(v, "n")) == t.n);
    }
}

/* Earlier versions stored the simulator's plan as if it had been measured. */
static void memory_is_measured_of_real_trials_only(void **state)
{
    struct db_trial t;

    (void)state;
    db_trial_blank(&t);
    t.campaign = "c";
    t.memory_planned = t.memory_measured = "{\"total\":5}";
    for (int simulated = 0; simulated < 2; simulated++) {
        AUTO_JSON *v = tn_trial_view(&t, simulated);
        const json_t *memory = json_object_get(v, "memory");

        assert_int_equal(json_is_true(json_object_get(v, "simulated")), simulated);
        assert_int_equal(json_is_null(json_object_get(memory, "measured")), simulated);
        assert_true(json_is_object(json_object_get(memory, "planned")));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_torn_line_waits_for_its_end),
    cmocka_unit_test(a_line_without_an_end_is_skipped_in_bounded_memory),
    cmocka_unit_test(reading_continues_at_an_offset),
    cmocka_unit_test(the_golden_files_are_understood),
    cmocka_unit_test(joules_that_cannot_be_are_unknown),
    cmocka_unit_test(a_program_may_say_that_it_ends_itself),
    cmocka_unit_test(foreign_lines_decide_nothing),
    cmocka_unit_test(the_first_error_is_the_cause),
    cmocka_unit_test(an_attempt_is_claimed_once),
    cmocka_unit_test(a_zombie_does_not_live),
    cmocka_unit_test(a_damaged_exit_file_counts_as_missing),
    cmocka_unit_test(cores_belong_to_one_trial_at_a_time),
    cmocka_unit_test(gpus_that_are_not_counted_are_held_by_one_trial),
    cmocka_unit_test(what_holds_gpus_is_read_as_it_was_written),
    cmocka_unit_test(core_lists_are_read_and_refused),
    cmocka_unit_test(students_t_is_that_of_the_tables),
    cmocka_unit_test(the_interval_of_a_ratio_is_that_of_its_logarithms),
    cmocka_unit_test(a_trial_as_text_is_the_json_that_was_meant),
    cmocka_unit_test(numbers_survive_as_text),
    cmocka_unit_test(memory_is_measured_of_real_trials_only),
    cmocka_unit_test(verdicts_say_on_which_side_of_one_the_interval_lies),
};

UNIT_MAIN(tests)
