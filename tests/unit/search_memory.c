/* A campaign that is told nothing of memory: it meets real out-of-memory trials and learns. */
#include <math.h>

#include "base/base.h"
#include "search/search.h"
#include "tests/unit/unit.h"

/* The bundled example as the search reads it; its cluster is played by plan/, as the simulated
 * launcher does. */
static void load(struct se_spec *spec)
{
    AUTO_FREE char *path =
        mem_printf("%s/docs/examples/frontier-22b-memory-unknown.json", getenv("PT_SRC"));
    AUTO_JSON *campaign = NULL;
    struct err e = {0};

    if (jx_load(&campaign, path, 1 << 20, &e) < 0 || se_spec_parse(spec, campaign, NULL, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
    assert_false(spec->use_memory_prior);
}

/* tokens/s, or 0: does not fit. */
static double truth(const struct se_spec *s, const struct pl_layout *l)
{
    struct pl_problem p = se_spec_problem(s);
    struct pl_cost cost;

    pl_cost(&cost, &p, l);
    return pl_fits(&p, l, 0.0) ? cost.tokens_per_s : 0.0;
}

static double best_of(const struct se_spec *s)
{
    struct pl_problem p = se_spec_problem(s);
    struct pl_layout AUTO_FREE *list = NULL;
    double best = 0.0;
    size_t n = 0;
    struct err e;

    assert_int_equal(pl_space_list(&list, &n, 100000, s->space, &p, NULL, &e), 0);
    for (size_t i = 0; i < n; i++)
        best = fmax(best, truth(s, &list[i]));
    return best;
}

/* Mean squared error of P(fits) over all layouts of the space (Brier's score). */
static double brier(const struct se_search *s, const struct se_spec *spec)
{
    struct pl_problem p = se_spec_problem(spec);
    struct pl_layout AUTO_FREE *list = NULL;
    double sum = 0.0;
    size_t n = 0;
    struct err e;

    assert_int_equal(pl_space_list(&list, &n, 100000, spec->space, &p, NULL, &e), 0);
    for (size_t i = 0; i < n; i++) {
        struct se_predicted q;
        double d;

        assert_int_equal(se_predict(&q, s, &list[i], &e), 0);
        d = q.p_fits - (truth(spec, &list[i]) > 0.0);
        sum += d * d;
    }
    return sum / (double)n;
}

static void out_of_memory_trials_are_met_and_learned_from(void **state)
{
    struct se_search *s = NULL;
    struct se_spec spec;
    struct se_trial t;
    struct se_best best;
    struct rng r;
    struct err e = {0};
    double fastest, before, of_oom = 0.0, of_ok = 0.0;
    int oom = 0, ok = 0, trials;

    (void)state;
    load(&spec);
    rng_seed(&r, 4);
    fastest = best_of(&spec);
    assert_int_equal(se_search_new(&s, &spec, &e), 0);
    before = brier(s, &spec);
    for (trials = 0; se_ask(&t, s) == SE_TRIAL; trials++) {
        double tokens = truth(&spec, &t.layout) * exp(0.02 * rng_normal(&r));
        struct se_outcome o = {.status = tokens > 0.0 ? SE_OK : SE_OOM,
                               .tokens_per_s = tokens,
                               .tokens_per_s_se = 0.02 * tokens};

        *(tokens > 0.0 ? &of_ok : &of_oom) += t.predicted.p_fits;
        ok += tokens > 0.0;
        oom += tokens <= 0.0;
        assert_int_equal(se_tell(s, t.id, &o, &e), 0);
    }
    assert_true(trials <= spec.budget.trials);
    assert_true(oom > 0 && ok > oom); /* nothing kept it from them, yet most of its trials ran */
    /* What it says of all the layouts that it has not tried is worth more than before ... */
    assert_true(brier(s, &spec) < before);
    /* ... and so was what it said of those that it tried. */
    assert_true(of_ok / ok > of_oom / oom);
    assert_int_equal(se_best(&best, s), 0);
    assert_true(truth(&spec, &best.layout) >= 0.95 * fastest);
    se_search_free(s);
    se_spec_done(&spec);
}

/* Before any trial the plan is the posterior of memory; a binary unknown does not change it. */
static void the_first_prediction_of_memory_is_the_plan(void **state)
{
    struct se_search *s = NULL;
    struct se_spec spec;
    struct pl_layout AUTO_FREE *list = NULL;
    struct pl_problem p;
    struct pl_memory plan;
    size_t n = 0;
    struct err e = {0};

    (void)state;
    load(&spec);
    spec.use_memory_prior = true;
    p = se_spec_problem(&spec);
    assert_int_equal(pl_space_list(&list, &n, 100000, spec.space, &p, NULL, &e), 0);
    assert_int_equal(se_search_new(&s, &spec, &e), 0);
    for (size_t i = 0; i < n; i += 1 + n / 50) {
        struct se_predicted q;

        assert_int_equal(se_predict(&q, s, &list[i], &e), 0);
        assert_true(q.lo < q.tokens_per_s && q.tokens_per_s < q.hi);
        pl_memory_worst(&plan, &p, &list[i]);
        assert_float_equal(q.memory_bytes / plan.total, 1.0, 0.1);
    }
    se_search_free(s);
    se_spec_done(&spec);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_first_prediction_of_memory_is_the_plan),
    cmocka_unit_test(out_of_memory_trials_are_met_and_learned_from),
};
UNIT_MAIN(tests)
