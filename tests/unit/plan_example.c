/* Worked examples: each is complete, legal and consistent with itself. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "plan/plan.h"

/* The answer of example NAME, computed once; borrowed. */
static json_t *answer_of(const char *name)
{
    static json_t *known;
    struct err e = {0};
    json_t *v = json_object_get(known, name);

    if (v)
        return v;
    if (pl_example_json(&v, name, &e) < 0)
        fail_msg("%s", e.text);
    known = known ? known : json_object();
    json_object_set_new(known, name, v);
    return v;
}

/* The file of example NAME. New reference. */
static json_t *file_of(const char *name)
{
    AUTO_FREE char *text = NULL;
    json_t *v = NULL;
    char path[4096];
    struct err e = {0};

    snprintf(path, sizeof(path), "%s/plan/examples/%s.json", getenv("PT_SRC"), name);
    if (file_read_all(&text, NULL, path, 1 << 20, &e) < 0 ||
        jx_parse(&v, text, strlen(text), &e) < 0)
        fail_msg("%s", e.text);
    return v;
}

static void every_example_gives_a_layout_for_each_row(void **state)
{
    (void)state;
    for (const char *const *name = pl_examples(); *name; name++) {
        json_t *rows = json_object_get(answer_of(*name), "rows"), *row;
        size_t i;

        assert_true(json_array_size(rows) >= 3);
        json_array_foreach(rows, i, row) {
            double tokens = json_number_value(json_object_get(row, "tokens_per_s"));
            double seconds = json_number_value(json_object_get(row, "seconds"));
            double mfu = json_number_value(json_object_get(row, "mfu"));

            assert_true(tokens > 0 && seconds > 0);
            assert_true(mfu > 0 && mfu < 1);
            assert_int_equal(
                json_integer_value(json_object_get(row, "devices")),
                json_integer_value(json_object_get(json_object_get(row, "layout"), "world")));
        }
        assert_true(json_number_value(json_object_get(json_array_get(rows, 0), "efficiency")) == 1);
    }
}

/* Frontier's study counts four passes; MFU counts three. The head is not computed again, so a
 * little more than three quarters are left. */
static void shares_of_peak_are_compared_alike(void **state)
{
    static const char *const name[] = {"frontier-22b", "frontier-175b", "frontier-1t"};
    size_t found = 0;

    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(name); n++) {
        json_t *row;
        size_t i;

        json_array_foreach(json_object_get(answer_of(name[n]), "rows"), i, row) {
            const json_t *published = json_object_get(row, "published");
            double hfu = json_number_value(json_object_get(published, "hfu"));
            double mfu = json_number_value(json_object_get(published, "mfu"));

            assert_true((hfu > 0) == (mfu > 0)); /* none is stored as it was printed */
            if (hfu > 0 && (mfu < 0.75 * hfu || mfu > 0.77 * hfu))
                fail_msg("%s: %g of %g", name[n], mfu, hfu);
            found += hfu > 0;
        }
    }
    assert_int_equal(found, 3);
}

/* No example narrows its space to the degrees of a study: what was published has to hold its own
 * there. */
static void a_published_layout_ranks_in_the_free_space(void **state)
{
    size_t published = 0;

    (void)state;
    for (const char *const *name = pl_examples(); *name; name++) {
        static const char *const degrees[] = {"tp",  "cp",          "pp",       "vp",        "ep",
                                              "etp", "micro_batch", "schedule", "zero_scope"};
        AUTO_JSON *file = file_of(*name);
        const json_t *keys = json_object_get(file, "published_layout"), *value;
        const char *key;
        json_t *row;
        size_t i;

        for (size_t k = 0; k < ARRAY_LEN(degrees); k++)
            assert_null(json_object_get(json_object_get(file, "space"), degrees[k]));
        json_array_foreach(json_object_get(answer_of(*name), "rows"), i, row) {
            const json_t *found = json_object_get(row, "published_layout");
            json_int_t rank = json_integer_value(json_object_get(found, "rank"));

            assert_true(json_is_object(found) == (keys != NULL));
            if (!keys)
                continue;
            assert_true(rank >= 1 && rank <= json_integer_value(json_object_get(found, "of")));
            assert_true((json_number_value(json_object_get(found, "slowdown")) > 0) == (rank > 1));
            json_object_foreach((json_t *)(uintptr_t)keys, key, value)
                assert_true(
                    json_equal(value, json_object_get(json_object_get(found, "layout"), key)));
            published++;
        }
    }
    assert_int_equal(published, 8 + 6);
}

/* A row of the table of docs/measurements/cost-model.md up to the layout: which study, at what
 * size. */
static void row_of(char *ret, size_t size, const char *name, const json_t *row)
{
    snprintf(ret, size, "`%s` | %lld | %lld | ", name,
             json_integer_value(json_object_get(row, "devices")),
             json_integer_value(json_object_get(row, "global_batch")));
}

/* Whether AT, the rest of a line of the table, has the layout and the figures of ROW to the digits
 * it prints. */
static bool as_computed(const char *at, const json_t *row)
{
    const char *text = json_string_value(json_object_get(row, "text"));
    double mfu = 100.0 * json_number_value(json_object_get(row, "mfu"));
    double efficiency = 100.0 * json_number_value(json_object_get(row, "efficiency"));
    double said[2] = {0};

    if (strncmp(at, text, strlen(text)) == 0 &&
        sscanf(at + strlen(text), " | %lf %% | %lf %% |", &said[0], &said[1]) == 2 &&
        fabs(said[0] - mfu) <= 0.051 && fabs(said[1] - efficiency) <= 0.51)
        return true;
    print_message("# %s | %.1f %% | %.0f %% |\n", text, mfu, efficiency);
    return false;
}

static int count_lines(const char *text, const char *beginning)
{
    int count = 0;

    for (const char *at = text; (at = strstr(at, beginning)); at += strlen(beginning))
        count += at == text || at[-1] == '\n';
    return count;
}

static int count_in(const char *text, const char *part)
{
    int count = 0;

    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

/* The table of worked examples has sizes of every study, each as this code computes it. */
static void the_documents_table_is_what_is_computed(void **state)
{
    AUTO_FREE char *text = NULL;
    char path[4096];
    struct err e = {0};
    int wrong = 0;

    (void)state;
    snprintf(path, sizeof(path), "%s/docs/measurements/cost-model.md", getenv("PT_SRC"));
    assert_int_equal(file_read_all(&text, NULL, path, 1 << 20, &e), 0);
    for (const char *const *name = pl_examples(); *name; name++) {
        char head[256];
        int found = 0;
        json_t *row;
        size_t i;

        json_array_foreach(json_object_get(answer_of(*name), "rows"), i, row) {
            const char *at;

            row_of(head, sizeof(head), *name, row);
            at = strstr(text, head);
            found += at != NULL;
            wrong += at && !as_computed(at + strlen(head), row);
        }
        snprintf(head, sizeof(head), "`%s` | ", *name);
        assert_true(found > 0);
        assert_int_equal(count_lines(text, head), found); /* no row of another size */
    }
    assert_int_equal(wrong, 0);
}

/* So is the table of the published layouts' ranks, which has some sizes of each study that prints
 * layouts. */
static void the_documents_ranks_are_what_is_computed(void **state)
{
    AUTO_FREE char *text = NULL;
    char path[4096];
    struct err e = {0};
    int wrong = 0;

    (void)state;
    snprintf(path, sizeof(path), "%s/docs/measurements/cost-model.md", getenv("PT_SRC"));
    assert_int_equal(file_read_all(&text, NULL, path, 1 << 20, &e), 0);
    for (const char *const *name = pl_examples(); *name; name++) {
        int printed = 0, shown = 0;
        char head[256];
        json_t *row;
        size_t i;

        json_array_foreach(json_object_get(answer_of(*name), "rows"), i, row) {
            const json_t *found = json_object_get(row, "published_layout");
            char line[320];

            if (!json_is_object(found))
                continue;
            printed++;
            snprintf(head, sizeof(head), "\n%lld | `%s` | ",
                     json_integer_value(json_object_get(row, "devices")), *name);
            if (!strstr(text, head))
                continue;
            shown++;
            snprintf(line, sizeof(line), "%s%s | %.1f %% | %lld of %lld | %.1f %%\n", head,
                     json_string_value(json_object_get(found, "text")),
                     100 * json_number_value(json_object_get(found, "mfu")),
                     json_integer_value(json_object_get(found, "rank")),
                     json_integer_value(json_object_get(found, "of")),
                     100 * json_number_value(json_object_get(found, "slowdown")));
            if (!strstr(text, line)) {
                print_message("# %s", line);
                wrong++;
            }
        }
        snprintf(head, sizeof(head), " | `%s` | ", *name);
        assert_true(shown > 0 || printed == 0);
        assert_int_equal(count_in(text, head), shown); /* no row of another size */
    }
    assert_int_equal(wrong, 0);
}

static void an_unknown_example_is_not_found(void **state)
{
    json_t *v = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_example_json(&v, "frontier-2t", &e), -ENOENT);
    assert_null(v);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_example_gives_a_layout_for_each_row),
    cmocka_unit_test(shares_of_peak_are_compared_alike),
    cmocka_unit_test(a_published_layout_ranks_in_the_free_space),
    cmocka_unit_test(the_documents_table_is_what_is_computed),
    cmocka_unit_test(the_documents_ranks_are_what_is_computed),
    cmocka_unit_test(an_unknown_example_is_not_found),
};

UNIT_MAIN(tests)
