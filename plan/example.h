/* Worked examples: published studies that the cost model is asked again. Part of plan.h. */
#ifndef PLAN_EXAMPLE_H
#define PLAN_EXAMPLE_H

#include <jansson.h>

#include "base/err.h"

/* Names of published studies that the cost model can be asked again, NULL-terminated. */
const char *const *pl_examples(void);
/* {"name", "title", "source", "rows": [{"devices", "global_batch", "layout", "text", "seconds",
 * "tokens_per_s", "mfu", "memory_bytes", "efficiency", "published"}]}: the best layout of each row;
 * efficiency is tokens/s a device relative to the first row. New reference. -ENOENT for an unknown
 * name. */
int pl_example_json(json_t **ret, const char *name, struct err *e);

#endif
