/* Refits the hyper-parameters on a copy of the surrogates, so that another thread can do it. */
#include "base/base.h"
#include "search/state.h"

#include <assert.h>

struct se_refit {
    struct se_surrogate surrogate[SE_QUANTITIES];
    bool ran;
};

/* Each new observation matters while there are few; later, every tenth part more. */
static bool due(const struct se_surrogate *surrogate)
{
    int fresh = surrogate->nobs - surrogate->fitted;

    assert(fresh >= 0 && surrogate->nhints <= surrogate->nobs);
    return fresh > 0 && (surrogate->nobs <= 40 || fresh * 12 >= surrogate->nobs);
}

bool se_refit_due(const struct se_search *search)
{
    return search->spec.method == SE_BAYES &&
           (due(&search->surrogate[SE_THROUGHPUT]) || due(&search->surrogate[SE_MEMORY]));
}

struct se_refit *se_refit_new(const struct se_search *search)
{
    struct se_refit *r = mem_alloc(sizeof(*r));

    for (int q = 0; q < SE_QUANTITIES; q++)
        se_surrogate_copy(&r->surrogate[q], &search->surrogate[q]);
    return r;
}

void se_refit_run(struct se_refit *refit)
{
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_surrogate_fit(&refit->surrogate[q]);
    refit->ran = true;
}

void se_refit_adopt(struct se_search *search, struct se_refit *owned_r)
{
    if (!owned_r->ran)
        se_refit_run(owned_r);
    for (int q = 0; q < SE_QUANTITIES; q++) {
        se_surrogate_adopt(&search->surrogate[q], &owned_r->surrogate[q]);
        se_surrogate_done(&owned_r->surrogate[q]);
    }
    free(owned_r);
}
