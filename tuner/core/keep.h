/*
 * How long results, and how much of files, are kept (retain.c, trash.c); what was deleted, and old
 * events, leave the database (removal.c). Owns the trash and the measured sizes.
 */
#ifndef TUNER_KEEP_H
#define TUNER_KEEP_H

#include "tuner/tuner.h"

/* What is known of the disk: retain.c measures, trash.c answers. */
struct tn_retain {
    bool at_work;
    uint64_t next;        /* monotonic ms: of the next round */
    int64_t used;         /* bytes below campaigns/, by the last round; -1: not known */
    bool full;            /* nothing more may be started */
    int64_t dropped;      /* campaigns whose files went for the quota, since the start */
    int64_t removed;      /* campaigns that went because of their age */
    unsigned trash_count; /* names in trash/ */
};

void tn_retain_open(struct tn_service *svc);
void tn_retain_tick(struct tn_service *svc); /* remove what is kept for too long, or too much */
/* -EDQUOT: no file of a trial may be made now. */
int tn_retain_room(const struct tn_service *svc, struct err *error);
void tn_retain_stats(struct tn_stats *ret, const struct tn_service *svc);
/* Remove the folder PATH of the data directory: it is gone at once, its files a while later. */
int tn_trash(struct tn_service *svc, const char *path, struct err *error);

int tn_removal_open(struct tn_service *svc, struct err *error); /* resume what is left */
void tn_removal_go(struct tn_service *svc); /* something was deleted, or has become old */
void tn_removal_close(struct tn_service *svc);

#endif
