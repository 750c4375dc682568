/* The search over the whole space of a spec. */
#include <errno.h>

#include "base/base.h"
#include "search/search.h"

/* What cannot fit is excluded up front where the plan is exact and a prior. LIST is of one
 * PROBLEM. */
static size_t drop_unfit(struct pl_layout *list, size_t count, const struct se_spec *spec,
                         const struct pl_problem *problem)
{
    double offered = pl_memory_offered(problem->cluster, spec->memory_headroom);
    struct pl_memory_ctx *plan;
    size_t kept = 0;

    if (!spec->trainer->bundled || !spec->use_memory_prior || spec->prior_fn)
        return count;
    plan = pl_memory_ctx_new(problem);
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
static void add_baseline(size_t *ret_count, struct pl_layout *list, const struct se_spec *spec,
                         const struct pl_problem *problem)
{
    if (!spec->has_baseline || se_cluster_of(spec, &spec->baseline) != problem->cluster ||
        !pl_space_has(se_space_of(spec, &spec->baseline), problem, &spec->baseline))
        return;
    for (size_t i = 0; i < *ret_count; i++) {
        struct pl_layout one = spec->baseline;

        one.cluster = 0; /* the list does not say it yet */
        if (pl_layout_equal(&list[i], &one))
            return;
    }
    list[(*ret_count)++] = spec->baseline;
}

/* Share of a short list that the cost model chooses, where it is the prior. */
static const double CHOSEN = 0.75;

/* The layouts of cluster INDEX, whose problem P is. */
static int list_space(struct pl_layout **ret, size_t *ret_n, const struct se_spec *spec, int index,
                      const struct pl_problem *problem, struct err *error)
{
    bool has_prior = spec->method == SE_BAYES && spec->use_prior && !spec->prior_fn;
    const struct pl_space *space = &spec->space[index];
    size_t share = spec->nclusters > 1 ? (size_t)spec->nclusters : 1;
    int r =
        pl_space_list(ret, ret_n, SE_MAX_LAYOUTS / share, space, problem, spec->patience, error);

    if (r != -E2BIG)
        return r;
    r = pl_plan_shortlist(ret, ret_n, SE_SHORTLIST / share, has_prior ? CHOSEN : 0, space, problem,
                          spec->memory_headroom, spec->objective, spec->patience, error);
    if (r < 0)
        return r;
    *ret = mem_realloc(*ret, (*ret_n + 1) * sizeof(**ret));
    add_baseline(ret_n, *ret, spec, problem);
    return 0;
}

struct list {
    struct pl_layout *at; /* owned */
    size_t n, legal;      /* kept, and of so many */
};

/* Add the layouts of cluster INDEX to LIST. */
static int add_cluster(struct list *list, const struct se_spec *spec, int index, struct err *error)
{
    struct pl_problem p = se_spec_problem(spec);
    struct pl_layout AUTO_FREE *own = NULL;
    size_t n = 0, kept;
    int r;

    p.cluster = &spec->cluster[index];
    r = list_space(&own, &n, spec, index, &p, error);
    if (r < 0)
        return err_under(error, "/space");
    kept = drop_unfit(own, n, spec, &p);
    for (size_t i = 0; i < kept; i++)
        own[i].cluster = spec->nclusters > 1 ? index + 1 : 0;
    list->legal += n;
    if (!list->at) {
        list->at = TAKE(own);
        list->n = kept;
        return 0;
    }
    list->at = mem_realloc(list->at, (list->n + kept + 1) * sizeof(*list->at));
    if (kept)
        memcpy(list->at + list->n, own, kept * sizeof(*own));
    list->n += kept;
    return 0;
}

int se_search_new(struct se_search **ret, const struct se_spec *spec, struct err *error)
{
    struct pl_problem p = se_spec_problem(spec);
    char why[sizeof(error->text)];
    struct list list = {0};
    int r = add_cluster(&list, spec, 0, error);

    for (int i = 1; r == 0 && i < spec->nclusters; i++)
        r = add_cluster(&list, spec, i, error);
    if (r == 0 && list.legal == 0 &&
        pl_space_explain(why, sizeof(why), spec->space, &p, spec->patience))
        r = err_at(error, -EINVAL, "/space", "%s", why);
    else if (r == 0 && list.n == 0)
        r = err_at(error, -EINVAL, "/space", "none of the %zu legal layouts fits in device memory",
                   list.legal);
    if (r == 0)
        r = se_search_new_over(ret, spec, list.at, list.n, error);
    free(list.at);
    return r;
}
