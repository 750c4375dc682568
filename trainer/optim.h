/*
 * From gradients to new weights: reduction over the replicas, global norm, the optimizer of the
 * workload, and with zero 1 the return of the updated shards.
 *
 *   zero 0   all-reduce each bucket over its replicas, every replica updates all of it
 *   zero 1   reduce-scatter over the ranks that share the bucket's state, each updates its shard,
 *            all-gather; where several groups of ranks share it (the plain scope, or `shard`) the
 *            shard is also all-reduced over its copies
 *   zero 2   the same, but the gradients of a layer have been reduced and scattered by each
 *            micro-batch (window.h)
 *   zero 3   the same, and the weights of a layer are gathered when they are used
 */
#ifndef TRAINER_OPTIM_H
#define TRAINER_OPTIM_H

#include "trainer/lr.h"
#include "trainer/param_groups.h"
#include "trainer/rank.h"

struct tr_optim {
    struct tr_lr schedule;
    double weight_decay, beta1, beta2, eps;
    double sgd_momentum, muon_momentum;
    double clip;                          /* 0: none */
    const struct tr_param_groups *groups; /* borrowed; NULL: none (tr_optim_group) */
    int skipped; /* steps so far without an update: bias corrections do not count them */
};

/* What the optimizer needs besides its buffers; after the parameter table is there. */
void tr_optim_init(struct tr_rank *rank);
void tr_optim_done(struct tr_rank *rank);

/* Each parameter of RANK to its group of GROUPS, which tr_optim_step() then gets. */
void tr_optim_group(struct tr_rank *rank, const struct tr_param_groups *groups);

void tr_grads_zero(struct tr_rank *rank);

/* Sum gradients over replicas; returns the global norm, the same on every rank. SUMS (count <= 7)
 * are summed over all ranks on the way. */
double tr_grads_reduce(struct tr_rank *rank, double *sums, int count);

/* Wait until every rank has all weights again: before anything but the next forward pass reads
 * them. */
void tr_optim_settle(struct tr_rank *rank);

/* STEP with gradients of norm NORM, which it may overwrite. Its learning rate is that of STEP, its
 * bias correction that of STEP less optim->skipped. */
void tr_optim_step(struct tr_rank *rank, const struct tr_optim *optim, int step, double norm);

/* In place of tr_optim_step(): weights and moments stay as they are. The routers' balancing bias
 * moves all the same, as it follows the choices and no gradient. */
void tr_optim_skip(struct tr_rank *rank);

#endif
