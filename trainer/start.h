/*
 * The ranks of a job begin together or not at all.
 *
 * A rank that leaves before MPI is up, because its host has no such file or too little memory,
 * would leave the others waiting in MPI_Init() under launchers that do not end a job for it (srun
 * without --kill-on-bad-exit). So every rank gets this far and reports what it found; if any cannot
 * begin, all exit with the same code.
 */
#ifndef TRAINER_START_H
#define TRAINER_START_H

#include "base/err.h"
#include "trainer/config.h"

/* CODE is the exit code that this rank asks for (0: it is ready) and ERROR its reason. Returns the
 * code of the first rank that is not ready, and its reason, which names rank and host unless it is
 * rank 0; 0 if all are. MPI is up; collective over MPI_COMM_WORLD. */
int tr_start_together(int code, struct err *error);

/* All ranks were given one configuration, but for where their files are: else TR_EXIT_USAGE, and
 * ERROR names the rank and the key. Collective as above. */
int tr_start_same(const struct tr_config *config, struct err *error);

/* SIZE bytes of each rank, in the order of ranks, into ALL of every rank, before there are groups:
 * a waiting rank sleeps. Collective as above. */
void tr_start_gather(const void *mine, size_t size, void *all);
/* SIZE bytes of rank 0 into BYTES of every rank. Collective as above. */
void tr_start_broadcast(void *bytes, size_t size);

#endif
