/*
 * Commands of the shell's own that change what it knows: which variables they set, and to what as
 * far as that follows from the script.
 */
#include "tuner/export/shell_flow.h"

static bool is_name(const char *word)
{
    size_t n = strlen(word);

    return (isalpha((unsigned char)*word) || *word == '_') && n < MAX_NAME &&
           tn_sh_name_length(word) == n;
}

/* WORD is NAME=value where its name was expanded, too: export "$KEY=$VALUE". */
static void declare_word(struct tn_sh *shell, const char *word)
{
    const char *equals = strchr(word, '=');
    AUTO_FREE char *name = equals ? tn_sh_copy(word, (size_t)(equals - word)) : NULL;
    struct tn_sh_list value = {0};

    if (!name || !is_name(name))
        return;
    tn_sh_list_add(&value, mem_strdup(equals + 1));
    if (shell->local)
        tn_sh_local(shell, name);
    tn_sh_assign(shell, name, &value, false, false);
}

void tn_sh_declare(struct tn_sh *shell, const struct tn_sh_list *command)
{
    for (size_t i = 0; i < command->n; i++) {
        if (!is_name(command->v[i])) {
            declare_word(shell, command->v[i]);
        } else if (shell->local && (shell->calls || !shell->keyed)) {
            tn_sh_local(shell, command->v[i]);
            tn_sh_unset(shell, command->v[i], false);
        }
        if (shell->keyed && is_name(command->v[i]))
            tn_sh_declare_keyed(shell, command->v[i]);
        if (shell->integer && is_name(command->v[i]))
            tn_sh_integer(shell, command->v[i]);
    }
}

/* Commands that set variables which they name to what only a shell could tell. */
static const struct {
    const char *command;
    const char *takes; /* options with a value */
    const char *named; /* an option whose value is a name, too */
    const char *other; /* set without being named */
    bool only;         /* nothing else of the command is a name */
} setters[] = {
    {"read", "dinNptu", "a", "REPLY", false},
    {"mapfile", "dnOsuCc", "", "MAPFILE", false},
    {"readarray", "dnOsuCc", "", "MAPFILE", false},
    {"printf", "", "v", NULL, true},
    {"wait", "n", "p", NULL, true},
};

static void set_if_name(struct tn_sh *shell, const char *word)
{
    if (is_name(word))
        tn_sh_computed(shell, word);
}

/* The names that COMMAND sets, of the kind at ROW. */
static void set_unknown(struct tn_sh *shell, const struct tn_sh_list *command, size_t row)
{
    bool options = true;

    for (size_t i = 1; i < command->n; i++) {
        const char *word = command->v[i], *last = *word ? word + strlen(word) - 1 : word;

        options &= word[0] == '-' && word[1];
        if (options && i + 1 < command->n && strchr(setters[row].takes, *last))
            i++;
        else if (options && i + 1 < command->n && strchr(setters[row].named, *last))
            set_if_name(shell, command->v[++i]);
        else if (!options && !setters[row].only)
            set_if_name(shell, word);
    }
    if (setters[row].other)
        tn_sh_forget(shell, setters[row].other);
}

/* ---- read NAME ... <<<TEXT ----------------------------------------------- */

/* The next field of *TEXT to be freed, NULL where there is none; *TEXT then is behind its
 * delimiter. White space of IFS, POSIX 2.6.5: none before a field, one delimiter with what is
 * around it. */
static char *next_field(const char **text, const char *ifs)
{
    const char *from = *text, *end;

    while (*from && isspace((unsigned char)*from) && strchr(ifs, *from))
        from++;
    *text = from;
    if (!*from)
        return NULL;
    end = from + strcspn(from, ifs);
    *text = end;
    while (**text && isspace((unsigned char)**text) && strchr(ifs, **text))
        ++*text;
    if (**text && !isspace((unsigned char)**text) && strchr(ifs, **text))
        ++*text;
    return tn_sh_copy(from, (size_t)(end - from));
}

/* All of TEXT as the last name's value, to be freed: without white space of IFS around it, and one
 * field without its delimiter. */
static char *last_field(const char *text, const char *ifs)
{
    const char *from = text, *rest;
    AUTO_FREE char *field = NULL;
    size_t n;

    while (*from && isspace((unsigned char)*from) && strchr(ifs, *from))
        from++;
    rest = from;
    field = next_field(&rest, ifs);
    while (*rest && isspace((unsigned char)*rest) && strchr(ifs, *rest))
        rest++;
    if (field && !*rest)
        return TAKE(field);
    for (n = strlen(from); n && isspace((unsigned char)from[n - 1]) && strchr(ifs, from[n - 1]);)
        n--;
    return tn_sh_copy(from, n);
}

/* TEXT to the variables that COMMAND names from FIRST on; the last takes the rest. */
static void set_fields(struct tn_sh *shell, const struct tn_sh_list *command, size_t first,
                       bool array, const char *text, const char *ifs)
{
    struct tn_sh_list fields = {0};
    char *field;

    if (array) {
        while ((field = next_field(&text, ifs)) != NULL)
            tn_sh_list_add(&fields, field);
        tn_sh_assign(shell, command->v[first], &fields, false, true);
        return;
    }
    for (size_t i = first; i < command->n; i++) {
        struct tn_sh_list value = {0};

        field = i + 1 < command->n ? next_field(&text, ifs) : last_field(text, ifs);
        tn_sh_list_add(&value, field ? field : mem_strdup(""));
        tn_sh_assign(shell, command->v[i], &value, false, false);
    }
}

/* True where the variables' values are known. */
static bool read_string(struct tn_sh *shell, const struct tn_sh_list *command)
{
    static const char blanks[] = " \t\n";
    const char *text = shell->string, *ifs;
    bool array = false, raw = false;
    size_t first = 1;

    if (!text || !str_eq(command->v[0], "read") || strchr(text, MARK))
        return false;
    ifs = tn_sh_value(shell, "IFS");
    if (ifs && (strchr(ifs, MARK) || (!*ifs && strpbrk(text, blanks))))
        return false; /* empty, or unset, which is as blanks: both are kept alike */
    if (!ifs)
        ifs = blanks;
    for (; first < command->n && command->v[first][0] == '-' && !array; first++) {
        if (command->v[first][strspn(command->v[first], "-ra")])
            return false;
        raw |= strchr(command->v[first], 'r') != NULL;
        array = strchr(command->v[first], 'a') != NULL;
    }
    if (first == command->n || (array && first + 1 != command->n) || strchr(text, '\n') ||
        (!raw && strchr(text, '\\')))
        return false;
    for (size_t i = first; i < command->n; i++)
        if (!is_name(command->v[i]))
            return false;
    set_fields(shell, command, first, array, text, ifs);
    return true;
}

static bool sets_unknown(struct tn_sh *shell, const struct tn_sh_list *command)
{
    for (size_t i = 0; i < ARRAY_LEN(setters); i++)
        if (str_eq(setters[i].command, command->v[0])) {
            set_unknown(shell, command, i);
            return true;
        }
    return false;
}

/* unset NAME or NAME[KEY]. */
static void unset_word(struct tn_sh *shell, const char *word)
{
    size_t n = tn_sh_name_length(word), length = strlen(word);
    AUTO_FREE char *name = tn_sh_copy(word, n), *key = NULL;

    if (word[n] != '[' || word[length - 1] != ']') {
        tn_sh_unset(shell, word, false);
        return;
    }
    key = tn_sh_copy(word + n + 1, length - n - 2);
    tn_sh_unset_element(shell, name, key);
}

/* set -eu, set -o nounset, and the like with a +. */
static void set_options(struct tn_sh *shell, const struct tn_sh_list *command)
{
    for (size_t i = 1; i < command->n; i++) {
        const char *word = command->v[i];
        bool named = (word[0] == '-' || word[0] == '+') && str_ends(word, "o");

        if ((word[0] != '-' && word[0] != '+') || str_eq(word, "-") || str_eq(word, "--"))
            return;
        if (strchr(word, 'u') ||
            (named && i + 1 < command->n && str_eq(command->v[i + 1], "nounset")))
            shell->nounset =
                word[0] == '-' || (shell->nounset && tn_sh_runs(shell) == TN_SH_UNSURE);
        if (strchr(word, 'e') ||
            (named && i + 1 < command->n && str_eq(command->v[i + 1], "errexit")))
            shell->errexit = word[0] == '-' && tn_sh_runs(shell) == TN_SH_TRUE;
        i += named;
    }
}

/* What FILE sets is not in this text. */
static void say_sourced(struct tn_sh *shell, const char *command, const char *file)
{
    struct tn_word name = tn_sh_unmarked(file);

    tn_finding_add(shell->ignored, command, "what %.100s sets is unknown here", name.text);
    tn_sh_word_done(&name);
    tn_sh_doubt(shell);
}

bool tn_sh_builtin(struct tn_sh *shell, const struct tn_sh_list *command)
{
    const char *name = command->v[0];

    if (tn_sh_leave(shell, command))
        return true;
    if (str_eq(name, "exit")) {
        tn_sh_exit(shell);
    } else if (str_eq(name, "shift")) {
        tn_sh_shift(shell, command);
    } else if (command->n > 1 && str_eq(name, "set") && str_eq(command->v[1], "--")) {
        struct tn_sh_list given = {0};

        tn_sh_take_words(&given, command, 2);
        tn_sh_assign(shell, "@", &given, false, true);
    } else if (str_eq(name, "set")) {
        set_options(shell, command);
    } else if (str_eq(name, "trap") && command->n > 2 && shell->r == 0 &&
               str_eq(command->v[command->n - 1], "DEBUG")) {
        shell->r = err_set(shell->e, -EINVAL,
                           "trap … DEBUG runs before every command: remove it, or import the "
                           "final command");
    } else if (str_eq(name, "unset")) {
        for (size_t i = 1; i < command->n; i++)
            unset_word(shell, command->v[i]);
    } else if (str_eq(name, "getopts")) {
        tn_sh_getopts(shell, command);
    } else if (command->n > 1 && (str_eq(name, "source") || str_eq(name, "."))) {
        say_sourced(shell, name, command->v[1]);
    } else {
        return read_string(shell, command) || sets_unknown(shell, command);
    }
    return true;
}

enum tn_sh_truth tn_sh_status_of(struct tn_sh *shell, const struct tn_sh_list *command)
{
    const char *name = command->v[0];
    enum tn_sh_truth sum = TN_SH_FALSE;

    if (str_eq(name, "unset") || (str_eq(name, "set") && command->n > 1) ||
        (str_eq(name, "read") && shell->string))
        return TN_SH_TRUE;
    for (size_t i = 1; i < command->n && str_eq(name, "let"); i++)
        sum = tn_sh_sum_truth(shell, command->v[i]);
    if (str_eq(name, "let")) /* its last one's */
        return sum;
    if (str_eq(name, "getopts"))
        return tn_sh_has_option(shell, command);
    return str_eq(name, "shift") ? tn_sh_shifts(shell, command) : tn_sh_test(shell, command);
}
