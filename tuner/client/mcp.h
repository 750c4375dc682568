/*
 * `partune mcp`: a Model Context Protocol server on standard input and output.
 *
 * mcp.c speaks JSON-RPC, mcp_tools.c has the table of tools and runs them, mcp_schema.c makes their
 * schemas from the rows of the HTTP API.
 */
#ifndef TUNER_CLIENT_MCP_H
#define TUNER_CLIENT_MCP_H

#include "tuner/client/client.h"

/* What a tool asks the daemon: a row of tuner/api/routes.def, or nothing. */
struct mcp_route {
    const char *method, *path, *query, *body, *reply;
};

struct mcp_tool {
    const char *name, *title, *about;
    const char *method, *path; /* of its route; NULL: it is answered here */
    const char *fixed;         /* added to the query, such as "dry_run=true"; NULL: nothing */
    const char *hidden;        /* query parameters that are no arguments, with blanks around */
    bool writes;               /* only offered with --allow-submit */
};

/* ---- mcp_schema.c -------------------------------------------------------- */

/* The row of the API; never NULL for a tool that has one. */
const struct mcp_route *mcp_route_of(const struct mcp_tool *tool);
/* Is KEY an argument of the path, such as {id}, or of the query? */
bool mcp_in_path(const struct mcp_route *route, const char *key);
bool mcp_in_query(const struct mcp_tool *tool, const char *key);
/* JSON Schema 2020-12 of the arguments, and of the answer (NULL: text). New references. */
json_t *mcp_input_schema(const struct mcp_tool *tool);
json_t *mcp_output_schema(const struct mcp_tool *tool);

/* ---- mcp_tools.c --------------------------------------------------------- */

/* The tools, as tools/list shows them. New reference. */
json_t *mcp_tool_list(bool writes);
/* NULL: no such tool, or not offered. */
const struct mcp_tool *mcp_tool_find(const char *name, bool writes);
/* Run TOOL: a CallToolResult, with isError where the daemon or a check refused; new reference. What
 * it asks is given up once UNWANTED is set. Any thread. */
json_t *mcp_tool_call(const struct cl *client, const struct mcp_tool *tool, const json_t *arguments,
                      const atomic_bool *unwanted);

#endif
