/*
 * Stacks: the efficiency of a trainer's kernels, overlap and allocator, independent of the machine.
 * A part of plan.h.
 *
 * A stack is a set of constants, each a median with the deviation of its logarithm, and the facts
 * of pl_trainer that say how it runs. Without one a problem has its trainer's own facts and the
 * constants that are shipped. Presets are files of plan/presets/stacks/, which name their sources.
 */
#ifndef PLAN_STACK_H
#define PLAN_STACK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Constants of machines and software that no profile holds (docs/explanation/cost-model.md). */
struct pl_constants {
    double memory, near, far, attention, kernel_us, collective_us, hidden, tp_hidden, expert;
    double jitter;
    double matrix, issue_us, message_us, pause_us, stall_us, spread;
    double activation, gradients, logits, reserve_gib;
};

struct pl_constant_name {
    const char *name;
    size_t offset;   /* of the double in struct pl_constants */
    double min, max; /* physical bounds */
    /* Known from sources outside the measurements: median, and deviation of the logarithm over all
     * software together; width 0: not fitted. */
    double prior, width;
    /* Prior of a stack without measurements: where learning starts, and the deviation of its
     * logarithm. */
    double start, other;
};

extern const struct pl_constants pl_default_constants;
extern const struct pl_constant_name pl_constant_names[]; /* ends with a NULL name */
enum { PL_CONSTANTS = sizeof(struct pl_constants) / sizeof(double) };

double *pl_constant(struct pl_constants *constants, const struct pl_constant_name *name);
double pl_constant_get(const struct pl_constants *constants, const struct pl_constant_name *name);

struct pl_stack {
    char name[64]; /* empty: none */
    struct pl_constants median;
    struct pl_constants deviation; /* of the logarithm; 0: taken as known */
};

struct pl_trainer;

/* What PROBLEMS with this trainer are computed with: its stack's medians, or what is shipped. */
const struct pl_constants *pl_constants_of(const struct pl_trainer *trainer);

/*
 * TRAINER as JSON's stack runs it: a preset's name, or an object {"name", "like", "runs",
 * "constants", "source"}. RET is TRAINER's row with the facts of "runs" (those that are not there
 * are false or 0) and the constants; a constant that is not there is that of "like", a preset, or
 * the shipped one. An object without "runs" keeps those of "like", or TRAINER's.
 */
int pl_stack_parse(struct pl_trainer *ret, const json_t *json, const struct pl_trainer *trainer,
                   struct err *error);
/* The same of the key "stack" of BODY, a campaign or a request; RET has no name where there is
 * none. The bundled trainer takes none. */
int pl_stack_of(struct pl_trainer *ret, const json_t *body, const struct pl_trainer *trainer,
                struct err *error);
/* The object that pl_stack_parse() reads back as TRAINER. New reference. */
json_t *pl_stack_json(const struct pl_trainer *trainer);

/* Names of presets, NULL-terminated, and the JSON text of one (NULL if unknown). */
const char *const *pl_stack_presets(void);
const char *pl_stack_preset(const char *name);

#endif
