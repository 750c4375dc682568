/*
 * At most one run writes to a folder of checkpoints, or to a folder of weights.
 *
 * Rank 0 of a run holds a lock on DIR/.lock from its start to its end; for --save-hf FOLDER, which
 * is replaced as a whole, on .NAME.lock next to it. It is an fcntl() lock of the
 * open file (F_OFD_SETLK): the kernel, or over NFS, Lustre, GPFS and the like the file server,
 * drops it with the process, however that ends, so a killed run leaves none behind. (flock() would
 * be local to a host on some of these.) The file's content says who holds it: host, pid, boot,
 * start of the process, and since when. It stays when the run is over, empty.
 *
 * Where a file system has no such locks (Lustre mounted without -o flock), that content decides as
 * far as it can: a process of this host that still runs keeps others out, one that is gone does
 * not. Nothing is known there of a run on another host: the caller gets a warning and continues.
 */
#ifndef TRAINER_LOCK_H
#define TRAINER_LOCK_H

#include "base/err.h"
#include "base/mem.h"

struct tr_lock;

/* Lock folder DIR, which exists. -EBUSY names the run that has it. RET_WARNING gets a text if
 * nothing keeps a run on another host out, else NULL; caller frees. */
int tr_lock_dir(struct tr_lock **ret, char **ret_warning, const char *dir, struct err *error);
/* The same by a lock on file PATH, which is made if it is absent, for what errors call WHAT. */
int tr_lock_file(struct tr_lock **ret, char **ret_warning, const char *path, const char *what,
                 struct err *error);

struct tr_lock *tr_lock_free(struct tr_lock *lock);

AUTO_DEFINE(tr_lock)

#endif
