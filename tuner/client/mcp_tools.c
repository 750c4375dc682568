/*
 * The tools of `partune mcp`, and how one is called: its arguments become the request of its route,
 * the daemon's answer its result. A refusal, with pointer and broken rules, is a result with
 * isError, from which a model can correct itself.
 */
#include "tuner/client/mcp.h"

#include "plan/plan.h"

static const struct mcp_tool tools[] = {
    {"plan", "Rank layouts",
     "Rank the legal parallel layouts of a training job by the cost model: expected tokens/s, MFU, "
     "memory, and what the rules exclude. Runs nothing.",
     "POST", "/v1/plan", NULL, NULL, false},
    {"size", "Size a cluster",
     "Compare numbers of devices for a training job by the cost model: for each the best layout, "
     "days, cost and marginal efficiency; and the fewest that meet a deadline. Runs nothing.",
     "POST", "/v1/size", NULL, NULL, false},
    {"check", "Check a layout",
     "Check one layout: the rules that it breaks, with the numbers; its memory plan and expected "
     "time. Runs nothing.",
     "POST", "/v1/check", NULL, NULL, false},
    {"validate", "Validate a campaign",
     "Validate a campaign without starting it: legal and fitting layouts, expected trials and "
     "time.",
     "POST", "/v1/campaigns", "dry_run=true", " dry_run ", false},
    {"explain", "Explain a rule", "Explain what a legality rule requires of a layout.", NULL, NULL,
     NULL, NULL, false},
    {"campaigns", "List campaigns", "List campaigns with their state and best layout.", "GET",
     "/v1/campaigns", NULL, NULL, false},
    {"status", "Show a campaign",
     "Show a campaign: state and its reason, progress, best, baseline and verification. With "
     "simulated true no training job ran.",
     "GET", "/v1/campaigns/{id}", NULL, NULL, false},
    {"best", "Best layout", "Show the best layout of a campaign so far, with its interval.", "GET",
     "/v1/campaigns/{id}/best", NULL, NULL, false},
    {"why", "Explain a trial",
     "Explain why a trial is faster or slower than the baseline or another trial: where the "
     "seconds of a step went, which changed keys caused it and, of trials on two clusters, how "
     "much of it is the cluster's.",
     "GET", "/v1/campaigns/{id}/trials/{n}/why", NULL, NULL, false},
    {"export", "Export a layout",
     "Write the winner of a campaign as another trainer's configuration.", "GET",
     "/v1/campaigns/{id}/export/{target}", NULL, NULL, false},
    {"submit", "Start a campaign",
     "Start a campaign: the daemon runs real training jobs on the cluster until its budget is "
     "spent. Try plan and validate first.",
     "POST", "/v1/campaigns", NULL, " dry_run ", true},
};

const struct mcp_tool *mcp_tool_find(const char *name, bool writes)
{
    for (size_t i = 0; i < ARRAY_LEN(tools); i++)
        if (str_eq(tools[i].name, name) && (writes || !tools[i].writes))
            return &tools[i];
    return NULL;
}

json_t *mcp_tool_list(bool writes)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ARRAY_LEN(tools); i++) {
        const struct mcp_tool *tool = &tools[i];
        json_t *v, *output;

        if (tool->writes && !writes)
            continue;
        v = json_pack("{s:s, s:s, s:s, s:o, s:{s:b, s:b, s:b, s:b}}", "name", tool->name, "title",
                      tool->title, "description", tool->about, "inputSchema",
                      mcp_input_schema(tool), "annotations", "readOnlyHint", !tool->writes,
                      "destructiveHint", 0, "idempotentHint", !tool->writes, "openWorldHint", 0);
        output = mcp_output_schema(tool);
        if (output)
            json_object_set_new(v, "outputSchema", output);
        json_array_append_new(list, v);
    }
    return list;
}

/* ---- results ------------------------------------------------------------- */

static json_t *result_of(const char *text, json_t *owned_structure, bool is_error)
{
    json_t *v = json_pack("{s:[{s:s, s:s}], s:b}", "content", "type", "text", "text", text,
                          "isError", is_error);

    if (owned_structure)
        json_object_set_new(v, "structuredContent", owned_structure);
    return v;
}

static json_t *refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static json_t *refuse(const char *fmt, ...)
{
    AUTO_STR text = {0};
    va_list ap;

    va_start(ap, fmt);
    str_vaddf(&text, fmt, ap);
    va_end(ap);
    return result_of(str_text(&text), NULL, true);
}

/* A problem document as text: reason, field, each broken rule with its numbers. */
static json_t *problem(const struct cl_answer *answer)
{
    AUTO_JSON *v = NULL;
    AUTO_STR text = {0};
    const char *pointer;
    json_t *rule;
    size_t i;

    if (jx_parse(&v, str_text(&answer->text), answer->text.len, NULL) < 0 || !json_is_object(v))
        return refuse("the daemon answered %ld", answer->status);
    pointer = cl_string(v, "pointer");
    str_addf(&text, "%s%s%s", pointer, *pointer ? ": " : "",
             *cl_string(v, "detail") ? cl_string(v, "detail") : cl_string(v, "title"));
    json_array_foreach(json_object_get(v, "rules"), i, rule)
        str_addf(&text, "\n%s: %s", cl_string(rule, "rule"), cl_string(rule, "detail"));
    return result_of(str_text(&text), NULL, true);
}

/* ---- requests ------------------------------------------------------------ */

static char *argument_text(const json_t *value)
{
    if (json_is_string(value))
        return mem_strdup(json_string_value(value));
    if (json_is_boolean(value))
        return mem_strdup(json_is_true(value) ? "true" : "false");
    return json_is_integer(value) ? mem_printf("%lld", (long long)json_integer_value(value)) : NULL;
}

/* PATH with each {key} replaced by its argument; NULL: the argument RET_KEY is missing or no text.
 */
static char *fill_path(char ret_key[64], const char *path, const json_t *arguments)
{
    AUTO_STR out = {0};

    for (const char *at = path; *at;) {
        AUTO_FREE char *name = NULL, *escaped = NULL;
        const char *value;
        size_t plain = strcspn(at, "{");

        str_addn(&out, at, plain);
        at += plain;
        if (!*at)
            break;
        name = mem_printf("%.*s", (int)strcspn(at + 1, "}"), at + 1);
        value = json_string_value(json_object_get(arguments, name));
        if (!value || !*value) {
            snprintf(ret_key, 64, "%s", name);
            return NULL;
        }
        escaped = cl_path("", value, "");
        str_add(&out, escaped);
        at += strlen(name) + 2;
    }
    return str_take(&out);
}

struct request {
    char *path;   /* with the query */
    json_t *body; /* NULL: none */
};

/* The request of TOOL with ARGUMENTS; NULL, or why there is none. */
static json_t *make_request(struct request *ret, const struct mcp_tool *tool,
                            const json_t *arguments)
{
    const struct mcp_route *route = mcp_route_of(tool);
    AUTO_JSON *schema = mcp_input_schema(tool);
    const json_t *known = json_object_get(schema, "properties");
    AUTO_STR query = {0};
    char missing[64] = "";
    const char *key;
    json_t *value;

    ret->body = route->body ? json_object() : NULL;
    json_object_foreach((json_t *)(uintptr_t)arguments, key, value) {
        AUTO_FREE char *text = argument_text(value);

        if (!json_object_get(known, key))
            return refuse("unknown argument \"%s\" of %s", key, tool->name);
        if (mcp_in_query(tool, key) && !text)
            return refuse("%s must be a string, a boolean or an integer", key);
        if (mcp_in_query(tool, key))
            cl_add_query(&query, key, text);
        else if (!mcp_in_path(route, key))
            json_object_set(ret->body, key, value);
    }
    if (tool->fixed)
        str_addf(&query, "%s%s", query.len ? "&" : "", tool->fixed);
    ret->path = fill_path(missing, route->path, arguments);
    if (!ret->path)
        return refuse("%s is missing, or not a string", missing);
    if (query.len) {
        char *whole = mem_printf("%s?%s", ret->path, str_text(&query));

        free(ret->path);
        ret->path = whole;
    }
    return NULL;
}

/* "last" as the id is the newest campaign. *RET is new: ARGUMENTS with its id. */
static json_t *resolve_last(json_t **ret, const struct cl *client, const json_t *arguments,
                            const atomic_bool *unwanted)
{
    AUTO_JSON *list = NULL;
    struct cl_answer answer;
    json_t *refused = NULL;
    const char *id;

    *ret = json_copy((json_t *)(uintptr_t)arguments);
    if (!str_eq(json_string_value(json_object_get(arguments, "id")), "last"))
        return NULL;
    if (cl_exchange(&answer, client, "GET", "/v1/campaigns?page_size=1&sort=-created", NULL,
                    unwanted) != CL_OK)
        refused = refuse("no daemon answers at %s: %s", client->args.server, answer.why);
    else if (answer.status >= 400)
        refused = problem(&answer);
    else
        jx_parse(&list, str_text(&answer.text), answer.text.len, NULL);
    str_done(&answer.text);
    id = cl_string(json_array_get(json_object_get(list, "items"), 0), "id");
    if (!refused && !*id)
        refused = refuse("there is no campaign yet");
    if (!refused)
        json_object_set_new(*ret, "id", json_string(id));
    return refused;
}

static json_t *ask_daemon(const struct cl *client, const struct mcp_tool *tool,
                          const struct request *request, const atomic_bool *unwanted)
{
    struct cl_answer answer;
    json_t *v = NULL, *result;

    if (cl_exchange(&answer, client, tool->method, request->path, request->body, unwanted) != CL_OK)
        result = refuse("no daemon answers at %s: %s", client->args.server, answer.why);
    else if (answer.status >= 400)
        result = problem(&answer);
    else if (!str_starts(answer.type, "application/json"))
        result = str_is_utf8(str_text(&answer.text), answer.text.len)
                     ? result_of(str_text(&answer.text), NULL, false)
                     : refuse("the daemon's answer is not UTF-8");
    else if (jx_parse(&v, str_text(&answer.text), answer.text.len, NULL) < 0)
        result = refuse("the daemon's answer is not JSON");
    else
        result = result_of(str_text(&answer.text), v, false);
    str_done(&answer.text);
    return result;
}

static json_t *explain(const json_t *arguments)
{
    const char *rule = json_string_value(json_object_get(arguments, "rule"));
    const char *required = rule ? pl_rule_requires(rule) : NULL;
    const char *near = rule ? str_nearest(rule, pl_rule_names()) : NULL;
    AUTO_FREE char *text = NULL;

    if (json_object_size(arguments) > 1)
        return refuse("explain takes one argument: rule");
    if (!rule)
        return refuse("rule is missing, or not a string");
    if (!required)
        return refuse("unknown rule \"%s\"%s%s%s", rule, near ? "; did you mean \"" : "",
                      near ? near : "", near ? "\"?" : "");
    text = mem_printf("%s: %s", rule, required);
    return result_of(text, json_pack("{s:s, s:s}", "rule", rule, "requires", required), false);
}

json_t *mcp_tool_call(const struct cl *client, const struct mcp_tool *tool, const json_t *arguments,
                      const atomic_bool *unwanted)
{
    struct request request = {0};
    json_t *resolved = NULL, *result;

    if (!tool->path)
        return explain(arguments);
    result = resolve_last(&resolved, client, arguments, unwanted);
    if (!result)
        result = make_request(&request, tool, resolved);
    if (!result)
        result = ask_daemon(client, tool, &request, unwanted);
    json_decref(resolved);
    json_decref(request.body);
    free(request.path);
    return result;
}
