/* The passes for AVX2. */
#if defined(__AVX2__)

#define LANES 4
#define PASS(name) name##_avx2
#include "search/simd/passes.inc"

#endif
