/*
 * A run: from a checked configuration to a trained or measured model.
 *
 * Stops at the configured number of steps, or in a trial when the step time is known well enough,
 * or after the step in which SIGTERM or SIGINT reached any rank (checkpoint, `stopped` event), or
 * at once if that step cannot end (stop.h).
 */
#ifndef TRAINER_RUN_H
#define TRAINER_RUN_H

#include "trainer/config.h"
#include "trainer/events.h"

/* Runs on every rank of MPI_COMM_WORLD, whose size is layout.world; EVENTS is NULL but on rank 0.
 * Returns the exit code: TR_EXIT_OK or TR_EXIT_STOPPED. An error that ends the run calls tr_fail().
 */
int tr_run(const struct tr_config *config, struct tr_events *events);

/* The first rank whose buffers exceed the budget, from the plan alone: -ENOMEM with its class and
 * bytes. 0: fits. */
int tr_run_check_memory(int *ret_rank, enum pl_mem_class *ret_class, double *ret_asked,
                        const struct tr_config *config, struct err *error);

#endif
