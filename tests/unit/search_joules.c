/* A search for tokens per joule: of layouts, the one that draws least for its work wins, not the
 * fastest. */
#include <errno.h>
#include <math.h>

#include "search/fidelity.h"
#include "search/state.h"
#include "tests/unit/search_help.h"

#define JOULES ", 'objective': 'tokens_per_joule', 'search': {'seed': 3}"

/* Many stages are slow, and sip: tokens/s and watts of a made-up machine. */
static double speed_of(const struct pl_layout *layout)
{
    return made_up(layout) / pow(layout->pp, 0.2);
}

static double watts_of(const struct pl_layout *layout)
{
    return 300.0 * layout->world / pow(layout->pp, 0.8);
}

static struct se_outcome outcome_of(const struct pl_layout *layout)
{
    return (struct se_outcome){.status = SE_OK,
                               .tokens_per_s = speed_of(layout),
                               .tokens_per_s_se = 1e-3 * speed_of(layout),
                               .tokens_per_joule = speed_of(layout) / watts_of(layout)};
}

static int run(struct se_search *s, int trials)
{
    struct se_trial t;
    struct err e = {0};
    int n = 0;

    for (; n < trials && se_ask(&t, s) == SE_TRIAL; n++) {
        struct se_outcome o = outcome_of(&t.layout);

        assert_int_equal(se_tell(s, t.id, &o, &e), 0);
    }
    return n;
}

static void the_most_frugal_layout_wins_not_the_fastest(void **state)
{
    double fastest = 0, frugal = 0, of_fastest = 0;
    struct se_search *s = small_search(JOULES);
    struct se_best best;
    AUTO_JSON *json = NULL;

    (void)state;
    for (size_t i = 0; i < s->table->n; i++) {
        struct pl_layout l;

        se_table_layout(&l, s->table, i);
        if (speed_of(&l) > fastest) {
            fastest = speed_of(&l);
            of_fastest = speed_of(&l) / watts_of(&l);
        }
        frugal = fmax(frugal, speed_of(&l) / watts_of(&l));
    }
    assert_true(frugal > 1.2 * of_fastest); /* they are different layouts */
    run(s, 30);
    assert_int_equal(se_best(&best, s), 0);
    assert_true(speed_of(&best.layout) / watts_of(&best.layout) > 0.97 * frugal);
    /* tokens/s are still tokens/s */
    assert_true(fabs(best.mean / speed_of(&best.layout) - 1) < 0.05);
    json = se_best_json(s);
    assert_true(
        fabs(json_number_value(json_object_get(json_object_get(json, "tokens_per_joule"), "mean")) *
                 watts_of(&best.layout) / speed_of(&best.layout) -
             1) < 0.05);
    se_search_free(s);
}

static void a_success_without_joules_is_refused_by_name(void **state)
{
    struct se_search *s = small_search(JOULES);
    struct se_trial t;
    struct err e = {0};

    (void)state;
    assert_int_equal(se_ask(&t, s), SE_TRIAL);
    struct se_outcome o = outcome_of(&t.layout);

    o.tokens_per_joule = 0;
    assert_int_equal(se_tell(s, t.id, &o, &e), -EINVAL);
    assert_string_equal(e.pointer, "/tokens_per_joule");
    o = outcome_of(&t.layout);
    assert_int_equal(se_tell(s, t.id, &o, &e), 0);
    se_search_free(s);
}

/* The prior says 1 W a device here, the machine 300: trials tell by how much it errs. */
static void watts_are_learned_from_the_trials(void **state)
{
    struct se_search *s = small_search(JOULES);
    struct se_predicted p;
    struct pl_layout l;
    struct err e = {0};

    (void)state;
    assert_true(se_watts_error(s) == 0.0);
    run(s, 12);
    assert_true(se_watts_error(s) > log(300.0) - 0.8 * log(4.0) - 0.1);
    assert_true(se_watts_error(s) < log(300.0) + 0.1);
    for (size_t i = 0; i < s->table->n; i += 17) {
        se_table_layout(&l, s->table, i);
        assert_int_equal(se_predict(&p, s, &l, &e), 0);
        assert_true(p.tokens_per_s > speed_of(&l) / 10 && p.tokens_per_s < 10 * speed_of(&l));
    }
    se_search_free(s);
}

static bool can_win(const struct se_search *s, const struct se_trial *trial, double rate)
{
    return se_can_win(NULL, s, trial->id, rate, 1e-4 * rate, 20);
}

/* While it runs, a trial's watts are unknown: it is stopped only if the least of what they may be
 * could not save it. */
static void a_slow_trial_is_stopped_only_if_no_watts_could_save_it(void **state)
{
    struct se_search *s = small_search(JOULES);
    struct se_trial t;
    struct se_best best;
    double needed, stopped = 0;

    (void)state;
    assert_int_equal(se_ask(&t, s), SE_TRIAL);
    assert_true(can_win(s, &t, 1e-6)); /* nothing is known of watts */
    {
        struct se_outcome o = outcome_of(&t.layout);
        struct err e = {0};

        assert_int_equal(se_tell(s, t.id, &o, &e), 0);
    }
    run(s, 11);
    assert_int_equal(se_ask(&t, s), SE_TRIAL);
    assert_int_equal(se_best(&best, s), 0);
    /* at the watts of the prior, corrected, this many tokens/s would equal the best */
    needed = best.mean / exp(se_unit(s, (size_t)se_table_find(s->table, &best.layout))) *
             exp(se_unit(s, (size_t)se_table_find(s->table, &t.layout)));
    assert_true(can_win(s, &t, needed));
    assert_true(can_win(s, &t, 0.7 * needed)); /* the watts of trials differ by more than that */
    for (double share = 1; share > 1e-4 && stopped <= 0; share /= 1.1)
        stopped = can_win(s, &t, share * needed) ? 0 : share;
    assert_true(stopped > 0);
    se_search_free(s);
}

static void joules_of_an_earlier_campaign_inform_and_its_seconds_do_not(void **state)
{
    struct se_search *s = small_search(JOULES);
    struct se_outcome o;
    int before;

    (void)state;
    before = s->surrogate[SE_THROUGHPUT].nobs;
    o = (struct se_outcome){.status = SE_OK, .tokens_per_s = 1000};
    se_learn(s, 0, 0, &o);
    assert_int_equal(s->surrogate[SE_THROUGHPUT].nobs, before);
    o.tokens_per_joule = 2;
    se_learn(s, 0, 0, &o);
    assert_int_equal(s->surrogate[SE_THROUGHPUT].nobs, before + 1);
    o = (struct se_outcome){.status = SE_CENSORED, .tokens_per_s_max = 1000};
    se_learn(s, 1, 0, &o); /* watts of one trial bound nothing */
    assert_int_equal(s->surrogate[SE_THROUGHPUT].nobs, before + 1);
    se_search_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_frugal_layout_wins_not_the_fastest),
        cmocka_unit_test(a_success_without_joules_is_refused_by_name),
        cmocka_unit_test(watts_are_learned_from_the_trials),
        cmocka_unit_test(a_slow_trial_is_stopped_only_if_no_watts_could_save_it),
        cmocka_unit_test(joules_of_an_earlier_campaign_inform_and_its_seconds_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
