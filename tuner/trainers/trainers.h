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
/* SPEC's trainer starts its ranks itself, and needs no mpiexec. */
bool tn_trainer_direct(const struct tn_service *svc, const struct tn_spec *spec);
/* As tn_trainer_rules(). */
const char *tn_trainer_external_rules(const struct tn_service *svc, const char *name);

#endif
