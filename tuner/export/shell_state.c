/*
 * The variables of a shell script as they were before a group or a loop, which may be a shell of
 * its own, or be read again.
 */
#include "tuner/export/shell_flow.h"

enum { MAX_COPIED = 64 << 20 };

static void variables_done(struct tn_sh_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        tn_sh_list_done(&state->vars[i].values);
    free(state->vars);
    *state = (struct tn_sh_state){0};
}

void tn_sh_keep(struct tn_sh_state *ret, struct tn_sh *shell)
{
    size_t room = 1;

    variables_done(ret);
    while (room < shell->count) /* as find_or_add() grows it */
        room *= 2;
    ret->vars = mem_alloc(room * sizeof(*ret->vars));
    ret->count = shell->count;
    ret->kept = true;
    for (size_t i = 0; i < shell->count; i++) {
        ret->vars[i] = shell->vars[i];
        ret->vars[i].values = (struct tn_sh_list){0};
        tn_sh_take_words(&ret->vars[i].values, &shell->vars[i].values, 0);
        for (size_t k = 0; k < shell->vars[i].values.n; k++)
            shell->copied += strlen(shell->vars[i].values.v[k]) + sizeof(char *);
    }
    shell->copied += room * sizeof(*ret->vars);
    if (shell->copied > MAX_COPIED && shell->r == 0)
        shell->r = err_set(shell->e, -EINVAL, "the script's groups and loops are too many to read");
}

void tn_sh_restore(struct tn_sh *shell, struct tn_sh_state *state)
{
    struct tn_sh_state now = {.vars = shell->vars, .count = shell->count};

    if (!state->kept)
        return;
    for (size_t i = 0; i < state->count; i++)
        state->vars[i].used |= now.vars[i].used;
    shell->vars = state->vars;
    shell->count = state->count;
    *state = (struct tn_sh_state){0};
    variables_done(&now);
}

void tn_sh_level_done(struct tn_sh_level *level)
{
    free(level->word);
    free(level->test);
    free(level->step);
    tn_sh_list_done(&level->each);
    variables_done(&level->before);
    *level = (struct tn_sh_level){0};
}
