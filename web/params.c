/* What handlers ask of a request: its parameters, its body, its caller. */
#include "web/internal.h"

#include <errno.h>

const char *web_param(const struct web_request *rq, const char *name)
{
    for (int i = 0; i < rq->match.nparams; i++)
        if (!strcmp(rq->match.param[i].name, name))
            return rq->match.param[i].value;
    assert(!"the route does not have this parameter");
    return "";
}

int web_param_i64(int64_t *ret, struct web_request *rq, const char *name, int64_t min, int64_t max,
                  struct err *error)
{
    const char *text = web_param(rq, name);

    if (str_to_i64(ret, text, min, max) < 0)
        return err_set(error, -ENOENT, "\"%.64s\" is not a valid %s", text, name);
    return 0;
}

const char *web_query(const struct web_request *rq, const char *name)
{
    for (int i = 0; i < rq->target.nquery; i++)
        if (!strcmp(rq->target.query[i].name, name))
            return rq->target.query[i].value;
    return NULL;
}

int web_query_i64(int64_t *ret, struct web_request *rq, const char *name, int64_t min, int64_t max,
                  struct err *error)
{
    const char *text = web_query(rq, name);

    if (text && str_to_i64(ret, text, min, max) < 0)
        return err_set(error, -EINVAL,
                       "query parameter %s is \"%.64s\", not a whole number in %lld..%lld", name,
                       text, (long long)min, (long long)max);
    return 0;
}

int web_query_bool(bool *ret, struct web_request *rq, const char *name, struct err *error)
{
    const char *text = web_query(rq, name);

    if (!text)
        return 0;
    if (strcmp(text, "true") && strcmp(text, "false"))
        return err_set(error, -EINVAL, "query parameter %s is \"%.64s\", not true or false", name,
                       text);
    *ret = *text == 't';
    return 0;
}

int web_query_enum(int *ret, struct web_request *rq, const char *name, const char *const *names,
                   struct err *error)
{
    const char *text = web_query(rq, name);
    AUTO_STR all = {0};

    if (!text)
        return 0;
    for (int i = 0; names[i]; i++) {
        if (!strcmp(names[i], text)) {
            *ret = i;
            return 0;
        }
        str_addf(&all, "%s%s", i ? ", " : "", names[i]);
    }
    return err_set(error, -EINVAL, "query parameter %s is \"%.64s\", not one of %s", name, text,
                   str_text(&all));
}

/* ---- the rest of a request ----------------------------------------------- */

void *web_ctx(const struct web_request *rq)
{
    return rq->server->config.ctx;
}

struct arena *web_arena(struct web_request *rq)
{
    return &rq->arena;
}

const char *web_method(const struct web_request *rq)
{
    return rq->method;
}

const char *web_path(const struct web_request *rq)
{
    return rq->target.path;
}

const char *web_principal(const struct web_request *rq)
{
    return rq->principal ? rq->principal : "";
}

enum web_scope web_scope(const struct web_request *rq)
{
    return rq->scope;
}

const char *web_request_header(struct web_request *rq, const char *name)
{
    return rq->mhd ? MHD_lookup_connection_value(rq->mhd, MHD_HEADER_KIND, name) : NULL;
}

json_t *web_body(const struct web_request *rq)
{
    return rq->json;
}
