/*
 * A checkpoint being written, in steps:
 *
 *     make      rank 0   the folder .saving.xxxxxxxx with its files at their size
 *     put       all      each rank's parts, synced, and its share of the checksums (shares.h)
 *     publish   rank 0   checksums, small files, the name, the pointer `latest`, retention
 *
 * A step begins when all ranks have done the one before; no step talks to other ranks, so a thread
 * may do it. Private to ckpt_save.c, whose tr_ckpt_save() does one after the other, and to
 * ckpt_async.c.
 */
#ifndef TRAINER_CKPT_SAVE_H
#define TRAINER_CKPT_SAVE_H

#include "trainer/archive.h"

struct tr_save {
    const char *dir;
    int keep;
    const struct tr_team *team; /* only who is who: no step calls it */
    struct tr_ckpt_what what;
    struct tr_ckpt_state state;
    char *folder, *path; /* while it is written, and afterwards */
    struct tr_archive archive;
    size_t model_files;       /* the first of the archive */
    struct tr_bounce *bounce; /* for the put; NULL: all of it through the page cache. Borrowed */
};

/* Describe a checkpoint of DIR, of STEP, written as NUMBER (tr_folder_name). DIR and what WHAT
 * points to are borrowed; `what.part` and the rest of `state` may be set until the put. */
void tr_save_init(struct tr_save *ret, const char *dir, int keep, const struct tr_ckpt_what *what,
                  int step, uint64_t number, const struct tr_team *team);
void tr_save_done(struct tr_save *save);

double tr_save_bytes(const struct tr_save *save); /* of the tensors' files, once described */

/* The steps. SWEEP: what other saves have left in DIR is removed; no other one is under way. On a
 * rank that has no part in a step it does nothing. Errors say what failed, not of which
 * checkpoint. */
int tr_save_make(struct tr_save *save, bool sweep, struct err *error);
int tr_save_put(struct tr_save *save, struct err *error);
int tr_save_publish(struct tr_save *save, struct err *error);

#endif
