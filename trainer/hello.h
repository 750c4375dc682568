/*
 * Who runs where, for the hello event: host and CPUs of every rank, collected on rank 0.
 */
#ifndef TRAINER_HELLO_H
#define TRAINER_HELLO_H

#include "trainer/comm.h"
#include "trainer/config.h"
#include "trainer/events.h"

/* Send the event. Collective; EVENTS is NULL but on rank 0. */
void tr_hello(struct tr_events *events, const struct tr_config *config, struct tr_comms *comms);

#endif
