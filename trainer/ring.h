/*
 * Context parallelism: causal attention over sequences that are divided over the cp ranks (private
 * to trainer/).
 *
 * A sequence is 2 cp chunks, of which rank i holds chunks i and 2 cp - 1 - i, in this order, as if
 * they were one sequence of seq / cp tokens: so each rank has the same share of the causal triangle
 * (Llama 3 and Megatron divide it so). Keys and values go round the ranks. Those of rank j, seen
 * from rank i, whose queries are chunk i and then chunk 2 cp - 1 - i:
 *
 *   j = i   causal attention of the rank's own tokens, in the order that they have here
 *   j < i   every query sees chunk j, none sees chunk 2 cp - 1 - j
 *   j > i   the queries of the second chunk see both chunks, those of the first neither
 *
 * Each is the same number of products, to half a chunk's diagonal. With a window the chunks meet
 * one by one, since the rank's own two are no neighbors, and those that are too far apart do not
 * meet: the ranks' shares of the work differ then. Rank i sends to rank i + 1, so
 * in step s = 1 .. cp - 1 it has the keys and values of rank i - s, and passes them on while it
 * uses them. Outputs of the steps are merged by their log-sum-exps, in fp32.
 *
 * On the way back keys and values make the same round, and their gradients follow: the sum for rank
 * j begins at rank j + 1, which passes it on while it computes its next term, and comes home from
 * rank j - 1 while rank j computes its own. What is sent first travels behind the backward pass of
 * the layer's feed-forward and of the output projection, and with cp = 2 behind the first quarter
 * of the rank's own term, too. (With more ranks its buffer is in use until step cp - 1 is done.)
 *
 * All sums run in the order of the ring, so a layout's results repeat bit for bit.
 */
#ifndef TRAINER_RING_H
#define TRAINER_RING_H

#include "trainer/rank.h"

/* Position in its sequence of the rank's token TOKEN of a sample, TOKEN < seq / cp. *RET_RUN tokens
 * from it on are neighbors there, too. */
size_t tr_ring_position(size_t *ret_run, const struct tr_rank *rank, size_t token);

/* OUT (rows, heads dv), of ATTN's type, and LSE (batch, heads, seq / cp) of the rank's queries over
 * all keys of their sequences. The cp ranks call it together, and so they do what follows. */
void tr_ring_fwd(struct tr_rank *rank, const struct kn_attn *attn, void *out, float *lse);

/* Start to send keys and values; tr_ring_bwd follows, with computation in between at will. */
void tr_ring_ahead(struct tr_rank *rank, const struct kn_attn *attn);
/* As kn_attn_bwd. The rows of dq are a whole matrix, in which dk and dv may lie. */
void tr_ring_bwd(struct tr_rank *rank, const struct kn_attn *attn, const struct kn_attn_grad *grad);

#endif
