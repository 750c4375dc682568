/* A tell object, as in docs/reference/protocol.md, read into an outcome. */
#include <errno.h>
#include <float.h>
#include <limits.h>

#include "base/base.h"
#include "search/state.h"

static const char *const tell_keys[] = {"op",
                                        "id",
                                        "status",
                                        "tokens_per_s",
                                        "tokens_per_s_se",
                                        "peak_memory_bytes",
                                        "tokens_per_s_max",
                                        NULL};

int se_outcome_parse(struct se_outcome *ret, const json_t *v, struct err *e)
{
    struct se_outcome o = {0};
    int status = 0, r;

    if ((r = jx_need(v, "status", e)) < 0 ||
        (r = jx_get_enum(&status, v, "status", se_status_names, e)) < 0 ||
        (r = jx_get_f64(&o.tokens_per_s, v, "tokens_per_s", DBL_MIN, DBL_MAX, e)) < 0 ||
        (r = jx_get_f64(&o.tokens_per_s_se, v, "tokens_per_s_se", 0.0, DBL_MAX, e)) < 0 ||
        (r = jx_get_f64(&o.peak_memory_bytes, v, "peak_memory_bytes", DBL_MIN, DBL_MAX, e)) < 0 ||
        (r = jx_get_f64(&o.tokens_per_s_max, v, "tokens_per_s_max", DBL_MIN, DBL_MAX, e)) < 0)
        return r;
    o.status = (enum se_status)status;
    if (o.status == SE_OK && (r = jx_need(v, "tokens_per_s", e)) < 0)
        return r;
    if (o.status == SE_CENSORED && (r = jx_need(v, "tokens_per_s_max", e)) < 0)
        return r;
    *ret = o;
    return 0;
}

int se_tell_json(struct se_search *s, const json_t *tell, struct err *e)
{
    struct se_outcome o;
    int id = 0, r;

    if ((r = jx_keys(tell, tell_keys, e)) < 0 || (r = jx_need(tell, "id", e)) < 0 ||
        (r = jx_get_int(&id, tell, "id", 1, INT_MAX, e)) < 0 ||
        (r = se_outcome_parse(&o, tell, e)) < 0)
        return r;
    return se_tell(s, id, &o, e);
}
