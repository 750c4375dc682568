/* From the parameter table of a rank to checkpoint parts, and who saves which. */
#include "trainer/parts.h"

#include "base/base.h"

#include <assert.h>

struct list {
    struct tr_part *part;
    size_t count, cap;
};

static struct tr_part *add(struct list *list, const struct pl_param *param, enum tr_part_kind kind)
{
    struct tr_part *part;

    MEM_GROW(list->part, list->count, list->cap);
    part = &list->part[list->count++];
    *part = (struct tr_part){.name = param->name,
                             .kind = kind,
                             .rows = (int64_t)param->local[0],
                             .cols = (int64_t)param->local[1],
                             .count = (int64_t)param->count};
    if (param->split == 0)
        part->row0 = (int64_t)param->first;
    else if (param->split == 1)
        part->col0 = (int64_t)param->first;
    assert(part->count == part->rows * part->cols);
    return part;
}

/* No other rank with a lower coordinate holds the same slice of the weights. */
static bool saves_slice(const struct pl_param *param, enum pl_bucket_kind kind,
                        const struct pl_layout *layout, int rank)
{
    if (kind == PL_BUCKET_TIED && pl_axis_coord(layout, PL_PP, rank) > 0)
        return false;
    if (kind == PL_BUCKET_EXPERT)
        return param->split >= 0 || pl_axis_coord(layout, PL_ETP, rank) == 0;
    return param->split >= 0 || pl_axis_coord(layout, PL_TP, rank) == 0;
}

/* Where KIND of parameter INDEX lies, whose state begins at AT; NULL: it has none. */
static float *state_of(const struct tr_params *params, int index, uint64_t at,
                       enum tr_part_kind kind)
{
    if (kind == TR_PART_WEIGHT)
        return params->master ? params->master + at : NULL;
    if (!tr_part_exists(kind, params->optimizer, params->table.p[index].tensor))
        return NULL;
    return kind == TR_PART_EXP_AVG_SQ ? params->v + tr_param_second(params, index, at)
                                      : params->m + at;
}

static void add_state(struct list *list, const struct tr_params *params, int index, bool save)
{
    const struct pl_param *p = &params->table.p[index];
    uint64_t first = 0, at = 0, n = tr_param_state(&first, &at, params, index);

    for (int k = 0; k < TR_PART_KINDS && n; k++) {
        float *array = state_of(params, index, at, (enum tr_part_kind)k);
        struct tr_part *part;

        if (!array)
            continue;
        part = add(list, p, (enum tr_part_kind)k);
        assert((int64_t)(first + n) <= part->count);
        part->first = (int64_t)first;
        part->count = (int64_t)n;
        part->dtype = TR_F32;
        part->data = array;
        part->save = save;
    }
}

/* COUNT elements of a parameter's weights from FIRST on, which lie at DATA. */
static void add_range(struct list *list, const struct tr_params *params, int index, uint64_t first,
                      uint64_t count, void *data, bool save)
{
    struct tr_part *part;

    if (count == 0)
        return;
    part = add(list, &params->table.p[index], TR_PART_WEIGHT);
    assert((int64_t)(first + count) <= part->count);
    part->first = (int64_t)first;
    part->count = (int64_t)count;
    part->dtype = params->type == KN_BF16 ? TR_BF16 : TR_F32;
    part->data = data;
    part->save = save;
}

/* The weights that this rank keeps of a parameter, of which it saves, if any, those whose state it
 * has: ranks that hold the same share the work. */
static void add_weight(struct list *list, const struct tr_params *params, int index, bool save)
{
    size_t size = kn_type_size(params->type);
    void *data = NULL;
    uint64_t first = 0, n = tr_param_kept(&first, &data, params, index), own = 0, at = 0,
             own_n = save ? tr_param_state(&own, &at, params, index) : 0, before, after;

    if (own_n == 0) {
        add_range(list, params, index, first, n, data, false);
        return;
    }
    assert(own >= first && own + own_n <= first + n);
    before = own - first;
    after = before + own_n;
    add_range(list, params, index, first, before, data, false);
    add_range(list, params, index, own, own_n, (char *)data + before * size, true);
    add_range(list, params, index, first + after, n - after, (char *)data + after * size, false);
}

/* Every rank of a stage has all of them. */
static void add_fixed(struct list *list, const struct tr_params *params,
                      const struct pl_layout *layout)
{
    bool first = pl_axis_coord(layout, PL_TP, params->rank) == 0 &&
                 pl_axis_coord(layout, PL_DP_CP, params->rank) == 0;

    for (int i = params->table.n; i < params->table.n + params->table.fixed; i++) {
        struct tr_part *part = add(list, &params->table.p[i], TR_PART_WEIGHT);

        part->dtype = TR_F32;
        part->data = params->balance + params->table.p[i].offset;
        part->save = first;
    }
}

struct tr_part *tr_parts(size_t *ret_count, const struct tr_params *params,
                         const struct pl_layout *layout, bool with_state)
{
    struct list list = {0};

    for (int i = 0; i < params->table.n; i++) {
        const struct pl_param *p = &params->table.p[i];
        const struct pl_bucket *b = &params->table.bucket[p->bucket];
        bool saves = b->copy == 0 && saves_slice(p, b->kind, layout, params->rank);

        add_weight(&list, params, i, saves && !(with_state && params->master));
        if (with_state)
            add_state(&list, params, i, saves);
    }
    add_fixed(&list, params, layout);
    *ret_count = list.count;
    return list.part;
}
