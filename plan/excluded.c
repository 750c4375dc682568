/*
 * What the rules exclude from a space: how many of the candidates of its product break each, with
 * an example. A product of millions is counted exactly, and its candidates are looked at by sample:
 * those whose number, hashed, lies below a bound that is halved whenever too many are kept, so that
 * the sample is even whatever the order of the walk.
 */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/space.h"

enum { KEPT = 1 << 14 };

struct kept {
    uint64_t hash;
    struct pl_layout l;
};

struct sample {
    struct kept *at;
    size_t n;
    uint64_t candidates, bound; /* kept while hash <= bound */
};

/* splitmix64 (Steele et al. 2014): every bit of the number reaches every bit of the hash. */
static uint64_t hash_of(uint64_t x)
{
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

static void thin(struct sample *s)
{
    size_t n = 0;

    s->bound /= 2;
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i].hash <= s->bound)
            s->at[n++] = s->at[i];
    s->n = n;
}

static bool keep(void *arg, const struct pl_layout *l)
{
    struct sample *s = arg;
    uint64_t hash = hash_of(s->candidates++);

    while (s->n == KEPT)
        thin(s);
    if (hash <= s->bound)
        s->at[s->n++] = (struct kept){hash, *l};
    return true;
}

static int more_first(const void *a, const void *b)
{
    const struct pl_exclusion *x = a, *y = b;

    return (x->count < y->count) - (x->count > y->count);
}

/* One violation: counted, and the first of its rule kept as the example. */
static void count(struct pl_exclusion *ret, size_t *ret_n, const struct pl_violation *v)
{
    size_t i = 0;

    while (i < *ret_n && !str_eq(ret[i].rule, v->rule))
        i++;
    if (i == PL_MAX_EXCLUSIONS)
        return;
    if (i == *ret_n) {
        ret[i] = (struct pl_exclusion){.rule = v->rule};
        snprintf(ret[i].example, sizeof(ret[i].example), "%s", v->text);
        ++*ret_n;
    }
    ret[i].count++;
}

static bool is_first(const struct pl_verdict *v, int i)
{
    for (int j = 0; j < i; j++)
        if (str_eq(v->v[j].rule, v->v[i].rule))
            return false;
    return true;
}

size_t pl_space_excluded(struct pl_exclusion ret[PL_MAX_EXCLUSIONS], uint64_t *ret_candidates,
                         const struct pl_space *s, const struct pl_problem *p)
{
    struct sample x = {.at = mem_alloc(KEPT * sizeof(*x.at)), .bound = UINT64_MAX};
    struct pl_verdict v;
    size_t n = 0;

    pl_space_product(s, p, keep, &x);
    for (size_t i = 0; i < x.n; i++) {
        if (pl_layout_check(&v, p->model, p->cluster, &x.at[i].l, p->workload, p->trainer))
            continue;
        for (int j = 0; j < v.count; j++)
            if (is_first(&v, j))
                count(ret, &n, &v.v[j]);
    }
    for (size_t i = 0; i < n; i++) /* of the sample -> of all */
        ret[i].count = (uint64_t)llround((double)ret[i].count * (double)x.candidates / (double)x.n);
    qsort(ret, n, sizeof(*ret), more_first);
    *ret_candidates = x.candidates;
    free(x.at);
    return n;
}
