/* Log lines about a campaign or an attempt, with the ids of their trace (tuner/results/trace.h). */
#ifndef TUNER_CAMPAIGN_LOG_H
#define TUNER_CAMPAIGN_LOG_H

#include "base/base.h"

struct tn_attempt;
struct tn_campaign;
struct tn_service;

/* Log "campaign ID (simulated)" FMT trace_id=TRACE. Of one that is not in memory (tn_log_id) the
 * trace is read from the database, on the loop. */
void tn_log_campaign(enum log_level level, const struct tn_campaign *campaign, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void tn_log_id(enum log_level level, struct tn_service *svc, const char *id, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Log "campaign ID (simulated): trial N attempt K" FMT trace_id=TRACE span_id=SPAN. */
void tn_log_attempt(enum log_level level, const struct tn_attempt *attempt, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
