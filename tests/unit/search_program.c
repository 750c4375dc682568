/* partune-search over its own protocol, from tests/data/search/session.txt. */
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

enum { MAX_PAIRS = 200 };

struct pair {
    char *request, *answer;
};

static const char *source_dir(void)
{
    const char *d = getenv("PT_SRC");

    return d ? d : ".";
}

static const char *build_dir(void)
{
    const char *d = getenv("PT_BUILD");

    return d ? d : ".";
}

/* Every member of WANT is in GOT and equal; "*" is equal to anything. */
static bool matches(const json_t *got, const json_t *want)
{
    const char *key;
    json_t *v;

    if (json_is_string(want) && str_eq(json_string_value(want), "*"))
        return got != NULL;
    if (!json_is_object(want) || !json_is_object(got))
        return got && json_equal(got, want);
    json_object_foreach((json_t *)want, key, v)
        if (!matches(json_object_get(got, key), v))
            return false;
    return true;
}

static int read_session(struct pair *pair, char *text)
{
    int n = 0;

    for (char *line = strtok_r(text, "\n", &text); line; line = strtok_r(NULL, "\n", &text)) {
        if (str_starts(line, "> "))
            pair[n].request = line + 2;
        else if (str_starts(line, "< "))
            pair[n++].answer = line + 2;
        assert_true(n < MAX_PAIRS);
    }
    return n;
}

/* Run the program over INPUT with CAMPAIGN; its standard output, which the caller frees. */
static char *run(const char *folder, const char *campaign, const char *input, int *status)
{
    AUTO_FREE char *in = mem_printf("%s/in", folder), *out = mem_printf("%s/out", folder);
    AUTO_FREE char *command = mem_printf("'%s/partune-search' '%s' <'%s' >'%s' 2>/dev/null",
                                         build_dir(), campaign, in, out);
    struct err e;
    char *text = NULL;
    size_t n;

    assert_int_equal(file_write_atomic(in, input, strlen(input), 0600, &e), 0);
    *status = system(command);
    assert_int_equal(file_read_all(&text, &n, out, 1 << 24, &e), 0);
    return text;
}

static void a_session_is_answered_line_by_line(void **state)
{
    AUTO_FREE char *folder = unit_folder("search_program");
    AUTO_FREE char *path = mem_printf("%s/tests/data/search/session.txt", source_dir());
    AUTO_FREE char *campaign = mem_printf("%s/tests/data/search/campaign.json", source_dir());
    struct pair pair[MAX_PAIRS];
    AUTO_STR input = {0};
    struct err e;
    char *session = NULL, *answers, *rest, *line;
    size_t size;
    int n, status;

    (void)state;
    assert_int_equal(file_read_all(&session, &size, path, 1 << 20, &e), 0);
    n = read_session(pair, session);
    assert_true(n > 20);
    for (int i = 0; i < n; i++)
        str_addf(&input, "%s\n", pair[i].request);
    answers = run(folder, campaign, str_text(&input), &status);
    assert_int_equal(status, 0);
    rest = answers;
    for (int i = 0; i < n; i++) {
        AUTO_JSON *got = NULL, *want = NULL;

        line = strtok_r(rest, "\n", &rest);
        assert_non_null(line);
        assert_int_equal(jx_parse(&got, line, strlen(line), &e), 0);
        assert_int_equal(jx_parse(&want, pair[i].answer, strlen(pair[i].answer), &e), 0);
        if (!matches(got, want))
            fail_msg("%s\n  was answered %s\n  instead of  %s", pair[i].request, line,
                     pair[i].answer);
    }
    free(answers);
    free(session);
    file_remove_tree(folder, &e);
}

static void an_impossible_campaign_ends_with_its_reason(void **state)
{
    AUTO_FREE char *folder = unit_folder("search_program");
    AUTO_FREE char *path = mem_printf("%s/bad.json", folder);
    static const char text[] =
        "{\"model\":\"gpt-1.4B\",\"cluster\":{\"profile\":\"dgx-a100\",\"nodes\":1},"
        "\"workload\":{\"global_batch\":8},\"trainer\":\"megatron\",\"space\":{\"tp\":[7]}}";
    struct err e;
    int status;
    char *out;

    (void)state;
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, &e), 0);
    out = run(folder, path, "{\"op\":\"ask\"}\n", &status);
    assert_int_equal(WEXITSTATUS(status), 65);
    assert_non_null(strstr(out, "\"op\":\"error\""));
    assert_non_null(strstr(out, "/space"));
    free(out);
    file_remove_tree(folder, &e);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_session_is_answered_line_by_line),
    cmocka_unit_test(an_impossible_campaign_ends_with_its_reason),
};
UNIT_MAIN(tests)
