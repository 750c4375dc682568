/* Texts with a number each: an open hash table with copies of its keys, which grows to 2^31 bytes
 * of keys. A zeroed one is empty and valid. */
#ifndef TRAINER_BYTEMAP_H
#define TRAINER_BYTEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct tr_bytemap {
    struct tr_bytemap_slot *slot;
    size_t slots, count;
    struct str keys;
};

bool tr_bytemap_get(uint32_t *ret, const struct tr_bytemap *map, const char *key, size_t len);
/* KEY is not there yet. */
void tr_bytemap_put(struct tr_bytemap *map, const char *key, size_t len, uint32_t value);
void tr_bytemap_clear(struct tr_bytemap *map); /* keeps its memory */
void tr_bytemap_done(struct tr_bytemap *map);

#endif
