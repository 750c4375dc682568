/* A driver of CUDA for tests without a GPU: it answers what the environment says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int said(const char *name, int otherwise)
{
    const char *value = getenv(name);

    return value ? atoi(value) : otherwise;
}

int cuInit(unsigned flags);
int cuDriverGetVersion(int *ret);
int cuDeviceGetCount(int *ret);
int cuDeviceGet(int *ret, int index);
int cuDeviceGetAttribute(int *ret, int attribute, int device);
int cuDeviceGetName(char *ret, int size, int device);
int cuDeviceGetPCIBusId(char *ret, int size, int device);
int cuDeviceTotalMem_v2(size_t *ret, int device);
int cuDeviceGetUuid_v2(unsigned char *ret, int device);

int cuInit(unsigned flags)
{
    return flags ? 1 : said("STANDIN_INIT", 0);
}

int cuDriverGetVersion(int *ret)
{
    *ret = said("STANDIN_DRIVER", 13010);
    return 0;
}

/* The first instance that CUDA_VISIBLE_DEVICES lists: a process sees no other (MIG). */
static const char *instance(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");

    return list && !strncmp(list, "MIG-", 4) ? list : NULL;
}

/* STANDIN_GPUS, or those that CUDA_VISIBLE_DEVICES lists, or one. */
int cuDeviceGetCount(int *ret)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int listed = list && *list && *list != '-';

    for (; listed && *list; list++)
        listed += *list == ',';
    *ret = instance() ? 1 : said("STANDIN_GPUS", listed ? listed : 1);
    return 0;
}

int cuDeviceGet(int *ret, int index)
{
    *ret = index;
    return 0;
}

int cuDeviceGetAttribute(int *ret, int attribute, int device)
{
    int capability = said("STANDIN_CAPABILITY", 90);

    (void)device;
    *ret = attribute == 75 ? capability / 10 : capability % 10;
    return attribute == 75 || attribute == 76 ? 0 : 1;
}

/* STANDIN_NAME: all are of that kind. */
int cuDeviceGetName(char *ret, int size, int device)
{
    const char *name = getenv("STANDIN_NAME");

    if (name)
        snprintf(ret, (size_t)size, "%s%s", name, instance() ? " MIG 1g.10gb" : "");
    else
        snprintf(ret, (size_t)size, "Stand-in %d", device);
    return 0;
}

int cuDeviceGetPCIBusId(char *ret, int size, int device)
{
    snprintf(ret, (size_t)size, "0000:%02X:00.0", said("STANDIN_BUS", 0) + device);
    return 0;
}

/* The digits of an instance, as far as they go; else the GPU's number. */
int cuDeviceGetUuid_v2(unsigned char *ret, int device)
{
    const char *digits = instance();

    memset(ret, 0, 16);
    ret[15] = (unsigned char)(said("STANDIN_BUS", 0) + device);
    for (int i = 0, half = 0; digits && digits[4 + i] && digits[4 + i] != ','; i++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, digits[4 + i]);

        if (at && half < 32)
            ret[half / 2] =
                (unsigned char)(half % 2 ? ret[half / 2] | (at - hex) : (at - hex) << 4);
        half += at != NULL;
    }
    return 0;
}

int cuDeviceTotalMem_v2(size_t *ret, int device)
{
    (void)device;
    *ret = getenv("STANDIN_TOTAL") ? strtoull(getenv("STANDIN_TOTAL"), NULL, 10) : (size_t)80 << 30;
    return 0;
}

#ifndef WITHOUT_ERROR_TEXT
int cuGetErrorString(int code, const char **ret);

int cuGetErrorString(int code, const char **ret)
{
    *ret = code == 100 ? "no CUDA-capable device is detected" : NULL;
    return *ret ? 0 : 1;
}
#endif
