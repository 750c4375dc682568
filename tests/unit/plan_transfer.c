/*
 * Projections to another machine, against rows of tests/data in which one software trained one
 * model on several machines: how far the model's error differs between machines, estimated again,
 * and what the intervals hold of transfers to a device whose rows were not in the estimate.
 *
 * A group is one source (a release of one software) and one model; a transfer learns from the
 * group's rows on one machine, which may be one, and projects those on another. Releases of one
 * software are measured again and again on the same machines, so each pair of devices counts once,
 * as the mean of its transfers.
 */
#include "tests/unit/unit.h"

#include <math.h>

#include "plan/plan.h"
#include "tests/bench/plan_predict.h"

enum { MAX_ROWS = 1024, MAX_DEVICES = 32, MAX_LEARNED = 128 };

struct sample {
    struct pl_observation seen;
    const char *source, *model, *device; /* borrowed from the rows */
};

struct samples {
    struct rows rows;
    struct pl_cluster machine[MAX_ROWS];
    int machines;
    struct sample at[MAX_ROWS];
    int n;
    const char *device[MAX_DEVICES];
    bool fitted[MAX_DEVICES]; /* the share that it sustains was fitted to its rows */
    int devices;
};

/* One pair of devices, in both directions. */
struct pair {
    double inside[3]; /* sums over its transfers of the share of rows within each level */
    double square;    /* of the mean squares of errors over their scale */
    double error;     /* of the mean squares of errors */
    int transfers;
};

static const double level[3] = {0.50, 0.90, 0.95};

/* ---- rows ---------------------------------------------------------------- */

static int machine_of(struct samples *s, const struct pl_cluster *cluster)
{
    for (int i = 0; i < s->machines; i++)
        if (pl_machine_changes(&s->machine[i], cluster) == 0)
            return i;
    s->machine[s->machines] = *cluster;
    return s->machines++;
}

static int device_of(struct samples *s, const char *name)
{
    int i = 0;

    while (i < s->devices && !str_eq(s->device[i], name))
        i++;
    if (i == s->devices) {
        assert_true(s->devices < MAX_DEVICES);
        s->device[s->devices++] = name;
    }
    return i;
}

static void load_file(struct samples *s, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/tests/data/%s", getenv("PT_SRC"), name);
    struct err e = {0};

    if (rows_load(&s->rows, path, &e) < 0)
        fail_msg("%s", e.text);
}

/* Rows of all machines; those of the first file are the ones that constants were fitted to. */
static struct samples *load(void)
{
    struct samples *s = mem_alloc(sizeof(*s));
    struct tuning tuning;
    size_t first;

    *s = (struct samples){0};
    load_file(s, "published.jsonl");
    first = s->rows.n;
    load_file(s, "published-devices.jsonl");
    for (size_t i = 0; i < first; i++)
        if (row_is_timed(&s->rows.at[i]))
            s->fitted[device_of(s, s->rows.at[i].cluster.device.name)] = true;
    tuning_shipped(&tuning, &s->rows);
    for (size_t i = 0; i < s->rows.n; i++) {
        const struct row *r = &s->rows.at[i];
        struct sample *one = &s->at[s->n];
        struct guess guess;

        if (!row_is_timed(r))
            continue;
        assert_true(s->n < MAX_ROWS);
        predict(&guess, r, &tuning);
        one->seen = (struct pl_observation){guess.layout, r->seconds, guess.seconds, 0,
                                            machine_of(s, &r->cluster)};
        one->source = json_string_value(json_object_get(r->doc, "source"));
        one->model = r->model.name;
        one->device = r->cluster.device.name;
        s->n++;
    }
    return s;
}

static void unload(struct samples *s)
{
    rows_done(&s->rows);
    free(s);
}

static bool same_group(const struct sample *a, const struct sample *b)
{
    return str_eq(a->source, b->source) && str_eq(a->model, b->model);
}

/* One software and model at one precision on one machine. */
static bool same_place(const struct sample *a, const struct sample *b)
{
    return same_group(a, b) && a->seen.machine == b->seen.machine &&
           a->seen.layout.precision == b->seen.layout.precision;
}

static bool is_first(const struct samples *s, int at)
{
    for (int i = 0; i < at; i++)
        if (same_place(&s->at[i], &s->at[at]))
            return false;
    return true;
}

/* ---- Student's t --------------------------------------------------------- */

/* P(|t| <= X) of Student's t: Simpson's rule over the density. */
static double within(double x, double degrees)
{
    const int steps = 2000;
    double norm = exp(lgamma((degrees + 1) / 2) - lgamma(degrees / 2)) / sqrt(degrees * acos(-1));
    double h = x / steps, sum = 0;

    for (int i = 0; i <= steps; i++)
        sum += (i == 0 || i == steps ? 1
                : i % 2              ? 4
                                     : 2) *
               pow(1 + i * h * i * h / degrees, -(degrees + 1) / 2);
    return 2 * norm * sum * h / 3;
}

/* ---- transfers ----------------------------------------------------------- */

static struct pl_calibration *learn(const struct samples *s, const struct sample *from,
                                    const struct pl_transfer *transfer)
{
    struct pl_observation at[MAX_LEARNED];
    int n = 0;

    for (int i = 0; i < s->n && n < MAX_LEARNED; i++)
        if (same_place(&s->at[i], from))
            at[n++] = s->at[i].seen;
    return pl_calibration_new(at, n, transfer);
}

/* Add to RET the transfer from the place of FROM to that of TO. */
static void judge(struct pair *ret, const struct samples *s, const struct sample *from,
                  const struct sample *to, const struct pl_transfer *transfer)
{
    struct pl_calibration *c = learn(s, from, transfer);
    double inside[3] = {0}, square = 0, error = 0;
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        const struct pl_observation *seen = &s->at[i].seen;
        struct pl_projected p;
        double off, share;

        if (!same_place(&s->at[i], to))
            continue;
        pl_project(&p, c, &seen->layout, seen->machine, seen->expected_s);
        assert_true(p.transferred);
        off = log(seen->measured_s / p.seconds);
        share = within(fabs(off) / p.scale, p.degrees);
        for (int k = 0; k < 3; k++)
            inside[k] += share <= level[k];
        square += off * off / (p.scale * p.scale);
        error += off * off;
        n++;
    }
    for (int k = 0; k < 3; k++)
        ret->inside[k] += inside[k] / n;
    ret->square += square / n;
    ret->error += error / n;
    ret->transfers++;
    pl_calibration_free(c);
}

/* What is known of machines when devices FROM and TO are judged; NULL: they are not. */
typedef const struct pl_transfer *choose(void *arg, const struct samples *s, int from, int to);

/* Of two devices whose sustained shares were both fitted to rows, errors are residuals of that fit:
 * too small to tell of a machine that nobody has measured. */
static bool is_evidence(const struct samples *s, int from, int to)
{
    return from != to && !(s->fitted[from] && s->fitted[to]);
}

/* Judge all transfers that CHOSEN admits; into pairs, devices x devices, the smaller number
 * first. */
static void judge_all(struct pair *ret, struct samples *s, choose *chosen, void *arg)
{
    memset(ret, 0, MAX_DEVICES * MAX_DEVICES * sizeof(*ret));
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->n; k++) {
            int from = device_of(s, s->at[i].device), to = device_of(s, s->at[k].device);
            const struct pl_transfer *transfer;

            if (!same_group(&s->at[i], &s->at[k]) || same_place(&s->at[i], &s->at[k]) ||
                !is_first(s, i) || !is_first(s, k))
                continue;
            transfer = chosen(arg, s, from, to);
            if (transfer)
                judge(&ret[from < to ? from * MAX_DEVICES + to : to * MAX_DEVICES + from], s,
                      &s->at[i], &s->at[k], transfer);
        }
}

struct total {
    double inside[3], square, error; /* means over pairs */
    int pairs, transfers, devices;
};

static void total(struct total *ret, const struct pair *pair)
{
    bool seen[MAX_DEVICES] = {false};

    *ret = (struct total){0};
    for (int i = 0; i < MAX_DEVICES * MAX_DEVICES; i++) {
        double n = pair[i].transfers;

        if (n <= 0)
            continue;
        for (int k = 0; k < 3; k++)
            ret->inside[k] += pair[i].inside[k] / n;
        ret->square += pair[i].square / n;
        ret->error += pair[i].error / n;
        ret->transfers += pair[i].transfers;
        ret->pairs++;
        seen[i / MAX_DEVICES] = seen[i % MAX_DEVICES] = true;
    }
    for (int i = 0; i < MAX_DEVICES; i++)
        ret->devices += seen[i];
    for (int k = 0; k < 3; k++)
        ret->inside[k] /= ret->pairs;
    ret->square /= ret->pairs;
    ret->error /= ret->pairs;
}

/* ---- the estimate -------------------------------------------------------- */

struct without {
    int device; /* whose rows are left out; -1: none */
    struct pl_transfer transfer;
};

static const struct pl_transfer *all_but_one(void *arg, const struct samples *s, int from, int to)
{
    struct without *w = arg;
    bool out = from == w->device || to == w->device;

    return is_evidence(s, from, to) && !out ? &w->transfer : NULL;
}

/*
 * The deviation with which squared errors are as large as their predicted variances, in the mean
 * over pairs of devices (the moment estimator of Paule and Mandel, 1982), from all devices but
 * WITHOUT. It has a degree of freedom less than devices.
 */
static void estimate(struct pl_transfer *ret, struct total *ret_total, struct samples *s,
                     int without)
{
    AUTO_FREE struct pair *pair = mem_alloc(MAX_DEVICES * MAX_DEVICES * sizeof(*pair));
    struct without w = {without, {0, 4}};
    double low = 0, high = 0.3;

    for (int i = 0; i < 10; i++) {
        w.transfer.deviation = (low + high) / 2;
        judge_all(pair, s, all_but_one, &w);
        total(ret_total, pair);
        if (ret_total->square > 1)
            low = w.transfer.deviation;
        else
            high = w.transfer.deviation;
    }
    w.transfer.degrees = ret_total->devices - 1;
    *ret = w.transfer;
}

/* ---- tests --------------------------------------------------------------- */

static void the_shipped_deviation_is_what_the_rows_say(void **state)
{
    struct samples *s = load();
    struct pl_transfer found;
    struct total t;

    (void)state;
    estimate(&found, &t, s, -1);
    print_message("# deviation between machines %.3f, from %d devices, %d pairs of them, %d "
                  "transfers, %d rows; root of the mean squared error %.3f\n",
                  found.deviation, t.devices, t.pairs, t.transfers, s->n, sqrt(t.error));
    /* A deviation of n degrees of freedom has the standard error deviation / sqrt(2 n). The shipped
     * one stays within a quarter of that, so that a small change of the cost model is no
     * failure. */
    assert_true(fabs(found.deviation - pl_transfer_published.deviation) <
                0.25 * found.deviation / sqrt(2 * found.degrees));
    assert_true(fabs(found.degrees - pl_transfer_published.degrees) < 0.5);
    unload(s);
}

struct left_out {
    struct pl_transfer without[MAX_DEVICES]; /* estimated without that device */
};

static const struct pl_transfer *unseen_target(void *arg, const struct samples *s, int from, int to)
{
    struct left_out *out = arg;

    return is_evidence(s, from, to) ? &out->without[to] : NULL;
}

static const struct pl_transfer *fixed(void *arg, const struct samples *s, int from, int to)
{
    return is_evidence(s, from, to) ? arg : NULL;
}

static const struct pl_transfer *one_device(void *arg, const struct samples *s, int from, int to)
{
    (void)s;
    return from == to ? arg : NULL;
}

/* P(at most X of N) where each is one with probability P. */
static double binomial(int x, int n, double p)
{
    double sum = 0;

    for (int i = 0; i <= x; i++)
        sum += exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) + i * log(p) +
                   (n - i) * log(1 - p));
    return sum;
}

static void say(const char *what, const struct total *t)
{
    print_message("# %s: %d transfers between %d pairs of %d devices; inside 50 / 90 / 95 %%: %.1f "
                  "/ %.1f / %.1f %%; squared error over variance %.2f\n",
                  what, t->transfers, t->pairs, t->devices, 100 * t->inside[0], 100 * t->inside[1],
                  100 * t->inside[2], t->square);
}

static void intervals_hold_transfers_to_a_device_that_was_left_out(void **state)
{
    AUTO_FREE struct pair *pair = mem_alloc(MAX_DEVICES * MAX_DEVICES * sizeof(*pair));
    struct samples *s = load();
    struct left_out out;
    struct pl_transfer none = {0, 1e6};
    struct total t, before;

    (void)state;
    for (int i = 0; i < s->n; i++)
        device_of(s, s->at[i].device);
    for (int i = 0; i < s->devices; i++) {
        estimate(&out.without[i], &t, s, i);
        print_message("# without %s: %.3f from %d devices\n", s->device[i],
                      out.without[i].deviation, t.devices);
    }
    judge_all(pair, s, unseen_target, &out);
    total(&t, pair);
    say("target left out", &t);
    judge_all(pair, s, fixed, &none);
    total(&before, pair);
    say("without a part for the machine", &before);
    unload(s);
    /* Pairs of devices are the independent cases; of transfers within one only the mean counts. */
    for (int k = 0; k < 3; k++) {
        int hits = (int)lround(t.inside[k] * t.pairs);

        assert_true(binomial(hits, t.pairs, level[k]) > 0.025);
        assert_true(hits == 0 || 1 - binomial(hits - 1, t.pairs, level[k]) > 0.025);
    }
    /* and the test sees an interval that is as narrow as to another size */
    assert_true(binomial((int)lround(before.inside[2] * before.pairs), before.pairs, 0.95) < 0.025);
}

/* Precisions of one device differ by less than devices do, so this interval may be too wide. */
static void intervals_hold_a_change_of_precision(void **state)
{
    AUTO_FREE struct pair *pair = mem_alloc(MAX_DEVICES * MAX_DEVICES * sizeof(*pair));
    struct pl_transfer shipped = pl_transfer_published;
    struct samples *s = load();
    struct total t;

    (void)state;
    judge_all(pair, s, one_device, &shipped);
    total(&t, pair);
    say("another precision on one device", &t);
    assert_true(t.pairs >= 4);
    assert_true(binomial((int)lround(t.inside[2] * t.pairs), t.pairs, 0.95) > 0.025);
    unload(s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_shipped_deviation_is_what_the_rows_say),
    cmocka_unit_test(intervals_hold_transfers_to_a_device_that_was_left_out),
    cmocka_unit_test(intervals_hold_a_change_of_precision),
};

UNIT_MAIN(tests)
