/* The operations that kncheck knows. */
#ifndef TESTS_KNCHECK_CHECKS_H
#define TESTS_KNCHECK_CHECKS_H

#include "tests/kncheck/kncheck.h"

/* One for each operation on a pool, and two of the host alone. */
#define KC_DECLARE(op) extern const struct kc_op kc_##op;
KN_BACKEND_OPS(KC_DECLARE)
#undef KC_DECLARE
extern const struct kc_op kc_xent_loss;
extern const struct kc_op kc_sort;

#endif
