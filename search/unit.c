/*
 * From what the objective values to tokens/s, and back.
 *
 * With objective tokens_per_joule a trial tells both, and so the watts of its job. Those of other
 * layouts are the prior's (plan/objective.h) times one factor, the geometric mean of what trials
 * told over what the prior said: counters may see hosts of which the cluster says nothing.
 */
#include <math.h>

#include "base/base.h"
#include "search/fidelity.h"

/* Trials from which on they say how much watts differ from the prior's. */
enum { WATTS_TOLD = 3 };

double se_log_measured(const struct se_search *search, const struct se_outcome *outcome)
{
    return log(search->table->log_watts ? outcome->tokens_per_joule : outcome->tokens_per_s);
}

void se_watts_learn(struct se_search *search, const struct se_run *run,
                    const struct se_outcome *outcome)
{
    double error;

    if (!search->table->log_watts || outcome->status != SE_OK || !(outcome->tokens_per_joule > 0.0))
        return;
    error = log(outcome->tokens_per_s / outcome->tokens_per_joule) - run->log_watts;
    search->watts.n++;
    search->watts.sum += error;
    search->watts.squares += error * error;
}

double se_watts_error(const struct se_search *search)
{
    return search->watts.n > 0 ? search->watts.sum / search->watts.n : 0.0;
}

/* The lower end of a prediction interval of 97.5 % for one more job. */
double se_watts_least(const struct se_search *search, double log_watts)
{
    double n = search->watts.n, mean = se_watts_error(search), var;

    if (!search->table->log_watts)
        return 0.0;
    if (n < WATTS_TOLD)
        return -INFINITY;
    var = fmax(search->watts.squares - n * mean * mean, 0.0) / (n - 1.0);
    return log_watts + mean - se_student_975(n - 1.0) * sqrt(var * (1.0 + 1.0 / n));
}

/* Log of the watts that runs of layout INDEX at full size drew; 0 where there is none. */
static int own_watts(double *ret, const struct se_search *search, size_t index)
{
    int n = 0;

    *ret = 0.0;
    for (int i = 0; i < search->nrecords; i++) {
        const struct se_record *r = &search->record[i];

        if (r->index != index || !se_record_counts(r))
            continue;
        *ret += log(r->outcome.tokens_per_s / r->outcome.tokens_per_joule);
        n++;
    }
    *ret /= n > 0 ? n : 1;
    return n;
}

double se_unit(const struct se_search *search, size_t index)
{
    struct pl_layout l;
    double watts;

    if (search->table->log_watts)
        return own_watts(&watts, search, index) > 0
                   ? watts
                   : search->table->log_watts[index] + se_watts_error(search);
    se_table_layout(&l, search->table, index);
    return -log(pl_objective_value(search->spec.objective, 1.0, pl_layout_devices(&l), 1.0,
                                   se_cluster_of(&search->spec, &l)->price));
}
