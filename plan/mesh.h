/*
 * Meshes: which rank holds what. A part of plan.h.
 */
#ifndef PLAN_MESH_H
#define PLAN_MESH_H

#include "plan/layout.h"

struct pl_cluster;

/* The greatest common divisor; LEFT and RIGHT are not negative and not both 0. */
int pl_gcd(int left, int right);

/* Ranks are numbered with tp fastest and pp slowest (Megatron's tp-cp-ep-dp-pp); the expert mesh
 * (etp, ep, edp, pp) is a second numbering of the same ranks. PL_DP_CP is cp and dp as one axis, cp
 * fastest: the ranks that hold the same dense state. */
enum pl_axis { PL_TP, PL_CP, PL_DP, PL_PP, PL_ETP, PL_EP, PL_EDP, PL_DP_CP, PL_AXES };

int pl_axis_size(const struct pl_layout *layout, enum pl_axis axis);
int pl_axis_stride(const struct pl_layout *layout, enum pl_axis axis);
int pl_axis_coord(const struct pl_layout *layout, enum pl_axis axis, int rank);
/* Rank that differs from RANK on one axis only, where it has coordinate COORD. */
int pl_axis_peer(const struct pl_layout *layout, enum pl_axis axis, int rank, int coord);

/* Neighbors among which cp_comm a2a+p2p exchanges heads: the largest part of cp, below all of it,
 * that fits a node together with tp and leaves whole heads; 1 where there is none. */
int pl_cp_inner(const struct pl_layout *layout, const struct pl_model *model,
                const struct pl_cluster *cluster);

/* Copies of what zero shards: groups of `shard` ranks hold one each. 1 where shard is 0. */
int pl_shard_copies(const struct pl_layout *layout);

#endif
