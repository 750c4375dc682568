/* Private to plan/: what the readers of a config.json share. */
#ifndef PLAN_HF_READER_H
#define PLAN_HF_READER_H

#include <jansson.h>

#include "base/err.h"
#include "plan/hf_tables.h"

struct pl_hf_reader {
    const json_t *config;
    const json_t *usual; /* what its class has where it has no such key */
    json_t *out;         /* the model in our words */
    json_t *taken;       /* keys that were read */
    const char *type;
    unsigned flags; /* of its family */
};

/* The value of KEY, which counts as read, or that of the class where it is absent; NULL: none. */
json_t *pl_hf_take(struct pl_hf_reader *reader, const char *key);

/* Word OURS of the model, "moe.experts" of its object moe, is VALUE, whose reference this takes. */
void pl_hf_put(struct pl_hf_reader *reader, const char *ours, json_t *value);

/* Number KEY of OBJECT, or 0. */
double pl_hf_number(const json_t *object, const char *key);

/* -ENOTSUP at KEY of the file, with the sentence that begins with it. */
int pl_hf_refuse(struct err *error, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Which layers have windows, no rotation, or experts. The sizes must have been read. */
int pl_hf_take_layers(struct pl_hf_reader *reader, struct err *error);

#endif
