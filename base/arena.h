/*
 * An arena: many small allocations that die together, such as all memory of one request.
 *
 * A zeroed struct arena is empty and valid. Nothing handed out is freed before arena_done().
 * Not thread-safe.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *head;
    size_t total_bytes; /* handed out since the start */
};

void *arena_alloc(struct arena *arena, size_t bytes); /* zeroed, 16-byte aligned; aborts when out */
char *arena_strdup(struct arena *arena, const char *text);
char *arena_strndup(struct arena *arena, const char *text, size_t len);
char *arena_printf(struct arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_done(struct arena *arena); /* frees everything; the arena is empty and usable again */

#endif
