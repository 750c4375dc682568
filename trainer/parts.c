/* From the parameter table of a rank to checkpoint parts, and who saves which. */
#include "trainer/parts.h"

#include "base/base.h"

struct list {
    struct tr_part *part;
    size_t count, cap;
};

static struct tr_part *add(struct list *l, const struct pl_param *p, enum tr_part_kind kind)
{
    struct tr_part *part;

    MEM_GROW(l->part, l->count, l->cap);
    part = &l->part[l->count++];
    *part = (struct tr_part){.name = p->name,
                             .kind = kind,
                             .rows = (int64_t)p->local[0],
                             .cols = (int64_t)p->local[1],
                             .count = (int64_t)p->count};
    if (p->split == 0)
        part->row0 = (int64_t)p->first;
    else if (p->split == 1)
        part->col0 = (int64_t)p->first;
    return part;
}

/* No other rank with a lower coordinate holds the same slice of the weights. */
static bool saves_slice(const struct pl_param *p, enum pl_bucket_kind kind,
                        const struct pl_layout *l, int rank)
{
    if (kind == PL_BUCKET_TIED && pl_axis_coord(l, PL_PP, rank) > 0)
        return false;
    if (kind == PL_BUCKET_EXPERT)
        return p->split >= 0 || pl_axis_coord(l, PL_ETP, rank) == 0;
    return p->split >= 0 || pl_axis_coord(l, PL_TP, rank) == 0;
}

/* Coordinate among the ranks that hold the same slice. */
static int replica(enum pl_bucket_kind kind, const struct pl_layout *l, int rank)
{
    return pl_axis_coord(l, kind == PL_BUCKET_EXPERT ? PL_EDP : PL_DP, rank);
}

/* The same of one shard of the state: with several shards the copies are those of zero_scope plain.
 */
static bool saves_shard(const struct pl_bucket *b, const struct pl_layout *l, int rank)
{
    int c = replica(b->kind, l, rank);

    if (b->shards == 1)
        return c == 0;
    return b->kind == PL_BUCKET_EXPERT || c % pl_zero_period(l) == 0;
}

static void add_state(struct list *list, const struct tr_params *t, int i, bool save)
{
    const struct pl_param *p = &t->table.p[i];
    float *const array[] = {t->master, t->m, t->v};
    uint64_t first = 0, at = 0, n = tr_param_state(t, i, &first, &at);

    for (int k = 0; k < 3 && n; k++) {
        struct tr_part *part;

        if (!array[k])
            continue;
        part = add(list, p, (enum tr_part_kind)k);
        part->first = (int64_t)first;
        part->count = (int64_t)n;
        part->dtype = TR_F32;
        part->data = array[k] + at;
        part->save = save;
    }
}

struct tr_part *tr_parts(size_t *ret_count, const struct tr_params *t, const struct pl_layout *l,
                         bool with_state)
{
    struct list list = {0};

    for (int i = 0; i < t->table.n; i++) {
        const struct pl_param *p = &t->table.p[i];
        const struct pl_bucket *b = &t->table.bucket[p->bucket];
        bool slice = saves_slice(p, b->kind, l, t->rank);
        struct tr_part *part = add(&list, p, TR_PART_WEIGHT);

        part->dtype = t->type == KN_BF16 ? TR_BF16 : TR_F32;
        part->data = tr_param_weight(t, i);
        part->save = slice && replica(b->kind, l, t->rank) == 0 && !(with_state && t->master);
        if (with_state)
            add_state(&list, t, i, slice && saves_shard(b, l, t->rank));
    }
    *ret_count = list.count;
    return list.part;
}
