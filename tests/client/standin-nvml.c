/* NVIDIA's management library and NCCL for tests without a GPU: answers from the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef NCCL
int ncclGetVersion(int *ret);

int ncclGetVersion(int *ret)
{
    *ret = 22803;
    return 0;
}
#else
struct memory {
    unsigned long long total, free, used;
};

static int said(const char *name, int otherwise)
{
    const char *value = getenv(name);

    return value ? atoi(value) : otherwise;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlSystemGetDriverVersion(char *ret, unsigned size);
int nvmlSystemGetCudaDriverVersion_v2(int *ret);
int nvmlDeviceGetCount_v2(unsigned *ret);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret);
int nvmlDeviceGetName(void *device, char *ret, unsigned size);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret);
int nvmlDeviceGetEccMode(void *device, unsigned *ret, unsigned *pending);
int nvmlDeviceGetTotalEccErrors(void *device, int type, int since, unsigned long long *ret);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **ret);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *ret);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *ret);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *ret);

/* An instance of a GPU is a handle, too: its number follows. */
struct instance {
    char gpu, number;
};

static struct instance instances[16][8];

static const struct instance *instance_of(const void *device)
{
    const char *at = device, *first = (const char *)instances;

    return at >= first && at < first + sizeof(instances) ? device : NULL;
}

int nvmlInit_v2(void)
{
    return said("STANDIN_INIT", 0);
}

int nvmlShutdown(void)
{
    return 0;
}

const char *nvmlErrorString(int code)
{
    return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *ret, unsigned size)
{
    snprintf(ret, size, "580.95.05");
    return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *ret)
{
    *ret = 13000;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *ret)
{
    *ret = (unsigned)said("STANDIN_COUNT", 2);
    return 0;
}

/* GPU 0 is as the environment says, all others as they should be. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret)
{
    static char gpu[16];

    *ret = &gpu[index];
    *(char *)*ret = (char)index;
    return index ? 0 : said("STANDIN_LOST", 0);
}

int nvmlDeviceGetName(void *device, char *ret, unsigned size)
{
    if (instance_of(device))
        snprintf(ret, size, "Stand-in %d MIG 1g.10gb", *(char *)device);
    else
        snprintf(ret, size, "Stand-in %d", *(char *)device);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret)
{
    unsigned long long used =
        (unsigned long long)(*(char *)device ? 1 : said("STANDIN_USED_GIB", 1)) << 30;

    *ret = (struct memory){80ULL << 30, (80ULL << 30) - used, used};
    if (instance_of(device))
        *ret = (struct memory){10ULL << 30, 9ULL << 30, 1ULL << 30};
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *ret);
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **ret);
int nvmlDeviceGetUUID(void *device, char *ret, unsigned size);

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *ret)
{
    (void)device;
    *ret = 7;
    return 0;
}

/* STANDIN_INSTANCES of each divided GPU, at numbers with gaps. */
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **ret)
{
    struct instance *at = &instances[(int)*(char *)device][index];

    if (index % 2 || (int)index / 2 >= said("STANDIN_INSTANCES", 0))
        return 6;
    *at = (struct instance){*(char *)device, (char)(index / 2)};
    *ret = at;
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *ret, unsigned size)
{
    const struct instance *of = instance_of(device);

    if (of)
        snprintf(ret, size, "MIG-%08d-0000-0000-0000-%012d", of->gpu, of->number);
    else
        snprintf(ret, size, "GPU-%08d-0000-0000-0000-000000000000", *(char *)device);
    return 0;
}

#ifndef WITHOUT_MIG
int nvmlDeviceGetMigMode(void *device, unsigned *ret, unsigned *pending);

int nvmlDeviceGetMigMode(void *device, unsigned *ret, unsigned *pending)
{
    *ret = *pending = (*(char *)device == 0 && said("STANDIN_MIG", 0) == 1) ||
                      said("STANDIN_MIG", 0) == 2; /* 1: the first GPU is divided, 2: all are */
    return *(char *)device == 0 && said("STANDIN_MIG", 0) == 3 ? 3 : 0;
}
#endif

int nvmlDeviceGetEccMode(void *device, unsigned *ret, unsigned *pending)
{
    int mode = *(char *)device ? 1 : said("STANDIN_ECC", 1);

    *ret = *pending = mode == 1;
    return mode > 1 ? mode : 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int since, unsigned long long *ret)
{
    *ret = *(char *)device || type != 1 || since != 0
               ? 0
               : (unsigned long long)said("STANDIN_ECC_ERRORS", 0);
    return *(char *)device ? 0 : said("STANDIN_ECC_COUNTER", 0);
}

/* GPU n is at 0000:n:00.0. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **ret)
{
    unsigned index = 99;

    return sscanf(bus, "0000:%2X:00.0", &index) == 1 && index < 16
               ? nvmlDeviceGetHandleByIndex_v2(index, ret)
               : 6;
}

static double seconds(clockid_t of)
{
    struct timespec now;

    clock_gettime(of, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Every look at the counter costs GPU 0 a joule, and the others two. With STANDIN_BUSY_WATTS it
 * draws that while the process, which is the GPU, computes, and STANDIN_IDLE_WATTS else. */
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *ret)
{
    static unsigned long long millijoules = 1000000;
    double busy = said("STANDIN_BUSY_WATTS", 0), idle = said("STANDIN_IDLE_WATTS", 0);

    millijoules += *(char *)device ? 2000 : 1000;
    *ret = busy > 0
               ? (unsigned long long)(1e3 * (idle * seconds(CLOCK_MONOTONIC) +
                                             (busy - idle) * seconds(CLOCK_PROCESS_CPUTIME_ID)))
               : millijoules;
    return said("STANDIN_ENERGY", 0);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *ret)
{
    *ret = *(char *)device ? 0x4 : (unsigned long long)said("STANDIN_REASONS", 0);
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *ret)
{
    unsigned room = *count;

    (void)ret;
    *count = *(char *)device ? 1 : (unsigned)said("STANDIN_PROCESSES", 1);
    return *count > room ? 7 : 0;
}
#endif
