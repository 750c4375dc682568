/* Opening a backend of CUDA: the driver first, so that what is missing has a name. */
#include "base/base.h"
#include "kernels/plugin.h"

#include <dlfcn.h>
#include <errno.h>

/* The driver's functions, as cuda.h declares them; 0 is success. */
struct driver {
    void *library;
    int (*init)(unsigned flags);
    int (*version)(int *ret);
    int (*count)(int *ret);
    int (*device)(int *ret, int index);
    int (*attribute)(int *ret, int attribute, int device);
    int (*name)(char *ret, int size, int device);
    int (*bus)(char *ret, int size, int device);
    int (*memory)(size_t *ret, int device);
    int (*uuid)(unsigned char ret[16], int device);
    int (*error_text)(int code, const char **text);
};

enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 }; /* CU_DEVICE_ATTRIBUTE_COMPUTE_... */

static int find(void **ret, const struct driver *driver, const char *name, struct err *error)
{
    *ret = dlsym(driver->library, name);
    return *ret ? 0 : err_set(error, -ENOSYS, "the CUDA driver lacks %s: it is too old", name);
}

static int open_driver(struct driver *ret_driver, struct err *error)
{
    static const char *const names[] = {"cuInit",
                                        "cuDriverGetVersion",
                                        "cuDeviceGetCount",
                                        "cuDeviceGet",
                                        "cuDeviceGetAttribute",
                                        "cuDeviceGetName",
                                        "cuDeviceGetPCIBusId",
                                        "cuDeviceTotalMem_v2",
                                        "cuDeviceGetUuid_v2",
                                        "cuGetErrorString"};
    void **at = (void **)&ret_driver->init;
    int r = 0;

    _Static_assert(sizeof(*ret_driver) == (ARRAY_LEN(names) + 1) * sizeof(void *), "a name each");
    ret_driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!ret_driver->library)
        return err_set(error, -ENODEV, "no NVIDIA driver: %s", dlerror());
    for (size_t i = 0; i < ARRAY_LEN(names) && r == 0; i++)
        r = find(&at[i], ret_driver, names[i], error);
    return r;
}

static int refused(const struct driver *driver, int code, const char *what, struct err *error)
{
    const char *text = NULL;

    if (code == 0)
        return 0;
    if (driver->error_text(code, &text) || !text)
        text = "unknown error";
    return err_set(error, -ENODEV, "the CUDA driver: %s: %s (%d)", what, text, code);
}

static int read_uuid(struct kn_gpu *ret_gpu, const struct driver *driver, int device,
                     struct err *error)
{
    unsigned char bytes[16] = {0};
    int r = refused(driver, driver->uuid(bytes, device), "the GPU", error);
    size_t at = 0;

    for (size_t i = 0; i < sizeof(bytes); i++)
        at += (size_t)snprintf(ret_gpu->uuid + at, sizeof(ret_gpu->uuid) - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
    return r;
}

/* Whether the driver is as new as the library, and device INDEX new enough for its code. */
static int check_driver(struct kn_gpu *ret_gpu, const struct driver *driver,
                        const struct kn_plugin *plugin, int index, struct err *error)
{
    int version = 0, count = 0, device = 0, major = 0, minor = 0, r;

    r = refused(driver, driver->init(0), "initialization", error);
    if (r == 0)
        r = refused(driver, driver->version(&version), "its version", error);
    if (r < 0)
        return r;
    ret_gpu->cuda = version;
    if (version / 1000 < plugin->cuda / 1000)
        return err_set(error, -ENOSYS,
                       "the NVIDIA driver supports CUDA %d.%d; this backend needs %d.0 or later",
                       version / 1000, version % 1000 / 10, plugin->cuda / 1000);
    r = refused(driver, driver->count(&count), "the number of GPUs", error);
    ret_gpu->count = count;
    if (r == 0 && index >= count)
        r = err_set(error, -ERANGE, "GPU %d was requested; the driver reports %d", index, count);
    if (r == 0)
        r = refused(driver, driver->device(&device, index), "the GPU", error);
    if (r == 0)
        r = refused(driver, driver->attribute(&major, CAPABILITY_MAJOR, device), "the GPU", error);
    if (r == 0)
        r = refused(driver, driver->attribute(&minor, CAPABILITY_MINOR, device), "the GPU", error);
    if (r == 0)
        r = refused(driver, driver->name(ret_gpu->name, sizeof(ret_gpu->name), device), "the GPU",
                    error);
    if (r == 0)
        r = refused(driver, driver->bus(ret_gpu->bus, sizeof(ret_gpu->bus), device), "the GPU",
                    error);
    if (r == 0)
        r = refused(driver, driver->memory(&ret_gpu->memory, device), "the GPU", error);
    if (r == 0)
        r = read_uuid(ret_gpu, driver, device, error);
    if (r == 0 && 10 * major + minor < plugin->capability)
        r = err_set(error, -ENOSYS,
                    "GPU %d (%s) has compute capability %d.%d; this backend needs %d.%d or later",
                    index, ret_gpu->name, major, minor, plugin->capability / 10,
                    plugin->capability % 10);
    return r;
}

static int open_library(const struct kn_plugin **ret_plugin, const char *path, struct err *error)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct kn_plugin *plugin = NULL;
    kn_plugin_fn *get;

    if (!library)
        return err_set(error, -ENOENT, "no CUDA backend: %s", dlerror());
    *(void **)&get = dlsym(library, "kn_plugin");
    if (!get)
        return err_set(error, -EINVAL, "%s is not a backend of partune: it has no kn_plugin", path);
    plugin = get();
    if (!str_eq(plugin->version, PACKAGE_VERSION))
        return err_set(error, -EINVAL, "%s is of partune %s, this program of %s", path,
                       plugin->version, PACKAGE_VERSION);
    if (plugin->abi != KN_PLUGIN_ABI)
        return err_set(error, -EINVAL, "%s has the interface %#x, this program %#x: rebuild both",
                       path, plugin->abi, (unsigned)KN_PLUGIN_ABI);
    *ret_plugin = plugin;
    return 0;
}

static void (*on_lost)(const char *what);

void kn_on_lost(void (*fn)(const char *what))
{
    on_lost = fn;
}

static void lost(const char *what)
{
    if (on_lost)
        on_lost(what);
}

int kn_plugin_load(const struct kn_backend **ret_backend, struct kn_gpu *ret_gpu, const char *path,
                   int index, struct err *error)
{
    static const struct kn_plugin_host host = {kn_pool_set_stream, kn_pool_stream, kn_pool_threads,
                                               lost};
    struct kn_plugin_refusal why = {.text = "the backend rejects it"};
    const struct kn_plugin *plugin = NULL;
    struct driver driver = {0};
    int r;

    /* The driver stays open, and so does the library: the backend's code is in them. */
    r = open_driver(&driver, error);
    if (r == 0)
        r = open_library(&plugin, path, error);
    if (r == 0)
        r = check_driver(ret_gpu, &driver, plugin, index, error);
    if (r < 0)
        return r;
    *ret_backend = plugin->open(&why, &host, index);
    if (*ret_backend)
        return 0;
    return err_set(error, why.full ? -EBUSY : -ENODEV, "GPU %d: %s", index, why.text);
}
