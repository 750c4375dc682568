/*
 * Who runs where, for the hello event: host and CPUs of every rank, collected on rank 0.
 */
#ifndef TRAINER_HELLO_H
#define TRAINER_HELLO_H

#include "trainer/comm.h"
#include "trainer/config.h"
#include "trainer/events.h"

/* "0-3,8": the CPUs that this thread may run on. Into BUF, cut at a comma if it is too long. */
char *tr_cpu_list(char *buf, size_t size);

/* Send the event. Collective over WORLD; EVENTS is NULL but on rank 0. */
void tr_hello(struct tr_events *events, const struct tr_config *config, struct tr_group *world);

#endif
