/*
 * Random numbers.
 *
 * The counter-based form is a pure function of (key, counter): every rank can compute element I of
 * tensor KEY alone, so a model's initial weights do not depend on the layout. Philox 4x32-10,
 * Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11.
 *
 * The stream form is xoshiro256** seeded by splitmix64 (Blackman and Vigna).
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* Four 32-bit words for one counter. */
void rng_philox(uint32_t out[4], uint64_t key, uint64_t counter);

/* Standard normal deviate number INDEX of stream KEY (Box-Muller over philox). */
double rng_normal_at(uint64_t key, uint64_t index);

struct rng {
    uint64_t s[4];
};

void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_u64(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t bound); /* uniform in [0, bound), without bias */
double rng_unit(struct rng *rng);                    /* uniform in [0, 1) */
double rng_normal(struct rng *rng);

/* A well mixed 64-bit function of BITS, for keys. */
uint64_t rng_mix(uint64_t bits);

#endif
