/*
 * An asynchronous backend: launches and copies are only recorded, and kn_wait runs them with the
 * host's kernels on one thread. A caller that reads a result, or changes an input, without kn_wait
 * gets wrong numbers; so a program that gives the same bits on this backend and on the host's has
 * every wait that it needs. A stamp is recorded like a launch, or reached at once if there is
 * nothing to run. Its own memory (kn_alloc_own) can be touched by operations and copies alone:
 * elsewhere an access is a segmentation fault.
 */
#ifndef TESTS_UNIT_ASYNC_BACKEND_H
#define TESTS_UNIT_ASYNC_BACKEND_H

#include "kernels/backend.h"

/* APART: with memory of its own. */
const struct kn_backend *async_backend(bool apart);

/* Its operations: those of plain arguments are made by kernels/calls.awk, with async_launch, which
 * copies ARGS and has kn_wait call RUN. */
#define ASYNC_DECLARE(op) __typeof__(kn_##op) async_##op;
KN_BACKEND_OPS(ASYNC_DECLARE)
#undef ASYNC_DECLARE
void async_launch(struct kn_pool *p, void (*run)(const void *), const void *args, size_t bytes);

int async_pending(const struct kn_pool *p); /* launched and not yet run */
int async_waits(const struct kn_pool *p);   /* with something to run, since the pool was made */
int async_live(void);                       /* allocations that were not freed */

#endif
