/*
 * One side of a comparison: a layout on the first ranks of the job, stepped on demand.
 *
 * Both sides of a comparison live at once and take turns, so that they meet the same machine.
 * Ranks that a side does not use sleep meanwhile.
 */
#ifndef TESTS_BENCH_TRAINER_SIDE_H
#define TESTS_BENCH_TRAINER_SIDE_H

#include "base/base.h"
#include "trainer/step.h"
#include <math.h>

struct side {
    struct pl_layout layout;
    struct pl_model model;
    struct pl_workload workload;
    MPI_Comm comm; /* MPI_COMM_NULL on ranks that it does not use */
    struct tr_rank r;
    int step;
    double flops; /* of a step: what is done, not Megatron's convention */
};

/* Ends the job with a line of reason. */
void side_die(const char *why);

/* Sleep until every rank of the job is here. */
void side_meet(void);

/* The model, and the legal layout of it, that a text describes; ends the job where there is none.
 */
void side_model(struct pl_model *ret, const char *model);
void side_layout(struct pl_layout *ret, const char *model, const char *layout, int global_batch);

/* Model as JSON text, layout as JSON text of what differs from the default. Collective over the
 * job; the layout's world says how many ranks take part. */
void side_open(struct side *s, const char *model, const char *layout, int global_batch);
void side_close(struct side *s);

/* The same, COPIES times on as many ranks each, none of which knows of the others. */
void side_open_copies(struct side *s, const char *model, const char *layout, int global_batch,
                      int copies);

/* Wall seconds of one step with new samples, of the slowest rank; on every rank of the job. */
double side_step(struct side *s);

/* Seconds a step of N steps in a row, after one that is not measured, so that what one step leaves
 * running meets the next; mean over ranks. RET_EXPOSED is what of it communication took. Only where
 * the side has all ranks of the job. */
double side_steady(struct side *s, int n, double *ret_exposed);

/* FLOPs of the passes over T tokens in SEQ: 6 a weight of a matrix that a token meets, and causal
 * attention. */
double side_flops(const struct pl_model *m, int seq, double tokens);

#endif
