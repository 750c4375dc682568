/* Functions of a library that is opened when needed: nothing links it. */
#ifndef BASE_DL_H
#define BASE_DL_H

#include <stddef.h>

#include "base/err.h"

/* Open LIBRARY, for dlclose(), and put its functions NAMES (count) into RET. -ENOENT without the
 * library, -ENOSYS, by name, if it lacks one of them: then nothing is open. */
int dl_functions(void **ret_library, void **ret, const char *library, const char *const *names,
                 size_t count, struct err *error);

#endif
