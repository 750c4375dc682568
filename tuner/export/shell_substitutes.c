/*
 * $(basename …), $(dirname …), $(echo …) and $(expr …) of what is known, as POSIX defines them, and
 * what cut, awk '{print $N}', bc, tr and sed make of their line: scripts make names and sizes of
 * them.
 */
#include "tuner/export/shell_outputs.h"

/* PATH without the slashes at its end: how long it is. */
static size_t without_slashes(const char *path, size_t length)
{
    while (length > 1 && path[length - 1] == '/')
        length--;
    return length;
}

static char *base_of(const char *path, const char *suffix)
{
    size_t end = without_slashes(path, strlen(path)), from = end, cut = strlen(suffix);

    while (from && path[from - 1] != '/')
        from--;
    if (from == end && end) /* nothing but slashes */
        return mem_strdup("/");
    if (end - from > cut && !strncmp(path + end - cut, suffix, cut))
        end -= cut;
    return tn_sh_copy(path + from, end - from);
}

static char *folder_of(const char *path)
{
    size_t end = without_slashes(path, strlen(path));

    while (end && path[end - 1] != '/')
        end--;
    return end ? tn_sh_copy(path, without_slashes(path, end)) : mem_strdup(".");
}

/* Is it one path, which no shell makes others of, and no option? */
static bool is_known_path(const char *word)
{
    return word[0] != '-' && word[0] != '~' && !strchr(word, MARK) && !strpbrk(word, "*?[{\n");
}

/* What echo prints of words that no shell changes. */
static char *echoed(const struct tn_sh_list *command)
{
    AUTO_STR text = {0};

    if (command->n > 1 && command->v[1][0] == '-')
        return NULL;
    for (size_t i = 1; i < command->n; i++) {
        if (strpbrk(command->v[i], "\\\n") ||
            (strpbrk(command->v[i], "*?[{~") && !strchr(command->v[i], ' '))) /* not in quotes */
            return NULL;
        str_addf(&text, "%s%s", i > 1 ? " " : "", command->v[i]);
    }
    return mem_strdup(str_text(&text));
}

/* TEXT of whole numbers and LETTERS as a sum, as the shell has it; NULL where it is none. */
static char *sum_of(struct tn_sh *shell, const char *text, const char *letters)
{
    AUTO_FREE char *unset = NULL;
    int64_t value;

    for (const char *p = text; *p; p++)
        if ((!isdigit((unsigned char)*p) && !strchr(letters, *p)) || str_starts(p, "**") ||
            str_starts(p, "++") || str_starts(p, "--") ||
            (*p == '0' && isdigit((unsigned char)p[1]) &&
             (p == text || !isdigit((unsigned char)p[-1])))) /* 010 is no octal here */
            return NULL;
    return tn_sh_arithmetic(&value, &unset, shell, text) == TN_SH_SUM
               ? mem_printf("%lld", (long long)value)
               : NULL;
}

/* expr NUMBER SIGN NUMBER …, which fails where it prints 0. */
static char *computed(struct tn_sh *shell, const struct tn_sh_list *command)
{
    AUTO_STR text = {0};
    AUTO_FREE char *value = NULL;

    for (size_t i = 1; i < command->n; i++)
        str_addf(&text, " %s", command->v[i]);
    value = sum_of(shell, str_text(&text), "+-*/%() ");
    return value && !str_eq(value, "0") ? TAKE(value) : NULL;
}

/* The FIELD, from 1, of LINE between delimiters; 0: blanks, however many. */
static char *field_of(const char *line, char delimiter, size_t field)
{
    const char set[] = {delimiter ? delimiter : ' ', delimiter ? '\0' : '\t', '\0'};

    for (size_t i = 1; *line || delimiter; i++) {
        size_t n;

        line += delimiter ? 0 : strspn(line, set);
        n = strcspn(line, set);
        if (i == field)
            return tn_sh_copy(line, n);
        if (!line[n])
            break;
        line += n + 1;
    }
    return mem_strdup("");
}

/* cut -dX -fN: a line without the delimiter is printed whole. */
static char *cut_out(const struct tn_sh_list *command, const char *line)
{
    char delimiter = '\t';
    size_t field = 0;

    for (size_t i = 1; i < command->n; i++) {
        const char *word = command->v[i], *value = word + 2;

        if (word[0] != '-' || !word[1] || !strchr("df", word[1]))
            return NULL;
        if (!*value && ++i < command->n)
            value = command->v[i];
        if (word[1] == 'd' ? strlen(value) != 1 : !*value || value[strspn(value, "0123456789")])
            return NULL;
        if (word[1] == 'd')
            delimiter = *value;
        else
            field = strtoul(value, NULL, 10);
    }
    if (!field)
        return NULL;
    return strchr(line, delimiter) ? field_of(line, delimiter, field) : mem_strdup(line);
}

/* awk [-FX] '{print $N}'. */
static char *printed_field(const struct tn_sh_list *command, const char *line)
{
    const char *program = command->n ? command->v[command->n - 1] : "", *end;
    const char *by = command->n > 2 ? command->v[1] : "-F";
    char delimiter = by[2];
    char *rest;
    size_t field;

    if (command->n == 4 && str_eq(by, "-F") && strlen(command->v[2]) == 1)
        delimiter = *command->v[2];
    else if (command->n != 2 && (command->n != 3 || strlen(by) != 3))
        return NULL;
    if (!str_starts(by, "-F") || (command->n > 2 && (!delimiter || strchr(" \\t", delimiter))))
        return NULL;
    program += strspn(program, " ");
    program += *program == '{';
    program += strspn(program, " ");
    if (!str_starts(program, "print"))
        return NULL;
    program += 5 + strspn(program + 5, " ");
    if (*program != '$' || !isdigit((unsigned char)program[1]))
        return NULL;
    field = strtoul(program + 1, &rest, 10);
    end = rest + strspn(rest, " ;");
    return field && str_eq(end, "}") ? field_of(line, delimiter, field) : NULL;
}

/* Has TEXT, outside of quotes and ${…}, what makes names of files, or a bar that is no word of its
 * own? */
static bool has_patterns(const char *text)
{
    char quote = 0;

    for (const char *p = text; *p; p++) {
        bool blanks = p > text && strchr(" \t", p[-1]) && p[1] && strchr(" \t", p[1]);

        if (*p == '|' && !blanks)
            return true;
        if (*p == '\\' && quote != '\'')
            p += p[1] != '\0';
        else if (quote ? *p == quote : strchr("\"'", *p) != NULL)
            quote = quote ? 0 : *p;
        else if (*p == '$' && p[1] == '{')
            p += strcspn(p, "}") - (strchr(p, '}') == NULL);
        else if (!quote && strchr("*?[{~", *p))
            return true;
    }
    return false;
}

bool tn_sh_is_substituted(const char *text)
{
    static const char *const words[] = {"basename", "dirname", "echo", "expr",
                                        "seq",      "printf",  NULL};

    text += strspn(text, " \t");
    return tn_sh_one_of(text, strcspn(text, " \t"), words) && !strpbrk(text, ";&<>#\n`") &&
           !has_patterns(text);
}

char *tn_sh_substituted(struct tn_sh *shell, const struct tn_sh_list *command, const char *input)
{
    const char *name = command->n ? command->v[0] : "";

    for (size_t i = 0; i < command->n; i++)
        if (strchr(command->v[i], MARK))
            return NULL;
    if (!command->n || tn_sh_is_function(shell, name))
        return NULL;
    if (input && strchr(input, '\n'))
        return NULL;
    if (input)
        return str_eq(name, "cut")                     ? cut_out(command, input)
               : str_eq(name, "awk")                   ? printed_field(command, input)
               : str_eq(name, "bc") && command->n == 1 ? sum_of(shell, input, "+-*/%() ")
                                                       : tn_sh_filtered(command, input);
    if (str_eq(name, "seq") || str_eq(name, "printf"))
        return tn_sh_generated(command);
    if (str_eq(name, "echo"))
        return echoed(command);
    if (str_eq(name, "expr"))
        return computed(shell, command);
    for (size_t i = 0; i < command->n; i++)
        if (!is_known_path(command->v[i]))
            return NULL;
    if (str_eq(name, "dirname"))
        return command->n == 2 ? folder_of(command->v[1]) : NULL;
    if (!str_eq(name, "basename") || (command->n != 2 && command->n != 3))
        return NULL;
    return base_of(command->v[1], command->n == 3 ? command->v[2] : "");
}
