/* What a plan, a check and a sizing are of: model, cluster, trainer, workload. */
#include <errno.h>

#include "search/search.h"
#include "tuner/api/api.h"

static int unknown_trainer(const char *name, struct err *error)
{
    const char *near = str_nearest(name, pl_trainer_names());

    return err_at(error, -EINVAL, "/trainer", "unknown trainer \"%s\"%s%s%s", name,
                  near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

int tn_api_job_parse(struct tn_api_job *ret, struct tn_service *svc, const json_t *body,
                     struct err *error)
{
    const char *trainer = "partune";
    const json_t *cluster;
    int r = jx_need(body, "model", error);

    if (r < 0 || (r = jx_need(body, "workload", error)) < 0)
        return r;
    r = pl_model_parse(&ret->model, json_object_get(body, "model"), error);
    if (r < 0)
        return err_under(error, "/model");
    cluster = json_object_get(body, "cluster");
    r = ret->takes_parts && pl_parts_are_in(cluster)
            ? pl_parts_parse(&ret->cluster, &ret->parts, cluster, tn_local_cluster(svc), error)
            : pl_cluster_parse(&ret->cluster, cluster, tn_local_cluster(svc), error);
    if (r < 0)
        return err_under(error, "/cluster");
    r = jx_get_str(&trainer, body, "trainer", 64, error);
    if (r < 0)
        return r;
    if (!pl_trainer_find(trainer) && !tn_trainer_known(svc, trainer))
        return unknown_trainer(trainer, error);
    r = se_trainer_parse(&ret->trainer, body, tn_trainer_rules(svc, trainer), error);
    if (r < 0)
        return r;
    if ((r = pl_stack_of(&ret->stacked, body, ret->trainer, error)) < 0 ||
        (r = pl_headroom_of(&ret->headroom, body, ret->trainer, error)) < 0)
        return r;
    r = pl_workload_parse(&ret->workload, json_object_get(body, "workload"), &ret->model,
                          ret->trainer, error);
    return r < 0 ? err_under(error, "/workload") : 0;
}

struct pl_problem tn_api_job_problem(const struct tn_api_job *job)
{
    return (struct pl_problem){&job->model, &job->cluster, &job->workload,
                               job->stacked.name ? &job->stacked : job->trainer};
}
