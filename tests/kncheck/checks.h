/* The operations that kncheck knows. */
#ifndef TESTS_KNCHECK_CHECKS_H
#define TESTS_KNCHECK_CHECKS_H

#include "tests/kncheck/kncheck.h"

extern const struct kc_op kc_gemm, kc_grouped;
extern const struct kc_op kc_attn_fwd, kc_attn_bwd;

#endif
