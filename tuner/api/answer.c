/* What all handlers share: the service behind a request, answers, problems, lists and filters. */
#include <assert.h>
#include <errno.h>

#include "tuner/api/api.h"

struct tn_http *tn_api_http(struct web_request *rq)
{
    return web_ctx(rq);
}

struct tn_service *tn_api_svc(struct web_request *rq)
{
    return tn_api_http(rq)->svc;
}

void tn_api_bad_query(struct web_request *rq, const struct err *error)
{
    web_reply_problem(rq, 400, error, NULL);
}

void tn_api_rules(struct web_request *rq, const struct err *error, json_t *owned_rules)
{
    web_reply_error_with(rq, error, owned_rules ? json_pack("{s:o}", "rules", owned_rules) : NULL);
}

void tn_api_answer(struct web_request *rq, int result, int status, json_t *owned_v,
                   const struct err *error)
{
    if (result < 0)
        web_reply_error(rq, error);
    else
        web_reply_json(rq, status, owned_v);
}

int tn_api_unwanted(struct err *error)
{
    return err_set(error, -ECANCELED, "the client has disconnected");
}

void tn_api_whole(struct web_request *rq, json_t *owned_all)
{
    struct web_page page;
    struct err e;
    json_t *items, *v;
    size_t i;

    if (web_page_get(&page, rq, &e) < 0) {
        json_decref(owned_all);
        tn_api_bad_query(rq, &e);
        return;
    }
    items = json_array();
    json_array_foreach(owned_all, i, v) {
        if ((int64_t)i >= page.offset && (int64_t)i < page.offset + page.size)
            json_array_append(items, v);
    }
    web_reply_list(rq, &page, items, (int64_t)json_array_size(owned_all));
    json_decref(owned_all);
}

bool tn_api_filter(struct db_filter *ret, struct web_request *rq, const char *const *sorts,
                   const char *const *states)
{
    static const char *const kinds[] = {"baseline", "search", "repeat", "verify", NULL};
    const char *sort = web_query(rq, "sort");
    bool down = sort && *sort == '-';
    struct web_page page;
    struct err e;
    int which = 0;

    /* A state that is none would give an empty list, which looks like an answer. */
    if (web_page_get(&page, rq, &e) < 0 || web_query_enum(&which, rq, "state", states, &e) < 0 ||
        web_query_enum(&which, rq, "kind", kinds, &e) < 0) {
        tn_api_bad_query(rq, &e);
        return false;
    }
    which = 0;
    while (sort && sorts[which] && strcmp(sorts[which], sort + down))
        which++;
    if (sort && !sorts[which]) {
        AUTO_STR all = {0};

        for (int i = 0; sorts[i]; i++)
            str_addf(&all, "%s%s", i ? ", " : "", sorts[i]);
        err_set(&e, -EINVAL, "query parameter sort is \"%.64s\", not one of %s", sort, all.text);
        tn_api_bad_query(rq, &e);
        return false;
    }
    assert(page.size > 0);
    *ret = (struct db_filter){
        .state = web_query(rq, "state"),
        .tag = web_query(rq, "tag"),
        .name = web_query(rq, "name"),
        .kind = web_query(rq, "kind"),
        .sort = sorts[which],
        .descending = down,
        .after = page.after,
        .limit = page.size,
    };
    return true;
}
