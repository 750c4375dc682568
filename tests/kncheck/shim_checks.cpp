/*
 * The shim's checks: shim_checks CASE breaks the rule of that name, and the shim has to notice
 * (shim_checks.sh). "right" breaks none.
 */
#include "kernels/cuda/ops.cuh"

#include <signal.h>
#include <unistd.h>

static constexpr unsigned BLOCK = 64, LARGE = 60 << 10;
static float *own;       /* (BLOCK) of the device's memory */
static float got[BLOCK]; /* what a kernel has found */

/* ---- kernels ------------------------------------------------------------- */

static __global__ void turn(float *to, bool barrier)
{
    CU_SHARED(float, kept);

    kept[threadIdx.x] = (float)threadIdx.x;
    if (barrier)
        __syncthreads();
    to[threadIdx.x] = kept[BLOCK - 1 - threadIdx.x];
}

static __global__ void leave_early(float *to)
{
    if (threadIdx.x == 5)
        return;
    __syncthreads();
    to[threadIdx.x] = 1;
}

static __global__ void part(float *to)
{
    if (threadIdx.x % CU_WARP < 16)
        to[threadIdx.x] = __shfl_sync(CU_ALL, 1.0f, 0);
    else
        __syncwarp();
}

static __global__ void load(float *to, const bf16 *from)
{
    uint32_t y[4];

    shim_ldmatrix(y, from + threadIdx.x, false);
    to[threadIdx.x] = __uint_as_float(y[0]);
}

static __global__ void nothing(float *)
{
}

static __global__ void touch(float *to)
{
    to[threadIdx.x] = 1;
}

/* ---- cases --------------------------------------------------------------- */

static void launch(void (*kernel)(float *), unsigned x, unsigned y, unsigned threads, size_t shared)
{
    CU_LAUNCH(kernel, dim3(x, y), dim3(threads), shared, NULL, own);
}

/* How often lanes found what another one had written. */
static unsigned turned(bool barrier, bool reverse)
{
    unsigned right = 0;

    shim_reverse(reverse);
    CU_LAUNCH(turn, dim3(1), dim3(BLOCK), BLOCK * sizeof(float), NULL, own, barrier);
    cu_copy(NULL, got, own, sizeof(got));
    for (unsigned i = 0; i < BLOCK; i++)
        right += got[i] >= 0 && (unsigned)got[i] == BLOCK - 1 - i; /* a NaN is not */
    return right;
}

static void right(void)
{
    if (turned(true, false) == BLOCK && turned(true, true) == BLOCK)
        printf("as it should be\n");
}

/* Whatever the order of threads, some find what nobody has written yet. */
static void no_barrier(void)
{
    if (turned(false, false) < BLOCK && turned(false, true) < BLOCK)
        fprintf(stderr, "a missing barrier shows\n");
    abort();
}

static void left_barrier(void)
{
    launch(leave_early, 1, 1, BLOCK, 0);
}

static void parted_warp(void)
{
    launch(part, 1, 1, BLOCK, 0);
}

static void unaligned_matrix(void)
{
    CU_LAUNCH(load, dim3(1), dim3(CU_WARP), 0, NULL, own, (const bf16 *)own);
}

static void broken_warp(void)
{
    launch(nothing, 1, 1, 33, 0);
}

static void many_threads(void)
{
    launch(nothing, 1, 1, 2048, 0);
}

static void no_block(void)
{
    launch(nothing, 0, 1, BLOCK, 0);
}

static void tall_grid(void)
{
    launch(nothing, 1, 65536, BLOCK, 0);
}

static void shared_beyond_any(void)
{
    cu_allow_shared((const void *)nothing, 1 << 20);
    launch(nothing, 1, 1, BLOCK, 1 << 20);
}

static void shared_not_allowed(void)
{
    launch(nothing, 1, 1, BLOCK, LARGE);
}

static void shared_allowed_to_another(void)
{
    cu_allow_shared((const void *)touch, LARGE);
    launch(nothing, 1, 1, BLOCK, LARGE);
}

static void host_access(void)
{
    *(volatile float *)own = 1;
}

/* A launch before it has made the stacks, which else may take the place of what is freed. */
static void use_after_free(void)
{
    float *at = own;

    CU_LAUNCH(touch, dim3(1), dim3(BLOCK), 0, NULL, at);
    cu_free_own(own, BLOCK * sizeof(float));
    CU_LAUNCH(touch, dim3(1), dim3(BLOCK), 0, NULL, at);
}

static void freed_twice(void)
{
    cu_free_own(own, BLOCK * sizeof(float));
    cu_free_own(own, BLOCK * sizeof(float));
}

static void freed_size(void)
{
    cu_free_own(own, 2 * BLOCK * sizeof(float));
}

static void foreign_free(void)
{
    cu_free_own(got, sizeof(got));
}

static void too_many_marks(void)
{
    cu_stream *follower = cu_stream_open(false);

    for (int i = 0; i < 40; i++) {
        cu_stream *stream = cu_stream_open(false);

        cu_stream_mark(stream, 0);
        cu_stream_follow(follower, stream, 0);
    }
}

/* The same launch twice from a graph, and its arguments are those of the capture. */
static bool replayed(void)
{
    cu_stream *stream = cu_stream_open(false);
    float *to = own;
    bool kept = true;
    kn_graph *graph;

    cu_clear(NULL, own, BLOCK * sizeof(float));
    cu_graph_begin(stream);
    CU_LAUNCH(touch, dim3(1), dim3(BLOCK), 0, stream, to);
    cu_copy(stream, got, own, sizeof(got));
    graph = cu_graph_end(stream);
    to = NULL;
    for (int times = 0; times < 2; times++) {
        memset(got, 0, sizeof(got));
        cu_graph_launch(stream, graph);
        kept &= got[0] > 0.5f && got[BLOCK - 1] > 0.5f;
    }
    cu_graph_free(graph);
    cu_stream_close(stream);
    return kept;
}

/* What is captured is not done. */
static bool only_kept(void)
{
    cu_stream *stream = cu_stream_open(false);

    got[0] = 1;
    cu_clear(NULL, own, BLOCK * sizeof(float));
    cu_graph_begin(stream);
    CU_LAUNCH(touch, dim3(1), dim3(BLOCK), 0, stream, own);
    cu_graph_free(cu_graph_end(stream));
    cu_copy(stream, got, own, sizeof(got));
    cu_stream_close(stream);
    return got[0] < 0.5f;
}

static void right_graph(void)
{
    if (replayed() && only_kept())
        printf("as it should be\n");
}

static cu_stream *captured_stream(void)
{
    cu_stream *stream = cu_stream_open(true);

    cu_graph_begin(stream);
    return stream;
}

static void captured_wait(void)
{
    cu_stream_wait(captured_stream());
}

static void captured_mark(void)
{
    cu_stream_mark(captured_stream(), 0);
}

static void captured_follow(void)
{
    cu_stream_follow(captured_stream(), cu_stream_open(false), 0);
}

static void captured_stamp(void)
{
    cu_stream_stamp(captured_stream(), 0);
}

static void captured_twice(void)
{
    cu_graph_begin(captured_stream());
}

static void captured_launch(void)
{
    cu_stream *stream = cu_stream_open(false);
    kn_graph *graph;

    cu_graph_begin(stream);
    graph = cu_graph_end(stream);
    cu_graph_begin(stream);
    cu_graph_launch(stream, graph);
}

static void not_captured(void)
{
    (void)cu_graph_end(cu_stream_open(false));
}

static void failed_library(void)
{
    cu_failed("a library", "fails");
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"right", right},
    {"no_barrier", no_barrier},
    {"left_barrier", left_barrier},
    {"parted_warp", parted_warp},
    {"unaligned_matrix", unaligned_matrix},
    {"broken_warp", broken_warp},
    {"many_threads", many_threads},
    {"no_block", no_block},
    {"tall_grid", tall_grid},
    {"shared_beyond_any", shared_beyond_any},
    {"shared_not_allowed", shared_not_allowed},
    {"shared_allowed_to_another", shared_allowed_to_another},
    {"host_access", host_access},
    {"use_after_free", use_after_free},
    {"freed_twice", freed_twice},
    {"freed_size", freed_size},
    {"foreign_free", foreign_free},
    {"too_many_marks", too_many_marks},
    {"failed_library", failed_library},
    {"right_graph", right_graph},
    {"captured_wait", captured_wait},
    {"captured_mark", captured_mark},
    {"captured_follow", captured_follow},
    {"captured_stamp", captured_stamp},
    {"captured_twice", captured_twice},
    {"captured_launch", captured_launch},
    {"not_captured", not_captured},
};

/* The signal's number is the message: without a handler a sanitizer's page would be it. */
static void on_signal(int number)
{
    static const char segv[] = "memory that cannot be touched\n", aborted[] = "aborted\n";

    if (write(STDERR_FILENO, number == SIGSEGV ? segv : aborted,
              number == SIGSEGV ? sizeof(segv) - 1 : sizeof(aborted) - 1) < 0)
        _exit(4);
    _exit(3);
}

int main(int argc, char **argv)
{
    signal(SIGSEGV, on_signal);
    signal(SIGABRT, on_signal);
    own = (float *)cu_alloc_own(BLOCK * sizeof(float));
    for (const auto &c : cases)
        if (argc == 2 && strcmp(c.name, argv[1]) == 0)
            c.run();
    return 0;
}
