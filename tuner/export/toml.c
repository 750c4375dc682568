/*
 * TOML, as far as job files of a trainer go: every key = value of the text as one call, with the
 * dotted path of its key. Tables, dotted and quoted keys, the four kinds of strings, comments, and
 * lists over several lines are read; tables within braces are taken apart like any other. A list is
 * handed on as its text, since no setting that we know is one; numbers lose their underscores.
 * Dates, and the difference between a table and a list of tables, have no use here.
 */
#include "tuner/export/internal.h"

#include <ctype.h>
#include <errno.h>

struct toml {
    const char *p;
    int line;
    tn_toml_fn *set;
    void *arg;
    struct err *e;
};

enum { MAX_DEPTH = 16 };

static int syntax(struct toml *t, const char *what)
{
    return err_set(t->e, -EINVAL, "line %d: %s", t->line, what);
}

static void skip_blanks(struct toml *t)
{
    while (*t->p == ' ' || *t->p == '\t' || *t->p == '\r')
        t->p++;
}

/* Over blanks, comments and ends of lines. */
static void skip_space(struct toml *t)
{
    for (;; t->p++) {
        skip_blanks(t);
        if (*t->p == '#')
            t->p += strcspn(t->p, "\n");
        if (*t->p != '\n')
            return;
        t->line++;
    }
}

static int end_of_line(struct toml *t)
{
    skip_blanks(t);
    if (*t->p == '#')
        t->p += strcspn(t->p, "\n");
    return *t->p && *t->p != '\n' ? syntax(t, "expected the end of the line") : 0;
}

/* What follows a backslash. Other escapes than these are kept as they stand: no setting has them.
 */
static void escaped(struct str *out, char c)
{
    switch (c) {
    case 'n':
        str_addc(out, '\n');
        break;
    case 't':
        str_addc(out, '\t');
        break;
    case '"':
    case '\\':
        str_addc(out, c);
        break;
    default:
        str_addc(out, '\\');
        str_addc(out, c);
    }
}

/* A string in " or ', of one line or, with three of them, of several. */
static int read_string(struct toml *t, struct str *out)
{
    char quote = *t->p;
    bool tall = t->p[1] == quote && t->p[2] == quote;

    t->p += tall ? 3 : 1;
    if (tall && *t->p == '\n') { /* right after the quotes it is no part of the text */
        t->line++;
        t->p++;
    }
    for (; *t->p; t->p++) {
        if (*t->p == quote && (!tall || (t->p[1] == quote && t->p[2] == quote))) {
            t->p += tall ? 3 : 1;
            return 0;
        }
        if (*t->p == '\n') {
            if (!tall)
                break;
            t->line++;
        }
        if (*t->p == '\\' && quote == '"' && t->p[1] && t->p[1] != '\n')
            escaped(out, *++t->p);
        else
            str_addc(out, *t->p);
    }
    return syntax(t, "a string does not end");
}

static bool bare(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* a.b."c d" behind what PATH has already. */
static int read_key(struct toml *t, struct str *path)
{
    for (;;) {
        size_t from;

        skip_blanks(t);
        if (path->len)
            str_addc(path, '.');
        from = path->len;
        if (*t->p == '"' || *t->p == '\'') {
            int r = read_string(t, path);

            if (r < 0)
                return r;
        } else {
            for (; bare(*t->p); t->p++)
                str_addc(path, *t->p);
        }
        if (path->len == from)
            return syntax(t, "expected key = value");
        skip_blanks(t);
        if (*t->p != '.')
            return 0;
        t->p++;
    }
}

static int read_value(struct toml *t, struct str *path, int depth);

/* { key = value, … }: each under PATH. */
static int read_braces(struct toml *t, struct str *path, int depth)
{
    size_t len = path->len;

    for (t->p++;;) {
        int r;

        skip_space(t);
        if (*t->p == '}') {
            t->p++;
            return 0;
        }
        if ((r = read_key(t, path)) < 0)
            return r;
        if (*t->p++ != '=')
            return syntax(t, "expected key = value");
        if ((r = read_value(t, path, depth + 1)) < 0)
            return r;
        str_trunc(path, len);
        skip_space(t);
        if (*t->p == ',')
            t->p++;
        else if (*t->p != '}')
            return syntax(t, "a table in braces does not end");
    }
}

/* [ … ] over any number of lines, as one line of text. */
static int read_list(struct toml *t, struct str *out)
{
    int depth = 0;

    do {
        skip_space(t);
        if (!*t->p)
            return syntax(t, "a list does not end");
        if (*t->p == '"' || *t->p == '\'') {
            int r = read_string(t, out);

            if (r < 0)
                return r;
            continue;
        }
        depth += *t->p == '[';
        depth -= *t->p == ']';
        str_addc(out, *t->p);
        if (*t->p++ == ',')
            str_addc(out, ' ');
    } while (depth);
    return 0;
}

static int read_value(struct toml *t, struct str *path, int depth)
{
    AUTO_STR value = {0};
    int r = 0, line;

    skip_blanks(t);
    line = t->line;
    if (depth > MAX_DEPTH)
        return syntax(t, "tables within tables are too deep");
    if (*t->p == '{')
        return read_braces(t, path, depth);
    if (*t->p == '[')
        r = read_list(t, &value);
    else if (*t->p == '"' || *t->p == '\'')
        r = read_string(t, &value);
    else
        for (; *t->p && !strchr(" \t\r\n#,]}", *t->p); t->p++)
            if (*t->p != '_' || !isdigit((unsigned char)t->p[1]))
                str_addc(&value, *t->p);
    return r < 0 ? r : t->set(t->arg, str_text(path), str_text(&value), line, t->e);
}

/* [table] and [[list of tables]]. */
static int read_table(struct toml *t, struct str *table)
{
    int brackets = t->p[1] == '[' ? 2 : 1, r;

    t->p += brackets;
    str_trunc(table, 0);
    if ((r = read_key(t, table)) < 0)
        return r;
    for (int i = 0; i < brackets; i++)
        if (*t->p++ != ']')
            return syntax(t, "expected ]");
    return end_of_line(t);
}

int tn_toml_read(const char *text, tn_toml_fn *set, void *arg, struct err *e)
{
    struct toml t = {.p = text, .line = 1, .set = set, .arg = arg, .e = e};
    AUTO_STR table = {0};

    for (;;) {
        AUTO_STR path = {0};
        int r;

        skip_space(&t);
        if (!*t.p)
            return 0;
        if (*t.p == '[') {
            if ((r = read_table(&t, &table)) < 0)
                return r;
            continue;
        }
        str_add(&path, str_text(&table));
        if ((r = read_key(&t, &path)) < 0)
            return r;
        if (*t.p++ != '=')
            return syntax(&t, "expected key = value");
        if ((r = read_value(&t, &path, 0)) < 0 || (r = end_of_line(&t)) < 0)
            return r;
    }
}
