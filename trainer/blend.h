/*
 * Which of several sources gives sample I of the training order: Megatron-LM's rule
 * (build_blending_indices, megatron/core/datasets/helpers.cpp) in whole numbers.
 *
 * Source k has the share w_k, and S is the sum of the shares. Sample I comes from the source with
 * the largest
 *
 *     error_k = w_k max(I, 1) - S taken_k
 *
 * where taken_k counts its samples before I; of equal ones, from the first. Megatron has w_k / S as
 * a double, so there rounding may decide between equal errors; here nothing is rounded.
 *
 * The rule has the period S, so that any I is found without the ones before. The errors add up to
 * 0, so the largest is not negative, and each stays above -S: the chosen one loses S and gains w_k.
 * After S samples each error is a multiple of S; above -S and adding up to 0, all are 0. What
 * follows from there is the same each time; only the first S samples may differ from it, because
 * of the max. So a table of 2 S samples has all: 5 bytes each, 10 MB at most.
 */
#ifndef TRAINER_BLEND_H
#define TRAINER_BLEND_H

#include <stdint.h>

#include "base/mem.h"

/* Sum of the shares at most; a share is a whole number from 1. */
enum { TR_BLEND_SUM = 1100000 };

struct tr_blend;

/* COUNT shares, 1 to 255. Time is that of 2 S COUNT comparisons. */
struct tr_blend *tr_blend_new(const uint32_t *share, int count);
struct tr_blend *tr_blend_free(struct tr_blend *blend);

AUTO_DEFINE(tr_blend)

/* The source of sample INDEX (any 64-bit number); RET_OWN: how many samples it has given before. */
int tr_blend_at(uint64_t *ret_own, const struct tr_blend *blend, uint64_t index);

/* The longest run of samples from 0 on that takes at most HAVE[k] from source k. */
uint64_t tr_blend_until(const struct tr_blend *blend, const uint64_t *have);

#endif
