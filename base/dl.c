#include "base/dl.h"

#include <dlfcn.h>
#include <errno.h>

int dl_functions(void **ret_library, void **ret, const char *library, const char *const *names,
                 size_t count, struct err *error)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

    if (!handle)
        return err_set(error, -ENOENT, "%s", dlerror());
    for (size_t i = 0; i < count; i++) {
        ret[i] = dlsym(handle, names[i]);
        if (ret[i])
            continue;
        dlclose(handle);
        return err_set(error, -ENOSYS, "%s lacks %s", library, names[i]);
    }
    *ret_library = handle;
    return 0;
}
