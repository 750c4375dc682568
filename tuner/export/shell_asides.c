/*
 * NAME=value COMMAND: the variable has the value for the command alone, and the command's own words
 * are made before (POSIX, 2.9.1).
 */
#include "tuner/export/shell_flow.h"

void tn_sh_aside(struct tn_sh *shell, const char *name)
{
    struct tn_sh_asides *asides = &shell->asides;

    if (tn_sh_runs(shell) == TN_SH_FALSE)
        return;
    asides->v = mem_realloc(asides->v, (asides->n + 1) * sizeof(*asides->v));
    asides->v[asides->n++] = tn_sh_aside_of(shell, name);
}

/* One name may be there twice: the last is exchanged first, and on the way back last. */
static void exchange(struct tn_sh *shell, struct tn_sh_asides *asides)
{
    for (size_t i = 0; i < asides->n; i++)
        tn_sh_exchange(shell, &asides->v[asides->others ? i : asides->n - 1 - i]);
    asides->others = !asides->others;
}

void tn_sh_asides_words(struct tn_sh *shell)
{
    if (!shell->asides.others)
        exchange(shell, &shell->asides);
}

struct tn_sh_asides tn_sh_asides_run(struct tn_sh *shell)
{
    struct tn_sh_asides ret = shell->asides;

    shell->asides = (struct tn_sh_asides){0};
    if (ret.others)
        exchange(shell, &ret);
    return ret;
}

void tn_sh_asides_end(struct tn_sh *shell, struct tn_sh_asides *asides, bool alone)
{
    if (!alone)
        exchange(shell, asides);
    tn_sh_asides_done(asides);
}

void tn_sh_asides_done(struct tn_sh_asides *asides)
{
    for (size_t i = 0; i < asides->n; i++)
        tn_sh_list_done(&asides->v[i].variable.values);
    free(asides->v);
    *asides = (struct tn_sh_asides){0};
}
