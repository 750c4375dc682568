/*
 * CUDA's language on the host, as far as this folder uses it: the kernels run as plain C++ on one
 * thread of the operating system, for tests where there is no GPU. Nothing here is fast.
 *
 * Blocks run one after the other. The threads of a block are fibers: each runs until it reaches an
 * exchange of its warp or a barrier of its block, then the next one runs. So a race does not show
 * by chance; instead the order is turned round (shim_reverse), and a kernel that lacks a barrier
 * gives another result. Shared memory is NaN when a block starts and has exactly the size of the
 * launch. A launch aborts, by name, where real hardware would hang or give anything: threads that
 * end or wait elsewhere while others wait at a barrier, warps that are not whole, lanes of one
 * warp in different exchanges, more shared memory than the kernel was allowed. The device's own
 * memory can be touched by launches and copies alone: elsewhere an access is a segmentation fault.
 */
#ifndef KERNELS_CUDA_SHIM_CUH
#define KERNELS_CUDA_SHIM_CUH

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned across = 1, unsigned down = 1, unsigned deep = 1) : x(across), y(down), z(deep)
    {
    }
};

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return uint4{x, y, z, w};
}

static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{x, y, z, w};
}

/* ---- the running thread -------------------------------------------------- */

/* What a lane shows to its warp. */
struct shim_card {
    uint64_t bits;    /* a value of up to 8 bytes */
    uint32_t frag[6]; /* of a matrix instruction */
    const void *row;  /* of a load of matrices */
};

/* The cards of a warp, and what the first lane to look has computed of them for all. */
struct shim_deck {
    shim_card card[32];
    uint64_t sum;
    bool summed;
};

extern dim3 shim_grid, shim_block, shim_block_at, shim_thread_at;
#define gridDim shim_grid
#define blockDim shim_block
#define blockIdx shim_block_at
#define threadIdx shim_thread_at

#define CU_SHARED(type, name) type *name = (type *)shim_shared()

void *shim_shared(void);

enum shim_exchange {
    SHIM_SHUFFLE = 1,
    SHIM_SUM,
    SHIM_BALLOT,
    SHIM_SYNCWARP,
    SHIM_MMA,
    SHIM_LDMATRIX
};

/* Show CARD to the warp; returns the cards of all 32 lanes once each has shown one. They stay until
 * the next exchange but one. */
shim_deck *shim_show(enum shim_exchange what, const shim_card *card);

void __syncthreads(void);

/* Threads from the last to the first, blocks too. */
void shim_reverse(bool reverse);

/* ---- the device's own memory --------------------------------------------- */

/* Zeros; NULL if there is no room. What is freed twice, or with another size, ends the program. */
void *shim_own(size_t bytes);
void shim_own_free(void *memory, size_t bytes);
/* From now on it can be touched, or no longer. */
void shim_own_open(bool open);

/* ---- exchanges of a warp ------------------------------------------------- */

template <typename T> static inline T shim_shuffle(T x, unsigned lane)
{
    shim_card card = {};
    T y;

    static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
    memcpy(&card.bits, &x, sizeof(x));
    memcpy(&y, &shim_show(SHIM_SHUFFLE, &card)->card[lane % 32].bits, sizeof(y));
    return y;
}

template <typename T> static inline T __shfl_sync(unsigned, T x, int lane)
{
    return shim_shuffle(x, (unsigned)lane);
}

template <typename T> static inline T __shfl_xor_sync(unsigned, T x, int mask)
{
    return shim_shuffle(x, (threadIdx.x % 32) ^ (unsigned)mask);
}

/* The sum over the warp, as five exchanges with the lanes 16, 8, 4, 2 and 1 away give it. */
template <typename T> static inline T shim_sum(T x)
{
    shim_card card = {};
    shim_deck *all;
    T sum[32];

    memcpy(&card.bits, &x, sizeof(x));
    all = shim_show(SHIM_SUM, &card);
    if (!all->summed) {
        for (unsigned i = 0; i < 32; i++)
            memcpy(&sum[i], &all->card[i].bits, sizeof(x));
        for (unsigned d = 16; d; d >>= 1)
            for (unsigned i = 0; i < d; i++)
                sum[i] += sum[i + d];
        memcpy(&all->sum, sum, sizeof(x));
        all->summed = true;
    }
    memcpy(sum, &all->sum, sizeof(x));
    return sum[0];
}

static inline unsigned __ballot_sync(unsigned, bool x)
{
    shim_card card = {};
    const shim_deck *all;
    unsigned y = 0;

    card.bits = x;
    all = shim_show(SHIM_BALLOT, &card);
    for (unsigned i = 0; i < 32; i++)
        y |= (unsigned)all->card[i].bits << i;
    return y;
}

static inline void __syncwarp(void)
{
    shim_card card = {};

    shim_show(SHIM_SYNCWARP, &card);
}

/* ---- numbers ------------------------------------------------------------- */

static inline float __uint_as_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, 4);
    return x;
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    return bits;
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

/* To nearest even; a NaN is 0x7fff, as cvt.rn.bf16 gives it. */
static inline uint16_t shim_bf16(float x)
{
    uint32_t bits = __float_as_uint(x);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- matrix instructions (device.cuh says what they do) ------------------- */

struct bf16;
void shim_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void shim_ldmatrix(uint32_t (&y)[4], const bf16 *row, bool transposed);

#include "kernels/cuda/shim_launch.cuh"

#endif
