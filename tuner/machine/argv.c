/* A command line as a list of owned strings. */
#include <assert.h>
#include <stdarg.h>

#include "tuner/machine/argv.h"

void tn_argv_add(struct tn_argv *argv, const char *text)
{
    assert(argv->n == 0 || !argv->v[argv->n]);
    if (argv->n + 1 >= argv->cap) {
        argv->cap = argv->cap ? 2 * argv->cap : 32;
        argv->v = mem_realloc(argv->v, (size_t)argv->cap * sizeof(argv->v[0]));
    }
    argv->v[argv->n++] = mem_strdup(text);
    argv->v[argv->n] = NULL;
}

void tn_argv_addf(struct tn_argv *argv, const char *fmt, ...)
{
    AUTO_STR s = {0};
    va_list ap;

    va_start(ap, fmt);
    str_vaddf(&s, fmt, ap);
    va_end(ap);
    tn_argv_add(argv, str_text(&s));
}

void tn_argv_done(struct tn_argv *argv)
{
    for (int i = 0; i < argv->n; i++)
        free(argv->v[i]);
    free(argv->v);
    *argv = (struct tn_argv){0};
}
