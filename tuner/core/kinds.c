/* Launchers and trainers by their names. */
#include <assert.h>

#include "tuner/core/kinds.h"
#include "tuner/core/launcher.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

const struct tn_launcher *tn_launcher_find(const struct tn_service *svc, const char *name)
{
    for (const struct tn_launcher *const *l = tn_kinds_of(svc)->launchers; *l; l++)
        if (!strcmp((*l)->name, name))
            return *l;
    return NULL;
}

void tn_launcher_names(const char *ret[TN_MAX_LAUNCHERS + 1], const struct tn_service *svc)
{
    int n = 0;

    while (n < TN_MAX_LAUNCHERS && tn_kinds_of(svc)->launchers[n]) {
        ret[n] = tn_kinds_of(svc)->launchers[n]->name;
        n++;
    }
    assert(!tn_kinds_of(svc)->launchers[n]);
    ret[n] = NULL;
}

const struct tn_trainer *tn_trainer_find(const struct tn_service *svc, const char *name)
{
    const struct tn_kinds *kinds = tn_kinds_of(svc);

    return !strcmp(name, kinds->bundled->name) ? kinds->bundled : kinds->trainer(svc, name);
}

bool tn_trainer_known(const struct tn_service *svc, const char *name)
{
    return tn_trainer_find(svc, name) != NULL;
}

const char *tn_trainer_rules(const struct tn_service *svc, const char *name)
{
    return tn_kinds_of(svc)->rules(svc, name);
}
