/*
 * Reading JSON that comes from outside, by Jansson.
 *
 * Every failure names the field by its JSON pointer in err.pointer and says the bound that it
 * broke. A getter whose key is absent leaves *RET alone and returns 0, so *RET may hold a default;
 * jx_need() refuses an absent key. null counts as absent.
 *
 * All of Jansson's allocations abort when memory runs out, so a value and its text are complete.
 */
#ifndef BASE_JX_H
#define BASE_JX_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { JX_MAX_DEPTH = 64 };

/* Parse LEN bytes of text. Refused, as -EINVAL with line and column: not JSON, not UTF-8, trailing
 * text, a key given twice, nesting deeper than JX_MAX_DEPTH. */
int jx_parse(json_t **ret, const char *text, size_t len, struct err *error);
int jx_load(json_t **ret, const char *path, size_t max_bytes, struct err *error);

/* JSON must be an object all of whose keys are in the NULL-terminated KEYS; the nearest name is
 * offered. */
int jx_keys(const json_t *json, const char *const *keys, struct err *error);

int jx_get_int(int *ret, const json_t *object, const char *key, int min, int max,
               struct err *error);
int jx_get_i64(int64_t *ret, const json_t *object, const char *key, int64_t min, int64_t max,
               struct err *error);
int jx_get_f64(double *ret, const json_t *object, const char *key, double min, double max,
               struct err *error);
int jx_get_bool(bool *ret, const json_t *object, const char *key, struct err *error);
/* Borrowed text of 1..MAX_LEN bytes without control characters. */
int jx_get_str(const char **ret, const json_t *object, const char *key, size_t max_len,
               struct err *error);
/* The same copied into BUF of SIZE bytes. */
int jx_copy_str(char *buf, size_t size, const json_t *object, const char *key, struct err *error);
/* Index of the text in the NULL-terminated NAMES; the nearest is offered otherwise. */
int jx_get_enum(int *ret, const json_t *object, const char *key, const char *const *names,
                struct err *error);
int jx_get_object(json_t **ret, const json_t *object, const char *key,
                  struct err *error); /* borrowed */
int jx_get_array(json_t **ret, const json_t *object, const char *key, size_t max_len,
                 struct err *error); /* borrowed */

/* -EINVAL at /KEY unless the key is present and not null. */
int jx_need(const json_t *object, const char *key, struct err *error);

/* Compact text of JSON, keys in insertion order; caller frees. */
char *jx_dump(const json_t *json);
/* Text with sorted keys and no spaces: equal for equal values. Caller frees. */
char *jx_canonical(const json_t *json);

static inline void jx_auto_decref(json_t **json)
{
    json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(jx_auto_decref))) json_t

#endif
