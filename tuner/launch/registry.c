/* Which launchers and trainers this daemon has: a row for each launcher, one trainer by its name
 * and those of the configuration. */
#include "tuner/launch/launch.h"
#include "tuner/trainers/trainers.h"

static const struct tn_launcher *const launchers[] = {
#define LAUNCHER(name, ...) &tn_launcher_##name,
#include "tuner/launch/launchers.def"
    NULL,
};

const struct tn_kinds tn_kinds = {
    .launchers = launchers,
    .bundled = &tn_trainer_partune,
    .trainer = tn_trainer_external,
    .rules = tn_trainer_external_rules,
};
