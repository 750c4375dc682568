/*
 * Which parts of a shell script run: the branches of if and case, and what follows && and ||. Each
 * runs, does not, or only a shell could tell. What a loop holds that is read once is never sure.
 *
 * Truths are ordered, so "and" is the lesser of two and "or" the greater.
 */
#include "tuner/export/shell_flow.h"

#include <fnmatch.h>

static enum tn_sh_truth lesser(enum tn_sh_truth left, enum tn_sh_truth right)
{
    return left < right ? left : right;
}

static enum tn_sh_truth greater(enum tn_sh_truth left, enum tn_sh_truth right)
{
    return left > right ? left : right;
}

/* What a loop or a function does, it may do again, when variables hold something else. */
static bool may_repeat(const struct tn_sh *shell)
{
    for (int i = 0; i < shell->depth; i++)
        if (!shell->level[i].exact && shell->level[i].kind != TN_SH_IF &&
            shell->level[i].kind != TN_SH_CASE && shell->level[i].kind != TN_SH_CALL)
            return true;
    return false;
}

struct tn_sh_level *tn_sh_inside(struct tn_sh *shell, enum tn_sh_kind kind)
{
    struct tn_sh_level *level = shell->depth ? &shell->level[shell->depth - 1] : NULL;

    return level && level->kind == kind ? level : NULL;
}

/* ---- lists of commands --------------------------------------------------- */

void tn_sh_list_begin(struct tn_sh *shell)
{
    shell->chain = TN_SH_TRUE;
    shell->joined = 0;
    shell->negated = false;
}

void tn_sh_status(struct tn_sh *shell, enum tn_sh_truth status)
{
    if (may_repeat(shell))
        status = TN_SH_UNSURE;
    if (shell->negated)
        status = tn_sh_not(status);
    shell->negated = false;
    if (shell->joined == '&')
        status = lesser(shell->status, status);
    else if (shell->joined == '|')
        status = greater(shell->status, status);
    shell->status = status;
}

void tn_sh_join(struct tn_sh *shell, char joined)
{
    shell->joined = joined;
    shell->condition = shell->place;
    shell->status = tn_sh_decided(shell, shell->place, shell->status);
    shell->chain = joined == '&' ? shell->status : tn_sh_not(shell->status);
}

/* ---- if, case, loops and groups ------------------------------------------ */

static struct tn_sh_level *open_level(struct tn_sh *shell, enum tn_sh_kind kind,
                                      enum tn_sh_truth runs)
{
    struct tn_sh_level *level;

    if (shell->depth == MAX_LEVELS) {
        if (shell->r == 0)
            shell->r = err_set(shell->e, -EINVAL, "the script's conditions are nested over %d deep",
                               MAX_LEVELS);
        return NULL;
    }
    level = &shell->level[shell->depth++];
    *level = (struct tn_sh_level){.kind = kind,
                                  .base = shell->chain,
                                  .runs = lesser(runs, shell->chain),
                                  .joined = shell->condition,
                                  .outer = shell->status,
                                  .outer_joined = shell->joined,
                                  .outer_negated = shell->negated,
                                  .reading = shell->reading};
    if (kind == TN_SH_IF || kind == TN_SH_CASE)
        level->place = shell->place;
    shell->piped = false;
    tn_sh_list_begin(shell);
    return level;
}

void tn_sh_open(struct tn_sh *shell, enum tn_sh_kind kind)
{
    open_level(shell, kind, kind == TN_SH_IF ? TN_SH_TRUE : TN_SH_UNSURE);
    shell->status = TN_SH_UNSURE;
}

/* Levels within that were not closed end with it: a text from outside may be damaged. */
struct tn_sh_level *tn_sh_unclosed(struct tn_sh *shell, enum tn_sh_kind kind)
{
    int i = shell->depth - 1;

    while (i >= 0 && shell->level[i].kind != kind && shell->level[i].kind != TN_SH_CALL)
        i--;
    if (i < 0 || shell->level[i].kind != kind)
        return NULL;
    while (shell->depth > i + 1)
        tn_sh_level_done(&shell->level[--shell->depth]);
    return &shell->level[i];
}

void tn_sh_close(struct tn_sh *shell, enum tn_sh_kind kind)
{
    if (!tn_sh_unclosed(shell, kind))
        return;
    tn_sh_level_done(&shell->level[--shell->depth]);
    tn_sh_list_begin(shell);
    shell->status = TN_SH_UNSURE;
}

void tn_sh_levels_done(struct tn_sh *shell)
{
    while (shell->depth)
        tn_sh_level_done(&shell->level[--shell->depth]);
    tn_sh_list_begin(shell);
}

/* What is read from here on runs if none of the branches before did and IS. */
static void branch(struct tn_sh *shell, struct tn_sh_level *level, enum tn_sh_truth is)
{
    level->runs = lesser(level->reached, lesser(tn_sh_not(level->taken), is));
    level->taken = greater(level->taken, is);
    level->tests = false;
    tn_sh_list_begin(shell);
}

void tn_sh_if(struct tn_sh *shell)
{
    tn_sh_open(shell, TN_SH_IF);
    if (shell->r < 0)
        return;
    shell->level[shell->depth - 1].reached = shell->level[shell->depth - 1].runs;
    shell->level[shell->depth - 1].tests = true;
}

void tn_sh_then(struct tn_sh *shell)
{
    struct tn_sh_level *level = tn_sh_inside(shell, TN_SH_IF);

    if (level)
        branch(shell, level, tn_sh_decided(shell, level->place, shell->status));
}

void tn_sh_elif(struct tn_sh *shell)
{
    struct tn_sh_level *level = tn_sh_inside(shell, TN_SH_IF);

    if (!level)
        return;
    level->runs = lesser(level->reached, tn_sh_not(level->taken)); /* its condition */
    level->tests = true;
    tn_sh_list_begin(shell);
    shell->status = TN_SH_UNSURE;
}

void tn_sh_else(struct tn_sh *shell)
{
    struct tn_sh_level *level = tn_sh_inside(shell, TN_SH_IF);

    if (level)
        branch(shell, level, TN_SH_TRUE);
}

void tn_sh_case(struct tn_sh *shell, const char *word)
{
    struct tn_sh_level *level = open_level(shell, TN_SH_CASE, TN_SH_TRUE);

    if (!level)
        return;
    level->reached = level->runs;
    level->pattern = true;
    if (word && !strchr(word, MARK) && !may_repeat(shell))
        level->word = mem_strdup(word);
}

bool tn_sh_at_pattern(const struct tn_sh *shell)
{
    const struct tn_sh_level *level = shell->depth ? &shell->level[shell->depth - 1] : NULL;

    return level && level->kind == TN_SH_CASE && level->pattern;
}

void tn_sh_case_end(struct tn_sh *shell, bool falls)
{
    struct tn_sh_level *level = tn_sh_inside(shell, TN_SH_CASE);

    tn_sh_list_begin(shell);
    if (!level)
        return;
    level->pattern = true;
    if (falls) { /* ;& and ;;&: the next may run as well */
        free(level->word);
        level->word = NULL;
        level->taken = TN_SH_UNSURE;
    }
}

/* Does WORD, NULL where it is not known, match one of the patterns between bars? */
static enum tn_sh_truth matches(const char *word, char *patterns)
{
    char *to = patterns, *rest = patterns;
    bool quoted = false;

    if (strpbrk(patterns, "$`\\"))
        return TN_SH_UNSURE;
    for (const char *from = patterns; *from; from++) { /* quotes and blanks are no part of them */
        quoted |= strchr("\"'", *from) != NULL;
        if (!strchr("\"' \t", *from))
            *to++ = *from;
    }
    *to = '\0';
    for (char *pattern; (pattern = strsep(&rest, "|"));)
        if (word ? !fnmatch(pattern, word, 0) : !quoted && str_eq(pattern, "*"))
            return TN_SH_TRUE;
    return word ? TN_SH_FALSE : TN_SH_UNSURE;
}

const char *tn_sh_pattern(struct tn_sh *shell, const char *pos)
{
    struct tn_sh_level *level = tn_sh_inside(shell, TN_SH_CASE);
    size_t n;
    char quote = 0;

    pos += *pos == '(';
    for (n = 0; pos[n] && pos[n] != '\n' && (quote || pos[n] != ')'); n++)
        if (quote ? pos[n] == quote : strchr("\"'", pos[n]) != NULL)
            quote = quote ? 0 : pos[n];
    if (level) {
        AUTO_FREE char *patterns = tn_sh_copy(pos, n);

        level->pattern = false;
        level->runs = lesser(level->reached, tn_sh_not(level->taken));
        branch(shell, level, tn_sh_decided(shell, level->place, matches(level->word, patterns)));
    }
    return pos + n + (pos[n] == ')');
}
