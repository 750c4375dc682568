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

/* Whether a query may see less than causality lets it. */
static inline bool kn_attn_forgetful(const struct kn_attn *attn)
{
    return attn->window > 0 || attn->age;
}

/* How many of these are too far behind for query T, for its window or its document: the first. */
static inline size_t kn_attn_behind(const struct kn_attn_job *job, size_t t)
{
    size_t end = t + job->part->lead + 1, sees = job->a->window ? job->a->window : end, behind;

    if (job->a->age) {
        size_t document = (size_t)job->a->age[kn_attn_q_row(job) + t] + 1;

        sees = document < sees ? document : sees;
    }
    behind = end <= sees ? 0 : end - sees;
    return behind < job->part->keys ? behind : job->part->keys;
}

/* Queries from this one on do not see key L: it is too far behind. What is behind only grows. */
static inline size_t kn_attn_forgets(const struct kn_attn_job *job, size_t l)
{
    size_t sees = 0, forgets = job->a->seq;

    if (!kn_attn_forgetful(job->a))
        return forgets;
    while (sees < forgets) {
        size_t t = sees + (forgets - sees) / 2;

        if (kn_attn_behind(job, t) > l)
            forgets = t;
        else
            sees = t + 1;
    }
    return forgets;
}

/* Of out, dq, dk and dv. */
static inline enum kn_type kn_attn_out_type(const struct kn_attn_job *job)
{
    return job->sums ? KN_F32 : job->a->type;
}

#endif
