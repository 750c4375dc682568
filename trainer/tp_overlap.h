/*
 * Products with what tp gathers before or adds after them, which with tp_overlap travels behind
 * them (private to trainer/).
 */
#ifndef TRAINER_TP_OVERLAP_H
#define TRAINER_TP_OVERLAP_H

#include "trainer/rank.h"

/* OUTPUT (rows, out) = tr_gather_rows(INPUT) WEIGHT^T, WEIGHT (out, hidden). Returns the gathered
 * rows, which are valid as those are; so does the next. */
const void *tr_gather_linear(struct tr_rank *rank, void *output, const void *input,
                             const void *weight, uint64_t out);
/* DX (rows, in) = tr_gather_rows(DY) WEIGHT, WEIGHT (hidden, in). */
const void *tr_gather_linear_dx(struct tr_rank *rank, void *dx, const void *dy, const void *weight,
                                uint64_t in);
/* tr_gather_rows() in two parts. In between INPUT stays as it is, and nothing else is gathered. */
void tr_gather_ahead(struct tr_rank *rank, const void *input);
const void *tr_gather_finish(struct tr_rank *rank);
/* tr_linear_partial() and tr_reduce_rows(): INPUT (rows, in), WEIGHT (hidden, in). */
const void *tr_linear_reduce(struct tr_rank *rank, const void *input, const void *weight,
                             uint64_t in);
/* tr_linear_dx_partial(), DY (rows, out) and WEIGHT (out, hidden), and tr_reduce_rows() in two
 * parts, with no other sum in between. */
void tr_linear_dx_reduce(struct tr_rank *rank, const void *dy, const void *weight, uint64_t out);
const void *tr_linear_dx_reduced(struct tr_rank *rank);

/* A product that is computed in blocks of rows: TO (rows, out) of TYPE = FROM (rows, in) WEIGHT^T,
 * WEIGHT (out, in); BACK: WEIGHT, WEIGHT (in, out). */
struct tr_product {
    bool back;
    enum kn_type type;
    const void *from, *weight;
    void *to;
    uint64_t in, out;
};
/* Its rows [FIRST, FIRST + ROWS). */
void tr_product_rows(struct tr_rank *rank, const struct tr_product *product, uint64_t first,
                     uint64_t rows);

#endif
