/*
 * Lines of a program's output that say why it is about to die. Pure functions of a text.
 */
#ifndef TUNER_TROUBLE_H
#define TUNER_TROUBLE_H

#include "base/base.h"

/* "oom", "node_fail" (a device is lost) or "numeric" where the line TEXT says that the program
 * fails for it; NULL otherwise. */
const char *tn_log_trouble(const char *text);
/* Of the first of the lines in SIZE bytes at TEXT that says that memory is out or a device is lost:
 * "oom" or "node_fail"; NULL: none does. */
const char *tn_log_machine_trouble(const char *text, size_t size);

#endif
