/*
 * Clusters of two parts, each with devices of its own kind, behind one network. A part of plan.h.
 *
 * A layout on them places whole pipeline stages: every stage has the same tp x cp x dp ranks, each
 * part as many stages as its devices are enough for, and the stages of one part follow each other.
 * Only rankings (rank.h) know such clusters: no other function may be given one unless it says so.
 */
#ifndef PLAN_PARTS_H
#define PLAN_PARTS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "plan/cluster.h"
#include "plan/layout.h"
#include "plan/problem.h"
#include "plan/space.h"

enum { PL_PARTS = 2 };

struct pl_parts {
    struct pl_cluster at[PL_PARTS]; /* whole clusters */
    struct pl_link between;         /* from a device of one to a device of the other */
    bool between_given;             /* else it is the slower of the parts' networks */
};

/* Does JSON describe a cluster of parts? pl_cluster_parse() refuses those. */
bool pl_parts_are_in(const json_t *json);

/* {"parts": [cluster, cluster], "between": link}. *RET_WHOLE is the whole as a problem's cluster,
 * which borrows PARTS: it has all devices, in nodes that divide those of both parts, the memory of
 * the larger device and no links. Refused by pointer: processors, cores that are shared. */
int pl_parts_parse(struct pl_cluster *ret_whole, struct pl_parts *parts, const json_t *json,
                   const struct pl_cluster *local, struct err *error);
/* {"parts": [cluster, cluster], "between": link, "between_given"}. New reference. */
json_t *pl_parts_json(const struct pl_parts *parts);

/* How many stages of RANKS ranks each (tp x cp x dp) PART's devices are enough for. */
int pl_parts_stages(const struct pl_parts *parts, int part, int ranks);

/* PART as if it were the other's neighbor: its slowest link is the one between the parts. */
void pl_parts_bridge(struct pl_cluster *ret, const struct pl_parts *parts, int part);

/* As pl_space_parse, of the problem's cluster, which has parts. Without "world" and "pp" those that
 * leave few devices idle; 1F1B without chunks. "world", "dp" and "stages" are refused: they follow
 * from the parts. -ENOENT: no stage fits both parts. */
int pl_parts_space(struct pl_space *ret, const json_t *json, const struct pl_problem *problem,
                   struct err *error);

#endif
