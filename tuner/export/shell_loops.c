/*
 * Loops of a shell script. One is read as often as it runs where the script says how often that is;
 * else once, as if it may run, with the variables as they were before it.
 */
#include "tuner/export/shell_flow.h"

#include <assert.h>

enum { MAX_ROUNDS = 512 };

bool tn_sh_in_own_shell(const char *pos)
{
    for (; *pos && *pos != '\n' && *pos != ';'; pos++) {
        bool doubled = (*pos == '|' || *pos == '&') && pos[1] == *pos;

        if (doubled)
            return false;
        if (*pos == '|' || (*pos == '&' && pos[1] != '>' && pos[-1] != '>' && pos[-1] != '<'))
            return true;
    }
    return false;
}

static void next_value(struct tn_sh *shell, struct tn_sh_level *level)
{
    struct tn_sh_list value = {0};

    tn_sh_list_add(&value, mem_strdup(level->exact ? level->each.v[level->round] : "?"));
    tn_sh_assign(shell, level->name, &value, false, false);
}

/* From here on LEVEL is read once, as if it may run. */
static void read_once(struct tn_sh *shell, struct tn_sh_level *level)
{
    tn_sh_restore(shell, &level->before);
    level->exact = false;
    level->runs = TN_SH_UNSURE;
    if (level->name[0])
        next_value(shell, level);
    if (level->test) {
        tn_sh_sets(shell, level->test, level->test + strlen(level->test));
        tn_sh_sets(shell, level->step, level->step + strlen(level->step));
    }
}

static bool is_known(const struct tn_sh_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (strchr(list->v[i], MARK) || strpbrk(list->v[i], "*?[") || list->v[i][0] == '~')
            return false;
    return true;
}

/* ---- for ((…; …; …)) ----------------------------------------------------- */

/* Whether LEVEL goes on. */
static enum tn_sh_truth next_count(struct tn_sh *shell, const struct tn_sh_level *level)
{
    return *level->test ? tn_sh_sum_truth(shell, level->test) : TN_SH_TRUE;
}

/* POS is at the brackets. What the parts set is not known where only a shell could tell how often
 * the loop runs. */
static const char *counted(struct tn_sh *shell, const char *pos)
{
    const char *end = tn_sh_closing(shell, pos);
    AUTO_FREE char *parts =
        shell->r == 0 && end - pos > 4 ? tn_sh_copy(pos + 2, (size_t)(end - pos) - 4) : NULL;
    char *test = parts ? strchr(parts, ';') : NULL, *step = test ? strchr(test + 1, ';') : NULL;
    bool piped = shell->piped, runs = tn_sh_runs(shell) != TN_SH_FALSE;
    struct tn_sh_level *level;

    if (step && !strchr(step + 1, ';')) {
        *test++ = *step++ = '\0';
        test += strspn(test, " \t");
        if (parts[strspn(parts, " \t")])
            (void)tn_sh_sum_truth(shell, parts);
    } else {
        test = step = NULL;
    }
    tn_sh_open(shell, TN_SH_LOOP);
    if (shell->r < 0)
        return end;
    level = &shell->level[shell->depth - 1];
    level->exact = runs && step;
    level->piped = piped;
    level->test = mem_strdup(test ? test : "");
    level->step = mem_strdup(step ? step : "");
    if (level->exact) {
        level->runs = level->base;
        tn_sh_keep(&level->before, shell);
    }
    return end + strspn(end, " \t");
}

/* ---- for NAME in …, while, until ----------------------------------------- */

const char *tn_sh_for(struct tn_sh *shell, const char *pos, bool select)
{
    size_t n = tn_sh_name_length(pos);
    struct tn_sh_list each = {0};
    struct tn_sh_level *level;
    bool piped = shell->piped, runs = tn_sh_runs(shell) != TN_SH_FALSE, known;

    if (str_starts(pos, "((") && !select)
        return counted(shell, pos);
    tn_sh_open(shell, TN_SH_LOOP);
    if ((!isalpha((unsigned char)*pos) && *pos != '_') || n >= MAX_NAME || shell->r < 0)
        return pos;
    level = &shell->level[shell->depth - 1];
    snprintf(level->name, sizeof(level->name), "%.*s", (int)n, pos);
    pos += n;
    pos += strspn(pos, " \t");
    if (str_starts(pos, "in") && !isalnum((unsigned char)pos[2])) {
        pos += 2;
        while (shell->r == 0 && *pos && *pos != '\n' && *pos != ';' && *pos != '#') {
            if (tn_sh_continues(pos))
                pos += pos[1] == '\r' ? 3 : 2;
            else if (isspace((unsigned char)*pos))
                pos++;
            else
                pos = tn_sh_word(shell, &each, pos, true, false);
        }
        known = is_known(&each);
    } else {
        const struct tn_sh_variable *given = tn_sh_given(shell);

        known = given != NULL;
        if (given)
            tn_sh_take_words(&each, &given->values, 0);
    }
    level->each = each;
    level->exact = runs && known && !select && each.n <= MAX_ROUNDS;
    level->piped = piped;
    if (level->exact) {
        level->runs = each.n ? level->base : TN_SH_FALSE;
        tn_sh_keep(&level->before, shell);
    }
    if (!level->exact || each.n)
        next_value(shell, level);
    return pos;
}

void tn_sh_while(struct tn_sh *shell, const char *pos, bool until)
{
    struct tn_sh_level *level;
    bool piped = shell->piped, runs = tn_sh_runs(shell) != TN_SH_FALSE;

    tn_sh_open(shell, TN_SH_LOOP);
    if (shell->r < 0 || !runs) /* read once: what would end it does not run either */
        return;
    level = &shell->level[shell->depth - 1];
    level->condition = level->exact = level->tests = true;
    level->until = until;
    level->piped = piped;
    level->again = pos;
    level->runs = level->base;
    tn_sh_keep(&level->before, shell);
}

const char *tn_sh_do(struct tn_sh *shell, const char *pos)
{
    struct tn_sh_level *level = tn_sh_inside(shell, TN_SH_LOOP);
    enum tn_sh_truth status = shell->status;

    tn_sh_list_begin(shell);
    if (level)
        level->tests = false;
    if (!level || !level->exact || level->reading != shell->reading)
        return pos;
    if (!level->condition) {
        level->again = pos;
        if (!level->test)
            return pos;
        status = next_count(shell, level);
    }
    if (level->until)
        status = tn_sh_not(status);
    if (status == TN_SH_UNSURE) {
        read_once(shell, level);
        return level->again;
    }
    level->broken = status == TN_SH_FALSE;
    if (level->broken)
        level->runs = TN_SH_FALSE;
    return pos;
}

const char *tn_sh_done(struct tn_sh *shell, const char *pos)
{
    struct tn_sh_level *level = tn_sh_unclosed(shell, TN_SH_LOOP);

    if (!level)
        return pos;
    if (level->exact && level->again && level->reading == shell->reading && shell->r == 0) {
        bool last = level->broken ||
                    (!level->condition && !level->test && level->round + 1 >= level->each.n);
        enum tn_sh_truth more = last ? TN_SH_FALSE : TN_SH_TRUE;

        level->round++;
        level->tests = level->condition;
        level->runs = level->base;
        tn_sh_list_begin(shell);
        if (!last && level->test) {
            (void)tn_sh_sum_truth(shell, *level->step ? level->step : "1");
            more = next_count(shell, level);
            last = more == TN_SH_FALSE;
        }
        if (level->unsure || more == TN_SH_UNSURE || (!last && level->round >= MAX_ROUNDS)) {
            read_once(shell, level);
            return level->again;
        }
        if (!last) {
            if (!level->condition && !level->test)
                next_value(shell, level);
            return level->again;
        }
    }
    if (level->exact && (level->piped || tn_sh_in_own_shell(pos)))
        tn_sh_restore(shell, &level->before);
    tn_sh_close(shell, TN_SH_LOOP);
    return pos;
}

void tn_sh_leave_loops(struct tn_sh *shell, size_t n, bool next)
{
    enum tn_sh_truth runs = shell->chain;
    size_t left = n ? n : SIZE_MAX;

    assert(shell->depth <= MAX_LEVELS);

    for (int i = shell->depth - 1; i >= 0 && left && shell->level[i].kind != TN_SH_CALL; i--) {
        struct tn_sh_level *level = &shell->level[i];

        enum tn_sh_truth outer = level->runs < runs ? level->runs : runs;

        if (level->kind == TN_SH_LOOP) {
            if (runs != TN_SH_FALSE && level->exact) {
                level->unsure |= runs == TN_SH_UNSURE || !n;
                level->broken |= !next || left > 1;
                level->runs = TN_SH_FALSE;
            }
            left--;
        }
        runs = outer;
    }
}
