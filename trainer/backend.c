#include "trainer/backend.h"

#include "kernels/kernels.h"

#include <errno.h>

enum { MOST_GPUS = 1024 };

/* The rank's number on its host. */
static int local_rank(void)
{
    struct ranks ranks;

    ranks_from_env(&ranks);
    return ranks.local > 0 && ranks.local <= MOST_GPUS ? ranks.local : 0;
}

int tr_backend_use(const char *device, struct err *error)
{
    const char *path = getenv("PARTUNE_CUDA");
    const struct kn_backend *backend;
    int64_t index = 0;
    int r;

    if (!device || str_eq(device, "cpu"))
        return 0;
    if (str_eq(device, "cuda"))
        index = local_rank();
    else if (!str_starts(device, "cuda:") || str_to_i64(&index, device + 5, 0, MOST_GPUS) < 0)
        return err_set(error, -EINVAL, "unknown device \"%s\" (cpu, cuda, cuda:N)", device);
    r = kn_plugin_load(&backend, path ? path : PKGLIBDIR "/partune-cuda.so", (int)index, error);
    if (r < 0)
        return err_wrap(error, "--device=%s", device);
    kn_backend_use(backend);
    return 0;
}
