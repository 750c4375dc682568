/*
 * Multi-token prediction: modules behind the last layer, each of which predicts a token further on
 * (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2).
 *
 * Module k = 1 ... D at token i of a sample t_0 ... t_seq, with h^0 the model's hidden rows after
 * the final norm and the norms and the product of the module's own:
 *
 *   x_i = W [norm_e(embedding(t_{i+k})); norm_h(h^{k-1}_i)]    W (hidden, 2 hidden)
 *   h^k = norm(layer(x))                                        predicts t_{i+k+1}
 *   loss = mtp_loss_coef / D  sum over k of the mean cross-entropy over the tokens that count
 *
 * Embedding and output projection are the model's. As Megatron-LM rolls ids, targets and the mask
 * of the loss, the last k tokens of a sample have the embedding of word 0 and do not count, nor
 * does the token after an eod with eod_mask_loss.
 *
 * All of it runs in the forward step of the last virtual stage, as the model's own loss does, so
 * modules keep activations of one micro-batch whatever the schedule. The product is whole on every
 * rank of tp, which with sp computes its own rows.
 */
#ifndef TRAINER_MTP_H
#define TRAINER_MTP_H

#include "trainer/rank.h"

/* The modules of the last virtual stage CHUNK, whose layers are made; elsewhere none. */
void tr_mtp_init(struct tr_rank *rank, const struct tr_chunk *chunk);
void tr_mtp_done(struct tr_rank *rank);

/* Inputs and targets of each depth of SAMPLE (seq + 1), number K of micro-batch MB. */
void tr_mtp_put(struct tr_rank *rank, int mb, int k, const int32_t *sample);

/* This rank's tokens of a step that count, by depth, into RET (model.mtp); 0 where another rank
 * counts them. */
void tr_mtp_count(double *ret, const struct tr_rank *rank);

/* After tr_head() of micro-batch MB: hidden rows of all depths. */
void tr_mtp_fwd(struct tr_rank *rank, int mb);
/* Then losses, added to mtp_sum, and gradients. DX (local_rows, hidden), that of the model's last
 * layer, is added to. */
void tr_mtp_bwd(struct tr_rank *rank, void *dx, int mb);

#endif
