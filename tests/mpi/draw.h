/* Models that nobody would choose: odd widths, one key for many heads, one expert, one token. */
#ifndef TESTS_MPI_DRAW_H
#define TESTS_MPI_DRAW_H

#include <jansson.h>
#include <stdint.h>

#include "plan/plan.h"

/* At most so much of each. */
enum { DRAW_LAYERS = 6, DRAW_BATCH = 8, DRAW_SEQ = 24, DRAW_TOP_K = 4, DRAW_MTP = 2 };

/* A model's JSON (new reference), a pure function of SEED; every second one has experts. *RET_BATCH
 * is a global batch for it. */
json_t *draw_model(int *ret_batch, uint64_t seed);

/* Coefficient of its output's z-loss, a pure function of SEED: of three models two have none. */
double draw_z_loss(uint64_t seed);

/* What it makes of several documents in a sample, a pure function of SEED: of three models one
 * knows none. */
void draw_documents(struct pl_workload *workload, const struct pl_model *model, uint64_t seed);

#endif
