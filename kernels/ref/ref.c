/* The reference level of the table. */
#include "kernels/ref/ref.h"

void kn_ops_ref(struct kn_ops *ops)
{
#define KN_REF_FILL(op) .op = kn_ref_##op,
    *ops = (struct kn_ops){KN_REF_OPS(KN_REF_FILL)};
#undef KN_REF_FILL
}
