/*
 * All trainers: the bundled one, and those of the configuration.
 */
#ifndef TUNER_TRAINERS_H
#define TUNER_TRAINERS_H

#include "tuner/core/trainer.h"

extern const struct tn_trainer tn_trainer_partune;
/* What the bundled trainer reads by --config. */
json_t *tn_trainer_config(const struct tn_attempt *attempt);
/* Trainer NAME of the configuration, or NULL. */
const struct tn_trainer *tn_trainer_external(const struct tn_service *svc, const char *name);
/* As tn_trainer_rules(). */
const char *tn_trainer_external_rules(const struct tn_service *svc, const char *name);

#endif
