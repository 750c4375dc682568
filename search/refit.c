/* Finding the hyper-parameters again, on a copy of the beliefs, so that another thread can do it.
 */
#include "base/base.h"
#include "search/state.h"

#include <assert.h>

struct se_refit {
    struct se_belief belief[SE_QUANTITIES];
    bool ran;
};

/* Each new observation matters while there are few; later, every tenth part more. */
static bool due(const struct se_belief *belief)
{
    int fresh = belief->nobs - belief->fitted;

    assert(fresh >= 0 && belief->nhints <= belief->nobs);
    return fresh > 0 && (belief->nobs <= 40 || fresh * 12 >= belief->nobs);
}

bool se_refit_due(const struct se_search *search)
{
    return search->spec.method == SE_BAYES &&
           (due(&search->belief[SE_THROUGHPUT]) || due(&search->belief[SE_MEMORY]));
}

struct se_refit *se_refit_new(const struct se_search *search)
{
    struct se_refit *r = mem_alloc(sizeof(*r));

    for (int q = 0; q < SE_QUANTITIES; q++)
        se_belief_copy(&r->belief[q], &search->belief[q]);
    return r;
}

void se_refit_run(struct se_refit *refit)
{
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_belief_fit(&refit->belief[q]);
    refit->ran = true;
}

void se_refit_adopt(struct se_search *search, struct se_refit *owned_r)
{
    if (!owned_r->ran)
        se_refit_run(owned_r);
    for (int q = 0; q < SE_QUANTITIES; q++) {
        se_belief_adopt(&search->belief[q], &owned_r->belief[q]);
        se_belief_done(&owned_r->belief[q]);
    }
    free(owned_r);
}
