/*
 * Causal attention by its definition, one query row at a time; scores are computed again in each
 * pass instead of being stored.
 */
#include "kernels/ref/ref.h"

/* Row T of head H of the job's sample in a matrix of leading dimension LD: index of its first
 * element. */
static size_t row_of(const struct kn_attn_job *j, size_t t, size_t ld, size_t h)
{
    return (j->sample * j->a->seq + t) * ld + h * j->a->d;
}

static double dot_at(enum kn_type t, const void *x, size_t ix, const void *y, size_t iy, size_t d)
{
    double sum = 0;

    for (size_t c = 0; c < d; c++)
        sum += (double)kn_at(t, x, ix + c) * (double)kn_at(t, y, iy + c);
    return sum;
}

static double score(const struct kn_attn_job *j, size_t h, size_t qi, size_t ki)
{
    const struct kn_attn *a = j->a;
    size_t kvh = h / (a->heads / a->kv_heads);

    return (double)a->scale *
           dot_at(a->type, a->q, row_of(j, qi, a->ldq, h), a->k, row_of(j, ki, a->ldk, kvh), a->d);
}

void kn_ref_attn_fwd(const struct kn_attn_job *j, void *o, size_t ldo, float *lse)
{
    const struct kn_attn *a = j->a;
    size_t kvh = j->head / (a->heads / a->kv_heads);

    for (size_t i = j->q0; i < j->q1; i++) {
        double max = -INFINITY, sum = 0, acc[KN_MAX_HEAD_DIM] = {0};

        for (size_t l = 0; l <= i; l++)
            max = fmax(max, score(j, j->head, i, l));
        for (size_t l = 0; l <= i; l++) {
            double p = exp(score(j, j->head, i, l) - max);

            sum += p;
            for (size_t c = 0; c < a->d; c++)
                acc[c] += p * (double)kn_at(a->type, a->v, row_of(j, l, a->ldv, kvh) + c);
        }
        for (size_t c = 0; c < a->d; c++)
            kn_put(a->type, o, row_of(j, i, ldo, j->head) + c, (float)(acc[c] / sum));
        lse[(j->sample * a->heads + j->head) * a->seq + i] = (float)(max + log(sum));
    }
}

/* p = exp(score - lse) and ds = p (d_o . v - delta), of query I, key L, head H. */
static void grad_at(const struct kn_attn_job *j, const struct kn_attn_grad *g, const float *delta,
                    size_t h, size_t i, size_t l, double *p, double *ds)
{
    const struct kn_attn *a = j->a;
    size_t kvh = h / (a->heads / a->kv_heads);
    double lse = g->lse[(j->sample * a->heads + h) * a->seq + i];
    double dp =
        dot_at(a->type, g->d_o, row_of(j, i, g->lddo, h), a->v, row_of(j, l, a->ldv, kvh), a->d);

    *p = exp(score(j, h, i, l) - lse);
    *ds = *p * (dp - (double)delta[h * a->seq + i]);
}

static void dq_row(const struct kn_attn_job *j, const struct kn_attn_grad *g, const float *delta,
                   size_t h, size_t i)
{
    const struct kn_attn *a = j->a;
    size_t kvh = h / (a->heads / a->kv_heads);
    double acc[KN_MAX_HEAD_DIM] = {0}, p, ds;

    for (size_t l = 0; l <= i; l++) {
        grad_at(j, g, delta, h, i, l, &p, &ds);
        for (size_t c = 0; c < a->d; c++)
            acc[c] +=
                ds * (double)a->scale * (double)kn_at(a->type, a->k, row_of(j, l, a->ldk, kvh) + c);
    }
    for (size_t c = 0; c < a->d; c++)
        kn_put(a->type, g->dq, row_of(j, i, g->lddq, h) + c, (float)acc[c]);
}

static void dkv_row(const struct kn_attn_job *j, const struct kn_attn_grad *g, const float *delta,
                    size_t kvh, size_t l)
{
    const struct kn_attn *a = j->a;
    size_t group = a->heads / a->kv_heads;
    double dk[KN_MAX_HEAD_DIM] = {0}, dv[KN_MAX_HEAD_DIM] = {0}, p, ds;

    for (size_t h = kvh * group; h < (kvh + 1) * group; h++) {
        for (size_t i = l; i < a->seq; i++) {
            grad_at(j, g, delta, h, i, l, &p, &ds);
            for (size_t c = 0; c < a->d; c++) {
                dk[c] += ds * (double)a->scale *
                         (double)kn_at(a->type, a->q, row_of(j, i, a->ldq, h) + c);
                dv[c] += p * (double)kn_at(a->type, g->d_o, row_of(j, i, g->lddo, h) + c);
            }
        }
    }
    for (size_t c = 0; c < a->d; c++) {
        kn_put(a->type, g->dk, row_of(j, l, g->lddk, kvh) + c, (float)dk[c]);
        kn_put(a->type, g->dv, row_of(j, l, g->lddv, kvh) + c, (float)dv[c]);
    }
}

/* job.head is a key/value head here: its keys and values, and the queries of its group. */
void kn_ref_attn_bwd(const struct kn_attn_job *j, const struct kn_attn_grad *g, const float *delta)
{
    const struct kn_attn *a = j->a;
    size_t group = a->heads / a->kv_heads;

    for (size_t h = j->head * group; h < (j->head + 1) * group; h++)
        for (size_t i = 0; i < a->seq; i++)
            dq_row(j, g, delta, h, i);
    for (size_t l = 0; l < a->seq; l++)
        dkv_row(j, g, delta, j->head, l);
}
