#include "trainer/seal.h"

#include "base/base.h"
#include "trainer/crc.h"

#include <assert.h>
#include <errno.h>

static const char SUMS[] = "sums", TOTAL[] = "sums_crc";

/* All digits of a number, and keys in one order: the same text for the same value. */
static json_int_t sum_of(const char *key, const json_t *value)
{
    AUTO_FREE char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    uint32_t crc = tr_crc32(0, key, strlen(key) + 1);

    if (!text)
        abort(); /* out of memory: a valid value always has a text */
    return (json_int_t)tr_crc32(crc, text, strlen(text));
}

static bool of_the_seal(const char *key)
{
    return str_eq(key, SUMS) || str_eq(key, TOTAL);
}

void tr_seal(json_t *object)
{
    json_t *sums = json_object(), *value;
    const char *key;

    assert(!tr_sealed(object));
    json_object_foreach(object, key, value)
        json_object_set_new(sums, key, json_integer(sum_of(key, value)));
    json_object_set_new(object, TOTAL, json_integer(sum_of(SUMS, sums)));
    json_object_set_new(object, SUMS, sums);
}

bool tr_sealed(const json_t *object)
{
    return json_object_get(object, SUMS) || json_object_get(object, TOTAL);
}

static int damaged(const char *key, const char *how, struct err *error)
{
    AUTO_FREE char *at = mem_printf("/%.80s", key);

    return err_at(error, -EBADMSG, at, "key \"%.80s\" %s", key, how);
}

/* KEY has the value that SUM was made of. */
static int check_key(const json_t *object, const char *key, const json_t *sum, struct err *error)
{
    const json_t *value = json_object_get(object, key);

    if (!value)
        return damaged(key, "is missing", error);
    if (!json_is_integer(sum) || json_integer_value(sum) != sum_of(key, value))
        return damaged(key, "is damaged: its checksum does not match", error);
    return 0;
}

int tr_seal_check(const json_t *object, struct err *error)
{
    json_t *sums = json_object_get(object, SUMS), *value;
    const char *key;
    int r;

    if (!json_is_object(sums))
        return damaged(SUMS, "is missing", error);
    json_object_foreach(sums, key, value) {
        r = check_key(object, key, value, error);
        if (r < 0)
            return r;
    }
    json_object_foreach((json_t *)object, key, value) {
        if (!of_the_seal(key) && !json_object_get(sums, key))
            return damaged(key, "has no checksum", error);
    }
    return check_key(object, SUMS, json_object_get(object, TOTAL), error);
}
