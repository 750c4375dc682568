/*
 * Whether what is read runs. Of conditions that only a shell could tell it is noted what they
 * decide, and on a path through them they are taken one way (paths.h).
 */
#include "tuner/export/shell_flow.h"

#include <assert.h>

enum tn_sh_truth tn_sh_runs(const struct tn_sh *shell)
{
    enum tn_sh_truth runs = shell->chain;

    for (int i = 0; i < shell->depth; i++)
        if (shell->level[i].runs < runs)
            runs = shell->level[i].runs;
    return runs;
}

static bool is_forked(const struct tn_paths *paths, uint64_t condition)
{
    for (size_t i = 0; i < paths->nforked; i++)
        if (paths->forked[i] == condition)
            return true;
    return false;
}

enum tn_sh_truth tn_sh_decided(struct tn_sh *shell, uint64_t condition, enum tn_sh_truth truth)
{
    struct tn_paths *paths = shell->paths;

    if (truth != TN_SH_UNSURE || tn_sh_runs(shell) != TN_SH_TRUE || shell->over ||
        !is_forked(paths, condition) || paths->at == TN_PATH_CHOICES)
        return truth;
    assert(paths->at <= paths->chosen && paths->chosen <= TN_PATH_CHOICES);
    if (paths->at == paths->chosen)
        paths->taken[paths->chosen++] = true;
    return paths->taken[paths->at++] ? TN_SH_TRUE : TN_SH_FALSE;
}

static void note(struct tn_paths *paths, uint64_t condition, const char *name)
{
    if (!condition)
        return;
    for (size_t i = 0; i < paths->neffects; i++)
        if (paths->effects[i].condition == condition && str_eq(paths->effects[i].name, name))
            return;
    if (paths->neffects == TN_PATH_EFFECTS)
        return;
    paths->effects[paths->neffects].condition = condition;
    snprintf(paths->effects[paths->neffects++].name, sizeof(paths->effects[0].name), "%s", name);
}

void tn_sh_effect(struct tn_sh *shell, const char *name)
{
    for (int i = 0; i < shell->depth; i++) {
        if (shell->level[i].runs == TN_SH_UNSURE)
            note(shell->paths, shell->level[i].place, name);
        if (shell->level[i].base == TN_SH_UNSURE)
            note(shell->paths, shell->level[i].joined, name);
    }
    if (shell->chain == TN_SH_UNSURE)
        note(shell->paths, shell->condition, name);
}

/* FNV-1a. Equal texts are one, as a function's body that is called twice. */
uint64_t tn_sh_place_of(const char *text)
{
    uint64_t hash = 14695981039346656037u;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}
