/*
 * The weights of one rank: the plan's parameter table (plan/partune.h) with the arrays behind it.
 *
 * All arrays are views into the rank's device memory, laid out as the table says: a bucket's
 * weights and gradients are held whole, or as this rank's shard with a window to work in. State
 * exists only for this rank's shard of each bucket (the whole bucket without zero): element
 * b->state_first + i belongs to flat element b->shard_first + i.
 *
 * Of the ranks that hold an element, the one with the lowest coordinate on every axis that
 * replicates it writes it to a checkpoint; tr_param_state cuts one parameter into the pieces that
 * this rank has state for.
 */
#ifndef TRAINER_PARAM_H
#define TRAINER_PARAM_H

#include "kernels/kernels.h"
#include "plan/plan.h"

struct tr_params {
    struct kn_pool *pool; /* of whose memory the arrays are; NULL: the host's */
    struct pl_params table;
    int rank;
    enum kn_type type; /* of the weights */
    void *weight;      /* (table.weight.count) */
    enum kn_type grad_type;
    void *grad;    /* (table.grad.count) of GRAD_TYPE */
    float *master; /* (table.state_count) fp32 weights; NULL where the weights are fp32 */
    enum pl_optimizer optimizer;
    float *m; /* (table.state_count) first moment, or momentum */
    float *v; /* second moment: as m, or with muon (table.adam_count); NULL with sgd */
    /* (table.n) with muon: element of v that the first one of this rank's state of the parameter
     * has; NULL: v is as m */
    uint64_t *v_at;
    uint8_t
        *group; /* (table.n) group of each parameter (param_groups.h), 0: none; NULL: no groups */
    float *balance; /* the table's fixed rows; NULL without any */
};

/* Weight and gradient slice of parameter INDEX of the table, row-major (local[0], local[1]), where
 * a step computes with them: valid while the bucket has the window, or always without one. */
void *tr_param_weight(const struct tr_params *params, int index);
void *tr_param_grad(const struct tr_params *params, int index);

/* Element AT of the array of gradients that begins at GRAD. */
void *tr_grad_at(const struct tr_params *params, void *grad, uint64_t at);

/* Index in the table, or -1 if this rank does not hold it. expert and layer as in struct pl_param.
 */
int tr_param_find(const struct tr_params *params, enum pl_tensor tensor, int layer, int expert);

/*
 * The part of parameter INDEX that this rank has optimizer state for: elements [*ret_first,
 * *ret_first + n) of the slice (in slice order), whose state starts at *ret_state in m, v and
 * master. Returns n, 0 if none.
 */
uint64_t tr_param_state(uint64_t *ret_first, uint64_t *ret_state, const struct tr_params *params,
                        int index);

/* The part of parameter INDEX whose weights this rank keeps: *ret_first and the result as in
 * tr_param_state(), RET_DATA where they are. All of it, or what is in its shard. */
uint64_t tr_param_kept(uint64_t *ret_first, void **ret_data, const struct tr_params *params,
                       int index);

/* Initial weights: norms 1, biases 0, all else normal with the model's init_std; in models with
 * GELU the projections into the residual stream with init_std / sqrt(2 layers), as Radford et al.
 * 2019 have it ("scale the weights of residual layers by 1 / sqrt(N)", of which a layer has two). A
 * pure function of (seed, name, index in the whole tensor), the same in every layout. Padding is 0.
 * Moments become 0. */
void tr_params_init(struct tr_params *params, const struct pl_model *model, uint64_t seed);

/* After WEIGHT was written from outside (a checkpoint, an import) without master weights: copy this
 * rank's shards of it to MASTER. */
void tr_params_sync_master(struct tr_params *params);

/* Muon orthogonalizes the momentum of parameter INDEX. */
bool tr_param_is_muon(const struct tr_params *params, int index);
/* Element of v of parameter INDEX, whose state on this rank begins at STATE (tr_param_state). Not
 * for what has no second moment. */
uint64_t tr_param_second(const struct tr_params *params, int index, uint64_t state);
/* Lay out v, for muon: once, after the table is there. */
void tr_params_lay_out(struct tr_params *params);

#endif
