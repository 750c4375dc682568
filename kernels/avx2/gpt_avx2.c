/* LayerNorm and GELU with AVX2. */
#if defined(__AVX2__)

#include "kernels/avx2/vec.h"
#include "kernels/avx2/avx2.h"

#include "kernels/simd/gpt.inc"

#endif
