/* What every unit test includes: cmocka with the headers that it asks for, and base. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "base/base.h"

/* Run TESTS under the program's name as group. */
#define UNIT_MAIN(tests)                                                                           \
    int main(void)                                                                                 \
    {                                                                                              \
        return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);                           \
    }

/* Fresh folder below the build directory; the caller frees the name and removes the tree. */
static inline char *unit_folder(const char *name)
{
    const char *build = getenv("PT_BUILD");
    char *path = mem_printf("%s/tests/run/%s.%ld", build ? build : ".", name, (long)getpid());
    struct err e;

    if (file_mkdirs(path, 0700, &e) < 0)
        fail_msg("%s", e.text);
    return path;
}

/* The JSON text T with ' for ", so that tests read well. */
static inline json_t *unit_json(const char *t)
{
    AUTO_FREE char *text = mem_strdup(t);
    struct err e = {0};
    json_t *v = NULL;

    for (char *p = text; *p; p++)
        if (*p == '\'')
            *p = '"';
    if (jx_parse(&v, text, strlen(text), &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return v;
}

#endif
