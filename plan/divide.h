/* Private to plan/: divisions of layers that a trainer makes by itself. */
#ifndef PLAN_DIVIDE_H
#define PLAN_DIVIDE_H

#include "plan/layout.h"
#include "plan/problem.h"

/*
 * LAYOUT as the problem's trainer runs it: the same, or in STORE with the list of stages that the
 * trainer makes of an even division (the fact cost_stages). STORE must outlive the result.
 */
const struct pl_layout *pl_divided(struct pl_layout *store, const struct pl_problem *problem,
                                   const struct pl_layout *layout);

#endif
