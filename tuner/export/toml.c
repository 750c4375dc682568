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

static int syntax(struct toml *parser, const char *what)
{
    return err_set(parser->e, -EINVAL, "line %d: %s", parser->line, what);
}

static void skip_blanks(struct toml *parser)
{
    while (*parser->p == ' ' || *parser->p == '\t' || *parser->p == '\r')
        parser->p++;
}

/* Over blanks, comments and ends of lines. */
static void skip_space(struct toml *parser)
{
    for (;; parser->p++) {
        skip_blanks(parser);
        if (*parser->p == '#')
            parser->p += strcspn(parser->p, "\n");
        if (*parser->p != '\n')
            return;
        parser->line++;
    }
}

static int end_of_line(struct toml *parser)
{
    skip_blanks(parser);
    if (*parser->p == '#')
        parser->p += strcspn(parser->p, "\n");
    return *parser->p && *parser->p != '\n' ? syntax(parser, "expected the end of the line") : 0;
}

/* What follows a backslash. Other escapes than these are kept as they stand: no setting has them.
 */
static void escaped(struct str *out, char ch)
{
    switch (ch) {
    case 'n':
        str_addc(out, '\n');
        break;
    case 't':
        str_addc(out, '\t');
        break;
    case '"':
    case '\\':
        str_addc(out, ch);
        break;
    default:
        str_addc(out, '\\');
        str_addc(out, ch);
    }
}

/* A string in " or ', of one line or, with three of them, of several. */
static int read_string(struct toml *parser, struct str *out)
{
    char quote = *parser->p;
    bool tall = parser->p[1] == quote && parser->p[2] == quote;

    parser->p += tall ? 3 : 1;
    if (tall && *parser->p == '\n') { /* right after the quotes it is no part of the text */
        parser->line++;
        parser->p++;
    }
    for (; *parser->p; parser->p++) {
        if (*parser->p == quote && (!tall || (parser->p[1] == quote && parser->p[2] == quote))) {
            parser->p += tall ? 3 : 1;
            return 0;
        }
        if (*parser->p == '\n') {
            if (!tall)
                break;
            parser->line++;
        }
        if (*parser->p == '\\' && quote == '"' && parser->p[1] && parser->p[1] != '\n')
            escaped(out, *++parser->p);
        else
            str_addc(out, *parser->p);
    }
    return syntax(parser, "unterminated string");
}

static bool bare(char ch)
{
    return isalnum((unsigned char)ch) || ch == '_' || ch == '-';
}

/* a.b."c d" behind what PATH has already. */
static int read_key(struct toml *parser, struct str *path)
{
    for (;;) {
        size_t from;

        skip_blanks(parser);
        if (path->len)
            str_addc(path, '.');
        from = path->len;
        if (*parser->p == '"' || *parser->p == '\'') {
            int r = read_string(parser, path);

            if (r < 0)
                return r;
        } else {
            for (; bare(*parser->p); parser->p++)
                str_addc(path, *parser->p);
        }
        if (path->len == from)
            return syntax(parser, "expected key = value");
        skip_blanks(parser);
        if (*parser->p != '.')
            return 0;
        parser->p++;
    }
}

static int read_value(struct toml *parser, struct str *path, int depth);

/* { key = value, … }: each under PATH. */
static int read_braces(struct toml *parser, struct str *path, int depth)
{
    size_t len = path->len;

    for (parser->p++;;) {
        int r;

        skip_space(parser);
        if (*parser->p == '}') {
            parser->p++;
            return 0;
        }
        if ((r = read_key(parser, path)) < 0)
            return r;
        if (*parser->p++ != '=')
            return syntax(parser, "expected key = value");
        if ((r = read_value(parser, path, depth + 1)) < 0)
            return r;
        str_trunc(path, len);
        skip_space(parser);
        if (*parser->p == ',')
            parser->p++;
        else if (*parser->p != '}')
            return syntax(parser, "unterminated inline table");
    }
}

/* [ … ] over any number of lines, as one line of text. */
static int read_list(struct toml *parser, struct str *out)
{
    int depth = 0;

    do {
        skip_space(parser);
        if (!*parser->p)
            return syntax(parser, "unterminated array");
        if (*parser->p == '"' || *parser->p == '\'') {
            int r = read_string(parser, out);

            if (r < 0)
                return r;
            continue;
        }
        depth += *parser->p == '[';
        depth -= *parser->p == ']';
        str_addc(out, *parser->p);
        if (*parser->p++ == ',')
            str_addc(out, ' ');
    } while (depth);
    return 0;
}

static int read_value(struct toml *parser, struct str *path, int depth)
{
    AUTO_STR value = {0};
    int r = 0, line;

    skip_blanks(parser);
    line = parser->line;
    if (depth > MAX_DEPTH)
        return syntax(parser, "tables are nested too deeply");
    if (*parser->p == '{')
        return read_braces(parser, path, depth);
    if (*parser->p == '[')
        r = read_list(parser, &value);
    else if (*parser->p == '"' || *parser->p == '\'')
        r = read_string(parser, &value);
    else
        for (; *parser->p && !strchr(" \t\r\n#,]}", *parser->p); parser->p++)
            if (*parser->p != '_' || !isdigit((unsigned char)parser->p[1]))
                str_addc(&value, *parser->p);
    return r < 0 ? r : parser->set(parser->arg, str_text(path), str_text(&value), line, parser->e);
}

/* [table] and [[list of tables]]. */
static int read_table(struct toml *parser, struct str *table)
{
    int brackets = parser->p[1] == '[' ? 2 : 1, r;

    parser->p += brackets;
    str_trunc(table, 0);
    if ((r = read_key(parser, table)) < 0)
        return r;
    for (int i = 0; i < brackets; i++)
        if (*parser->p++ != ']')
            return syntax(parser, "expected ]");
    return end_of_line(parser);
}

int tn_toml_read(const char *text, tn_toml_fn *set, void *arg, struct err *error)
{
    struct toml t = {.p = text, .line = 1, .set = set, .arg = arg, .e = error};
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
