#include "trainer/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>

static const char LIBRARY[] = "libnvidia-ml.so.1";

enum { NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

/* nvmlClocksThrottleReason..., in later drivers also nvmlClocksEventReason... */
enum {
    HW_SLOWDOWN = 0x8,
    SW_THERMAL_SLOWDOWN = 0x20,
    HW_THERMAL_SLOWDOWN = 0x40,
    HW_POWER_BRAKE_SLOWDOWN = 0x80
};

struct tr_nvml {
    void *library, *device;
    struct functions { /* as nvml.h declares them; 0 is success */
        int (*init)(void);
        int (*shutdown)(void);
        const char *(*error_text)(int code);
        int (*device)(const char *bus, void **device);
        int (*mig)(void *device, unsigned *now, unsigned *pending);
        int (*energy)(void *device, unsigned long long *millijoules);
        int (*reasons)(void *device, unsigned long long *reasons);
        int (*processes)(void *device, unsigned *count, void *infos);
        int (*driver)(char *ret, unsigned size);
    } f;
};

static const char *const names[] = {"nvmlInit_v2",
                                    "nvmlShutdown",
                                    "nvmlErrorString",
                                    "nvmlDeviceGetHandleByPciBusId_v2",
                                    "nvmlDeviceGetMigMode",
                                    "nvmlDeviceGetTotalEnergyConsumption",
                                    "nvmlDeviceGetCurrentClocksThrottleReasons",
                                    "nvmlDeviceGetComputeRunningProcesses_v3",
                                    "nvmlSystemGetDriverVersion"};

_Static_assert(sizeof(struct functions) == ARRAY_LEN(names) * sizeof(void *), "a name each");

static int refused(const struct tr_nvml *nvml, int code, const char *what, struct err *error)
{
    return code == 0
               ? 0
               : err_set(error, -EIO, "NVML: %s: %s (%d)", what, nvml->f.error_text(code), code);
}

static int find_gpu(struct tr_nvml *nvml, const char *bus, struct err *error)
{
    unsigned mig = 0, pending;
    int code, r = refused(nvml, nvml->f.device(bus, &nvml->device), "the GPU", error);

    if (r < 0)
        return r;
    code = nvml->f.mig(nvml->device, &mig, &pending);
    if (code == NOT_SUPPORTED) /* a kind of GPU that cannot be divided */
        return 0;
    r = refused(nvml, code, "its MIG mode", error);
    if (r == 0 && mig)
        r = err_set(error, -ENOTSUP, "the GPU at %s is divided into MIG instances", bus);
    return r;
}

int tr_nvml_open(struct tr_nvml **ret, const char *bus, struct err *error)
{
    struct tr_nvml *nvml = mem_alloc(sizeof(*nvml));
    int r =
        dl_functions(&nvml->library, (void **)&nvml->f, LIBRARY, names, ARRAY_LEN(names), error);

    if (r == 0) {
        r = refused(nvml, nvml->f.init(), "initialization", error);
        if (r < 0)
            dlclose(TAKE(nvml->library));
    }
    if (r == 0)
        r = find_gpu(nvml, bus, error);
    if (r == 0)
        *ret = nvml;
    else
        tr_nvml_free(nvml);
    return r;
}

struct tr_nvml *tr_nvml_free(struct tr_nvml *nvml)
{
    if (nvml && nvml->library) {
        (void)nvml->f.shutdown();
        dlclose(nvml->library);
    }
    free(nvml);
    return NULL;
}

void tr_nvml_driver(char *ret, size_t size, const struct tr_nvml *nvml)
{
    if (nvml->f.driver(ret, (unsigned)size))
        *ret = '\0';
}

double tr_nvml_joules(const struct tr_nvml *nvml)
{
    unsigned long long millijoules = 0;

    return nvml->f.energy(nvml->device, &millijoules) ? (double)NAN : (double)millijoules * 1e-3;
}

bool tr_nvml_slowed(const struct tr_nvml *nvml)
{
    const unsigned long long slow =
        HW_SLOWDOWN | SW_THERMAL_SLOWDOWN | HW_THERMAL_SLOWDOWN | HW_POWER_BRAKE_SLOWDOWN;
    unsigned long long reasons = 0;

    return nvml->f.reasons(nvml->device, &reasons) == 0 && (reasons & slow);
}

int tr_nvml_processes(const struct tr_nvml *nvml)
{
    unsigned count = 0; /* room for none: it says how much would be needed */
    int code = nvml->f.processes(nvml->device, &count, NULL);

    return code == 0 || code == INSUFFICIENT_SIZE ? (int)count : 0;
}
