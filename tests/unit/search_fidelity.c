/* Trials of smaller problems: what they say of the full size, and that only full-size runs win. */
#include <errno.h>
#include <math.h>

#include "search/fidelity.h"
#include "tests/unit/search_help.h"

#define SMALLER ", 'trial': {'fidelity': {'replicas': 1, 'stage_layers': 2, 'steps': 3}}"

/* A machine that does everything at this share of what the cost model expects. */
static const double PACE = 0.7;

static double truth_of(const struct se_spec *spec, const struct se_search *s,
                       const struct se_trial *t)
{
    struct pl_problem whole = se_spec_problem(spec), small;
    struct pl_reduced reduced;
    struct pl_cost cost;

    if (t->fidelity > 0) {
        se_trial_run(&reduced, s, t);
        small = pl_reduced_problem(&reduced, &whole);
        pl_cost(&cost, &small, &reduced.layout);
    } else {
        pl_cost(&cost, &whole, &t->layout);
    }
    return PACE * cost.tokens_per_s;
}

static void tell_truth(struct se_search *s, const struct se_spec *spec, const struct se_trial *t)
{
    struct se_outcome o = {.status = SE_OK, .tokens_per_s = truth_of(spec, s, t)};
    struct err e = {0};

    o.tokens_per_s_se = 0.005 * o.tokens_per_s;
    if (se_tell(s, t->id, &o, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
}

static void open_small(struct se_spec *spec, struct se_search **s)
{
    struct err e = {0};

    small_spec(spec, SMALLER);
    assert_int_equal(spec->nfidelities, 1);
    if (se_search_new(s, spec, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
}

/* The posterior at full size after one run of a smaller problem is that of two normal variables:
 * f, and what the run measures, which is f at other features plus d and e. */
static void a_small_run_is_a_correlated_observation(void **state)
{
    struct se_table *t = small_table();
    struct se_point full, run;
    struct se_kernel k;
    struct se_gp g;
    double mean, var, kff, kfr, krr;

    (void)state;
    se_kernel_init(&k, t->dim, t->ndims, SE_LIN_SHARE);
    se_kernel_set(&k, (double[SE_MAX_THETA]){-4.0, -1.0, -1.0, -1.0});
    k.lin2[SE_LIN_CONST] = 0.25;
    se_gp_init(&g, &k);
    se_table_point(&full, t, SE_THROUGHPUT, 5, SE_LIN_SHARE);
    run = full;
    run.u[SE_LIN_CONST] = 0.5;
    run.apart = (struct se_apart){.fidelity = 1, .common = 0.3, .own = 0.4};
    kff = se_gp_prior_var(&g, &full);
    krr = se_gp_prior_var(&g, &run);
    kfr = se_kernel_cov(&g.kern, full.level, full.u, run.level, run.u);
    assert_float_equal(krr, se_kernel_cov(&g.kern, run.level, run.u, run.level, run.u) + 0.25,
                       1e-6);
    se_gp_append(&g, &run, 1.5, 0.1);
    se_gp_predict(&mean, &var, &g, &full);
    assert_float_equal(mean, kfr / (krr + 0.1) * 1.5, 1e-6);
    assert_float_equal(var, kff - kfr * kfr / (krr + 0.1), 1e-6);
    assert_float_equal(se_gp_covariance(&g, &full, &run), kfr - kfr * krr / (krr + 0.1), 1e-6);
    /* Of another layout the same fidelity shares d, not e; another fidelity neither. */
    se_table_point(&full, t, SE_THROUGHPUT, 60, SE_LIN_SHARE);
    full.apart = (struct se_apart){.fidelity = 1, .common = 0.2, .own = 0.4};
    se_gp_cross(&kfr, &g, &full);
    full.apart.fidelity = 2;
    se_gp_cross(&krr, &g, &full);
    assert_float_equal(kfr - krr, 0.06, 1e-6);
    se_gp_done(&g);
    se_table_free(t);
}

/* Told in its own tokens/s, a small run says what the full size does, though nothing ran there. */
static void small_runs_predict_the_full_size(void **state)
{
    struct se_search *s = NULL;
    struct se_spec spec;
    struct err e = {0};
    int smaller = 0;

    (void)state;
    open_small(&spec, &s);
    for (int i = 0; i < 12; i++) {
        struct se_trial t, full;
        struct se_predicted p;
        double truth;

        assert_int_equal(se_ask(&t, s), SE_TRIAL);
        assert_false(se_inferred(&p, s, t.id)); /* it has not ended */
        tell_truth(s, &spec, &t);
        assert_true(t.fidelity > 0 || !se_inferred(&p, s, t.id));
        if (t.fidelity == 0)
            continue;
        smaller++;
        full = t;
        full.fidelity = 0;
        truth = truth_of(&spec, s, &full);
        assert_int_equal(se_predict(&p, s, &t.layout, &e), 0);
        assert_true(se_inferred(&full.predicted, s, t.id));
        assert_true(full.predicted.tokens_per_s == p.tokens_per_s && full.predicted.lo == p.lo);
        assert_true(p.lo <= truth && truth <= p.hi);
        assert_true(fabs(log(p.tokens_per_s / truth)) < 0.15);
    }
    assert_true(smaller >= 4);
    se_search_free(s);
    se_spec_done(&spec);
}

static void only_full_size_runs_win(void **state)
{
    struct se_search *s = NULL;
    struct se_spec spec;
    struct se_best best;
    bool full[200] = {false};
    int n = 0, smaller = 0;
    struct se_trial t;

    (void)state;
    open_small(&spec, &s);
    while (n < 199 && se_ask(&t, s) == SE_TRIAL) {
        full[t.id] = t.fidelity == 0;
        smaller += t.fidelity > 0;
        tell_truth(s, &spec, &t);
        n++;
        if (se_best(&best, s) == 0)
            assert_true(full[best.id]);
        else
            assert_true(smaller == n); /* nothing ran at full size yet */
    }
    assert_true(smaller > 0 && n < 199);
    assert_string_equal(se_done_reason(s), "converged");
    assert_int_equal(se_best(&best, s), 0);
    assert_true(full[best.id]);
    se_search_free(s);
    se_spec_done(&spec);
}

static void replay_rebuilds_small_runs(void **state)
{
    struct se_search *a = NULL, *b = NULL;
    struct se_spec spec, same;
    struct se_trial t, u;
    struct err e = {0};

    (void)state;
    open_small(&spec, &a);
    open_small(&same, &b);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(se_ask(&t, a), SE_TRIAL);
        tell_truth(a, &spec, &t);
        if (se_restore_at(b, t.id, &t.layout, t.repeat_of, t.fidelity, &e) < 0)
            fail_msg("%s: %s", e.pointer, e.text);
        tell_truth(b, &same, &t);
    }
    assert_int_equal(se_restore_at(b, 50, &t.layout, 0, 2, &e), -EINVAL);
    assert_string_equal(e.pointer, "/fidelity");
    assert_int_equal(se_ask(&t, a), SE_TRIAL);
    assert_int_equal(se_ask(&u, b), SE_TRIAL);
    assert_int_equal(t.id, u.id);
    se_search_free(a);
    se_search_free(b);
    se_spec_done(&spec);
    se_spec_done(&same);
}

static void a_search_without_a_surrogate_has_no_small_runs(void **state)
{
    AUTO_FREE char *text = mem_printf(SMALL_CAMPAIGN, SMALLER ", 'search': {'method': 'grid'}");
    AUTO_JSON *campaign = unit_json(text);
    struct se_spec spec;
    struct err e = {0};

    (void)state;
    assert_int_equal(se_spec_parse(&spec, campaign, NULL, &e), -EINVAL);
    assert_string_equal(e.pointer, "/trial/fidelity");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_small_run_is_a_correlated_observation),
    cmocka_unit_test(small_runs_predict_the_full_size),
    cmocka_unit_test(only_full_size_runs_win),
    cmocka_unit_test(replay_rebuilds_small_runs),
    cmocka_unit_test(a_search_without_a_surrogate_has_no_small_runs),
};
UNIT_MAIN(tests)
