/* A small space to search on, for the tests of search/. */
#ifndef TESTS_UNIT_SEARCH_HELP_H
#define TESTS_UNIT_SEARCH_HELP_H

#include "search/search.h"
#include "search/table.h"
#include "tests/unit/unit.h"

#define SMALL_CAMPAIGN                                                                             \
    "{'model': {'name': 'm', 'layers': 24, 'hidden': 2048, 'heads': 16, 'ffn': 8192,"              \
    " 'vocab': 51200, 'seq': 1024}, 'cluster': {'profile': 'dgx-a100', 'nodes': 2},"               \
    " 'workload': {'global_batch': 64, 'precision': 'bf16'}, 'trainer': 'megatron',"               \
    " 'space': {'tp': [1, 2, 4, 8], 'pp': [1, 2, 4], 'vp': [1, 2], 'micro_batch': [1, 2, 4],"      \
    " 'recompute': ['none', 'full'], 'zero': [0, 1], 'sp': [0, 1], 'overlap_grad_reduce': 0,"      \
    " 'overlap_param_gather': 0, 'overlap_p2p': 0}%s}"

/* The small campaign with MORE members ("" or ", 'search': {...}"). */
static inline void small_spec(struct se_spec *spec, const char *more)
{
    AUTO_FREE char *text = mem_printf(SMALL_CAMPAIGN, more);
    AUTO_JSON *campaign = unit_json(text);
    struct err e = {0};

    if (se_spec_parse(spec, campaign, NULL, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
}

static inline struct se_search *small_search(const char *more)
{
    struct se_search *s = NULL;
    struct se_spec spec;
    struct err e = {0};

    small_spec(&spec, more);
    if (se_search_new(&s, &spec, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
    se_spec_done(&spec);
    return s;
}

/* The small space as a table with its priors. */
static inline struct se_table *small_table(void)
{
    struct se_spec spec;
    struct se_table *t = NULL;
    struct pl_layout *list = NULL;
    struct err e = {0};
    size_t n = 0;

    small_spec(&spec, "");
    struct pl_problem p = se_spec_problem(&spec);
    assert_int_equal(pl_space_list(&list, &n, 100000, spec.space, &p, NULL, &e), 0);
    assert_int_equal(se_table_new(&t, list, n, &e), 0);
    assert_int_equal(se_table_set_prior(t, &spec, &e), 0);
    free(list);
    se_spec_done(&spec);
    return t;
}

/* A smooth made-up throughput: what a test tells. */
static inline double made_up(const struct pl_layout *l)
{
    double f = 1e5 / (1.0 + 0.2 * (l->tp - 1)) * (1.0 + 0.05 * l->micro_batch);

    return f * (l->recompute == PL_RECOMPUTE_FULL ? 0.75 : 1.0) / (1.0 + 0.3 * (l->pp - 1) / l->vp);
}

#endif
