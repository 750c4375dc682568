/*
 * The same model with its units in another order.
 *
 * A transformer does not change when the coordinates of the residual stream, the groups of heads
 * that share keys and values, or the units of an MLP are renumbered, as long as every matrix
 * follows. What changes is the order in which every product, forward and backward, and every norm
 * adds up.
 */
#ifndef TESTS_MPI_REORDER_H
#define TESTS_MPI_REORDER_H

#include "trainer/param.h"

/* Renumber the units of whole weights (one rank), by permutations drawn from SEED; fresh master
 * weights follow. */
void reorder_units(struct tr_params *t, const struct pl_model *m, uint64_t seed);

/* Gradients in bf16, of one rank, with one rounding more: one in twelve elements, drawn from SEED,
 * moves by a unit of its last place, so that the variance is a rounding's, 1/12. Returns the norm.
 */
double reorder_roundings(struct tr_params *params, uint64_t seed);

#endif
