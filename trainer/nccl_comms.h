/*
 * NCCL's library (libnccl.so.2), which is opened at run time, and its communicators: of collectives
 * (nccl.h) and of links (link.h), which use it through here. PARTUNE_NCCL=off: never.
 *
 * Nothing that NCCL is given is waited for inside of it, so an error of it, such as a rank that is
 * gone, comes to light while the host waits: for the device, or in tr_wait(). There every
 * communicator is asked for its error (ncclCommGetAsyncError), every PERIOD. The first one ends the
 * job, in one line. Before that all communicators are aborted, because a kernel of NCCL that waits
 * for a rank that is gone spins forever, and the end of the process would wait for it.
 */
#ifndef TRAINER_NCCL_COMMS_H
#define TRAINER_NCCL_COMMS_H

#include "trainer/comm.h"

struct tr_nccl_id {
    char bytes[128];
};

struct tr_nccl_calls { /* as nccl.h declares them; 0 is success, a pointer alone the result */
    int (*version)(int *);
    int (*unique_id)(struct tr_nccl_id *id);
    int (*init)(void **, int size, struct tr_nccl_id id, int rank);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    int (*async_error)(void *comm, int *);
    const char *(*error_text)(int code);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int op, void *comm,
                      void *stream);
    int (*reduce_scatter)(const void *from, void *to, size_t count, int type, int op, void *comm,
                          void *stream);
    int (*all_gather)(const void *from, void *to, size_t count, int type, void *comm, void *stream);
    int (*reduce)(const void *from, void *to, size_t count, int type, int op, int root, void *comm,
                  void *stream);
    int (*broadcast)(const void *from, void *to, size_t count, int type, int root, void *comm,
                     void *stream);
    int (*send)(const void *from, size_t count, int type, int peer, void *comm, void *stream);
    int (*recv)(void *to, size_t count, int type, int peer, void *comm, void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
};

enum { TR_NCCL_BYTES = 0, TR_NCCL_FLOAT32 = 7, TR_NCCL_BFLOAT16 = 9, TR_NCCL_SUM = 0 };

struct tr_nccl {
    struct tr_nccl_calls call;
    void *library;
    int version;
    struct kn_pool *pool, *aside; /* the rank's, and a second stream */
    void *comm[16];               /* of these (comms) */
    int comms;
    uint64_t asked_ns; /* when they were last asked for errors */
    tr_fail_fn *fail;
};

/* The library on every rank of COMMS, each of which has a GPU of its own, or NULL on all of them.
 * Waits of COMMS and of its pool ask for errors from then on. Collective, when groups and staging
 * are set up. FAIL does not return. */
struct tr_nccl *tr_nccl_open(struct tr_comms *comms, tr_fail_fn *fail);
/* Accepts NULL; returns NULL. Collective. */
struct tr_nccl *tr_nccl_close(struct tr_nccl *nccl, struct tr_comms *comms);

/* A communicator of GROUP's members, in their order. They call it together. It is NCCL's until
 * tr_nccl_close(). */
void *tr_nccl_comm(struct tr_nccl *nccl, struct tr_group *group);

/* If CODE is an error, of WHAT: abort and fail. */
void tr_nccl_must(struct tr_nccl *nccl, int code, const char *what);

#endif
