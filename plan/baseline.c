/*
 * Baselines: the layout that a campaign's winner is compared with. baseline.h states the rules.
 *
 * Both look at a few thousand layouts of the models that are trained: of each choice of degrees the
 * legal ones are put to the memory plan and, by the default rule, to the cost model. A model with
 * very many layers, heads and experts on very many devices has more of them than anybody would wait
 * for. So what is looked at is counted, by about what it takes, and the count is bounded. A clock
 * would do that, too, but then the baseline, and all that is compared with it, would depend on how
 * busy the machine was.
 */
#include "plan/space_walk.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "base/base.h"

const char *const pl_baseline_names[] = {"default", "naive", NULL};

/* What is counted: about nanoseconds, as measured on one core at 3 GHz. */
enum {
    STEP = 2,    /* of a loop that finds nothing to look at */
    CHECK = 400, /* the rules */
    FIT = 400,   /* the memory plan ... */
    LAYER = 100, /* ... and of the bundled trainer, which goes through the model, each layer */
    COST = 800,  /* the cost model */
    WORK = 500000000,
    ASK = 1000000, /* between two questions to the patience */
};

/* What may still be spent, by all batches together. */
struct budget {
    int64_t left;    /* of WORK */
    int64_t unasked; /* spent since the patience (may be NULL) was asked */
    const struct pl_patience *patience;
};

struct search {
    const struct pl_problem *problem;
    struct budget *budget;
    struct pl_cost_ctx *cost;
    struct pl_memory_ctx *memory;
    int max_world;
    double limit; /* bytes */
    double bar;   /* seconds of the naive layout: what the default rule must not exceed */
};

/* Count N units; false once there are none left. */
static bool spend(const struct search *search, int64_t n)
{
    struct budget *budget = search->budget;

    budget->left -= n;
    budget->unasked += n;
    if (budget->unasked >= ASK) {
        budget->unasked = 0;
        if (pl_patience_over(budget->patience))
            budget->left = 0;
    }
    return budget->left > 0;
}

static bool legal(const struct search *search, const struct pl_layout *layout)
{
    const struct pl_problem *problem = search->problem;

    spend(search, CHECK);
    return pl_layout_check(NULL, problem, layout);
}

static bool fits(const struct search *search, const struct pl_layout *layout)
{
    const struct pl_problem *problem = search->problem;
    struct pl_memory worst;

    spend(search, FIT + (problem->trainer->bundled ? LAYER * problem->model->layers : 0));
    pl_memory_at(&worst, search->memory, layout);
    return worst.total <= search->limit;
}

static int experts_of(const struct search *search)
{
    return search->problem->model->moe.experts ? search->problem->model->moe.experts : 1;
}

/* Whether a stage could hold its share of the layers; spares most calls of the rules. */
static bool stages_may_be(const struct search *search, int pp, int vp)
{
    int layers = search->problem->model->layers, runs = pp * vp;

    return runs <= layers && (search->problem->trainer->uneven_layers || layers % runs == 0 ||
                              pl_stages_auto(search->problem, pp, vp) != PL_STAGES_EVEN);
}

/* ---- naive --------------------------------------------------------------- */

/* The largest legal dp with the other keys of LAYOUT; false if there is none or it does not fit. */
static bool fill(const struct search *search, struct pl_layout *layout)
{
    int share = layout->tp * layout->pp, batch = pl_batch(search->problem->workload, layout);

    for (int dp = search->max_world / share; dp >= 1 && spend(search, STEP); dp--) {
        if (batch % dp)
            continue;
        layout->world = dp * share;
        pl_layout_settle(layout, search->problem);
        if (legal(search, layout))
            return fits(search, layout);
    }
    return false;
}

/* tp x pp = SHARE without zero, then with it; the smaller pp first. Where only zero keeps gradients
 * in fp32, it is tried first. */
static bool try_share(const struct search *search, struct pl_layout *layout, int share)
{
    const struct pl_model *model = search->problem->model;
    struct pl_layout start = *layout;
    const struct pl_trainer *trainer = search->problem->trainer;
    const int first = trainer->half_replicas ? trainer->min_zero : 0,
              stage[] = {first, trainer->min_zero - first};

    for (size_t i = 0; i < ARRAY_LEN(stage) && stage[i] <= pl_usual_zero(trainer); i++)
        for (int pp = 1; pp <= share && pp <= model->layers && spend(search, STEP); pp++) {
            if (share % pp || model->kv_heads % (share / pp) || !stages_may_be(search, pp, 1))
                continue;
            *layout = start;
            layout->pp = pp;
            layout->stages = pl_stages_auto(search->problem, pp, 1);
            layout->tp = share / pp;
            layout->sp =
                layout->tp > 1 && model->moe.experts && pl_trainer_takes(trainer, PL_KEY_SP, 1);
            layout->zero = stage[i];
            layout->zero_scope = layout->zero ? PL_SCOPE_EP_AWARE : PL_SCOPE_NONE;
            if (fill(search, layout))
                return true;
        }
    return false;
}

/* What does not fit at any tp x pp is tried with recompute, then with experts spread. */
static bool naive(struct pl_layout *ret, const struct search *search)
{
    static const int recompute[] = {PL_RECOMPUTE_NONE, PL_RECOMPUTE_FULL};
    int experts = experts_of(search);

    for (int ep = 1; ep <= experts && ep <= search->max_world; ep++)
        for (size_t i = 0; i < ARRAY_LEN(recompute); i++)
            for (int share = 1;
                 experts % ep == 0 && share <= search->max_world && spend(search, STEP); share++) {
                pl_layout_default(ret, search->problem->workload);
                ret->ep = ep;
                ret->recompute = recompute[i];
                if (try_share(search, ret, share))
                    return true;
            }
    return false;
}

/* Whether the trainer takes the model at all, cut as finely as can be; why not goes to ERROR. */
static bool takes_model(const struct search *search, struct err *error)
{
    const struct pl_problem *problem = search->problem;
    struct pl_verdict verdict;
    struct pl_layout one;

    pl_layout_default(&one, problem->workload);
    one.world = one.ep = experts_of(search);
    one.world *= one.tp = one.etp = problem->model->kv_heads;
    pl_layout_check(&verdict, problem, &one);
    for (int i = 0; i < verdict.count; i++)
        if (!pl_layout_key_find(verdict.v[i].key)) {
            err_set(error, -ENOENT, "%s", verdict.v[i].text);
            return false;
        }
    return true;
}

/* ---- default ------------------------------------------------------------- */

/* How far a pass of the rule may go; later passes go further. */
struct reach {
    int recompute;
    int tp, ep, etp; /* largest */
    bool idle;       /* devices may be left over */
    bool larger;     /* degrees may be larger than they must */
};

struct pick {
    bool found;
    bool on_all, plain; /* something was found on all devices; without recomputation */
    struct pl_layout layout;
    double seconds;
};

/* Of a choice of degrees, in ascending order. */
enum outcome { ILLEGAL, TOO_LARGE, FITS };

/* Degrees that fit: what is no smaller than one of them in every degree is not looked at. */
struct front {
    int n;
    struct {
        int tp, cp, pp;
    } at[256];
};

static bool dominated(const struct front *front, int tp, int cp, int pp)
{
    for (int i = 0; i < front->n; i++)
        if (front->at[i].tp <= tp && front->at[i].cp <= cp && front->at[i].pp <= pp)
            return true;
    return false;
}

/* Whether LAYOUT breaks no rule but those of sequence parallelism, scopes and overlap. */
static bool sound(const struct search *search, const struct pl_layout *layout)
{
    static const char *const open[] = {"sp", "zero_scope", "overlap_", NULL};
    const struct pl_problem *problem = search->problem;
    struct pl_verdict verdict;

    spend(search, CHECK);
    if (pl_layout_check(&verdict, problem, layout))
        return true;
    for (int i = 0; i < verdict.count; i++) {
        const char *const *key = open;

        while (*key && strncmp(verdict.v[i].key, *key, strlen(*key)) != 0)
            key++;
        if (!*key)
            return false;
    }
    return true;
}

static bool with(const struct search *search, struct pl_layout *layout, int sp, int scope,
                 int overlap)
{
    layout->sp = sp;
    layout->zero_scope = layout->zero ? scope : PL_SCOPE_NONE;
    layout->overlap_grad_reduce = overlap >> 3 & 1;
    layout->overlap_param_gather = overlap >> 2 & 1;
    layout->overlap_p2p = overlap >> 1 & 1;
    layout->overlap_moe_a2a = overlap & 1;
    pl_layout_canonical(layout, search->problem->model);
    return legal(search, layout);
}

/* Sequence parallelism, wider shards and all that overlaps, or as much of them as the rules allow;
 * false where nothing is legal. */
static bool complete(const struct search *search, struct pl_layout *layout)
{
    struct pl_layout plain = *layout;

    if (!pl_layout_derive(&plain))
        return false;
    if ((int64_t)plain.dp * plain.cp == 1 && plain.edp == 1)
        plain.zero = 0;
    *layout = plain;
    if (with(search, layout, plain.tp > 1, PL_SCOPE_EP_AWARE, 15))
        return true;
    plain.zero_scope = plain.zero ? PL_SCOPE_EP_AWARE : PL_SCOPE_NONE;
    if (!sound(search, &plain))
        return false;
    for (int sp = plain.tp > 1; sp >= 0; sp--)
        for (int scope = PL_SCOPE_EP_AWARE; scope <= PL_SCOPE_PLAIN; scope++)
            for (int on = 15; on >= 0; on--) {
                *layout = plain;
                if (with(search, layout, sp, scope, on))
                    return true;
            }
    return false;
}

/* Too large whatever else is chosen: spares most calls of the rules. */
static bool hopeless(const struct search *search, const struct pl_layout *layout)
{
    struct pl_layout least = *layout;

    least.sp = least.tp > 1;
    return !search->problem->trainer->bundled && pl_layout_derive(&least) && !fits(search, &least);
}

static void keep(const struct search *search, struct pick *pick, const struct pl_layout *layout)
{
    struct pl_cost cost;

    spend(search, COST);
    pl_cost_at(&cost, search->cost, layout);
    pick->on_all |= layout->world == search->max_world;
    pick->plain |= layout->recompute == PL_RECOMPUTE_NONE;
    if (pick->found && cost.total > pick->seconds)
        return;
    pick->found = true;
    pick->layout = *layout;
    pick->seconds = cost.total;
}

/* Micro-batches of LAYOUT as far as they fit: the fastest is kept, of equal ones the largest. */
static enum outcome try_micro_batches(const struct search *search, struct pick *pick,
                                      const struct pl_layout *layout)
{
    int each = pl_batch(search->problem->workload, layout) / layout->dp;
    enum outcome ret = ILLEGAL;

    for (int micro = 1; micro <= each && spend(search, STEP); micro++) {
        struct pl_layout one = *layout;

        one.micro_batch = micro;
        if (each % micro || !complete(search, &one))
            continue;
        if (!fits(search, &one))
            return ret > TOO_LARGE ? ret : TOO_LARGE;
        keep(search, pick, &one);
        ret = FITS;
    }
    return ret;
}

/* Every number of virtual stages that the trainer can cut the layers into. */
static enum outcome try_stages(const struct search *search, struct pick *pick,
                               const struct pl_layout *layout)
{
    struct pl_layout one = *layout;
    int layers = search->problem->model->layers;
    enum outcome ret = ILLEGAL;

    for (int vp = 1;
         layout->pp * vp <= layers && (vp == 1 || layout->pp > 1) && spend(search, STEP); vp++) {
        enum outcome got;

        if (!stages_may_be(search, layout->pp, vp))
            continue;
        one.vp = vp;
        one.stages = pl_stages_auto(search->problem, layout->pp, vp);
        one.schedule = vp > 1 ? PL_INTERLEAVED : PL_1F1B;
        got = try_micro_batches(search, pick, &one);
        ret = got > ret ? got : ret;
    }
    return ret;
}

/* Experts spread within REACH. */
static enum outcome try_experts(const struct search *search, struct pick *pick,
                                const struct reach *reach, const struct pl_layout *layout)
{
    int experts = experts_of(search);
    enum outcome ret = ILLEGAL;

    for (int ep = 1; ep <= experts && ep <= reach->ep && spend(search, STEP); ep++)
        for (int whole = 0; experts % ep == 0 && whole <= (layout->tp > 1 && experts > 1);
             whole++) {
            struct pl_layout one = *layout, first;
            enum outcome got = ILLEGAL;

            one.ep = ep;
            one.etp = whole ? one.tp : 1;
            first = one;
            if (one.etp > reach->etp || one.world % ((int64_t)one.etp * ep * one.pp))
                continue;
            if (hopeless(search, &one))
                got = TOO_LARGE;
            else if (complete(search, &first))
                got = try_stages(search, pick, &one);
            ret = got > ret ? got : ret;
        }
    return ret;
}

/* All devices, or where some may be left over the most replicas that are legal: fewer would need no
 * less memory each. */
static bool try_degrees(const struct search *search, struct pick *pick, const struct reach *reach,
                        struct pl_layout *layout)
{
    int share = layout->tp * layout->cp * layout->pp, most = search->max_world / share;
    int batch = pl_batch(search->problem->workload, layout);
    enum outcome got = ILLEGAL;

    if (!reach->idle && search->max_world % share)
        return false;
    for (int dp = most; dp >= (reach->idle ? 1 : most) && got == ILLEGAL && spend(search, STEP);
         dp--) {
        layout->world = dp * share;
        layout->dp = dp;
        if (batch % dp == 0)
            got = try_experts(search, pick, reach, layout);
    }
    return got == FITS;
}

/* With shards of level ZERO: every tp, cp and pp of which none can be smaller. */
static void try_level(const struct search *search, struct pick *pick, const struct reach *reach,
                      int zero)
{
    const struct pl_problem *problem = search->problem;
    int sequences = pl_long_sequences(problem) ? search->max_world : 1;
    AUTO_FREE struct front *front = mem_alloc(sizeof(*front));

    for (int tp = 1; tp <= reach->tp && tp <= problem->model->kv_heads; tp++)
        for (int cp = 1; problem->model->kv_heads % tp == 0 && cp <= sequences; cp *= 2)
            for (int pp = 1; pp <= problem->model->layers &&
                             (int64_t)tp * cp * pp <= search->max_world && spend(search, STEP);
                 pp++) {
                struct pl_layout layout;

                if (!reach->larger && dominated(front, tp, cp, pp))
                    break;
                if (!stages_may_be(search, pp, 1))
                    continue;
                pl_layout_default(&layout, problem->workload);
                layout.tp = tp;
                layout.cp = cp;
                layout.pp = pp;
                layout.stages = pl_stages_auto(problem, pp, 1);
                layout.zero = zero;
                layout.recompute = reach->recompute;
                if (try_degrees(search, pick, reach, &layout) &&
                    front->n < (int)ARRAY_LEN(front->at)) {
                    front->at[front->n].tp = tp;
                    front->at[front->n].cp = cp;
                    front->at[front->n++].pp = pp;
                }
            }
}

static bool good(const struct search *search, const struct pick *pick)
{
    return pick->found && pick->seconds <= search->bar;
}

static bool try_levels(const struct search *search, struct pick *pick, const struct reach *reach)
{
    for (int zero = 1; zero <= pl_usual_zero(search->problem->trainer); zero++)
        try_level(search, pick, reach, zero);
    return good(search, pick);
}

/* As small as fits; where the naive layout is faster than that, whatever is faster, too. */
static bool try_reach(const struct search *search, struct pick *pick, const struct reach *reach)
{
    struct reach larger = *reach;

    larger.larger = true;
    if (try_levels(search, pick, reach) || (pick->found && try_levels(search, pick, &larger)))
        return true;
    try_level(search, pick, reach, 0);
    return good(search, pick);
}

/* Devices behind the innermost link, and those among which experts are spread first. */
static int fast_link(const struct pl_cluster *cluster)
{
    bool all = !cluster->nlinks || cluster->link[0].span >= pl_cluster_devices(cluster);

    return all ? cluster->devices_per_node : cluster->link[0].span;
}

/* First tp inside the fastest link and experts inside the fast domain, which is a node or several;
 * then tp up to the domain; then experts over as few domains as need be. */
static bool try_recompute(const struct search *search, struct pick *pick, int recompute, bool idle)
{
    int fast = fast_link(search->problem->cluster),
        domain = pl_cluster_domain(search->problem->cluster);
    int wide = fast > domain ? fast : domain, most = experts_of(search);
    struct reach reach = {.recompute = recompute, .idle = idle, .tp = fast, .ep = wide, .etp = 1};

    if (try_reach(search, pick, &reach))
        return true;
    reach.tp = wide;
    if (fast < wide && try_reach(search, pick, &reach))
        return true;
    while (reach.ep < most && reach.ep < search->max_world) {
        reach.ep *= 2;
        if (try_reach(search, pick, &reach))
            return true;
    }
    return false;
}

/* First on all devices without recomputation, with it, and with any degrees; then the same with
 * devices left over. What is found is good enough as soon as it is no slower than the naive layout.
 */
static void standard(struct pick *pick, const struct search *search)
{
    static const int recompute[] = {PL_RECOMPUTE_NONE, PL_RECOMPUTE_SELECTIVE, PL_RECOMPUTE_FULL};
    struct reach any = {.recompute = PL_RECOMPUTE_FULL,
                        .tp = search->max_world,
                        .ep = search->max_world,
                        .etp = search->max_world};

    for (int idle = 0; idle <= 1; idle++) {
        for (size_t i = 0; i < ARRAY_LEN(recompute); i++)
            if (try_recompute(search, pick, recompute[i], idle))
                return;
        any.idle = idle;
        if (try_reach(search, pick, &any))
            return;
    }
}

static bool choose(struct pick *ret, struct search *search)
{
    struct pick start = {0};
    struct pl_layout raw, full;
    int64_t for_default = search->budget->left / 2;
    bool any;

    search->budget->left -= for_default;
    any = naive(&raw, search);
    search->budget->left += for_default;
    search->bar = INFINITY;
    full = raw;
    if (any) {
        keep(search, &start, &raw);
        if (complete(search, &full) && fits(search, &full))
            keep(search, &start, &full);
        search->bar = start.seconds;
    }
    standard(ret, search);
    if (any && !good(search, ret)) {
        ret->found = true;
        ret->layout = start.layout;
    }
    return ret->found;
}

/* Where the rule had to give way. */
static void note_of(char note[PL_BASELINE_NOTE], const struct search *search,
                    const struct pick *pick)
{
    AUTO_STR text = {0};

    if (pick->layout.world < search->max_world)
        str_addf(&text, "on %d of %d devices: %s", pick->layout.world, search->max_world,
                 pick->on_all ? "layouts that fit on all of them are slower"
                              : "no legal layout that fits uses all of them");
    if (pick->layout.recompute)
        str_addf(&text, "%swith recomputation: %s", text.len ? "; " : "",
                 pick->plain ? "layouts that fit without it are slower"
                             : "nothing fits without it");
    if (search->budget->left <= 0)
        str_addf(&text, "%sthe best of those compared: too many layouts to compare all",
                 text.len ? "; " : "");
    snprintf(note, PL_BASELINE_NOTE, "%s", str_text(&text));
}

/* With the workload's first batch. */
static int with_first(struct pl_layout *ret, char ret_note[PL_BASELINE_NOTE],
                      const struct pl_problem *problem, enum pl_baseline_rule rule, int max_world,
                      double headroom, struct budget *budget, struct err *error)
{
    struct search s = {.problem = problem,
                       .budget = budget,
                       .max_world =
                           max_world > 0 ? max_world : pl_cluster_devices(problem->cluster),
                       .limit = pl_memory_offered(problem->cluster, headroom)};
    struct pick pick = {0};
    bool found;

    assert(max_world >= 0);
    if (!takes_model(&s, error))
        return -ENOENT;
    s.cost = pl_cost_ctx_new(problem, NULL);
    s.memory = pl_memory_ctx_new(problem);
    found = rule == PL_BASELINE_NAIVE ? naive(&pick.layout, &s) : choose(&pick, &s);
    pl_cost_ctx_free(s.cost);
    pl_memory_ctx_free(s.memory);
    if (!found && budget->left <= 0)
        return err_set(
            error, -E2BIG,
            "too many layouts on %d ranks to search all for a baseline, and none of those tried "
            "fits in %.3g GiB per device; name a baseline",
            s.max_world, problem->cluster->device.memory_gib);
    if (!found)
        return err_set(error, -ENOENT,
                       "no legal layout with micro_batch 1 fits in %.3g GiB per device on %d ranks",
                       problem->cluster->device.memory_gib, s.max_world);
    *ret = pick.layout;
    if (ret_note)
        *ret_note = 0;
    if (ret_note && rule == PL_BASELINE_DEFAULT)
        note_of(ret_note, &s, &pick);
    return 0;
}

/* With the first of the batches that gives one. */
static int with_any(struct pl_layout *ret, char ret_note[PL_BASELINE_NOTE],
                    const struct pl_problem *problem, enum pl_baseline_rule rule, int max_world,
                    double headroom, struct budget *budget, struct err *error)
{
    struct pl_workload workload = *problem->workload;
    struct pl_problem one = *problem;
    int r = with_first(ret, ret_note, problem, rule, max_world, headroom, budget, error);

    one.workload = &workload;
    for (int i = 1; i < workload.nbatches && r < 0; i++) {
        workload.global_batch = workload.batch[i];
        r = with_first(ret, ret_note, &one, rule, max_world, headroom, budget, NULL);
    }
    return r;
}

int pl_baseline(struct pl_layout *ret, char ret_note[PL_BASELINE_NOTE],
                const struct pl_problem *problem, enum pl_baseline_rule rule, int max_world,
                double headroom, struct err *error)
{
    struct budget budget = {.left = WORK};

    return with_any(ret, ret_note, problem, rule, max_world, headroom, &budget, error);
}

int pl_baseline_soon(struct pl_layout *ret, const struct pl_problem *problem,
                     enum pl_baseline_rule rule, double headroom,
                     const struct pl_patience *patience)
{
    struct budget budget = {.left = WORK, .unasked = ASK, .patience = patience};

    return with_any(ret, NULL, problem, rule, 0, headroom, &budget, NULL);
}
