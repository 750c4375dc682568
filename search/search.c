/* A search from its layouts to its end; engine.c has what it asks for, learn.c what it is told. */
#include <errno.h>

#include "base/base.h"
#include "search/num.h"
#include "search/state.h"

#include <assert.h>

struct se_search *se_search_free(struct se_search *search)
{
    if (!search)
        return NULL;
    se_table_free(search->table);
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_surrogate_done(&search->surrogate[q]);
    se_crash_done(&search->crash);
    free(search->closed);
    free(search->record);
    free(search);
    return NULL;
}

/* In the order of a space, of each layout cluster after cluster. */
static int in_order(const struct pl_layout *left, const struct pl_layout *right)
{
    int order = pl_space_compare(left, right);

    return order ? order : left->cluster - right->cluster;
}

static int by_walk(const void *left, const void *right)
{
    return in_order(left, right);
}

/* The table of LAYOUTS in the order of a space, so that theirs decides nothing. */
static int new_table(struct se_table **ret, const struct pl_layout *layouts, size_t count,
                     struct err *error)
{
    struct pl_layout AUTO_FREE *sorted = NULL;
    size_t i = 1;

    while (i < count && in_order(&layouts[i - 1], &layouts[i]) <= 0)
        i++;
    if (i >= count)
        return se_table_new(ret, layouts, count, error);
    sorted = mem_try_alloc(mem_mul(count, sizeof(*sorted), 1));
    if (!sorted)
        return err_set(error, -ENOMEM, "no memory for %zu layouts", count);
    memcpy(sorted, layouts, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), by_walk);
    return se_table_new(ret, sorted, count, error);
}

int se_search_alone(struct se_search **ret, const struct se_spec *spec,
                    const struct pl_layout *layouts, size_t count, struct err *error)
{
    AUTO(se_search) *s = mem_alloc(sizeof(*s));
    int r;

    if (count > SE_MAX_LAYOUTS)
        return err_at(error, -E2BIG, "/space",
                      "%zu legal layouts are more than the %d that a search can hold", count,
                      SE_MAX_LAYOUTS);
    se_num_setup();
    s->spec = *spec;
    s->spec.space = NULL;
    s->spec.source = NULL;
    s->spec.nsources = 0;
    s->spec.patience = NULL;
    s->done = "";
    s->next_id = 1;
    s->regret = -1.0;
    rng_seed(&s->rng, spec->seed);
    r = new_table(&s->table, layouts, count, error);
    if (r < 0)
        return r;
    r = se_table_set_prior(s->table, spec, error);
    if (r < 0)
        return r;
    s->closed = mem_alloc(count);
    se_surrogate_init(&s->surrogate[SE_THROUGHPUT], s->table, SE_THROUGHPUT, spec->use_prior);
    se_surrogate_init(&s->surrogate[SE_MEMORY], s->table, SE_MEMORY, spec->use_memory_prior);
    se_crash_init(&s->crash, s->table);
    *ret = TAKE(s);
    return 0;
}

const struct se_spec *se_search_spec(const struct se_search *search)
{
    return &search->spec;
}

size_t se_legal(const struct se_search *search)
{
    return search->table->n;
}

int se_settled(const struct se_search *search)
{
    return search->settled;
}

const char *se_done_reason(const struct se_search *search)
{
    return search->done;
}

void se_spent(struct se_search *search, double share)
{
    search->spent = share;
}

void se_avoid(struct se_search *search, unsigned clusters)
{
    search->avoided = clusters;
}

/* Number of the cluster of layout INDEX, from 1; 0 where a campaign has one. */
static int cluster_of(const struct se_table *table, size_t index)
{
    for (int d = 0; d < table->ndims; d++)
        if (table->dim[d].key == SE_KEY_CLUSTER)
            return table->dim[d].value[se_table_row(table, index)[d]];
    return table->base.cluster;
}

bool se_avoids(const struct se_search *search, size_t index)
{
    assert(search->outstanding >= 0 && index < search->table->n);
    return search->outstanding > 0 && search->avoided != 0 &&
           (search->avoided >> cluster_of(search->table, index) & 1);
}
