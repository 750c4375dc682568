/* Worked examples: published studies, reproduced by the cost model. Part of plan.h. */
#ifndef PLAN_EXAMPLE_H
#define PLAN_EXAMPLE_H

#include <jansson.h>

#include "base/err.h"

/* Names of the published studies, NULL-terminated. */
const char *const *pl_examples(void);
/* {"name", "title", "source", "rows": [{"devices", "global_batch", "layout", "text", "seconds",
 * "tokens_per_s", "mfu", "memory_bytes", "efficiency", "published", "published_layout"}]}: the best
 * layout of each row; efficiency is tokens/s a device relative to the first row. published_layout
 * is null where the study printed none, else the fastest layout with the keys that it printed:
 * {"rank", "of", "slowdown", "layout", "text", "seconds", "tokens_per_s", "mfu", "memory_bytes"},
 * rank 1 to "of" among the layouts of the space that fit, slowdown the share by which it takes
 * longer than the best; or {"rank": null, "of", "reason"} where none with these keys fits. New
 * reference. -ENOENT for an unknown name. */
int pl_example_json(json_t **ret, const char *name, struct err *error);

#endif
