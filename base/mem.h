/*
 * Allocation.
 *
 * mem_alloc and the like abort when memory runs out: for small requests that the program cannot do
 * without. mem_try_alloc returns NULL and serves every size that comes from outside (request
 * bodies, counts, model sizes), where the caller answers -ENOMEM.
 *
 * AUTO(type) frees on every return: `AUTO(str) *s = str_new();` needs str_free(struct str *).
 * Ownership leaves by TAKE(p) on the last line.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t bytes);                 /* zeroed; aborts when out of memory */
void *mem_raw(size_t bytes);                   /* not zeroed; aborts when out of memory */
void *mem_try_alloc(size_t bytes);             /* zeroed; NULL when out of memory */
void *mem_realloc(void *memory, size_t bytes); /* aborts when out of memory */
/* NULL when out of memory; MEMORY is unchanged then. */
void *mem_try_realloc(void *memory, size_t bytes);
char *mem_strdup(const char *text); /* NULL gives NULL */
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* a * b * c, or SIZE_MAX where that overflows (which no allocation grants). */
size_t mem_mul(size_t a, size_t b, size_t c);

/* Grow array P of COUNT elements so that one more fits; capacity doubles. */
#define MEM_GROW(p, count, cap)                                                                    \
    do {                                                                                           \
        if ((count) == (cap)) {                                                                    \
            (cap) = (cap) ? (cap)*2 : 8;                                                           \
            (p) = mem_realloc((p), (size_t)(cap) * sizeof(*(p)));                                  \
        }                                                                                          \
    } while (0)

/* Test hook: the Nth allocation from now fails (mem_try_*) or aborts; 0 switches it off. */
void mem_fail_at(long nth);

static inline void mem_auto_free(void *pp)
{
    void **p = (void **)pp;
    __builtin_free(*p);
}

#define AUTO_FREE __attribute__((cleanup(mem_auto_free), unused))

/* Define the cleanup that AUTO(name) needs: AUTO_DEFINE(se_space) uses se_space_free(). */
#define AUTO_DEFINE(name)                                                                          \
    static inline void name##_auto(struct name **owner)                                            \
    {                                                                                              \
        name##_free(*owner);                                                                       \
    }
#define AUTO(name) __attribute__((cleanup(name##_auto), unused)) struct name

#define TAKE(p)                                                                                    \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

#endif
