/*
 * Which layouts a test runs: all legal ones of a model on given numbers of ranks, and of these a
 * covering set. In pairs: every mesh (world, tp, cp, pp, ep, etp) once, and every pair of values of
 * two of the other choices (schedule, recompute, zero, its scope, shard, sp, cp > 1, etp, the five
 * overlap flags, precision with the gradients' type, stages: even or not, with ends that hold
 * layers or none) that some legal layout has. Faults that need two things to meet are then met, in
 * some hundred layouts instead of thousands. In values: every mesh on few ranks, every pair of two
 * degrees of a mesh, and every value of the choices: where the model is one of the two things, in
 * some fifty layouts, each of which has the most pairs that the others lack.
 */
#ifndef TESTS_MPI_COVER_H
#define TESTS_MPI_COVER_H

#include "plan/plan.h"

enum { COVER_MESH_RANKS = 4 }; /* of a set in values: every mesh on at most so many */

struct cover {
    struct pl_layout *l;
    bool *chosen;
    bool pairs; /* the set covers pairs, or values */
    int n, cap;
    int first;  /* so many have gradients in fp32: the others come after them */
    int layers; /* of the model */
};

/* Every legal layout of the bundled trainer with GRADS on WORLD ranks is appended, with even stages
 * and with one other division, drawn. OVERLAPS: 16 combinations of the flags, or 2: all that mean
 * something, and none. The micro-batch is 1 or 2 in turn. */
void cover_enumerate(struct cover *c, const struct pl_model *m, const struct pl_workload *w,
                     int world, int overlaps, enum pl_grad_dtype grads);
/* Mark the covering set, in PAIRS or in values: of the first layouts, then what the others add. */
void cover_choose(struct cover *c, bool pairs);
/* Mark more: on at most RANKS ranks, each (tp, sp, cp, pp, ep, etp, zero, its scope and
 * shard) in fp32. */
void cover_choose_each(struct cover *c, int ranks);
/* How many meshes, pairs and values the list has that the marked layouts lack: counted anew. */
int cover_missing(const struct cover *c);
void cover_done(struct cover *c);

#endif
