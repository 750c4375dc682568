/*
 * A folder of checkpoints: which ones it has, which to remove. Private to ckpt_save.c and
 * ckpt_resume.c; ckpt.h says what one checkpoint is.
 */
#ifndef TRAINER_CKPT_DIR_H
#define TRAINER_CKPT_DIR_H

#include <stddef.h>

#include "base/err.h"

enum { TR_CKPT_NAME = 64 };
#define TR_CKPT_DAMAGED ".damaged" /* behind the name of one that was set aside */

struct tr_ckpt_entry {
    int step;
    char name[TR_CKPT_NAME];
};

struct tr_ckpt_list {
    struct tr_ckpt_entry *entry; /* newest step first, each step before its .old; caller frees */
    size_t n;
    char aside[TR_CKPT_NAME]; /* one that was set aside, "" if there is none */
};

/* The checkpoints of DIR; none where there is no such folder. */
int tr_ckpt_list(struct tr_ckpt_list *ret, const char *dir, struct err *error);
/* Put the one that the pointer `latest` names before the others. */
void tr_ckpt_prefer_latest(struct tr_ckpt_list *list, const char *dir);

/* Remove the checkpoints of DIR up to step NEWEST but for the KEEP newest of them. Each loses its
 * name first, so that none is ever seen half removed. Damaged ones that were set aside stay. */
void tr_ckpt_retire(const char *dir, int keep, int newest);

#endif
