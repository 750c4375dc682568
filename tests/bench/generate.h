/*
 * Landscapes to develop the search on: random models on random clusters, whose truth differs from
 * the cost model and the memory plan as a real cluster's does, by more than the search is told.
 *
 * Settings of the search are chosen by these, never by the tables that its results are reported
 * on. Seed K is always the same landscape. What is drawn (generate.c has the widths):
 * - the model (depth, heads, head width, length, vocabulary, with or without a gate), the cluster
 *   (profile, size, batch) and the values of the space's keys;
 * - every constant of the cost model, between what physics leaves open, also such as are 0 as
 *   shipped (time of the host, pauses);
 * - a factor for each class of seconds and of bytes;
 * - the stack: whether it keeps attention's T x T matrices, shards gradients with the optimizer's
 *   state, or has a context that takes memory of its own, and how slow tp across nodes is;
 * - a smooth factor over log2 of tp, pp, vp and micro_batch, one for each mode of recompute, zero
 *   and sp, and a little for each layout by itself.
 */
#ifndef TESTS_BENCH_GENERATE_H
#define TESTS_BENCH_GENERATE_H

#include "tests/bench/landscape.h"

struct truth;

void landscape_generate(struct landscape *ret, uint64_t seed);

/*
 * An earlier campaign for that of SEED, of another model, scale and space. RELATED: on the same
 * machine and stack, whose constants, factors and words it shares, but for a little of its own and
 * half of the smooth factor. OPPOSED: likewise, but every factor errs the other way, which is the
 * most misleading. UNRELATED: another landscape altogether.
 */
enum landscape_kin { LANDSCAPE_RELATED, LANDSCAPE_UNRELATED, LANDSCAPE_OPPOSED };
void landscape_generate_kin(struct landscape *ret, uint64_t seed, enum landscape_kin kin);

/*
 * A landscape with all its sizes, of up to 16 times more devices: pipelines take what the event
 * simulator says, and what a reduced problem does differs from the full size by slopes in devices
 * and in work, by the fidelity and by the layout (generate.c has the widths), none of which the
 * search is told. The caller frees what is returned.
 */
struct truth *landscape_generate_sized(struct landscape *ret, uint64_t seed);
/* tokens/s of layout INDEX at a fidelity of the landscape's spec, from 1; 0: out of memory; -1: no
 * such trial. */
double landscape_small(const struct truth *truth, const struct landscape *landscape, size_t index,
                       int fidelity);

#endif
