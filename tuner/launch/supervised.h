/*
 * An attempt under partune-run on this machine: the common part of launchers. Owns the watch on its
 * supervisor.
 */
#ifndef TUNER_SUPERVISED_H
#define TUNER_SUPERVISED_H

#include "tuner/core/attempt.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/proc.h"

/* What is known of the supervisor. A launcher that uses the functions below has it at the start of
 * its state, and tn_supervised_close() in its row. */
struct tn_supervised {
    struct tn_proc proc;
    uv_poll_t poll; /* on pidfd */
    int pidfd;
    bool watched;     /* poll and pidfd are open */
    bool killing;     /* what it left behind is being killed */
    uint64_t kill_at; /* monotonic ms: it did not obey; 0: it was not told anything */
};

/* partune-run's own command line up to "--"; CPUS, which may be NULL, is the list it is bound to.
 */
void tn_supervised_argv(struct tn_argv *argv, const struct tn_attempt *attempt, const char *cpus);
/* What a trial may see of our environment, its mark and its trainer's variables. */
void tn_supervised_env(struct tn_argv *env, const struct tn_attempt *attempt);
/* Between TERM and KILL. */
int tn_supervised_grace_ms(const struct tn_attempt *attempt);
/* Start and watch; the launcher's gone(), or tn_attempt_ended(), is called at its end. */
int tn_supervised_spawn(struct tn_attempt *attempt, char **argv, char **env, struct err *error);
/* 1: it lives and is watched, 0: it is dead, or will never start. */
int tn_supervised_adopt(struct tn_attempt *attempt, struct err *error);
void tn_supervised_stop(struct tn_attempt *attempt);
void tn_supervised_tick(struct tn_attempt *attempt);
void tn_supervised_close(struct tn_attempt *attempt);
/* End the attempt in FOLDER, of which there is nothing in memory, and wait until it is gone. */
void tn_supervised_end(struct tn_service *svc, const char *folder, const char *mark);
void tn_process_closed(uv_handle_t *handle); /* of a supervisor that was our child */

#endif
