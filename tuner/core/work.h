/*
 * What is at work: the head of each list of this folder, and what is counted. Each list belongs to
 * the file that is named next to it.
 */
#ifndef TUNER_WORK_H
#define TUNER_WORK_H

#include "tuner/state/state.h"
#include "tuner/tuner.h"

struct tn_attempt;
struct tn_campaign;
struct tn_removal;
struct tn_retain;
struct tn_revival;

struct tn_work {
    struct tn_campaign *campaigns; /* campaign_memory.c */
    struct tn_revival *revivals;   /* revive.c: campaigns that are being brought back */
    struct tn_attempt *attempts;   /* attempt.c */
    struct tn_retain *retain;      /* retain.c */
    struct tn_removal *removal;    /* removal.c */
    json_t *texts;     /* campaign.c: cache of tn_campaign_text, id -> [rev, ms, text] */
    uint64_t last_end; /* monotonic us of the last trial's end, for the overhead */
    struct tn_stats stats;
};

#endif
