/*
 * One line for each decision: `level time component message key=value`.
 *
 * Only the function that decides logs: a handler, the shell of a loop, main(). Libraries stay at
 * debug or silent. Thread-safe: a line is one write().
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Name of the program in each line, and the highest level that is written (default info). */
void log_setup(const char *component, enum log_level level);
int log_level_parse(enum log_level *ret, const char *name); /* "error" "warn" "info" "debug" */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
