/* Which launchers and trainers this daemon has: a row for each. */
#include "tuner/launch/launch.h"
#include "tuner/trainers/trainers.h"

static const struct tn_launcher *const launchers[] = {
    &tn_launcher_local, &tn_launcher_slurm, &tn_launcher_simulated, &tn_launcher_remote, NULL,
};

const struct tn_kinds tn_kinds = {
    .launchers = launchers,
    .bundled = &tn_trainer_partune,
    .trainer = tn_trainer_external,
    .rules = tn_trainer_external_rules,
};
