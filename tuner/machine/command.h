/*
 * Short programs that are run for their answer, beside the loop. Owns those that have not answered.
 */
#ifndef TUNER_COMMAND_H
#define TUNER_COMMAND_H

#include "base/base.h"
#include "tuner/machine/argv.h"

struct tn_service;

/* STATUS: of the program's exit, 128 + signal, or a negative errno when it could not be run to its
 * end. */
typedef void tn_command_fn(void *arg, int status, const char *out, const char *error);
/* Run ARGV for its answer; FN is called once, from the loop, unless the service closes first. ENV
 * NULL: ours. */
void tn_command_run(struct tn_service *svc, const struct tn_argv *argv, const struct tn_argv *env,
                    int timeout_ms, tn_command_fn *fn, void *arg);
/* The service closes: no answer will come. */
void tn_command_forget_all(struct tn_service *svc);

#endif
