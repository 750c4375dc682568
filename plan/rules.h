/*
 * Which layouts are legal: one engine, every broken rule with its numbers. A part of plan.h.
 */
#ifndef PLAN_RULES_H
#define PLAN_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/layout.h"
#include "plan/problem.h"

enum { PL_MAX_VIOLATIONS = 24 };

struct pl_violation {
    const char *rule; /* "batch-divides" */
    const char *key;  /* layout key that is at fault first: "micro_batch" */
    char text[160];   /* "global_batch 32 is not a multiple of micro_batch 5 x dp 2" */
};

struct pl_verdict {
    int count; /* 0: legal */
    struct pl_violation v[PL_MAX_VIOLATIONS];
};

/* What the rule NAME requires of a layout, a sentence without a full stop; NULL: no such rule. */
const char *pl_rule_requires(const char *name);

/* The one engine: every broken rule with its numbers. Returns true if the layout is legal.
 * RET may be NULL when only the answer matters: the check then stops at the first broken rule. */
bool pl_layout_check(struct pl_verdict *ret, const struct pl_problem *problem,
                     const struct pl_layout *layout);

const char *const *pl_rule_names(void); /* NULL-terminated */

/* "batch-divides: global_batch ...; heads-tp: ..." into BUF. */
char *pl_verdict_text(char *buf, size_t size, const struct pl_verdict *verdict);

#endif
