/* The acquisition against quadrature, its bounds against exact values, its maximum against brute
 * force. */
#include <math.h>
#include <sched.h>

#include "search/acquire.h"
#include "search/bound.h"
#include "search/crash.h"
#include "search/num.h"
#include "search/parallel.h"
#include "search/passes.h"
#include "search/subset.h"
#include "tests/unit/search_help.h"

/* E max(0, z + x), x standard normal, by the midpoint rule relative to its own scale. */
static double ei_by_quadrature(double z)
{
    double sum = 0.0, h = 1e-4, top = z < 0 ? -z : 0.0;

    for (double x = top > 0 ? top : -z; x < fmax(top, -z) + 16.0; x += h) {
        double mid = x + 0.5 * h;

        sum += h * (z + mid) * exp(-0.5 * (mid * mid - top * top));
    }
    return log(sum) - 0.5 * top * top - SE_LOG_SQRT_2PI;
}

/* The rule errs by h^2/24 f''/f, and its last cell by h: below 1e-6 relative. */
static void log_improvement_is_that_of_quadrature(void **state)
{
    static const double z[] = {3.0, 1.0, 0.0, -0.5, -0.99, -1.01, -3.0, -8.0, -20.0, -37.0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(z); i++)
        assert_float_equal(se_log_ei(z[i]), ei_by_quadrature(z[i]), 2e-6);
}

static void log_improvement_is_smooth_where_formulas_meet(void **state)
{
    static const double at[] = {-1.0, -1e4, -1.0 - 19.999 * M_SQRT2, -20.0 * M_SQRT2};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        double d = 1e-6 * fabs(at[i]);
        double left = se_log_ei(at[i] - d), right = se_log_ei(at[i] + d);

        /* slope of log EI is at most |z| + 2/|z| there */
        assert_true(right > left);
        assert_true(right - left < 2.1 * d * (fabs(at[i]) + 2.0) + 1e-9 * fabs(left));
    }
}

static void mixture_quantiles_are_passed_with_their_probability(void **state)
{
    static const double weight[] = {0.15, 0.8, 0.05}, mean[] = {0.0, -4.5, 3.0},
                        sd[] = {1.0, 0.01, 0.5};
    double one = 1.0, m = -4.5, s = 0.3;

    (void)state;
    for (double p = 0.01; p < 1.0; p += 0.07) {
        double q = se_mixture_quantile(weight, mean, sd, 3, p), below = 0.0;

        for (int i = 0; i < 3; i++)
            below += weight[i] * se_norm_cdf((q - mean[i]) / sd[i]);
        assert_float_equal(below, p, 1e-9);
        assert_float_equal(se_mixture_quantile(&one, &m, &s, 1, p), m + s * se_norm_quantile(p),
                           1e-9);
    }
    /* Not the mean of the means, -3.45, which no component expects. */
    assert_float_equal(se_mixture_quantile(weight, mean, sd, 3, 0.5), -4.5, 0.01);
}

static void normal_functions_agree_with_each_other(void **state)
{
    (void)state;
    for (double z = -30.0; z < 6.0; z += 0.37) {
        assert_float_equal(se_norm_logcdf(z), log(se_norm_cdf(z)), 1e-9 * (1.0 + z * z));
        assert_float_equal(se_norm_ratio(z),
                           exp(-0.5 * z * z - SE_LOG_SQRT_2PI - se_norm_logcdf(z)),
                           1e-9 * (1.0 + fabs(z)));
    }
    for (double p = 0.001; p < 1.0; p += 0.0137)
        assert_float_equal(se_norm_cdf(se_norm_quantile(p)), p, 1e-10);
}

struct setup {
    struct se_table *table;
    struct se_surrogate surrogate[SE_QUANTITIES];
    struct se_crash crash;
    uint8_t *closed;
    struct se_acquire acquire;
};

static void setup_init(struct setup *s, int n, uint64_t seed, bool fit)
{
    struct rng r;

    memset(s, 0, sizeof(*s));
    rng_seed(&r, seed);
    s->table = small_table();
    s->closed = mem_alloc(s->table->n);
    se_crash_init(&s->crash, s->table);
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_surrogate_init(&s->surrogate[q], s->table, (enum se_quantity)q, true);
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)rng_below(&r, s->table->n);
        struct se_obs o;

        s->closed[at] = 1;
        se_surrogate_place(&o, &s->surrogate[SE_THROUGHPUT], s->table, at);
        o.value = o.prior + 0.3 * rng_normal(&r);
        o.var = 4e-4;
        se_surrogate_add(&s->surrogate[SE_THROUGHPUT], &o);
        se_surrogate_place(&o, &s->surrogate[SE_MEMORY], s->table, at);
        o.kind = o.prior + 0.2 * rng_normal(&r) > 0.0 ? SE_ABOVE : SE_BELOW;
        o.var = 1e-4;
        se_surrogate_add(&s->surrogate[SE_MEMORY], &o);
        se_crash_add(&s->crash, s->table, at, i % 7 != 0);
    }
    for (int q = 0; q < SE_QUANTITIES; q++) {
        if (fit)
            se_surrogate_fit(&s->surrogate[q]);
        else
            se_surrogate_update(&s->surrogate[q]);
    }
    s->acquire = (struct se_acquire){.table = s->table,
                                     .surrogate = {&s->surrogate[0], &s->surrogate[1]},
                                     .crash = &s->crash,
                                     .closed = s->closed,
                                     .improving = true,
                                     .incumbent = s->table->center[SE_THROUGHPUT] - 0.2,
                                     .widen = 1.0,
                                     .step_log_tokens = log(64.0 * 1024.0),
                                     .steps = 10,
                                     .start_s = 5};
}

static void setup_done(struct setup *s)
{
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_surrogate_done(&s->surrogate[q]);
    se_crash_done(&s->crash);
    se_table_free(s->table);
    free(s->closed);
}

/* Means are rounded to float on purpose: half a unit in the last place of their size. */
static void sweeps_have_exact_means_and_bound_variances(void **state)
{
    (void)state;
    for (int n = 0; n < 40; n += 13) {
        struct setup s;
        float *mean, *bound;

        setup_init(&s, n, 3, true);
        mean = mem_alloc(s.table->n * sizeof(float));
        bound = mem_alloc(s.table->n * sizeof(float));
        for (int q = 0; q < SE_QUANTITIES; q++) {
            for (int h = 0; h < s.surrogate[q].nhyps; h++) {
                struct se_scan *scan =
                    se_scan_new(&s.surrogate[q], &s.surrogate[q].hyp[h], s.table);
                struct se_sweep *sweep = se_sweep_new(&s.surrogate[q], &s.surrogate[q].hyp[h],
                                                      s.table, NULL, s.table->n, 16);

                se_sweep_run(mean, bound, sweep);
                se_sweep_free(sweep);
                for (size_t i = 0; i < s.table->n; i++) {
                    double m, v, exact_m, bounded, before;
                    bool done = false;

                    se_hyp_predict(&m, &v, &s.surrogate[q], &s.surrogate[q].hyp[h], s.table, i);
                    assert_float_equal(mean[i], m, 1e-6 * (1.0 + fabs(m)));
                    assert_true(bound[i] >= v - 1e-9);
                    se_scan_open(scan, i);
                    before = INFINITY;
                    for (int upto = 8; !done; upto *= 2) {
                        bounded = se_scan_tighten(&done, scan, upto);
                        assert_true(bounded <= before + 1e-12 && bounded >= v - 1e-9);
                        before = bounded;
                    }
                    exact_m = se_scan_mean(&before, scan);
                    assert_float_equal(exact_m, m, 1e-9);
                    assert_float_equal(before, v, 1e-9);
                }
                se_scan_free(scan);
            }
        }
        free(mean);
        free(bound);
        setup_done(&s);
    }
}

/* A process that holds the given observations of G alone. */
static void holding_only(struct se_gp *ret, const struct se_gp *g, const int *member, int n)
{
    se_gp_copy(ret, g);
    ret->n = 0;
    for (int j = 0; j < n; j++) {
        struct se_point p = {.level = g->level + member[j] * g->kern.ndims};

        memcpy(p.u, g->lin + member[j] * g->kern.nlin, (size_t)g->kern.nlin * sizeof(double));
        se_gp_add(ret, &p, 0.0, g->var[member[j]]);
    }
    se_gp_factor(ret);
}

/* The bound of a sweep is the variance given the subset (rounded up to float), and the subset
 * explains more of the layouts it was chosen for than as many observations that were not chosen. */
static void check_subset(const struct setup *s, enum se_quantity q, const struct se_hyp *h,
                         const uint32_t *row, size_t n, int members)
{
    const struct se_gp *g = &h->gp;
    struct se_sweep *sweep = se_sweep_new(&s->surrogate[q], h, s->table, row, n, members);
    double chosen = 0.0, arbitrary = 0.0;
    AUTO_FREE float *bound = mem_alloc(n * sizeof(float));
    struct se_subset subset;
    struct se_gp few, others;
    int first[SE_MAX_SUBSET];

    for (int j = 0; j < members; j++)
        first[j] = j;
    se_sweep_run(NULL, bound, sweep);
    se_sweep_free(sweep);
    se_subset_choose(&subset, members, g, s->table, q, row, n);
    assert_int_equal(subset.n, members);
    holding_only(&few, g, subset.member, subset.n);
    holding_only(&others, g, first, members);
    for (size_t i = 0; i < n; i++) {
        struct se_point p;
        double m, v;

        se_table_point(&p, s->table, q, row[i], g->kern.nlin);
        se_gp_predict(&m, &v, &few, &p);
        assert_float_equal(bound[i], v, 1e-6 * v + 1e-9);
        chosen += v;
        se_gp_predict(&m, &v, &others, &p);
        arbitrary += v;
    }
    assert_true(chosen < arbitrary);
    se_gp_done(&few);
    se_gp_done(&others);
}

static void subset_bounds_are_posteriors_and_good_ones(void **state)
{
    struct setup s;
    AUTO_FREE uint32_t *row = NULL;

    (void)state;
    setup_init(&s, 60, 11, true);
    row = mem_alloc(s.table->n * sizeof(*row));
    for (uint32_t every = 1; every <= 7; every += 6) {
        size_t n = 0;

        for (uint32_t i = 0; i < s.table->n; i += every)
            row[n++] = i;
        for (int q = 0; q < SE_QUANTITIES; q++)
            for (int h = 0; h < s.surrogate[q].nhyps; h++)
                for (int members = 16; members < 60; members *= 2)
                    check_subset(&s, (enum se_quantity)q, &s.surrogate[q].hyp[h], row, n, members);
    }
    setup_done(&s);
}

/* Bounds by vectors exceed the exact part of the score that throughput decides, by the tenth that
 * Birnbaum's inequality leaves and what a float loses at most. */
static void vector_bounds_are_close_from_above(void **state)
{
    float *mean[SE_MAX_HYPS], *var[SE_MAX_HYPS], AUTO_FREE *bound = NULL;
    float AUTO_FREE *batch = NULL;
    uint32_t AUTO_FREE *row = NULL;
    struct setup s;
    size_t n;

    (void)state;
    setup_init(&s, 20, 5, true);
    n = s.table->n;
    row = mem_alloc(n * sizeof(*row));
    bound = mem_alloc(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        row[i] = (uint32_t)i;
    for (int h = 0; h < s.surrogate[SE_THROUGHPUT].nhyps; h++) {
        mean[h] = mem_alloc(n * sizeof(float));
        var[h] = mem_alloc(n * sizeof(float));
        for (size_t i = 0; i < n; i++) {
            double m, v;

            se_hyp_predict(&m, &v, &s.surrogate[SE_THROUGHPUT], &s.surrogate[SE_THROUGHPUT].hyp[h],
                           s.table, i);
            mean[h][i] = (float)m;
            var[h][i] = (float)v;
        }
    }
    batch = mem_alloc(n * sizeof(float)); /* logarithms: batches up to 2,980 times smaller */
    for (size_t i = 0; i < n; i++)
        batch[i] = -4.0F * (float)(i % 3);
    for (int k = 0; k < 24; k++) {
        s.acquire.improving = k > 0;
        s.acquire.log_unit = k % 2 ? s.table->log_devices : NULL;
        s.table->log_batch = k % 4 < 2 ? NULL : batch;
        s.acquire.widen = k % 3 ? 1.0 : 2.5;
        s.acquire.incumbent = s.table->center[SE_THROUGHPUT] + 0.4 * (k - 8);
        se_score_bounds(bound, &s.acquire, row, n, mean, var);
        for (size_t i = 0; i < n; i++) {
            struct se_candidate c;
            double exact;

            se_acquire_one(&c, &s.acquire, i);
            exact = c.score - 2.0 * log(c.p_fits);
            assert_true(bound[i] > exact - 1e-4 * fabs(exact));
            if (exact > -500.0) /* beyond e^-600 all improvements count as that much */
                assert_true(bound[i] < exact + 0.11 + 1e-4 * fabs(exact));
        }
    }
    for (int h = 0; h < s.surrogate[SE_THROUGHPUT].nhyps; h++) {
        free(mean[h]);
        free(var[h]);
    }
    s.table->log_batch = NULL;
    setup_done(&s);
}

/* The bound is proved here: over every open layout, no exact score exceeds that of the answer. */
static void lazy_maximum_equals_brute_force(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct setup s;
        struct se_found found;
        struct se_candidate best = {.score = -INFINITY}, c;

        setup_init(&s, 2 + 3 * (int)seed, seed, seed % 2 == 0);
        s.acquire.improving = seed % 5 != 4;
        s.acquire.widen = seed % 3 == 0 ? 1.7 : 1.0;
        for (size_t i = 0; i < s.table->n; i++) {
            if (s.closed[i])
                continue;
            se_acquire_one(&c, &s.acquire, i);
            if (c.score > best.score)
                best = c;
        }
        se_acquire(&found, &s.acquire, 1);
        assert_true(found.proved);
        assert_true(found.count >= 1 && found.count <= found.open);
        assert_float_equal(found.candidate[0].score, best.score, 1e-9);
        assert_false(s.closed[found.candidate[0].index]);
        free(found.candidate);
        setup_done(&s);
    }
}

static void crashes_lower_the_chance_nearby_only(void **state)
{
    struct se_table *t = small_table();
    struct se_crash c;

    (void)state;
    se_crash_init(&c, t);
    assert_float_equal(se_crash_runs(&c, t, 0), 1.0, 0.0);
    se_crash_add(&c, t, 0, false);
    se_crash_add(&c, t, 0, false);
    assert_true(se_crash_runs(&c, t, 0) < 0.5);
    assert_true(se_crash_runs(&c, t, t->n - 1) > 0.8);
    se_crash_done(&c);
    se_table_free(t);
}

/* Everything above that passes over layouts, in each version that this processor runs: the first
 * served the other tests. */
static void every_instruction_set_passes_the_same_tests(void **state)
{
    int versions = 0;

    for (int i = 0; i < SE_ISA_COUNT; i++) {
        const struct se_passes *p = se_passes_of(i);

        if (!p)
            continue;
        se_passes_use(p);
        sweeps_have_exact_means_and_bound_variances(state);
        subset_bounds_are_posteriors_and_good_ones(state);
        vector_bounds_are_close_from_above(state);
        lazy_maximum_equals_brute_force(state);
        versions++;
    }
    assert_true(versions > 0);
    for (int i = SE_ISA_COUNT - 1; i >= 0; i--) /* the widest again */
        if (se_passes_of(i))
            se_passes_use(se_passes_of(i));
}

static void count_visits(void *context, size_t from, size_t to)
{
    unsigned char *visits = context;

    for (size_t i = from; i < to; i++)
        visits[i]++;
}

static void a_divided_range_is_visited_once(void **state)
{
    (void)state;
    for (size_t n = 0; n < 1000000; n = 7 * n + 1) {
        for (size_t least = 1; least < 100000; least = 3 * least + 1) {
            AUTO_FREE unsigned char *visits = mem_alloc(n + 1);

            se_parallel(n, least, count_visits, visits);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(visits[i], 1);
            assert_int_equal(visits[n], 0);
        }
    }
}

/* Rows come out as they do on one thread, whatever rows came before them. */
static void a_divided_sweep_is_one_sweep(void **state)
{
    struct setup s;
    size_t n = 40000;
    AUTO_FREE uint32_t *row = mem_alloc(n * sizeof(*row));
    AUTO_FREE float *mean = mem_alloc(n * sizeof(float)), *bound = mem_alloc(n * sizeof(float));
    float alone[2];

    (void)state;
    setup_init(&s, 40, 3, true);
    for (size_t i = 0; i < n; i++) /* each layout many times: a table of this size takes long */
        row[i] = (uint32_t)(i * s.table->n / n);
    for (int q = 0; q < SE_QUANTITIES; q++) {
        const struct se_surrogate *b = &s.surrogate[q];
        struct se_sweep *all = se_sweep_new(b, &b->hyp[0], s.table, row, n, 16);

        se_sweep_run(mean, bound, all);
        se_sweep_free(all);
        for (size_t i = 0; i < n; i += 997) {
            struct se_sweep *one = se_sweep_new(b, &b->hyp[0], s.table, row + i, 1, 16);

            se_sweep_run(&alone[0], &alone[1], one);
            se_sweep_free(one);
            assert_float_equal(mean[i], alone[0], 1e-6 * (1.0 + fabs(mean[i])));
        }
        for (size_t i = 1; i < n; i++) {
            if (row[i] == row[i - 1]) {
                assert_true(mean[i] == mean[i - 1]);
                assert_true(bound[i] == bound[i - 1]);
            }
        }
    }
    setup_done(&s);
}

/* To the bit, and the same layouts in the same order, on one processor and on all. */
static void threads_change_no_answer(void **state)
{
    struct setup s;
    struct se_found all, one;
    cpu_set_t before, single;
    int cpu = 0;

    (void)state;
    setup_init(&s, 12, 9, true);
    s.acquire.widen = 4.0; /* so that many may be the best */
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&single);
    CPU_SET(cpu, &single);
    se_acquire(&all, &s.acquire, 64);
    assert_int_equal(sched_setaffinity(0, sizeof(single), &single), 0);
    se_acquire(&one, &s.acquire, 64);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_true(all.count >= 64); /* several threads' worth */
    assert_true(all.count == one.count && all.proved == one.proved);
    for (size_t i = 0; i < all.count; i++) {
        assert_true(all.candidate[i].index == one.candidate[i].index);
        assert_true(all.candidate[i].score == one.candidate[i].score);
    }
    free(all.candidate);
    free(one.candidate);
    setup_done(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(log_improvement_is_that_of_quadrature),
    cmocka_unit_test(log_improvement_is_smooth_where_formulas_meet),
    cmocka_unit_test(mixture_quantiles_are_passed_with_their_probability),
    cmocka_unit_test(normal_functions_agree_with_each_other),
    cmocka_unit_test(sweeps_have_exact_means_and_bound_variances),
    cmocka_unit_test(subset_bounds_are_posteriors_and_good_ones),
    cmocka_unit_test(vector_bounds_are_close_from_above),
    cmocka_unit_test(lazy_maximum_equals_brute_force),
    cmocka_unit_test(crashes_lower_the_chance_nearby_only),
    cmocka_unit_test(every_instruction_set_passes_the_same_tests),
    cmocka_unit_test(a_divided_range_is_visited_once),
    cmocka_unit_test(a_divided_sweep_is_one_sweep),
    cmocka_unit_test(threads_change_no_answer),
};
UNIT_MAIN(tests)
