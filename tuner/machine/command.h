/*
 * Short programs that are run for their answer, next to the loop. Owns those that have not
 * answered.
 */
#ifndef TUNER_COMMAND_H
#define TUNER_COMMAND_H

#include <uv.h>

#include "base/base.h"
#include "tuner/machine/argv.h"

struct tn_command;

struct tn_commands {
    uv_loop_t *loop;
    struct tn_command *first; /* of those that have not answered */
    bool forgotten;           /* no answer is wanted any more */
};

/* STATUS: of the program's exit, 128 + signal, or a negative errno when it could not be run to its
 * end. */
typedef void tn_command_fn(void *arg, int status, const char *out, const char *error);
/* Run ARGV for its answer; FN is called once, from the loop, unless all are forgotten first. ENV
 * NULL: ours. */
void tn_command_run(struct tn_commands *commands, const struct tn_argv *argv,
                    const struct tn_argv *env, int timeout_ms, tn_command_fn *fn, void *arg);
/* No answer will come, and none of those that are run from now on. */
void tn_command_forget_all(struct tn_commands *commands);

#endif
