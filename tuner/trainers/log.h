/*
 * What other trainers print, read as steps; where that was no result, what was suspected.
 */
#ifndef TUNER_LOG_H
#define TUNER_LOG_H

#include "tuner/output/observe.h"

struct tn_attempt;
struct tn_step_line;

/* A line of another trainer's output; its end, where a step that was held back counts;
 * and where that was no result, what was suspected becomes the cause. */
enum tn_line tn_log_line(struct tn_step_line *ret, struct tn_attempt *attempt,
                         enum tn_stream stream, const char *text, size_t len);
void tn_log_end(struct tn_attempt *attempt);
void tn_log_blame(struct tn_attempt *attempt);
/* What an error event of class CLS would say; the first one counts. */
void tn_attempt_fail(struct tn_attempt *attempt, const char *cls, const char *text);

#endif
