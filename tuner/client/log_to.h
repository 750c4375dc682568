/* Private to log_to.c, tensorboard.c and mlflow.c. */
#ifndef TUNER_CLIENT_LOG_TO_H
#define TUNER_CLIENT_LOG_TO_H

#include "tuner/client/client.h"

/* Log TRIAL of CAMPAIGN with its STEPS; *RET_FRESH is false where it was there already. An exit
 * code; failures have been printed. */
typedef int log_to_fn(bool *ret_fresh, void *ctx, const json_t *campaign, const json_t *trial,
                      const json_t *steps);
typedef int log_to_each(struct cl *client, const json_t *campaign, log_to_fn *one, void *ctx);

/* Paths in a trial, or in a step, and the names of metrics that they become; end with NULL. */
extern const char *const log_to_results[][2];
extern const char *const log_to_step[][2];

int64_t log_to_started_ms(const json_t *trial); /* since the Unix epoch */
char *log_to_value(const json_t *value);        /* of a layout key, as text; caller frees */

log_to_fn log_to_tensorboard; /* CTX is the directory, a const char * */
/* Find or make the experiment of CAMPAIGN at URL, then EACH of its trials. */
int log_to_mlflow_open(struct cl *client, const json_t *campaign, const char *url,
                       log_to_each *each);

#endif
