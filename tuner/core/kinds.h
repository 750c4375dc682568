/*
 * Which launchers and trainers there are. What is above core/ implements them; the service hands
 * them in as one table, and nothing here knows more of them than their rows.
 */
#ifndef TUNER_KINDS_H
#define TUNER_KINDS_H

#include "tuner/core/launcher.h"
#include "tuner/core/trainer.h"

enum { TN_MAX_LAUNCHERS = 16 };

struct tn_kinds {
    const struct tn_launcher *const *launchers; /* NULL at the end, TN_MAX_LAUNCHERS at most */
    const struct tn_trainer *bundled;
    /* Trainer NAME of the administrator's configuration, or NULL. */
    const struct tn_trainer *(*trainer)(const struct tn_service *svc, const char *name);
    /* As tn_trainer_rules(). */
    const char *(*rules)(const struct tn_service *svc, const char *name);
};

const struct tn_launcher *tn_launcher_find(const struct tn_service *svc, const char *name);
const struct tn_trainer *tn_trainer_find(const struct tn_service *svc, const char *name);
/* Their names, ends with NULL. */
void tn_launcher_names(const char *ret[TN_MAX_LAUNCHERS + 1], const struct tn_service *svc);

#endif
