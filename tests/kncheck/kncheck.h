/*
 * kncheck: every operation of kernels/ against an oracle, on every instruction set that this CPU
 * has, or of another backend, on awkward shapes.
 *
 * A check describes one case: it makes its arrays, computes what is right and how far a correct
 * result may be from it (a bound derived from the number of roundings and the magnitudes, never a
 * bare constant), runs the candidate once, and compares. The harness repeats it for each
 * instruction set and number of threads.
 *
 * Arrays have guards before, after and between rows. In an input they are NaN, so that a result
 * that depends on them is NaN; in an output they are a pattern that must survive. What a candidate
 * must overwrite is NaN before it runs. Data starts one element off alignment, or with --aligned on
 * a multiple of 16 bytes, so that both ways through a kernel are taken.
 *
 * With --fault the harness damages each candidate's outputs between the run and the comparison, in
 * one small way at a time, and demands that the comparison notices.
 */
#ifndef TESTS_KNCHECK_KNCHECK_H
#define TESTS_KNCHECK_KNCHECK_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "kernels/backend.h"

#define EPS 0x1p-24     /* half the distance from 1 to the next fp32: one rounding */
#define EPS_BF16 0x1p-8 /* the same for bf16 */

enum role { IN, OUT, INOUT };

/* A matrix of fp32, bf16 or int32 with guards. */
struct arr {
    const char *name;
    enum role role;
    bool is_int;
    enum kn_type t;
    size_t rows, cols, ld;
    void *at;      /* element (0, 0) */
    double *want;  /* (rows, cols), outputs: what is right, ... */
    double *bound; /* ... and how far from it is still right */
    void *before;  /* INOUT: the matrix as it was, same layout */
    char *base;    /* the allocation */
    size_t bytes;
};

enum { MAX_ARR = 16, MAX_DIMS = 10 };

struct check {
    const char *op, *shape;
    enum kn_isa isa;
    struct kn_pool *pool;
    struct rng rng;
    struct arr arr[MAX_ARR];
    size_t narr;
    size_t dim[MAX_DIMS];
    enum kn_type t; /* storage of activations */
    /* Relative error of an operand inside the operation: EPS_BF16 where the backend's matrix
     * instructions take bf16 and an operand is itself a result (attention), else 0. */
    double operand;
};

/* The backend that this program judges; NULL: the host's, at every instruction set. With REVERSE it
 * runs threads in the opposite order, if it has an order. */
const struct kn_backend *kc_backend(bool reverse);

/* One operation: RUN makes the arrays of the case c->dim, c->t, sets want and bound, and calls
 * candidate functions between kc_begin() and the return. */
struct kc_op {
    const char *name;
    const char *dims; /* "m n k ta tb": names, for the report */
    const size_t (*cases)[MAX_DIMS];
    size_t ncases;
    bool bf16; /* repeat the cases with bf16 storage */
    void (*run)(struct check *c);
};

#define CASES(table) (table), sizeof(table) / sizeof((table)[0])

extern const struct kc_op *const kc_ops[];

/* Make an array. Inputs and INOUT are filled with values of about unit size. */
struct arr *kc_new(struct check *c, const char *name, enum role role, enum kn_type t, size_t rows,
                   size_t cols);
/* The same with EXTRA guard elements after each row: a leading dimension larger than the width. */
struct arr *kc_wide(struct check *c, const char *name, enum role role, enum kn_type t, size_t rows,
                    size_t cols, size_t extra);
struct arr *kc_int(struct check *c, const char *name, enum role role, size_t rows, size_t cols);

/* Element (i, j) as a double, for INOUT as it was before the run. */
double kc_get(const struct arr *a, size_t i, size_t j);
void kc_set(struct arr *a, size_t i, size_t j, double v); /* inputs only; rounds to the type */
int32_t kc_geti(const struct arr *a, size_t i, size_t j);
void kc_seti(struct arr *a, size_t i, size_t j, int32_t v);

/* Say what is right for an output's element: value and the error that fp32 arithmetic may make; the
 * rounding to the output's own type is added here. */
void kc_want(struct arr *a, size_t i, size_t j, double value, double bound);

/* The same where nothing may be rounded. */
void kc_exact(struct arr *a, size_t i, size_t j, double value);
/* V rounded to bf16, to nearest even, without the library under test. */
double kc_round_bf16(double v);

/* Memory of the backend, which the host may read and write; to be freed by kn_free. */
void *kc_memory(size_t bytes);

/* Use the candidate's instruction set from here on. */
void kc_begin(struct check *c);

#define AT(a, i, j) kc_get((a), (i), (j))

#endif
