/*
 * What the rules exclude from a space: how many of the candidates of its product break each, with
 * an example. A product of any size is counted exactly, since below the degrees it is a product of
 * numbers; its candidates are looked at by an even sample, each found by its number.
 */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/space.h"

enum {
    KEPT = 1 << 14,
    DEGREES = 7, /* keys of the walk up to etp: whether a later one means something follows from
                    them and zero */
};

/* How many values the key at LEVEL takes in a layout whose earlier keys are fixed: the I-th of them
 * is value_of(). */
static int choices(const struct pl_space *s, const struct pl_problem *p, const struct pl_layout *l,
                   size_t level)
{
    enum pl_key key = pl_space_order[level];
    const struct pl_space_axis *a = &s->axis[key];
    int only;

    if (!pl_space_applies(l, p->model, key, &only))
        return 1;
    /* where the scope matters, no scope is none of its values */
    return a->n - (key == PL_KEY_ZERO_SCOPE && a->n > 0 && a->value[0] == PL_SCOPE_NONE);
}

static int value_of(const struct pl_space *s, const struct pl_problem *p, const struct pl_layout *l,
                    size_t level, int i)
{
    enum pl_key key = pl_space_order[level];
    const struct pl_space_axis *a = &s->axis[key];
    int only;

    return pl_space_applies(l, p->model, key, &only) ? a->value[i + a->n - choices(s, p, l, level)]
                                                     : only;
}

/* Candidates that begin as L does up to LEVEL, which is DEGREES or more. */
static uint64_t below(const struct pl_space *s, const struct pl_problem *p,
                      const struct pl_layout *l, size_t level)
{
    struct pl_layout next = *l;
    uint64_t n = 1, sum = 0;

    for (; level < PL_WALK_KEYS && pl_space_order[level] != PL_KEY_ZERO; level++)
        n *= (uint64_t)choices(s, p, l, level);
    if (level == PL_WALK_KEYS)
        return n;
    for (int i = 0; i < choices(s, p, l, level); i++) {
        next.zero = value_of(s, p, l, level, i);
        sum += below(s, p, &next, level + 1);
    }
    return n * sum;
}

/* Candidate number AT of those that begin as L does up to its degrees: L becomes it. */
static void find(const struct pl_space *s, const struct pl_problem *p, struct pl_layout *l,
                 uint64_t at)
{
    for (size_t level = DEGREES; level < PL_WALK_KEYS; level++)
        for (int i = 0; i < choices(s, p, l, level); i++) {
            struct pl_layout next = *l;
            uint64_t n;

            pl_layout_set(&next, &pl_layout_keys[pl_space_order[level]],
                          value_of(s, p, l, level, i));
            n = below(s, p, &next, level + 1);
            if (at < n) {
                *l = next;
                break;
            }
            at -= n;
        }
}

struct sample {
    const struct pl_space *s;
    const struct pl_problem *p;
    uint64_t candidates; /* so far */
    uint64_t of;         /* all of them; 0: they are only counted */
    size_t kept, looked_at;
    struct rng rng;
    uint64_t next; /* number of the next that is looked at */
    struct pl_exclusion *exclusion;
    size_t n;
};

/* One violation: counted, and the first of its rule kept as the example. */
static void count(struct sample *x, const struct pl_violation *v)
{
    size_t i = 0;

    while (i < x->n && !str_eq(x->exclusion[i].rule, v->rule))
        i++;
    if (i == PL_MAX_EXCLUSIONS)
        return;
    if (i == x->n) {
        x->exclusion[i] = (struct pl_exclusion){.rule = v->rule};
        snprintf(x->exclusion[i].example, sizeof(x->exclusion[i].example), "%s", v->text);
        x->n++;
    }
    x->exclusion[i].count++;
}

static bool is_first(const struct pl_verdict *v, int i)
{
    for (int j = 0; j < i; j++)
        if (str_eq(v->v[j].rule, v->v[i].rule))
            return false;
    return true;
}

static void look_at(struct sample *x, const struct pl_layout *l)
{
    const struct pl_problem *p = x->p;
    struct pl_verdict v;

    x->looked_at++;
    if (pl_layout_check(&v, p->model, p->cluster, l, p->workload, p->trainer))
        return;
    for (int j = 0; j < v.count; j++)
        if (is_first(&v, j))
            count(x, &v.v[j]);
}

/* One candidate out of each of KEPT equal parts of the product. */
static void choose_next(struct sample *x)
{
    double part = (double)x->of / (double)x->kept, i = (double)x->looked_at;

    if (x->of == x->kept)
        x->next = x->looked_at;
    else
        x->next = (uint64_t)((i + rng_unit(&x->rng)) * part);
}

static bool take(void *arg, const struct pl_layout *l)
{
    struct sample *x = arg;
    uint64_t end = x->candidates + below(x->s, x->p, l, DEGREES);

    while (x->of && x->looked_at < x->kept && x->next < end) {
        struct pl_layout one = *l;

        find(x->s, x->p, &one, x->next - x->candidates);
        look_at(x, &one);
        choose_next(x);
    }
    x->candidates = end;
    return !x->of || x->looked_at < x->kept;
}

static int more_first(const void *a, const void *b)
{
    const struct pl_exclusion *x = a, *y = b;

    return (x->count < y->count) - (x->count > y->count);
}

size_t pl_space_excluded(struct pl_exclusion ret[PL_MAX_EXCLUSIONS], uint64_t *ret_candidates,
                         const struct pl_space *s, const struct pl_problem *p,
                         const struct pl_patience *patience)
{
    struct sample x = {.s = s, .p = p, .exclusion = ret};

    pl_space_product(s, p, DEGREES, patience, take, &x);
    *ret_candidates = x.of = x.candidates;
    x.kept = x.of < KEPT ? (size_t)x.of : KEPT;
    x.candidates = 0;
    rng_seed(&x.rng, 1);
    choose_next(&x);
    if (x.of)
        pl_space_product(s, p, DEGREES, NULL, take, &x);
    for (size_t i = 0; i < x.n; i++) /* of the sample -> of all */
        ret[i].count = (uint64_t)llround((double)ret[i].count * (double)x.of / (double)x.looked_at);
    qsort(ret, x.n, sizeof(*ret), more_first);
    return x.n;
}
