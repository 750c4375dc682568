/* jx, conf, opt, file: the modules through which the outside enters. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>

static void refuses(const char *json, const char *want)
{
    AUTO_FREE char *text = mem_strdup(json);
    struct err e = {0};
    json_t *v = NULL;

    assert_int_equal(jx_parse(&v, text, strlen(text), &e), -EINVAL);
    if (!strstr(e.text, want))
        fail_msg("`%s` gave `%s`, which lacks `%s`", json, e.text, want);
}

static void invalid_json_is_refused_with_its_place(void **state)
{
    AUTO_STR deep = {0};

    (void)state;
    refuses("{\"a\":1,", "line 1");
    refuses("{\"a\":1}x", "line 1");
    refuses("{\"a\":1,\"a\":2}", "duplicate");
    refuses("{\"a\":\"\xff\"}", "UTF-8");
    for (int i = 0; i < 100000; i++)
        str_addc(&deep, '[');
    refuses(str_text(&deep), "nested deeper than 64");
}

static void unknown_key_offers_the_nearest(void **state)
{
    static const char *const keys[] = {"layers", "hidden", NULL};
    AUTO_JSON *v = unit_json("{'layers': 2, 'hiden': 3}");
    struct err e = {0};

    (void)state;
    assert_int_equal(jx_keys(v, keys, &e), -EINVAL);
    assert_string_equal(e.pointer, "/hiden");
    assert_string_equal(e.text, "\"hiden\" is unknown; did you mean \"hidden\"?");
}

static void unknown_key_lists_those_that_are_known_if_they_are_few(void **state)
{
    static const char *const few[] = {"layers", "hidden", NULL}, *const many[] = {
                                                                     "a", "b", "c", "d", "e",
                                                                     "f", "g", "h", "i", NULL};
    AUTO_JSON *v = unit_json("{'replicas': 1}");
    struct err e = {0};

    (void)state;
    assert_int_equal(jx_keys(v, few, &e), -EINVAL);
    assert_string_equal(e.pointer, "/replicas");
    assert_string_equal(e.text, "\"replicas\" is unknown (layers, hidden)");
    assert_int_equal(jx_keys(v, many, &e), -EINVAL);
    assert_string_equal(e.text, "\"replicas\" is unknown");
}

static void getter_keeps_the_default_and_names_the_bound(void **state)
{
    AUTO_JSON *v = unit_json("{'tp': 9, 'x': 1.5, 'n': null, 's': 'two'}");
    struct err e = {0};
    int tp = 3;
    bool flag = true;
    double d = 0;

    (void)state;
    assert_int_equal(jx_get_int(&tp, v, "absent", 1, 8, &e), 0);
    assert_int_equal(jx_get_int(&tp, v, "n", 1, 8, &e), 0);
    assert_int_equal(tp, 3);
    assert_int_equal(jx_get_int(&tp, v, "tp", 1, 8, &e), -ERANGE);
    assert_string_equal(e.text, "\"tp\" is 9, outside 1..8");
    assert_string_equal(e.pointer, "/tp");
    assert_int_equal(jx_get_int(&tp, v, "x", 1, 8, &e), -EINVAL);
    assert_int_equal(jx_get_bool(&flag, v, "tp", &e), -EINVAL);
    assert_int_equal(jx_get_f64(&d, v, "s", 0, 1, &e), -EINVAL);
    assert_int_equal(jx_need(v, "absent", &e), -EINVAL);
    assert_int_equal(jx_need(v, "n", &e), -EINVAL);
}

static void word_outside_the_list_offers_the_nearest(void **state)
{
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", NULL};
    AUTO_JSON *v = unit_json("{'schedule': 'interleave'}");
    struct err e = {0};
    int i = 1;

    (void)state;
    assert_int_equal(jx_get_enum(&i, v, "schedule", names, &e), -EINVAL);
    assert_non_null(strstr(e.text, "did you mean \"interleaved\""));
    assert_int_equal(i, 1);
}

static void pointers_escape_their_keys(void **state)
{
    static const char *const keys[] = {"a", NULL};
    AUTO_JSON *v = unit_json("{'x/y~z': 1}");
    struct err e = {0};

    (void)state;
    jx_keys(v, keys, &e);
    assert_string_equal(e.pointer, "/x~1y~0z");
}

static void conf_reads_sections_quotes_and_continuations(void **state)
{
    static const char text[] = "# top\n[daemon]\n\tport = 8417 ; why\n\tname = \" a b \"\n"
                               "[trainer \"Mega Tron\"]\n\targv = one \\\n two\n\tport = 1\n";
    AUTO(conf) *c = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(conf_parse(&c, text, "t.conf", &e), 0);
    assert_string_equal(conf_get(c, "daemon", "", "port"), "8417");
    assert_string_equal(conf_get(c, "daemon", "", "name"), " a b ");
    assert_string_equal(conf_get(c, "trainer", "Mega Tron", "argv"), "one  two");
    assert_null(conf_get(c, "daemon", "", "absent"));
}

static void conf_names_the_line_that_is_wrong(void **state)
{
    static const struct {
        const char *text, *want;
    } bad[] = {
        {"x = 1\n", "c:1: a key before"},           {"[a]\n\n = 2\n", "c:3: expected"},
        {"[a]\nk 2\n", "c:2: expected ="},          {"[a\nk = 2\n", "c:1: a section header"},
        {"[a \"b]\nk = 1\n", "c:1: the section's"}, {"[a]\nk = \"x\n", "c:2: a quoted value"},
        {"[a]\nk = \\q\n", "c:2: unknown escape"},  {"[]\n", "c:1: a section needs"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct conf *c = NULL;
        struct err e = {0};

        assert_int_equal(conf_parse(&c, bad[i].text, "c", &e), -EINVAL);
        if (!str_starts(e.text, bad[i].want))
            fail_msg("`%s` gave `%s`", bad[i].text, e.text);
    }
}

struct values {
    int port;
    double ratio, tokens;
    uint64_t memory;
    const char *data;
    bool keep;
};

static const struct opt table[] = {
    {"port", 'p', OPT_INT, offsetof(struct values, port), 0, 65535, "8417", "PT_TEST_PORT", NULL,
     "port"},
    {"ratio", 0, OPT_F64, offsetof(struct values, ratio), 0, 1, "0.5", NULL, NULL, "ratio"},
    {"tokens", 0, OPT_COUNT, offsetof(struct values, tokens), 1, 1e18, NULL, NULL, "N", "tokens"},
    {"memory", 0, OPT_BYTES, offsetof(struct values, memory), 0, 0, NULL, NULL, "BYTES", "memory"},
    {"data", 'd', OPT_STR, offsetof(struct values, data), 0, 0, NULL, NULL, "DIR", "folder"},
    {"keep", 'k', OPT_FLAG, offsetof(struct values, keep), 0, 0, NULL, NULL, NULL, "keep"},
};

static struct opt_set options(struct values *v)
{
    struct opt_set s = {.program = "t",
                        .usage = "t [options]",
                        .section = "daemon",
                        .table = table,
                        .count = ARRAY_LEN(table),
                        .values = v};

    opt_init(&s);
    return s;
}

static void later_origins_win(void **state)
{
    const char *args[] = {"t", "one", "--port=3", "-k", "--data", "x", "--", "-two", NULL};
    char **argv = (char **)(uintptr_t)args;
    struct values v = {0};
    struct opt_set s = options(&v);
    struct conf *c = NULL;
    struct err e = {0};
    int n = 0;

    (void)state;
    assert_int_equal(v.port, 8417);
    assert_int_equal(conf_parse(&c, "[daemon]\nport=1\nratio=0.25\n[other]\nx=1\n", "c", &e), 0);
    assert_int_equal(opt_from_conf(&s, c, &e), 0);
    assert_int_equal(v.port, 1);
    setenv("PT_TEST_PORT", "2", 1);
    assert_int_equal(opt_from_env(&s, &e), 0);
    unsetenv("PT_TEST_PORT");
    assert_int_equal(v.port, 2);
    assert_int_equal(opt_from_argv(&n, &s, 8, argv, 0, &e), 0);
    assert_int_equal(v.port, 3);
    assert_true(v.keep);
    assert_string_equal(v.data, "x");
    assert_true(v.ratio > 0.24 && v.ratio < 0.26);
    assert_int_equal(n, 2);
    assert_string_equal(argv[1], "one");
    assert_string_equal(argv[2], "-two");
    assert_string_equal(s.origin[0], "command line");
    assert_string_equal(s.origin[1], "file");
    conf_free(c);
    opt_done(&s);
}

static void a_count_has_a_unit(void **state)
{
    static const struct {
        const char *arg;
        double want;
    } good[] = {{"--tokens=15T", 15e12}, {"--tokens=1.5b", 1.5e9},  {"--tokens=2M", 2e6},
                {"--tokens=3k", 3e3},    {"--tokens=15e12", 15e12}, {"--tokens=7", 7}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        const char *args[] = {"t", good[i].arg, NULL};
        char **argv = (char **)(uintptr_t)args;
        struct values v = {0};
        struct opt_set s = options(&v);
        struct err e = {0};
        int n = 0;

        assert_int_equal(opt_from_argv(&n, &s, 2, argv, 0, &e), 0);
        assert_true(fabs(v.tokens - good[i].want) < 1e-9 * good[i].want);
        opt_done(&s);
    }
}

static void bad_options_say_what_is_wrong(void **state)
{
    static const struct {
        const char *arg, *want;
    } bad[] = {
        {"--prot=1", "did you mean `port`"},  {"--port=x", "must be an integer"},
        {"--port=99999", "0..65535"},         {"--ratio=2", "must be a number"},
        {"--memory=lots", "such as 512M"},    {"--keep=maybe", "true or false"},
        {"--data", "needs a value"},          {"-z", "unknown option"},
        {"--tokens=T", "must be a number"},   {"--tokens=2Q", "must be a number"},
        {"--tokens=2MM", "must be a number"}, {"--tokens=2000000T", "must be a number"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *args[] = {"t", bad[i].arg, NULL};
        char **argv = (char **)(uintptr_t)args;
        struct values v = {0};
        struct opt_set s = options(&v);
        struct err e = {0};
        int n = 0;

        assert_true(opt_from_argv(&n, &s, 2, argv, 0, &e) < 0);
        if (!strstr(e.text, bad[i].want))
            fail_msg("`%s` gave `%s`", bad[i].arg, e.text);
        opt_done(&s);
    }
}

static void atomic_write_replaces_or_leaves(void **state)
{
    AUTO_FREE char *dir = unit_folder("file");
    AUTO_FREE char *path = mem_printf("%s/a", dir);
    AUTO_FREE char *nowhere = mem_printf("%s/none/a", dir);
    AUTO_FREE char *text = NULL;
    struct err e = {0};
    size_t n = 0;

    (void)state;
    assert_int_equal(file_write_atomic(path, "one", 3, 0600, &e), 0);
    assert_int_equal(file_write_atomic(path, "three", 5, 0600, &e), 0);
    assert_int_equal(file_read_all(&text, &n, path, 100, &e), 0);
    assert_string_equal(text, "three");
    assert_int_equal(file_write_atomic(nowhere, "x", 1, 0600, &e), -ENOENT);
    assert_non_null(strstr(e.text, "none/a"));
    assert_int_equal(file_read_all(&text, &n, path, 4, &e), -EFBIG);
    assert_int_equal(file_remove_tree(dir, &e), 0);
    assert_false(file_exists(dir));
}

static void a_tree_is_removed_without_following_links(void **state)
{
    AUTO_FREE char *dir = unit_folder("tree");
    AUTO_FREE char *precious = mem_printf("%s/precious", dir);
    AUTO_FREE char *tree = mem_printf("%s/a", dir);
    AUTO_FREE char *deep = mem_printf("%s/b/c", tree);
    AUTO_FREE char *file = mem_printf("%s/file", deep);
    AUTO_FREE char *link = mem_printf("%s/link", deep);
    struct err e = {0};

    (void)state;
    assert_int_equal(file_mkdirs(precious, 0700, &e), 0);
    assert_int_equal(file_mkdirs(deep, 0700, &e), 0);
    assert_int_equal(file_write_atomic(file, "12345", 5, 0600, &e), 0);
    assert_int_equal(symlink(precious, link), 0);
    assert_true(file_tree_bytes(tree) >= 5);
    assert_int_equal(file_remove_tree(tree, &e), 0);
    assert_false(file_exists(tree));
    assert_true(file_exists(precious));
    assert_int_equal(file_remove_tree(tree, &e), 0); /* absent is success */
    assert_int_equal(file_tree_bytes(tree), 0);
    file_remove_tree(dir, NULL);
}

static void second_lock_is_busy(void **state)
{
    AUTO_FREE char *dir = unit_folder("lock");
    AUTO_FREE char *path = mem_printf("%s/lock", dir);
    struct err e = {0};
    int a = -1, b = -1;

    (void)state;
    assert_int_equal(file_lock(&a, path, &e), 0);
    assert_int_equal(file_lock(&b, path, &e), -EBUSY);
    assert_int_equal(b, -1);
    close(a);
    assert_int_equal(file_lock(&b, path, &e), 0);
    close(b);
    file_remove_tree(dir, NULL);
}

static void the_launcher_says_who_a_process_is(void **state)
{
    static const struct {
        const char *env[5][2];
        struct ranks want;
    } cases[] = {
        {{{NULL, NULL}}, {NULL, 0, 1, -1, -1}},
        {{{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
         {"PMI_RANK", 3, 8, 1, 2}},
        {{{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "8"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"PMIX_RANK", "3"}},
         {"OMPI_COMM_WORLD_RANK", 3, 8, 1, 4}},
        /* of an allocation, in which mpiexec started fewer */
        {{{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"PMIX_RANK", "1"},
          {"SLURM_NTASKS", "4"}},
         {"OMPI_COMM_WORLD_RANK", 1, 2, -1, -1}},
        {{{"PMIX_RANK", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}},
         {"PMIX_RANK", 1, 4, 1, -1}},
        {{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"SLURM_LOCALID", "0"}},
         {"PMI_RANK", 1, 4, 0, -1}},                     /* srun --mpi=pmi2 */
        {{{"SLURM_NTASKS", "4"}}, {NULL, 0, 1, -1, -1}}, /* in an allocation, but not under srun */
        {{{"PMI_RANK", "x"}, {"PMI_SIZE", "-2"}}, {NULL, 0, 1, -1, -1}},
        {{{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}, {NULL, 0, 1, -1, -1}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ranks r;

        for (int k = 0; k < 5 && cases[i].env[k][0]; k++)
            setenv(cases[i].env[k][0], cases[i].env[k][1], 1);
        ranks_from_env(&r);
        for (int k = 0; k < 5 && cases[i].env[k][0]; k++)
            unsetenv(cases[i].env[k][0]);
        if (!str_eq(r.by ? r.by : "", cases[i].want.by ? cases[i].want.by : ""))
            fail_msg("case %zu: told by %s", i, r.by ? r.by : "nobody");
        assert_int_equal(r.rank, cases[i].want.rank);
        assert_int_equal(r.size, cases[i].want.size);
        assert_int_equal(r.local, cases[i].want.local);
        assert_int_equal(r.locals, cases[i].want.locals);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(invalid_json_is_refused_with_its_place),
    cmocka_unit_test(unknown_key_offers_the_nearest),
    cmocka_unit_test(unknown_key_lists_those_that_are_known_if_they_are_few),
    cmocka_unit_test(getter_keeps_the_default_and_names_the_bound),
    cmocka_unit_test(word_outside_the_list_offers_the_nearest),
    cmocka_unit_test(pointers_escape_their_keys),
    cmocka_unit_test(conf_reads_sections_quotes_and_continuations),
    cmocka_unit_test(conf_names_the_line_that_is_wrong),
    cmocka_unit_test(later_origins_win),
    cmocka_unit_test(a_count_has_a_unit),
    cmocka_unit_test(bad_options_say_what_is_wrong),
    cmocka_unit_test(atomic_write_replaces_or_leaves),
    cmocka_unit_test(a_tree_is_removed_without_following_links),
    cmocka_unit_test(second_lock_is_busy),
    cmocka_unit_test(the_launcher_says_who_a_process_is),
};

UNIT_MAIN(tests)
