/*
 * What the rules exclude from a space: how many of the candidates of its product break each, with
 * an example. A product of any size is counted exactly, since below the degrees it is a product of
 * numbers. Its candidates are looked at by an even sample that one walk draws: a reservoir which
 * skips to the next candidate that enters (Li, "Reservoir-sampling algorithms of time complexity
 * O(n(1 + log(N/n)))", 1994, algorithm L). And in words, why nothing is left that fits.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/legal.h"
#include "plan/space_walk.h"

enum {
    KEPT = 1 << 14,
    LOOKS = 1024, /* between two questions to the patience, and at least */
    DEGREES = 8,  /* keys of the walk up to etp: whether a later one means something follows from
                    them and zero */
};

/* How many values the key at LEVEL takes in a layout whose earlier keys are fixed: the I-th of them
 * is value_of(). */
static int choices(const struct pl_space *space, const struct pl_problem *problem,
                   const struct pl_layout *layout, size_t level)
{
    enum pl_key key = pl_space_order[level];
    const struct pl_space_axis *axis = &space->axis[key];
    int only;

    if (!pl_space_applies(&only, space, problem, layout, key))
        return 1;
    /* where the scope matters, "none" is not one of its values */
    return axis->n - (key == PL_KEY_ZERO_SCOPE && axis->n > 0 && axis->value[0] == PL_SCOPE_NONE);
}

static int value_of(const struct pl_space *space, const struct pl_problem *problem,
                    const struct pl_layout *layout, size_t level, int index)
{
    enum pl_key key = pl_space_order[level];
    const struct pl_space_axis *axis = &space->axis[key];
    int only;

    return pl_space_applies(&only, space, problem, layout, key)
               ? axis->value[index + axis->n - choices(space, problem, layout, level)]
               : only;
}

/* Candidates that begin as LAYOUT does up to LEVEL, which is DEGREES or more. */
static uint64_t below(const struct pl_space *space, const struct pl_problem *problem,
                      const struct pl_layout *layout, size_t level)
{
    struct pl_layout next = *layout;
    uint64_t n = 1, sum = 0;

    for (; level < PL_WALK_KEYS && pl_space_order[level] != PL_KEY_ZERO; level++)
        n *= (uint64_t)choices(space, problem, layout, level);
    if (level == PL_WALK_KEYS)
        return n;
    for (int i = 0; i < choices(space, problem, layout, level); i++) {
        next.zero = value_of(space, problem, layout, level, i);
        sum += below(space, problem, &next, level + 1);
    }
    return n * sum;
}

/* Candidate number AT of those that begin as LAYOUT does up to its degrees: LAYOUT becomes it. */
static void find(const struct pl_space *space, const struct pl_problem *problem,
                 struct pl_layout *layout, uint64_t at)
{
    for (size_t level = DEGREES; level < PL_WALK_KEYS; level++)
        for (int i = 0; i < choices(space, problem, layout, level); i++) {
            struct pl_layout next = *layout;
            uint64_t n;

            pl_layout_set(&next, &pl_layout_keys[pl_space_order[level]],
                          value_of(space, problem, layout, level, i));
            n = below(space, problem, &next, level + 1);
            if (at < n) {
                *layout = next;
                break;
            }
            at -= n;
        }
}

/* A candidate of the reservoir: the degrees, and its number among those that begin so. */
struct drawn {
    struct pl_layout degrees;
    uint64_t at;
};

struct sample {
    const struct pl_space *space;
    const struct pl_problem *problem;
    uint64_t candidates; /* so far */
    uint64_t next;       /* number of the next that enters the reservoir */
    struct drawn *drawn; /* KEPT of them */
    size_t kept, looked_at;
    double threshold; /* algorithm L's W: the largest of the KEPT smallest random keys */
    struct rng rng;
    struct pl_exclusion *exclusion;
    size_t n;
};

/* One violation: counted, and the first of its rule kept as the example. */
static void count(struct sample *sample, const struct pl_violation *violation)
{
    size_t i = 0;

    while (i < sample->n && !str_eq(sample->exclusion[i].rule, violation->rule))
        i++;
    if (i == PL_MAX_EXCLUSIONS)
        return;
    if (i == sample->n) {
        sample->exclusion[i] = (struct pl_exclusion){.rule = violation->rule};
        snprintf(sample->exclusion[i].example, sizeof(sample->exclusion[i].example), "%s",
                 violation->text);
        sample->n++;
    }
    sample->exclusion[i].count++;
}

static bool is_first(const struct pl_verdict *verdict, int index)
{
    for (int j = 0; j < index; j++)
        if (str_eq(verdict->v[j].rule, verdict->v[index].rule))
            return false;
    return true;
}

static void look_at(struct sample *sample, const struct pl_layout *layout)
{
    const struct pl_problem *problem = sample->problem;
    struct pl_verdict verdict;

    sample->looked_at++;
    if (pl_layout_check(&verdict, problem, layout))
        return;
    for (int j = 0; j < verdict.count; j++)
        if (is_first(&verdict, j))
            count(sample, &verdict.v[j]);
}

/* In (0, 1], for logarithms. */
static double unit(struct sample *sample)
{
    return 1 - rng_unit(&sample->rng);
}

static void choose_next(struct sample *sample)
{
    double skipped;

    sample->next++;
    if (sample->kept < KEPT)
        return;
    sample->threshold *= exp(log(unit(sample)) / KEPT);
    skipped = floor(log(unit(sample)) / log1p(-sample->threshold));
    sample->next += (uint64_t)fmin(skipped, 0x1p62);
}

static bool take(void *arg, const struct pl_layout *layout)
{
    struct sample *x = arg;
    uint64_t end = x->candidates + below(x->space, x->problem, layout, DEGREES);

    while (x->next < end) {
        size_t slot = x->kept < KEPT ? x->kept++ : (size_t)(rng_unit(&x->rng) * KEPT);

        x->drawn[slot] = (struct drawn){*layout, x->next - x->candidates};
        choose_next(x);
    }
    x->candidates = end;
    return true;
}

static void look_at_drawn(struct sample *sample, const struct pl_patience *patience)
{
    for (size_t i = 0; i < sample->kept; i++) {
        struct pl_layout one = sample->drawn[i].degrees;

        if (i && i % LOOKS == 0 && pl_patience_over(patience))
            break;
        find(sample->space, sample->problem, &one, sample->drawn[i].at);
        look_at(sample, &one);
    }
}

static int more_first(const void *left, const void *right)
{
    const struct pl_exclusion *x = left, *y = right;

    return (x->count < y->count) - (x->count > y->count);
}

size_t pl_space_excluded(struct pl_exclusion ret[PL_MAX_EXCLUSIONS], uint64_t *ret_candidates,
                         bool *ret_whole, const struct pl_space *space,
                         const struct pl_problem *problem, const struct pl_patience *patience)
{
    AUTO_FREE struct drawn *drawn = mem_alloc(KEPT * sizeof(*drawn));
    struct sample x = {
        .space = space, .problem = problem, .exclusion = ret, .drawn = drawn, .threshold = 1};

    rng_seed(&x.rng, 1);
    *ret_whole = pl_space_product(NULL, space, problem, DEGREES, patience, take, &x);
    *ret_candidates = x.candidates;
    look_at_drawn(&x, patience);
    for (size_t i = 0; i < x.n; i++) /* of the sample -> of all */
        ret[i].count =
            (uint64_t)llround((double)ret[i].count * (double)x.candidates / (double)x.looked_at);
    qsort(ret, x.n, sizeof(*ret), more_first);
    return x.n;
}

/* ---- nothing fits -------------------------------------------------------- */

static const double GIB = 1 << 30;

/* Has SPACE a division into stages that are not even? */
static bool has_uneven(const struct pl_space *space)
{
    const struct pl_space_axis *axis = &space->axis[PL_KEY_STAGES];

    for (int i = 0; i < axis->n; i++)
        if (axis->value[i] != PL_STAGES_EVEN)
            return true;
    return false;
}

/* What SPACE leaves on the device, and the trainer can have in the host; "" for nothing. */
static const char *offload_hint(const struct pl_space *space, const struct pl_problem *problem)
{
    const struct pl_space_axis *axis = &space->axis[PL_KEY_OFFLOAD_OPT];
    const struct pl_trainer *trainer = problem->trainer;

    if (problem->cluster->device.cpu || axis->n > 1 || axis->given ||
        !pl_trainer_takes(trainer, PL_KEY_OFFLOAD_OPT, 100))
        return "";
    return pl_trainer_takes(trainer, PL_KEY_OFFLOAD_PARAMS, 1)
               ? "; \"offload_optimizer\": \"auto\" and \"offload_params\": \"auto\" in the space "
                 "add layouts with state and weights in host memory"
               : "; \"offload_optimizer\": \"auto\" in the space adds layouts with state in host "
                 "memory";
}

/* Pipelines of all devices have no more even stages than divide the layers and the devices alike.
 */
int pl_plan_nothing(const struct pl_plan *plan, const struct pl_space *space,
                    const struct pl_problem *problem, double headroom,
                    const struct pl_patience *patience, struct err *error)
{
    char text[sizeof(error->text)], stages[160] = "";
    int devices = pl_cluster_devices(problem->cluster),
        most = pl_gcd(problem->model->layers, devices);

    if (!problem->trainer->uneven_layers && most < problem->model->layers && most < devices &&
        pl_trainer_takes(problem->trainer, PL_KEY_STAGES, PL_STAGES_BALANCED) && !has_uneven(space))
        snprintf(stages, sizeof(stages),
                 "; layers %d divide evenly over at most pp %d on %d devices: \"stages\": "
                 "[\"even\", \"balanced\"] in the space adds uneven ones",
                 problem->model->layers, most, devices);
    if (plan->legal)
        return err_set(error, -ENOENT,
                       "none of %zu legal layouts%s fits: the smallest, %s, needs %.3g "
                       "of %.3g GiB%s%s",
                       plan->legal, plan->exact ? "" : " that were examined",
                       pl_layout_text(text, &plan->smallest), plan->smallest_bytes / GIB,
                       pl_memory_offered(problem->cluster, headroom) / GIB, stages,
                       offload_hint(space, problem));
    if (pl_model_unsupported(text, sizeof(text), problem))
        return err_set(error, -ENOENT, "%s", text);
    if (!plan->exact || !pl_space_explain(text, sizeof(text), space, problem, patience))
        snprintf(text, sizeof(text), "no legal layout was found within the time limit");
    return err_set(error, -ENOENT, "%s", text);
}
