/*
 * Who may start what, when. Owns nothing: it moves trials between search, queue and attempts.
 */
#ifndef TUNER_SCHEDULER_H
#define TUNER_SCHEDULER_H

#include "plan/plan.h"

struct tn_campaign;
struct tn_service;

/* Start what may be started: the service calls it on the turn after tn_changed(). */
void tn_sched_run(struct tn_service *svc);

#endif
