#include "base/base.h"

#include <ctype.h>
#include <errno.h>

struct parser {
    const char *p;
    int line;
    struct conf *conf;
    char *section, *name;
};

struct conf *conf_free(struct conf *conf)
{
    if (!conf)
        return NULL;
    for (size_t i = 0; i < conf->count; i++) {
        free(conf->entry[i].section);
        free(conf->entry[i].name);
        free(conf->entry[i].key);
        free(conf->entry[i].value);
    }
    free(conf->entry);
    free(conf->path);
    free(conf);
    return NULL;
}

static int fail(const struct parser *ps, struct err *error, const char *what)
{
    return err_set(error, -EINVAL, "%s:%d: %s", ps->conf->path, ps->line, what);
}

static void skip_blank(struct parser *ps)
{
    while (*ps->p == ' ' || *ps->p == '\t' || *ps->p == '\r')
        ps->p++;
}

static void skip_line(struct parser *ps)
{
    while (*ps->p && *ps->p != '\n')
        ps->p++;
}

static bool is_word(char ch)
{
    return isalnum((unsigned char)ch) || ch == '-' || ch == '_' || ch == '.';
}

static char *take_word(struct parser *ps)
{
    AUTO_STR s = {0};

    while (is_word(*ps->p))
        str_addc(&s, (char)tolower((unsigned char)*ps->p++));
    return str_take(&s);
}

static int parse_header(struct parser *ps, struct err *error)
{
    AUTO_STR name = {0};

    ps->p++; /* '[' */
    free(ps->section);
    free(ps->name);
    ps->name = NULL;
    ps->section = take_word(ps);
    if (!*ps->section)
        return fail(ps, error, "a section needs a name");
    skip_blank(ps);
    if (*ps->p == '"') {
        for (ps->p++; *ps->p && *ps->p != '"' && *ps->p != '\n'; ps->p++) {
            if (*ps->p == '\\' && ps->p[1] && ps->p[1] != '\n')
                ps->p++;
            str_addc(&name, *ps->p);
        }
        if (*ps->p != '"')
            return fail(ps, error, "the section's name is not closed by \"");
        ps->p++;
        skip_blank(ps);
    }
    if (*ps->p != ']')
        return fail(ps, error, "a section header ends with ]");
    ps->p++;
    ps->name = str_take(&name);
    return 0;
}

static int add_escape(struct parser *ps, struct str *value, struct err *error)
{
    switch (*++ps->p) {
    case 'n':
        str_addc(value, '\n');
        break;
    case 't':
        str_addc(value, '\t');
        break;
    case '"':
    case '\\':
        str_addc(value, *ps->p);
        break;
    case '\n':
        ps->line++;
        break;
    default:
        return fail(ps, error, "unknown escape in a value (known: \\n \\t \\\" \\\\)");
    }
    ps->p++;
    return 0;
}

static int parse_value(char **ret, struct parser *ps, struct err *error)
{
    AUTO_STR value = {0};
    bool quoted = false;
    size_t keep = 0; /* unquoted white space at the end is dropped */
    int r;

    while (*ps->p && *ps->p != '\n') {
        char c = *ps->p;

        if (c == '"') {
            quoted = !quoted;
            ps->p++;
            keep = value.len;
        } else if (c == '\\') {
            r = add_escape(ps, &value, error);
            if (r < 0)
                return r;
            keep = value.len;
        } else if (!quoted && (c == '#' || c == ';')) {
            skip_line(ps);
        } else {
            str_addc(&value, c);
            ps->p++;
            if (quoted || !isspace((unsigned char)c))
                keep = value.len;
        }
    }
    if (quoted)
        return fail(ps, error, "a quoted value is not closed");
    str_trunc(&value, keep);
    *ret = str_take(&value);
    return 0;
}

static int parse_entry(struct parser *ps, struct err *error)
{
    struct conf *c = ps->conf;
    AUTO_FREE char *key = NULL;
    char *value = NULL;
    int line = ps->line, r;

    if (!ps->section)
        return fail(ps, error, "a key before the first [section]");
    key = take_word(ps);
    if (!*key)
        return fail(ps, error, "expected `key = value`, a [section] or a comment");
    skip_blank(ps);
    if (*ps->p != '=')
        return fail(ps, error, "expected = after the key");
    ps->p++;
    skip_blank(ps);
    r = parse_value(&value, ps, error);
    if (r < 0)
        return r;
    MEM_GROW(c->entry, c->count, c->cap);
    c->entry[c->count++] = (struct conf_entry){
        .section = mem_strdup(ps->section),
        .name = mem_strdup(ps->name),
        .key = TAKE(key),
        .value = value,
        .line = line,
    };
    return 0;
}

int conf_parse(struct conf **ret, const char *text, const char *path, struct err *error)
{
    AUTO(conf) *c = mem_alloc(sizeof(*c));
    struct parser ps = {.p = text, .line = 1, .conf = c};
    int r = 0;

    c->path = mem_strdup(path);
    while (*ps.p && r == 0) {
        skip_blank(&ps);
        if (*ps.p == '\n') {
            ps.p++;
            ps.line++;
        } else if (*ps.p == '#' || *ps.p == ';') {
            skip_line(&ps);
        } else if (*ps.p == '[') {
            r = parse_header(&ps, error);
        } else if (*ps.p) {
            r = parse_entry(&ps, error);
        }
    }
    free(ps.section);
    free(ps.name);
    if (r < 0)
        return r;
    *ret = TAKE(c);
    return 0;
}

int conf_load(struct conf **ret, const char *path, struct err *error)
{
    AUTO_FREE char *text = NULL;
    size_t n;
    int r = file_read_all(&text, &n, path, 1 << 20, error);

    if (r < 0)
        return r;
    if (strlen(text) != n)
        return err_set(error, -EINVAL, "%s contains a NUL byte", path);
    return conf_parse(ret, text, path, error);
}

const char *conf_get(const struct conf *conf, const char *section, const char *name,
                     const char *key)
{
    for (size_t i = conf->count; i-- > 0;) {
        const struct conf_entry *it = &conf->entry[i];

        if (!strcmp(it->section, section) && !strcmp(it->name, name) && !strcmp(it->key, key))
            return it->value;
    }
    return NULL;
}

bool conf_has(const struct conf *conf, const char *section)
{
    for (size_t i = 0; i < conf->count; i++)
        if (!strcmp(conf->entry[i].section, section))
            return true;
    return false;
}

/* ---- what is known ------------------------------------------------------- */

enum { MOST_WORDS = 48 }; /* sections, keys of one, or values of one */

/* WHERE: "[slurm]", or any configuration. */
static int unknown(const struct conf *conf, const struct conf_entry *it, const char *where,
                   const char *what, const char *got, const char *const *names, struct err *error)
{
    const char *near = str_nearest(got, names);

    return err_set(error, -EINVAL, "%s:%d: %s has no %s %.80s%s%s%s", conf->path, it->line, where,
                   what, got, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static bool listed(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (!strcmp(*names, name))
            return true;
    return false;
}

static int check_value(const struct conf *conf, const struct conf_entry *it,
                       const struct conf_key *key, struct err *error)
{
    AUTO_STR s = {0};
    double v;

    if (key->max > 0 && (str_to_f64(&v, it->value) < 0 || !(v >= key->min && v <= key->max)))
        return err_set(error, -EINVAL, "%s:%d: %s must be a number in %g..%g, not `%.80s`",
                       conf->path, it->line, key->name, key->min, key->max, it->value);
    if (!key->words || listed(key->words, it->value))
        return 0;
    for (const char *const *w = key->words; *w; w++)
        str_addf(&s, "%s%s", w == key->words ? "" : " or ", *w);
    return err_set(error, -EINVAL, "%s:%d: %s is %s, not `%.80s`", conf->path, it->line, key->name,
                   str_text(&s), it->value);
}

static int check_entry(const struct conf *conf, const struct conf_entry *it,
                       const struct conf_section *section, struct err *error)
{
    const char *names[MOST_WORDS] = {NULL};
    char where[32];

    if (section->named && !*it->name)
        return err_set(error, -EINVAL, "%s:%d: a [%s] needs a name: [%s \"NAME\"]", conf->path,
                       it->line, section->name, section->name);
    if (!section->named && *it->name)
        return err_set(error, -EINVAL, "%s:%d: a [%s] has no name", conf->path, it->line,
                       section->name);
    if (!section->key)
        return 0;
    for (int i = 0; section->key[i].name && i < MOST_WORDS - 1; i++) {
        if (!strcmp(it->key, section->key[i].name))
            return check_value(conf, it, &section->key[i], error);
        names[i] = section->key[i].name;
    }
    snprintf(where, sizeof(where), "[%s]", section->name);
    return unknown(conf, it, where, "key", it->key, names, error);
}

static int unknown_section(const struct conf *conf, const struct conf_entry *it,
                           const struct conf_section *known, struct err *error)
{
    const char *names[MOST_WORDS] = {NULL};
    size_t n = strcspn(it->section, "."); /* [trainer.mine], as TOML would have it */

    for (int i = 0; known[i].name && i < MOST_WORDS - 1; i++) {
        names[i] = known[i].name;
        if (known[i].named && it->section[n] && strlen(names[i]) == n &&
            !strncmp(names[i], it->section, n))
            return err_set(error, -EINVAL, "%s:%d: write [%s] as [%s \"%s\"]", conf->path, it->line,
                           it->section, names[i], it->section + n + 1);
    }
    return unknown(conf, it, "a configuration", "section", it->section, names, error);
}

int conf_check(const struct conf *conf, const struct conf_section *known, struct err *error)
{
    int r = 0;

    for (size_t i = 0; i < conf->count && r == 0; i++) {
        const struct conf_entry *it = &conf->entry[i];
        const struct conf_section *s = known;

        while (s->name && strcmp(s->name, it->section) != 0)
            s++;
        if (s->name && s->named != (*it->name != '\0') && s[1].name && !strcmp(s[1].name, s->name))
            s++;
        r = s->name ? check_entry(conf, it, s, error) : unknown_section(conf, it, known, error);
    }
    return r;
}
