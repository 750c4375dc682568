/* Warm start: what earlier campaigns say is the joint regression, a gain where they are related,
 * and found out where they mislead. */
#include <math.h>

#include "search/num.h"
#include "search/transfer.h"
#include "tests/unit/search_help.h"

/* ---- algebra ------------------------------------------------------------- */

enum { COEFS = 3, ROWS = 7, BOTH = 2 * COEFS };

/* Solve the positive A x = b (n x n, column-major) in place of b. */
static void solve(double *a, int n, double *b)
{
    assert_int_equal(se_chol(a, n, n), 0);
    se_chol_solve(a, n, n, b);
}

/*
 * Joint regression of w and d, where a source saw U (w + d) with noise and this campaign sees its
 * own rows: the posterior mean of w must be that of w given the hints and the own rows.
 */
static void hints_are_the_joint_regression(void **state)
{
    const double prior[COEFS] = {0.5, 0.2, 0.9}, differ[COEFS] = {0.04, 0.01, 0.1};
    const double noise = 1e-3;
    double joint[BOTH * BOTH] = {0}, right[BOTH] = {0}, small[COEFS * COEFS] = {0};
    double own[COEFS] = {0};
    struct se_likelihood likelihood = {.n = COEFS};
    struct se_hint hint[SE_MAX_LIN];
    struct rng r;
    int n;

    (void)state;
    rng_seed(&r, 5);
    for (int i = 0; i < 2 * ROWS; i++) {
        bool source = i < ROWS;
        double u[BOTH], y = rng_normal(&r);

        for (int p = 0; p < COEFS; p++) {
            u[p] = rng_normal(&r);
            u[COEFS + p] = source ? u[p] : 0.0;
        }
        for (int p = 0; p < BOTH; p++) {
            right[p] += u[p] * y / noise;
            for (int q = 0; q < BOTH; q++)
                joint[q * BOTH + p] += u[p] * u[q] / noise;
        }
        for (int p = 0; p < COEFS; p++) {
            *(source ? &likelihood.information[p] : &own[p]) += u[p] * y / noise;
            for (int q = 0; q < COEFS; q++)
                *(source ? &likelihood.precision[q * COEFS + p] : &small[q * COEFS + p]) +=
                    u[p] * u[q] / noise;
        }
    }
    for (int p = 0; p < COEFS; p++) {
        joint[p * BOTH + p] += 1.0 / prior[p];
        joint[(COEFS + p) * BOTH + COEFS + p] += 1.0 / differ[p];
        small[p * COEFS + p] += 1.0 / prior[p];
    }
    solve(joint, BOTH, right);
    se_likelihood_widen(&likelihood, differ);
    n = se_likelihood_hints(hint, &likelihood, prior);
    assert_int_equal(n, COEFS); /* each says more than the least */
    for (int j = 0; j < n; j++) {
        for (int p = 0; p < COEFS; p++) {
            own[p] += hint[j].v[p] * hint[j].value / hint[j].var;
            for (int q = 0; q < COEFS; q++)
                small[q * COEFS + p] += hint[j].v[p] * hint[j].v[q] / hint[j].var;
        }
    }
    solve(small, COEFS, own);
    for (int p = 0; p < COEFS; p++)
        assert_true(fabs(own[p] - right[p]) < 1e-9);
}

/* What observations say of the coefficients, taken together with the coefficients' own prior, is
 * the posterior that the process has: its prediction where nothing but the linear part is. */
static void the_likelihood_is_that_of_the_process(void **state)
{
    struct se_table *t = small_table();
    struct se_surrogate b;
    struct se_likelihood likelihood;
    const struct se_hyp *h;
    struct rng r;

    (void)state;
    rng_seed(&r, 9);
    se_surrogate_init(&b, t, SE_THROUGHPUT, true);
    for (int i = 0; i < 20; i++) {
        struct se_obs o;

        se_surrogate_place(&o, &b, t, rng_below(&r, t->n));
        o.var = 1e-4;
        o.value = o.prior + 0.3 * o.u[SE_LIN_SHARE] + 0.05 * rng_normal(&r);
        se_surrogate_add(&b, &o);
    }
    se_surrogate_update(&b);
    se_likelihood_of(&likelihood, &b);
    h = &b.hyp[SE_PRIOR_MEAN];
    for (int p = 0; p < likelihood.n;
         p++) { /* precision + W^-1, scaled so that it is well conditioned */
        likelihood.information[p] *= sqrt(h->gp.kern.lin2[p]);
        for (int q = 0; q < likelihood.n; q++)
            likelihood.precision[p * likelihood.n + q] *=
                sqrt(h->gp.kern.lin2[p] * h->gp.kern.lin2[q]);
        likelihood.precision[p * likelihood.n + p] += 1.0;
    }
    solve(likelihood.precision, likelihood.n, likelihood.information);
    for (int p = 0; p < likelihood.n; p++) {
        uint8_t nowhere[SE_MAX_DIMS];
        struct se_point x = {.level = nowhere};
        double mean, var;

        for (int d = 0; d < h->gp.kern.ndims; d++)
            nowhere[d] = (uint8_t)h->gp.kern.nlevels[d];
        x.u[p] = 1.0;
        se_gp_predict(&mean, &var, &h->gp, &x);
        assert_true(fabs(mean - likelihood.information[p] * sqrt(h->gp.kern.lin2[p])) < 1e-7);
    }
    se_surrogate_done(&b);
    se_table_free(t);
}

/* ---- campaigns ----------------------------------------------------------- */

/* A machine whose classes of cost err by FACTOR[c], as seen with 1 % noise. */
static double truth(const struct se_spec *s, const double *factor, const struct pl_layout *l)
{
    struct pl_problem p = se_spec_problem(s);
    struct pl_cost cost;
    double seconds = 0.0;

    pl_cost(&cost, &p, l);
    for (int c = 0; c < PL_COST_CLASSES; c++)
        seconds += cost.seconds[c] * factor[c];
    return (double)s->workload.global_batch * s->workload.seq / seconds;
}

#define OTHER_CAMPAIGN                                                                             \
    "{'model': {'name': 'o', 'layers': 32, 'hidden': 4096, 'heads': 32, 'ffn': 16384,"             \
    " 'vocab': 51200, 'seq': 2048}, 'cluster': {'profile': 'dgx-a100', 'nodes': 8},"               \
    " 'workload': {'global_batch': 256, 'precision': 'bf16'}, 'trainer': 'megatron',"              \
    " 'space': {'tp': [1, 2, 4, 8], 'pp': [1, 2, 4, 8], 'vp': [1, 2], 'micro_batch': [1, 2, 4]}}"

/* Twenty-five trials of another model on four times the nodes of that machine. */
static void earlier(struct se_source *ret, const double *factor)
{
    AUTO_JSON *campaign = unit_json(OTHER_CAMPAIGN);
    struct pl_layout AUTO_FREE *list = NULL;
    struct pl_problem p;
    struct err e = {0};
    size_t n = 0;
    struct rng r;

    memset(ret, 0, sizeof(*ret));
    if (se_spec_parse(&ret->spec, campaign, NULL, &e) < 0)
        fail_msg("%s: %s", e.pointer, e.text);
    p = se_spec_problem(&ret->spec);
    assert_int_equal(pl_space_list(&list, &n, 1000000, ret->spec.space, &p, NULL, &e), 0);
    se_spec_done(&ret->spec);
    ret->n = 25;
    ret->trial = mem_alloc((size_t)ret->n * sizeof(*ret->trial));
    rng_seed(&r, 3);
    for (int i = 0; i < ret->n; i++) {
        struct se_past *x = &ret->trial[i];
        double f;

        x->layout = list[rng_below(&r, n)];
        f = truth(&ret->spec, factor, &x->layout) * exp(0.01 * rng_normal(&r));
        x->outcome =
            (struct se_outcome){.status = SE_OK, .tokens_per_s = f, .tokens_per_s_se = 0.01 * f};
    }
}

/* A search on the small space, informed by a campaign on a machine of FACTOR (NULL: by none). */
static struct se_search *informed(struct se_spec *spec, const double *factor)
{
    struct se_search *s = NULL;
    struct se_source x;
    struct err e = {0};

    small_spec(spec, ", 'search': {'regret': 0}");
    if (factor) {
        earlier(&x, factor);
        spec->source = &x;
        spec->nsources = 1;
    }
    assert_int_equal(se_search_new(&s, spec, &e), 0);
    if (factor)
        free(x.trial);
    spec->source = NULL;
    spec->nsources = 0;
    return s;
}

/* Geometric standard error of what S predicts of its space. */
static double error_of(const struct se_search *s, const struct se_spec *spec, const double *factor)
{
    double sum = 0.0;
    size_t n = 0;

    for (size_t i = 0; i < s->table->n; i += 3, n++) {
        struct pl_layout l;
        struct se_predicted p;
        double d;

        se_table_layout(&l, s->table, i);
        assert_int_equal(se_predict(&p, s, &l, NULL), 0);
        d = log(p.tokens_per_s / truth(spec, factor, &l));
        sum += d * d;
    }
    return sqrt(sum / (double)n);
}

/* Trials until one is within SHARE of the best. */
static int trials_to(struct se_search *s, const struct se_spec *spec, const double *factor,
                     double share)
{
    double best = 0.0;

    for (size_t i = 0; i < s->table->n; i++) {
        struct pl_layout l;

        se_table_layout(&l, s->table, i);
        best = fmax(best, truth(spec, factor, &l));
    }
    for (int n = 1; n <= 40; n++) {
        struct se_trial t;
        struct se_outcome o = {.status = SE_OK};
        struct err e;

        if (se_ask(&t, s) != SE_TRIAL)
            break;
        o.tokens_per_s = truth(spec, factor, &t.layout);
        o.tokens_per_s_se = 0.01 * o.tokens_per_s;
        assert_int_equal(se_tell(s, t.id, &o, &e), 0);
        if (o.tokens_per_s >= (1.0 - share) * best)
            return n;
    }
    return 100;
}

/* Forward and backward 1.6 times as long, tensor-parallel communication 3 times, the bubble less.
 */
static void set_machine(double *factor, bool turned)
{
    for (int c = 0; c < PL_COST_CLASSES; c++)
        factor[c] = 1.0;
    factor[PL_COST_FORWARD] = factor[PL_COST_BACKWARD] = 1.6;
    factor[PL_COST_TP] = 3.0;
    factor[PL_COST_BUBBLE] = 0.6;
    for (int c = 0; turned && c < PL_COST_CLASSES; c++)
        factor[c] = 1.0 / factor[c];
}

static void a_related_campaign_corrects_the_machine(void **state)
{
    double factor[PL_COST_CLASSES];
    struct se_spec spec;
    struct se_search *cold, *warm;
    AUTO_JSON *d = NULL;

    (void)state;
    set_machine(factor, false);
    cold = informed(&spec, NULL);
    double before = error_of(cold, &spec, factor);

    se_spec_done(&spec);
    warm = informed(&spec, factor);
    double after = error_of(warm, &spec, factor);

    if (!(after < 0.6 * before))
        fail_msg("error %.3f cold, %.3f warm", before, after);
    d = se_diagnosis_json(warm);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(d, "warm_start"), "trials")), 25);
    assert_true(warm->surrogate[SE_THROUGHPUT].hyp[warm->surrogate[SE_THROUGHPUT].informed].weight >
                0.5);
    assert_true(trials_to(warm, &spec, factor, 0.05) <= trials_to(cold, &spec, factor, 0.05));
    /* It agrees with the outcomes told, so its weight grows. */
    assert_true(warm->surrogate[SE_THROUGHPUT].hyp[warm->surrogate[SE_THROUGHPUT].informed].weight >
                warm->surrogate[SE_THROUGHPUT].hyp[SE_PRIOR_MEAN].weight);
    se_search_free(cold);
    se_search_free(warm);
    se_spec_done(&spec);
}

static void a_misleading_campaign_is_found_out(void **state)
{
    double factor[PL_COST_CLASSES], turned[PL_COST_CLASSES];
    struct se_spec spec;
    struct se_search *cold, *warm;
    int needed, misled;

    (void)state;
    set_machine(factor, false);
    set_machine(turned, true);
    cold = informed(&spec, NULL);
    needed = trials_to(cold, &spec, factor, 0.01);
    se_spec_done(&spec);
    warm = informed(&spec, turned);
    misled = trials_to(warm, &spec, factor, 0.01);
    if (misled > needed + 3)
        fail_msg("%d trials cold, %d misled", needed, misled);
    while (warm->settled < 6)
        trials_to(warm, &spec, factor, 0.0);
    assert_true(warm->surrogate[SE_THROUGHPUT].hyp[warm->surrogate[SE_THROUGHPUT].informed].weight <
                0.1);
    while (warm->settled < 30) /* then the better one is heard alone */
        trials_to(warm, &spec, factor, 0.0);
    assert_true(
        warm->surrogate[SE_THROUGHPUT].hyp[warm->surrogate[SE_THROUGHPUT].informed].weight == 0.0);
    assert_true(warm->surrogate[SE_THROUGHPUT].hyp[SE_PRIOR_MEAN].weight > 0.5);
    se_search_free(cold);
    se_search_free(warm);
    se_spec_done(&spec);
}

/* ---- as text ------------------------------------------------------------- */

#define SOURCE(trials)                                                                             \
    "{'model': 'gpt-1.4B', 'cluster': {'profile': 'dgx-a100', 'nodes': 1},"                        \
    " 'workload': {'global_batch': 64, 'precision': 'bf16'}, 'trainer': 'megatron',"               \
    " 'trials': [" trials "]}"
/* A trial of one replica on at most so many devices: tp 4 needs four. */
#define SMALLER(number, devices)                                                                   \
    "{'model': 'gpt-1.4B', 'cluster': {'profile': 'dgx-a100', 'nodes': 1},"                        \
    " 'workload': {'global_batch': 64, 'precision': 'bf16'}, 'trainer': 'megatron',"               \
    " 'trial': {'fidelity': {'replicas': 1, 'devices': " devices "}}, 'trials': ["                 \
    "{'layout': {'tp': 4}, 'fidelity': " number ", 'status': 'ok', 'tokens_per_s': 30000}]}"
#define RAN "{'layout': {'tp': 2, 'micro_batch': 2}, 'status': 'ok', 'tokens_per_s': 30000}"

static void warm_starts_are_read_or_refused_by_name(void **state)
{
    static const struct {
        const char *search, *pointer; /* NULL: read */
    } cases[] = {
        {"'warm_start': []", NULL},
        {"'warm_start': [" SOURCE(RAN) "]", NULL},
        {"'warm_start': 7", "/search/warm_start"},
        {"'warm_start': ['k3v9qw2m']", "/search/warm_start/0"},
        {"'method': 'random', 'warm_start': [" SOURCE(RAN) "]", "/search/warm_start"},
        {"'prior': 'none', 'memory_prior': 'none', 'warm_start': [" SOURCE(RAN) "]",
         "/search/warm_start"},
        {"'warm_start': [" SOURCE(RAN) "," SOURCE("") "]", "/search/warm_start/1/trials"},
        {"'warm_start': [" SOURCE(RAN ", {'layout': {'tp': 3}, 'status': 'oom'}") "]",
         "/search/warm_start/0/trials/1/layout"},
        {"'warm_start': [" SOURCE("{'layout': {'tp': 2}, 'status': 'ok'}") "]",
         "/search/warm_start/0/trials/0/tokens_per_s"},
        {"'warm_start': [" SOURCE("{'layout': {'tp': 2}, 'statsu': 'ok'}") "]",
         "/search/warm_start/0/trials/0/statsu"},
        {"'warm_start': [" SMALLER("1", "4") "]", NULL},
        {"'warm_start': [" SMALLER("2", "4") "]", "/search/warm_start/0/trials/0/fidelity"},
        {"'warm_start': [" SMALLER("1", "2") "]", "/search/warm_start/0/trials/0/fidelity"},
        {"'warm_start': [" SOURCE("{'layout': {'tp': 2}, 'fidelity': 1, 'status': 'oom'}") "]",
         "/search/warm_start/0/trials/0/fidelity"},
        {"'warm_start': [{'model': 'gpt-1.4B', 'trials': [" RAN "]}]",
         "/search/warm_start/0/workload"},
        {"'warm_start': [{'model': 'no such', 'workload': {'global_batch': 8}, 'trials': [" RAN
         "]}]",
         "/search/warm_start/0/model"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *more = mem_printf(", 'search': {%s}", cases[i].search);
        AUTO_FREE char *text = mem_printf(SMALL_CAMPAIGN, more);
        AUTO_JSON *campaign = unit_json(text);
        struct se_spec spec;
        struct err e = {0};
        int r = se_spec_parse(&spec, campaign, NULL, &e);

        if (r == 0)
            se_spec_done(&spec);
        if ((r == 0) != (cases[i].pointer == NULL) ||
            (r < 0 && strcmp(e.pointer, cases[i].pointer) != 0))
            fail_msg("%s: %s, %s", cases[i].search, e.pointer, e.text);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hints_are_the_joint_regression),
    cmocka_unit_test(the_likelihood_is_that_of_the_process),
    cmocka_unit_test(a_related_campaign_corrects_the_machine),
    cmocka_unit_test(a_misleading_campaign_is_found_out),
    cmocka_unit_test(warm_starts_are_read_or_refused_by_name),
};
UNIT_MAIN(tests)
