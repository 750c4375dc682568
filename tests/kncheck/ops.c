/* The list of operations. */
#include "tests/kncheck/checks.h"

const struct kc_op *const kc_ops[] = {&kc_gemm, &kc_grouped, &kc_attn_fwd, &kc_attn_bwd, NULL};
