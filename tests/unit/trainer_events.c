/*
 * The event file: the very lines of tests/data/protocol/, which the daemon's tests read too, and
 * what happens when a number, a text or the disk is bad. With PT_UPDATE set the golden files are
 * written instead of compared.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>

#include "trainer/events.h"

static double stop_clock(void)
{
    static double t = 1772357400.25;

    return t += 0.5;
}

static struct tr_events *events_open(const char *path)
{
    struct tr_events *ev = NULL;
    struct err e = {0};

    if (tr_events_open(&ev, path, NULL, &e) < 0)
        fail_msg("%s", e.text);
    tr_events_clock(ev, stop_clock);
    return ev;
}

/* ---- the scenes ---------------------------------------------------------- */

static const struct pl_memory planned = {
    .bytes = {6400, 12800, 0, 25600, 102400, 1024, 8192, 2048}, .total = 158464, .rank = 1};
static const struct pl_memory reached = {
    .bytes = {6400, 12800, 0, 25600, 102400, 1024, 8192, 0}, .total = 156416, .rank = 1};

static void hello(struct tr_events *ev)
{
    static const char *const hosts[] = {"node-a", "node-b"}, *const binding[] = {"0", "1"};
    static struct pl_model m = {.name = "tiny-moe"};
    static struct pl_layout l = {.world = 2,
                                 .tp = 1,
                                 .cp = 1,
                                 .pp = 1,
                                 .vp = 1,
                                 .schedule = PL_1F1B,
                                 .ep = 2,
                                 .etp = 1,
                                 .dp = 2,
                                 .edp = 1,
                                 .micro_batch = 4,
                                 .threads = 1};
    static struct pl_workload w = {.global_batch = 16, .seq = 128, .data = "licences"};
    struct tr_hello h = {.program = "partune-train",
                         .version = "0.1.0",
                         .build = "gcc 12.2.0, avx512",
                         .model = &m,
                         .layout = &l,
                         .workload = &w,
                         .ranks = 2,
                         .host = hosts,
                         .nhosts = 2,
                         .device = "cpu",
                         .binding = binding};

    tr_event_hello(ev, &h);
}

static void step(struct tr_events *ev, int n, bool warmup, double ms, double loss)
{
    const double busy[] = {100.5, 104};
    struct tr_step s = {.n = n,
                        .warmup = warmup,
                        .ms = ms,
                        .tokens = 2048,
                        .loss = loss,
                        .aux_loss = 2.0625,
                        .z_loss = NAN,
                        .moe_z_loss = NAN,
                        .mtp_loss = NAN,
                        .grad_norm = 1.75,
                        .lr = 0.0003,
                        .phase_ms = {30.5, 61, 0, 0, 12.25, 0, 8.125, 4.5, 0.5},
                        .rank_ms_min = 100.5,
                        .rank_ms_median = 102.25,
                        .rank_ms_max = 104,
                        .slowest = 1,
                        .busy_ms = busy,
                        .ranks = 2};

    tr_event_step(ev, &s);
}

static void scene_ok(struct tr_events *ev)
{
    const double uneven[] = {1.5, 1.125};
    struct tr_summary s = {.steps = 2,
                           .warmup_steps = 1,
                           .tokens_per_s = 17526.25,
                           .tokens_per_s_se = 120.5,
                           .ms_median = 116.875,
                           .ms_p10 = 116.5,
                           .ms_p90 = 117.25,
                           .ms_ci95 = 0.75,
                           .planned = &planned,
                           .measured = &reached,
                           .resident_growth_bytes = 160000,
                           .joules = 2048.5,
                           .loss_first = 5.5625,
                           .loss_last = 5.25,
                           .imbalance = 1.3125,
                           .uneven = uneven,
                           .moe_layers = 2,
                           .ended = "ci"};

    hello(ev);
    tr_event_memory(ev, &planned, 1 << 30);
    step(ev, 1, true, 130.5, 5.5625);
    step(ev, 2, false, 116.5, 5.375);
    step(ev, 3, false, 117.25, 5.25);
    tr_event_validation(ev, 3, 5.3125, 8192);
    tr_event_checkpoint(ev, 3, "/data/run/step-00000003", 475392, 12.5, 2.5);
    tr_event_warning(ev, "straggler", "rank 1 is 1.4 times slower than the median");
    tr_event_summary(ev, &s);
}

static void scene_oom(struct tr_events *ev)
{
    hello(ev);
    tr_event_memory(ev, &planned, 100000);
    tr_event_oom(ev, 1, PL_MEM_ACTIVATIONS, 102400, 100000,
                 "rank 1: 100 KiB of activations do not fit into 97.7 KiB");
}

static void scene_illegal(struct tr_events *ev)
{
    tr_event_error(ev, TR_ERROR_ILLEGAL, -1,
                   "illegal layout: heads-tp: heads 8 is not a multiple of tp 3");
}

static void scene_numeric(struct tr_events *ev)
{
    hello(ev);
    step(ev, 1, false, 116.5, (double)NAN);
    tr_event_error(ev, TR_ERROR_NUMERIC, 0, "loss is not finite in step 1");
}

static void scene_stopped(struct tr_events *ev)
{
    hello(ev);
    step(ev, 1, true, 130.5, 5.5625);
    tr_event_checkpoint(ev, 1, "/data/run/step-00000001", 475392, 12.5, 2.5);
    tr_event_stopped(ev, 1, "SIGTERM");
}

static void scene_resumed(struct tr_events *ev)
{
    hello(ev);
    tr_event_resumed(ev, 1, "/data/run/step-00000001");
    step(ev, 2, true, 130.5, 5.375);
}

static void scene_hang(struct tr_events *ev)
{
    static const struct tr_stuck stuck = {.rank = 1,
                                          .host = "node-b",
                                          .state = "stopped by a signal",
                                          .phase = "ep",
                                          .operation = "all-to-all",
                                          .group = "ep",
                                          .step = 2,
                                          .seconds = 10.5};
    static const struct tr_hang_event hang = {
        .reason = "stopped",
        .detail = "no progress for 10.2 s: rank 1 on node-b stopped by a signal",
        .seconds = 10.25,
        .waiting = 1,
        .missing = &stuck,
        .nmissing = 1};

    hello(ev);
    step(ev, 1, true, 130.5, 5.5625);
    tr_event_hang(ev, &hang);
}

static const struct {
    const char *file;
    void (*play)(struct tr_events *ev);
} scenes[] = {
    {"ok.jsonl", scene_ok},           {"oom.jsonl", scene_oom},
    {"illegal.jsonl", scene_illegal}, {"numeric.jsonl", scene_numeric},
    {"stopped.jsonl", scene_stopped}, {"resumed.jsonl", scene_resumed},
    {"hang.jsonl", scene_hang},
};

/* What differs from run to run, or belongs to plan/, is no part of the comparison. */
static json_t *comparable(const char *line, size_t n)
{
    struct err e = {0};
    json_t *v = NULL;

    if (jx_parse(&v, line, n, &e) < 0)
        fail_msg("%.*s: %s", (int)n, line, e.text);
    json_object_del(v, "t");
    json_object_del(v, "pid");
    json_object_del(v, "layout");
    return v;
}

static void compare_lines(const char *got, const char *want, const char *file)
{
    int line = 1;

    for (; *got && *want; line++) {
        size_t g = strcspn(got, "\n"), w = strcspn(want, "\n");
        AUTO_JSON *a = comparable(got, g), *b = comparable(want, w);

        if (!json_equal(a, b))
            fail_msg("%s:%d:\n%.*s\n%.*s", file, line, (int)g, got, (int)w, want);
        assert_memory_equal(got, "{\"v\":1,\"event\":\"", 16);
        assert_int_equal(got[g], '\n');
        got += g + 1;
        want += w + 1;
    }
    if (*got || *want)
        fail_msg("%s has not as many lines", file);
}

static void the_lines_are_those_of_the_protocol(void **state)
{
    AUTO_FREE char *dir = unit_folder("events");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        AUTO_FREE char *golden =
            mem_printf("%s/tests/data/protocol/%s", getenv("PT_SRC"), scenes[i].file);
        AUTO_FREE char *path =
            getenv("PT_UPDATE") ? mem_strdup(golden) : mem_printf("%s/%s", dir, scenes[i].file);
        AUTO_FREE char *got = NULL, *want = NULL;
        struct err e = {0};

        if (getenv("PT_UPDATE"))
            unlink(path);
        {
            AUTO(tr_events) *ev = events_open(path);

            scenes[i].play(ev);
            assert_int_equal(tr_events_status(ev), 0);
        }
        if (file_read_all(&got, NULL, path, 1 << 20, &e) < 0 ||
            file_read_all(&want, NULL, golden, 1 << 20, &e) < 0)
            fail_msg("%s", e.text);
        compare_lines(got, want, scenes[i].file);
    }
    file_remove_tree(dir, NULL);
}

static json_t *last_line(const char *path)
{
    AUTO_FREE char *text = NULL;
    struct err e = {0};
    json_t *v = NULL;
    char *line;

    if (file_read_all(&text, NULL, path, 1 << 20, &e) < 0)
        fail_msg("%s", e.text);
    text[strlen(text) - 1] = '\0';
    line = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
    if (jx_parse(&v, line, strlen(line), &e) < 0)
        fail_msg("%s: %s", line, e.text);
    return v;
}

static void numbers_that_are_not_finite_become_null(void **state)
{
    AUTO_FREE char *dir = unit_folder("events"), *path = mem_printf("%s/e.jsonl", dir);
    AUTO(tr_events) *ev = events_open(path);

    (void)state;
    step(ev, 1, false, 0.1, -INFINITY);
    AUTO_JSON *v = last_line(path);
    assert_true(json_is_null(json_object_get(v, "loss")));
    assert_true(json_real_value(json_object_get(v, "ms")) == 0.1);
    file_remove_tree(dir, NULL);
}

static void of_many_ranks_the_slowest_of_each_group_is_reported(void **state)
{
    AUTO_FREE char *dir = unit_folder("events"), *path = mem_printf("%s/e.jsonl", dir);
    AUTO(tr_events) *ev = events_open(path);
    double busy[130];
    struct tr_step s = {.n = 1, .ms = 9, .busy_ms = busy, .ranks = 130};
    const json_t *list;

    (void)state;
    for (int i = 0; i < 130; i++)
        busy[i] = 1 + i * 0.5;
    busy[4] = 99.125;
    tr_event_step(ev, &s);
    AUTO_JSON *v = last_line(path);
    list = json_object_get(json_object_get(v, "ranks"), "busy");
    assert_int_equal(json_array_size(list), 44); /* of 3 ranks each, the last of one */
    assert_true(json_number_value(json_array_get(list, 0)) == 2);
    assert_true(json_number_value(json_array_get(list, 1)) == 99.12);
    assert_true(json_number_value(json_array_get(list, 43)) == 65.5);
    file_remove_tree(dir, NULL);
}

/* Where spikes are skipped, every step says whether it was; elsewhere none does. */
static void a_skipped_step_is_a_field_and_is_counted(void **state)
{
    AUTO_FREE char *dir = unit_folder("events"), *path = mem_printf("%s/e.jsonl", dir);
    AUTO(tr_events) *ev = events_open(path);
    struct tr_step s = {.n = 1, .ms = 9, .ranks = 1};
    struct tr_summary u = {.planned = &planned, .measured = &reached, .ended = "steps"};

    (void)state;
    tr_event_step(ev, &s);
    AUTO_JSON *off = last_line(path);
    assert_null(json_object_get(off, "skipped"));
    s.skips = true;
    tr_event_step(ev, &s);
    AUTO_JSON *no = last_line(path);
    assert_true(json_is_false(json_object_get(no, "skipped")));
    s.skipped = true;
    tr_event_step(ev, &s);
    AUTO_JSON *yes = last_line(path);
    assert_true(json_is_true(json_object_get(yes, "skipped")));
    tr_event_summary(ev, &u);
    AUTO_JSON *none = last_line(path);
    assert_null(json_object_get(none, "skipped_steps"));
    u.skips = true;
    u.skipped = 3;
    tr_event_summary(ev, &u);
    AUTO_JSON *three = last_line(path);
    assert_int_equal(json_number_value(json_object_get(three, "skipped_steps")), 3);
    file_remove_tree(dir, NULL);
}

static void each_layer_of_a_step_is_an_event(void **state)
{
    AUTO_FREE char *dir = unit_folder("events"), *path = mem_printf("%s/e.jsonl", dir);
    AUTO_FREE char *text = NULL;
    AUTO(tr_events) *ev = events_open(path);
    const double tokens[] = {1, 0, 2, 1};
    const struct tr_layer_stats layers[] = {
        {.layer = 0, .grad_norm = 0.5, .params_norm = 12},
        {.layer = 1,
         .grad_norm = 0.25,
         .params_norm = 8,
         .tokens = tokens,
         .experts = 4,
         .imbalance = 2},
        {.layer = -1, .grad_norm = INFINITY, .params_norm = 1},
    };
    struct tr_step s = {.n = 7, .ms = 9, .ranks = 1};

    (void)state;
    tr_event_layers(ev, &s);
    s.layer = layers;
    s.nlayers = (int)ARRAY_LEN(layers);
    tr_event_layers(ev, &s);
    assert_int_equal(file_read_all(&text, NULL, path, 1 << 20, NULL), 0);
    for (char *at = text; (at = strstr(at, ",\"t\":")); at++) /* times away */
        memmove(at, at + strcspn(at + 1, ",") + 1, strlen(at + strcspn(at + 1, ",") + 1) + 1);
    assert_string_equal(text,
                        "{\"v\":1,\"event\":\"layer\",\"n\":7,\"layer\":0,\"grad_norm\":0.5,"
                        "\"params_norm\":12}\n"
                        "{\"v\":1,\"event\":\"layer\",\"n\":7,\"layer\":1,\"grad_norm\":0.25,"
                        "\"params_norm\":8,\"tokens_per_expert\":[1,0,2,1],\"imbalance\":2}\n"
                        "{\"v\":1,\"event\":\"layer\",\"n\":7,\"layer\":null,\"grad_norm\":null,"
                        "\"params_norm\":1}\n");
    file_remove_tree(dir, NULL);
}

static void any_text_gives_valid_json(void **state)
{
    static const char *const texts[] = {"quote \" backslash \\ tab \t newline \n", "bell \a \x7f",
                                        "grün λ", "not \xff utf-8 \xc3", ""};
    AUTO_FREE char *dir = unit_folder("events"), *path = mem_printf("%s/e.jsonl", dir);
    AUTO(tr_events) *ev = events_open(path);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *got;

        tr_event_error(ev, TR_ERROR_IO, 2, texts[i]);
        AUTO_JSON *v = last_line(path);
        got = json_string_value(json_object_get(v, "detail"));
        assert_non_null(got);
        if (i != 3)
            assert_string_equal(got, texts[i]);
        else
            assert_string_equal(got, "not ? utf-8 ?");
    }
    file_remove_tree(dir, NULL);
}

static void a_second_run_appends(void **state)
{
    AUTO_FREE char *dir = unit_folder("events"), *path = mem_printf("%s/e.jsonl", dir),
                   *text = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        AUTO(tr_events) *ev = events_open(path);

        tr_event_stopped(ev, i, "test");
    }
    assert_int_equal(file_read_all(&text, NULL, path, 1 << 20, NULL), 0);
    assert_non_null(strstr(text, "\"n\":0"));
    assert_non_null(strstr(text, "\"n\":1"));
    file_remove_tree(dir, NULL);
}

static void a_full_disk_is_remembered_and_training_continues(void **state)
{
    struct err e = {0};
    struct tr_events *ev = NULL;

    (void)state;
    if (tr_events_open(&ev, "/dev/full", NULL, &e) < 0)
        skip();
    step(ev, 1, false, 1, 1);
    assert_int_equal(tr_events_status(ev), ENOSPC);
    step(ev, 2, false, 1, 1);
    tr_events_free(ev);
}

static void other_ranks_have_none(void **state)
{
    (void)state;
    step(NULL, 1, false, 1, 1);
    tr_event_error(NULL, TR_ERROR_OOM, 0, "x");
    assert_int_equal(tr_events_status(NULL), 0);
    assert_null(tr_events_free(NULL));
}

static void people_read_the_same_on_the_console(void **state)
{
    char text[8192] = "";
    FILE *console = fmemopen(text, sizeof(text) - 1, "w");
    struct tr_events *ev = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(tr_events_open(&ev, NULL, console, &e), 0);
    scene_ok(ev);
    tr_events_free(ev);
    fclose(console);
    assert_non_null(strstr(text, "partune-train 0.1.0: tiny-moe on 2 ranks of 2 hosts"));
    assert_non_null(strstr(text, "step     1 (warm-up)  loss 5.5625"));
    assert_non_null(strstr(text, "17526 tokens/s"));
    assert_non_null(strstr(text, "warning: straggler"));
}

static void a_run_too_short_to_measure_claims_no_rate(void **state)
{
    char text[1024] = "";
    FILE *console = fmemopen(text, sizeof(text) - 1, "w");
    struct tr_summary s = {.planned = &planned, .measured = &reached, .ended = "steps"};
    struct tr_events *ev = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(tr_events_open(&ev, NULL, console, &e), 0);
    tr_event_summary(ev, &s);
    tr_events_free(ev);
    fclose(console);
    assert_non_null(strstr(text, "no step was measured"));
    assert_null(strstr(text, "tokens/s"));
}

static void every_error_class_has_its_exit_code(void **state)
{
    static const int codes[TR_ERRORS] = {65, 66, 67, 68, 69, 70, 71};

    (void)state;
    for (int i = 0; i < TR_ERRORS; i++)
        assert_int_equal(tr_error_exit((enum tr_error)i), codes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lines_are_those_of_the_protocol),
        cmocka_unit_test(numbers_that_are_not_finite_become_null),
        cmocka_unit_test(of_many_ranks_the_slowest_of_each_group_is_reported),
        cmocka_unit_test(a_skipped_step_is_a_field_and_is_counted),
        cmocka_unit_test(each_layer_of_a_step_is_an_event),
        cmocka_unit_test(any_text_gives_valid_json),
        cmocka_unit_test(a_second_run_appends),
        cmocka_unit_test(a_full_disk_is_remembered_and_training_continues),
        cmocka_unit_test(other_ranks_have_none),
        cmocka_unit_test(people_read_the_same_on_the_console),
        cmocka_unit_test(a_run_too_short_to_measure_claims_no_rate),
        cmocka_unit_test(every_error_class_has_its_exit_code),
    };

    return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
