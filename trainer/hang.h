/*
 * Who hangs: when no rank makes progress, one of them reports what each does, in which operation
 * it waits, and who is missing (hang_find.h), as a page on stderr and a `hang` event. The run
 * waits on, and says so when it continues.
 *
 * What a rank does is in a page of memory (now.h) that its host's other ranks map, so a rank that
 * is stopped can still be read. In each rank a thread looks twice a second. Its time of looking,
 * also in the page, shows that the process runs. The lowest rank of a host whose process runs
 * speaks for the host; speakers send their host's pages to the ranks of the first hosts by UDP
 * (hang_net.h), and the speaker of the first host that is heard of judges. So any rank may be the
 * one that hangs, rank 0 too. No thread but the main one calls MPI.
 *
 * A job hangs when for `patience` no rank has made a move: begun a phase, a layer, an operation or
 * a wait. Patience is the largest of what the ranks that are heard of ask for: in steps and
 * validations hang_report_s (10 s by default), or 3 times the median step if that is longer; 6
 * times hang_report_s in the first step and while samples are read; 60 times in checkpoints and
 * before the first step. It is hang_report_s wherever a process is stopped or gone. It counts anew
 * for a thread that has not run for 2 s, so a job that was paused as a whole blames nobody.
 */
#ifndef TRAINER_HANG_H
#define TRAINER_HANG_H

#include "trainer/comm.h"
#include "trainer/config.h"

struct tr_hang;

/* Collective over COMMS, after tr_peers_meet(). The rank publishes from now on: through COMMS and
 * CLOCK, which with CONFIG must live until tr_hang_free(). NULL, which all functions accept, where
 * CONFIG wants no reports. */
struct tr_hang *tr_hang_new(struct tr_comms *comms, struct tr_clock *clock,
                            const struct tr_config *config);
struct tr_hang *tr_hang_free(struct tr_hang *hang);

/* The main thread begins SECTION; STEP is under way in it, or the last that is done. */
void tr_hang_section(struct tr_hang *hang, enum tr_section section, int step);
/* A step took so long. */
void tr_hang_step(struct tr_hang *hang, double ms);

#endif
