#include "tuner/machine/gpus.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>

static const char NVML[] = "libnvidia-ml.so.1";

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, UNCORRECTED = 1, SINCE_LOADED = 0 }; /* nvml.h */

struct memory {
    unsigned long long total, free, used;
};

/* The functions that are used, as nvml.h declares them; 0 is success. */
struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_text)(int code);
    int (*driver)(char *to, unsigned size);
    int (*cuda)(int *version);
    int (*count)(unsigned *gpus);
    int (*device)(unsigned index, void **device);
    int (*name)(void *device, char *to, unsigned size);
    int (*memory)(void *device, struct memory *bytes);
    int (*mig)(void *device, unsigned *now, unsigned *pending);
    int (*ecc)(void *device, unsigned *now, unsigned *pending);
    int (*errors)(void *device, int type, int since, unsigned long long *errors);
    int (*most_instances)(void *device, unsigned *count);
    int (*instance)(void *device, unsigned index, void **instance);
    int (*uuid)(void *device, char *to, unsigned size);
};

static const char *const names[] = {"nvmlInit_v2",
                                    "nvmlShutdown",
                                    "nvmlErrorString",
                                    "nvmlSystemGetDriverVersion",
                                    "nvmlSystemGetCudaDriverVersion_v2",
                                    "nvmlDeviceGetCount_v2",
                                    "nvmlDeviceGetHandleByIndex_v2",
                                    "nvmlDeviceGetName",
                                    "nvmlDeviceGetMemoryInfo",
                                    "nvmlDeviceGetMigMode",
                                    "nvmlDeviceGetEccMode",
                                    "nvmlDeviceGetTotalEccErrors",
                                    "nvmlDeviceGetMaxMigDeviceCount",
                                    "nvmlDeviceGetMigDeviceHandleByIndex",
                                    "nvmlDeviceGetUUID"};

_Static_assert(sizeof(struct nvml) == ARRAY_LEN(names) * sizeof(void *), "a name each");

static int refused(const struct nvml *nvml, int code, const char *what, struct err *error)
{
    return code == 0
               ? 0
               : err_set(error, -EIO, "NVML: %s: %s (%d)", what, nvml->error_text(code), code);
}

/* A mode or a counter that this kind of GPU may lack. */
static int mode_of(int *ret, const struct nvml *nvml, int code, unsigned mode, const char *what,
                   struct err *error)
{
    *ret = code == NOT_SUPPORTED ? TN_GPU_UNKNOWN : mode ? TN_GPU_ON : TN_GPU_OFF;
    return code == NOT_SUPPORTED ? 0 : refused(nvml, code, what, error);
}

static int read_instance(struct tn_gpu_instance *ret, const struct nvml *nvml, void *device,
                         struct err *error)
{
    struct memory memory = {0};
    int r = refused(nvml, nvml->uuid(device, ret->uuid, sizeof(ret->uuid)), "a MIG instance's UUID",
                    error);

    if (r == 0)
        r = refused(nvml, nvml->name(device, ret->name, sizeof(ret->name)), "a MIG instance's name",
                    error);
    if (r == 0)
        r = refused(nvml, nvml->memory(device, &memory), "a MIG instance's memory", error);
    ret->total = memory.total;
    ret->free = memory.free;
    return r;
}

/* The instances of a divided GPU: fewer than it may have, at numbers that need not be dense. */
static int read_instances(struct tn_gpu *ret, const struct nvml *nvml, void *device,
                          struct err *error)
{
    unsigned most = 0;
    int r = refused(nvml, nvml->most_instances(device, &most), "its MIG instances", error);

    if (r < 0)
        return r;
    ret->instance = mem_alloc(sizeof(*ret->instance) * (most + 1));
    for (unsigned i = 0; i < most && r == 0; i++) {
        void *instance = NULL;
        int code = nvml->instance(device, i, &instance);

        if (code == NOT_FOUND)
            continue;
        ret->instance[ret->instances] = (struct tn_gpu_instance){.total = 0};
        r = refused(nvml, code, "a MIG instance", error);
        if (r == 0)
            r = read_instance(&ret->instance[ret->instances++], nvml, instance, error);
    }
    return r;
}

static int read_one(struct tn_gpu *ret, const struct nvml *nvml, unsigned index, struct err *error)
{
    struct memory memory = {0};
    unsigned long long errors = 0;
    unsigned mode = 0, pending;
    void *device = NULL;
    int r, code;

    r = refused(nvml, nvml->device(index, &device), "the GPU", error);
    if (r == 0)
        r = refused(nvml, nvml->name(device, ret->name, sizeof(ret->name)), "its name", error);
    if (r == 0)
        r = refused(nvml, nvml->memory(device, &memory), "its memory", error);
    if (r < 0)
        return r;
    ret->total = memory.total;
    ret->free = memory.free;
    code = nvml->mig(device, &mode, &pending);
    r = mode_of(&ret->mig, nvml, code, mode, "its MIG mode", error);
    if (r == 0) {
        code = nvml->ecc(device, &mode, &pending);
        r = mode_of(&ret->ecc, nvml, code, mode, "its ECC mode", error);
    }
    if (r == 0 && ret->ecc == TN_GPU_ON) {
        code = nvml->errors(device, UNCORRECTED, SINCE_LOADED, &errors);
        if (code != NOT_SUPPORTED)
            r = refused(nvml, code, "its ECC errors", error);
    }
    ret->uncorrected = errors;
    if (r == 0 && ret->mig == TN_GPU_ON)
        r = read_instances(ret, nvml, device, error);
    return r;
}

static int read_all(struct tn_gpus *ret, const struct nvml *nvml, struct err *error)
{
    unsigned count = 0;
    int r = refused(nvml, nvml->driver(ret->driver, sizeof(ret->driver)), "the driver", error);

    if (r == 0)
        r = refused(nvml, nvml->cuda(&ret->cuda), "the driver's CUDA", error);
    if (r == 0)
        r = refused(nvml, nvml->count(&count), "the number of GPUs", error);
    if (r < 0)
        return r;
    assert(!ret->gpu);
    ret->count = (int)count;
    ret->gpu = mem_alloc(sizeof(*ret->gpu) * (count + 1));
    for (unsigned i = 0; i < count; i++) {
        ret->gpu[i] = (struct tn_gpu){0};
        (void)read_one(&ret->gpu[i], nvml, i, &ret->gpu[i].error);
    }
    return 0;
}

int tn_gpus_read(struct tn_gpus *ret, struct err *error)
{
    struct nvml nvml = {0};
    void *library = NULL;
    int r = dl_functions(&library, (void **)&nvml, NVML, names, ARRAY_LEN(names), error);

    *ret = (struct tn_gpus){0};
    if (r < 0)
        return err_wrap(error, r == -ENOENT ? "no NVIDIA driver" : "the NVIDIA driver is too old");
    r = refused(&nvml, nvml.init(), "initialization", error);
    if (r == 0) {
        r = read_all(ret, &nvml, error);
        (void)nvml.shutdown();
    }
    dlclose(library);
    return r;
}

void tn_gpus_done(struct tn_gpus *gpus)
{
    assert(gpus->count == 0 || gpus->gpu);
    for (int i = 0; i < gpus->count; i++)
        free(gpus->gpu[i].instance);
    free(gpus->gpu);
    *gpus = (struct tn_gpus){0};
}

int tn_nccl_version(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int (*get)(int *ret);
    int version = 0;

    if (!library)
        return 0;
    *(void **)&get = dlsym(library, "ncclGetVersion");
    if (get && get(&version) != 0)
        version = 0;
    dlclose(library);
    return version;
}
