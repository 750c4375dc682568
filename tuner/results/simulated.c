/* Which results are the simulator's and no measurements. */
#include "tuner/results/view.h"

int tn_simulated(bool *ret, struct db *db, const char *id, struct err *error)
{
    return db_campaign_launched_by(ret, db, id, TN_SIMULATED, error);
}

bool tn_is_simulated(const char *launcher)
{
    return str_eq(launcher, TN_SIMULATED);
}

const char *tn_simulated_mark(const char *launcher)
{
    return tn_is_simulated(launcher) ? " (simulated)" : "";
}
