/*
 * Spaces: sets of layouts, walks through them, and why they are empty. A part of plan.h.
 */
#ifndef PLAN_SPACE_H
#define PLAN_SPACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "plan/layout.h"
#include "plan/patience.h"
#include "plan/problem.h"

enum { PL_SPACE_VALUES = 254 };

/* The values that one key may take, ascending. */
struct pl_space_axis {
    bool given; /* listed by the campaign; else they are what the trainer and the model admit */
    int n;
    int value[PL_SPACE_VALUES];
};

/* A set of layouts: the legal ones of a product. Row I of pl_layout_keys is axis I; a derived key
 * restricts if it is given and follows from the others if not (n = 0). */
struct pl_space {
    struct pl_space_axis axis[PL_LAYOUT_KEYS];
};

/*
 * Read a campaign's "space": {<layout key>: value | [values] | "auto"}; JSON may be NULL. "auto" is
 * every value that the trainer supports, and so is an absent key, except for:
 *
 *   world        all devices
 *   cp           powers of two where a sequence has 8,192 tokens or more, else 1
 *   stages       what pl_stages_auto() tries
 *   zero         stages up to pl_usual_zero()
 *   precision    the workload's
 *   threads      1
 *   options      (PL_OPTION) their standard
 *
 * Refused by pointer: unknown keys and words, values out of range, a value given twice.
 */
int pl_space_parse(struct pl_space *ret, const json_t *json, const struct pl_problem *problem,
                   struct err *error);
/* {"tp":[1,2],…}: the axes with values, words where a key has them. */
json_t *pl_space_json(const struct pl_space *space); /* new reference */
/* NULL for an unknown KEY. */
const struct pl_space_axis *pl_space_axis(const struct pl_space *space, const char *key);

/* Called once for each legal layout, in a fixed order; false stops. */
typedef bool pl_space_visit(void *arg, const struct pl_layout *layout);

/* Visit every legal layout of SPACE; returns how many were visited. */
size_t pl_space_enumerate(const struct pl_space *space, const struct pl_problem *problem,
                          pl_space_visit *visit, void *arg);

/* Less than 0 if LEFT comes before RIGHT in pl_space_enumerate, 0 if they are the same layout. */
int pl_space_compare(const struct pl_layout *left, const struct pl_layout *right);

/* The legal layouts as an array that the caller frees, at most MAX of them. *RET_COUNT is their
 * number. Returns 0; -E2BIG when the space holds more than MAX, or too many that are not legal to
 * look through them all; -ECANCELED if PATIENCE (may be NULL) is over before. Then nothing is
 * returned. */
int pl_space_list(struct pl_layout **ret, size_t *ret_count, size_t max,
                  const struct pl_space *space, const struct pl_problem *problem,
                  const struct pl_patience *patience, struct err *error);

/* Is this layout a legal member? (A warm start or a baseline may lie outside.) */
bool pl_space_has(const struct pl_space *space, const struct pl_problem *problem,
                  const struct pl_layout *layout);

/* The keys that the campaign lists without LAYOUT's values ("cp 4, pp 4"), appended to RET. */
void pl_space_outside(struct str *ret, const struct pl_space *space,
                      const struct pl_problem *problem, const struct pl_layout *layout);

/*
 * Why SPACE has no legal layout: the smallest change that would admit one ("add 2 to tp",
 * "global_batch 32 instead of 30"), the candidate with the fewest broken rules, and the rules with
 * how many candidates each excludes, most first; a short BUF loses the end of that. Returns false,
 * and an empty text, if SPACE has a legal layout after all. Into BUF. PATIENCE may be NULL; once it
 * is over fewer candidates are looked at, and no change is.
 */
bool pl_space_explain(char *buf, size_t size, const struct pl_space *space,
                      const struct pl_problem *problem, const struct pl_patience *patience);

enum { PL_MAX_EXCLUSIONS = 32 };

/* A rule, how many candidates of a space break it (each may break several), what one is told. */
struct pl_exclusion {
    const char *rule;
    uint64_t count;
    char example[160];
};

/*
 * What the rules exclude from the product of SPACE's axes, the strictest rule first; returns how
 * many rules exclude anything. *RET_CANDIDATES is the size of the product (less what a key that
 * means nothing with another would repeat). Exact up to 16,384 candidates, above that the counts
 * are scaled from an even sample of so many. If PATIENCE (may be NULL) ends it early, both are of
 * the first part of the product, the sample is of 1,024 at least, and *RET_WHOLE is false.
 */
size_t pl_space_excluded(struct pl_exclusion ret[PL_MAX_EXCLUSIONS], uint64_t *ret_candidates,
                         bool *ret_whole, const struct pl_space *space,
                         const struct pl_problem *problem, const struct pl_patience *patience);

#endif
