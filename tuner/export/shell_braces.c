/*
 * What ${X…} makes of a value: ${X#…} ${X##…} ${X%…} ${X%%…} without a part that matches, ${X/…/…}
 * and ${X//…/…} with another, ${X:1:2} a part of it, ${X,,} and ${X^^} in other letters.
 */
#include "tuner/export/shell_outputs.h"

#include <fnmatch.h>

/* Without the shortest beginning (or end) that matches PATTERN; LONGEST: without the longest. */
static char *without(const char *value, const char *pattern, bool end, bool longest)
{
    size_t length = strlen(value);

    for (size_t i = 0; i <= length; i++) {
        size_t cut = longest ? length - i : i;
        AUTO_FREE char *part = end ? mem_strdup(value + length - cut) : tn_sh_copy(value, cut);

        if (!fnmatch(pattern, part, 0))
            return end ? tn_sh_copy(value, length - cut) : mem_strdup(value + cut);
    }
    return mem_strdup(value);
}

/* OPERATION is behind the slash: "old/new", or "/old/new" for all of them. */
static char *replaced(const char *value, const char *operation)
{
    bool all = *operation == '/';
    AUTO_FREE char *old = mem_strdup(operation + all);
    char *slash = strchr(old, '/');
    const char *with = slash ? slash + 1 : "", *next;
    AUTO_STR text = {0};

    if (slash)
        *slash = '\0';
    if (!*old || strpbrk(old, "*?[\\#%") || strpbrk(with, "&\\"))
        return NULL; /* a pattern, its place, or what it met */
    for (; (next = strstr(value, old)) != NULL; value = next + strlen(old)) {
        str_addf(&text, "%.*s%s", (int)(next - value), value, with);
        if (!all) {
            value = next + strlen(old);
            break;
        }
    }
    str_addf(&text, "%s", value);
    return str_take(&text);
}

/* "2" and "2:3", of whole numbers. */
static char *part(const char *value, const char *operation)
{
    size_t length = strlen(value), digits = strspn(operation, "0123456789"), most = length, from;
    const char *rest = operation + digits;

    if (!digits || digits > 6)
        return NULL;
    from = strtoul(operation, NULL, 10);
    if (*rest == ':') {
        digits = strspn(rest + 1, "0123456789");
        if (!digits || digits > 6)
            return NULL;
        most = strtoul(rest + 1, NULL, 10);
        rest += 1 + digits;
    }
    if (*rest)
        return NULL;
    from = from < length ? from : length;
    return tn_sh_copy(value + from, most < length - from ? most : length - from);
}

static char *in_letters(const char *value, const char *operation)
{
    bool all = operation[1] == operation[0];
    char *text = mem_strdup(value);

    if (operation[1 + all]) { /* only what matches a pattern */
        free(text);
        return NULL;
    }
    for (char *p = text; *p && (all || p == text); p++)
        *p = (char)(*operation == ',' ? tolower((unsigned char)*p) : toupper((unsigned char)*p));
    return text;
}

char *tn_sh_changed(const char *value, const char *operation)
{
    char op = *operation;
    bool twice = op && operation[1] == op;

    for (const char *p = value; *p; p++)
        if ((unsigned char)*p >= 0x80) /* letters of several bytes */
            return NULL;
    if (op == '#' || op == '%')
        return without(value, operation + 1 + twice, op == '%', twice);
    if (op == '/')
        return replaced(value, operation + 1);
    if (op == ':')
        return part(value, operation + 1);
    return op == ',' || op == '^' ? in_letters(value, operation) : NULL;
}
