#include "base/base.h"

#include <math.h>

void rng_philox(uint32_t out[4], uint64_t key, uint64_t counter)
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;

        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static double box_muller(double u1, double u2)
{
    return sqrt(-2.0 * log(u1)) * cos(2.0 * M_PI * u2);
}

double rng_normal_at(uint64_t key, uint64_t index)
{
    uint32_t w[4];

    rng_philox(w, key, index);
    return box_muller(((double)w[0] + 1.0) * 0x1p-32, (double)w[1] * 0x1p-32);
}

uint64_t rng_mix(uint64_t bits)
{
    bits += UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

void rng_seed(struct rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        rng->s[i] = rng_mix(seed);
        seed += UINT64_C(0x9e3779b97f4a7c15);
    }
}

static uint64_t rotl(uint64_t bits, int by)
{
    return bits << by | bits >> (64 - by);
}

uint64_t rng_u64(struct rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    uint64_t limit =
        UINT64_MAX - UINT64_MAX % bound; /* a multiple of BOUND: values above it are drawn again */
    uint64_t v;

    do
        v = rng_u64(rng);
    while (v >= limit);
    return v % bound;
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

double rng_normal(struct rng *rng)
{
    double u1 = 1.0 - rng_unit(rng);

    return box_muller(u1, rng_unit(rng));
}
