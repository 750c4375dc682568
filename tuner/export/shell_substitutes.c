/*
 * $(basename …) and $(dirname …) of what is known, as POSIX defines them: scripts make names of
 * models and sizes of them.
 */
#include "tuner/export/shell.h"

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

static bool is_function(const struct tn_sh *shell, const char *name)
{
    for (size_t i = 0; i < shell->nfunctions; i++)
        if (str_eq(shell->functions[i].name, name))
            return true;
    return false;
}

bool tn_sh_is_substituted(const char *text)
{
    text += strspn(text, " \t");
    return (str_starts(text, "basename ") || str_starts(text, "dirname ")) &&
           !strpbrk(text, ";|&<>#\n=") && !strstr(text, "$((");
}

char *tn_sh_substituted(const struct tn_sh *shell, const struct tn_sh_list *command)
{
    for (size_t i = 0; i < command->n; i++)
        if (!is_known_path(command->v[i]))
            return NULL;
    if (!command->n || is_function(shell, command->v[0]))
        return NULL;
    if (str_eq(command->v[0], "dirname"))
        return command->n == 2 ? folder_of(command->v[1]) : NULL;
    if (command->n != 2 && command->n != 3)
        return NULL;
    return base_of(command->v[1], command->n == 3 ? command->v[2] : "");
}
