/*
 * Launches of shim.cuh, and what a stream that is captured keeps of them. A part of shim.cuh.
 */
#ifndef KERNELS_CUDA_SHIM_LAUNCH_CUH
#define KERNELS_CUDA_SHIM_LAUNCH_CUH

#include <stddef.h>

#include <functional>
#include <tuple>

/* KERNEL may have BYTES of shared memory, which is more than a launch has otherwise. */
void shim_allow(const void *kernel, size_t bytes);

void shim_run(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared,
              void (*body)(const void *arg), const void *arg);

/* Is STREAM captured? Then OPERATION becomes the graph's next. */
bool shim_keep(const void *stream, const std::function<void(void)> &operation);

/* Arguments are what they are now, as on a GPU, also where the launch becomes a graph's. */
template <typename... P, typename... A>
static inline void shim_launch(const void *stream, const char *name, void (*kernel)(P...),
                               dim3 grid, dim3 block, size_t shared, A &&...arguments)
{
    typedef std::tuple<void (*)(P...), std::tuple<std::decay_t<P>...>> call;
    call made(kernel, std::tuple<std::decay_t<P>...>(std::forward<A>(arguments)...));
    auto run = [=] {
        shim_run(
            name, (const void *)kernel, grid, block, shared,
            [](const void *arg) {
                const call *it = (const call *)arg;

                std::apply(std::get<0>(*it), std::get<1>(*it));
            },
            &made);
    };

    if (!shim_keep(stream, run))
        run();
}

#define CU_LAUNCH(kernel, grid, block, shared, stream, ...)                                        \
    do {                                                                                           \
        shim_launch((stream), #kernel, (kernel), (grid), (block), (shared), __VA_ARGS__);          \
        cu_launched(#kernel);                                                                      \
    } while (0)

#endif
