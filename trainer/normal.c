#include "trainer/normal.h"

#include "base/base.h"

#include <assert.h>
#include <errno.h>

#ifdef HAVE_UTF8PROC
#include <utf8proc.h>
#endif

enum { STEPS_MAX = 16, PIECE = 1 << 16 };

/* ---- reading ------------------------------------------------------------- */

enum kind { NFC, PREPEND, REPLACE };

struct step {
    enum kind kind;
    char *pattern, *content; /* PREPEND: content; owned */
};

struct tr_normal {
    struct step step[STEPS_MAX];
    int count;
    struct str text, next;
};

struct tr_normal *tr_normal_free(struct tr_normal *normal)
{
    if (!normal)
        return NULL;
    for (int i = 0; i < normal->count; i++) {
        free(normal->step[i].pattern);
        free(normal->step[i].content);
    }
    str_done(&normal->text);
    str_done(&normal->next);
    free(normal);
    return NULL;
}

static int need_text(const char **ret, const json_t *json, const char *key, struct err *error)
{
    AUTO_FREE char *at = mem_printf("/%s", key);

    *ret = json_string_value(json_object_get(json, key));
    return *ret ? 0 : err_at(error, -EINVAL, at, "\"%s\" is not a text", key);
}

static int read_nfc(struct step *step, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"type", NULL};
    int r = jx_keys(json, keys, error);

    step->kind = NFC;
#ifndef HAVE_UTF8PROC
    if (r == 0)
        r = err_at(error, -ENOTSUP, "/type",
                   "this build has no utf8proc, which NFC needs (install libutf8proc-dev, or "
                   "--with-utf8proc=DIR, and build again)");
#endif
    return r;
}

static int read_prepend(struct step *step, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"type", "prepend", NULL};
    const char *content;
    int r = jx_keys(json, keys, error);

    if (r == 0)
        r = need_text(&content, json, "prepend", error);
    if (r == 0)
        *step = (struct step){PREPEND, NULL, mem_strdup(content)};
    return r;
}

static int read_replace(struct step *step, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"type", "pattern", "content", NULL};
    const char *content,
        *pattern = json_string_value(json_object_get(json_object_get(json, "pattern"), "String"));
    int r = jx_keys(json, keys, error);

    if (r == 0)
        r = need_text(&content, json, "content", error);
    if (r == 0 && !(pattern && *pattern))
        r = err_at(error, -EINVAL, "/pattern",
                   "\"pattern\" is not {\"String\": TEXT}; others are not supported");
    if (r == 0)
        *step = (struct step){REPLACE, mem_strdup(pattern), mem_strdup(content)};
    return r;
}

static int read_one(struct tr_normal *normal, const json_t *json, struct err *error)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    struct step step = {0};
    int r;

    if (normal->count == STEPS_MAX)
        return err_at(error, -EINVAL, "/type", "more than %d steps", STEPS_MAX);
    if (str_eq(type, "NFC"))
        r = read_nfc(&step, json, error);
    else if (str_eq(type, "Prepend"))
        r = read_prepend(&step, json, error);
    else if (str_eq(type, "Replace"))
        r = read_replace(&step, json, error);
    else
        r = err_at(error, -EINVAL, "/type",
                   "\"type\" is %.40s, which is not supported (NFC, Prepend, Replace, and one "
                   "Sequence of these)",
                   type ? type : "absent");
    if (r == 0)
        normal->step[normal->count++] = step;
    return r;
}

static int read_sequence(struct tr_normal *normal, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"type", "normalizers", NULL};
    const json_t *list = json_object_get(json, "normalizers");
    int r = jx_keys(json, keys, error);

    if (r == 0 && !json_is_array(list))
        r = err_at(error, -EINVAL, "/normalizers", "\"normalizers\" is not an array");
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        AUTO_FREE char *at = mem_printf("/normalizers/%zu", i);

        r = read_one(normal, json_array_get(list, i), error);
        if (r < 0)
            err_under(error, at);
    }
    return r;
}

int tr_normal_new(struct tr_normal **ret, const json_t *json, struct err *error)
{
    AUTO(tr_normal) *normal = mem_alloc(sizeof(*normal));
    int r = 0;

    if (str_eq(json_string_value(json_object_get(json, "type")), "Sequence"))
        r = read_sequence(normal, json, error);
    else if (json && !json_is_null(json))
        r = read_one(normal, json, error);
    if (r < 0)
        return err_under(error, "/normalizer");
    *ret = TAKE(normal);
    return 0;
}

/* ---- applying ------------------------------------------------------------ */

static bool is_ascii(const char *text, size_t len)
{
    unsigned char any = 0;

    for (size_t i = 0; i < len; i++)
        any |= (unsigned char)text[i];
    return any < 0x80;
}

#ifdef HAVE_UTF8PROC
/* A piece of TEXT that is normalized as it would be in the whole: it ends before an ASCII
 * character, which never combines with what is before it. */
static size_t piece_of(const char *text, size_t len)
{
    size_t n = PIECE;

    while (n < len && (unsigned char)text[n] >= 0x80)
        n++;
    return n < len ? n : len;
}

static int compose(struct str *out, const char *text, size_t len, struct err *error)
{
    while (len) {
        size_t some = piece_of(text, len);
        AUTO_FREE utf8proc_uint8_t *made = NULL;
        utf8proc_ssize_t got = (utf8proc_ssize_t)some;

        if (!is_ascii(text, some))
            got = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)some, &made,
                               UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (got < 0)
            return err_set(error, -ENOMEM, "NFC: %s", utf8proc_errmsg(got));
        str_addn(out, made ? (const char *)made : text, (size_t)got);
        text += some;
        len -= some;
    }
    return 0;
}
#else
static int compose(struct str *out, const char *text, size_t len, struct err *error)
{
    (void)out, (void)text, (void)len;
    return err_set(error, -ENOTSUP, "NFC without utf8proc");
}
#endif

static void replace(struct str *out, const char *text, size_t len, const struct step *step)
{
    size_t size = strlen(step->pattern);
    const char *found;

    while ((found = memmem(text, len, step->pattern, size))) {
        str_addn(out, text, (size_t)(found - text));
        str_add(out, step->content);
        len -= (size_t)(found - text) + size;
        text = found + size;
    }
    str_addn(out, text, len);
}

int tr_normal_apply(const char **ret, size_t *ret_len, struct tr_normal *normal, const char *text,
                    size_t len, struct err *error)
{
    for (int i = 0; i < normal->count && len; i++) {
        const struct step *step = &normal->step[i];
        struct str last = normal->text;
        int r = 0;

        if (step->kind == NFC && is_ascii(text, len))
            continue;
        str_trunc(&normal->next, 0);
        if (step->kind == PREPEND)
            str_add(&normal->next, step->content);
        if (step->kind == NFC)
            r = compose(&normal->next, text, len, error);
        else if (step->kind == REPLACE)
            replace(&normal->next, text, len, step);
        else
            str_addn(&normal->next, text, len);
        if (r < 0)
            return r;
        normal->text = normal->next;
        normal->next = last;
        text = str_text(&normal->text);
        len = normal->text.len;
    }
    *ret = text;
    *ret_len = len;
    return 0;
}
