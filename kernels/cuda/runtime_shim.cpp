/* The device's runtime (runtime.cuh) on the host, for the shim. */
#include "kernels/cuda/runtime.cuh"
#include "kernels/cuda/backend.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/shim_stream.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vector>

struct cu_stream {
    shim_stream seen; /* first: a library of the device takes the stream as this */
    void *scratch;    /* NULL: the stream is for such a library */
    double result[8];
    uint64_t stamp[KN_STAMPS];
    uint64_t point[KN_MARKS]; /* operations of that library that were asked for before it */
    void (*idle)(void *arg);
    void *idle_arg;
};

static size_t taken;

/* STANDIN_FREE: bytes of the GPU that are free at first. */
size_t cu_unused_own(void)
{
    const char *word = getenv("STANDIN_FREE");
    size_t bytes = word ? strtoull(word, NULL, 10) : 0;

    return bytes > taken ? bytes - taken : 0;
}

bool cu_device(struct kn_plugin_refusal *ret_why, int)
{
    return cu_has_room(ret_why, cu_unused_own() ? cu_unused_own() : SIZE_MAX);
}

cu_stream *cu_stream_open(bool scratch)
{
    cu_stream *stream = (cu_stream *)calloc(1, sizeof(*stream));

    if (!stream)
        abort();
    if (scratch) {
        stream->scratch = malloc(CU_SCRATCH_BYTES);
        taken += CU_SCRATCH_BYTES;
    }
    return stream;
}

void cu_stream_close(cu_stream *stream)
{
    taken -= stream->scratch ? CU_SCRATCH_BYTES : 0;
    free(stream->scratch);
    free(stream);
}

void *cu_stream_handle(const cu_stream *stream)
{
    return (void *)&stream->seen;
}

void *cu_stream_scratch(const cu_stream *stream)
{
    memset(stream->scratch, 0xff, 1 << 16); /* what was in it before is no result */
    return stream->scratch;
}

double *cu_stream_result(const cu_stream *stream)
{
    return (double *)stream->result;
}

void cu_stream_set_idle(cu_stream *stream, void (*fn)(void *arg), void *arg)
{
    stream->idle = fn;
    stream->idle_arg = arg;
}

static bool done(const cu_stream *stream, uint64_t asked)
{
    return __atomic_load_n(&stream->seen.done, __ATOMIC_ACQUIRE) >= asked;
}

/* Until the library has done the first ASKED operations on STREAM, for which WAITER waits. */
static void await(const cu_stream *waiter, const cu_stream *stream, uint64_t asked)
{
    while (!done(stream, asked)) {
        if (waiter->idle)
            waiter->idle(waiter->idle_arg);
        if (stream->seen.meanwhile)
            stream->seen.meanwhile();
        sched_yield();
    }
}

/* ---- graphs -------------------------------------------------------------- */

struct kn_graph {
    std::vector<std::function<void(void)>> operations;
};

static const cu_stream *captured; /* NULL: none */
static kn_graph *capture;
static unsigned long graph_launches;

static void say(void)
{
    if (graph_launches)
        fprintf(stderr, "shim: %lu launches of graphs\n", graph_launches);
}

bool shim_keep(const void *stream, const std::function<void(void)> &operation)
{
    if (!captured || stream != captured)
        return false;
    capture->operations.push_back(operation);
    return true;
}

/* CUDA refuses WHAT on a stream that is captured, or would make of it what nobody expects. */
static void not_captured(const cu_stream *stream, const char *what)
{
    if (captured == stream)
        cu_failed(what, "its stream is captured");
}

void cu_graph_begin(cu_stream *stream)
{
    not_captured(stream, "a graph");
    captured = stream;
    capture = new kn_graph;
}

kn_graph *cu_graph_end(cu_stream *stream)
{
    if (captured != stream)
        cu_failed("a graph", "its stream is not captured");
    captured = NULL;
    return capture;
}

void cu_graph_launch(cu_stream *stream, kn_graph *graph)
{
    static const bool says = getenv("STANDIN_SAYS") && atexit(say) == 0;

    not_captured(stream, "a graph's launch");
    graph_launches += says;
    for (const auto &operation : graph->operations)
        operation();
}

void cu_graph_free(kn_graph *graph)
{
    delete graph;
}

/* ---- waits --------------------------------------------------------------- */

void cu_stream_wait(cu_stream *stream)
{
    not_captured(stream, "a wait");
    await(stream, stream, stream->seen.asked);
}

void cu_stream_mark(cu_stream *stream, unsigned n)
{
    not_captured(stream, "a mark");
    stream->point[n] = stream->seen.asked;
}

/* Kernels run when they are launched, so the host waits in place of their stream. */
void cu_stream_follow(cu_stream *follower, cu_stream *stream, unsigned n)
{
    shim_stream *seen = &follower->seen;
    int i = 0;

    not_captured(follower, "a mark of another stream");
    if (follower->scratch) {
        await(follower, stream, stream->point[n]);
        return;
    }
    while (i < seen->afters && seen->after[i].stream != &stream->seen)
        i++;
    if (i == SHIM_AFTERS)
        cu_failed("the shim", "a stream follows more streams than SHIM_AFTERS");
    if (i == seen->afters)
        seen->after[seen->afters++] = {&stream->seen, 0};
    if (seen->after[i].asked < stream->point[n])
        seen->after[i].asked = stream->point[n];
}

bool cu_stream_reached(cu_stream *stream, unsigned n)
{
    return done(stream, stream->point[n]);
}

void cu_stream_stamp(cu_stream *stream, unsigned n)
{
    struct timespec now;

    not_captured(stream, "a stamp");
    clock_gettime(CLOCK_MONOTONIC, &now);
    stream->stamp[n] = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

bool cu_stream_stamped(uint64_t *ret_ns, cu_stream *stream, unsigned from, unsigned to)
{
    *ret_ns = stream->stamp[to] - stream->stamp[from];
    return true;
}

void *cu_alloc(size_t bytes)
{
    return calloc(1, bytes + !bytes);
}

void cu_free(void *memory)
{
    free(memory);
}

void *cu_alloc_own(size_t bytes)
{
    taken += bytes;
    return shim_own(bytes + !bytes);
}

void cu_free_own(void *memory, size_t bytes)
{
    taken -= bytes;
    shim_own_free(memory, bytes + !bytes);
}

static void perform(cu_stream *stream, const std::function<void(void)> &operation)
{
    auto run = [=] {
        shim_own_open(true);
        operation();
        shim_own_open(false);
    };

    if (!shim_keep(stream, run))
        run();
}

void cu_copy(cu_stream *stream, void *to, const void *from, size_t bytes)
{
    perform(stream, [=] { memcpy(to, from, bytes); });
}

void cu_clear(cu_stream *stream, void *to, size_t bytes)
{
    perform(stream, [=] { memset(to, 0, bytes); });
}

void cu_allow_shared(const void *kernel, size_t bytes)
{
    if (bytes > 48 << 10) /* as in runtime.cu */
        shim_allow(kernel, bytes);
}

void cu_failed(const char *what, const char *why)
{
    fprintf(stderr, "cuda: %s: %s\n", what, why);
    abort();
}

/* STANDIN_LOST=N: the GPU is lost at the Nth launch. */
void cu_launched(const char *kernel)
{
    static const char *const word = getenv("STANDIN_LOST");
    static long launches;
    char text[160];

    if (!word || ++launches != atol(word))
        return;
    snprintf(text, sizeof(text), "%s: uncorrectable ECC error encountered", kernel);
    cu_lost(text);
}
