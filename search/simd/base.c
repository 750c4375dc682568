/* The passes for what every processor has. */
#include "search/simd/passes.inc"
