#include "tests/mpi/cover.h"

#include "base/base.h"

#include <assert.h>
#include <stddef.h>

/* ---- the list ------------------------------------------------------------ */

static void consider(struct cover *c, struct pl_layout l, const struct pl_model *m,
                     const struct pl_workload *w, const struct pl_cluster *here)
{
    struct pl_workload work = *w;
    struct pl_problem problem = {m, here, &work, pl_trainer_find("partune")};

    work.precision = (enum pl_precision)l.precision;
    for (int mb = 1 + c->n % 2; mb >= 1; mb--) {
        l.micro_batch = mb;
        if (!pl_layout_derive(&l) || !pl_layout_check(NULL, &problem, &l))
            continue;
        MEM_GROW(c->l, c->n, c->cap);
        c->l[c->n++] = l;
        return;
    }
}

/* The flags in the bits of BITS; only canonical ones: where there is something to overlap. */
static bool overlap(struct pl_layout *l, const struct pl_model *m, int bits, bool exact)
{
    struct pl_layout c = *l;

    c.overlap_grad_reduce = bits & 1;
    c.overlap_param_gather = bits >> 1 & 1;
    c.overlap_p2p = bits >> 2 & 1;
    c.overlap_moe_a2a = bits >> 3 & 1;
    *l = c;
    if (!pl_layout_derive(&c))
        return false;
    pl_layout_canonical(&c, m);
    if (exact && (l->overlap_grad_reduce != c.overlap_grad_reduce ||
                  l->overlap_param_gather != c.overlap_param_gather ||
                  l->overlap_p2p != c.overlap_p2p || l->overlap_moe_a2a != c.overlap_moe_a2a))
        return false;
    l->overlap_grad_reduce = c.overlap_grad_reduce;
    l->overlap_param_gather = c.overlap_param_gather;
    l->overlap_p2p = c.overlap_p2p;
    l->overlap_moe_a2a = c.overlap_moe_a2a;
    return bits == 0 || exact || c.overlap_grad_reduce || c.overlap_param_gather || c.overlap_p2p ||
           c.overlap_moe_a2a;
}

/* The smallest group of MESH's replicas that is not all of them; 0: none. */
static int part_of(const struct pl_layout *mesh)
{
    int replicas = mesh->world / mesh->tp / mesh->pp;

    for (int n = 2; n < replicas; n++)
        if (replicas % n == 0)
            return n;
    return 0;
}

/* A division of M's layers over the virtual stages of L that is not the even one, drawn from TURN;
 * ends without a layer come as often as others. PL_STAGES_EVEN: there is none. */
static int uneven(const struct pl_layout *l, const struct pl_model *m, int turn)
{
    int layers[64] = {0}, runs = l->pp * l->vp, rest = m->layers, first, last;
    struct pl_layout drawn = *l;
    struct rng r;

    rng_seed(&r, (uint64_t)turn);
    if (l->pp == 1 || runs > (int)ARRAY_LEN(layers) || runs > m->layers + 2)
        return PL_STAGES_EVEN;
    do {
        first = (int)rng_below(&r, 2);
        last = runs - 1 - (int)rng_below(&r, 2);
    } while (first > last || last - first + 1 > m->layers);
    for (int i = first; i <= last; i++, rest--)
        layers[i] = 1;
    for (; rest > 0; rest--)
        layers[first + (int)rng_below(&r, (uint64_t)(last - first + 1))]++;
    if (pl_stages_list(&drawn.stages, layers, runs, NULL) < 0)
        return PL_STAGES_EVEN;
    return pl_stages_canonical(&drawn, m->layers);
}

static void ways(struct cover *c, const struct pl_layout *mesh, const struct pl_model *m,
                 const struct pl_workload *w, const struct pl_cluster *here, int overlaps)
{
    static const struct {
        enum pl_schedule s;
        int vp;
    } schedules[] = {{PL_1F1B, 1}, {PL_GPIPE, 1}, {PL_ZERO_BUBBLE, 1}, {PL_INTERLEAVED, 2}};

    static const struct {
        int zero, scope;
        bool hybrid;
    } zeros[] = {{0, PL_SCOPE_NONE, false},     {1, PL_SCOPE_EP_AWARE, false},
                 {1, PL_SCOPE_PLAIN, false},    {1, PL_SCOPE_EP_AWARE, true},
                 {2, PL_SCOPE_EP_AWARE, false}, {2, PL_SCOPE_PLAIN, false},
                 {2, PL_SCOPE_EP_AWARE, true},  {3, PL_SCOPE_EP_AWARE, false},
                 {3, PL_SCOPE_PLAIN, false},    {3, PL_SCOPE_EP_AWARE, true}};

    int turn = c->n, lowest = mesh->grad_dtype == PL_GRADS_BF16 ? PL_BF16 : PL_FP32;

    for (size_t s = 0; s < ARRAY_LEN(schedules); s++)
        for (int recompute = 0; recompute <= PL_RECOMPUTE_FULL; recompute++)
            for (size_t z = 0; z < ARRAY_LEN(zeros); z++)
                for (int bits = 0; bits < overlaps; bits++)
                    for (int precision = lowest; precision <= PL_BF16; precision++) {
                        struct pl_layout l = *mesh;

                        l.schedule = (int)schedules[s].s;
                        l.vp = schedules[s].vp;
                        l.recompute = recompute;
                        l.zero = zeros[z].zero;
                        l.zero_scope = zeros[z].scope;
                        l.shard = zeros[z].hybrid ? part_of(mesh) : 0;
                        if (zeros[z].hybrid && !l.shard)
                            continue;
                        l.precision = precision;
                        if (!overlap(&l, m, overlaps == 2 ? 15 * bits : bits, overlaps != 2))
                            continue;
                        consider(c, l, m, w, here);
                        l.stages = uneven(&l, m, turn++);
                        if (l.stages != PL_STAGES_EVEN)
                            consider(c, l, m, w, here);
                    }
}

void cover_enumerate(struct cover *c, const struct pl_model *m, const struct pl_workload *w,
                     int world, int overlaps, enum pl_grad_dtype grads)
{
    struct pl_cluster here;
    struct pl_layout l;

    c->layers = m->layers;
    pl_cluster_here(&here);
    here.oversubscribe = true;
    pl_layout_default(&l, w);
    l.world = world;
    l.grad_dtype = (int)grads;
    for (l.tp = 1; l.tp <= world; l.tp++)
        for (l.cp = 1; l.tp * l.cp <= world; l.cp++)
            for (l.pp = 1; l.tp * l.cp * l.pp <= world; l.pp++)
                for (int rows = 0; rows <= 2 * (l.tp > 1); rows++)
                    for (l.ep = 1; l.ep <= (pl_model_is_moe(m) ? world : 1); l.ep++)
                        for (l.etp = 1; l.etp <= l.tp; l.etp += l.tp == 1 ? 1 : l.tp - 1)
                            if (world % (l.tp * l.cp * l.pp) == 0) {
                                l.sp = rows > 0;
                                l.tp_overlap = rows > 1;
                                ways(c, &l, m, w, &here, overlaps);
                            }
    if (grads == PL_GRADS_FP32)
        c->first = c->n;
}

/* ---- what a layout meets ------------------------------------------------- */

enum { CHOICES = 15, DEGREES = 6, AXES = CHOICES + DEGREES, VALUES = 9, MESHES = 1024 };

struct met {
    bool pair[AXES * VALUES][AXES * VALUES]; /* of a value with itself: the value alone */
    int mesh[MESHES][DEGREES];
    int meshes;
};

/* 0 even, else 1 + 1 without a layer on the first + 2 on the last virtual stage. */
static int division(const struct pl_layout *l, int layers)
{
    if (l->stages == PL_STAGES_EVEN)
        return 0;
    return 1 + !pl_stage_layers(NULL, l, layers, 0, 0) +
           2 * !pl_stage_layers(NULL, l, layers, l->pp - 1, l->vp - 1);
}

static void degrees(int *key, const struct pl_layout *l)
{
    const int x[DEGREES] = {l->world, l->tp, l->cp, l->pp, l->ep, l->etp};

    memcpy(key, x, sizeof(x));
}

/* An index of struct met for each axis. */
static void values(int *v, const struct pl_layout *l, int layers)
{
    const int x[CHOICES] = {l->schedule,
                            l->recompute,
                            l->zero_scope,
                            l->sp,
                            l->etp > 1,
                            l->overlap_grad_reduce,
                            l->overlap_param_gather,
                            l->overlap_p2p,
                            l->overlap_moe_a2a,
                            l->precision + l->grad_dtype,
                            l->cp > 1,
                            l->zero,
                            l->shard > 0,
                            l->tp_overlap,
                            division(l, layers)};

    memcpy(v, x, sizeof(x));
    degrees(v + CHOICES, l);
    for (int i = 0; i < AXES; i++) {
        assert(v[i] >= 0 && v[i] < VALUES);
        v[i] += i * VALUES;
    }
}

static bool mesh_met(const struct met *t, const struct pl_layout *l)
{
    int key[DEGREES];

    degrees(key, l);
    for (int i = 0; i < t->meshes; i++)
        if (!memcmp(t->mesh[i], key, sizeof(key)))
            return true;
    return false;
}

/* Whether the set has to hold L's mesh. */
static bool mesh_asked(const struct cover *c, const struct pl_layout *l)
{
    return c->pairs || l->world <= COVER_MESH_RANKS;
}

/* Pairs of two choices that L would add. */
static int new_pairs(const struct met *t, const int *v)
{
    int n = 0;

    for (int i = 0; i < CHOICES; i++)
        for (int k = 0; k < i; k++)
            n += !t->pair[v[i]][v[k]];
    return n;
}

/* Values of choices, and pairs of two degrees. */
static int new_values(const struct met *t, const int *v)
{
    int n = 0;

    for (int i = 0; i < CHOICES; i++)
        n += !t->pair[v[i]][v[i]];
    for (int i = CHOICES; i < AXES; i++)
        for (int k = CHOICES; k < i; k++)
            n += !t->pair[v[i]][v[k]];
    return n;
}

/* How much of what C asks for L would add; *RET_PAIRS if not NULL: pairs, asked for or not. */
static int new_asked(int *ret_pairs, const struct cover *c, const struct met *t,
                     const struct pl_layout *l)
{
    int v[AXES], pairs;

    values(v, l, c->layers);
    pairs = new_pairs(t, v);
    if (ret_pairs)
        *ret_pairs = pairs;
    return c->pairs ? pairs : new_values(t, v);
}

static void meet(struct met *t, const struct pl_layout *l, int layers)
{
    int key[DEGREES], v[AXES];

    degrees(key, l);
    if (!mesh_met(t, l) && t->meshes < MESHES)
        memcpy(t->mesh[t->meshes++], key, sizeof(key));
    values(v, l, layers);
    for (int i = 0; i < AXES; i++)
        for (int k = 0; k <= i; k++)
            t->pair[v[i]][v[k]] = true;
}

static bool same_mesh(const struct pl_layout *a, const struct pl_layout *b)
{
    int x[DEGREES], y[DEGREES];

    degrees(x, a);
    degrees(y, b);
    return !memcmp(x, y, sizeof(x));
}

/* Of the first N layouts that which adds most of what is asked, of the mesh of OF or of any (NULL),
 * and among equals most pairs; -1: none adds anything. */
static int best(const struct cover *c, const struct met *t, const struct pl_layout *of, int n)
{
    int at = -1, most = of ? -1 : 0, most_pairs = -1;

    for (int i = 0; i < n; i++) {
        int pairs, asked;

        if (of && !same_mesh(&c->l[i], of))
            continue;
        asked = new_asked(&pairs, c, t, &c->l[i]);
        if (asked > most || (asked == most && at >= 0 && pairs > most_pairs)) {
            most = asked;
            most_pairs = pairs;
            at = i;
        }
    }
    return at;
}

/* Of the first N layouts. */
static void choose_rest(struct cover *c, struct met *t, int n)
{
    for (int at; (at = best(c, t, NULL, n)) >= 0;) {
        c->chosen[at] = true;
        meet(t, &c->l[at], c->layers);
    }
}

void cover_choose(struct cover *c, bool pairs)
{
    struct met t = {0};

    c->pairs = pairs;
    c->chosen = mem_alloc(sizeof(*c->chosen) * (size_t)(c->n + 1));
    for (int i = 0; i < c->first; i++)
        if (mesh_asked(c, &c->l[i]) && !mesh_met(&t, &c->l[i])) {
            int at = best(c, &t, &c->l[i], c->first);

            c->chosen[at] = true;
            meet(&t, &c->l[at], c->layers);
        }
    choose_rest(c, &t, c->first);
    choose_rest(c, &t, c->n);
}

/* Whether A and B shard alike; dp follows from the ranks. */
static bool same_shards(const struct pl_layout *a, const struct pl_layout *b)
{
    return same_mesh(a, b) && a->sp == b->sp && a->zero == b->zero &&
           a->zero_scope == b->zero_scope && a->shard == b->shard && a->precision == b->precision;
}

void cover_choose_each(struct cover *c, int ranks)
{
    for (int i = 0; i < c->n; i++) {
        bool met = c->l[i].world > ranks || c->l[i].precision != PL_FP32;

        for (int k = 0; k < c->n && !met; k++)
            met = c->chosen[k] && same_shards(&c->l[k], &c->l[i]);
        if (!met)
            c->chosen[i] = true;
    }
}

int cover_missing(const struct cover *c)
{
    struct met t = {0};
    int missing = 0;

    for (int i = 0; i < c->n; i++)
        if (c->chosen[i])
            meet(&t, &c->l[i], c->layers);
    for (int i = 0; i < c->n; i++)
        missing +=
            (mesh_asked(c, &c->l[i]) && !mesh_met(&t, &c->l[i])) + new_asked(NULL, c, &t, &c->l[i]);
    return missing;
}

void cover_done(struct cover *c)
{
    free(c->l);
    free(c->chosen);
    *c = (struct cover){0};
}
