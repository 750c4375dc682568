/*
 * How a trial is put onto machines: the table of functions that each launcher is.
 */
#ifndef TUNER_LAUNCHER_H
#define TUNER_LAUNCHER_H

#include "tuner/core/spec.h"

struct tn_attempt;
struct tn_campaign;
struct tn_trial;

/* How a trial is put onto machines. */
struct tn_launcher {
    const char *name; /* in a campaign's "launcher" */
    const char *runs; /* where trials run, for people; on one line, for tuner/rows.awk */
    bool shared;      /* trials of all campaigns compete for the same cores */
    size_t state;     /* bytes of attempt->launch, which live as long as the attempt */
    bool sets_user; /* its trials run as --trial-user; else a foreign scheduler chooses the user */
    bool elsewhere; /* this daemon runs nothing: no trainer and no data are needed here */
    bool several;   /* it can serve several clusters, each trial that of its layout */
    /* Can it start anything now? The reason pauses the campaign. */
    int (*ready)(struct tn_service *svc, const struct tn_spec *spec, struct err *error);
    /* Is a campaign possible at all on what it has? */
    int (*admit)(const struct tn_service *svc, const struct tn_spec *spec, struct err *error);
    /* Hold the cores (or what else it needs) of the attempt's layout: false when they are busy. */
    bool (*reserve)(struct tn_attempt *attempt);
    void (*release)(struct tn_attempt *attempt);
    /* Would somebody run another trial of this campaign now? NULL: as many as search.parallel. */
    bool (*wanted)(const struct tn_campaign *campaign);
    /* TRIAL found no room since trial->no_room. Add to RET what is missing and what to do about it,
     * where nothing that is there will ever make room; may be NULL. */
    void (*lacks)(struct str *ret, const struct tn_trial *trial);
    int (*start)(struct tn_attempt *attempt, struct err *error);
    /* Find it again after a restart: 1 it lives and is watched, 0 it is dead and attempt->exit is
     * set. */
    int (*adopt)(struct tn_attempt *attempt, const struct db_attempt *row, struct err *error);
    void (*stop)(struct tn_attempt *attempt);
    /* The rest may be NULL. Every tick of a live attempt. */
    void (*tick)(struct tn_attempt *attempt);
    /* The attempt's struct is about to go: close what handles the state has. */
    void (*close)(struct tn_attempt *attempt);
    /* The last process that ran under a supervisor here is gone; NULL: the attempt has ended. */
    void (*gone)(struct tn_attempt *attempt);
    /* End what an attempt of a former daemon left running: its campaign cannot be brought back.
     * FOLDER is the attempt's, MARK that of its processes. */
    void (*forget)(struct tn_service *svc, const char *folder, const char *mark);
    /* Of the daemon as a whole: it is open; it has one more turn; it closes, and no callback may
     * come after that. */
    void (*opened)(struct tn_service *svc);
    void (*turn)(struct tn_service *svc);
    void (*closed)(struct tn_service *svc);
    /* For /readyz: 0, or why it cannot work now; -ENOTSUP: nobody has set it up. FIX says what to
     * do. */
    int (*health)(const struct tn_service *svc, struct err *error);
    const char *health_fix;
};

#endif
