#include "base/base.h"

#include <errno.h>

/* "/" + key with ~ and / escaped (RFC 6901). */
static void pointer_of(char *buf, size_t size, const char *key)
{
    size_t n = 0;

    buf[n++] = '/';
    for (; *key && n + 3 < size; key++) {
        if (*key == '~' || *key == '/') {
            buf[n++] = '~';
            buf[n++] = *key == '~' ? '0' : '1';
        } else {
            buf[n++] = *key;
        }
    }
    buf[n] = '\0';
}

static __attribute__((format(printf, 4, 5))) int fail_key(struct err *error, int code,
                                                          const char *key, const char *fmt, ...)
{
    char pointer[128], text[360];
    va_list ap;

    pointer_of(pointer, sizeof(pointer), key);
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_at(error, code, pointer, "\"%.64s\" %s", key, text);
}

/* Nesting is measured before the parser sees the text, so that depth costs no stack. */
static int check_depth(const char *text, size_t len, struct err *error)
{
    int depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > JX_MAX_DEPTH)
                return err_set(error, -EINVAL, "JSON is nested deeper than %d levels",
                               JX_MAX_DEPTH);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return 0;
}

int jx_parse(json_t **ret, const char *text, size_t len, struct err *error)
{
    json_error_t je;
    json_t *v;
    int r = check_depth(text, len, error);

    if (r < 0)
        return r;
    if (!str_is_utf8(text, len))
        return err_set(error, -EINVAL, "not JSON: the text is not UTF-8");
    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return err_set(error, -EINVAL,
                       "not JSON: the text begins with a byte order mark; remove it");
    v = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!v)
        return err_set(error, -EINVAL, "not JSON: line %d column %d: %s", je.line, je.column,
                       je.text);
    *ret = v;
    return 0;
}

int jx_load(json_t **ret, const char *path, size_t max_bytes, struct err *error)
{
    AUTO_FREE char *text = NULL;
    size_t n;
    int r = file_read_all(&text, &n, path, max_bytes, error);

    if (r < 0)
        return r;
    r = jx_parse(ret, text, n, error);
    return r < 0 ? err_wrap(error, "%s", path) : 0;
}

static const char *type_name(const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

/* An unknown KEY: the nearest of KEYS, or all of them where they are few. */
static int fail_unknown(struct err *error, const char *key, const char *const *keys)
{
    enum { FEW = 8 };
    const char *near = str_nearest(key, keys);
    AUTO_STR all = {0};
    int n = 0;

    if (near)
        return fail_key(error, -EINVAL, key, "is unknown; did you mean \"%s\"?", near);
    for (; keys[n]; n++)
        str_addf(&all, "%s%s", n ? ", " : "", keys[n]);
    if (n > FEW)
        return fail_key(error, -EINVAL, key, "is unknown");
    return fail_key(error, -EINVAL, key, "is unknown (%s)", str_text(&all));
}

int jx_keys(const json_t *json, const char *const *keys, struct err *error)
{
    const char *key;
    json_t *value;

    if (!json_is_object(json))
        return err_set(error, -EINVAL, "expected an object, found %s",
                       json ? type_name(json) : "nothing");
    json_object_foreach((json_t *)json, key, value) {
        const char *const *k = keys;

        while (*k && strcmp(*k, key))
            k++;
        if (!*k)
            return fail_unknown(error, key, keys);
    }
    return 0;
}

static json_t *present(const json_t *object, const char *key)
{
    json_t *v = json_object_get(object, key);

    return v && !json_is_null(v) ? v : NULL;
}

int jx_need(const json_t *object, const char *key, struct err *error)
{
    return present(object, key) ? 0 : fail_key(error, -EINVAL, key, "is missing");
}

int jx_get_i64(int64_t *ret, const json_t *object, const char *key, int64_t min, int64_t max,
               struct err *error)
{
    json_t *v = present(object, key);
    json_int_t i;

    if (!v)
        return 0;
    if (!json_is_integer(v))
        return fail_key(error, -EINVAL, key, "must be an integer, found %s",
                        json_is_real(v) ? "a fraction" : type_name(v));
    i = json_integer_value(v);
    if (i < min || i > max)
        return fail_key(error, -ERANGE, key, "is %lld, outside %lld..%lld", (long long)i,
                        (long long)min, (long long)max);
    *ret = i;
    return 0;
}

int jx_get_int(int *ret, const json_t *object, const char *key, int min, int max, struct err *error)
{
    int64_t v = *ret;
    int r = jx_get_i64(&v, object, key, min, max, error);

    if (r == 0)
        *ret = (int)v;
    return r;
}

int jx_get_f64(double *ret, const json_t *object, const char *key, double min, double max,
               struct err *error)
{
    json_t *v = present(object, key);
    double d;

    if (!v)
        return 0;
    if (!json_is_number(v))
        return fail_key(error, -EINVAL, key, "must be a number, found %s", type_name(v));
    d = json_number_value(v);
    if (!(d >= min && d <= max))
        return fail_key(error, -ERANGE, key, "is %g, outside %g..%g", d, min, max);
    *ret = d;
    return 0;
}

int jx_get_bool(bool *ret, const json_t *object, const char *key, struct err *error)
{
    json_t *v = present(object, key);

    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return fail_key(error, -EINVAL, key, "must be true or false, found %s", type_name(v));
    *ret = json_is_true(v);
    return 0;
}

int jx_get_str(const char **ret, const json_t *object, const char *key, size_t max_len,
               struct err *error)
{
    json_t *v = present(object, key);
    const char *s;
    size_t n;

    if (!v)
        return 0;
    if (!json_is_string(v))
        return fail_key(error, -EINVAL, key, "must be a string, found %s", type_name(v));
    s = json_string_value(v);
    n = json_string_length(v);
    if (n == 0)
        return fail_key(error, -EINVAL, key, "is empty");
    if (n > max_len)
        return fail_key(error, -ERANGE, key, "is %zu bytes long, more than %zu", n, max_len);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < ' ' || s[i] == 0x7f)
            return fail_key(error, -EINVAL, key, "contains a control character");
    *ret = s;
    return 0;
}

int jx_copy_str(char *buf, size_t size, const json_t *object, const char *key, struct err *error)
{
    const char *s = NULL;
    int r = jx_get_str(&s, object, key, size - 1, error);

    if (r == 0 && s)
        snprintf(buf, size, "%s", s);
    return r;
}

int jx_get_enum(int *ret, const json_t *object, const char *key, const char *const *names,
                struct err *error)
{
    const char *s = NULL, *near;
    AUTO_STR all = {0};
    int r = jx_get_str(&s, object, key, 128, error);

    if (r < 0 || !s)
        return r;
    for (int i = 0; names[i]; i++) {
        if (!strcmp(names[i], s)) {
            *ret = i;
            return 0;
        }
        str_addf(&all, "%s\"%s\"", i ? ", " : "", names[i]);
    }
    near = str_nearest(s, names);
    if (near)
        return fail_key(error, -EINVAL, key, "is \"%.64s\"; did you mean \"%s\"?", s, near);
    return fail_key(error, -EINVAL, key, "is \"%.64s\", not one of %s", s, str_text(&all));
}

int jx_get_object(json_t **ret, const json_t *object, const char *key, struct err *error)
{
    json_t *v = present(object, key);

    if (!v)
        return 0;
    if (!json_is_object(v))
        return fail_key(error, -EINVAL, key, "must be an object, found %s", type_name(v));
    *ret = v;
    return 0;
}

int jx_get_array(json_t **ret, const json_t *object, const char *key, size_t max_len,
                 struct err *error)
{
    json_t *v = present(object, key);

    if (!v)
        return 0;
    if (!json_is_array(v))
        return fail_key(error, -EINVAL, key, "must be an array, found %s", type_name(v));
    if (json_array_size(v) > max_len)
        return fail_key(error, -ERANGE, key, "has %zu elements, more than %zu", json_array_size(v),
                        max_len);
    *ret = v;
    return 0;
}

/*
 * Where memory runs out, Jansson leaves something out: a member that cannot be set, an element,
 * and, where a text grows, the name of a member (the result of dump_string() of a key is ignored as
 * of 2.14), which makes the text invalid JSON. In a response or a row of the database that would be
 * wrong data, so its allocations abort as all small ones do. Set before main(), ahead of the first
 * one.
 */
static __attribute__((constructor)) void no_memory_no_json(void)
{
    json_set_alloc_funcs(mem_raw, free);
}

static char *dump(const json_t *json, size_t flags)
{
    char *text = json_dumps(json, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

    if (!text)
        abort(); /* out of memory: a valid value always has a text */
    return text;
}

char *jx_dump(const json_t *json)
{
    return dump(json, JSON_COMPACT);
}

char *jx_canonical(const json_t *json)
{
    return dump(json, JSON_COMPACT | JSON_SORT_KEYS);
}
