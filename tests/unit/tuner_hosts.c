/* Host files, and which hosts a trial gets. */
#include "tests/unit/unit.h"

#include <errno.h>

#include "tuner/machine/hosts.h"
#include "tuner/machine/slots.h"

static int read_text(struct tn_hosts **ret, const char *text, struct err *e)
{
    AUTO_FREE char *folder = unit_folder("hosts");
    AUTO_FREE char *path = mem_printf("%s/file", folder);
    int r = file_write_atomic(path, text, strlen(text), 0600, e);

    if (r == 0)
        r = tn_hosts_read(ret, path, e);
    file_remove_tree(folder, NULL);
    return r;
}

static void lines_are_hosts_with_their_cores(void **state)
{
    struct tn_hosts *h = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(read_text(&h, "# rack 1\na:4\n\n  b:2 # slow\r\nc", &e), 0);
    assert_int_equal(h->count, 3);
    assert_string_equal(h->host[1].name, "b");
    assert_true(h->host[1].first == 4 && h->host[1].slots == 2);
    assert_true(h->host[2].first == 6 && h->host[2].slots == 1);
    assert_int_equal(h->slots, 7);
    assert_int_equal(tn_hosts_suiting(h, 2, false), 2);
    assert_int_equal(tn_hosts_suiting(h, 2, true), 3);
    tn_hosts_free(h);
}

static void an_invalid_host_file_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "names no host"},
               {"# nothing\n", "names no host"},
               {"a:2\nb:0\n", ":2: the number of cores"},
               {"a:two\n", ":1: the number of cores"},
               {"a:2\na:2\n", ":2: \"a\" is listed twice"},
               {"a:2 user=bob\n", ":1: \"user=bob\""},
               {"\n-x\n", ":2: \"-x\" is not a valid"},
               {"a,b:1\n", ":1: \"a,b\" is not a valid"},
               {"fe80::1\n", ":1: \"fe80:\" is not a valid"},
               {"a:1024\nb:1\n", ":2: more than 1024"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct tn_hosts *h = NULL;
        struct err e = {0};

        assert_int_equal(read_text(&h, bad[i].text, &e), -EINVAL);
        if (!strstr(e.text, bad[i].says))
            fail_msg("%s does not say %s", e.text, bad[i].says);
    }
}

/* Takes slots of H for T and says which hosts they are. */
static int take(char **ret, const struct tn_hosts *h, struct tn_slots *s, int *cpus,
                struct tn_shape t)
{
    AUTO_STR text = {0};
    int n = tn_hosts_take(cpus, h, s, &t);

    tn_hosts_text(&text, h, cpus, n, &t);
    free(*ret);
    *ret = mem_strdup(text.text ? text.text : "");
    return n;
}

static void trials_get_disjoint_cores_node_by_node(void **state)
{
    AUTO_FREE char *at = NULL;
    struct tn_hosts *h = NULL;
    struct tn_slots s;
    struct err e = {0};
    int a[8], b[8], c[8], d[8];

    (void)state;
    assert_int_equal(read_text(&h, "a:4\nb:2\nc:4\n", &e), 0);
    tn_hosts_slots(&s, h);
    assert_int_equal(take(&at, h, &s, a, (struct tn_shape){2, 4, 1, false}), 2);
    assert_string_equal(at, "b:2"); /* the fullest with room */
    assert_int_equal(take(&at, h, &s, b, (struct tn_shape){1, 4, 2, false}), 2);
    assert_string_equal(at, "a:1"); /* two threads on two cores */
    assert_int_equal(take(&at, h, &s, c, (struct tn_shape){8, 4, 1, false}), 0);
    assert_int_equal(s.free, 6); /* nothing was taken: a is not idle, b is no such node */
    assert_int_equal(take(&at, h, &s, c, (struct tn_shape){1, 4, 1, false}), 1);
    assert_string_equal(at, "a:1");
    assert_true(c[0] != b[0] && c[0] != b[1]);
    tn_slots_give(&s, a, 2);
    tn_slots_give(&s, b, 2);
    tn_slots_give(&s, c, 1);
    assert_int_equal(take(&at, h, &s, c, (struct tn_shape){6, 4, 1, false}), 6);
    assert_string_equal(at, "a:4,c:2");
    assert_int_equal(take(&at, h, &s, d, (struct tn_shape){4, 2, 1, false}), 0);
    assert_int_equal(take(&at, h, &s, d, (struct tn_shape){2, 2, 1, false}), 2);
    assert_string_equal(at, "b:2");
    tn_hosts_free(h);
}

static void ranks_share_cores_only_where_that_is_allowed(void **state)
{
    AUTO_FREE char *at = NULL;
    struct tn_hosts *h = NULL;
    struct tn_slots s;
    struct err e = {0};
    int a[8];

    (void)state;
    assert_int_equal(read_text(&h, "a:1\nb:1\n", &e), 0);
    tn_hosts_slots(&s, h);
    assert_int_equal(take(&at, h, &s, a, (struct tn_shape){4, 2, 1, false}), 0);
    assert_int_equal(take(&at, h, &s, a, (struct tn_shape){4, 2, 1, true}), 2);
    assert_string_equal(at, "a:2,b:2");
    assert_int_equal(s.free, 0);
    tn_hosts_free(h);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lines_are_hosts_with_their_cores),
    cmocka_unit_test(an_invalid_host_file_is_refused_with_its_line),
    cmocka_unit_test(trials_get_disjoint_cores_node_by_node),
    cmocka_unit_test(ranks_share_cores_only_where_that_is_allowed),
};

UNIT_MAIN(tests)
