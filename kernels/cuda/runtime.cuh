/*
 * What a backend needs of the device besides kernels: a stream, memory, copies. runtime.cu has it
 * from CUDA's runtime library, runtime_shim.cpp from the host.
 */
#ifndef KERNELS_CUDA_RUNTIME_CUH
#define KERNELS_CUDA_RUNTIME_CUH

#include <stddef.h>
#include <stdint.h>

/* Memory of the device that each stream keeps for sums in stages. */
enum { CU_SCRATCH_BYTES = 32 << 20 };

/* The version of the runtime library, and the lowest compute capability that has code. */
#ifdef CUDART_VERSION
#define CU_RUNTIME_VERSION CUDART_VERSION
#else
#define CU_RUNTIME_VERSION 13000
#endif
#define CU_OLDEST_GPU 80

struct cu_stream;

struct kn_plugin_refusal; /* plugin.h */
/* Use GPU INDEX from here on; false: it refuses. */
bool cu_device(struct kn_plugin_refusal *ret_why, int index);

/* The device fails in the middle of the work: WHAT, with the operation. Does not return. */
void cu_lost(const char *what);

/* With scratch memory, or for a library of the device alone. NULL: the device refuses; the reason
 * is on stderr. */
cu_stream *cu_stream_open(bool scratch);
void cu_stream_close(cu_stream *stream);
void *cu_stream_handle(const cu_stream *stream); /* a cudaStream_t */
void *cu_stream_scratch(const cu_stream *stream);
/* Results of a few bytes that the host waits for: memory that both see. */
double *cu_stream_result(const cu_stream *stream);
void cu_stream_wait(cu_stream *stream);
/* As kn_pool_set_idle, kn_mark, kn_follow and kn_reached. */
void cu_stream_set_idle(cu_stream *stream, void (*fn)(void *arg), void *arg);
void cu_stream_mark(cu_stream *stream, unsigned n);
void cu_stream_follow(cu_stream *follower, cu_stream *stream, unsigned n);
bool cu_stream_reached(cu_stream *stream, unsigned n);
/* As kn_stamp and kn_stamped. */
void cu_stream_stamp(cu_stream *stream, unsigned n);
bool cu_stream_stamped(uint64_t *ret_ns, cu_stream *stream, unsigned from, unsigned to);

/* Zeros; NULL if there is no room. Pinned memory of the host: kernels reach it through the bus. */
void *cu_alloc(size_t bytes);
void cu_free(void *memory);
/* The same of the device's memory. */
void *cu_alloc_own(size_t bytes);
void cu_free_own(void *memory, size_t bytes);
size_t cu_unused_own(void); /* bytes; 0: unknown */
void cu_copy(cu_stream *stream, void *to, const void *from, size_t bytes);
void cu_clear(cu_stream *stream, void *to, size_t bytes);

/* As kn_graph_begin, kn_graph_end, kn_graph_launch and kn_graph_free. */
struct kn_graph;
void cu_graph_begin(cu_stream *stream);
kn_graph *cu_graph_end(cu_stream *stream);
void cu_graph_launch(cu_stream *stream, kn_graph *graph);
void cu_graph_free(kn_graph *graph);

/* Let KERNEL have BYTES of shared memory where that is more than 48 KiB. */
void cu_allow_shared(const void *kernel, size_t bytes);
/* A library of the device failed at WHAT, for the reason WHY. Does not return. */
[[noreturn]] void cu_failed(const char *what, const char *why);
/* After a launch: a failed one ends the program with the kernel's name. */
void cu_launched(const char *kernel);

#endif
