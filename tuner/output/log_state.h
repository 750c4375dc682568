/*
 * What is remembered of the lines of one attempt of another trainer (trainers/log_read.c).
 */
#ifndef TUNER_LOG_STATE_H
#define TUNER_LOG_STATE_H

#include "tuner/output/observe.h"

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

#endif
