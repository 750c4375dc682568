/*
 * The end of a job, in place of MPI_Finalize().
 *
 * In MPICH before 4.2 over UCX, MPI_Finalize() of ranks on several hosts may never return. To
 * close a TCP connection a rank asks its peer to confirm what it has sent; a peer that has its own
 * confirmations already waits for the process manager, without answering anybody. Which of the two
 * comes first is a race inside MPI_Finalize() that a program cannot decide: over a link of
 * 200 Mbit/s one run in five was lost to it. Ranks of one host have no such connections.
 *
 * So ranks on several hosts that Hydra started wait for each other, tell Hydra themselves that they
 * are done, and leave MPI as it is; under other launchers, and on one host, MPI_Finalize() is
 * called.
 */
#ifndef TRAINER_FINALIZE_H
#define TRAINER_FINALIZE_H

/* No MPI call may follow, and no transfer of this rank may be under way. Collective over all ranks
 * of the job. */
void tr_finalize(void);

#endif
