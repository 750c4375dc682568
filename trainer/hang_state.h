/*
 * The state of hang.h, for hang*.c only. The main thread makes it and ends it; in between `recent`
 * and the page's fields of a rank are the main thread's, all else the watching thread's.
 */
#ifndef TRAINER_HANG_STATE_H
#define TRAINER_HANG_STATE_H

#include <netinet/in.h>
#include <pthread.h>

#include "trainer/hang.h"
#include "trainer/hang_find.h"

enum { TR_HANG_RECENT = 15, TR_HANG_ADDRESSES = 4, TR_HANG_HOST = 64 };

/* Of a rank, alike on all. */
struct tr_hang_peer {
    uint64_t token; /* rank 0's marks the datagrams of this job */
    uint64_t inode; /* of its page */
    int32_t fd;     /* of its page, in its process; -1: none */
    int32_t leader[TR_KINDS];
    uint32_t address[TR_HANG_ADDRESSES]; /* IPv4, network order; 0: no more */
    uint16_t port;                       /* network order; 0: none */
    char host[TR_HANG_HOST];
};

/* What this rank knows of another now. */
struct tr_hang_view {
    const struct tr_now *page; /* NULL: on another host */
    uint64_t moves;            /* when this was seen first ... */
    uint64_t moved_ns;         /* ... the rank had moved; 0: never seen */
    /* Of another host: */
    struct tr_hang_rank far;
    uint64_t heard_ns;
    uint64_t patience_ns;
    bool far_reported;
};

struct tr_hang {
    const struct tr_config *config;
    struct tr_progress *progress;
    struct tr_clock *clock;
    struct tr_now *now; /* this rank's page */
    int fd;             /* of it; -1: it is not shared */
    int rank, world;
    struct tr_hang_peer *peer; /* (world) */
    struct tr_hang_view *view; /* (world) */
    int32_t *site;             /* (world): lowest rank whose page the rank reads, itself included */
    int socket;                /* -1: all ranks are on one site */
    double recent[TR_HANG_RECENT]; /* ms of the last steps, a ring */
    long steps;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
    uint64_t looked_ns, woken_ns; /* the thread ran last; it had not run for long before */
    uint64_t report_ns;           /* of the hang that goes on; 0: none */
    uint64_t since_ns;            /* when it began */
    uint64_t failing_ns;          /* the main thread was told to end the job; 0: not */
    char why[400];
};

enum { TR_HANG_LEAST_S = 3 };

/* Nothing is called a hang before. */
static inline double tr_hang_least_s(const struct tr_hang *hang)
{
    double asked = hang->config->hang_report_s;

    return asked > TR_HANG_LEAST_S ? asked : TR_HANG_LEAST_S;
}

/* The thread's function; ARG is a struct tr_hang. */
void *tr_hang_watch(void *arg);

#endif
