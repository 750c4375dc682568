/* Campaigns over several clusters: clusters on which trials wait are left out of further asks, and
 * the baseline is on the first on which something fits. */
#include <errno.h>

#include "tests/unit/search_help.h"

/* A campaign over a small, a middle and a large cluster, with MORE members. */
static void open_spec(struct se_spec *spec, const char *more)
{
    AUTO_FREE char *text = mem_printf(
        "{'model': {'name': 'm', 'layers': 24, 'hidden': 2048, 'heads': 16, 'ffn': 8192,"
        " 'vocab': 51200, 'seq': 1024}, 'workload': {'global_batch': 64, 'precision': 'bf16'},"
        " 'cluster': [{'profile': 'dgx-a100', 'name': 'a', 'nodes': 1},"
        " {'profile': 'dgx-h100', 'name': 'b', 'nodes': 1},"
        " {'profile': 'dgx-h100', 'name': 'c', 'nodes': 2}], 'trainer': 'megatron',"
        " 'space': {'tp': [1, 2, 4], 'pp': [1, 2], 'vp': 1, 'micro_batch': [1, 2], 'recompute':"
        " 'none', 'zero': [0, 1], 'sp': 0, 'overlap_grad_reduce': 0, 'overlap_param_gather': 0,"
        " 'overlap_p2p': 0}%s}",
        more);
    AUTO_JSON *campaign = unit_json(text);
    struct err e = {0};

    if (se_spec_parse(spec, campaign, NULL, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
}

static struct se_search *open_search(const char *more)
{
    struct se_search *s = NULL;
    struct se_spec spec;
    struct err e = {0};

    open_spec(&spec, more);
    if (se_search_new(&s, &spec, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
    se_spec_done(&spec);
    return s;
}

static void tell_ok(struct se_search *s, const struct se_trial *t)
{
    struct se_outcome o = {.status = SE_OK, .tokens_per_s = made_up(&t->layout)};
    struct err e = {0};

    if (se_tell(s, t->id, &o, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
}

static void clusters_with_a_waiting_trial_are_avoided(void **state)
{
    static const char *const more[] = {
        ", 'search': {'parallel': 40}",
        ", 'search': {'parallel': 40, 'method': 'random'}",
        ", 'search': {'parallel': 40, 'method': 'grid'}",
        ", 'search': {'parallel': 40}, 'trial': {'fidelity': 'auto'}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(more); i++) {
        struct se_search *s = open_search(more[i]);
        struct se_trial waits, t;
        int seen[4] = {0};

        assert_int_equal(se_ask(&waits, s), SE_TRIAL);
        se_avoid(s, 1U << waits.layout.cluster);
        for (int k = 0; k < 10; k++) {
            assert_int_equal(se_ask(&t, s), SE_TRIAL);
            assert_in_range(t.layout.cluster, 1, 3);
            seen[t.layout.cluster]++;
            if (k % 2)
                tell_ok(s, &t);
        }
        if (seen[waits.layout.cluster])
            fail_msg("%s: a trial on cluster %d", more[i], waits.layout.cluster);
        se_avoid(s, 1U << 1 | 1U << 2 | 1U << 3);
        assert_int_equal(se_ask(&t, s), SE_WAIT);
        se_avoid(s, 0);
        assert_int_equal(se_ask(&t, s), SE_TRIAL);
        se_search_free(s);
    }
}

/* Whatever is left out may be better than all that was tried. */
static void no_search_ends_while_a_cluster_is_avoided(void **state)
{
    static const char *const more[] = {", 'search': {'parallel': 40, 'regret': 1}",
                                       ", 'search': {'parallel': 40, 'method': 'grid'}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(more); i++) {
        struct se_search *s = open_search(more[i]);
        struct se_trial waits, t;
        enum se_answer answer;
        int told = 0;

        assert_int_equal(se_ask(&waits, s), SE_TRIAL);
        se_avoid(s, 1U << waits.layout.cluster);
        while ((answer = se_ask(&t, s)) == SE_TRIAL) {
            assert_int_not_equal(t.layout.cluster, waits.layout.cluster);
            tell_ok(s, &t);
            told++;
        }
        assert_int_equal(answer, SE_WAIT);
        assert_true(told > 5);
        tell_ok(s, &waits);
        while ((answer = se_ask(&t, s)) == SE_TRIAL) /* nothing waits: nothing is avoided */
            tell_ok(s, &t);
        assert_int_equal(answer, SE_DONE);
        se_search_free(s);
    }
}

static void a_baseline_by_rule_is_on_the_first_cluster_on_which_it_fits(void **state)
{
    static const struct {
        const char *clusters;
        int r, at; /* what is said, and where it lies */
        const char *note;
    } rows[] = {
        {"['dgx-h100', 'dgx-a100']", 0, 1, ""},
        {"['dgx-a100', 'dgx-h100']", 0, 1, ""},
        {"[{'profile': 'dgx-a100', 'name': 'one', 'nodes': 1, 'devices_per_node': 1},"
         " {'profile': 'dgx-h100', 'nodes': 1}]",
         0, 2, "nothing fits on one"},
        {"[{'profile': 'dgx-a100', 'name': 'one', 'nodes': 1, 'devices_per_node': 1},"
         " {'profile': 'dgx-h100', 'name': 'two', 'nodes': 1, 'devices_per_node': 1}]",
         -ENOENT, 0, "on no cluster; on one: "},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_FREE char *text =
            mem_printf("{'model': 'llama-8b', 'cluster': %s, 'trainer': 'megatron', 'workload': "
                       "{'global_batch': 64, 'precision': 'bf16'}}",
                       rows[i].clusters);
        AUTO_JSON *campaign = unit_json(text);
        struct se_spec spec;
        struct err e = {0};

        if (se_spec_parse(&spec, campaign, NULL, &e) < 0)
            fail_msg("%s: %s", e.pointer, e.text);
        if (se_spec_baseline(&spec, PL_BASELINE_DEFAULT, &e) != rows[i].r)
            fail_msg("%s: %s", rows[i].clusters, e.text);
        assert_int_equal(spec.has_baseline, rows[i].r == 0);
        if (rows[i].r == 0)
            assert_int_equal(spec.baseline.cluster, rows[i].at);
        if (!strstr(rows[i].r == 0 ? spec.baseline_note : e.text, rows[i].note))
            fail_msg("%s: %s%s", rows[i].clusters, spec.baseline_note, e.text);
        se_spec_done(&spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clusters_with_a_waiting_trial_are_avoided),
        cmocka_unit_test(no_search_ends_while_a_cluster_is_avoided),
        cmocka_unit_test(a_baseline_by_rule_is_on_the_first_cluster_on_which_it_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
