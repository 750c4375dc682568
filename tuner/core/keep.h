/*
 * How long results, and how much of files, are kept (retain.c); what was deleted, and old events,
 * leave the database (removal.c). Owns the trash and the measured sizes.
 */
#ifndef TUNER_KEEP_H
#define TUNER_KEEP_H

#include "tuner/tuner.h"

void tn_retain_open(struct tn_service *svc);
void tn_retain_tick(struct tn_service *svc); /* remove what is kept for too long, or too much */
/* -EDQUOT: no file of a trial may be made now. */
int tn_retain_room(const struct tn_service *svc, struct err *error);
void tn_retain_stats(const struct tn_service *svc, struct tn_stats *ret);
/* Remove the folder PATH of the data directory: it is gone at once, its files a while later. */
int tn_trash(struct tn_service *svc, const char *path, struct err *error);

int tn_removal_open(struct tn_service *svc, struct err *error); /* go on with what is left */
void tn_removal_go(struct tn_service *svc); /* something was deleted, or has become old */
void tn_removal_close(struct tn_service *svc);

#endif
