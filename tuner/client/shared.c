/* What the commands share: paths and queries, one campaign, files that are read and written. */
#include "tuner/client/client.h"

#include <ctype.h>
#include <errno.h>

char *cl_path(const char *head, const char *name, const char *tail)
{
    AUTO_STR s = {0};

    str_add(&s, head);
    for (; *name; name++) {
        if (isalnum((unsigned char)*name) || (*name && strchr("-_.", *name)))
            str_addc(&s, *name);
        else
            str_addf(&s, "%%%02X", (unsigned char)*name);
    }
    str_add(&s, tail);
    return str_take(&s);
}

void cl_add_query(struct str *out, const char *key, const char *value)
{
    AUTO_FREE char *escaped = NULL;
    size_t n = strlen(str_text(out));

    if (!value)
        return;
    escaped = cl_path("", value, "");
    str_addf(out, "%s%s=%s", n && out->text[n - 1] != '?' ? "&" : "", key, escaped);
}

int cl_get_campaign(json_t **ret, struct cl *client, const char *id, const char *tail)
{
    AUTO_FREE char *path = cl_path("/v1/campaigns/", id, tail);

    return cl_call(ret, client, "GET", path, NULL);
}

int cl_say_done(const struct cl *client, const char *done, const char *what)
{
    AUTO_JSON *v = NULL;

    if (!client->args.json) {
        printf("%s %s\n", done, what);
        return CL_OK;
    }
    v = json_pack("{s:s}", done, what);
    cl_print_json(v);
    return CL_OK;
}

void cl_write_text(const struct cl *client, char *text, size_t len)
{
    if (client->tty) { /* as it is, an escape sequence would be obeyed */
        cl_make_text_safe(text);
        len = strlen(text);
    }
    fwrite(text, 1, len, stdout);
    fflush(stdout);
}

void cl_strip_comments(char *text)
{
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        line += strspn(line, " \t");
        if (line[0] == '/' && line[1] == '/')
            memset(line, ' ', strcspn(line, "\n"));
        if (!*line)
            break;
    }
}

int cl_load(json_t **ret, const char *path)
{
    AUTO_FREE char *text = NULL;
    struct err e = {0};
    size_t n;
    int r = file_read_all(&text, &n, str_eq(path, "-") ? "/dev/stdin" : path, 8 << 20, &e);

    if (r == 0) {
        cl_strip_comments(text);
        r = jx_parse(ret, text, n, &e);
        if (r == 0)
            r = cl_model_in(*ret, str_eq(path, "-") ? NULL : path, &e);
        if (r < 0)
            err_wrap(&e, "%s", path);
    }
    if (r < 0) {
        fprintf(stderr, "partune: %s\n", e.text);
        return CL_FAILED;
    }
    return CL_OK;
}

int cl_deliver(const struct cl *client, char *text, size_t size)
{
    struct err e = {0};

    if (!client->args.output) {
        cl_write_text(client, text, size);
        return CL_OK;
    }
    if (file_write_atomic(client->args.output, text, size, 0644, &e) < 0) {
        fprintf(stderr, "partune: %s\n", e.text);
        return CL_FAILED;
    }
    return cl_say_done(client, "wrote", client->args.output);
}

int cl_all_trials(json_t **ret, struct cl *client, const char *id)
{
    AUTO_FREE char *path = cl_path("/v1/campaigns/", id, "/results.jsonl");
    AUTO_FREE char *lines = NULL;
    size_t size = 0;
    int code = cl_call_text(&lines, &size, client, path);

    *ret = NULL;
    if (code != CL_OK)
        return code;
    *ret = json_array();
    for (char *line = lines, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *trial = NULL;

        if (jx_parse(&trial, line, (size_t)(end - line), NULL) == 0)
            json_array_append_new(*ret, trial);
    }
    return CL_OK;
}
