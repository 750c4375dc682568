/* The AVX-512 level of the table. */
#include "kernels/ops.h"

void kn_ops_avx512(struct kn_ops *o)
{
    (void)o;
}
