/* Runs of elements that one call updates, and AdamW on them. */
#include "trainer/optim_parts.h"

#include <assert.h>

void tr_span_arrays(struct tr_span_arrays *ret, const struct tr_rank *rank,
                    const struct tr_span_of *span)
{
    const struct tr_params *t = &rank->params;
    const struct pl_bucket *b = span->bucket;
    uint64_t at = b->weight.shard_at + span->first, state = b->state_first + span->first;

    assert(span->first + span->count <= b->shard_count &&
           at + span->count <= t->table.weight.count);
    *ret = (struct tr_span_arrays){.w = t->master ? t->master + state : (float *)t->weight + at,
                                   .low = t->master ? (kn_bf16 *)t->weight + at : NULL,
                                   .m = t->m + state,
                                   .v = t->v && !span->muon ? t->v + span->second : NULL,
                                   .g = tr_grad_at(t, t->grad, b->grad.shard_at + span->first)};
}

bool tr_span_of_param(struct tr_span_of *ret, const struct tr_params *params, int index)
{
    const struct pl_param *p = &params->table.p[index];
    const struct pl_bucket *b = &params->table.bucket[p->bucket];
    uint64_t first, state, n = tr_param_state(&first, &state, params, index);
    bool muon = tr_param_is_muon(params, index);

    if (n == 0)
        return false;
    *ret = (struct tr_span_of){
        .bucket = b, .first = state - b->state_first, .count = n, .decay = p->decay, .muon = muon};
    if (params->group)
        ret->group = params->group[index];
    if (params->optimizer != PL_SGD && !muon)
        ret->second = tr_param_second(params, index, state);
    return true;
}

bool tr_bucket_speaks(const struct tr_rank *rank, const struct pl_bucket *bucket)
{
    return rank->comms.copy[bucket->kind == PL_BUCKET_EXPERT].rank == 0 &&
           !(pl_bucket_is_small(bucket) && rank->comms.tp.rank != 0) &&
           !(bucket->kind == PL_BUCKET_TIED && rank->comms.tied.rank != 0);
}

void tr_optim_spans(struct tr_update *update, int from, int end, tr_span_fn *fn)
{
    struct tr_span_of run = {0}, next;

    for (int i = from; i < end; i++) {
        if (!tr_span_of_param(&next, &update->rank->params, i))
            continue;
        if (run.count &&
            (next.bucket != run.bucket || next.first != run.first + run.count ||
             next.decay != run.decay || next.muon != run.muon || next.group != run.group)) {
            fn(update, &run);
            run.count = 0;
        }
        if (run.count == 0)
            run = next;
        else
            run.count += next.count;
    }
    if (run.count)
        fn(update, &run);
}

double tr_update_decay(const struct tr_update *update, const struct tr_span_of *span)
{
    const struct tr_optim *o = update->optim;

    if (!o->groups)
        return span->decay ? o->weight_decay : 0;
    return tr_param_groups_decay(o->groups, span->group, o->weight_decay, span->decay);
}

struct kn_adamw tr_update_adamw(const struct tr_update *update, const struct tr_span_of *span)
{
    const struct tr_optim *o = update->optim;

    return (struct kn_adamw){.lr = (float)update->lr[span->group],
                             .beta1 = (float)o->beta1,
                             .beta2 = (float)o->beta2,
                             .eps = (float)o->eps,
                             .weight_decay = (float)tr_update_decay(update, span),
                             .grad_scale = update->grad_scale,
                             .step = (uint64_t)update->step};
}

/* A piece of the gradients at a time: in fp32 it is still in the cache when the kernel reads it. */
static void adamw_of_bf16(struct tr_rank *rank, const struct kn_adamw *hyper,
                          const struct tr_span_arrays *of, uint64_t count)
{
    float *g = rank->work.grad_sum;

    assert(of->low);
    for (uint64_t at = 0, n; at < count; at += n) {
        n = count - at < PL_GRAD_PIECE ? count - at : PL_GRAD_PIECE;
        kn_convert(rank->pool, KN_F32, g, rank->params.grad_type,
                   tr_grad_at(&rank->params, of->g, at), n);
        kn_adamw(rank->pool, hyper, of->w + at, of->low + at, of->m + at, of->v + at, g, n);
    }
}

void tr_optim_adamw(struct tr_update *update, const struct tr_span_of *span)
{
    struct kn_adamw hyper = tr_update_adamw(update, span);
    struct tr_span_arrays a;

    tr_span_arrays(&a, update->rank, span);
    if (update->rank->params.grad_type == KN_F32)
        kn_adamw(update->rank->pool, &hyper, a.w, a.low, a.m, a.v, a.g, span->count);
    else
        adamw_of_bf16(update->rank, &hyper, &a, span->count);
}
