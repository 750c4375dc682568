/* Benchmarks of parts of the model: links, one layer, activations, speed; and how results are
 * printed. */
#ifndef TESTS_BENCH_PLAN_PARTS_H
#define TESTS_BENCH_PLAN_PARTS_H

#include "tests/bench/plan_rows.h"

struct bench_sum {
    double mean, worst;
    size_t n;
};

/* TEXT as a string of JSON, quotes and all; the caller frees it. */
char *bench_string(const char *text);
void bench_say(const char *bench, const char *what, double value, const char *unit, size_t n);
void bench_sum_add(struct bench_sum *s, double error);
/* Mean and worst error; nothing where nothing was added. */
void bench_say_sum(const char *bench, const char *what, const struct bench_sum *s);

/* A row that says how much memory its devices held, against the plan of layout L. */
void bench_memory(struct bench_sum *sum, const struct row *r, const struct pl_layout *l,
                  bool verbose);

/* Rows of the types microbenchmark, layer and memory. */
void bench_parts(const struct rows *rows, bool verbose);
/* Of the landscape in PATH: which share of the layouts that the plan says fit does, and which share
 * of those that do is said to, with and without streaming attention. */
int bench_boundary(const char *path, struct err *e);
/* Layouts a second on one core: walked, costed in the walk's order and in a random order, sized. */
void bench_speed(void);

#endif
