/*
 * Trace ids of W3C Trace Context, which join the daemon's log lines with other programs' traces. A
 * campaign is a trace: that of the request which submitted it, or a new one. An attempt is a span
 * of it; the trial's processes get its id in TRACEPARENT.
 */
#ifndef TUNER_TRACE_H
#define TUNER_TRACE_H

#include "base/base.h"

enum {
    TN_TRACEPARENT_TEXT = 56, /* 00-TRACE-SPAN-FLAGS */
    TN_TRACE_TEXT = 33,
    TN_SPAN_TEXT = 17
};

/* A campaign's traceparent: HEADER, the request's (NULL: none), in version 00; where it is invalid
 * that of a new sampled trace. */
void tn_trace_new(char ret[TN_TRACEPARENT_TEXT], const char *header);
/* The trace id of TRACEPARENT; returns RET. */
const char *tn_trace_id(char ret[TN_TRACE_TEXT], const char *traceparent);
/* The id of the span of attempt ATTEMPT of trial N of the campaign with TRACEPARENT: the same
 * whenever it is asked for. Returns RET. */
const char *tn_trace_span(char ret[TN_SPAN_TEXT], const char *traceparent, int64_t n,
                          int64_t attempt);
/* The traceparent of that span, for its processes: the campaign's trace and flags. Returns RET. */
const char *tn_trace_child(char ret[TN_TRACEPARENT_TEXT], const char *traceparent, int64_t n,
                           int64_t attempt);

#endif
