/* How well a stack is predicted after its constants were learned from a few of its rows. */
#ifndef TESTS_BENCH_PLAN_LEARN_H
#define TESTS_BENCH_PLAN_LEARN_H

#include "tests/bench/plan_rows.h"

/* For each family of 40 rows or more: draws of 8 rows at random, and the mean over the draws of
 * what the model says of all others. */
void bench_learn(const struct rows *rows);

#endif
