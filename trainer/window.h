/*
 * Windows: with zero 2 and 3 a layer's gradients, and with zero 3 its weights, are whole only while
 * the layer computes; this rank keeps its shard of them (plan/partune.h).
 *
 *   weights     gathered into their window before a pass of the layer, with overlap_param_gather
 *               already while the layer before computes. They stay until another layer takes the
 *               window: the last layer of a forward pass is there for the backward pass, and a
 *               stage of one layer gathers once a step.
 *   gradients   of each micro-batch start at zero in their window; when the layer has passed
 *               backwards they are summed over the ranks that share them and added to the shard,
 *               with overlap_grad_reduce while the layers below compute.
 *
 * Layers take windows in turn, so neighbors have different ones where there are two. All ranks of a
 * stage run the same schedule, so they ask for the same collectives in the same order.
 */
#ifndef TRAINER_WINDOW_H
#define TRAINER_WINDOW_H

#include "plan/plan.h"

struct tr_rank;
struct tr_layer;

struct tr_windows {
    int weights[2][PL_WINDOWS]; /* of dense layers and of experts: the bucket in it, or -1 */
    int grads[2][PL_WINDOWS];
};

/* Which buckets of LAYER, number INDEX of CHUNK, use windows. */
void tr_window_layer(struct tr_layer *layer, const struct tr_rank *rank, int chunk, int index);
/* No window holds anything: also after weights were updated. */
void tr_windows_clear(struct tr_rank *rank);

/* The weights of LAYER are in their windows: waits for them. */
void tr_window_weights(struct tr_rank *rank, const struct tr_layer *layer);
/* Start to gather those of NEXT, without waiting, into windows that LAYER does not compute with. */
void tr_window_prefetch(struct tr_rank *rank, const struct tr_layer *layer,
                        const struct tr_layer *next);

/* The windows of the gradients of LAYER are its own, and zero. */
void tr_window_grads(struct tr_rank *rank, const struct tr_layer *layer);
/* The gradients of LAYER of one micro-batch are complete. */
void tr_window_scatter(struct tr_rank *rank, const struct tr_layer *layer);

#endif
