/*
 * Reading samples before they are needed: a thread takes the pages of the next step's samples into
 * memory and checks their checksums while the step computes. What it reads it throws away: the step
 * reads the same bytes again, by then from memory, in the same order and with the same checks, so
 * nothing but time depends on the thread (thread.h). An error that it meets is the step's to
 * report.
 */
#ifndef TRAINER_PREFETCH_H
#define TRAINER_PREFETCH_H

#include "trainer/tokens.h"

struct tr_prefetch;

/* TOKENS, borrowed, with seq + 1 tokens a sample; MOST samples in a request. NULL where there is
 * nothing to read from files, or no thread to be had: all functions below then do nothing. */
struct tr_prefetch *tr_prefetch_new(const struct tr_tokens *tokens, int seq, int most);
/* Returns when the thread has ended: after the sample that it is reading. */
struct tr_prefetch *tr_prefetch_free(struct tr_prefetch *prefetch);

AUTO_DEFINE(tr_prefetch)

/* The next COUNT training samples are those of INDEX, copied. Does not wait; what is left of an
 * earlier request is forgotten. */
void tr_prefetch_ask(struct tr_prefetch *prefetch, const uint64_t *index, int count);

#endif
