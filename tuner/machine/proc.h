/*
 * Processes of a trial: who they are, and how to end all of them.
 *
 * A process is known by (boot id, pid, start time), because pids are used again. All processes of
 * an attempt carry PARTUNE_TRIAL=<instance>/<campaign>/<n>/<attempt> in their environment, because
 * Hydra puts its proxy and every rank into sessions of their own, so that no process group covers a
 * trial.
 */
#ifndef TUNER_PROC_H
#define TUNER_PROC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define TN_MARK_ENV "PARTUNE_TRIAL"
#define TN_TRACE_ENV "TRACEPARENT" /* tuner/results/trace.h */

enum { TN_BOOT_TEXT = 40, TN_MARK_TEXT = 128 };

struct tn_proc {
    char boot[TN_BOOT_TEXT];
    int pid;
    uint64_t start; /* clock ticks after boot: field 22 of /proc/PID/stat */
};

/* -ESRCH if there is no such process, or it is a zombie. */
int tn_proc_of(struct tn_proc *ret, int pid);
/* Is it this very process that lives now? */
bool tn_proc_alive(const struct tn_proc *proc);
/* Milliseconds since it was started, by a clock that nobody sets. */
uint64_t tn_proc_age_ms(const struct tn_proc *proc);
/* Parent of a process; -ESRCH. */
int tn_proc_parent(int pid);
/* Children of this process that live: up to MAX pids, returns how many were found. */
int tn_proc_children(int *ret_pids, int max);

/* Processes with this mark other than this one: up to MAX pids, returns how many were found.
 * Zombies do not count. Only processes of our own user can be seen, unless we are root. */
int tn_mark_find(int *ret_pids, int max, const char *mark);
/* Signal all of them; returns how many there were. */
int tn_mark_signal(const char *mark, int sig);
/* KILL all of them again and again until none is left: fork races lose. 0, or -ETIMEDOUT. Sleeps;
 * not for a loop. */
int tn_mark_kill_all(const char *mark, int timeout_ms);

/* Times that the kernel killed something for want of memory since boot, or 0 where it does not
 * count. */
int64_t tn_oom_kills(void);

/* "0,2-3" as a list of up to MAX core numbers; returns their count, or -EINVAL. And back, into BUF.
 */
int tn_cpus_parse(int *ret, int max, const char *text);
char *tn_cpus_text(char *buf, size_t size, const int *cpus, int count);

/* Find PROGRAM: as given with a slash, next to this program or in its ../libexec/partune, in PATH;
 * NULL where it is none of these. */
char *tn_find_program(const char *given, const char *name);

/* ---- what partune-run leaves in the attempt's folder --------------------- */

#define TN_RUN_FILE "run.json"   /* who supervises: written before anything starts */
#define TN_EXIT_FILE "exit.json" /* how it ended: written after the last process is gone */

struct tn_exit {
    bool known;             /* an exit file was there */
    int code;               /* of the launcher; -1 if it was killed */
    int signal;             /* 0: none */
    bool stopped;           /* we were told to stop it */
    bool proxy_lost;        /* ranks lived on without their process manager */
    int leftovers;          /* processes that had to be killed after the launcher's end */
    int64_t oom_kills;      /* of the kernel while it ran */
    int64_t started, ended; /* milliseconds since the epoch */
};

/* Claim the attempt whose folder this is, for SELF: creates run.json with its whole content, or
 * fails with -EEXIST when somebody else was first. The claim decides: a supervisor that finds
 * it taken must not start anything, and a daemon that claims (SELF NULL) knows that nothing
 * will start. */
int tn_run_claim(const char *folder, const struct tn_proc *self, const char *mark,
                 struct err *error);
/* 0 and the supervisor (pid 0 when the daemon claimed it), or -ENOENT, or -EINVAL for a damaged
 * file. */
int tn_run_read(struct tn_proc *ret, const char *folder, struct err *error);
int tn_exit_write(const char *folder, const struct tn_exit *outcome, struct err *error);
/* A missing or damaged file gives known = false. */
void tn_exit_read(struct tn_exit *ret, const char *folder);

#endif
