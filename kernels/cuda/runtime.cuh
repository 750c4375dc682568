/*
 * What a backend needs of the device besides kernels: a stream, memory, copies. runtime.cu has it
 * from CUDA's runtime library, runtime_shim.cpp from the host.
 */
#ifndef KERNELS_CUDA_RUNTIME_CUH
#define KERNELS_CUDA_RUNTIME_CUH

#include <stddef.h>

/* Memory of the device that each stream keeps for sums in stages. */
enum { CU_SCRATCH_BYTES = 32 << 20 };

struct cu_stream;

/* NULL: the device refuses; the reason is on stderr. */
cu_stream *cu_stream_open(void);
void cu_stream_close(cu_stream *stream);
void *cu_stream_handle(const cu_stream *stream); /* a cudaStream_t */
void *cu_stream_scratch(const cu_stream *stream);
/* Results of a few bytes that the host waits for: memory that both see. */
double *cu_stream_result(const cu_stream *stream);
void cu_stream_wait(cu_stream *stream);

void *cu_alloc(size_t bytes); /* of the device: zeros; NULL if there is no room */
void cu_free(void *memory);
void *cu_stage_alloc(size_t bytes); /* of the host, seen by both: zeros; NULL if there is no room */
void cu_stage_free(void *memory, size_t bytes);
void cu_copy(cu_stream *stream, void *to, const void *from, size_t bytes);
void cu_clear(cu_stream *stream, void *to, size_t bytes);

/* Let KERNEL have BYTES of shared memory where that is more than 48 KiB. */
void cu_allow_shared(const void *kernel, size_t bytes);
/* After a launch: a refused one ends the program with the kernel's name. */
void cu_launched(const char *kernel);

#endif
