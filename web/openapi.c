/*
 * OpenAPI 3.1 from the route table, so that the description cannot say what the server does not do.
 * Schemas of bodies come from the program as JSON text; "X[]" is a page of X.
 */
#include "web/internal.h"

static json_t *ref(const char *schema)
{
    json_t *r = json_object();

    json_object_set_new(r, "$ref", json_sprintf("#/components/schemas/%s", schema));
    return r;
}

static json_t *page_of(const char *name, size_t len)
{
    AUTO_STR item = {0};

    str_addn(&item, name, len);
    return json_pack("{s:s, s:[sss], s:{s:{s:s, s:o}, s:{s:s}, s:{s:[ss]}}}", "type", "object",
                     "required", "items", "total", "next_page_token", "properties", "items", "type",
                     "array", "items", ref(item.text), "total", "type", "integer",
                     "next_page_token", "type", "string", "null");
}

static json_t *reply_content(const char *reply)
{
    size_t n = strlen(reply);
    json_t *content = json_object();

    if (strchr(reply, '/'))
        json_object_set_new(content, reply, json_pack("{s:{s:s}}", "schema", "type", "string"));
    else
        json_object_set_new(content, "application/json",
                            json_pack("{s:o}", "schema",
                                      str_ends(reply, "[]") ? page_of(reply, n - 2) : ref(reply)));
    return content;
}

static void add_path_parameters(json_t *list, const char *path)
{
    for (const char *p = strchr(path, '{'); p; p = strchr(p + 1, '{'))
        json_array_append_new(list, json_pack("{s:s%, s:s, s:b, s:{s:s}}", "name", p + 1,
                                              strcspn(p + 1, "}"), "in", "path", "required", 1,
                                              "schema", "type", "string"));
}

static const struct web_param *param_find(const struct web_param *table, const char *name,
                                          size_t len)
{
    for (; table && table->name; table++)
        if (strlen(table->name) == len && !memcmp(table->name, name, len))
            return table;
    return NULL;
}

static void add_query_parameters(json_t *list, const struct web_param *table, const char *query)
{
    while (query && *query) {
        size_t n = strcspn(query, " ");
        const struct web_param *p = param_find(table, query, n);
        json_t *schema = NULL;

        assert(p); /* every name in a route's list is described */
        if (jx_parse(&schema, p->schema, strlen(p->schema), NULL) < 0)
            abort();
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:o}", "name", p->name, "in",
                                              "query", "description", p->help, "schema", schema));
        query += n + (query[n] == ' ');
    }
}

/* A GET whose answer is a resource, not a stream of events. */
static bool has_etag(const struct web_route *route)
{
    return !strcmp(route->method, "GET") && route->reply &&
           strcmp(route->reply, "text/event-stream") != 0;
}

static void add_header(json_t *list, const char *name, const char *help)
{
    json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:{s:s}}", "name", name, "in", "header",
                                          "description", help, "schema", "type", "string"));
}

static void add_headers(json_t *list, const struct web_route *route)
{
    if (has_etag(route))
        add_header(list, "If-None-Match", "ETag of the client's copy: 304 while it is current");
    else if (!strcmp(route->method, "GET"))
        add_header(list, "Last-Event-ID", "resume after this event");
    if (!strcmp(route->method, "POST"))
        add_header(list, "Idempotency-Key",
                   "1 to 128 characters: repeating the request gets the same answer");
    if (route->guarded)
        add_header(list, "If-Match", "ETag that the resource must still have, else 412");
}

static json_t *problem(const char *why)
{
    return json_pack("{s:s, s:{s:{s:o}}}", "description", why, "content",
                     "application/problem+json", "schema", ref("Problem"));
}

static json_t *responses(const struct web_route *route)
{
    json_t *all = json_object(), *ok = json_pack("{s:s}", "description", route->summary);
    char status[8];

    snprintf(status, sizeof(status), "%d", route->status ? route->status : 200);
    if (route->reply)
        json_object_set_new(ok, "content", reply_content(route->reply));
    json_object_set_new(all, status, ok);
    if (route->query)
        json_object_set_new(all, "400", problem("a query parameter is unknown or out of bounds"));
    if (route->scope > WEB_PUBLIC) {
        json_object_set_new(all, "401", problem("no token, or an unknown one"));
        json_object_set_new(all, "403", problem("the token's scope is too narrow"));
    }
    if (strchr(route->path, '{'))
        json_object_set_new(all, "404", problem("no such resource"));
    if (route->max_body) {
        json_object_set_new(all, "400", problem("not JSON"));
        json_object_set_new(all, "413", problem("the body is too long"));
        json_object_set_new(all, "415", problem("not application/json"));
        json_object_set_new(all, "422", problem("JSON that breaks the schema or a rule"));
    }
    if (has_etag(route))
        json_object_set_new(all, "304", json_pack("{s:s}", "description", "not modified"));
    if (route->guarded) {
        json_object_set_new(all, "409", problem("not possible in its state"));
        json_object_set_new(all, "412", problem("it has changed since If-Match"));
    }
    json_object_set_new(all, "default", problem("any other failure"));
    return all;
}

/* "GET /v1/campaigns/{id}:pause" as "get_v1_campaigns_id_pause". */
static json_t *operation_id(const struct web_route *route)
{
    char buf[128];
    size_t n = 0;

    for (const char *p = route->method; *p; p++)
        buf[n++] = (char)(*p | 0x20);
    for (const char *p = route->path; *p && n + 2 < sizeof(buf); p++) {
        if (strchr("{}", *p))
            continue;
        buf[n++] = strchr("/:.-", *p) ? '_' : *p;
    }
    return json_stringn(buf, n);
}

static json_t *operation(const struct web_config *config, const struct web_route *route)
{
    json_t *op = json_object(), *parameters = json_array();

    json_object_set_new(op, "operationId", operation_id(route));
    json_object_set_new(op, "summary", json_string(route->summary));
    add_path_parameters(parameters, route->path);
    add_query_parameters(parameters, config->params, route->query);
    add_headers(parameters, route);
    if (json_array_size(parameters))
        json_object_set(op, "parameters", parameters);
    json_decref(parameters);
    if (route->max_body)
        json_object_set_new(
            op, "requestBody",
            json_pack("{s:b, s:{s:{s:o}}}", "required", route->body != NULL, "content",
                      "application/json", "schema",
                      route->body ? ref(route->body) : json_pack("{s:s}", "type", "object")));
    json_object_set_new(op, "responses", responses(route));
    json_object_set_new(op, "security",
                        route->scope == WEB_PUBLIC
                            ? json_array()
                            : json_pack("[{s:[s]}]", "bearer", web_scope_names[route->scope]));
    return op;
}

static json_t *components(const struct web_config *config)
{
    static const char problem_schema[] =
        "{\"type\":\"object\",\"required\":[\"type\",\"title\",\"status\",\"detail\",\"pointer\"],"
        "\"properties\":{\"type\":{\"type\":\"string\"},\"title\":{\"type\":\"string\"},"
        "\"status\":{\"type\":\"integer\"},\"detail\":{\"type\":\"string\"},"
        "\"pointer\":{\"type\":[\"string\",\"null\"],\"description\":\"RFC 6901 pointer of the "
        "field of the request body that is wrong\"},"
        "\"rules\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
        "\"rule\":{\"type\":\"string\"},\"key\":{\"type\":[\"string\",\"null\"]},"
        "\"detail\":{\"type\":\"string\"}}}}}}";
    json_t *schemas = NULL, *p = NULL;
    struct err e;

    if (config->schemas && jx_parse(&schemas, config->schemas, strlen(config->schemas), &e) < 0) {
        log_error("schemas: %s", e.text);
        abort();
    }
    if (!schemas)
        schemas = json_object();
    if (jx_parse(&p, problem_schema, sizeof(problem_schema) - 1, NULL) == 0)
        json_object_set_new(schemas, "Problem", p);
    return json_pack("{s:o, s:{s:{s:s, s:s}}}", "schemas", schemas, "securitySchemes", "bearer",
                     "type", "http", "scheme", "bearer");
}

/* The same document for any table: new reference. */
static json_t *document(const struct web_config *config)
{
    json_t *paths = json_object();

    for (const struct web_route *route = config->routes; route->method; route++) {
        json_t *item = json_object_get(paths, route->path);
        char method[16];
        size_t n = 0;

        if (!item) {
            item = json_object();
            json_object_set_new(paths, route->path, item);
        }
        for (const char *p = route->method; *p && n + 1 < sizeof(method); p++)
            method[n++] = (char)(*p | 0x20);
        method[n] = '\0';
        json_object_set_new(item, method, operation(config, route));
    }
    return json_pack("{s:s, s:{s:s, s:s}, s:[{s:s}], s:o, s:o}", "openapi", "3.1.0", "info",
                     "title", config->title, "version", config->version, "servers", "url",
                     config->prefix && *config->prefix ? config->prefix : "/", "paths", paths,
                     "components", components(config));
}

void web_openapi(struct web_request *rq)
{
    struct web_server *s = rq->server;

    if (!s->openapi) {
        json_t *doc = document(&s->config);

        s->openapi = jx_dump(doc);
        json_decref(doc);
    }
    web_reply_json_text(rq, 200, s->openapi, strlen(s->openapi));
}
