/* The list of operations. */
#include "tests/kncheck/checks.h"

const struct kc_op *const kc_ops[] = {
#define KC_ROW(op) &kc_##op,
    KN_BACKEND_OPS(KC_ROW)
#undef KC_ROW
        & kc_xent_loss,
    &kc_xent_z,
    &kc_sort,
    NULL,
};
