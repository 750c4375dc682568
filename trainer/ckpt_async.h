/*
 * Asynchronous checkpoints, in two stages as MegaScale's (Jiang et al. 2024, section 4.4) and as
 * PyTorch's async_save: training is held while each rank copies what it saves into memory of its
 * own; a thread writes the copy while training continues.
 *
 * The thread does the steps of ckpt_save.h, of which each needs that all ranks have done the one
 * before. As it calls no MPI, the threads that train tell each other at the end of a step whether
 * their writers are idle, and when all are, the saves move on by one step (tr_ckpt_async_turn). A
 * save is made (folder and files) in the training step before it is due, put in the one after it
 * and published in the one after that. Up to three saves are in different steps at a time, in one
 * direction only, so a checkpoint is due every training step without a wait if the writer is as
 * fast as a training step. The copy belongs to the one that is put.
 *
 *     training   step 7 |turn| step 8 |turn| step 9   |turn|
 *     writer       make 7       put 7        publish 7
 *                               make 8       put 8
 *
 * What the thread does is paid by training where it uses all cores, so it writes past the page
 * cache (bounce.h) and sums from memory (shares.h), of a checkpoint as of one that is written
 * synchronously.
 *
 * Bytes, order of names, errors and what a kill leaves are those of tr_ckpt_save().
 *
 * All functions are called by the thread that trains; those that are collective say so.
 */
#ifndef TRAINER_CKPT_ASYNC_H
#define TRAINER_CKPT_ASYNC_H

#include "base/mem.h"
#include "trainer/ckpt.h"

struct tr_ckpt_async;

/* Save WHAT in DIR. ROOM has BYTES: PL_SNAPSHOT_BOUNCE and those that this rank saves. DIR, ROOM,
 * TEAM and what WHAT points to are borrowed. Collective. -EAGAIN on all ranks: one has no
 * thread. */
int tr_ckpt_async_new(struct tr_ckpt_async **ret, const char *dir, int keep,
                      const struct tr_ckpt_what *what, void *room, size_t bytes,
                      const struct tr_team *team, struct err *error);
/* Returns when the thread has ended the step it is in. Saves that are not published are not
 * there; their folders are removed by the next save. */
struct tr_ckpt_async *tr_ckpt_async_free(struct tr_ckpt_async *async);

AUTO_DEFINE(tr_ckpt_async)

/* This rank's writer; does not wait. In ascending urgency: the largest of all ranks counts. */
enum tr_writer { TR_WRITER_IDLE, TR_WRITER_BUSY, TR_WRITER_FAILED };
enum tr_writer tr_ckpt_async_writer(struct tr_ckpt_async *async);

/* Wait until all ranks' writers are idle: 0, or the error of one that failed, on all. Then no
 * function but tr_ckpt_async_free() may follow. Collective. */
int tr_ckpt_async_settle(struct tr_ckpt_async *async, struct err *error);

/* Something is put or published, or has been published and was not yet asked for. */
bool tr_ckpt_async_flying(const struct tr_ckpt_async *async);
/* A save of STEP is made. */
bool tr_ckpt_async_made(const struct tr_ckpt_async *async, int step);

/* All writers are idle and none has failed: every save moves on. STATE: the one that was made for
 * its step gets this state and a copy of the tensors; training has been held for it since HELD_NS
 * (monotonic). NULL: no save is due. NEXT > 0: one is made for that step. On all ranks alike. */
void tr_ckpt_async_turn(struct tr_ckpt_async *async, const struct tr_ckpt_state *state,
                        uint64_t held_ns, int next);

struct tr_ckpt_done {
    int step;
    const char *path; /* until the next turn */
    double bytes;
    double ms, held_ms; /* from when it was due until it was published; that training was held */
};

/* The writer is idle and has published a checkpoint in the last turn, which is said once. */
bool tr_ckpt_async_done(struct tr_ckpt_done *ret, struct tr_ckpt_async *async);

#endif
