#include "trainer/backend.h"

#include "kernels/kernels.h"
#include "trainer/fail.h"
#include "trainer/start.h"

#include <errno.h>

enum { MOST_GPUS = 1024 };

/* The rank's number on its host. */
static int local_rank(void)
{
    struct ranks ranks;

    ranks_from_env(&ranks);
    return ranks.local > 0 && ranks.local <= MOST_GPUS ? ranks.local : 0;
}

static int sharers = 1; /* ranks of this host that may use the GPU */
static struct kn_gpu used = {.name = "cpu"};
static uint64_t unused_first; /* of its memory, with the context */
static struct err no_gpu;     /* for "auto" */

static int local_ranks(void)
{
    struct ranks ranks;

    ranks_from_env(&ranks);
    return ranks.locals > 0 ? ranks.locals : 1;
}

static void lost(const char *what)
{
    tr_fail(TR_ERROR_NODE_FAIL, what);
}

/* Whose a GPU is: this rank's alone, also that of others who name it, or one of all in turn. */
enum whose { OWN, NAMED, IN_TURN };

static int ranks_on(enum whose whose, int gpus)
{
    int ranks = local_ranks();

    return whose == OWN ? 1 : whose == NAMED ? ranks : (ranks + gpus - 1) / gpus;
}

static const char VISIBLE[] = "CUDA_VISIBLE_DEVICES", MIG[] = "MIG-";
static char instance[96]; /* that this rank has; empty: none */

/* The MIG instance INDEX of those that are listed becomes the only one, number 0. RET_COUNT: how
 * many are listed; 0: none is, and nothing changes. -ERANGE: there are fewer. */
static int choose_instance(int *ret_count, int *index, struct err *error)
{
    static char listed[4096]; /* at first: it is replaced here */
    const char *at = *listed ? listed : getenv(VISIBLE);
    AUTO_FREE char *copy = NULL;
    char *rest, *word, *chosen = NULL;
    int n = 0;

    *ret_count = 0;
    if (!at || !str_starts(at, MIG))
        return 0;
    if (!*listed)
        snprintf(listed, sizeof(listed), "%s", at);
    rest = copy = mem_strdup(listed);
    while ((word = strsep(&rest, ",")))
        if (n++ == *index)
            chosen = word;
    *ret_count = n;
    if (!chosen)
        return err_set(error, -ERANGE, "MIG instance %d was requested; %s lists %d", *index,
                       VISIBLE, n);
    snprintf(instance, sizeof(instance), "%s", chosen);
    (void)setenv(VISIBLE, instance, 1);
    *index = 0;
    return 0;
}

static int load(const struct kn_backend **ret, struct kn_gpu *ret_gpu, int index, struct err *error)
{
    const char *path = getenv("PARTUNE_CUDA");
    int listed, r;

    *ret_gpu = (struct kn_gpu){0};
    r = choose_instance(&listed, &index, error);
    ret_gpu->count = listed;
    if (r < 0)
        return r;
    /* Streams in one queue of the device wait for each other, whatever they hold: see link.h. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    r = kn_plugin_load(ret, ret_gpu, path ? path : PKGLIBDIR "/partune-cuda.so", index, error);
    if (listed)
        ret_gpu->count = listed;
    return r;
}

static int use_gpu(int index, enum whose whose, struct err *error)
{
    const struct kn_backend *backend;
    struct kn_gpu gpu;
    int r = load(&backend, &gpu, index, error);

    if (r == -ERANGE && whose == IN_TURN && gpu.count > 0)
        r = load(&backend, &gpu, index % gpu.count, error);
    /* Slurm shows a task its own GPUs, from 0 on; tr_sharing_check() sees if they are one. */
    if (r == -ERANGE && whose == OWN && gpu.count == 1 && getenv("SLURM_LOCALID"))
        r = load(&backend, &gpu, 0, error);
    if (r == -ERANGE && whose == OWN)
        err_wrap(error, "local rank %d has no GPU of its own (ranks share GPU N by cuda:N)", index);
    if (r < 0)
        return r;
    for (char *at = gpu.name; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
            *at = '?';
    used = gpu;
    sharers = ranks_on(whose, gpu.count);
    kn_on_lost(lost);
    kn_backend_use(backend);
    unused_first = kn_unused_own();
    return 0;
}

int tr_backend_use(const char *device, struct err *error)
{
    int64_t index = 0;
    int r;

    if (!device || str_eq(device, "cpu"))
        return 0;
    if (str_eq(device, "auto")) {
        (void)use_gpu(local_rank(), OWN, &no_gpu);
        return 0;
    }
    if (str_eq(device, "cuda"))
        r = use_gpu(local_rank(), OWN, error);
    else if (str_eq(device, "cuda:all"))
        r = use_gpu(local_rank(), IN_TURN, error);
    else if (str_starts(device, "cuda:") && str_to_i64(&index, device + 5, 0, MOST_GPUS) == 0)
        r = use_gpu((int)index, NAMED, error);
    else
        return err_set(error, -EINVAL, "unknown device \"%s\" (auto, cpu, cuda, cuda:N, cuda:all)",
                       device);
    return r < 0 ? err_wrap(error, "--device=%s", device) : 0;
}

void tr_backend_agree(const char *device, int ranks, int rank)
{
    int missing = no_gpu.code != 0;

    if (!device || !str_eq(device, "auto"))
        return;
    if (ranks > 1)
        missing = tr_start_together(missing, &no_gpu);
    if (!missing)
        return;
    kn_backend_use(NULL);
    used = (struct kn_gpu){.name = "cpu"};
    if (rank == 0)
        fprintf(stderr, "partune-train: --device=auto: on the CPU: %s\n", no_gpu.text);
}

const char *tr_backend_device(void)
{
    return used.name;
}

uint64_t tr_backend_memory(void)
{
    return kn_unused_own() / (uint64_t)sharers;
}

uint64_t tr_backend_context(void)
{
    return sharers == 1 && unused_first && unused_first < used.memory ? used.memory - unused_first
                                                                      : 0;
}

const char *tr_backend_instance(void)
{
    return *instance && !str_eq(used.name, "cpu") ? instance : NULL;
}

const char *tr_backend_bus(void)
{
    return used.bus;
}

const struct kn_gpu *tr_backend_gpu(void)
{
    return &used;
}
