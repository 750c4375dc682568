/*
 * Private to the files of the optimizers and to layer_log.c: runs of elements that one call
 * updates.
 */
#ifndef TRAINER_OPTIM_PARTS_H
#define TRAINER_OPTIM_PARTS_H

#include "trainer/optim.h"

/* A step under way. */
struct tr_update {
    struct tr_rank *rank;
    const struct tr_optim *optim;
    double lr[TR_PARAM_GROUPS_MAX + 1]; /* of the groups by number, and (0) of all else */
    float grad_scale;                   /* clips */
    int step;
};

/* Elements [first, first + count) of the shard of a bucket, of one parameter or of neighbors that
 * are treated alike. */
struct tr_span_of {
    const struct pl_bucket *bucket;
    uint64_t first, count;
    uint64_t second;  /* their place in the second moments, where they have some */
    bool decay, muon; /* a matrix; one that muon orthogonalizes */
    int group;
};

/* (count) each */
struct tr_span_arrays {
    float *w;     /* masters, or fp32 weights */
    kn_bf16 *low; /* bf16 weights, or NULL */
    float *m, *v; /* v: NULL where there is no second moment */
    void *g;      /* of the gradients' type; fp32 but for adamw */
};

typedef void tr_span_fn(struct tr_update *update, const struct tr_span_of *span);
/* Parameters [FROM, END) of the table, all those of a bucket. */
typedef void tr_bucket_fn(struct tr_update *update, int from, int end);

void tr_span_arrays(struct tr_span_arrays *ret, const struct tr_rank *rank,
                    const struct tr_span_of *span);
/* What this rank updates of parameter INDEX; false: nothing. */
bool tr_span_of_param(struct tr_span_of *ret, const struct tr_params *params, int index);
/* Of the ranks that have the same shard of BUCKET, this one counts it. */
bool tr_bucket_speaks(const struct tr_rank *rank, const struct pl_bucket *bucket);
/* FN for the longest spans of parameters [FROM, END). */
void tr_optim_spans(struct tr_update *update, int from, int end, tr_span_fn *fn);
/* The weight decay of SPAN. */
double tr_update_decay(const struct tr_update *update, const struct tr_span_of *span);
struct kn_adamw tr_update_adamw(const struct tr_update *update, const struct tr_span_of *span);
void tr_optim_adamw(struct tr_update *update, const struct tr_span_of *span);

/* LAMB: directions and norms of all parameters; returns what then steps. */
tr_bucket_fn *tr_lamb_begin(struct tr_update *update);
/* Muon: the whole step; what it returns has nothing left to do. */
tr_bucket_fn *tr_muon_begin(struct tr_update *update);
/* How many numbers rank->tensor_norms holds. */
size_t tr_lamb_norms(const struct pl_model *model);

#endif
