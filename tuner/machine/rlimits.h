/*
 * What the processes of a trial are held to, beyond their cores: resource limits and the user that
 * they run as. Read by partuned, which refuses mistakes at its start, and applied by partune-run
 * between fork and exec.
 */
#ifndef TUNER_RLIMITS_H
#define TUNER_RLIMITS_H

#include <sys/resource.h>
#include <sys/types.h>

#include "base/base.h"

enum { TN_RLIMITS = 6 };

struct tn_rlimits {
    bool set[TN_RLIMITS];
    rlim_t value[TN_RLIMITS];
};

/* "data=32g,nofile=4096": core, data and fsize are sizes, nofile, nproc counts, cpu seconds of a
 * process. NULL and "" limit nothing but core, which is 0 unless it is given: a crash should not
 * fill the disk. -EINVAL names the mistake. */
int tn_rlimits_parse(struct tn_rlimits *ret, const char *text, struct err *error);
/* To this process and its children; a limit above the present hard one becomes that. */
int tn_rlimits_apply(const struct tn_rlimits *limits);

/* Who a trial runs as. */
struct tn_user {
    uid_t uid;
    gid_t gid;
    char *name, *home; /* owned */
};

/* -ENOENT: no such user; -EINVAL: it is root; -EPERM: this process may not change its user. */
int tn_user_find(struct tn_user *ret, const char *name, struct err *error);
void tn_user_done(struct tn_user *user);
/* Become USER, for good: its groups, no way to more privileges, HOME, USER and LOGNAME. Negative
 * errno where any of that fails: then nothing may be started. */
int tn_user_become(const struct tn_user *user);
/* The folder and the files in it become USER's, so that a trial may write there. No program of USER
 * may know them yet. */
int tn_user_give(const struct tn_user *user, const char *folder, struct err *error);

#endif
