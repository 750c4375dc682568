/*
 * Schemas of tools, from the rows that OpenAPI is made from: arguments are the parameters of the
 * path, those of the query, and the keys of the body; the answer is that of the route. Schemas of
 * the API refer to each other by "#/components/schemas/NAME"; a tool's schema carries those that it
 * needs in $defs.
 */
#include "tuner/client/mcp.h"

#include <assert.h>

#include "plan/plan.h"
#include "tuner/api/schemas.h"

#define FROM "#/components/schemas/"

static const struct mcp_route routes[] = {
#define ROUTE(method, path, handler, max_body, scope, summary, query, body, reply, ...)            \
    {method, path, query, body, reply},
#include "tuner/api/routes.def"
};

static const struct {
    const char *name, *schema, *help;
} params[] = {
#define PARAM(name, schema, help) {name, schema, help},
#include "tuner/api/routes.def"
};

const struct mcp_route *mcp_route_of(const struct mcp_tool *tool)
{
    for (size_t i = 0; tool->path && i < ARRAY_LEN(routes); i++)
        if (str_eq(routes[i].method, tool->method) && str_eq(routes[i].path, tool->path))
            return &routes[i];
    return NULL;
}

static bool word_in(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = words; at && *at; at += strspn(at, " ")) {
        size_t k = strcspn(at, " ");

        if (k == n && !memcmp(at, word, n))
            return true;
        at += k;
    }
    return false;
}

bool mcp_in_path(const struct mcp_route *route, const char *key)
{
    AUTO_FREE char *braced = mem_printf("{%s}", key);

    return strstr(route->path, braced) != NULL;
}

bool mcp_in_query(const struct mcp_tool *tool, const char *key)
{
    return word_in(mcp_route_of(tool)->query, key) && !word_in(tool->hidden, key);
}

/* ---- references ---------------------------------------------------------- */

/* Let the references of JSON point to $defs, and put what they name into NEEDED. */
static void localize(json_t *json, const json_t *all, json_t *needed)
{
    const char *to = json_string_value(json_object_get(json, "$ref")), *key;
    json_t *it;
    size_t i;

    if (to && str_starts(to, FROM)) {
        const char *name = to + strlen(FROM);

        if (!json_object_get(needed, name)) {
            json_t *copy = json_deep_copy(json_object_get(all, name));

            json_object_set_new(needed, name, copy);
            localize(copy, all, needed);
        }
        json_object_set_new(json, "$ref", json_sprintf("#/$defs/%s", name));
    }
    if (json_is_object(json)) {
        json_object_foreach(json, key, it)
            localize(it, all, needed);
    } else {
        json_array_foreach(json, i, it)
            localize(it, all, needed);
    }
}

/* SCHEMA, which is taken, with all that it refers to. */
static json_t *closed(json_t *schema, const json_t *all)
{
    json_t *needed = json_object();

    localize(schema, all, needed);
    if (json_object_size(needed))
        json_object_set_new(schema, "$defs", needed);
    else
        json_decref(needed);
    return schema;
}

/* ---- arguments ----------------------------------------------------------- */

static void add_path(json_t *properties, json_t *required, const char *path)
{
    static const struct {
        const char *name, *help;
    } about[] = {
        {"id", "id of a campaign; \"last\" is the newest"},
        {"target", "export target, such as megatron, torchtitan or deepspeed"},
    };

    for (const char *at = strchr(path, '{'); at; at = strchr(at + 1, '{')) {
        AUTO_FREE char *name = mem_printf("%.*s", (int)strcspn(at + 1, "}"), at + 1);
        json_t *schema = json_pack("{s:s}", "type", "string");

        for (size_t i = 0; i < ARRAY_LEN(about); i++)
            if (str_eq(about[i].name, name))
                json_object_set_new(schema, "description", json_string(about[i].help));
        json_object_set_new(properties, name, schema);
        json_array_append_new(required, json_string(name));
    }
}

static void add_query(json_t *properties, const struct mcp_tool *tool)
{
    for (size_t i = 0; i < ARRAY_LEN(params); i++) {
        json_t *schema = NULL;

        if (!mcp_in_query(tool, params[i].name))
            continue;
        if (jx_parse(&schema, params[i].schema, strlen(params[i].schema), NULL) < 0)
            abort(); /* a row of the table is no JSON */
        json_object_set_new(schema, "description", json_string(params[i].help));
        json_object_set_new(properties, params[i].name, schema);
    }
}

static json_t *rule_schema(void)
{
    json_t *names = json_array();

    for (const char *const *name = pl_rule_names(); *name; name++)
        json_array_append_new(names, json_string(*name));
    return json_pack("{s:s, s:{s:{s:s, s:o, s:s}}, s:[s], s:b}", "type", "object", "properties",
                     "rule", "type", "string", "enum", names, "description",
                     "name of a legality rule, as check and plan report it", "required", "rule",
                     "additionalProperties", 0);
}

json_t *mcp_input_schema(const struct mcp_tool *tool)
{
    const struct mcp_route *route = mcp_route_of(tool);
    AUTO_JSON *all = NULL;
    json_t *schema, *properties, *required;

    if (!route)
        return rule_schema();
    all = tn_api_schema_tree();
    schema = route->body ? json_deep_copy(json_object_get(all, route->body)) : NULL;
    assert(!route->body || schema); /* every body of a route has a schema */
    if (!schema)
        schema = json_pack("{s:s, s:{}, s:[]}", "type", "object", "properties", "required");
    properties = json_object_get(schema, "properties");
    required = json_object_get(schema, "required");
    add_path(properties, required, route->path);
    add_query(properties, tool);
    json_object_set_new(schema, "additionalProperties", json_false());
    return closed(schema, all);
}

/* ---- answers ------------------------------------------------------------- */

/* Page of ITEM, as web/openapi.c describes one. */
static json_t *page_of(const char *item, size_t len)
{
    AUTO_FREE char *ref = mem_printf(FROM "%.*s", (int)len, item);

    return json_pack("{s:s, s:[sss], s:{s:{s:s, s:{s:s}}, s:{s:s}, s:{s:[ss]}}}", "type", "object",
                     "required", "items", "total", "next_page_token", "properties", "items", "type",
                     "array", "items", "$ref", ref, "total", "type", "integer", "next_page_token",
                     "type", "string", "null");
}

json_t *mcp_output_schema(const struct mcp_tool *tool)
{
    const struct mcp_route *route = mcp_route_of(tool);
    AUTO_JSON *all = NULL;

    if (!route)
        return json_pack("{s:s, s:{s:{s:s}, s:{s:s}}, s:[ss]}", "type", "object", "properties",
                         "rule", "type", "string", "requires", "type", "string", "required", "rule",
                         "requires");
    if (strchr(route->reply, '/') || tool->fixed)
        return NULL;
    all = tn_api_schema_tree();
    if (str_ends(route->reply, "[]"))
        return closed(page_of(route->reply, strlen(route->reply) - 2), all);
    return closed(json_deep_copy(json_object_get(all, route->reply)), all);
}
