/*
 * The settings of partune-train (the table of options.h) in a configuration file: its sections
 * trial, train, checkpoint, expected and run.
 */
#ifndef TRAINER_SETTINGS_H
#define TRAINER_SETTINGS_H

#include <jansson.h>

#include "trainer/config.h"

/* Every setting into CONFIG: what the command line says, else its section of ROOT, else the
 * default. Unknown keys and values out of bounds are errors with their JSON pointer. */
int tr_settings_read(struct tr_config *config, const json_t *root, struct err *error);

/* Into ROOT, an object, what tr_settings_read reads the same settings from; section trial of a
 * trial only. */
void tr_settings_put(json_t *root, const struct tr_config *config);

#endif
