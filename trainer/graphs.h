/*
 * Layers' passes as graphs: the layout key cuda_graphs, "modules".
 *
 * A pass of a layer (forward, backward, or the second half of a split one) over a slot launches the
 * same operations on the same arrays in every step: what plan/supports_partune.c allows has no host
 * in it, no exchange with another rank, and no window that weights take turns in. The first time it
 * runs by itself, which loads code and chooses algorithms; the second time it becomes a graph, and
 * from then on the device starts it as one. Where the backend has no graphs, passes run by
 * themselves.
 */
#ifndef TRAINER_GRAPHS_H
#define TRAINER_GRAPHS_H

#include "trainer/rank.h"

struct tr_graphs;

/* NULL where the layout asks for none or the backend has none. */
struct tr_graphs *tr_graphs_new(const struct tr_rank *rank);
/* Accepts NULL; returns NULL. When nothing is under way, before RANK's pool ends. */
struct tr_graphs *tr_graphs_free(struct tr_graphs *graphs, struct tr_rank *rank);

enum tr_graph_pass { TR_GRAPH_FORWARD = 1, TR_GRAPH_BACKWARD, TR_GRAPH_WEIGHTS };

/* What a pass is of; zeroed first. OUT is the forward pass's result, or the gradient. */
struct tr_graph_key {
    const struct tr_layer *layer;
    struct tr_slot slot;
    const void *keep, *out;
    uintptr_t pass; /* enum tr_graph_pass */
};

/* Whether the caller runs the pass of KEY now. If so tr_graph_done() follows; else it was launched.
 */
bool tr_graph_runs(struct tr_rank *rank, const struct tr_graph_key *key);
void tr_graph_done(struct tr_rank *rank, const struct tr_graph_key *key);

#endif
