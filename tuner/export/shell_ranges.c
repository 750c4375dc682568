/*
 * Braces that make several words of one: {1..4} and {0..8..2} are numbers; of {a,b}, a{1..2} and
 * the like only a shell could tell.
 */
#include "tuner/export/shell_outputs.h"

enum { MAX_RANGE = 512, MAX_DIGITS = 9 };

/* A number at *POS as a range has it, without zeros before it. */
static bool number_at(long *ret, const char **pos)
{
    const char *digits = *pos + (**pos == '-');
    size_t n = strspn(digits, "0123456789");

    if (!n || n > MAX_DIGITS || (*digits == '0' && (n > 1 || **pos == '-')))
        return false;
    *ret = strtol(*pos, NULL, 10);
    *pos = digits + n;
    return true;
}

/* {FROM..TO} or {FROM..TO..STEP}, whose sign counts for nothing. */
static bool range(struct tn_sh_list *out, const char *word, size_t length)
{
    const char *pos = word + 1;
    long from, to, step = 1, count;

    if (*word != '{' || !number_at(&from, &pos) || !str_starts(pos, "..") ||
        (pos += 2, !number_at(&to, &pos)))
        return false;
    if (str_starts(pos, "..") && (pos += 2, !number_at(&step, &pos)))
        return false;
    step = step ? labs(step) : 1;
    count = labs(to - from) / step + 1;
    if (*pos != '}' || (size_t)(pos + 1 - word) != length || count > MAX_RANGE)
        return false;
    for (long i = 0; i < count; i++)
        tn_sh_list_add(out, mem_printf("%ld", from + (to < from ? -i : i) * step));
    return true;
}

/* POS is at the bracket behind a dollar: at the one that closes it, before END. */
static const char *skip_dollar(const char *pos, const char *end)
{
    char open = *pos, close = open == '(' ? ')' : '}';
    int depth = 0;

    for (; pos < end; pos++) {
        depth += *pos == open ? 1 : *pos == close ? -1 : 0;
        if (!depth)
            return pos;
    }
    return end - 1;
}

enum tn_sh_braced tn_sh_braced(struct tn_sh_list *out, const char *word, size_t length)
{
    const char *end = word + length;
    bool open = false, several = false;
    char quote = 0;

    if (range(out, word, length))
        return TN_SH_RANGE;
    for (const char *p = word; p < end; p++) {
        if (*p == '\\' && quote != '\'')
            p++;
        else if (quote ? *p == quote : strchr("\"'`", *p) != NULL)
            quote = quote ? 0 : *p;
        else if (!quote && *p == '$' && p + 1 < end && (p[1] == '{' || p[1] == '('))
            p = skip_dollar(p + 1, end);
        else if (!quote && *p == '{')
            open = true;
        else if (!quote && open && (*p == ',' || str_starts(p, "..")))
            several = true;
        else if (!quote && several && *p == '}')
            return TN_SH_BRACED;
    }
    return TN_SH_NO_BRACES;
}
