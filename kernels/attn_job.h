/* A pass of attention as an instruction set gets it. Part of ops.h, whose rules hold here too. */
#ifndef KERNELS_ATTN_JOB_H
#define KERNELS_ATTN_JOB_H

#include "kernels/kernels.h"

struct kn_pool;

/* One pass of attention over query rows [q0, q1) of one head of one sample. */
struct kn_attn_job {
    const struct kn_attn *a;
    const struct kn_attn_part *part; /* of all keys: seq, causal, not merged */
    bool sums; /* out, dq, dk and dv are fp32, and the gradients are added to */
    size_t sample, head, q0, q1;
    float *scratch;       /* KN_SCRATCH_BYTES */
    struct kn_pool *pool; /* to poll */
    int thread;
};

/* First row of the job's sample in q and in k, the first query's place in lse for HEAD, and how
 * many keys query T sees, which are the first. */
static inline size_t kn_attn_q_row(const struct kn_attn_job *job)
{
    return job->sample * job->part->q_rows;
}

static inline size_t kn_attn_k_row(const struct kn_attn_job *job)
{
    return job->sample * job->part->k_rows;
}

static inline size_t kn_attn_lse(const struct kn_attn_job *job, size_t head)
{
    return (job->sample * job->a->heads + head) * job->part->q_rows;
}

static inline size_t kn_attn_seen(const struct kn_attn_job *job, size_t t)
{
    return job->part->causal ? t + 1 : job->part->keys;
}

/* How many of these are too far behind for query T's window: the first ones. */
static inline size_t kn_attn_behind(const struct kn_attn_job *job, size_t t)
{
    size_t end = t + job->part->lead + 1, window = job->a->window;
    size_t behind = window == 0 || end <= window ? 0 : end - window;

    return behind < job->part->keys ? behind : job->part->keys;
}

/* Queries from this one on do not see key L: it is too far behind. */
static inline size_t kn_attn_forgets(const struct kn_attn_job *job, size_t l)
{
    size_t end = l + job->a->window;

    if (job->a->window == 0 || end > job->a->seq + job->part->lead)
        return job->a->seq;
    return end > job->part->lead ? end - job->part->lead : 0;
}

/* Of out, dq, dk and dv. */
static inline enum kn_type kn_attn_out_type(const struct kn_attn_job *job)
{
    return job->sums ? KN_F32 : job->a->type;
}

#endif
