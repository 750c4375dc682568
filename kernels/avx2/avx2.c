/* The AVX2 level of the table. */
#include "kernels/ops.h"

void kn_ops_avx2(struct kn_ops *o)
{
    (void)o;
}
