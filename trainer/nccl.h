/*
 * Collectives between GPUs by NVIDIA's library (NCCL, nccl_comms.h): those of a group whose arrays
 * lie in the GPU's own memory (trainer/coll.h, trainer/async.h). Messages between two ranks are in
 * link.h; all else stays with MPI.
 *
 * They are launched, not waited for: on the stream of the rank's pool, in the order of its
 * operations, or aside, on a second stream that follows it. Every member launches the collectives
 * of a group in one order, that of the program.
 *
 * Blocks of a group are those of tr_block(); where they differ in size, a reduction to each block's
 * owner, or a broadcast from it, takes the place of one call.
 */
#ifndef TRAINER_NCCL_H
#define TRAINER_NCCL_H

#include "trainer/comm.h"

/* A communicator for each group of COMMS with several members, where tr_nccl_open() has the
 * library. Collective, when groups and staging are set up. */
void tr_nccl_init(struct tr_comms *comms, tr_fail_fn *fail);
void tr_nccl_done(struct tr_comms *comms);

/* Its version, as 10000 major + 100 minor + patch; 0: it is not used. */
int tr_nccl_version(const struct tr_comms *comms);

/* Does NCCL move ARRAY of GROUP? */
bool tr_nccl_takes(const struct tr_group *group, const void *array);

/* As the functions of trainer/coll.h; ASIDE: on the second stream. */
void tr_nccl_reduce_scatter(struct tr_group *group, enum kn_type type, void *buf, uint64_t count,
                            bool aside);
void tr_nccl_all_gather(struct tr_group *group, enum kn_type type, void *buf, uint64_t count,
                        bool aside);
void tr_nccl_all_reduce(struct tr_group *group, enum kn_type type, void *buf, uint64_t count);

/* The pool of the second stream, for operations that follow on a collective. */
struct kn_pool *tr_nccl_aside(const struct tr_comms *comms);

#endif
