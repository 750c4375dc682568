/*
 * Sums in another order that no order of samples or units (reorder.h) gives: over the tokens of a
 * sample, which context parallelism divides, and over what tensor parallelism does, the vocabulary
 * among it. Products of matrices add up their terms in a drawn order, those of experts over tokens
 * only, and attention meets the keys before a drawn token and those from it on separately and
 * merges the two, as ring attention does with chunks.
 */
#ifndef TESTS_MPI_ORDERS_H
#define TESTS_MPI_ORDERS_H

#include "kernels/kernels.h"

/* The host's backend (borrowed, one at a time, for one thread) with orders drawn from SEED.
 * Operands have at most the sizes of draw.h. */
const struct kn_backend *orders_backend(uint64_t seed);

#endif
