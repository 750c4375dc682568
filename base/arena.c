#include "base/base.h"

#include <stdarg.h>

enum { BLOCK_BYTES = 4096 };

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(16) char data[];
};

void *arena_alloc(struct arena *arena, size_t bytes)
{
    size_t need = (bytes + 15) & ~(size_t)15;
    struct arena_block *b = arena->head;
    void *p;

    if (!b || b->size - b->used < need) {
        size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;

        b = mem_alloc(sizeof(*b) + size);
        b->size = size;
        b->next = arena->head;
        arena->head = b;
    }
    p = b->data + b->used;
    b->used += need;
    arena->total_bytes += need;
    return p;
}

char *arena_strndup(struct arena *arena, const char *text, size_t len)
{
    char *p = arena_alloc(arena, len + 1);

    memcpy(p, text, len);
    return p;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    return text ? arena_strndup(arena, text, strlen(text)) : NULL;
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
    va_list ap;
    char *p;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    p = arena_alloc(arena, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

void arena_done(struct arena *arena)
{
    while (arena->head) {
        struct arena_block *b = arena->head;

        arena->head = b->next;
        free(b);
    }
    arena->total_bytes = 0;
}
