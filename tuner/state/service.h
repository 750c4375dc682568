/*
 * The whole daemon, for the files that open and close it. Others are given a part (state.h).
 */
#ifndef TUNER_SERVICE_H
#define TUNER_SERVICE_H

#include "tuner/state/state.h"

struct tn_service {
    uv_loop_t *loop;
    struct tn_config config; /* strings are owned */
    char *data_dir, *instance;
    int lock_fd;
    struct db *db;
    struct db_writer *writer;
    struct pl_cluster *local;
    const struct tn_kinds *kinds;

    struct tn_phase *phase;
    struct tn_machine *machine;
    struct tn_work *work;
    struct tn_launching *launching;
    struct tn_webhooks *webhooks;

    uv_async_t wake;  /* a commit brought events, or something changed */
    uv_timer_t clock; /* wall budgets, retries, housekeeping */
    struct tn_subscription *subscriptions;
    int64_t delivered;          /* last event id */
    uint64_t trim_at;           /* monotonic ms: when old events go next */
    void (*stopped)(void *arg); /* NULL: nobody waits for the end */
    void *stopped_arg;
};

#endif
