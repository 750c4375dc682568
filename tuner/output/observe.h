/*
 * The events of a trainer: whole lines of a growing file, and what they have said so far.
 * Owns the open file of each, and what was read of it.
 */
#ifndef TUNER_OBSERVE_H
#define TUNER_OBSERVE_H

#include <jansson.h>

#include "base/base.h"

enum tn_line { TN_LINE_NOTHING, TN_LINE_STEP, TN_LINE_OTHER };

/* Files of an attempt's folder that are followed. */
enum tn_stream { TN_EVENTS, TN_STDOUT, TN_STDERR, TN_STREAMS };

enum { TN_PHASES = 9, TN_RECENT = 64, TN_MAX_STEPS = 20000 };

extern const char *const tn_phase_names[TN_PHASES + 1];

/* What the events of an attempt have said so far. */
struct tn_seen {
    bool hello, summary, error, stopped;
    bool ends_itself;           /* it keeps the trial's limits, nobody else needs to */
    int steps, measured;        /* step events; those after the warm-up */
    double recent[TN_RECENT];   /* ms of the last measured steps */
    double sum, sum2;           /* of their milliseconds, all of them */
    double phase_ms[TN_PHASES]; /* sums over measured steps */
    double loss_first, loss_last;
    bool on_cpu;         /* its first event says that it computes on CPUs */
    char disturbed[200]; /* what else slowed its devices, from the summary; empty: nothing known */
    double joules_per_step;           /* of the whole job, from the summary; NaN unknown */
    double imbalance;                 /* of the experts, from the summary; NaN unknown */
    double tokens_least, tokens_most; /* of a step, where the trainer says it; NAN: it does not */
    double tokens_per_s, tokens_per_s_se, ms_median, ms_p10, ms_p90, ms_ci95;
    json_t *planned, *reached; /* memory by class */
    char error_class[16], detail[400];
    int error_rank; /* -1: none in particular */
    char hang[300]; /* who is missing, in the words of a hang event; "": it makes progress */
};

void tn_seen_init(struct tn_seen *seen);
void tn_seen_done(struct tn_seen *seen);
/* One line of an event file. Anything that is no event of ours is TN_LINE_NOTHING, and so is a
 * hang: it is no sign of life. *RET_N is the step's number. */
enum tn_line tn_observe(int64_t *ret_n, double *ret_ms, struct tn_seen *seen, const char *line,
                        size_t len);
void tn_seen_step(struct tn_seen *seen, double ms, double loss, bool warmup); /* count a step */
/* Of the last measured steps; NAN without one. */
double tn_seen_median_ms(const struct tn_seen *seen);

/* Whole lines of a growing file. A line over the limit is skipped; a torn last line waits for its
 * end. */
struct tn_reader {
    int fd;         /* -1: not open yet */
    int64_t offset; /* all before it was handed out */
    char *buf;
    size_t len, cap;
    bool skipping; /* inside a line that is too long */
    bool returns;  /* a carriage return ends a line, too: a terminal's progress bars */
};

enum { TN_MAX_LINE = 64 << 10 };

/* In an attempt's folder: one step as a Chrome trace, where the trainer made one. */
#define TN_TIMELINE_FILE "timeline.json"

void tn_reader_init(struct tn_reader *reader);
void tn_reader_done(struct tn_reader *reader);
/* Hand out whole lines, about BUDGET bytes of them; returns true when there may be more at once. */
bool tn_reader_poll(struct tn_reader *reader, const char *path, size_t budget,
                    void (*line)(void *ctx, const char *text, size_t len, int64_t end), void *ctx);

#endif
