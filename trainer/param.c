#include "base/base.h"
#include "trainer/param.h"
#include "trainer/stop.h"

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <unistd.h>

static uint64_t hash_name(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h;
}

/* Of the slice of parameter INDEX, whose bucket is at AT in a buffer of COUNT elements. */
static uint64_t slice_at(const struct tr_params *params, int index, uint64_t at, uint64_t count)
{
    const struct pl_param *p = &params->table.p[index];

    assert(index >= 0 && index < params->table.n);
    at += p->offset - params->table.bucket[p->bucket].first;
    assert(at + p->count <= count);
    return at;
}

void *tr_param_weight(const struct tr_params *params, int index)
{
    const struct pl_bucket *b = &params->table.bucket[params->table.p[index].bucket];

    return (char *)params->weight +
           slice_at(params, index, b->weight.at, params->table.weight.count) *
               kn_type_size(params->type);
}

void *tr_grad_at(const struct tr_params *params, void *grad, uint64_t at)
{
    return (char *)grad + at * kn_type_size(params->grad_type);
}

void *tr_param_grad(const struct tr_params *params, int index)
{
    const struct pl_bucket *b = &params->table.bucket[params->table.p[index].bucket];

    return tr_grad_at(params, params->grad,
                      slice_at(params, index, b->grad.at, params->table.grad.count));
}

int tr_param_find(const struct tr_params *params, enum pl_tensor tensor, int layer, int expert)
{
    for (int i = 0; i < params->table.n; i++) {
        const struct pl_param *p = &params->table.p[i];

        if (p->tensor == tensor && p->layer == layer && p->expert == expert)
            return i;
    }
    return -1;
}

uint64_t tr_param_state(uint64_t *ret_first, uint64_t *ret_state, const struct tr_params *params,
                        int index)
{
    const struct pl_param *p = &params->table.p[index];
    const struct pl_bucket *b = &params->table.bucket[p->bucket];
    uint64_t lo = p->offset > b->shard_first ? p->offset : b->shard_first;
    uint64_t hi = p->offset + p->count, end = b->shard_first + b->shard_count;

    if (end < hi)
        hi = end;
    if (lo >= hi)
        return 0;
    *ret_first = lo - p->offset;
    *ret_state = b->state_first + (lo - b->shard_first);
    assert(*ret_first + (hi - lo) <= p->count &&
           *ret_state + (hi - lo) <= params->table.state_count);
    return hi - lo;
}

bool tr_param_is_muon(const struct tr_params *params, int index)
{
    return params->optimizer == PL_MUON && pl_tensor_is_hidden(params->table.p[index].tensor);
}

uint64_t tr_param_second(const struct tr_params *params, int index, uint64_t state)
{
    assert(params->optimizer != PL_SGD && !tr_param_is_muon(params, index));
    return params->v_at ? params->v_at[index] : state;
}

/* Parameters of a bucket follow each other in v without the matrices between them; the next bucket
 * begins where the plan gives this one's room an end. */
void tr_params_lay_out(struct tr_params *params)
{
    const struct pl_params *t = &params->table;
    uint64_t at = 0;
    int bucket = -1;

    if (params->optimizer != PL_MUON)
        return;
    params->v_at = mem_alloc(sizeof(*params->v_at) * (size_t)t->n);
    for (int i = 0; i < t->n; i++) {
        uint64_t first, state, n = tr_param_state(&first, &state, params, i);

        for (; bucket < t->p[i].bucket; bucket++)
            at = (at + 15) / 16 * 16;
        params->v_at[i] = at;
        if (!tr_param_is_muon(params, i))
            at += n;
    }
    assert(at <= t->adam_count);
}

uint64_t tr_param_kept(uint64_t *ret_first, void **ret_data, const struct tr_params *params,
                       int index)
{
    const struct pl_param *p = &params->table.p[index];
    const struct pl_bucket *b = &params->table.bucket[p->bucket];
    uint64_t state, n;

    if (b->weight.window < 0) {
        *ret_first = 0;
        *ret_data = tr_param_weight(params, index);
        return p->count;
    }
    n = tr_param_state(ret_first, &state, params, index);
    if (n)
        *ret_data = (char *)params->weight +
                    (b->weight.shard_at + state - b->state_first) * kn_type_size(params->type);
    return n;
}

static bool is_scale(enum pl_tensor tensor)
{
    return tensor == PL_T_NORM1 || tensor == PL_T_NORM2 || tensor == PL_T_FINAL_NORM ||
           tensor == PL_T_Q_NORM || tensor == PL_T_K_NORM || tensor == PL_T_Q_LATENT ||
           tensor == PL_T_KV_LATENT || tensor == PL_T_MTP_ENORM || tensor == PL_T_MTP_HNORM ||
           tensor == PL_T_MTP_NORM || tensor == PL_T_POST_NORM1 || tensor == PL_T_POST_NORM2;
}

static double spread(const struct pl_param *param, const struct pl_model *model)
{
    bool residual = param->tensor == PL_T_O || param->tensor == PL_T_DOWN;
    bool gelu = model->mlp == PL_GELU || model->mlp == PL_GELU_TANH;

    return model->init_std / (residual && gelu ? sqrt(2.0 * model->layers) : 1.0);
}

static float initial(const struct pl_param *param, const struct pl_model *model, uint64_t key,
                     uint64_t index)
{
    int64_t g = pl_param_global(param, index);

    if (g < 0)
        return 0.0f;
    if (param->decay)
        return (float)(spread(param, model) * rng_normal_at(key, (uint64_t)g));
    return is_scale(param->tensor) && !model->zero_centered_norm ? 1.0f : 0.0f;
}

/* TO (count) = the elements of parameter INDEX from FIRST on. */
static void fill(char *to, const struct tr_params *params, int index, const struct pl_model *model,
                 uint64_t seed, uint64_t first, uint64_t count)
{
    const struct pl_param *p = &params->table.p[index];
    uint64_t key = rng_mix(seed ^ hash_name(p->name));
    float run[512];

    for (uint64_t at = 0; at < count; at += ARRAY_LEN(run)) {
        uint64_t n = count - at < ARRAY_LEN(run) ? count - at : ARRAY_LEN(run);

        for (uint64_t k = 0; k < n; k++)
            run[k] = initial(p, model, key, first + at + k);
        kn_convert(NULL, params->type, to + at * kn_type_size(params->type), KN_F32, run, n);
    }
}

/* The elements of a parameter, of which each thread fills a share. */
struct filling {
    char *to; /* (count) */
    const struct tr_params *params;
    const struct pl_model *model;
    uint64_t seed, first, count;
    int index;
};

static void fill_share(void *arg, int thread, int threads)
{
    const struct filling *f = arg;
    uint64_t lo = f->count * (uint64_t)thread / (uint64_t)threads;
    uint64_t hi = f->count * ((uint64_t)thread + 1) / (uint64_t)threads;

    fill(f->to + lo * kn_type_size(f->params->type), f->params, f->index, f->model, f->seed,
         f->first + lo, hi - lo);
}

/* By the threads of CREW; NULL: by the caller. */
static void init_one(struct tr_params *params, int index, const struct pl_model *model,
                     uint64_t seed, struct kn_pool *crew)
{
    void *w = NULL;
    uint64_t first = 0, count = tr_param_kept(&first, &w, params, index);
    size_t bytes = count * kn_type_size(params->type);
    AUTO_FREE char *here = kn_apart(params->pool) && count ? mem_alloc(bytes) : NULL;
    struct filling filling = {here ? here : w, params, model, seed, first, count, index};

    if (crew)
        kn_pool_run(crew, fill_share, &filling);
    else
        fill_share(&filling, 0, 1);
    if (here) {
        kn_copy(params->pool, w, here, bytes);
        kn_wait(params->pool);
    }
}

/* Cores of this rank: those that a launcher has bound it to, or its share of all. */
static int own_cores(void)
{
    struct ranks ranks;
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    ranks_from_env(&ranks);
    if (ranks.locals > 1 && cores >= (int)sysconf(_SC_NPROCESSORS_ONLN))
        cores /= ranks.locals;
    return cores > 1 ? cores : 1;
}

static uint64_t second_moments(const struct tr_params *params)
{
    return params->optimizer == PL_MUON ? params->table.adam_count : params->table.state_count;
}

void tr_params_init(struct tr_params *params, const struct pl_model *model, uint64_t seed)
{
    struct kn_pool *pool = params->pool;
    /* Next to a device all cores are idle, however few threads the layout has. */
    struct kn_pool *aside = kn_apart(pool) ? kn_pool_new_host(own_cores()) : NULL;

    kn_zero(pool, params->weight, params->table.weight.count * kn_type_size(params->type));
    kn_zero(pool, params->m, params->table.state_count * sizeof(*params->m));
    if (params->v)
        kn_zero(pool, params->v, second_moments(params) * sizeof(*params->v));
    kn_wait(pool);
    for (int i = params->table.n; i < params->table.n + params->table.fixed; i++)
        memset(params->balance + params->table.p[i].offset, 0,
               params->table.p[i].count * sizeof(*params->balance));
    for (int i = 0; i < params->table.n; i++) {
        tr_stop_check();
        init_one(params, i, model, seed, aside ? aside : pool);
    }
    kn_pool_free(aside);
    tr_params_sync_master(params);
}

void tr_params_sync_master(struct tr_params *params)
{
    size_t size = kn_type_size(params->type);

    if (!params->master)
        return;
    for (int i = 0; i < params->table.nbuckets; i++) {
        const struct pl_bucket *b = &params->table.bucket[i];

        assert(b->shard_first >= b->first &&
               b->shard_first + b->shard_count <= b->first + b->count &&
               b->state_first + b->shard_count <= params->table.state_count);
        kn_convert(params->pool, KN_F32, params->master + b->state_first, params->type,
                   (char *)params->weight + b->weight.shard_at * size, b->shard_count);
    }
    kn_wait(params->pool);
}
