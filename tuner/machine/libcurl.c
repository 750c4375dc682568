#include "tuner/machine/libcurl.h"

#include <dlfcn.h>
#include <errno.h>

/* The name that has stood for this interface since libcurl 7.16. */
static const char NAME[] = "libcurl.so.4";

static bool find(void *ret, void *library, const char *name, struct err *error)
{
    void *f = dlsym(library, name);

    if (!f) {
        err_set(error, -ELIBBAD, "%s has no %s", NAME, name);
        return false;
    }
    memcpy(ret, &f, sizeof(f)); /* ISO C knows no cast from an object to a function */
    return true;
}

const struct tn_curl *tn_curl_load(struct err *error)
{
    static struct tn_curl curl;
    static bool loaded;
    void *library;

    if (loaded)
        return &curl;
    library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        err_set(error, -ELIBACC, "webhooks need libcurl: %s", dlerror());
        return NULL;
    }
#define FIND(f)                                                                                    \
    if (!find(&curl.f, library, "curl_" #f, error)) {                                              \
        dlclose(library);                                                                          \
        return NULL;                                                                               \
    }
    TN_CURL_FUNCTIONS(FIND)
#undef FIND
    if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        err_set(error, -EIO, "libcurl cannot be used");
        dlclose(library);
        return NULL;
    }
    loaded = true;
    return &curl;
}
