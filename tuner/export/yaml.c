/*
 * YAML in block style, as far as files of settings go: every setting as one call with its dotted
 * path, as tn_toml_read() does for TOML. A list is handed on as "[a b]", one of lists as "[a b|c]",
 * `null` as an empty value. Anchors and tags are not read, nor further lines of a text.
 */
#include "tuner/export/internal.h"

#include <ctype.h>
#include <errno.h>

enum { MAX_LEVELS = 16 };

struct yaml {
    const char *at;
    int line;
    struct str path;
    struct {
        size_t indent, length; /* of the lines below it; of its path */
    } level[MAX_LEVELS];
    int depth;
};

static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return *line ? line + 1 : line;
}

char *tn_yaml_scalar(const char *from, size_t len)
{
    AUTO_FREE char *text = mem_printf("%.*s", (int)len, from);
    char *at = text + strspn(text, " \t"), *end;
    char quote = *at == '"' || *at == '\'' ? *at : 0;

    end = quote ? strchr(at + 1, quote) : NULL;
    if (end)
        return mem_printf("%.*s", (int)(end - at - 1), at + 1);
    end = *at == '#' ? at : strstr(at, " #");
    len = end ? (size_t)(end - at) : strlen(at);
    while (len && isspace((unsigned char)at[len - 1]))
        len--;
    return mem_printf("%.*s", (int)len, at);
}

/* Over lines without a setting; the blanks before the one that is left. */
static size_t settle(struct yaml *yaml)
{
    for (;; yaml->at = next_line(yaml->at), yaml->line++) {
        size_t blanks = strspn(yaml->at, " ");
        const char *text = yaml->at + blanks;

        if (!*text || (!strchr("\r\n#", *text) && !str_starts(text, "---")))
            return blanks;
    }
}

static bool is_item(const char *text)
{
    return *text == '-' && (text[1] == ' ' || text[1] == '\n' || text[1] == '\r');
}

/* The items from here on that are no less deep than INDENT. */
static char *list(struct yaml *yaml, size_t indent)
{
    AUTO_STR text = {0};
    size_t blanks;

    str_addc(&text, '[');
    while (blanks = settle(yaml),
           *yaml->at && blanks >= indent && (blanks > indent || is_item(yaml->at + blanks))) {
        const char *item = yaml->at + blanks;
        int dashes = 0;

        for (; is_item(item); dashes++)
            item += 1 + strspn(item + 1, " ");
        AUTO_FREE char *value = tn_yaml_scalar(item, strcspn(item, "\r\n"));

        if (text.len > 1)
            str_addc(&text, dashes > 1 ? '|' : ' ');
        str_add(&text, value);
        yaml->at = next_line(yaml->at);
        yaml->line++;
    }
    str_addc(&text, ']');
    return mem_strdup(str_text(&text));
}

/* ${NAME:default} of AMD's Primus as its default, which holds where the environment has no NAME;
 * anything else, such as OmegaConf's ${oc.env:NAME}, as it is. */
static char *without_environment(char *text)
{
    size_t len = strlen(text), name;

    if (!str_starts(text, "${") || text[len - 1] != '}')
        return text;
    name = strspn(text + 2, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (!name || text[2 + name] != ':')
        return text;
    memmove(text, text + 3 + name, len - 3 - name);
    text[len - 4 - name] = '\0';
    return text;
}

/* What is behind "key:" at INDENT; NULL where settings follow that are deeper. */
static char *value(struct yaml *yaml, const char *from, size_t indent)
{
    AUTO_FREE char *text = tn_yaml_scalar(from, strcspn(from, "\r\n"));
    size_t blanks;

    yaml->at = next_line(yaml->at);
    yaml->line++;
    if (str_eq(text, "null") || str_eq(text, "~"))
        return mem_strdup("");
    if (*text)
        return without_environment(TAKE(text));
    blanks = settle(yaml);
    if (*yaml->at && blanks >= indent && is_item(yaml->at + blanks))
        return list(yaml, blanks);
    return blanks > indent ? NULL : mem_strdup("");
}

/* Where KEY ends with a colon; NULL where the line goes on with a text. */
static const char *colon_of(const char *key)
{
    size_t n = 0;

    while (isalnum((unsigned char)key[n]) || (key[n] && strchr("_-.", key[n])))
        n++;
    return n && key[n + strspn(key + n, " ")] == ':' ? key + n + strspn(key + n, " ") : NULL;
}

static int setting(struct yaml *yaml, size_t indent, tn_toml_fn *set, void *arg, struct err *error)
{
    const char *key = yaml->at + indent, *colon = colon_of(key);
    int line = yaml->line, r = 0;

    if (!colon || !strchr(" \r\n", colon[1])) {
        yaml->at = next_line(yaml->at);
        yaml->line++;
        return 0;
    }
    while (yaml->depth && yaml->level[yaml->depth - 1].indent >= indent)
        yaml->depth--;
    if (yaml->depth == MAX_LEVELS)
        return err_set(error, -EINVAL, "line %d: more than %d levels", line, MAX_LEVELS);
    str_trunc(&yaml->path, yaml->depth ? yaml->level[yaml->depth - 1].length : 0);
    str_addf(&yaml->path, "%s%.*s", yaml->path.len ? "." : "", (int)strcspn(key, " :"), key);
    AUTO_FREE char *text = value(yaml, colon + 1, indent);

    if (text)
        r = set(arg, str_text(&yaml->path), text, line, error);
    yaml->level[yaml->depth].indent = indent;
    yaml->level[yaml->depth++].length = yaml->path.len;
    return r;
}

int tn_yaml_read(const char *text, tn_toml_fn *set, void *arg, struct err *error)
{
    struct yaml yaml = {.at = text, .line = 1};
    int r = 0;

    while (r == 0) {
        size_t indent = settle(&yaml);

        if (!*yaml.at)
            break;
        r = setting(&yaml, indent, set, arg, error);
    }
    str_done(&yaml.path);
    return r;
}

bool tn_yaml_is(const char *text)
{
    static const char *const sections[] = {"model:", "modules:", "train:", NULL};

    for (const char *line = text; *line; line = next_line(line))
        for (int i = 0; sections[i]; i++)
            if (str_starts(line, sections[i]) && strchr("\r\n #", line[strlen(sections[i])]))
                return true;
    return false;
}
