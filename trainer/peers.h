/*
 * Is a rank gone that shares this one's host?
 *
 * A launcher that has lost a rank may first ask the others to stop, as Open MPI's does, by the same
 * signal as a person. Those then wait for one that never answers. Their processes tell the two
 * cases apart: a loss is an error of the connection, after which a job may be started again; a stop
 * is not. Ranks on other hosts, or in another PID namespace, are not known here.
 *
 * One set a process, as for trainer/fail.h: the handler that asks carries no argument.
 */
#ifndef TRAINER_PEERS_H
#define TRAINER_PEERS_H

#include "trainer/comm.h"

/* Collective over WORLD. */
void tr_peers_meet(struct tr_group *world);
/* The first rank of this host whose process has ended; -1: none, or tr_peers_meet() was not called.
 * A process that nobody has waited for yet counts as there. */
int tr_peers_gone(void);
/* RANK is on this host and in this PID namespace; its process there, until tr_peers_done(). */
bool tr_peers_near(int rank);
long tr_peers_pid(int rank);
void tr_peers_done(void);

#endif
