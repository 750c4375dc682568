/* Commands of trainers that hold an export: what reaches the program, what is never run. */
#include "tests/unit/tuner_fixture.h"

/* {export:megatron} is every argument of the layout, {export:deepspeed} a file, {export:torchtitan}
 * names a function in one. */
static void a_command_may_hold_an_export(void **state)
{
    struct fixture f;
    struct conf *conf = NULL;
    struct err e = {0};
    char id[32];

    (void)state;
    fixture_open(&f, "exports", "");
    AUTO_FREE char *program = mem_printf("%s/trainer", f.folder);
    AUTO_FREE char *script = mem_printf("#!/bin/sh\nprintf '%%s\\n' \"$@\" >'%s/args'\ncp \"$2\" "
                                        "'%s/ds.json'\nexec '%s' --log megatron --config \"$1\" "
                                        "--events \"$2.unused\" --step-ms 10\n",
                                        f.folder, f.folder, f.train);
    AUTO_FREE char *text = mem_printf("[trainer \"other\"]\nparser = megatron\ncommand = "
                                      "\\\"%s\\\" {config} {export:deepspeed} {export:megatron} "
                                      "--nnodes {nodes} {export:torchtitan}\n",
                                      program);
    AUTO_FREE char *args = mem_printf("%s/args", f.folder);
    AUTO_FREE char *file = mem_printf("%s/ds.json", f.folder);
    AUTO_FREE char *given = NULL;
    AUTO_FREE char *written = NULL;

    if (file_write_atomic(program, script, strlen(script), 0700, &e) < 0 ||
        conf_parse(&conf, text, "test.conf", &e) < 0)
        fail_msg("%s", e.text);
    f.config.conf = conf;
    fixture_reopen(&f);
    fixture_create(&f, id,
                   CAMPAIGN("'budget': {'trials': 1}, 'trainer': 'other', 'baseline': {'tp': 2, "
                            "'micro_batch': 2, 'precision': 'fp32'}"));
    json_decref(fixture_wait(&f, id, "done"));
    if (file_read_all(&given, NULL, args, 1 << 16, &e) < 0 ||
        file_read_all(&written, NULL, file, 1 << 16, &e) < 0)
        fail_msg("%s", e.text);
    assert_non_null(strstr(given, "\n--tensor-model-parallel-size\n2\n"));
    assert_non_null(strstr(given, "\n--swiglu\n"));
    assert_non_null(strstr(given, "\n--micro-batch-size\n2\n"));
    assert_non_null(strstr(given, "\n--module\nexport\n--config\npartune_layout\n"));
    assert_non_null(strstr(given, "\n--nnodes\n1\n"));
    assert_null(strchr(given, '#'));
    assert_non_null(strstr(written, "\"autotp_size\": 2"));
    assert_non_null(strstr(written, "\"steps_per_print\": 1")); /* or it prints no step */
    assert_non_null(strstr(written, "\"log_level\": \"info\""));
    fixture_close(&f);
    conf_free(conf);
}

/* Four devices for a trainer of the configuration, over what DeepSpeed can and cannot run. */
#define REFUSED(more)                                                                              \
    "{'name': 'refused', 'model': {'name': 'tiny', 'layers': 4, 'hidden': 64, 'heads': 4, "        \
    "'ffn': 128, 'vocab': 256, 'seq': 64}, 'cluster': {'name': 'four', 'nodes': 1, "               \
    "'devices_per_node': 4, 'oversubscribe': true, 'device': {'name': 'core', 'memory_gib': "      \
    "24, 'peak_tflops': {'fp32': 0.1}, 'memory_gbs': 10}, 'links': [{'span': 4, 'gbs': 5, "        \
    "'latency_us': 1, 'kind': 'shm'}]}, 'WORKLOAD': 0, 'TRIAL': 0, 'trainer': 'other', "           \
    "'budget': {'trials': 30}, 'space': {'world': [4], 'tp': [2], 'sp': [0], 'pp': [1, 2], 'vp': " \
    "[1], 'schedule': ['1f1b'], 'zero': [0], 'precision': ['fp32'], 'recompute': ['none', "        \
    "'full'], 'micro_batch': [1, 2], 'overlap_grad_reduce': [0], 'overlap_param_gather': [0], "    \
    "'overlap_p2p': [0]}" more "}"

static struct conf *with_trainer(struct fixture *f, const char *keys)
{
    AUTO_FREE char *text = mem_printf(
        "[trainer \"other\"]\nparser = deepspeed\n%scommand = \\\"%s\\\" {export:deepspeed} "
        "--log deepspeed --config {config} --events {folder}/unused --step-ms 10\n",
        keys, f->train);
    struct conf *conf = NULL;
    struct err e = {0};

    if (conf_parse(&conf, text, "test.conf", &e) < 0 || tn_settings_check(conf, &e) < 0)
        fail_msg("%s", e.text);
    f->config.conf = conf;
    fixture_reopen(f);
    return conf;
}

/* A trainer whose rules are "any" is allowed what DeepSpeed's tensor parallelism cannot run (a
 * pipeline) and what its file cannot say (recomputation). Nothing of such a layout is run: a trial
 * is what its label says. It is not tried again, and the campaign continues with other layouts. */
static void a_layout_that_breaks_a_rule_of_an_exports_target_is_illegal(void **state)
{
    struct fixture f;
    struct conf *conf;
    struct err e = {0};
    char id[32];
    json_t *c, *d;
    int refused = 0, lossy = 0, trials;

    (void)state;
    fixture_open(&f, "refused", "");
    conf = with_trainer(&f, "rules = any\n");
    fixture_create(&f, id, REFUSED(", 'baseline': {'tp': 2, 'pp': 2, 'precision': 'fp32'}"));
    c = fixture_wait(&f, id, "done");
    assert_string_equal(text_at(c, "reason"), "exhausted");
    trials = (int)number_at(c, "progress", "trials");
    assert_true(number_at(c, "best", "trial") > 1); /* the baseline was refused */
    for (int n = 1; n <= trials; n++) {
        json_t *t = fixture_trial(&f, id, n), *failure = json_object_get(t, "failure");
        const json_t *l = json_object_get(t, "layout");

        if (json_integer_value(json_object_get(l, "pp")) == 2) {
            assert_string_equal(text_at(t, "state"), "illegal");
            assert_int_equal(json_integer_value(json_object_get(t, "attempts")), 1);
            assert_non_null(strstr(text_at(failure, "detail"), "deepspeed refuses this layout"));
            assert_non_null(strstr(text_at(failure, "detail"), "tp (AutoTP does not work with"));
            refused++;
        } else if (str_eq(text_at(l, "recompute"), "full")) {
            assert_string_equal(text_at(t, "state"), "illegal");
            assert_non_null(strstr(text_at(failure, "detail"), "deepspeed cannot express: "));
            assert_non_null(strstr(text_at(failure, "detail"), "recompute (trainer deepspeed does "
                                                               "not support recompute full)"));
            lossy++;
        } else {
            assert_string_equal(text_at(t, "state"), "ok");
        }
        json_decref(t);
    }
    assert_int_equal(refused, 4); /* each once */
    assert_int_equal(lossy, 2);
    if (tn_diagnosis(&d, f.svc, id, NULL, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(json_integer_value(json_object_get(d, "settled")), trials);
    json_decref(d);
    json_decref(c);
    fixture_close(&f);
    conf_free(conf);
}

/* The rules are those of the exporter that the command uses: nothing that it cannot write is tried,
 * given as a baseline, or called legal. They stay a campaign's own when the configuration
 * changes. */
static void a_trainer_has_the_rules_of_the_export_that_it_uses(void **state)
{
    struct fixture f;
    struct conf *conf, *later;
    struct err e = {0};
    char id[32];
    json_t *c;
    int trials;
    AUTO_JSON *illegal = fixture_body(REFUSED(", 'baseline': {'tp': 2, 'pp': 2}"));
    struct tn_draft *draft = NULL;

    (void)state;
    fixture_open(&f, "follows", "");
    conf = with_trainer(&f, "");
    assert_int_equal(tn_campaign_check(&draft, NULL, f.svc, illegal, NULL, &e), -EINVAL);
    assert_string_equal(e.pointer, "/baseline");
    assert_non_null(strstr(e.text, "trainer deepspeed does not support pp > 1"));
    fixture_create(&f, id, REFUSED(""));
    c = fixture_wait(&f, id, "done");
    assert_int_equal(number_at(c, "space", "legal"), 2);
    trials = (int)number_at(c, "progress", "trials");
    assert_true(trials >= 2);
    for (int n = 1; n <= trials; n++) {
        json_t *t = fixture_trial(&f, id, n);

        assert_string_equal(text_at(t, "state"), "ok");
        json_decref(t);
    }
    json_decref(c);
    later = with_trainer(&f, "rules = any\n");
    assert_int_equal(tn_importance(&c, f.svc, id, NULL, &e), 0); /* its search is built again */
    json_decref(c);
    fixture_create(&f, id, REFUSED(""));
    c = fixture_wait(&f, id, "done");
    assert_int_equal(number_at(c, "space", "legal"), 8);
    json_decref(c);
    fixture_close(&f);
    conf_free(conf);
    conf_free(later);
}

/* Four devices; a smaller trial has one, two of four layers, and the sequences of one replica. */
#define SMALLER                                                                                    \
    "{'name': 'smaller', 'model': {'name': 'tiny', 'layers': 4, 'hidden': 64, 'heads': 4, 'ffn': " \
    "128, 'vocab': 256, 'seq': 64}, 'cluster': {'name': 'four', 'nodes': 1, 'devices_per_node': "  \
    "4, 'oversubscribe': true, 'device': {'name': 'core', 'memory_gib': 24, 'peak_tflops': "       \
    "{'fp32': 0.1}, 'memory_gbs': 10}, 'links': [{'span': 4, 'gbs': 5, 'latency_us': 1, 'kind': "  \
    "'shm'}]}, 'WORKLOAD': 0, 'trainer': 'other', 'budget': {'trials': 5}, 'space': {'world': "    \
    "[4], 'tp': [1], 'pp': [1], 'micro_batch': [1, 2]}, 'trial': {'warmup_steps': 2, "             \
    "'min_steps': 3, 'max_steps': 5, 'fidelity': 'auto'}}"

static void a_smaller_trial_reaches_the_command(void **state)
{
    struct fixture f;
    struct conf *conf = NULL;
    struct err e = {0};
    char id[32];
    int smaller = 0;
    json_t *c;

    (void)state;
    fixture_open(&f, "smaller", "");
    AUTO_FREE char *program = mem_printf("%s/trainer", f.folder);
    AUTO_FREE char *script = mem_printf(
        "#!/bin/sh\necho \"$@\" >>'%s/args'\nexec '%s' --log megatron --config \"$1\" --events "
        "\"$1.unused\" --step-ms 10\n",
        f.folder, f.train);
    AUTO_FREE char *text =
        mem_printf("[trainer \"other\"]\nparser = megatron\ncommand = \\\"%s\\\" {config} {layers} "
                   "{global_batch} {world} {steps} {export:megatron}\n",
                   program);
    AUTO_FREE char *args = mem_printf("%s/args", f.folder);
    AUTO_FREE char *given = NULL;

    if (file_write_atomic(program, script, strlen(script), 0700, &e) < 0 ||
        conf_parse(&conf, text, "test.conf", &e) < 0)
        fail_msg("%s", e.text);
    f.config.conf = conf;
    fixture_reopen(&f);
    fixture_create(&f, id, SMALLER);
    c = fixture_wait(&f, id, "done");
    for (int n = 1; n <= number_at(c, "progress", "trials"); n++) {
        json_t *t = fixture_trial(&f, id, n);

        assert_string_equal(text_at(t, "state"), "ok");
        smaller += json_integer_value(json_object_get(t, "fidelity")) == 1;
        json_decref(t);
    }
    assert_true(smaller >= 1);
    if (file_read_all(&given, NULL, args, 1 << 16, &e) < 0)
        fail_msg("%s", e.text);
    assert_non_null(strstr(given, "config.json 4 8 4 7 --")); /* the baseline */
    assert_non_null(strstr(given, "config.json 2 2 1 5 --"));
    assert_non_null(strstr(given, "--num-layers 2 "));
    assert_non_null(strstr(given, "--global-batch-size 2 "));
    json_decref(c);
    fixture_close(&f);
    conf_free(conf);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_smaller_trial_reaches_the_command),
    cmocka_unit_test(a_command_may_hold_an_export),
    cmocka_unit_test(a_layout_that_breaks_a_rule_of_an_exports_target_is_illegal),
    cmocka_unit_test(a_trainer_has_the_rules_of_the_export_that_it_uses),
};

UNIT_MAIN(tests)
