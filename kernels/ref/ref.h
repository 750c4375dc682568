/* The reference: plain C, sums in double, every function as close to its formula as C allows. */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "kernels/ops.h"

#define KN_REF_DECLARE(op) __typeof__(*((struct kn_ops *)NULL)->op) kn_ref_##op;
KN_REF_OPS(KN_REF_DECLARE)
#undef KN_REF_DECLARE

#endif
