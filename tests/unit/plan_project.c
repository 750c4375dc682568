/*
 * Projection: what a Gaussian process must do by construction, and leave-one-scale-out on published
 * scaling tables: for every family of tests/data/published.jsonl with three sizes or more, one size
 * is hidden, and then all above the median are.
 */
#include "tests/unit/unit.h"

#include <math.h>

#include "plan/plan.h"
#include "tests/bench/plan_rows.h"

static struct pl_layout layout(int tp, int pp, int dp)
{
    return (struct pl_layout){.world = tp * pp * dp,
                              .tp = tp,
                              .sp = 0,
                              .cp = 1,
                              .pp = pp,
                              .vp = 1,
                              .schedule = PL_1F1B,
                              .ep = 1,
                              .etp = 1,
                              .dp = dp,
                              .edp = tp * dp,
                              .micro_batch = 1,
                              .threads = 1};
}

static struct pl_observation observed(int tp, int pp, int dp, double factor)
{
    return (struct pl_observation){layout(tp, pp, dp), 2 * factor, 2, 0.005, 0};
}

static void without_trials_the_model_answers_with_a_wide_interval(void **state)
{
    struct pl_calibration *c = pl_calibration_new(NULL, 0, NULL);
    struct pl_layout l = layout(8, 2, 4);
    struct pl_projected p;

    (void)state;
    pl_project(&p, c, &l, 0, 3);
    assert_true(p.factor == 1 && p.seconds == 3);
    assert_true(p.lo < 3 / 1.5 && p.hi > 3 * 1.5);
    pl_calibration_free(c);
}

static void a_common_factor_is_carried_to_other_scales(void **state)
{
    struct pl_observation at[6];
    struct pl_layout near = layout(2, 1, 8), far = layout(2, 1, 1024), other = layout(8, 8, 8);
    struct pl_projected a, b, d;
    struct pl_calibration *c;

    (void)state;
    for (int i = 0; i < 6; i++)
        at[i] = observed(1 << i % 3, 1, 8 >> i % 3, 1.3);
    c = pl_calibration_new(at, 6, NULL);
    pl_project(&a, c, &near, 0, 1);
    pl_project(&b, c, &far, 0, 1);
    pl_project(&d, c, &other, 0, 1);
    assert_true(fabs(a.factor - 1.3) < 0.01); /* six agreeing trials pull the prior's 1 hardly */
    assert_true(fabs(b.factor - 1.3) < 0.02);
    assert_true(b.hi / b.lo > a.hi / a.lo); /* what is farther off is less certain */
    assert_true(d.hi / d.lo > a.hi / a.lo); /* and so is another shape */
    assert_true(a.lo < 1.3 && a.hi > 1.3);
    pl_calibration_free(c);
}

static void a_trend_over_scales_is_followed(void **state)
{
    struct pl_observation at[5];
    struct pl_layout l = layout(8, 1, 512);
    struct pl_projected p;
    struct pl_calibration *c;
    double slope = 0.04;

    (void)state;
    for (int i = 0; i < 5; i++)
        at[i] = observed(8, 1, 1 << i, exp(slope * i * log(2)));
    c = pl_calibration_new(at, 5, NULL);
    pl_project(&p, c, &l, 0, 1);
    /* at least half of the way from the last measured factor to the trend's at dp 512 */
    assert_true(log(p.factor) > slope * 4 * log(2));
    assert_true(p.lo < exp(slope * 9 * log(2)) && p.hi > exp(slope * 9 * log(2)));
    pl_calibration_free(c);
}

static void wild_trials_widen_the_interval(void **state)
{
    struct pl_observation calm[8], wild[8];
    struct pl_layout l = layout(4, 1, 4);
    struct pl_projected a, b;
    struct pl_calibration *c, *w;

    (void)state;
    for (int i = 0; i < 8; i++) {
        calm[i] = observed(1 << i % 4, 1, 8 >> i % 4, 1.1);
        wild[i] = observed(1 << i % 4, 1, 8 >> i % 4, i % 2 ? 2.0 : 0.7);
    }
    c = pl_calibration_new(calm, 8, NULL);
    w = pl_calibration_new(wild, 8, NULL);
    pl_project(&a, c, &l, 0, 1);
    pl_project(&b, w, &l, 0, 1);
    assert_true(log(b.hi / b.lo) > 1.5 * log(a.hi / a.lo));
    pl_calibration_free(c);
    pl_calibration_free(w);
}

/* Half of the width of the 95 % interval, in logarithms. */
static double half_width(const struct pl_projected *p)
{
    return log(p->hi / p->lo) / 2;
}

static void another_machine_widens_the_interval_however_many_trials_agree(void **state)
{
    struct pl_observation at[64];
    struct pl_layout l = layout(8, 1, 8), other = l;
    struct pl_projected here, there, precision, both;
    struct pl_calibration *c;

    (void)state;
    other.precision = l.precision == PL_FP8 ? PL_BF16 : PL_FP8;
    for (int i = 0; i < 64; i++)
        at[i] = observed(1 << i % 4, 1, 64 >> i % 4, 1.3);
    c = pl_calibration_new(at, 64, NULL);
    pl_project(&here, c, &l, 0, 1);
    pl_project(&there, c, &l, 1, 1);
    pl_project(&precision, c, &other, 0, 1);
    pl_project(&both, c, &other, 1, 1);
    assert_true(!here.transferred && there.transferred && precision.transferred);
    /* what belongs to the other machine alone has the published variance, and it is a normal
     * deviation at the least */
    assert_true(half_width(&there) > 1.96 * pl_transfer_published.deviation);
    assert_true(half_width(&here) < 0.1);
    assert_true(half_width(&precision) > 1.96 * pl_transfer_published.deviation);
    assert_true(half_width(&both) > 1.96 * pl_transfer_published.deviation);
    /* of the measured factor only what machines have in common is carried */
    assert_true(there.factor > 1 && there.factor < here.factor);
    assert_true(there.lo < 1.3 && there.hi > 1.3);
    pl_calibration_free(c);
}

static void trials_on_the_other_machine_narrow_it_again(void **state)
{
    struct pl_observation at[12];
    struct pl_layout l = layout(8, 1, 8);
    struct pl_projected before, after, here, alone;
    struct pl_calibration *one, *two;

    (void)state;
    for (int i = 0; i < 12; i++) {
        at[i] = observed(1 << i % 4, 1, 64 >> i % 4, i < 6 ? 1.3 : 0.9);
        at[i].machine = i < 6 ? 0 : 7;
    }
    one = pl_calibration_new(at, 6, NULL);
    two = pl_calibration_new(at, 12, NULL);
    pl_project(&before, one, &l, 7, 1);
    pl_project(&alone, one, &l, 0, 1);
    pl_project(&after, two, &l, 7, 1);
    pl_project(&here, two, &l, 0, 1);
    assert_true(before.transferred && !after.transferred && !here.transferred);
    assert_true(half_width(&after) < half_width(&before) / 3);
    assert_true(fabs(log(after.factor / 0.9)) < 0.05);
    assert_true(fabs(log(here.factor / alone.factor)) < 0.05);
    pl_calibration_free(one);
    pl_calibration_free(two);
}

static void machines_are_compared_by_their_facts(void **state)
{
    AUTO_JSON *name = json_string("dgx-a100");
    struct pl_cluster a, b;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_cluster_parse(&a, name, NULL, &e), 0);
    b = a;
    b.nodes = 7;
    snprintf(b.name, sizeof(b.name), "selene");
    assert_int_equal(pl_machine_changes(&a, &b), 0);
    b.device.memory_gbs /= 2;
    assert_int_equal(pl_machine_changes(&a, &b), PL_OTHER_DEVICE);
    b = a;
    b.devices_per_node = 4;
    b.link[b.nlinks - 1].gbs /= 2;
    assert_int_equal(pl_machine_changes(&a, &b), PL_OTHER_NODE | PL_OTHER_LINKS);
    b = a;
    snprintf(b.device.name, sizeof(b.device.name), "device");
    assert_int_equal(pl_machine_changes(&b, &b), PL_OTHER_DEVICE); /* two that nobody named */
    b = a;
    b.device.gemm_tflops *= 1.01; /* measured again */
    assert_int_equal(pl_machine_changes(&a, &b), PL_OTHER_DEVICE);
    a.measured = b.measured = true;
    assert_int_equal(pl_machine_changes(&a, &b), 0);
}

static void scaling_changes_replicas_only(void **state)
{
    struct pl_model m = {.layers = 8, .heads = 8, .kv_heads = 8, .hidden = 64};
    struct pl_layout l = layout(2, 2, 2), x;

    (void)state;
    assert_true(pl_layout_scale(&x, &l, 64, 256, &m));
    assert_int_equal(x.world, 64);
    assert_int_equal(x.dp, 16);
    assert_int_equal(x.tp, 2);
    assert_false(pl_layout_scale(&x, &l, 6, 256, &m)); /* no multiple of tp x pp */
    assert_false(pl_layout_scale(&x, &l, 64, 24, &m)); /* 24 sequences for 16 replicas */
}

/* ---- published tables ---------------------------------------------------- */

/* Seconds by the cost model: keys that the row does not print are the model's fastest that fit. */
static bool expect(struct pl_observation *ret, const struct row *r)
{
    AUTO_JSON *space = pl_layout_json(&r->layout);
    struct pl_problem p = row_problem(r);
    static const char *const follow[] = {"dp", "edp", "zero_scope", "schedule", NULL};
    struct pl_plan plan = {0};
    struct pl_space s;
    bool found;

    for (int i = 0; follow[i]; i++)
        json_object_del(space, follow[i]);
    if (r->free_micro_batch)
        json_object_del(space, "micro_batch");
    if (r->free_vp)
        json_object_del(space, "vp");
    if (r->free_recompute && r->trainer.flash)
        json_object_set_new(space, "recompute", json_pack("[s, s]", "none", "selective"));
    else if (r->free_recompute)
        json_object_del(space, "recompute");
    if (r->free_sp)
        json_object_del(space, "sp");
    if (r->free_zero)
        json_object_set_new(space, "zero", json_pack("[i, i]", 0, 1));
    if (pl_space_parse(&s, space, &p, NULL) < 0)
        return false;
    found = pl_plan_rank(&plan, &s, &p, 1, 0, PL_TOKENS_PER_S, NULL) == 0 && plan.n > 0;
    if (found)
        *ret = (struct pl_observation){plan.at[0].layout, r->seconds, plan.at[0].cost.total, 0, 0};
    pl_plan_done(&plan);
    return found;
}

struct table {
    struct pl_observation at[128];
    int n;
};

struct score {
    int n, inside;
    double raw, projected; /* sums of |ln(measured / said)| */
};

static int sizes_of(int *ret, const struct table *t)
{
    int n = 0;

    for (int i = 0; i < t->n; i++) {
        int k = 0;

        while (k < n && ret[k] != t->at[i].layout.world)
            k++;
        if (k == n)
            ret[n++] = t->at[i].layout.world;
    }
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && ret[k] < ret[k - 1]; k--) {
            int swap = ret[k];

            ret[k] = ret[k - 1];
            ret[k - 1] = swap;
        }
    return n;
}

/* Learn from the rows with LEARN[size], judge the others. */
static void judge(struct score *s, const struct table *t, int from, int to, bool inner)
{
    struct pl_observation known[128];
    struct pl_calibration *c;
    int n = 0;

    for (int i = 0; i < t->n; i++) {
        int w = t->at[i].layout.world;

        if (inner ? w < from || w > to : w < from)
            known[n++] = t->at[i];
    }
    c = pl_calibration_new(known, n, NULL);
    for (int i = 0; i < t->n; i++) {
        const struct pl_observation *o = &t->at[i];
        struct pl_projected p;

        if (o->layout.world < from || o->layout.world > to)
            continue;
        pl_project(&p, c, &o->layout, 0, o->expected_s);
        s->n++;
        s->inside += o->measured_s >= p.lo && o->measured_s <= p.hi;
        s->raw += fabs(log(o->measured_s / o->expected_s));
        s->projected += fabs(log(o->measured_s / p.seconds));
    }
    pl_calibration_free(c);
}

static void report(const char *what, const struct score *s)
{
    print_message("# %s: %d rows, error %.1f %% by the model alone, %.1f %% projected, %d inside "
                  "the interval\n",
                  what, s->n, 100 * s->raw / s->n, 100 * s->projected / s->n, s->inside);
}

static void hidden_scales_of_published_tables_are_projected(void **state)
{
    AUTO_FREE char *path = mem_printf("%s/tests/data/published.jsonl", getenv("PT_SRC"));
    struct rows rows = {0};
    struct score one = {0}, up = {0};
    struct err e = {0};

    (void)state;
    if (rows_load(&rows, path, &e) < 0)
        fail_msg("%s", e.text);
    for (size_t first = 0; first < rows.n; first++) {
        struct table t = {0};
        int size[128], n;
        bool seen = false;

        for (size_t i = 0; i < first; i++)
            seen |= !strcmp(rows.at[i].family, rows.at[first].family);
        for (size_t i = first; i < rows.n && !seen; i++) {
            const struct row *r = &rows.at[i];

            if (!strcmp(r->family, rows.at[first].family) && !strcmp(r->type, "training") &&
                r->seconds > 0 && t.n < (int)ARRAY_LEN(t.at) && expect(&t.at[t.n], r))
                t.n++;
        }
        n = sizes_of(size, &t);
        if (n < 3)
            continue;
        for (int i = 0; i < n; i++)
            judge(&one, &t, size[i], size[i], true);
        judge(&up, &t, size[(n + 1) / 2], size[n - 1], false);
    }
    report("one scale hidden", &one);
    report("from the smaller half of the scales to the larger", &up);
    assert_true(one.n >= 80 && up.n >= 25);
    /* The trials must help, and the interval must be honest. Rows of a table are not independent,
     * so its 95 % are held to 90. */
    assert_true(one.projected < one.raw);
    assert_true(up.projected < up.raw * 1.02);
    assert_true(one.inside >= 0.9 * one.n);
    assert_true(up.inside >= 0.9 * up.n);
    rows_done(&rows);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(without_trials_the_model_answers_with_a_wide_interval),
    cmocka_unit_test(a_common_factor_is_carried_to_other_scales),
    cmocka_unit_test(a_trend_over_scales_is_followed),
    cmocka_unit_test(wild_trials_widen_the_interval),
    cmocka_unit_test(another_machine_widens_the_interval_however_many_trials_agree),
    cmocka_unit_test(trials_on_the_other_machine_narrow_it_again),
    cmocka_unit_test(machines_are_compared_by_their_facts),
    cmocka_unit_test(scaling_changes_replicas_only),
    cmocka_unit_test(hidden_scales_of_published_tables_are_projected),
};

UNIT_MAIN(tests)
