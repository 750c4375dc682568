/*
 * A command line, or an environment, as a list of owned strings.
 */
#ifndef TUNER_ARGV_H
#define TUNER_ARGV_H

#include "base/base.h"

/* A command line: argv as a NULL-terminated list of owned strings. */
struct tn_argv {
    char **v;
    int n, cap;
};
void tn_argv_add(struct tn_argv *argv, const char *text);
void tn_argv_addf(struct tn_argv *argv, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tn_argv_done(struct tn_argv *argv);

#endif
