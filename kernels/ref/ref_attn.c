/*
 * Attention by its definition, one query row at a time; scores are computed again in each pass
 * instead of being stored.
 */
#include "kernels/ref/ref.h"

/* Query T of HEAD, its output, key T, its value, in a matrix of leading dimension LD: index of the
 * first element. */
static size_t query_of(const struct kn_attn_job *job, size_t t, size_t ld, size_t head)
{
    return (kn_attn_q_row(job) + t) * ld + head * job->a->d;
}

static size_t out_of(const struct kn_attn_job *job, size_t t, size_t ld, size_t head)
{
    return (kn_attn_q_row(job) + t) * ld + head * job->a->dv;
}

static size_t key_of(const struct kn_attn_job *job, size_t t, size_t ld, size_t head)
{
    return (kn_attn_k_row(job) + t) * ld + head * job->a->d;
}

static size_t value_of(const struct kn_attn_job *job, size_t t, size_t ld, size_t head)
{
    return (kn_attn_k_row(job) + t) * ld + head * job->a->dv;
}

/* ARRAY[AT] = VALUE, or with job->sums += VALUE. */
static void add_to(const struct kn_attn_job *job, void *array, size_t at, double value)
{
    if (job->sums)
        ((float *)array)[at] = (float)((double)((float *)array)[at] + value);
    else
        kn_put(job->a->type, array, at, (float)value);
}

static double dot_at(enum kn_type type, const void *x, size_t ix, const void *y, size_t iy,
                     size_t dim)
{
    double sum = 0;

    for (size_t c = 0; c < dim; c++)
        sum += (double)kn_at(type, x, ix + c) * (double)kn_at(type, y, iy + c);
    return sum;
}

static double score(const struct kn_attn_job *job, size_t head, size_t qi, size_t ki)
{
    const struct kn_attn *a = job->a;
    size_t kvh = head / (a->heads / a->kv_heads);

    double s = (double)a->scale * dot_at(a->type, a->q, query_of(job, qi, a->ldq, head), a->k,
                                         key_of(job, ki, a->ldk, kvh), a->d);

    return a->cap > 0 ? (double)a->cap * tanh(s / (double)a->cap) : s;
}

void kn_ref_attn_fwd(const struct kn_attn_job *job, void *out, size_t ldo, float *lse)
{
    const struct kn_attn *a = job->a;
    enum kn_type type = kn_attn_out_type(job);
    size_t kvh = job->head / (a->heads / a->kv_heads);

    for (size_t i = job->q0; i < job->q1; i++) {
        size_t first = kn_attn_behind(job, i), seen = kn_attn_seen(job, i),
               to = out_of(job, i, ldo, job->head);
        float *at = &lse[kn_attn_lse(job, job->head) + i];
        double before = job->part->merge ? (double)*at : -INFINITY;
        double max = before, sum = 0, acc[KN_MAX_HEAD_DIM] = {0};

        for (size_t l = first; l < seen; l++)
            max = fmax(max, score(job, job->head, i, l));
        for (size_t l = first; l < seen; l++) {
            double p = exp(score(job, job->head, i, l) - max);

            sum += p;
            for (size_t c = 0; c < a->dv; c++)
                acc[c] += p * (double)kn_at(a->type, a->v, value_of(job, l, a->ldv, kvh) + c);
        }
        if (job->part->merge) { /* OUT is a mean whose weights add up to this */
            double p = exp(before - max);

            sum += p;
            for (size_t c = 0; c < a->dv; c++)
                acc[c] += p * (double)kn_at(type, out, to + c);
        }
        for (size_t c = 0; c < a->dv; c++)
            kn_put(type, out, to + c, sum > 0 ? (float)(acc[c] / sum) : 0.0f);
        *at = sum > 0 ? (float)(max + log(sum)) : -INFINITY;
    }
}

/* p = exp(score - lse) and ds = p (d_o . v - delta), times the slope of the cap, of query I, key L,
 * HEAD. */
static void grad_at(double *ret_p, double *ret_ds, const struct kn_attn_job *job,
                    const struct kn_attn_grad *grad, const float *delta, size_t head, size_t i,
                    size_t l)
{
    const struct kn_attn *a = job->a;
    size_t kvh = head / (a->heads / a->kv_heads);
    double lse = grad->lse[kn_attn_lse(job, head) + i];
    double dp = dot_at(a->type, grad->d_o, out_of(job, i, grad->lddo, head), a->v,
                       value_of(job, l, a->ldv, kvh), a->dv);

    double s = score(job, head, i, l), t = a->cap > 0 ? s / (double)a->cap : 0;

    *ret_p = exp(s - lse);
    *ret_ds = *ret_p * (dp - (double)delta[head * a->seq + i]) * (1 - t * t);
}

static void dq_row(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                   const float *delta, size_t head, size_t i)
{
    const struct kn_attn *a = job->a;
    size_t kvh = head / (a->heads / a->kv_heads);
    double acc[KN_MAX_HEAD_DIM] = {0}, p, ds;

    for (size_t l = kn_attn_behind(job, i); l < kn_attn_seen(job, i); l++) {
        grad_at(&p, &ds, job, grad, delta, head, i, l);
        for (size_t c = 0; c < a->d; c++)
            acc[c] += ds * (double)a->scale *
                      (double)kn_at(a->type, a->k, key_of(job, l, a->ldk, kvh) + c);
    }
    for (size_t c = 0; c < a->d; c++)
        add_to(job, grad->dq, query_of(job, i, grad->lddq, head) + c, acc[c]);
}

static void dkv_row(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                    const float *delta, size_t kvh, size_t l)
{
    const struct kn_attn *a = job->a;
    size_t group = a->heads / a->kv_heads;
    size_t end = kn_attn_forgets(job, l);
    double dk[KN_MAX_HEAD_DIM] = {0}, dv[KN_MAX_HEAD_DIM] = {0}, p, ds;

    for (size_t h = kvh * group; h < (kvh + 1) * group; h++) {
        for (size_t i = job->part->causal ? l : 0; i < end; i++) {
            grad_at(&p, &ds, job, grad, delta, h, i, l);
            for (size_t c = 0; c < a->d; c++)
                dk[c] += ds * (double)a->scale *
                         (double)kn_at(a->type, a->q, query_of(job, i, a->ldq, h) + c);
            for (size_t c = 0; c < a->dv; c++)
                dv[c] += p * (double)kn_at(a->type, grad->d_o, out_of(job, i, grad->lddo, h) + c);
        }
    }
    for (size_t c = 0; c < a->d; c++)
        add_to(job, grad->dk, key_of(job, l, grad->lddk, kvh) + c, dk[c]);
    for (size_t c = 0; c < a->dv; c++)
        add_to(job, grad->dv, value_of(job, l, grad->lddv, kvh) + c, dv[c]);
}

/* job.head is a key/value head here: its keys and values, and the queries of its group. */
void kn_ref_attn_bwd(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                     const float *delta)
{
    const struct kn_attn *a = job->a;
    size_t group = a->heads / a->kv_heads;

    for (size_t h = job->head * group; h < (job->head + 1) * group; h++)
        for (size_t i = 0; i < a->seq; i++)
            dq_row(job, grad, delta, h, i);
    for (size_t l = 0; l < job->part->keys; l++)
        dkv_row(job, grad, delta, job->head, l);
}
