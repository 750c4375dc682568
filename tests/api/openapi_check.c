/*
 * openapi_check URL TOKEN ID N: walk /openapi.json and the server side by side, as TAP.
 *
 * For every path and method: the answer's status is one that the document names, its type too, and
 * its body is valid against the schema; unlisted methods are refused by 405 with the listed ones in
 * Allow; what needs a token is refused by 401 without. ID and N are a campaign that has ended and
 * one of its trials.
 */
#include <curl/curl.h>
#include <stdio.h>

#include "base/base.h"

static struct {
    const char *url, *token, *id, *n;
    json_t *doc;
    int count, failed;
} t;

struct reply {
    long status;
    char type[128], allow[256];
    struct str body;
};

static __attribute__((format(printf, 2, 3))) void result(bool good, const char *fmt, ...)
{
    va_list ap;

    printf("%s %d - ", good ? "ok" : "not ok", ++t.count);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    t.failed += !good;
}

/* ---- a validator of the JSON Schema words that the document uses --------- */

static bool type_is(const json_t *v, const char *type)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return str_eq(type, "object");
    case JSON_ARRAY:
        return str_eq(type, "array");
    case JSON_STRING:
        return str_eq(type, "string");
    case JSON_INTEGER:
        return str_eq(type, "integer") || str_eq(type, "number");
    case JSON_REAL:
        return str_eq(type, "number");
    case JSON_NULL:
        return str_eq(type, "null");
    default:
        return str_eq(type, "boolean");
    }
}

static bool valid(const json_t *v, const json_t *schema, const char *at, struct str *why);

static bool type_fits(const json_t *v, const json_t *type, const char *at, struct str *why)
{
    json_t *one;
    size_t i;
    bool fits = !type || (json_is_string(type) && type_is(v, json_string_value(type)));

    json_array_foreach(type, i, one)
        fits |= type_is(v, json_string_value(one));
    if (!fits) {
        AUTO_FREE char *text = jx_dump(type);

        str_addf(why, "%s is not %s; ", at, text);
    }
    return fits;
}

static bool object_fits(const json_t *v, const json_t *schema, const char *at, struct str *why)
{
    json_t *properties = json_object_get(schema, "properties"), *name, *value;
    json_t *more = json_object_get(schema, "additionalProperties");
    const char *key;
    bool good = true;
    size_t i;

    json_array_foreach(json_object_get(schema, "required"), i, name) {
        if (!json_object_get(v, json_string_value(name))) {
            str_addf(why, "%s lacks %s; ", at, json_string_value(name));
            good = false;
        }
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        AUTO_FREE char *here = mem_printf("%s/%s", at, key);
        json_t *s = json_object_get(properties, key);

        if (!s && json_is_false(more)) {
            str_addf(why, "%s is not described; ", here);
            good = false;
        } else if (s || json_is_object(more)) {
            good &= valid(value, s ? s : more, here, why);
        }
    }
    return good;
}

static bool any_fits(const json_t *v, const json_t *list, const char *at)
{
    json_t *s;
    size_t i;
    bool fits = false;

    json_array_foreach(list, i, s) {
        AUTO_STR quiet = {0};

        fits |= valid(v, s, at, &quiet);
    }
    return fits;
}

static bool valid(const json_t *v, const json_t *schema, const char *at, struct str *why)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    json_t *list, *item;
    bool good, found = false;
    size_t i;

    if (ref) {
        const char *name = strrchr(ref, '/') + 1;
        json_t *target =
            json_object_get(json_object_get(json_object_get(t.doc, "components"), "schemas"), name);

        if (!target) {
            str_addf(why, "schema %s does not exist; ", name);
            return false;
        }
        return valid(v, target, at, why);
    }
    good = type_fits(v, json_object_get(schema, "type"), at, why);
    if (json_is_object(v))
        good &= object_fits(v, schema, at, why);
    if (json_is_array(v) && json_object_get(schema, "items")) {
        json_array_foreach(v, i, item) {
            AUTO_FREE char *here = mem_printf("%s/%zu", at, i);

            good &= valid(item, json_object_get(schema, "items"), here, why);
        }
    }
    list = json_object_get(schema, "enum");
    json_array_foreach(list, i, item)
        found |= json_equal(item, v);
    if (list && !found && !json_is_null(v)) {
        str_addf(why, "%s is not one of the listed words; ", at);
        good = false;
    }
    list = json_object_get(schema, "anyOf");
    if (list && !any_fits(v, list, at)) {
        str_addf(why, "%s fits none of the alternatives; ", at);
        good = false;
    }
    return good;
}

/* ---- requests ------------------------------------------------------------ */

static size_t on_body(char *bytes, size_t size, size_t n, void *ctx)
{
    str_addn(&((struct reply *)ctx)->body, bytes, size * n);
    return size * n;
}

static size_t on_header(char *bytes, size_t size, size_t n, void *ctx)
{
    struct reply *r = ctx;
    AUTO_STR line = {0};

    str_addn(&line, bytes, size * n);
    str_trunc(&line, strcspn(line.text, "\r\n"));
    if (!strncasecmp(line.text, "Content-Type: ", 14))
        snprintf(r->type, sizeof(r->type), "%s", line.text + 14);
    if (!strncasecmp(line.text, "Allow: ", 7))
        snprintf(r->allow, sizeof(r->allow), "%s", line.text + 7);
    return size * n;
}

static void call(struct reply *r, const char *method, const char *path, const char *body,
                 bool token)
{
    AUTO_FREE char *url = mem_printf("%s%s", t.url, path);
    AUTO_FREE char *bearer = mem_printf("Authorization: Bearer %s", t.token);
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    CURL *c = curl_easy_init();

    str_trunc(&r->body, 0);
    r->type[0] = r->allow[0] = '\0';
    if (token)
        headers = curl_slist_append(headers, bearer);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_TIMEOUT, 60L);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, r);
    if (body)
        curl_easy_setopt(c, CURLOPT_COPYPOSTFIELDS, body);
    r->status = 0;
    if (curl_easy_perform(c) == CURLE_OK)
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &r->status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(c);
}

/* ---- the walk ------------------------------------------------------------ */

/* The answer against what OP says of its status. */
static void compare(const char *what, const struct reply *r, const json_t *op)
{
    char status[16];
    json_t *responses = json_object_get(op, "responses"), *said, *content, *schema = NULL;
    AUTO_JSON *body = NULL;
    AUTO_STR why = {0};
    const char *type;
    json_t *media;
    bool good;

    snprintf(status, sizeof(status), "%ld", r->status);
    said = json_object_get(responses, status);
    if (!said)
        said = json_object_get(responses, "default");
    content = json_object_get(said, "content");
    good = r->status >= 200 && r->status < 500 && said;
    if (r->status < 300 && !json_object_get(responses, status)) {
        str_addf(&why, "status %s is not described; ", status);
        good = false;
    }
    json_object_foreach(content, type, media) {
        if (str_starts(r->type, type))
            schema = json_object_get(media, "schema");
    }
    if (json_object_size(content) && !schema && !str_starts(r->type, "text/") &&
        !(json_object_get(content, "text/plain") && r->status == 200)) {
        str_addf(&why, "type %s is not described; ", r->type);
        good = false;
    }
    if (schema && strstr(r->type, "json") && !strstr(r->type, "ndjson") &&
        !json_object_get(content, "text/plain")) {
        if (jx_parse(&body, str_text(&r->body), r->body.len, NULL) < 0) {
            str_add(&why, "the body is not JSON; ");
            good = false;
        } else {
            good &= valid(body, schema, "", &why);
        }
    }
    result(good, "%s answers %s as described", what, status);
    if (!good)
        printf("#   %.900s\n#   %.300s\n", str_text(&why), str_text(&r->body));
}

/* Path with its parameters filled in. */
static char *fill(const char *path)
{
    AUTO_STR s = {0};

    while (*path) {
        size_t n = strcspn(path, "{");

        str_addn(&s, path, n);
        path += n;
        if (!*path)
            break;
        n = strcspn(path, "}");
        if (!strncmp(path, "{id}", 4))
            str_add(&s, str_starts(str_text(&s), "/v1/tokens") ? "000000000000" : t.id);
        else if (!strncmp(path, "{n}", 3))
            str_add(&s, t.n);
        else if (!strncmp(path, "{name}", 6))
            str_add(&s, strstr(str_text(&s), "models") ? "tiny-moe" : "dgx-a100");
        else
            str_add(&s, strstr(str_text(&s), "import") ? "megatron" : "partune");
        path += n + 1;
    }
    return str_take(&s);
}

/* Bodies that are right, so that success is seen as well; other POSTs are sent {}. */
static const char *const bodies[][2] = {
    {"/v1/check",
     "{\"model\":\"tiny-moe\",\"workload\":{\"global_batch\":8},\"layout\":{\"world\":1}}"},
    {"/v1/plan", "{\"model\":\"tiny-moe\",\"workload\":{\"global_batch\":8},\"top\":2}"},
    {"/v1/campaigns?dry_run=true",
     "{\"name\":\"d\",\"model\":\"tiny-moe\",\"workload\":{\"global_batch\":8}}"},
    {"/v1/import/megatron",
     "{\"model\":\"gpt-22B\",\"world\":8,\"text\":\"--tensor-model-parallel-size 8\"}"},
};

static void walk_operation(const char *path, const char *method, const json_t *op)
{
    AUTO_FREE char *at = fill(path),
                   *query =
                       mem_printf("%s%s", at, strstr(path, "surface") ? "?x=tp&y=micro_batch" : "");
    AUTO_FREE char *upper = mem_strdup(method), *what = NULL;
    struct reply r = {0};
    bool post = str_eq(method, "post") || str_eq(method, "patch");
    bool public = json_array_size(json_object_get(op, "security")) == 0;

    for (char *p = upper; *p; p++)
        *p = (char)(*p & ~0x20);
    what = mem_printf("%s %s", upper, path);
    call(&r, upper, query, post ? "{}" : NULL, false);
    if (public)
        result(r.status == 200 || r.status == 503, "%s needs no token", what);
    else
        result(r.status == 401 && str_starts(r.type, "application/problem+json"),
               "%s needs a token", what);
    call(&r, upper, query, post ? "{}" : NULL, true);
    compare(what, &r, op);
    if (post) {
        call(&r, upper, query, "[", true);
        result(r.status == 400, "%s refuses what is not JSON", what);
        call(&r, upper, query, "{\"surely_unknown\":1}", true);
        result(r.status == 422 || r.status == 409 || r.status == 404,
               "%s refuses an unknown field (%ld)", what, r.status);
        for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
            size_t n = strcspn(bodies[i][0], "?");

            if (strlen(at) != n || strncmp(at, bodies[i][0], n) || !str_eq(method, "post"))
                continue;
            call(&r, upper, bodies[i][0], bodies[i][1], true);
            if (n == strlen(bodies[i][0]))
                compare(what, &r, op);
            else
                result(r.status == 200, "%s answers 200", bodies[i][0]);
        }
    }
    str_done(&r.body);
}

static void walk_path(const char *path, const json_t *item)
{
    AUTO_FREE char *at = fill(path);
    struct reply r = {0};
    const char *method;
    json_t *op;

    call(&r, "PUT", at, "{}", true);
    result(r.status == 405, "PUT %s is refused", path);
    json_object_foreach((json_t *)(uintptr_t)item, method, op) {
        if (!strcasestr(r.allow, method))
            result(false, "Allow of %s names %s", path, method);
        if (!str_eq(method, "delete"))
            walk_operation(path, method, op);
    }
    call(&r, "GET", at, NULL, true);
    if (!json_object_get(item, "get"))
        result(r.status == 405, "GET %s is refused", path);
    str_done(&r.body);
}

int main(int argc, char **argv)
{
    struct reply r = {0};
    const char *path;
    json_t *item;

    if (argc != 5)
        return 2;
    t.url = argv[1];
    t.token = argv[2];
    t.id = argv[3];
    t.n = argv[4];
    curl_global_init(CURL_GLOBAL_DEFAULT);
    call(&r, "GET", "/openapi.json", NULL, false);
    result(jx_parse(&t.doc, str_text(&r.body), r.body.len, NULL) == 0, "the description is JSON");
    json_object_foreach(json_object_get(t.doc, "paths"), path, item) {
        if (!strstr(path, "events"))
            walk_path(path, item);
    }
    printf("1..%d\n", t.count);
    str_done(&r.body);
    json_decref(t.doc);
    curl_global_cleanup();
    return t.failed > 0;
}
