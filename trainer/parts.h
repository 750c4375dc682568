/*
 * The checkpoint parts of this rank, from its parameter table: what ckpt.h needs to know of
 * param.h.
 *
 * An element is saved by the rank with coordinate 0 on every axis that replicates it: weights by dp
 * (edp for experts) and, where a tensor is whole on all ranks of a tp group, by tp; optimizer state
 * also by the ranks of a shard's copies under zero_scope plain.
 */
#ifndef TRAINER_PARTS_H
#define TRAINER_PARTS_H

#include "trainer/ckpt.h"
#include "trainer/param.h"

/* WITH_STATE adds the moments and masters. The parts borrow names and arrays of PARAMS. Caller
 * frees. */
struct tr_part *tr_parts(size_t *ret_count, const struct tr_params *params,
                         const struct pl_layout *layout, bool with_state);

#endif
