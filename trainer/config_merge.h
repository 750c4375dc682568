/*
 * The options of what plan/ parses, put over the JSON of a configuration file, so that both ways in
 * meet the same parser. An error carries the JSON pointer of its field.
 */
#ifndef TRAINER_CONFIG_MERGE_H
#define TRAINER_CONFIG_MERGE_H

#include <jansson.h>

#include "trainer/config.h"
#include "trainer/options.h"

enum { TR_CONFIG_FILE_MAX = 4 << 20 }; /* bytes of a file of JSON */

/* Member KEY of ROOT ("model", "cluster"), or OPTION over it unless NULL, becomes a text, or the
 * object of the file where it is a path (with a slash, or *.json). */
int tr_config_resolve(json_t *root, const char *key, const char *option, struct err *error);

/* Into ROOT's workload and layout, made where absent: what the command line says of them. The batch
 * is 16 sequences where nothing names one. */
int tr_config_put_workload(json_t *root, const struct tr_config *config, struct err *error);
int tr_config_put_layout(json_t *root, const struct tr_options *options, struct err *error);

#endif
