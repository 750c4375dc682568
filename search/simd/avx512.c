/* The passes for AVX-512. */
#if defined(__AVX512F__)

#define LANES 8
#define PASS(name) name##_avx512
#include "search/simd/passes.inc"

#endif
