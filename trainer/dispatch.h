/*
 * How the tokens of a layer with experts travel to the ranks of those, and back.
 */
#ifndef TRAINER_DISPATCH_H
#define TRAINER_DISPATCH_H

#include "trainer/rank.h"

/* How the rows of one layer travel; views of PL_ACT_COUNTS. */
struct tr_route {
    int32_t *send;  /* (experts + 1): offset of each expert's rows in the sorted choices */
    int32_t *count; /* (moe.size, local_experts): rows from each member for each expert here */
    int32_t *recv;  /* (local_experts + 1): offset of each expert's rows here */
};

struct tr_route tr_route(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot);
/* Tell each member how many rows to expect; fills count and recv. */
void tr_route_exchange(struct tr_rank *rank, struct tr_route *route);
/* The experts here in tr_moe_parts() parts, one without overlap: part PART is [first, end). */
struct tr_experts {
    uint64_t first, end;
};
int tr_moe_parts(const struct tr_rank *rank);
struct tr_experts tr_moe_part(const struct tr_rank *rank, int part);
/* Sorted choices FROM (choices, hidden) to the experts' ranks: TO (expert_rows, hidden). Started
 * for all parts, waited for part by part in order: what is not waited for overlaps computation that
 * touches neither array. */
void tr_dispatch_start(struct tr_rank *rank, const struct tr_route *route, void *to,
                       const void *from);
void tr_dispatch_wait(struct tr_rank *rank, int part);
/* True if that would not wait. */
bool tr_dispatch_arrived(struct tr_rank *rank, int part);
/* Drive what is under way; false if all of it is complete. */
bool tr_dispatch_poll(struct tr_rank *rank);
/* And back: FROM (expert_rows, hidden) of tr_slice_type() to TO (choices, hidden), with etp > 1 the
 * sum over the slices of an expert. Started part by part after its dispatch has been waited for,
 * and finished for all. */
enum kn_type tr_slice_type(const struct tr_rank *rank);
void tr_collect_start(struct tr_rank *rank, const struct tr_route *route, void *to,
                      const void *from, int part);
void tr_collect_finish(struct tr_rank *rank, void *to);
bool tr_collect_arrived(struct tr_rank *rank);

#endif
