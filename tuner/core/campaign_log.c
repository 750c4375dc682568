#include <stdarg.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/launcher.h"
#include "tuner/core/campaign_log.h"
#include "tuner/core/spec.h"
#include "tuner/core/work.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"

/* The ids are kept where a long message is cut. */
enum { MESSAGE = 1700 };

static const char *mark_of(const struct tn_campaign *campaign)
{
    return tn_simulated_mark(campaign->engine->spec->launcher->name);
}

void tn_log_campaign(enum log_level level, const struct tn_campaign *campaign, const char *fmt, ...)
{
    char text[MESSAGE], trace[TN_TRACE_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_at(level, "campaign %s%s%s trace_id=%s", campaign->id, mark_of(campaign), text,
           tn_trace_id(trace, campaign->traceparent));
}

/* Of a campaign that is not in memory: its ids and mark are read from the database. */
static void log_row(enum log_level level, struct tn_service *svc, const char *id, const char *text)
{
    char trace[TN_TRACE_TEXT];
    struct arena arena = {0};
    struct db_campaign row;

    if (db_campaign_trace(&row, tn_db(svc), &arena, id, NULL) == 0)
        log_at(level, "campaign %s%s%s trace_id=%s", id, tn_simulated_mark(row.launcher), text,
               tn_trace_id(trace, row.traceparent));
    else
        log_at(level, "campaign %s%s", id, text);
    arena_done(&arena);
}

void tn_log_id(enum log_level level, struct tn_service *svc, const char *id, const char *fmt, ...)
{
    const struct tn_campaign *campaign = tn_work(svc)->campaigns;
    char text[MESSAGE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    while (campaign && strcmp(campaign->id, id) != 0)
        campaign = campaign->next;
    if (campaign)
        tn_log_campaign(level, campaign, "%s", text);
    else
        log_row(level, svc, id, text);
}

void tn_log_attempt(enum log_level level, const struct tn_attempt *attempt, const char *fmt, ...)
{
    char text[MESSAGE], trace[TN_TRACE_TEXT], span[TN_SPAN_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_at(level, "campaign %s%s: trial %lld attempt %lld%s trace_id=%s span_id=%s",
           attempt->campaign->id, mark_of(attempt->campaign), (long long)attempt->trial->n,
           (long long)attempt->number, text, tn_trace_id(trace, attempt->campaign->traceparent),
           tn_trace_span(span, attempt->campaign->traceparent, attempt->trial->n, attempt->number));
}
