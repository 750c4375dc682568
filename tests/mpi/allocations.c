#include "tests/mpi/allocations.h"

#include <stddef.h>

bool allocations_counted;
long allocations;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
    allocations += allocations_counted;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations += allocations_counted;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    allocations += allocations_counted;
    return __real_realloc(p, n);
}
