/* Private to completion*.c: scripts that complete `partune` in a shell, from the tables that it
 * parses by. */
#ifndef TUNER_CLIENT_COMPLETION_H
#define TUNER_CLIENT_COMPLETION_H

#include "tuner/client/client.h"

/* What may stand behind an option, or as an operand: words, or a command that prints them. */
struct cl_completed {
    const char *name;        /* of the option, or of the operand as the usage line has it */
    const char *words;       /* NULL: none */
    const char *command;     /* arguments of partune, and what follows them in a pipe; NULL: none */
    void (*more)(FILE *out); /* prints further words, each behind a blank; NULL: none */
};
extern const struct cl_completed cl_completed[]; /* ends with a NULL name */

/* The row for NAME, NULL: the shell completes files, or nothing. */
const struct cl_completed *cl_completed_find(const char *name);
/* The name of the first operand of COMMAND as cl_completed has it: A and [ID] are "ID"; "": none.
 */
void cl_first_operand(char ret_name[32], const struct cl_command *command);
bool cl_is_file(const struct opt *option); /* is its value a file or a program? */
/* Does COMMAND (NULL: none yet) take OPTION? */
bool cl_takes(const struct cl_tables *tables, const struct cl_command *command,
              const struct opt *option);

void cl_complete_bash(const struct cl_tables *tables, FILE *out);
void cl_complete_zsh(const struct cl_tables *tables, FILE *out);
void cl_complete_fish(const struct cl_tables *tables, FILE *out);

#endif
