/* What programs print, read as steps (log_read.c) and as the reason of an end (output/trouble.c).
 * Included by internal.h. */
#ifndef TUNER_LOG_H
#define TUNER_LOG_H

#include "tuner/tuner.h"

struct tn_attempt;
struct tn_step_line;

enum tn_line { TN_LINE_NOTHING, TN_LINE_STEP, TN_LINE_OTHER };

/* Files of an attempt's folder that are followed. */
enum tn_stream { TN_EVENTS, TN_STDOUT, TN_STDERR, TN_STREAMS };

/* What the lines of another trainer have told so far. */
struct tn_log_state {
    double last_n;  /* number of the last step that was counted */
    bool exact;     /* lines of the better of two kinds are printed: the other is not counted */
    bool had_loss;  /* the loss was printed once */
    double held_ms; /* of a step that counts unless a better line comes; 0: none */
    double batch;   /* sequences in the program's own unit of rate; 0: it has not said */
    const char *suspect; /* "oom" or "numeric" if it dies now, or NULL */
    char detail[400];    /* the line */
    enum tn_stream suspect_stream, stream;
    int steps_since; /* counted on the same stream since */
};

/* "oom" or "numeric" where the line TEXT says that the program fails for it; NULL otherwise. */
const char *tn_log_trouble(const char *text);
/* Does one of the lines in SIZE bytes at TEXT say that memory is out? */
bool tn_log_oom(const char *text, size_t size);

/* A line of another trainer's output; its end, where a step that was held back counts;
 * and where that was no result, what was suspected becomes the cause. */
enum tn_line tn_log_line(struct tn_attempt *attempt, enum tn_stream stream, const char *text,
                         size_t len, struct tn_step_line *ret);
void tn_log_end(struct tn_attempt *attempt);
void tn_log_blame(struct tn_attempt *attempt);
/* What an error event of class CLS would say; the first one counts. */
void tn_attempt_fail(struct tn_attempt *attempt, const char *cls, const char *text);

#endif
