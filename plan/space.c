/*
 * Spaces: the values that each key may take, and a walk over the legal layouts of their product.
 *
 * The walk fixes one key after another in the order below. A key that has no meaning where the walk
 * stands (sp with tp = 1, zero_scope with zero = 0, overlap of what does not happen) takes its
 * canonical value whatever the list says, so that each layout appears once. Partial layouts that
 * can no longer become legal are left at once. The rules of legal.c stay the only judge: those that
 * read the first ten keys only are asked once for each stem, the others for each layout.
 */
#include "plan/space.h"

#include <errno.h>

#include "base/base.h"

const enum pl_key pl_space_order[PL_WALK_KEYS] = {
    PL_KEY_WORLD,       PL_KEY_TP,           PL_KEY_CP,
    PL_KEY_PP,          PL_KEY_VP,           PL_KEY_EP,
    PL_KEY_ETP,         PL_KEY_MICRO_BATCH,  PL_KEY_SCHEDULE,
    PL_KEY_SP,          PL_KEY_ZERO,         PL_KEY_ZERO_SCOPE,
    PL_KEY_RECOMPUTE,   PL_KEY_OVERLAP_GRAD, PL_KEY_OVERLAP_PARAM,
    PL_KEY_OVERLAP_P2P, PL_KEY_OVERLAP_MOE,  PL_KEY_PRECISION,
    PL_KEY_THREADS};

enum {
    STEM = 10,   /* keys of a stem */
    STEPS = 4096 /* of a walk, after which its patience is asked: less than a millisecond */
};

/* ---- values ---------------------------------------------------------------------------------- */

static void add(struct pl_space_axis *a, int value)
{
    int i = a->n;

    for (int j = 0; j < a->n; j++)
        if (a->value[j] == value)
            return;
    if (a->n == PL_SPACE_VALUES)
        return; /* the rest are larger micro-batches than any memory holds */
    for (; i > 0 && a->value[i - 1] > value; i--)
        a->value[i] = a->value[i - 1];
    a->value[i] = value;
    a->n++;
}

static void add_divisors(struct pl_space_axis *a, int64_t n, int max)
{
    for (int d = 1; d <= max && d <= n; d++)
        if (n % d == 0)
            add(a, d);
}

static void add_upto(struct pl_space_axis *a, int first, int last)
{
    for (int v = first; v <= last; v++)
        add(a, v);
}

static int largest_world(const struct pl_space *s)
{
    const struct pl_space_axis *a = &s->axis[PL_KEY_WORLD];

    return a->n ? a->value[a->n - 1] : 1;
}

/* From here on attention and its activations outgrow a device's share of a long sequence, and
 * published runs split it (Llama 3 at 8,192 with cp 1 and at 131,072 with cp 16). */
enum { LONG_SEQUENCE = 8192 };

bool pl_long_sequences(const struct pl_problem *p)
{
    return p->trainer->cp && p->workload->seq >= LONG_SEQUENCE;
}

static void add_degrees(struct pl_space *s, enum pl_key key, const struct pl_problem *p)
{
    const struct pl_model *m = p->model;
    const struct pl_trainer *t = p->trainer;
    struct pl_space_axis *a = &s->axis[key];
    int world = largest_world(s);

    switch (key) {
    case PL_KEY_TP:
        add_divisors(a, m->kv_heads, world); /* kv_heads divides heads */
        break;
    case PL_KEY_CP:
        add_divisors(a, t->cp ? p->workload->seq : 1, world);
        break;
    case PL_KEY_PP:
        add(a, 1);
        for (int i = 0; t->pp && i < s->axis[PL_KEY_WORLD].n; i++)
            add_divisors(a, s->axis[PL_KEY_WORLD].value[i], m->layers);
        break;
    case PL_KEY_VP:
        add_divisors(a, m->layers, t->interleaved ? m->layers / 2 : 1);
        if (t->interleaved && t->uneven_layers) /* embedding and loss counted as a layer each */
            add_divisors(a, m->layers + 2, m->layers / 2);
        add(a, 1);
        break;
    case PL_KEY_EP:
        add_divisors(a, m->moe.experts ? m->moe.experts : 1, world);
        break;
    case PL_KEY_ETP:
        add(a, 1);
        for (int i = 0; m->moe.experts && t->etp && i < s->axis[PL_KEY_TP].n; i++)
            add(a, s->axis[PL_KEY_TP].value[i]);
        break;
    default:
        break;
    }
}

static void add_flags(struct pl_space *s, enum pl_key key, const struct pl_problem *p)
{
    const struct pl_trainer *t = p->trainer;
    struct pl_space_axis *a = &s->axis[key];
    bool on = key == PL_KEY_OVERLAP_GRAD    ? t->overlap_grad_reduce
              : key == PL_KEY_OVERLAP_PARAM ? t->overlap_param_gather
              : key == PL_KEY_OVERLAP_P2P   ? t->overlap_p2p
                                            : t->overlap_moe_a2a;

    add(a, 0);
    if (on)
        add(a, 1);
}

void pl_space_widen(struct pl_space *s, enum pl_key key, const struct pl_problem *p)
{
    const struct pl_trainer *t = p->trainer;
    struct pl_space_axis *a = &s->axis[key];

    *a = (struct pl_space_axis){.given = a->given};
    switch (key) {
    case PL_KEY_WORLD:
        for (int n = 1; n < pl_cluster_devices(p->cluster); n *= 2)
            add(a, n);
        add(a, pl_cluster_devices(p->cluster));
        break;
    case PL_KEY_SP:
        add_upto(a, 0, t->sp);
        break;
    case PL_KEY_SCHEDULE:
        for (int v = 0; v <= PL_ZERO_BUBBLE; v++)
            if (v == PL_1F1B || (v == PL_GPIPE && t->gpipe) ||
                (v == PL_INTERLEAVED && t->interleaved) || (v == PL_ZERO_BUBBLE && t->zero_bubble))
                add(a, v);
        break;
    case PL_KEY_ZERO:
        add(a, 0);
        add_upto(a, t->min_zero, t->max_zero);
        break;
    case PL_KEY_ZERO_SCOPE:
        add_upto(a, PL_SCOPE_NONE, t->plain_scope ? PL_SCOPE_PLAIN : PL_SCOPE_EP_AWARE);
        break;
    case PL_KEY_MICRO_BATCH:
        add_divisors(a, p->workload->global_batch, p->workload->global_batch);
        break;
    case PL_KEY_RECOMPUTE:
        add(a, PL_RECOMPUTE_NONE);
        if (t->full)
            add(a, PL_RECOMPUTE_FULL);
        if (t->selective)
            add(a, PL_RECOMPUTE_SELECTIVE);
        break;
    case PL_KEY_OVERLAP_GRAD:
    case PL_KEY_OVERLAP_PARAM:
    case PL_KEY_OVERLAP_P2P:
    case PL_KEY_OVERLAP_MOE:
        add_flags(s, key, p);
        break;
    case PL_KEY_PRECISION:
        add(a, PL_FP32);
        if (t->bf16)
            add(a, PL_BF16);
        if (t->fp8)
            add(a, PL_FP8);
        break;
    case PL_KEY_THREADS:
        add_upto(a, 1, t->threads && p->cluster->device.cpu ? p->cluster->devices_per_node : 1);
        break;
    default:
        add_degrees(s, key, p);
    }
}

static void add_powers(struct pl_space_axis *a, int max)
{
    for (int v = 1; v <= max; v *= 2)
        add(a, v);
}

static void fill_default(struct pl_space *s, enum pl_key key, const struct pl_problem *p)
{
    if (key == PL_KEY_WORLD)
        add(&s->axis[key], pl_cluster_devices(p->cluster));
    else if (key == PL_KEY_CP)
        add_powers(&s->axis[key], pl_long_sequences(p) ? largest_world(s) : 1);
    else if (key == PL_KEY_THREADS)
        add(&s->axis[key], 1);
    else if (key == PL_KEY_PRECISION)
        add(&s->axis[key], (int)p->workload->precision);
    else if (key != PL_KEY_DP && key != PL_KEY_EDP)
        pl_space_widen(s, key, p);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static int parse_values(struct pl_space_axis *a, const struct pl_layout_key *k, const json_t *v,
                        struct err *e)
{
    char at[64];

    if (json_array_size(v) == 0 || json_array_size(v) > PL_SPACE_VALUES) {
        snprintf(at, sizeof(at), "/%s", k->name);
        return err_at(e, -EINVAL, at, "%s needs 1..%d values, found %zu", k->name, PL_SPACE_VALUES,
                      json_array_size(v));
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        int value = 0, before = a->n;
        struct err why = {.text = "null is no value"};

        snprintf(at, sizeof(at), "/%s/%zu", k->name, i);
        if (json_is_null(json_array_get(v, i)) ||
            pl_layout_word(&value, k, json_array_get(v, i), &why) < 0)
            return err_at(e, -EINVAL, at, "%s", why.text);
        add(a, value);
        if (a->n == before)
            return err_at(e, -EINVAL, at, "value %zu of %s is given twice", i, k->name);
    }
    return 0;
}

static bool is_auto(const json_t *v)
{
    return json_is_string(v) && !strcmp(json_string_value(v), "auto");
}

static int parse_axis(struct pl_space *s, enum pl_key key, const json_t *v,
                      const struct pl_problem *p, struct err *e)
{
    const struct pl_layout_key *k = &pl_layout_keys[key];
    struct pl_space_axis *a = &s->axis[key];
    int value, r;

    if (!v || json_is_null(v)) {
        fill_default(s, key, p);
        return 0;
    }
    if (is_auto(v)) {
        pl_space_widen(s, key, p);
        return 0;
    }
    a->given = true;
    if (json_is_array(v))
        return parse_values(a, k, v, e);
    if ((r = pl_layout_word(&value, k, v, e)) < 0)
        return r;
    add(a, value);
    return 0;
}

int pl_space_parse(struct pl_space *ret, const json_t *v, const struct pl_model *m,
                   const struct pl_cluster *c, const struct pl_workload *w,
                   const struct pl_trainer *t, struct err *e)
{
    const struct pl_problem p = {m, c, w, t};
    const char *names[PL_LAYOUT_KEYS + 1] = {0};
    AUTO_FREE struct pl_space *s = mem_alloc(sizeof(*s));
    int r;

    for (int i = 0; i < PL_LAYOUT_KEYS; i++)
        names[i] = pl_layout_keys[i].name;
    if (v && !json_is_null(v) && (r = jx_keys(v, names, e)) < 0)
        return r;
    /* The walk's order: what follows from world and tp comes after them. */
    for (size_t i = 0; i < PL_WALK_KEYS; i++)
        if ((r = parse_axis(s, pl_space_order[i], json_object_get(v, names[pl_space_order[i]]), &p,
                            e)) < 0)
            return r;
    for (int key = PL_KEY_DP; key <= PL_KEY_EDP; key++)
        if (!is_auto(json_object_get(v, names[key])) &&
            (r = parse_axis(s, (enum pl_key)key, json_object_get(v, names[key]), &p, e)) < 0)
            return r;
    *ret = *s;
    return 0;
}

json_t *pl_space_json(const struct pl_space *s)
{
    json_t *v = json_object();

    for (int i = 0; i < PL_LAYOUT_KEYS; i++) {
        const struct pl_layout_key *k = &pl_layout_keys[i];
        json_t *list = json_array();

        for (int j = 0; j < s->axis[i].n; j++) {
            int value = s->axis[i].value[j];

            json_array_append_new(list,
                                  k->names ? json_string(k->names[value]) : json_integer(value));
        }
        if (s->axis[i].n)
            json_object_set(v, k->name, list);
        json_decref(list);
    }
    return v;
}

const struct pl_space_axis *pl_space_axis(const struct pl_space *s, const char *key)
{
    const struct pl_layout_key *k = pl_layout_key_find(key);

    return k ? &s->axis[k - pl_layout_keys] : NULL;
}

/* ---- the walk -------------------------------------------------------------------------------- */

struct walk {
    const struct pl_space *s;
    const struct pl_problem *p;
    pl_space_visit *visit;
    void *arg;
    const struct pl_patience *patience; /* or NULL */
    bool legal_only;
    size_t end; /* keys of what is visited */
    size_t count, steps;
    struct pl_layout l;
};

static bool has(const struct pl_space_axis *a, int value)
{
    for (int i = 0; i < a->n; i++)
        if (a->value[i] == value)
            return true;
    return false;
}

bool pl_space_applies(const struct pl_layout *l, const struct pl_model *m, enum pl_key key,
                      int *ret)
{
    bool replicas = (int64_t)l->dp * l->cp > 1 || (m->moe.experts && l->edp > 1);

    *ret = 0;
    switch (key) {
    case PL_KEY_SP:
        return l->tp > 1;
    case PL_KEY_SCHEDULE:
        *ret = PL_1F1B;
        return l->pp > 1;
    case PL_KEY_ZERO_SCOPE:
        *ret = l->zero ? PL_SCOPE_EP_AWARE : PL_SCOPE_NONE;
        return l->zero && (int64_t)l->dp * l->cp > 1 && pl_layout_expert_replicas(l) > 1;
    case PL_KEY_OVERLAP_GRAD:
        return replicas;
    case PL_KEY_OVERLAP_PARAM:
        return replicas && l->zero;
    case PL_KEY_OVERLAP_P2P:
        return l->pp > 1;
    case PL_KEY_OVERLAP_MOE:
        return m->moe.experts && l->ep > 1;
    default:
        return true;
    }
}

/* False where no legal layout follows from the keys fixed so far, KEY being the last of them. */
static bool may_go_on(struct walk *k, enum pl_key key)
{
    struct pl_layout *l = &k->l;
    const struct pl_model *m = k->p->model;
    int64_t dense = (int64_t)l->tp * l->cp * l->pp;

    switch (key) {
    case PL_KEY_TP:
        return m->kv_heads % l->tp == 0 && l->world % l->tp == 0;
    case PL_KEY_PP:
        return l->world % dense == 0 && m->layers >= l->pp &&
               k->p->workload->global_batch % (l->world / dense) == 0;
    case PL_KEY_VP:
        return (l->vp == 1 || l->pp > 1) && (int64_t)l->pp * l->vp <= m->layers &&
               (k->p->trainer->uneven_layers || m->layers % (l->pp * l->vp) == 0);
    case PL_KEY_ETP:
        return pl_layout_derive(l) && (l->etp == 1 || l->etp == l->tp) &&
               !(k->p->trainer->experts_follow_tp && m->moe.experts &&
                 l->etp != (l->ep == 1 ? l->tp : 1)) &&
               (!k->s->axis[PL_KEY_DP].n || has(&k->s->axis[PL_KEY_DP], l->dp)) &&
               (!k->s->axis[PL_KEY_EDP].n || has(&k->s->axis[PL_KEY_EDP], l->edp));
    case PL_KEY_MICRO_BATCH:
        return k->p->workload->global_batch % ((int64_t)l->micro_batch * l->dp) == 0;
    case PL_KEY_SCHEDULE:
        return l->pp == 1 || (l->vp > 1) == (l->schedule == PL_INTERLEAVED);
    default:
        return true;
    }
}

static bool arrive(struct walk *k)
{
    k->count++;
    return !k->visit || k->visit(k->arg, &k->l);
}

/* What rules there are to ask when the keys before LEVEL are fixed. */
static bool is_sound(const struct walk *k, size_t level)
{
    if (!k->legal_only || (level != STEM && level != PL_WALK_KEYS))
        return true;
    return pl_layout_check_part(k->p, &k->l, level == STEM);
}

bool pl_patience_over(const struct pl_patience *patience)
{
    return patience && patience->spent(patience->arg) >= 1;
}

/* False ends the walk. */
static bool descend(struct walk *k, size_t level)
{
    enum pl_key key;
    const struct pl_space_axis *a;
    int only;
    bool chosen;

    if (++k->steps % STEPS == 0 && pl_patience_over(k->patience))
        return false;
    if (!is_sound(k, level))
        return true;
    if (level == k->end)
        return arrive(k);
    key = pl_space_order[level];
    a = &k->s->axis[key];
    chosen = pl_space_applies(&k->l, k->p->model, key, &only);
    for (int i = 0; i < (chosen ? a->n : 1); i++) {
        int value = chosen ? a->value[i] : only;

        if (key == PL_KEY_ZERO_SCOPE && chosen && value == PL_SCOPE_NONE)
            continue; /* says nothing where the scope matters */
        pl_layout_set(&k->l, &pl_layout_keys[key], value);
        if (key == PL_KEY_ETP)
            pl_layout_derive(&k->l);
        if ((level >= STEM || !k->legal_only || may_go_on(k, key)) && !descend(k, level + 1))
            return false;
    }
    return true;
}

static bool walk(size_t *ret_count, const struct pl_space *s, const struct pl_problem *p,
                 const struct walk *how)
{
    struct walk k = *how;
    bool whole;

    k.s = s;
    k.p = p;
    pl_layout_default(&k.l, p->workload);
    whole = descend(&k, 0);
    if (ret_count)
        *ret_count = k.count;
    return whole;
}

size_t pl_space_enumerate(const struct pl_space *s, const struct pl_problem *p,
                          pl_space_visit *visit, void *arg)
{
    size_t n;

    pl_space_visit_all(&n, s, p, NULL, visit, arg);
    return n;
}

bool pl_space_visit_all(size_t *ret_count, const struct pl_space *s, const struct pl_problem *p,
                        const struct pl_patience *patience, pl_space_visit *visit, void *arg)
{
    const struct walk how = {
        .visit = visit, .arg = arg, .patience = patience, .legal_only = true, .end = PL_WALK_KEYS};

    return walk(ret_count, s, p, &how);
}

size_t pl_space_product(const struct pl_space *s, const struct pl_problem *p, size_t keys,
                        const struct pl_patience *patience, pl_space_visit *visit, void *arg)
{
    const struct walk how = {
        .visit = visit, .arg = arg, .patience = patience, .end = keys ? keys : PL_WALK_KEYS};
    size_t n;

    walk(&n, s, p, &how);
    return n;
}

bool pl_space_stems(size_t *ret_count, const struct pl_space *s, const struct pl_problem *p,
                    const struct pl_patience *patience, pl_space_visit *visit, void *arg)
{
    const struct walk how = {
        .visit = visit, .arg = arg, .patience = patience, .legal_only = true, .end = STEM};

    return walk(ret_count, s, p, &how);
}

bool pl_space_leaves(const struct pl_space *s, const struct pl_problem *p,
                     const struct pl_layout *stem, pl_space_visit *visit, void *arg)
{
    struct walk k = {.s = s,
                     .p = p,
                     .visit = visit,
                     .arg = arg,
                     .legal_only = true,
                     .end = PL_WALK_KEYS,
                     .l = *stem};

    return descend(&k, STEM);
}

int pl_space_compare(const struct pl_layout *a, const struct pl_layout *b)
{
    for (size_t i = 0; i < PL_WALK_KEYS; i++) {
        int x = pl_layout_get(a, &pl_layout_keys[pl_space_order[i]]);
        int y = pl_layout_get(b, &pl_layout_keys[pl_space_order[i]]);

        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

struct list {
    struct pl_layout *at;
    size_t n, cap, max;
};

static bool append(void *arg, const struct pl_layout *l)
{
    struct list *x = arg;

    if (x->n == x->max)
        return false;
    MEM_GROW(x->at, x->n, x->cap);
    x->at[x->n++] = *l;
    return true;
}

int pl_space_list_within(struct pl_layout **ret, size_t *ret_count, size_t max,
                         const struct pl_space *s, const struct pl_problem *p,
                         const struct pl_patience *patience, struct err *e)
{
    struct list x = {.max = max};
    size_t n;

    if (!pl_space_visit_all(&n, s, p, patience, append, &x)) {
        free(x.at);
        if (n > max)
            return err_set(e, -E2BIG, "the space holds more than %zu legal layouts", max);
        return err_set(e, -ECANCELED, "there was not enough time for the space");
    }
    *ret = x.at;
    *ret_count = x.n;
    return 0;
}

int pl_space_list(struct pl_layout **ret, size_t *ret_count, size_t max, const struct pl_space *s,
                  const struct pl_problem *p, struct err *e)
{
    return pl_space_list_within(ret, ret_count, max, s, p, NULL, e);
}

bool pl_space_has(const struct pl_space *s, const struct pl_problem *p, const struct pl_layout *l)
{
    int only;

    for (size_t i = 0; i < PL_WALK_KEYS; i++) {
        int value = pl_layout_get(l, &pl_layout_keys[pl_space_order[i]]);

        if (pl_space_applies(l, p->model, pl_space_order[i], &only)
                ? !has(&s->axis[pl_space_order[i]], value)
                : value != only)
            return false;
    }
    if ((s->axis[PL_KEY_DP].n && !has(&s->axis[PL_KEY_DP], l->dp)) ||
        (s->axis[PL_KEY_EDP].n && !has(&s->axis[PL_KEY_EDP], l->edp)))
        return false;
    return pl_layout_check(NULL, p->model, p->cluster, l, p->workload, p->trainer);
}
