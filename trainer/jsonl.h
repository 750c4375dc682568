/*
 * JSON lines: a file of objects, one a line, each a document whose text is the string under one
 * key. What corpora are published as, and what Megatron-LM's tools/preprocess_data.py reads.
 */
#ifndef TRAINER_JSONL_H
#define TRAINER_JSONL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "trainer/gzip.h"

/* TEXT (len bytes, UTF-8, which the callee may change) is the document of a line of LINE bytes.
 * Negative: an error. *RET_STOP ends the reading. */
typedef int tr_jsonl_fn(bool *ret_stop, void *arg, char *text, size_t len, size_t line,
                        struct err *error);

/* Each document of FILE, in order. Blank lines are skipped. -EBADMSG names
 * the line that is no JSON object, lacks KEY, or has no string there; -EFBIG one over 1 GiB. */
int tr_jsonl_read(struct tr_gzip *file, const char *key, tr_jsonl_fn *document, void *arg,
                  struct err *error);

/* Whether the name of a file says that it holds JSON lines: .jsonl or .ndjson, and with ANY_JSON
 * .json; each also with .gz behind it. */
bool tr_jsonl_is(const char *path, bool any_json);

#endif
