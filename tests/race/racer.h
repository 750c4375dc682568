/*
 * A search program that takes part in a race: a child that answers JSON lines, as partune-search
 * does (docs/reference/protocol.md). Any language; what it has to do is in docs/howto/race.md.
 */
#ifndef TESTS_RACE_RACER_H
#define TESTS_RACE_RACER_H

#include "base/base.h"

struct racer {
    const char *name, *command;
    int pid, to, from;  /* the shell that runs it, its standard input and output */
    struct str pending; /* bytes read after the last line */
    double patience_s;  /* of one answer */
};

/* Start COMMAND --layouts LAYOUTS CAMPAIGN by the shell, standard error being the caller's. */
int racer_start(struct racer *racer, const char *campaign, const char *layouts, struct err *error);
/* Close its input, wait half a second, end what is left. */
void racer_end(struct racer *racer);
/* Send the REQUEST that is owned, and wait for the line that answers it: an object. -EPIPE: the
 * program has ended, -ETIMEDOUT, -EINVAL: what it said was no JSON object. */
int racer_ask(json_t **ret, struct racer *racer, json_t *owned_request, struct err *error);

#endif
