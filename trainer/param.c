#include "base/base.h"
#include "trainer/param.h"
#include "trainer/stop.h"

static uint64_t hash_name(const char *s)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    return h;
}

void *tr_param_weight(const struct tr_params *t, int i)
{
    return (char *)t->weight + t->table.p[i].offset * kn_type_size(t->type);
}

float *tr_param_grad(const struct tr_params *t, int i)
{
    return t->grad + t->table.p[i].offset;
}

int tr_param_find(const struct tr_params *t, enum pl_tensor tensor, int layer, int expert)
{
    for (int i = 0; i < t->table.n; i++) {
        const struct pl_param *p = &t->table.p[i];

        if (p->tensor == tensor && p->layer == layer && p->expert == expert)
            return i;
    }
    return -1;
}

uint64_t tr_param_state(const struct tr_params *t, int i, uint64_t *ret_first, uint64_t *ret_state)
{
    const struct pl_param *p = &t->table.p[i];
    const struct pl_bucket *b = &t->table.bucket[p->bucket];
    uint64_t lo = p->offset > b->shard_first ? p->offset : b->shard_first;
    uint64_t hi = p->offset + p->count, end = b->shard_first + b->shard_count;

    if (end < hi)
        hi = end;
    if (lo >= hi)
        return 0;
    *ret_first = lo - p->offset;
    *ret_state = b->state_first + (lo - b->shard_first);
    return hi - lo;
}

static float initial(const struct pl_param *p, const struct pl_model *m, uint64_t key, uint64_t k)
{
    int64_t g = pl_param_global(p, k);

    if (g < 0)
        return 0.0f;
    return p->decay ? (float)(m->init_std * rng_normal_at(key, (uint64_t)g)) : 1.0f;
}

static void init_one(struct tr_params *t, int i, const struct pl_model *m, uint64_t seed)
{
    const struct pl_param *p = &t->table.p[i];
    uint64_t key = rng_mix(seed ^ hash_name(p->name));
    char *w = tr_param_weight(t, i);
    float run[512];

    for (uint64_t at = 0; at < p->count; at += ARRAY_LEN(run)) {
        uint64_t n = p->count - at < ARRAY_LEN(run) ? p->count - at : ARRAY_LEN(run);

        for (uint64_t k = 0; k < n; k++)
            run[k] = initial(p, m, key, at + k);
        kn_convert(NULL, t->type, w + at * kn_type_size(t->type), KN_F32, run, n);
    }
}

void tr_params_init(struct tr_params *t, const struct pl_model *m, uint64_t seed)
{
    memset(t->weight, 0, t->table.count * kn_type_size(t->type));
    memset(t->m, 0, t->table.state_count * sizeof(*t->m));
    memset(t->v, 0, t->table.state_count * sizeof(*t->v));
    for (int i = 0; i < t->table.n; i++) {
        tr_stop_check();
        init_one(t, i, m, seed);
    }
    tr_params_sync_master(t);
}

void tr_params_sync_master(struct tr_params *t)
{
    size_t size = kn_type_size(t->type);

    if (!t->master)
        return;
    for (int i = 0; i < t->table.nbuckets; i++) {
        const struct pl_bucket *b = &t->table.bucket[i];

        kn_convert(NULL, KN_F32, t->master + b->state_first, t->type,
                   (char *)t->weight + b->shard_first * size, b->shard_count);
    }
}
