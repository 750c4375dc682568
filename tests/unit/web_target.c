/* The request target, routes, Host and Origin: pure functions that read what strangers send. */
#include "tests/unit/unit.h"

#include <errno.h>

#include "web/internal.h"

static int parse(struct web_target *t, const char *raw, const char *prefix, struct arena *a)
{
    struct err e;

    return web_target_parse(t, raw, prefix, a, &e);
}

static void path_is_split_before_it_is_decoded(void **state)
{
    struct arena a = {0};
    struct web_target t;

    (void)state;
    assert_int_equal(parse(&t, "/v1/a%2Fb/c%20d?x=1&y=%26+z", "", &a), 0);
    assert_int_equal(t.nsegments, 3);
    assert_string_equal(t.segment[1], "a/b");
    assert_string_equal(t.segment[2], "c d");
    assert_int_equal(t.nquery, 2);
    assert_string_equal(t.query[1].value, "& z");
    arena_done(&a);
}

static void what_could_mean_two_things_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "x",
        "/%",
        "/%4",
        "/%4g",
        "/a/%00",
        "/a/%0a",
        "/%ff",
        "/a/../b",
        "/a/%2e%2e",
        "/./a",
        "/%c0%af",
        "/?%",
        "/?a=%f",
        "/?a=1&a=2",
        "/?a&a",
        "/1/2/3/4/5/6/7/8/9/10/11/12/13",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct arena a = {0};
        struct web_target t;

        if (parse(&t, bad[i], "", &a) >= 0)
            fail_msg("%s was accepted", bad[i]);
        arena_done(&a);
    }
}

static void prefix_is_a_whole_segment(void **state)
{
    struct arena a = {0};
    struct web_target t;

    (void)state;
    assert_int_equal(parse(&t, "/deep/v1", "/deep", &a), 0);
    assert_string_equal(t.path, "/v1");
    assert_int_equal(parse(&t, "/deeper/v1", "/deep", &a), -ENOENT);
    assert_int_equal(parse(&t, "/v1", "/deep", &a), -ENOENT);
    arena_done(&a);
}

/* Every text of up to 4 of these bytes: never a crash, and what is accepted is UTF-8 without
 * control characters. */
static void any_short_target_is_parsed_or_refused(void **state)
{
    static const char bytes[] = "/%20?=&.\xc3\xa9+a";
    enum { N = sizeof(bytes) - 1 };

    (void)state;
    for (int i = 0; i < N * N * N * N; i++) {
        char raw[6] = {
            '/', bytes[i % N], bytes[i / N % N], bytes[i / N / N % N], bytes[i / N / N / N], 0};
        struct arena a = {0};
        struct web_target t;

        if (parse(&t, raw, "", &a) == 0)
            for (int k = 0; k < t.nsegments; k++)
                assert_true(str_is_utf8(t.segment[k], strlen(t.segment[k])));
        arena_done(&a);
    }
}

static const struct web_route table[] = {
    {.method = "GET", .path = "/"},
    {.method = "GET", .path = "/c"},
    {.method = "POST", .path = "/c"},
    {.method = "GET", .path = "/c/{id}"},
    {.method = "POST", .path = "/c/{id}:stop"},
    {.method = "GET", .path = "/c/{id}/t/{n}"},
    {.method = NULL},
};

static int find(struct web_match *m, const char **allow, const char *method, const char *raw,
                struct arena *a)
{
    struct web_target t;

    assert_int_equal(parse(&t, raw, "", a), 0);
    return web_route_find(m, allow, table, method, &t, a);
}

static void a_route_is_found_with_its_parameters(void **state)
{
    struct arena a = {0};
    struct web_match m;
    const char *allow = NULL;

    (void)state;
    assert_int_equal(find(&m, &allow, "GET", "/", &a), 0);
    assert_int_equal(find(&m, &allow, "HEAD", "/c/x/t/7", &a), 0);
    assert_int_equal(m.nparams, 2);
    assert_string_equal(m.param[0].value, "x");
    assert_string_equal(m.param[1].value, "7");
    assert_int_equal(find(&m, &allow, "POST", "/c/x:stop", &a), 0);
    assert_string_equal(m.param[0].value, "x");
    arena_done(&a);
}

static void a_verb_is_never_part_of_an_id(void **state)
{
    struct arena a = {0};
    struct web_match m;
    const char *allow = NULL;

    (void)state;
    assert_int_equal(find(&m, &allow, "GET", "/c/x:stop", &a), -EPERM);
    assert_string_equal(allow, "POST, OPTIONS");
    assert_int_equal(find(&m, &allow, "POST", "/c/:stop", &a), -ENOENT);
    assert_int_equal(find(&m, &allow, "POST", "/c/x:y:stop", &a), -ENOENT);
    assert_int_equal(find(&m, &allow, "GET", "/c/", &a), -ENOENT);
    assert_int_equal(find(&m, &allow, "DELETE", "/c", &a), -EPERM);
    assert_string_equal(allow, "GET, HEAD, POST, OPTIONS");
    arena_done(&a);
}

static void only_our_names_are_our_host(void **state)
{
    static const char *const extra[] = {"tuner.example", NULL};
    static const char *const good[] = {"localhost",  "LOCALHOST:1", "127.0.0.1:8417",   "127.9.9.9",
                                       "[::1]:8417", "[::1]",       "Tuner.Example:443"};
    static const char *const bad[] = {"",
                                      "evil.example",
                                      "127.0.0.1.evil.example",
                                      "localhost.evil.example",
                                      "localhost:80:80",
                                      "localhost:",
                                      "localhost:99999",
                                      "[::1",
                                      "[::1]x",
                                      "0.0.0.0",
                                      "127.0.0.1@evil.example",
                                      "10.0.0.1"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (!web_host_allowed(good[i], extra))
            fail_msg("%s was refused", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (web_host_allowed(bad[i], extra))
            fail_msg("%s was allowed", bad[i]);
}

static void an_origin_is_ours_or_listed(void **state)
{
    static const char *const listed[] = {"https://friend.example", NULL};
    bool foreign;

    (void)state;
    assert_true(web_origin_allowed(&foreign, "http://127.0.0.1:8417", "127.0.0.1:8417", listed));
    assert_false(foreign);
    assert_true(web_origin_allowed(&foreign, "https://friend.example", "127.0.0.1:8417", listed));
    assert_true(foreign);
    /* another port of this machine is another program */
    assert_false(web_origin_allowed(&foreign, "http://127.0.0.1:9999", "127.0.0.1:8417", listed));
    assert_false(web_origin_allowed(&foreign, "null", "127.0.0.1:8417", listed));
    assert_false(web_origin_allowed(&foreign, "file://127.0.0.1:8417", "127.0.0.1:8417", listed));
    assert_false(
        web_origin_allowed(&foreign, "https://friend.example.evil", "127.0.0.1:8417", listed));
}

static void a_header_list_is_read_by_words(void **state)
{
    (void)state;
    assert_true(web_list_has("deflate, gzip", "gzip"));
    assert_true(web_list_has("gzip;q=0.5", "gzip"));
    assert_true(web_list_has("application/json; charset=utf-8", "application/json"));
    assert_false(web_list_has("gzip;q=0", "gzip"));
    assert_false(web_list_has("gzip;q=0.000", "gzip"));
    assert_false(web_list_has("gzip ; Q=0, br", "gzip"));
    assert_true(web_list_has("gzip;q=1.0, *;q=0", "gzip"));
    assert_true(web_list_has("gzip;q=0.001", "gzip"));
    assert_false(web_list_has("xgzip, gzipx", "gzip"));
    assert_false(web_list_has("application/jsonx", "application/json"));
    assert_false(web_list_has(NULL, "gzip"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(path_is_split_before_it_is_decoded),
        cmocka_unit_test(what_could_mean_two_things_is_refused),
        cmocka_unit_test(prefix_is_a_whole_segment),
        cmocka_unit_test(any_short_target_is_parsed_or_refused),
        cmocka_unit_test(a_route_is_found_with_its_parameters),
        cmocka_unit_test(a_verb_is_never_part_of_an_id),
        cmocka_unit_test(only_our_names_are_our_host),
        cmocka_unit_test(an_origin_is_ours_or_listed),
        cmocka_unit_test(a_header_list_is_read_by_words),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
