#include "base/base.h"

#include <stdarg.h>

enum { BLOCK_BYTES = 4096 };

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(16) char data[];
};

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t need = (bytes + 15) & ~(size_t)15;
    struct arena_block *b = a->head;
    void *p;

    if (!b || b->size - b->used < need) {
        size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;

        b = mem_alloc(sizeof(*b) + size);
        b->size = size;
        b->next = a->head;
        a->head = b;
    }
    p = b->data + b->used;
    b->used += need;
    a->total_bytes += need;
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);

    memcpy(p, s, n);
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return s ? arena_strndup(a, s, strlen(s)) : NULL;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    char *p;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    p = arena_alloc(a, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

void arena_done(struct arena *a)
{
    while (a->head) {
        struct arena_block *b = a->head;

        a->head = b->next;
        free(b);
    }
    a->total_bytes = 0;
}
