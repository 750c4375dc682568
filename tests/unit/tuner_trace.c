/* Trace ids of campaigns and attempts. */
#include "tests/unit/unit.h"

#include "tuner/results/trace.h"

static const char sample[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

static void a_valid_header_is_kept(void **state)
{
    char trace[TN_TRACEPARENT_TEXT], id[TN_TRACE_TEXT];

    (void)state;
    tn_trace_new(trace, sample);
    assert_string_equal(trace, sample);
    assert_string_equal(tn_trace_id(id, trace), "0af7651916cd43dd8448eb211c80319c");
    tn_trace_new(trace, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    assert_string_equal(trace + 53, "00");
    /* A later version, with fields that we do not know. */
    tn_trace_new(trace, "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what");
    assert_string_equal(trace, sample);
}

static void an_invalid_header_gives_a_new_trace(void **state)
{
    static const char *const invalid[] = {
        "",
        "00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what",
        "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01what",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319cb7ad6b7169203331---01",
        "0g-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz",
    };
    char trace[TN_TRACEPARENT_TEXT], again[TN_TRACEPARENT_TEXT];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(invalid); i++) {
        tn_trace_new(trace, invalid[i]);
        assert_null(strstr(trace, "b7ad6b7169203331"));
        tn_trace_new(again, trace); /* the new one is valid */
        assert_string_equal(again, trace);
        assert_string_equal(trace + 52, "-01");
    }
    tn_trace_new(again, NULL);
    assert_string_not_equal(again, trace);
}

static void each_attempt_is_a_span_of_its_own(void **state)
{
    char one[TN_SPAN_TEXT], same[TN_SPAN_TEXT], other[TN_SPAN_TEXT], later[TN_SPAN_TEXT];
    char child[TN_TRACEPARENT_TEXT], valid[TN_TRACEPARENT_TEXT];

    (void)state;
    tn_trace_span(one, sample, 1, 2);
    assert_string_equal(tn_trace_span(same, sample, 1, 2), one);
    assert_string_not_equal(tn_trace_span(other, sample, 2, 1), one);
    assert_string_not_equal(tn_trace_span(later, sample, 1, 3), one);
    assert_int_equal(strlen(one), 16);
    tn_trace_child(child, sample, 1, 2);
    tn_trace_new(valid, child);
    assert_string_equal(valid, child);
    assert_memory_equal(child, sample, 36);
    assert_memory_equal(child + 36, one, 16);
    assert_string_equal(child + 52, "-01");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_valid_header_is_kept),
    cmocka_unit_test(an_invalid_header_gives_a_new_trace),
    cmocka_unit_test(each_attempt_is_a_span_of_its_own),
};

UNIT_MAIN(tests)
