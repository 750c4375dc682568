/* What prepares texts for a tokenizer: the repair of UTF-8, regular expressions, added tokens. */
#include <errno.h>

#include "tests/unit/unit.h"
#include "trainer/added.h"
#include "trainer/bytemap.h"
#include "trainer/pattern.h"
#include "trainer/utf8.h"

static void each_maximal_part_becomes_one_replacement(void **state)
{
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\xc3\xa9\xf0\x9f\x98\x80"},
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xe2\x82", "\xef\xbf\xbd"},
        {"\xf0\x9f\x98"
         "x",
         "\xef\xbf\xbd"
         "x"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* overlong */
        {"\xf4\x90\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* above U+10FFFF */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_STR out = {0};

        tr_utf8_repair(&out, cases[i][0], strlen(cases[i][0]));
        assert_string_equal(str_text(&out), cases[i][1]);
    }
}

static void random_bytes_are_repaired_to_utf8(void **state)
{
    struct rng rng;

    (void)state;
    rng_seed(&rng, 9);
    for (int i = 0; i < 2000; i++) {
        char bytes[48];
        size_t len = (size_t)rng_below(&rng, sizeof(bytes) + 1);
        AUTO_FREE char *exact = mem_raw(len + 1); /* its end is the allocation's, for a sanitizer */
        AUTO_STR out = {0};

        for (size_t k = 0; k < len; k++)
            exact[k] = (char)(rng_below(&rng, 3) ? 0x80 + rng_below(&rng, 0x80) : rng_u64(&rng));
        tr_utf8_repair(&out, exact, len);
        assert_true(str_is_utf8(str_text(&out), out.len));
    }
}

#ifdef HAVE_PCRE2
static void patterns_that_mean_something_else_in_ruby_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"\\p{N}{1,3}+", "a + behind an interval"},
        {"a{2}?", "a ? behind {n}"},
        {"a{b", "a { that begins no interval"},
        {"(?i)a", "a group but (?:"},
        {"(?<n>a)", "a group but (?:"},
        {"(a)\\1", "\\1 in a regular expression"},
        {"[[:alpha:]]", "a POSIX class"},
        {"[a&&b]", "the intersection &&"},
        {"[a[^b]]", "a negated set inside a set"},
        {"\\h", "\\h in a regular expression"},
        {"\\pL", "\\p without {NAME}"},
        {"\\u12", "\\u without four"},
        {"\\x", "\\x without"},
        {"a\\", "\\ at the end"},
        {"a*", "a match of nothing"},
        {"(", "refused by PCRE2"},
        {"[a", "refused by PCRE2"},
        {"\\p{Klingon}", "refused by PCRE2"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tr_pattern *pattern = NULL;
        struct err e = {0};

        assert_int_equal(tr_pattern_new(&pattern, cases[i][0], &e), -EINVAL);
        if (!strstr(e.text, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], e.text);
    }
}

/* The first match of REGEX in TEXT must be WANT. */
static void finds(const char *regex, const char *text, const char *want)
{
    AUTO(tr_pattern) *pattern = NULL;
    struct err e = {0};
    size_t start = 0, end = 0;
    int r = tr_pattern_new(&pattern, regex, &e);

    if (r == 0)
        r = tr_pattern_find(&start, &end, pattern, text, strlen(text), 0, &e);
    if (r != 1)
        fail_msg("%s: %d %s", regex, r, e.text);
    assert_int_equal(end - start, strlen(want));
    assert_memory_equal(text + start, want, end - start);
}

static void patterns_mean_what_they_mean_in_ruby(void **state)
{
    (void)state;
    finds("\\s+",
          "a\xc2\x85\xe2\x80\xa8"
          "b",
          "\xc2\x85\xe2\x80\xa8");
    finds("\\S+", "\xe1\xa0\x8e a", "\xe1\xa0\x8e"); /* U+180E is not white, as PCRE2's \s has it */
    finds("x$", "xy x\nz", "x");                     /* $ is the end of a line */
    finds("x{,2}y", "xxxy", "xxy");
    finds("[^(\\s|[.,!])]+", "(.ab,c", "ab"); /* a set inside a set is its union with it */
    finds("\\w+",
          "-a_\xcc\x81"
          "1-",
          "a_\xcc\x81"
          "1");
    finds("[\\u4e00-\\x{9fff}]+", "a\xe6\xbc\xa2", "\xe6\xbc\xa2");
    finds("(?i:'s)", "'\xc5\xbf", "'\xc5\xbf");
    finds("\\p{Han}+", "\xe3\x80\x81\xe6\xbc\xa2", "\xe6\xbc\xa2"); /* the script alone */
}
#endif

static int note_piece(void *arg, const char *text, size_t len, struct err *error)
{
    (void)error;
    str_addf(arg, "[%.*s]", (int)len, text);
    return 0;
}

static int note_token(void *arg, uint32_t id, struct err *error)
{
    (void)error;
    str_addf(arg, "%u", id);
    return 0;
}

static void the_longest_added_token_counts(void **state)
{
    AUTO(tr_added) *added = tr_added_new();
    AUTO_STR got = {0};
    struct err e = {0};
    const char *text = "x<a<ab> <abc<s>\n y";

    (void)state;
    tr_added_put(added, "<ab>", 4, 1, false, false);
    tr_added_put(added, "<a", 2, 2, false, false);
    tr_added_put(added, "<s>", 3, 3, true, true);
    tr_added_put(added, "<abcd", 5, 4, false, false);
    assert_int_equal(tr_added_finish(added, &e), 0);
    assert_int_equal(tr_added_cut(added, text, strlen(text), note_piece, note_token, &got, &e), 0);
    assert_string_equal(str_text(&got), "[x]21[ ]2[bc]3[y]");
    tr_added_put(added, "<a", 2, 9, false, false);
    assert_int_equal(tr_added_finish(added, &e), -EINVAL);
}

static void a_map_finds_what_was_put(void **state)
{
    struct tr_bytemap map = {0};
    uint32_t value = 0;
    char key[16];

    (void)state;
    assert_false(tr_bytemap_get(&value, &map, "", 0));
    for (uint32_t i = 0; i < 5000; i++)
        tr_bytemap_put(&map, key, (size_t)snprintf(key, sizeof(key), "%u", i), i);
    for (uint32_t i = 0; i < 5000; i++) {
        assert_true(tr_bytemap_get(&value, &map, key, (size_t)snprintf(key, sizeof(key), "%u", i)));
        assert_int_equal(value, i);
    }
    assert_false(tr_bytemap_get(&value, &map, "5000", 4));
    tr_bytemap_clear(&map);
    assert_false(tr_bytemap_get(&value, &map, "7", 1));
    tr_bytemap_done(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_maximal_part_becomes_one_replacement),
        cmocka_unit_test(random_bytes_are_repaired_to_utf8),
#ifdef HAVE_PCRE2
        cmocka_unit_test(patterns_that_mean_something_else_in_ruby_are_refused),
        cmocka_unit_test(patterns_mean_what_they_mean_in_ruby),
#endif
        cmocka_unit_test(the_longest_added_token_counts),
        cmocka_unit_test(a_map_finds_what_was_put),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
