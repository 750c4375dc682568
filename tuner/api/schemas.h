/* The schemas of OpenAPI, for the server and for the tools of `partune mcp`. */
#ifndef TUNER_API_SCHEMAS_H
#define TUNER_API_SCHEMAS_H

#include <jansson.h>

extern const char tn_api_schemas[]; /* made from schemas.json */

/* schemas.json with the layout's schema, which plan/ makes from its keys, the words of a workload,
 * and the states of a trial from the rows of db_states. New reference; NULL: schemas.json is
 * damaged. */
json_t *tn_api_schema_tree(void);
/* Property KEY of schema NAME is one of WORDS, which end with NULL. */
void tn_api_schema_words(json_t *schemas, const char *name, const char *key,
                         const char *const *words);

#endif
