/* The rotation of queries and keys: how fast each pair of elements turns (private to trainer/). */
#ifndef TRAINER_ROPE_H
#define TRAINER_ROPE_H

#include "plan/plan.h"

/* That of the model, and that of layers with a window where these have a base of their own. */
enum tr_rope { TR_ROPE_MAIN, TR_ROPE_LOCAL, TR_ROPES };

/* The rotation of layer LAYER of the model. */
enum tr_rope tr_rope_of(const struct pl_model *model, int layer);

/*
 * RET_FREQUENCY[i], i < pl_rotary_dim / 2: the angle by which pair i turns from a position to the
 * next. Returns the factor of its cosine and sine, so that of attention's scores is its square.
 * Scaling (struct pl_rope_scaling) is of the main rotation only, as in Gemma 3 and OLMo 3.
 *
 *   plain    f_i = theta^(-2 i / dim), dim the elements that are rotated
 *   linear   f_i / factor
 *   llama3   f_i where the wavelength 2 pi / f_i is below original_seq / high_freq_factor,
 *            f_i / factor where it is above original_seq / low_freq_factor, between them the mean
 *            of both with the weight of f_i rising linearly with original_seq f_i / 2 pi
 *   yarn     f_i / factor + w_i (f_i - f_i / factor), where w_i falls from 1 to 0 between the pairs
 *            that turn beta_fast and beta_slow times in original_seq positions (Peng et al. 2023);
 *            the factor is pl_yarn_amplitude()
 *
 * Rounding of yarn's bounds and the meaning of zeros: transformers' modeling_rope_utils.py.
 */
double tr_rope_frequencies(double *ret_frequency, const struct pl_model *model, enum tr_rope kind);

/* Factor of attention's scores next to 1 / sqrt(head_dim): with yarn and latent attention the
 * square of the term of mscale_all_dim, as DeepSeek's own code has it. */
double tr_rope_score_factor(const struct pl_model *model);

#endif
