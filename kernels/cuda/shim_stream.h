/*
 * A stream of the shim as a library of its device has it, such as a stand-in for NCCL: a count of
 * the operations that the library was asked for, and of those that it has done, in their order. The
 * host reads and writes all but `done`, which belongs to whatever thread of the library works.
 */
#ifndef KERNELS_CUDA_SHIM_STREAM_H
#define KERNELS_CUDA_SHIM_STREAM_H

#include <stdint.h>

enum { SHIM_AFTERS = 16 };

struct shim_stream {
    uint64_t asked, done;    /* done is atomic, asked is the host's */
    void (*meanwhile)(void); /* called while the host waits for the library; NULL: nothing */
    /* What the next operation waits for: so many of another stream. The library empties it. */
    struct shim_after {
        const struct shim_stream *stream;
        uint64_t asked;
    } after[SHIM_AFTERS];
    int afters;
};

#endif
