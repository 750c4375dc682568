#include "trainer/bytemap.h"

#include "base/base.h"

#include <assert.h>

enum { SLOTS_MIN = 64 };

struct tr_bytemap_slot {
    uint32_t hash, at, len, value; /* len + 1, so that 0 is a free slot */
};

/* The slot of KEY, or the free one where it would be. */
static struct tr_bytemap_slot *find(const struct tr_bytemap *map, const char *key, size_t len,
                                    uint32_t hash)
{
    for (size_t i = hash & (map->slots - 1);; i = (i + 1) & (map->slots - 1)) {
        struct tr_bytemap_slot *slot = &map->slot[i];

        if (slot->len == 0 || (slot->hash == hash && slot->len == len + 1 &&
                               memcmp(str_text(&map->keys) + slot->at, key, len) == 0))
            return slot;
    }
}

static uint32_t hash_of(const char *key, size_t len)
{
    uint64_t hash = str_hash(key, len, 0);

    return (uint32_t)(hash ^ hash >> 32);
}

bool tr_bytemap_get(uint32_t *ret, const struct tr_bytemap *map, const char *key, size_t len)
{
    const struct tr_bytemap_slot *slot;

    if (map->count == 0)
        return false;
    slot = find(map, key, len, hash_of(key, len));
    if (slot->len == 0)
        return false;
    *ret = slot->value;
    return true;
}

static void grow(struct tr_bytemap *map)
{
    struct tr_bytemap old = *map;

    map->slots = old.slots ? 2 * old.slots : SLOTS_MIN;
    map->slot = mem_alloc(map->slots * sizeof(*map->slot));
    for (size_t i = 0; i < old.slots; i++) {
        const struct tr_bytemap_slot *slot = &old.slot[i];

        if (slot->len)
            *find(map, map->keys.text + slot->at, slot->len - 1, slot->hash) = *slot;
    }
    free(old.slot);
}

void tr_bytemap_put(struct tr_bytemap *map, const char *key, size_t len, uint32_t value)
{
    uint32_t hash = hash_of(key, len);
    struct tr_bytemap_slot *slot;

    if (2 * map->count >= map->slots)
        grow(map);
    slot = find(map, key, len, hash);
    assert(slot->len == 0 && map->keys.len + len < INT32_MAX);
    *slot = (struct tr_bytemap_slot){hash, (uint32_t)map->keys.len, (uint32_t)len + 1, value};
    str_addn(&map->keys, key, len);
    map->count++;
}

void tr_bytemap_clear(struct tr_bytemap *map)
{
    if (map->slots)
        memset(map->slot, 0, map->slots * sizeof(*map->slot));
    map->count = 0;
    str_trunc(&map->keys, 0);
}

void tr_bytemap_done(struct tr_bytemap *map)
{
    free(map->slot);
    str_done(&map->keys);
    *map = (struct tr_bytemap){0};
}
