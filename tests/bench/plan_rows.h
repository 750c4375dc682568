/* Rows of a file of published measurements, as problems of plan/ with a layout. */
#ifndef TESTS_BENCH_PLAN_ROWS_H
#define TESTS_BENCH_PLAN_ROWS_H

#include "base/base.h"
#include "plan/plan.h"

struct row {
    char id[192], type[32], family[64];
    uint64_t model_group, choice_group; /* equal within a group */
    struct pl_model model;
    struct pl_cluster cluster;
    struct pl_workload workload;
    struct pl_trainer trainer;
    struct pl_layout layout; /* keys that the row does not give hold defaults */
    bool free_micro_batch, free_vp, free_recompute, free_sp, free_zero; /* not given */
    bool moe;
    double seconds;    /* measured; 0 where the row has none */
    double layer_s[2]; /* forward, backward of one layer */
    bool allocator;    /* its source prints what PyTorch's allocator reserved, not nvidia-smi */
    bool first_rank;   /* of rank 0, not of the fullest device */
    json_t *measured;  /* borrowed from doc */
    json_t *doc;
};

struct rows {
    struct row *at;
    size_t n, cap;
    size_t left_out; /* lines that are no row that can be used */
};

/* Add the rows of a file. A member that is null is as one that is absent. A line that cannot be
 * used, as one with a cluster profile or a layout key that is not known or a training run without
 * its seconds, is reported to stderr with its number and the pointer of what is wrong, counted and
 * left out; it is an error only if nothing is left. */
int rows_load(struct rows *ret, const char *path, struct err *e);
void rows_done(struct rows *r);

/* What the row's layout was chosen for; borrows from ROW. */
struct pl_problem row_problem(const struct row *row);

/* A training run with seconds of an iteration. */
bool row_is_timed(const struct row *r);

#endif
