/*
 * What tr and sed make of a known line, and what seq and printf print, as POSIX and coreutils
 * define them: letters and ranges of tr, one s/OLD/NEW/ of sed whose OLD is text, numbers of seq
 * one apart, %s and %d of printf. NULL: only a shell could tell.
 */
#include "tuner/export/shell_outputs.h"

enum { MAX_NUMBERS = 512, MAX_SET = 256 };

/* ---- tr ------------------------------------------------------------------ */

/* The letters that SET stands for, to be freed; NULL where it has more than letters and ranges. */
static char *letters_of(const char *set)
{
    AUTO_STR all = {0};

    if (str_eq(set, "[:upper:]"))
        set = "A-Z";
    if (str_eq(set, "[:lower:]"))
        set = "a-z";
    if (!*set || strpbrk(set, "\\") || (strchr(set, '[') && strpbrk(set, ":=*")))
        return NULL;
    for (; *set; set++) {
        char from = set[0], to = set[1] == '-' && set[2] ? set[2] : from;

        if ((from | to) & 0x80 || from > to) /* a letter of several bytes, or in no order */
            return NULL;
        for (char ch = from; ch <= to && all.len < MAX_SET; ch++)
            str_addc(&all, ch);
        set += set[1] == '-' && set[2] ? 2 : 0;
    }
    return str_take(&all);
}

/* tr OLD NEW, of which the last letter stands for those that it lacks; tr -d OLD. */
static char *translated(const struct tn_sh_list *command, const char *line)
{
    bool drops = command->n == 3 && str_eq(command->v[1], "-d");
    AUTO_FREE char *old = NULL, *new = NULL;
    AUTO_STR text = {0};

    if (command->n != 3 || (command->v[1][0] == '-' && command->v[1][1] && !drops))
        return NULL;
    old = letters_of(command->v[drops ? 2 : 1]);
    new = drops ? NULL : letters_of(command->v[2]);
    if (!old || (!new && !drops))
        return NULL;
    for (; *line; line++) {
        const char *at = strrchr(old, *line); /* the last one counts */
        size_t index = at ? (size_t)(at - old) : 0;

        if (!at)
            str_addc(&text, *line);
        else if (!drops)
            str_addc(&text, new[index < strlen(new) ? index : strlen(new) - 1]);
    }
    return mem_strdup(str_text(&text));
}

/* ---- sed ----------------------------------------------------------------- */

/* The text at POS up to BY, backslashes before punctuation gone, to be freed; *RET_END is behind
 * BY. NULL where a letter of SPECIAL stands for more than itself, or BY does not come. */
static char *part_of(const char **ret_end, const char *pos, char by, const char *special)
{
    AUTO_STR text = {0};

    for (; *pos != by; pos++) {
        if (!*pos || (*pos != '\\' && strchr(special, *pos)))
            return NULL;
        /* \( \n \1 mean something else; with the delimiter it differs by what that is */
        if (*pos == '\\' && !strchr("./-", *++pos))
            return NULL;
        str_addc(&text, *pos);
    }
    *ret_end = pos + 1;
    return mem_strdup(str_text(&text));
}

/* sed s/OLD/NEW/ or s/OLD/NEW/g, OLD maybe behind ^ or before $. */
static char *substituted(const struct tn_sh_list *command, const char *line)
{
    bool named = command->n == 3 && str_eq(command->v[1], "-e");
    const char *pos = command->n == 2 ? command->v[1] : named ? command->v[2] : "";
    AUTO_FREE char *old = NULL, *new = NULL;
    AUTO_STR text = {0};
    bool first, last, all;
    char by;

    if (pos[0] != 's' || !pos[1] || !strchr("/|,#:@_", pos[1]))
        return NULL;
    by = pos[1];
    pos += 2;
    first = *pos == '^';
    old = part_of(&pos, pos + first, by, ".[]*^");
    new = old ? part_of(&pos, pos, by, "&") : NULL;
    if (!new || (*pos && !str_eq(pos, "g")))
        return NULL;
    last = *old && old[strlen(old) - 1] == '$';
    if (last)
        old[strlen(old) - 1] = '\0';
    if (!*old || strchr(old, '$') || (first && last))
        return NULL;
    all = *pos == 'g' && !first && !last;
    if (first)
        return str_starts(line, old) ? mem_printf("%s%s", new, line + strlen(old))
                                     : mem_strdup(line);
    if (last)
        return str_ends(line, old)
                   ? mem_printf("%.*s%s", (int)(strlen(line) - strlen(old)), line, new)
                   : mem_strdup(line);
    for (const char *at; (at = strstr(line, old)) != NULL;) {
        str_addf(&text, "%.*s%s", (int)(at - line), line, new);
        line = at + strlen(old);
        if (!all)
            break;
    }
    str_add(&text, line);
    return mem_strdup(str_text(&text));
}

/* ---- seq, printf --------------------------------------------------------- */

static bool whole(long *ret, const char *word)
{
    const char *digits = word + (*word == '-');
    size_t n = strspn(digits, "0123456789");

    *ret = strtol(word, NULL, 10);
    return n && n < 9 && !digits[n] && !(*digits == '0' && n > 1);
}

/* seq TO, seq FROM TO, with -s BY between the numbers instead of ends of lines. */
static char *counted(const struct tn_sh_list *command)
{
    bool apart = command->n > 2 && str_eq(command->v[1], "-s"),
         joined = !apart && command->n > 1 && str_starts(command->v[1], "-s");
    const char *by = apart ? command->v[2] : joined ? command->v[1] + 2 : "\n";
    size_t at = apart ? 3 : joined ? 2 : 1;
    long from = 1, to;
    AUTO_STR text = {0};

    if (command->n <= at || command->n > at + 2 || !*by ||
        !whole(&to, command->v[command->n - 1]) ||
        (command->n == at + 2 && !whole(&from, command->v[at])) || to - from >= MAX_NUMBERS)
        return NULL;
    for (long i = from; i <= to; i++)
        str_addf(&text, "%s%ld", i > from ? by : "", i);
    return mem_strdup(str_text(&text));
}

/* printf FORMAT WORD …, a word for each %s and %d, which are whole numbers. */
static char *formatted(const struct tn_sh_list *command)
{
    size_t at = 2;
    AUTO_STR text = {0};

    if (command->n < 2 || command->v[1][0] == '-')
        return NULL;
    for (const char *p = command->v[1]; *p; p++) {
        long number;

        if (*p == '\\')
            return NULL;
        if (*p != '%') {
            str_addc(&text, *p);
            continue;
        }
        p++;
        if (at == command->n || (*p != 's' && (*p != 'd' || !whole(&number, command->v[at]))))
            return NULL;
        str_add(&text, command->v[at++]);
    }
    return at == command->n ? mem_strdup(str_text(&text)) : NULL;
}

char *tn_sh_filtered(const struct tn_sh_list *command, const char *line)
{
    return str_eq(command->v[0], "tr")    ? translated(command, line)
           : str_eq(command->v[0], "sed") ? substituted(command, line)
                                          : NULL;
}

char *tn_sh_generated(const struct tn_sh_list *command)
{
    return str_eq(command->v[0], "seq")      ? counted(command)
           : str_eq(command->v[0], "printf") ? formatted(command)
                                             : NULL;
}
