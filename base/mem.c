#include "base/base.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

static atomic_long fail_at;

void mem_fail_at(long nth)
{
    atomic_store(&fail_at, nth);
}

static int injected(void)
{
    return atomic_load(&fail_at) > 0 && atomic_fetch_sub(&fail_at, 1) == 1;
}

static void *or_abort(void *memory)
{
    if (!memory) {
        fputs("out of memory\n", stderr);
        abort();
    }
    return memory;
}

void *mem_try_alloc(size_t bytes)
{
    return injected() ? NULL : calloc(1, bytes ? bytes : 1);
}

void *mem_alloc(size_t bytes)
{
    return or_abort(mem_try_alloc(bytes));
}

void *mem_raw(size_t bytes)
{
    return or_abort(injected() ? NULL : malloc(bytes ? bytes : 1));
}

void *mem_try_realloc(void *memory, size_t bytes)
{
    return injected() ? NULL : realloc(memory, bytes ? bytes : 1);
}

void *mem_realloc(void *memory, size_t bytes)
{
    return or_abort(mem_try_realloc(memory, bytes));
}

char *mem_strdup(const char *text)
{
    return text ? or_abort(injected() ? NULL : strdup(text)) : NULL;
}

char *mem_printf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return or_abort(n < 0 ? NULL : s);
}

size_t mem_mul(size_t a, size_t b, size_t c)
{
    size_t ab, abc;

    if (__builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc))
        return SIZE_MAX;
    return abc;
}
