/* A search over several global batches: the batch is a key of the search, and each trial costs and
 * measures the tokens of its own. */
#include <math.h>

#include "search/fidelity.h"
#include "search/state.h"
#include "tests/unit/search_help.h"

#define BATCHES "'workload': {'global_batch': [64, 256, 16], 'precision': 'bf16'}"

static void spec_of(struct se_spec *spec, const char *workload, const char *more)
{
    AUTO_FREE char *text = mem_printf(SMALL_CAMPAIGN, more);
    AUTO_JSON *campaign = unit_json(text), *work = NULL;
    AUTO_FREE char *object = mem_printf("{%s}", workload);
    struct err e = {0};

    work = unit_json(object);
    json_object_update(campaign, work);
    if (se_spec_parse(spec, campaign, NULL, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
}

static struct se_search *search_of(const struct se_spec *spec)
{
    struct se_search *s = NULL;
    struct err e = {0};

    if (se_search_new(&s, spec, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
    return s;
}

static const struct se_dim *dim_of(const struct se_search *s, enum pl_key key)
{
    for (int d = 0; d < s->table->ndims; d++)
        if (s->table->dim[d].key == (int)key)
            return &s->table->dim[d];
    return NULL;
}

static void the_logarithm_of_the_batch_is_a_feature(void **state)
{
    const struct se_dim *dim;
    struct se_spec spec;

    (void)state;
    spec_of(&spec, BATCHES, "");
    AUTO(se_search) *s = search_of(&spec);
    dim = dim_of(s, PL_KEY_GLOBAL_BATCH);
    assert_non_null(dim);
    assert_int_equal(dim->nlevels, 3);
    assert_false(dim->categorical);
    for (int v = 0; v < 3; v++)
        assert_float_equal(dim->pos[v], log2(dim->value[v]), 1e-12);
    se_spec_done(&spec);

    small_spec(&spec, "");
    AUTO(se_search) *one = search_of(&spec);
    assert_null(dim_of(one, PL_KEY_GLOBAL_BATCH));
    assert_null(one->table->log_batch);
    se_spec_done(&spec);
}

/* A trial of each batch as the cost model has it, in device-seconds. */
static void a_trial_costs_the_tokens_of_its_batch(void **state)
{
    struct se_spec spec;

    (void)state;
    spec_of(&spec, BATCHES, ", 'trial': {'fidelity': {'replicas': 1}}");
    AUTO(se_search) *s = search_of(&spec);
    for (size_t i = 0; i < s->table->n; i += 7) {
        struct pl_layout l;
        struct se_run run, small;
        struct pl_reduced reduced;

        se_table_layout(&l, s->table, i);
        assert_true(se_run_of(&run, s, i, 0));
        assert_float_equal(run.step_log_tokens, log((double)l.global_batch * spec.workload.seq),
                           1e-9);
        assert_float_equal(s->table->log_batch[i], log(l.global_batch / 64.0), 1e-5);
        if (!se_run_of(&small, s, i, 1))
            continue;
        assert_true(se_reduce(&reduced, &spec, &l, 1));
        assert_int_equal(reduced.workload.global_batch * l.dp,
                         l.global_batch * reduced.layout.dp); /* as many micro-batches */
        assert_float_equal(small.step_log_tokens,
                           log((double)reduced.workload.global_batch * spec.workload.seq), 1e-9);
    }
    se_spec_done(&spec);
}

/* Seconds of a step: those with the largest batch take SLOW times as long as expected. */
static double truth(const struct pl_cost *cost, const struct pl_layout *layout, int slow)
{
    return cost->total * (layout->global_batch == 256 ? slow : 1);
}

/* The largest batch is fastest by the cost model; where it is not, the search finds out. */
static void the_search_learns_which_batch_is_fastest(void **state)
{
    static const int slow[] = {1, 3}, fastest[] = {256, 64};
    struct se_spec spec;

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(slow); k++) {
        struct se_trial t;
        struct se_best best;
        double least = INFINITY, most = 0, top = 0;

        spec_of(&spec, BATCHES, ", 'budget': {'trials': 30}");
        AUTO(se_search) *s = search_of(&spec);
        struct pl_problem p = se_spec_problem(&spec);

        for (size_t i = 0; i < s->table->n; i++) {
            struct pl_layout l;
            struct pl_cost cost;

            se_table_layout(&l, s->table, i);
            pl_cost(&cost, &p, &l);
            if (pl_fits(&p, &l, spec.memory_headroom))
                top = fmax(top,
                           (double)l.global_batch * spec.workload.seq / truth(&cost, &l, slow[k]));
        }
        while (se_ask(&t, s) == SE_TRIAL) {
            struct pl_cost cost;
            struct err e = {0};
            struct se_outcome o = {.status = SE_OK};

            pl_cost(&cost, &p, &t.layout);
            o.tokens_per_s = (double)t.layout.global_batch * spec.workload.seq /
                             truth(&cost, &t.layout, slow[k]);
            o.tokens_per_s_se = 0.002 * o.tokens_per_s;
            if (!pl_fits(&p, &t.layout, spec.memory_headroom))
                o = (struct se_outcome){.status = SE_OOM};
            assert_int_equal(se_tell(s, t.id, &o, &e), 0);
            least = fmin(least, t.layout.global_batch);
            most = fmax(most, t.layout.global_batch);
        }
        assert_int_equal(se_best(&best, s), 0);
        assert_true(best.mean > 0.97 * top);
        assert_int_equal(best.layout.global_batch, fastest[k]);
        assert_true(most > least);
        se_spec_done(&spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_logarithm_of_the_batch_is_a_feature),
        cmocka_unit_test(a_trial_costs_the_tokens_of_its_batch),
        cmocka_unit_test(the_search_learns_which_batch_is_fastest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
