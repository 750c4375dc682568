/* LayerNorm and GELU with AVX-512. */
#if defined(__AVX512F__)

#include "kernels/avx512/vec.h"
#include "kernels/avx512/avx512.h"

#include "kernels/simd/gpt.inc"

#endif
