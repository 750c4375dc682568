/* Imports of texts for tests. */
#ifndef TESTS_UNIT_IMPORT_TEXT_H
#define TESTS_UNIT_IMPORT_TEXT_H

#include "tuner/export/export.h"

/* TEXT of SOURCE on WORLD devices, as tn_import() reads it without a call. */
static inline int import_text(struct tn_imported *ret, const char *source, const char *text,
                              int world, const struct pl_model *model, struct err *error)
{
    const struct tn_job job = {.source = source, .text = text, .world = world};

    return tn_import(ret, &job, model, error);
}

#endif
