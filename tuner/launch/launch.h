/*
 * All launchers: the rows of the registry.
 */
#ifndef TUNER_LAUNCH_H
#define TUNER_LAUNCH_H

#include "tuner/core/launcher.h"

extern const struct tn_launcher tn_launcher_local;
extern const struct tn_launcher tn_launcher_simulated;
extern const struct tn_launcher tn_launcher_remote;
extern const struct tn_launcher tn_launcher_slurm;
void tn_slurm_watch(struct tn_service *svc); /* ask after its jobs from now on */
void tn_slurm_close(struct tn_service *svc);
/* Are Slurm's commands there, and did its controller answer the last time it was asked? */
int tn_slurm_health(const struct tn_service *svc, struct err *error);

#endif
