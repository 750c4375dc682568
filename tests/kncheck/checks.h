/* The operations that kncheck knows. */
#ifndef TESTS_KNCHECK_CHECKS_H
#define TESTS_KNCHECK_CHECKS_H

#include "tests/kncheck/kncheck.h"

/* One for each operation on a pool, and two of the host alone. */
#define KC_DECLARE(op) extern const struct kc_op kc_##op;
KN_BACKEND_OPS(KC_DECLARE)
#undef KC_DECLARE
extern const struct kc_op kc_xent_loss;
extern const struct kc_op kc_xent_z;
extern const struct kc_op kc_sort;

/* How many tokens of its document precede each of SEQ tokens of BATCH samples, (batch seq): random
 * documents of LENGTH tokens on average, the first of which began at most BEFORE tokens before. */
struct arr *kc_ages(struct check *c, size_t batch, size_t seq, size_t length, size_t before);

#endif
