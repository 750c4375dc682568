/* An outcome as in a tell object of docs/reference/protocol.md. */
#include <errno.h>
#include <float.h>
#include <limits.h>

#include "base/base.h"
#include "search/state.h"

const char *const se_status_names[] = {"ok",      "oom",     "infeasible", "censored",
                                       "crashed", "discard", NULL};

int se_outcome_parse(struct se_outcome *ret, const json_t *json, struct err *error)
{
    struct se_outcome o = {0};
    int status = 0, r;

    if ((r = jx_need(json, "status", error)) < 0 ||
        (r = jx_get_enum(&status, json, "status", se_status_names, error)) < 0 ||
        (r = jx_get_f64(&o.tokens_per_s, json, "tokens_per_s", DBL_MIN, DBL_MAX, error)) < 0 ||
        (r = jx_get_f64(&o.tokens_per_s_se, json, "tokens_per_s_se", 0.0, DBL_MAX, error)) < 0 ||
        (r = jx_get_f64(&o.peak_memory_bytes, json, "peak_memory_bytes", DBL_MIN, DBL_MAX, error)) <
            0 ||
        (r = jx_get_f64(&o.tokens_per_joule, json, "tokens_per_joule", DBL_MIN, DBL_MAX, error)) <
            0 ||
        (r = jx_get_f64(&o.tokens_per_s_max, json, "tokens_per_s_max", DBL_MIN, DBL_MAX, error)) <
            0)
        return r;
    o.status = (enum se_status)status;
    if (o.status == SE_OK && (r = jx_need(json, "tokens_per_s", error)) < 0)
        return r;
    if (o.status == SE_CENSORED && (r = jx_need(json, "tokens_per_s_max", error)) < 0)
        return r;
    *ret = o;
    return 0;
}
