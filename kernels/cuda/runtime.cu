/* The device's runtime (runtime.cuh) by CUDA's library. */
#include "kernels/cuda/runtime.cuh"
#include "kernels/cuda/backend.cuh"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cu_stream {
    cudaStream_t handle;
    void *scratch;
    double *result;
    cudaEvent_t point[KN_MARKS];  /* made when first marked */
    cudaEvent_t stamp[KN_STAMPS]; /* likewise; these have times */
    void (*idle)(void *arg);      /* called while the host waits; NULL: it sleeps in the driver */
    void *idle_arg;
};

/* cudaErrorContained, which the headers of CUDA 12 lack and its drivers may return. */
static const cudaError_t CONTAINED = (cudaError_t)226;

/* Errors that are the device's, its bus's or its driver's, not the program's. A GPU that fell off
 * the bus is an unknown error. */
static bool is_loss(cudaError_t error)
{
    return error == cudaErrorECCUncorrectable || error == cudaErrorNvlinkUncorrectable ||
           error == cudaErrorDevicesUnavailable || error == cudaErrorNoDevice ||
           error == cudaErrorSystemNotReady || error == cudaErrorUnknown || error == CONTAINED;
}

/* An error of the device in the middle of a step has no way back: the context is lost. */
static void must(cudaError_t error, const char *what)
{
    char text[192];

    if (error == cudaSuccess)
        return;
    snprintf(text, sizeof(text), "%s: %s (%s)", what, cudaGetErrorString(error),
             cudaGetErrorName(error));
    if (is_loss(error))
        cu_lost(text);
    fprintf(stderr, "cuda: %s\n", text);
    abort();
}

bool cu_device(struct kn_plugin_refusal *ret_why, int index)
{
    size_t unused = 0, all = 0;
    cudaError_t error = cudaSetDevice(index);

    if (error == cudaSuccess)
        error = cudaFree(NULL); /* makes the context */
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&unused, &all);
    if (error == cudaSuccess)
        return cu_has_room(ret_why, unused);
    ret_why->full = error == cudaErrorMemoryAllocation; /* not even the context has room */
    snprintf(ret_why->text, sizeof(ret_why->text), "%s", cudaGetErrorString(error));
    return false;
}

cu_stream *cu_stream_open(bool scratch)
{
    cu_stream *stream = (cu_stream *)calloc(1, sizeof(*stream));
    cudaError_t error = cudaErrorMemoryAllocation;

    if (stream)
        error = cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking);
    if (error == cudaSuccess && scratch)
        error = cudaMalloc(&stream->scratch, CU_SCRATCH_BYTES);
    if (error == cudaSuccess && scratch)
        error = cudaHostAlloc((void **)&stream->result, 4096, cudaHostAllocDefault);
    if (error == cudaSuccess)
        return stream;
    fprintf(stderr, "cuda: a stream: %s\n", cudaGetErrorString(error));
    if (stream)
        cu_stream_close(stream);
    return NULL;
}

void cu_stream_close(cu_stream *stream)
{
    cudaFree(stream->scratch);
    cudaFreeHost(stream->result);
    for (cudaEvent_t point : stream->point)
        if (point)
            cudaEventDestroy(point);
    for (cudaEvent_t stamp : stream->stamp)
        if (stamp)
            cudaEventDestroy(stamp);
    if (stream->handle)
        cudaStreamDestroy(stream->handle);
    free(stream);
}

void *cu_stream_handle(const cu_stream *stream)
{
    return stream->handle;
}

void *cu_stream_scratch(const cu_stream *stream)
{
    return stream->scratch;
}

double *cu_stream_result(const cu_stream *stream)
{
    return stream->result;
}

/* ERROR is that of a question; the next launch would report that the answer was no. */
static bool is_ready(cudaError_t error, const char *what)
{
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return false;
    }
    must(error, what);
    return true;
}

void cu_stream_set_idle(cu_stream *stream, void (*fn)(void *arg), void *arg)
{
    stream->idle = fn;
    stream->idle_arg = arg;
}

void cu_stream_wait(cu_stream *stream)
{
    while (stream->idle && !is_ready(cudaStreamQuery(stream->handle), "wait"))
        stream->idle(stream->idle_arg);
    must(cudaStreamSynchronize(stream->handle), "wait");
}

void cu_stream_mark(cu_stream *stream, unsigned n)
{
    if (!stream->point[n])
        must(cudaEventCreateWithFlags(&stream->point[n], cudaEventDisableTiming), "an event");
    must(cudaEventRecord(stream->point[n], stream->handle), "mark");
}

void cu_stream_follow(cu_stream *follower, cu_stream *stream, unsigned n)
{
    if (stream->point[n])
        must(cudaStreamWaitEvent(follower->handle, stream->point[n], 0), "follow");
}

bool cu_stream_reached(cu_stream *stream, unsigned n)
{
    return !stream->point[n] || is_ready(cudaEventQuery(stream->point[n]), "a mark");
}

void cu_stream_stamp(cu_stream *stream, unsigned n)
{
    if (!stream->stamp[n])
        must(cudaEventCreate(&stream->stamp[n]), "an event");
    must(cudaEventRecord(stream->stamp[n], stream->handle), "stamp");
}

bool cu_stream_stamped(uint64_t *ret_ns, cu_stream *stream, unsigned from, unsigned to)
{
    float ms = 0;
    cudaError_t error = cudaEventElapsedTime(&ms, stream->stamp[from], stream->stamp[to]);

    if (!is_ready(error, "the time between stamps"))
        return false;
    *ret_ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return true;
}

void *cu_alloc(size_t bytes)
{
    void *memory = NULL;

    if (cudaHostAlloc(&memory, bytes + !bytes, cudaHostAllocPortable) != cudaSuccess) {
        (void)cudaGetLastError(); /* the error is reported by the NULL, not by the next launch */
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

void cu_free(void *memory)
{
    must(cudaFreeHost(memory), "free");
}

void *cu_alloc_own(size_t bytes)
{
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, bytes + !bytes);

    if (error == cudaSuccess)
        error = cudaMemset(memory, 0, bytes);
    if (error == cudaSuccess)
        error = cudaDeviceSynchronize(); /* streams do not wait for the one that cleared it */
    if (error == cudaSuccess)
        return memory;
    fprintf(stderr, "cuda: %zu bytes of the GPU's memory: %s\n", bytes, cudaGetErrorString(error));
    cudaFree(memory);
    (void)cudaGetLastError();
    return NULL;
}

void cu_free_own(void *memory, size_t)
{
    must(cudaFree(memory), "free");
}

size_t cu_unused_own(void)
{
    size_t unused = 0, all = 0;

    return cudaMemGetInfo(&unused, &all) == cudaSuccess ? unused : 0;
}

void cu_copy(cu_stream *stream, void *to, const void *from, size_t bytes)
{
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->handle), "copy");
}

void cu_clear(cu_stream *stream, void *to, size_t bytes)
{
    must(cudaMemsetAsync(to, 0, bytes, stream->handle), "zero");
}

struct kn_graph {
    cudaGraphExec_t exec;
};

/* Other threads of the program do what they like meanwhile; this one's stream keeps all. */
void cu_graph_begin(cu_stream *stream)
{
    must(cudaStreamBeginCapture(stream->handle, cudaStreamCaptureModeThreadLocal), "a graph");
}

kn_graph *cu_graph_end(cu_stream *stream)
{
    kn_graph *ret = (kn_graph *)calloc(1, sizeof(*ret));
    cudaGraph_t graph = NULL;

    if (!ret)
        abort();
    must(cudaStreamEndCapture(stream->handle, &graph), "a graph");
    must(cudaGraphInstantiate(&ret->exec, graph, 0), "a graph");
    must(cudaGraphDestroy(graph), "a graph");
    return ret;
}

void cu_graph_launch(cu_stream *stream, kn_graph *graph)
{
    must(cudaGraphLaunch(graph->exec, stream->handle), "a graph");
}

void cu_graph_free(kn_graph *graph)
{
    must(cudaGraphExecDestroy(graph->exec), "free");
    free(graph);
}

void cu_allow_shared(const void *kernel, size_t bytes)
{
    if (bytes > 48 << 10)
        must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
             "shared memory");
}

void cu_failed(const char *what, const char *why)
{
    must(cudaDeviceSynchronize(), what); /* what the device says of itself comes first */
    fprintf(stderr, "cuda: %s: %s\n", what, why);
    abort();
}

void cu_launched(const char *kernel)
{
    must(cudaGetLastError(), kernel);
}
