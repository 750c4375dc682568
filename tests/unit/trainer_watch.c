/* Metrics files and warnings of a long run. */
#include "tests/unit/unit.h"

#include <math.h>

#include "trainer/watch.h"

struct scene {
    char *dir, *events, *metrics, *prometheus;
    struct tr_config c;
    struct tr_events *ev;
    struct tr_watch *w;
};

static void begin(struct scene *s, int world)
{
    struct err e = {0};

    *s = (struct scene){.dir = unit_folder("watch")};
    s->events = mem_printf("%s/e.jsonl", s->dir);
    s->c.metrics = s->metrics = mem_printf("%s/m.jsonl", s->dir);
    s->c.prometheus = s->prometheus = mem_printf("%s/p.prom", s->dir);
    s->c.layout.world = world;
    s->c.expected = (struct tr_interval){1000, 900, 1100};
    snprintf(s->c.model.name, sizeof(s->c.model.name), "tiny");
    if (tr_events_open(&s->ev, s->events, NULL, &e) < 0 ||
        tr_watch_open(&s->w, &s->c, s->ev, &e) < 0)
        fail_msg("%s", e.text);
}

static char *end(struct scene *s)
{
    char *text = NULL;

    s->w = tr_watch_free(s->w);
    s->ev = tr_events_free(s->ev);
    file_read_all(&text, NULL, s->events, 1 << 20, NULL);
    return text;
}

static void done(struct scene *s)
{
    file_remove_tree(s->dir, NULL);
    free(s->dir);
    free(s->events);
    free(s->metrics);
    free(s->prometheus);
}

/* N steps of MS for 100 tokens, rank SLOWEST busy for MAX of them and all others for 50. */
static void steps(struct scene *s, int n, double ms, double max, int slowest)
{
    for (int i = 0; i < n; i++) {
        struct tr_step t = {.n = s->c.train.seed += 1,
                            .ms = ms,
                            .tokens = 100,
                            .trained = 100L * s->c.train.seed,
                            .loss = 5,
                            .aux_loss = NAN,
                            .z_loss = NAN,
                            .moe_z_loss = NAN,
                            .mtp_loss = NAN,
                            .grad_norm = 1,
                            .lr = 0.1,
                            .rank_ms_min = 50,
                            .rank_ms_median = 50,
                            .rank_ms_max = max,
                            .slowest = slowest};

        tr_watch_step(s->w, &t);
    }
}

static int count(const char *text, const char *word)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
        n++;
    return n;
}

static void slower_than_expected_is_reported_once_until_it_recovers(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 4);
    steps(&s, 30, 100, 50, 0); /* 1000 tokens/s */
    steps(&s, 40, 125, 50, 0); /* 800 */
    steps(&s, 40, 105, 50, 0); /* 952 */
    steps(&s, 40, 200, 50, 0);
    AUTO_FREE char *text = end(&s);
    assert_int_equal(count(text, "slower-than-expected"), 2);
    assert_non_null(strstr(text, "expected 1000, at least 900"));
    done(&s);
}

static void a_short_hiccup_is_no_reason_to_warn(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 4);
    for (int i = 0; i < 10; i++) {
        steps(&s, 12, 100, 50, 0);
        steps(&s, 4, 900, 500, 2);
    }
    AUTO_FREE char *text = end(&s);
    assert_true(!text || !*text);
    done(&s);
}

/* In a batch ramp: what is expected is of the full batch, here of 10 sequences of 10 tokens. */
static void smaller_batches_are_not_slower_than_expected(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 4);
    s.c.workload = (struct pl_workload){.global_batch = 20, .seq = 10};
    steps(&s, 60, 125, 50, 0);
    s.c.workload.global_batch = 10;
    steps(&s, 19, 125, 50, 0); /* 800 tokens/s in each */
    AUTO_FREE char *text = NULL;
    file_read_all(&text, NULL, s.events, 1 << 20, NULL);
    assert_int_equal(count(text ? text : "", "slower-than-expected"), 0);
    steps(&s, 1, 125, 50, 0);
    AUTO_FREE char *all = end(&s);
    assert_int_equal(count(all, "slower-than-expected"), 1);
    done(&s);
}

static void a_straggler_is_named_once(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 4);
    steps(&s, 20, 100, 60, 1);
    steps(&s, 30, 100, 80, 3);
    steps(&s, 30, 100, 80, 2);
    AUTO_FREE char *text = end(&s);
    assert_int_equal(count(text, "straggler"), 2);
    assert_non_null(strstr(text, "rank 3 was busy for 80.0 ms"));
    assert_non_null(strstr(text, "rank 2 was busy for 80.0 ms"));
    done(&s);
}

static void alternating_ranks_are_no_stragglers(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 4);
    for (int i = 0; i < 60; i++)
        steps(&s, 1, 100, 90, i % 4);
    AUTO_FREE char *text = end(&s);
    assert_true(!text || !*text);
    done(&s);
}

static void metrics_are_a_line_a_step(void **state)
{
    struct scene s;
    AUTO_FREE char *text = NULL;
    int n = 0;

    (void)state;
    begin(&s, 2);
    steps(&s, 7, 100, 50, 0);
    AUTO_FREE char *events = end(&s);
    assert_int_equal(file_read_all(&text, NULL, s.metrics, 1 << 20, NULL), 0);
    for (char *line = text, *next; (next = strchr(line, '\n')); line = next + 1) {
        struct err e = {0};
        AUTO_JSON *v = NULL;

        n++;
        assert_int_equal(jx_parse(&v, line, (size_t)(next - line), &e), 0);
        assert_int_equal(json_integer_value(json_object_get(v, "step")), n);
        assert_true(json_number_value(json_object_get(v, "tokens_per_s")) == 1000);
        assert_true(json_is_null(json_object_get(v, "aux_loss")));
    }
    assert_int_equal(n, 7);
    done(&s);
}

static void a_step_with_layers_has_them_in_its_line(void **state)
{
    const double tokens[] = {3, 1};
    const struct tr_layer_stats layers[] = {
        {.layer = 0, .grad_norm = 0.5, .params_norm = 12, .tokens = tokens, .experts = 2},
        {.layer = -1, .grad_norm = 2, .params_norm = 1}};
    struct tr_step t = {.n = 1, .ms = 1, .layer = layers, .nlayers = 2};
    AUTO_FREE char *text = NULL;
    AUTO_JSON *v = NULL;
    struct err e = {0};
    struct scene s;
    json_t *list;

    (void)state;
    begin(&s, 1);
    tr_watch_step(s.w, &t);
    AUTO_FREE char *events = end(&s);
    assert_int_equal(file_read_all(&text, NULL, s.metrics, 1 << 20, NULL), 0);
    assert_int_equal(jx_parse(&v, text, strlen(text), &e), 0);
    list = json_object_get(v, "layers");
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(json_array_size(json_object_get(json_array_get(list, 0), "tokens_per_expert")),
                     2);
    assert_true(json_is_null(json_object_get(json_array_get(list, 1), "layer")));
    assert_true(json_number_value(json_object_get(json_array_get(list, 1), "grad_norm")) == 2);
    done(&s);
}

static void the_text_file_is_what_prometheus_reads(void **state)
{
    struct scene s;
    AUTO_FREE char *text = NULL;

    (void)state;
    begin(&s, 2);
    steps(&s, 3, 100, 50, 0);
    tr_watch_validation(s.w, 4.5);
    tr_watch_checkpoint(s.w, 3);
    AUTO_FREE char *events = end(&s);
    assert_int_equal(file_read_all(&text, NULL, s.prometheus, 1 << 20, NULL), 0);
    assert_non_null(strstr(text, "\npartune_train_step{model=\"tiny\"} 3\n"));
    assert_non_null(strstr(text, "\npartune_train_tokens{model=\"tiny\"} 300\n"));
    assert_non_null(strstr(text, "\npartune_train_validation_loss{model=\"tiny\"} 4.5\n"));
    assert_non_null(strstr(text, "\npartune_train_checkpoint_step{model=\"tiny\"} 3\n"));
    assert_non_null(
        strstr(text, "\npartune_train_expected_low_tokens_per_second{model=\"tiny\"} 900\n"));
    assert_int_equal(count(text, "# TYPE"), count(text, "{model="));
    done(&s);
}

static void a_name_with_quotes_stays_one_label(void **state)
{
    struct scene s;
    AUTO_FREE char *text = NULL;

    (void)state;
    begin(&s, 2);
    snprintf(s.c.model.name, sizeof(s.c.model.name), "a\"b\\c\nd");
    steps(&s, 1, 100, 50, 0);
    AUTO_FREE char *events = end(&s);
    assert_int_equal(file_read_all(&text, NULL, s.prometheus, 1 << 20, NULL), 0);
    assert_non_null(strstr(text, "\npartune_train_step{model=\"a\\\"b\\\\c\\nd\"} 1\n"));
    done(&s);
}

static void a_full_disk_is_reported_once_and_the_run_continues(void **state)
{
    struct scene s;

    (void)state;
    if (!file_exists("/dev/full"))
        skip();
    begin(&s, 2);
    tr_watch_free(s.w);
    s.c.metrics = "/dev/full";
    assert_int_equal(tr_watch_open(&s.w, &s.c, s.ev, NULL), 0);
    steps(&s, 5, 100, 50, 0);
    AUTO_FREE char *text = end(&s);
    assert_int_equal(count(text, "/dev/full"), 1);
    done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slower_than_expected_is_reported_once_until_it_recovers),
        cmocka_unit_test(a_short_hiccup_is_no_reason_to_warn),
        cmocka_unit_test(smaller_batches_are_not_slower_than_expected),
        cmocka_unit_test(a_straggler_is_named_once),
        cmocka_unit_test(alternating_ranks_are_no_stragglers),
        cmocka_unit_test(metrics_are_a_line_a_step),
        cmocka_unit_test(a_step_with_layers_has_them_in_its_line),
        cmocka_unit_test(a_name_with_quotes_stays_one_label),
        cmocka_unit_test(the_text_file_is_what_prometheus_reads),
        cmocka_unit_test(a_full_disk_is_reported_once_and_the_run_continues),
    };

    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
