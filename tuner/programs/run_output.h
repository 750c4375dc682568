/*
 * stdout and stderr of a supervised program, in files of a bounded size: the first bytes as they
 * come, up to the limit, and of what is over it the last ones, which say how it ended.
 */
#ifndef TUNER_RUN_OUTPUT_H
#define TUNER_RUN_OUTPUT_H

#include "base/base.h"

enum { RUN_TAIL = 64 << 10 };

struct run_output {
    int pipe, file; /* -1: closed */
    uint64_t written, limit;
    char *tail; /* ring of the last RUN_TAIL bytes over the limit; NULL until there is one */
};

/* The write end goes to the program. Negative errno. */
int run_output_open(int *ret_write_end, struct run_output *output, const char *folder,
                    const char *name, uint64_t limit);
/* Take in what is there; returns when the pipe is empty for now, or closes it at its end. */
void run_output_pump(struct run_output *output);
/* The program is gone: write the last bytes, with a note of how many are missing before them. */
void run_output_close(struct run_output *output);

#endif
