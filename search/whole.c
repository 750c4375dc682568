/* The search over the whole space of a spec. */
#include <errno.h>

#include "base/base.h"
#include "search/search.h"

/* What cannot fit is excluded up front where the plan is exact and a prior. */
static size_t drop_unfit(struct pl_layout *list, size_t count, const struct se_spec *spec)
{
    struct pl_problem p = se_spec_problem(spec);
    double offered = pl_memory_offered(&spec->cluster, spec->memory_headroom);
    struct pl_memory_ctx *plan;
    size_t kept = 0;

    if (!spec->trainer->bundled || !spec->use_memory_prior || spec->prior_fn)
        return count;
    plan = pl_memory_ctx_new(&p);
    for (size_t i = 0; i < count; i++) {
        struct pl_memory worst;

        pl_memory_at(&worst, plan, &list[i]);
        if (worst.total <= offered)
            list[kept++] = list[i];
    }
    pl_memory_ctx_free(plan);
    return kept;
}

/* Room for the baseline, which a short list may lack. */
static void add_baseline(size_t *ret_count, struct pl_layout *list, const struct se_spec *spec)
{
    struct pl_problem p = se_spec_problem(spec);

    if (!spec->has_baseline || !pl_space_has(spec->space, &p, &spec->baseline))
        return;
    for (size_t i = 0; i < *ret_count; i++)
        if (pl_layout_equal(&list[i], &spec->baseline))
            return;
    list[(*ret_count)++] = spec->baseline;
}

/* Share of a short list that the cost model chooses, where it is the prior. */
static const double CHOSEN = 0.75;

static int list_space(struct pl_layout **ret, size_t *ret_n, const struct se_spec *spec,
                      struct err *error)
{
    struct pl_problem p = se_spec_problem(spec);
    bool has_prior = spec->method == SE_BAYES && spec->use_prior && !spec->prior_fn;
    int r = pl_space_list(ret, ret_n, SE_MAX_LAYOUTS, spec->space, &p, spec->patience, error);

    if (r != -E2BIG)
        return r;
    r = pl_plan_shortlist(ret, ret_n, SE_SHORTLIST, has_prior ? CHOSEN : 0, spec->space, &p,
                          spec->memory_headroom, spec->objective, spec->patience, error);
    if (r < 0)
        return r;
    *ret = mem_realloc(*ret, (*ret_n + 1) * sizeof(**ret));
    add_baseline(ret_n, *ret, spec);
    return 0;
}

int se_search_new(struct se_search **ret, const struct se_spec *spec, struct err *error)
{
    struct pl_problem p = se_spec_problem(spec);
    struct pl_layout AUTO_FREE *list = NULL;
    size_t n = 0, kept;
    char why[sizeof(error->text)];
    int r;

    r = list_space(&list, &n, spec, error);
    if (r < 0)
        return err_under(error, "/space");
    kept = drop_unfit(list, n, spec);
    if (n == 0 && pl_space_explain(why, sizeof(why), spec->space, &p, spec->patience))
        return err_at(error, -EINVAL, "/space", "%s", why);
    if (kept == 0)
        return err_at(error, -EINVAL, "/space",
                      "none of the %zu legal layouts fits in device memory", n);
    return se_search_new_over(ret, spec, list, kept, error);
}
