/* The trainer's configuration: what is accepted and what it means; a table of what is refused, and
 * how. */
#include "tests/unit/unit.h"
#include "trainer/config.h"
#include "trainer/events.h"

enum { ARGS = 24 };

/* The next word of *LINE, which is cut up: blanks separate, 'quotes' hold a word with blanks (a
 * path). */
static char *next_word(char **line)
{
    char *w = *line + strspn(*line, " "), *end;

    if (!*w)
        return NULL;
    end = *w == '\'' ? strchr(++w, '\'') : w + strcspn(w, " ");
    *line = *end ? end + 1 : end;
    *end = '\0';
    return w;
}

/* Configuration of the words of LINE after the program's name. */
static int load(struct tr_config **ret, int *ret_exit, int ranks, struct err *e, const char *line)
{
    AUTO_FREE char *copy = mem_strdup(line);
    struct tr_launch launch = {.size = ranks};
    char *argv[ARGS] = {(char[]){"partune-train"}};
    int argc = 1;
    char *rest = copy;

    for (char *w = next_word(&rest); w && argc < ARGS - 1; w = next_word(&rest))
        argv[argc++] = w;
    return tr_config_load(ret, ret_exit, NULL, argc, argv, &launch, e);
}

static struct tr_config *need(int ranks, const char *line)
{
    struct tr_config *c = NULL;
    struct err e = {0};
    int code;

    if (load(&c, &code, ranks, &e, line) < 0)
        fail_msg("%s: %s", line, e.text);
    assert_int_equal(code, 0);
    return c;
}

static char *write_file(const char *dir, const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", dir, name);
    struct err e = {0};

    if (file_write_atomic(path, text, strlen(text), 0600, &e) < 0)
        fail_msg("%s", e.text);
    return path;
}

static void a_shell_user_needs_little(void **state)
{
    AUTO(tr_config) *c = need(2, "--model tiny-moe --tp 2 --steps 20");

    (void)state;
    assert_int_equal(c->mode, TR_MODE_TRAIN);
    assert_int_equal(c->layout.world, 2);
    assert_int_equal(c->layout.sp, 1);
    assert_int_equal(c->layout.dp, 1);
    assert_int_equal(c->train.steps, 20);
    assert_int_equal(c->workload.global_batch, 16);
    assert_int_equal(c->workload.seq, c->model.seq);
    assert_string_equal(c->workload.data, "synthetic");
    assert_true(c->device_memory > 0);
    assert_true(c->train.lr == 3e-4 && c->train.beta2 == 0.95 && c->trial.ci == 0.02);
}

static void more_ranks_than_cores_share_the_memory(void **state)
{
    AUTO(tr_config) *c = need(64, "--model tiny-llama --global-batch 64");
    double all = c->cluster.device.memory_gib * 0x1p30 * c->cluster.devices_per_node;

    (void)state;
    assert_int_equal(c->layout.dp, 64);
    assert_true((double)c->device_memory * 64 <= all * 1.0001 || c->cluster.devices_per_node >= 64);
}

static void a_file_is_read_and_the_command_line_wins(void **state)
{
    AUTO_FREE char *dir = unit_folder("config");
    AUTO_FREE char *path =
        write_file(dir, "c.json",
                   "{\"model\":\"tiny-llama\",\"layout\":{\"tp\":2,\"micro_batch\":2},\"workload\":"
                   "{\"global_batch\":8},"
                   "\"trial\":{\"min_steps\":7,\"ci\":0.1},\"train\":{\"lr\":0.01,\"seed\":9},"
                   "\"expected\":{\"tokens_per_s\":100,\"lo\":90,\"hi\":110},\"run\":{\"device_"
                   "memory\":1048576},"
                   "\"provenance\":{\"anything\":[1,2]}}");
    AUTO_FREE char *line = mem_printf("--config '%s' --micro-batch 4 --ci 0.05 --seed 3", path);
    AUTO(tr_config) *c = need(4, line);

    (void)state;
    assert_int_equal(c->mode, TR_MODE_TRIAL);
    assert_int_equal(c->layout.tp, 2);
    assert_int_equal(c->layout.dp, 2);
    assert_int_equal(c->layout.micro_batch, 4);
    assert_int_equal(c->trial.min_steps, 7);
    assert_true(c->trial.ci == 0.05 && c->train.lr == 0.01 && c->expected.lo == 90);
    assert_int_equal(c->train.seed, 3);
    assert_int_equal(c->device_memory, 1 << 20);
    file_remove_tree(dir, NULL);
}

static void a_trial_of_the_trainer_takes_what_a_campaign_takes(void **state)
{
    static const char *const trials[] = {
        "{}",
        "{'warmup_steps': 0, 'min_steps': 2, 'max_steps': 2, 'ci': 0, 'timeout_s': 0.1}",
        "{'warmup_steps': 10000, 'min_steps': 100000, 'max_steps': 100000, 'ci': 1}",
        "{'timeout_s': 1e7}",
        "{'min_steps': 1}",
        "{'max_steps': 1}",
        "{'warmup_steps': -1}",
        "{'warmup_steps': 10001}",
        "{'max_steps': 100001}",
        "{'timeout_s': 1.1e7}",
        "{'ci': 1.5}",
        "{'min_steps': 9, 'max_steps': 3}",
        "{'steps': 3}",
    };
    AUTO_FREE char *dir = unit_folder("config");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(trials); i++) {
        AUTO_FREE char *text = mem_printf("{'model': 'tiny-llama', 'trial': %s}", trials[i]);
        AUTO_FREE char *path = NULL, *line = NULL;
        AUTO_JSON *root = NULL;
        struct tr_config *config = NULL;
        struct pl_trial_limits limits;
        struct err e = {0}, f = {0};
        int campaign, trainer, code;

        for (char *quote = text; (quote = strchr(quote, '\'')); *quote = '"') {
        }
        path = write_file(dir, "c.json", text);
        line = mem_printf("--config '%s'", path);
        root = json_loads(text, 0, NULL);
        campaign = pl_trial_limits_parse(&limits, root, &e);
        trainer = load(&config, &code, 1, &f, line);
        if ((campaign < 0) != (trainer < 0))
            fail_msg("%s: a campaign says \"%s\", the trainer \"%s\"", trials[i], e.text, f.text);
        if (campaign < 0)
            assert_string_equal(e.pointer, f.pointer);
        if (config)
            tr_config_free(config);
    }
    file_remove_tree(dir, NULL);
}

static void steps_on_the_command_line_make_a_training_run_of_a_trial(void **state)
{
    AUTO_FREE char *dir = unit_folder("config");
    AUTO_FREE char *path = write_file(dir, "c.json", "{\"model\":\"tiny-llama\",\"trial\":{}}");
    AUTO_FREE char *line = mem_printf("--config '%s' --steps 60", path);
    AUTO(tr_config) *c = need(1, line);

    (void)state;
    assert_int_equal(c->mode, TR_MODE_TRAIN);
    file_remove_tree(dir, NULL);
}

static void what_is_dumped_reads_back_to_the_same(void **state)
{
    static const char *const lines[] = {
        "--model tiny-moe --ep 2 --zero 1 --steps 7 --lr 0.1 --checkpoint /tmp/x "
        "--checkpoint-every 3 --resume",
        "--model tiny-llama --trial --max-steps 50 --pp 2 --recompute full --expected 7 "
        "--expected-lo 6",
        "--model tiny-llama --cluster local --tp 2 --sp 1",
        "--model tiny-llama --rampup-batch-size 4,6,1000 --skip-step-sigma 6 "
        "--skip-step-interval 64",
        "--model tiny-llama --param-groups "
        "'[{\"match\":\"*norm*\",\"wd_mult\":1},{\"match\":\"lm_head.*\",\"lr\":1}]'",
    };
    AUTO_FREE char *dir = unit_folder("config");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        AUTO(tr_config) *a = need(2, lines[i]);
        AUTO_JSON *v = tr_config_json(a);
        AUTO_FREE char *text = jx_canonical(v);
        AUTO_FREE char *path = write_file(dir, "dump.json", text);
        AUTO_FREE char *line = mem_printf("--config '%s'", path);
        AUTO(tr_config) *b = need(2, line);
        AUTO_JSON *w = tr_config_json(b);
        AUTO_FREE char *again = jx_canonical(w);

        assert_string_equal(text, again);
        assert_int_equal(a->mode, b->mode);
    }
    file_remove_tree(dir, NULL);
}

static void a_batch_ramp_is_a_list_and_not_of_trials(void **state)
{
    AUTO_FREE char *dir = unit_folder("config");
    AUTO_FREE char *path = write_file(dir, "c.json",
                                      "{\"model\":\"tiny-llama\",\"workload\":{\"global_batch\":"
                                      "64},\"train\":{\"rampup_batch_size\":[16,8,3000]}}");
    AUTO_FREE char *line = mem_printf("--config '%s'", path);
    AUTO_FREE char *wins = mem_printf("--config '%s' --rampup-batch-size 32,32,9", path);
    AUTO_FREE char *trial = mem_printf("--config '%s' --trial", path);
    AUTO(tr_config) *file = need(2, line);
    AUTO(tr_config) *option = need(2, wins);
    AUTO(tr_config) *none = need(2, trial);

    (void)state;
    assert_int_equal(file->ramp.start, 16);
    assert_int_equal(file->ramp.increment, 8);
    assert_int_equal(file->ramp.samples, 3000);
    assert_int_equal(file->ramp.global_batch, 64);
    assert_int_equal(option->ramp.start, 32);
    assert_int_equal(option->ramp.samples, 9);
    assert_int_equal(none->ramp.start, 0);
    assert_true(file->train.skip_step_sigma == 0 && file->train.skip_step_interval == 128);
    file_remove_tree(dir, NULL);
}

static void parameter_groups_have_the_first_match_and_the_runs_settings_for_all_else(void **state)
{
    AUTO_FREE char *dir = unit_folder("config");
    AUTO_FREE char *path =
        write_file(dir, "c.json",
                   "{\"model\":\"tiny-llama\",\"train\":{\"lr\":1,\"min_lr\":0.1,\"lr_decay_"
                   "style\":\"constant\","
                   "\"warmup_steps\":0,\"weight_decay\":0.5,\"param_groups\":["
                   "{\"match\":\"model.layers.[01].*\",\"lr\":4,\"lr_mult\":0.5},"
                   "{\"match\":\"*norm*\",\"wd_mult\":2},{\"match\":\"lm_head.weight\",\"weight_"
                   "decay\":0}]}}");
    AUTO_FREE char *line = mem_printf("--config '%s'", path);
    AUTO(tr_config) *c = need(1, line);
    const struct tr_param_groups *g = &c->groups;
    struct tr_lr lr = tr_train_lr(&c->train);
    static const struct {
        const char *name;
        int group;
        double lr, matrix, vector;
    } want[] = {{"model.layers.1.input_layernorm.weight", 1, 2, 0.5, 0},
                {"model.layers.2.input_layernorm.weight", 2, 1, 1, 1},
                {"lm_head.weight", 3, 1, 0, 0},
                {"lm_head.weights", 0, 1, 0.5, 0},
                {"model.embed_tokens.weight", 0, 1, 0.5, 0}};

    (void)state;
    assert_int_equal(g->count, 3);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        int k = tr_param_groups_find(g, want[i].name);

        assert_int_equal(k, want[i].group);
        assert_true(tr_param_groups_lr(g, k, &lr, 5) == want[i].lr);
        assert_true(tr_param_groups_decay(g, k, 0.5, true) == want[i].matrix);
        assert_true(tr_param_groups_decay(g, k, 0.5, false) == want[i].vector);
    }
    file_remove_tree(dir, NULL);
}

static void a_data_set_may_be_a_long_path(void **state)
{
    AUTO(tr_config) *c =
        need(1, "--model tiny-llama --data /a/very/long/path/that/would/not/fit/into/a/name/of/"
                "sixty-four/bytes/because/it/goes/on/corpus_text_document");
    AUTO(tr_config) *d = need(1, "--model tiny-llama --data licences");

    (void)state;
    assert_true(str_starts(c->data, "/a/very/long/path/"));
    assert_string_equal(c->workload.data, "corpus_text_document");
    assert_string_equal(d->data, "licences");
    assert_string_equal(d->workload.data, "licences");
}

static void calibration_needs_no_model(void **state)
{
    AUTO(tr_config) *c = need(2, "--calibrate out.json");

    (void)state;
    assert_int_equal(c->mode, TR_MODE_CALIBRATE);
    assert_string_equal(c->calibrate, "out.json");
}

/* One row of the table: args or config, ranks, the exit code and a piece of the message. */
static void refuse(const json_t *row, const char *dir)
{
    json_t *config = json_object_get(row, "config"), *args = json_object_get(row, "args"), *it;
    int ranks = (int)json_integer_value(json_object_get(row, "ranks"));
    const char *says = json_string_value(json_object_get(row, "says"));
    AUTO_STR line = {0};
    struct err e = {0};
    struct tr_config *c = NULL;
    size_t i;
    int code = -1;

    json_array_foreach(args, i, it)
        str_addf(&line, "%s ", json_string_value(it));
    if (config) {
        AUTO_FREE char *text =
            json_is_string(config) ? mem_strdup(json_string_value(config)) : jx_dump(config);
        AUTO_FREE char *path = write_file(dir, "refused.json", text);

        str_addf(&line, "--config '%s'", path);
    }
    if (load(&c, &code, ranks ? ranks : 1, &e, str_text(&line)) == 0) {
        AUTO_FREE char *text = jx_dump(row);

        fail_msg("accepted: %s", text);
    }
    if (code != json_integer_value(json_object_get(row, "exit")) || !strstr(e.text, says))
        fail_msg("`%s` gives %d, %s; not: %s", str_text(&line), code, e.text, says);
    assert_null(c);
}

static void what_is_wrong_is_refused_by_name(void **state)
{
    AUTO_FREE char *dir = unit_folder("config");
    AUTO_FREE char *path =
        mem_printf("%s/tests/data/trainer/config-invalid.json", getenv("PT_SRC"));
    AUTO_JSON *rows = NULL;
    struct err e = {0};
    size_t i;
    json_t *row;

    (void)state;
    if (jx_load(&rows, path, 1 << 20, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(json_array_size(rows) > 40);
    json_array_foreach(rows, i, row)
        refuse(row, dir);
    file_remove_tree(dir, NULL);
}

static void every_broken_rule_is_named(void **state)
{
    struct tr_config *c = NULL;
    struct err e = {0};
    int code;

    (void)state;
    assert_true(load(&c, &code, 3, &e,
                     "--model tiny-moe --tp 3 --sp 0 --micro-batch 7 --zero 1 --schedule gpipe") <
                0);
    assert_int_equal(code, TR_EXIT_ILLEGAL);
    for (const char *const *rule = (const char *const[]){"heads-tp", "kv-heads-tp", "batch-divides",
                                                         "moe-tp-needs-sp", "canonical", NULL};
         *rule; rule++)
        if (!strstr(e.text, *rule))
            fail_msg("%s is missing: %s", *rule, e.text);
}

/* The same shapes with another use of them would train another model without a word. */
static void weights_to_begin_with_are_those_of_the_model_that_is_asked_for(void **state)
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":%d,\"head_dim\":%d,\"intermediate_size\":16,\"vocab_size\":100,"
        "\"rms_norm_eps\":1e-5,\"rope_theta\":%s,\"max_position_embeddings\":64}";
    static const struct {
        int heads, head_dim;
        const char *theta, *says; /* NULL: accepted */
    } row[] = {
        {2, 8, "10000.0", NULL},
        {4, 4, "10000.0", "heads 4"},
        {2, 8, "500000.0", "rope_theta"},
        {2, 8, "10000.0,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}", "rope_scaling"},
        {2, 8, "10000.0,\"rope_scaling\":{\"type\":\"linear\"}", "\"factor\" is missing"},
    };
    char *dir = unit_folder("begin with");
    AUTO_FREE char *model = write_file(dir, "m.json",
                                       "{\"name\":\"s\",\"layers\":1,\"hidden\":16,\"heads\":2,"
                                       "\"ffn\":16,\"vocab\":100,\"seq\":16,\"init_std\":0.3}");
    AUTO_FREE char *line = mem_printf("--model '%s' --init '%s'", model, dir);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_FREE char *text = mem_printf(config, row[i].heads, row[i].head_dim, row[i].theta);
        AUTO_FREE char *path = write_file(dir, "config.json", text);
        struct tr_config *c = NULL;
        struct err e = {0};
        int code, r = load(&c, &code, 1, &e, line);

        tr_config_free(c);
        if (!row[i].says && r < 0)
            fail_msg("%s: %s", text, e.text);
        if (row[i].says && (r == 0 || !strstr(e.text, row[i].says) || code != TR_EXIT_USAGE))
            fail_msg("%s: %d %s", text, code, e.text);
    }
    file_remove_tree(dir, NULL);
    free(dir);
}

static void the_load_balancing_loss_is_an_option(void **state)
{
    AUTO(tr_config) *c = need(1, "--model tiny-moe --aux-loss megatron --aux-loss-coef 0.125");
    AUTO(tr_config) *plain = need(1, "--model tiny-moe");
    AUTO_JSON *root = tr_config_json(c);
    const json_t *moe = json_object_get(json_object_get(root, "model"), "moe");
    struct tr_config *none = NULL;
    struct err e = {0};
    int code;

    (void)state;
    assert_int_equal(plain->model.moe.aux_loss, PL_AUX_SEQUENCE);
    assert_int_equal(c->model.moe.aux_loss, PL_AUX_MEGATRON);
    assert_true(c->model.moe.aux_loss_coef == 0.125);
    assert_string_equal(json_string_value(json_object_get(moe, "aux_loss")), "megatron");
    assert_true(load(&none, &code, 1, &e, "--model tiny-llama --aux-loss megatron") < 0);
    assert_non_null(strstr(e.text, "has no experts"));
    assert_true(load(&none, &code, 1, &e, "--model tiny-moe --aux-loss hf") < 0);
    assert_non_null(strstr(e.text, "huggingface"));
    assert_true(load(&none, &code, 1, &e, "--model tiny-moe --aux-loss-coef much") < 0);
    assert_non_null(strstr(e.text, "/model/moe/aux_loss_coef"));
}

static void z_losses_are_options(void **state)
{
    static const struct {
        const char *text, *says;
    } row[] = {{"--model tiny-llama --moe-z-loss-coef 1e-3", "has no experts"},
               {"--model tiny-moe --moe-z-loss-coef -1", "/model/moe/z_loss_coef"},
               {"--model tiny-moe --moe-z-loss-coef 1001", "1000"},
               {"--model tiny-moe --moe-z-loss-coef much", "/model/moe/z_loss_coef"},
               {"--model tiny-moe --z-loss-coef -1", "z-loss-coef"},
               {"--model tiny-moe --z-loss-coef 1001", "1000"}};
    AUTO(tr_config) *c = need(1, "--model tiny-moe --moe-z-loss-coef 0.125 --z-loss-coef 1e-4");
    AUTO(tr_config) *plain = need(1, "--model tiny-moe");
    AUTO_JSON *root = tr_config_json(c), *off = tr_config_json(plain);

    (void)state;
    assert_true(plain->model.moe.z_loss_coef == 0 && plain->train.z_loss_coef == 0);
    assert_true(c->model.moe.z_loss_coef == 0.125 && c->train.z_loss_coef == 1e-4);
    assert_true(json_number_value(json_object_get(json_object_get(root, "train"), "z_loss_coef")) ==
                1e-4);
    /* so that models stored before the word was known are equal to what they were */
    assert_null(
        json_object_get(json_object_get(json_object_get(off, "model"), "moe"), "z_loss_coef"));
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct tr_config *none = NULL;
        struct err e = {0};
        int code;

        if (load(&none, &code, 1, &e, row[i].text) == 0 || !strstr(e.text, row[i].says) ||
            code != TR_EXIT_USAGE)
            fail_msg("%s: %s", row[i].text, e.text);
    }
}

static void a_failure_still_tells_where_events_go(void **state)
{
    char *argv[] = {
        (char[]){"partune-train"}, (char[]){"--events"}, (char[]){"ev.jsonl"}, (char[]){"--model"},
        (char[]){"tiny-llama"},    (char[]){"--tp"},     (char[]){"3"},        NULL};
    struct tr_launch launch = {.size = 3};
    struct tr_config *c = NULL;
    struct err e = {0};
    AUTO_FREE char *events = NULL;
    int code;

    (void)state;
    assert_true(tr_config_load(&c, &code, &events, 7, argv, &launch, &e) < 0);
    assert_string_equal(events, "ev.jsonl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shell_user_needs_little),
        cmocka_unit_test(more_ranks_than_cores_share_the_memory),
        cmocka_unit_test(a_file_is_read_and_the_command_line_wins),
        cmocka_unit_test(a_trial_of_the_trainer_takes_what_a_campaign_takes),
        cmocka_unit_test(steps_on_the_command_line_make_a_training_run_of_a_trial),
        cmocka_unit_test(what_is_dumped_reads_back_to_the_same),
        cmocka_unit_test(a_batch_ramp_is_a_list_and_not_of_trials),
        cmocka_unit_test(parameter_groups_have_the_first_match_and_the_runs_settings_for_all_else),
        cmocka_unit_test(a_data_set_may_be_a_long_path),
        cmocka_unit_test(calibration_needs_no_model),
        cmocka_unit_test(what_is_wrong_is_refused_by_name),
        cmocka_unit_test(every_broken_rule_is_named),
        cmocka_unit_test(weights_to_begin_with_are_those_of_the_model_that_is_asked_for),
        cmocka_unit_test(the_load_balancing_loss_is_an_option),
        cmocka_unit_test(z_losses_are_options),
        cmocka_unit_test(a_failure_still_tells_where_events_go),
    };

    return cmocka_run_group_tests_name("configuration", tests, NULL, NULL);
}
