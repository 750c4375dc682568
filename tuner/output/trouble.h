/*
 * Lines of a program's output that say why it is about to die. Pure functions of a text.
 */
#ifndef TUNER_TROUBLE_H
#define TUNER_TROUBLE_H

#include "base/base.h"

/* "oom" or "numeric" where the line TEXT says that the program fails for it; NULL otherwise. */
const char *tn_log_trouble(const char *text);
/* Does one of the lines in SIZE bytes at TEXT say that memory is out? */
bool tn_log_oom(const char *text, size_t size);

#endif
