/*
 * A folder of checkpoints: which ones it has, which to resume from, which to remove. Private to
 * ckpt.c, which says what one checkpoint is.
 */
#ifndef TRAINER_CKPT_DIR_H
#define TRAINER_CKPT_DIR_H

/* Remove the checkpoints of DIR up to step NEWEST but for the KEEP newest of them. Each loses its
 * name first, so that none is ever seen half removed. Damaged ones that were set aside stay. */
void tr_ckpt_retire(const char *dir, int keep, int newest);

#endif
