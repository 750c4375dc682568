/*
 * Commands of the shell's own that change what it knows: which variables they set, and to what as
 * far as that follows from the script.
 */
#include "tuner/export/shell_flow.h"

static bool sets_what_it_names(const char *word)
{
    static const char *const words[] = {"read", "mapfile", "readarray", "getopts", "unset", NULL};

    return tn_sh_one_of(word, strlen(word), words);
}

void tn_sh_declare(struct tn_sh *shell, const struct tn_sh_list *command)
{
    for (size_t i = 0; shell->local && i < command->n; i++)
        if (tn_sh_name_length(command->v[i]) == strlen(command->v[i]) &&
            strlen(command->v[i]) < MAX_NAME) {
            tn_sh_local(shell, command->v[i]);
            tn_sh_unset(shell, command->v[i], false);
        }
}

/* What FILE sets is not in this text. */
static void say_sourced(struct tn_sh *shell, const char *command, const char *file)
{
    struct tn_word name = tn_sh_unmarked(file);

    tn_finding_add(shell->ignored, command, "what %.100s sets is unknown here", name.text);
    tn_sh_word_done(&name);
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
    } else if (sets_what_it_names(name)) {
        for (size_t i = 1; i < command->n; i++)
            tn_sh_unset(shell, command->v[i], !str_eq(name, "unset"));
    } else if (command->n > 1 && (str_eq(name, "source") || str_eq(name, "."))) {
        say_sourced(shell, name, command->v[1]);
    } else {
        return false;
    }
    return true;
}

enum tn_sh_truth tn_sh_status_of(struct tn_sh *shell, const struct tn_sh_list *command)
{
    const char *name = command->v[0];

    if (str_eq(name, "unset") || (str_eq(name, "set") && command->n > 1))
        return TN_SH_TRUE;
    return str_eq(name, "shift") ? tn_sh_shifts(shell, command) : tn_sh_test(command);
}
