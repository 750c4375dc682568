/* Which launcher, which trainer: a row for each. */
#include "tuner/core/launcher.h"
#include "tuner/core/trainer.h"
#include "tuner/launch/launch.h"
#include "tuner/trainers/trainers.h"
#include "tuner/tuner.h"

static const struct tn_launcher *const launchers[] = {&tn_launcher_local, &tn_launcher_simulated,
                                                      &tn_launcher_remote, &tn_launcher_slurm};

const struct tn_launcher *tn_launcher_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++)
        if (!strcmp(launchers[i]->name, name))
            return launchers[i];
    return NULL;
}

const struct tn_trainer *tn_trainer_find(const struct tn_service *svc, const char *name)
{
    return !strcmp(name, tn_trainer_partune.name) ? &tn_trainer_partune
                                                  : tn_trainer_external(svc, name);
}

bool tn_trainer_known(const struct tn_service *svc, const char *name)
{
    return tn_trainer_find(svc, name) != NULL;
}
