/*
 * The commands of a shell script, one after the other: words, operators, redirections and what a
 * command does once it is whole. It calls itself for the text that a command holds, and through
 * struct tn_sh for the body of a function.
 */
#include "tuner/export/shell_flow.h"

/* --…, or variables before the first of them. */
static bool begins_arguments(const struct tn_sh_list *cmd)
{
    if (!cmd->n || tn_sh_argument_first(cmd->v[0]))
        return cmd->n > 0;
    if (cmd->v[0][0] != MARK)
        return false;
    for (size_t i = 1; i < cmd->n; i++)
        if (tn_sh_argument_first(cmd->v[i]))
            return true;
    return false;
}

/* TEXT, which a command holds, as commands of their own: those of another shell, as after sh -c, or
 * of this one, whose status is then theirs. */
static void read_within(struct tn_sh *shell, const char *text, int level, bool another)
{
    struct tn_sh_heres pending = shell->pending;
    enum tn_sh_truth chain = shell->chain, status = shell->status;
    char joined = shell->joined;
    bool over = shell->over, negated = shell->negated;
    int depth = shell->depth;
    struct tn_sh_state before = {0};

    if (another)
        tn_sh_keep(&before, shell);
    shell->pending = (struct tn_sh_heres){0};
    tn_sh_open(shell, TN_SH_BRACES);
    if (shell->r == 0) {
        shell->level[depth].exact = true;
        shell->level[depth].runs = shell->level[depth].base;
        tn_sh_commands(shell, text, level + 1);
    }
    while (shell->depth > depth)
        tn_sh_level_done(&shell->level[--shell->depth]);
    tn_sh_heres_done(&shell->pending);
    shell->pending = pending;
    shell->chain = chain;
    shell->joined = joined;
    shell->negated = negated;
    if (another) {
        tn_sh_restore(shell, &before); /* and so are variables and */
        shell->over = over;            /* an exit there */
        shell->status = TN_SH_UNSURE;
    } else {
        enum tn_sh_truth inner = shell->status;

        shell->status = status;
        tn_sh_status(shell, inner);
    }
    shell->last = NULL;
}

/* eval WORDS: they are read once more, as one text. */
static void evaluate(struct tn_sh *shell, const struct tn_sh_list *words, int level)
{
    AUTO_STR text = {0};

    for (size_t i = 1; i < words->n; i++)
        str_addf(&text, "%s%s", i > 1 ? " " : "", words->v[i]);
    shell->assigned = TN_SH_FALSE;
    read_within(shell, str_text(&text), level, false);
    if (strchr(str_text(&text), MARK))
        tn_sh_doubt(shell);
}

/* source FILE, which the script has written: its text is read in its place. False where the script
 * has not. */
static bool sources_own(struct tn_sh *shell, const struct tn_sh_list *cmd, int level)
{
    const char *text = NULL;

    if (cmd->n < 2 || (!str_eq(cmd->v[0], "source") && !str_eq(cmd->v[0], ".")) ||
        !tn_sh_written_file(&text, shell, cmd->v[1]))
        return false;
    shell->assigned = TN_SH_FALSE;
    if (text && !strchr(text, MARK) && cmd->n == 2 && level < MAX_DEPTH) {
        AUTO_FREE char *copy = mem_strdup(text); /* which it may write again */

        read_within(shell, copy, level, false);
    } else if (shell->r == 0) {
        shell->r = err_set(shell->e, -EINVAL,
                           "%.16s %.64s reads what the script writes there, which depends on more "
                           "than the script: write its lines in the script itself",
                           cmd->v[0], cmd->v[1]);
    }
    return true;
}

/* CMD is a variable that holds the command or does not, as a condition decides: said if nothing
 * else starts a program. */
static void note_unsure(struct tn_sh *shell, const struct tn_sh_list *cmd)
{
    const char *end = strchr(cmd->v[0], ENDMARK);

    for (size_t i = 0; cmd->v[0][0] == MARK && i < cmd->n; i++) {
        struct tn_word word = tn_sh_unmarked(cmd->v[i]);

        tn_paths_doubt_word(shell->paths, &word);
        tn_sh_word_done(&word);
    }
    if (shell->unsure.code < 0 || cmd->v[0][0] != MARK || cmd->v[0][1] != TN_WORD_MAYBE || !end ||
        end[1] || end == cmd->v[0] + 2)
        return;
    (void)err_set(&shell->unsure, -EINVAL,
                  "the command `%.*s` is set under a condition that is not known here: add a line "
                  "that sets what decides it, or say how it is called (--call \"NAME=value "
                  "bash job.sh ARGUMENT ...\")",
                  (int)(end - cmd->v[0]) - 2 < 64 ? (int)(end - cmd->v[0]) - 2 : 64, cmd->v[0] + 2);
}

/* The function that CMD calls, or the text that it has read once more; a shell of its own if OWN,
 * whose variables and exit are its own. False where CMD is another. */
static bool calls(struct tn_sh *shell, const struct tn_sh_list *cmd, int level, bool own)
{
    bool evaluates = str_eq(cmd->v[0], "eval") && level < MAX_DEPTH, over = shell->over;
    struct tn_sh_state before = {0};

    if (!evaluates && !tn_sh_is_function(shell, cmd->v[0]))
        return false;
    if (own)
        tn_sh_keep(&before, shell);
    if (!tn_sh_call_function(shell, cmd, level))
        evaluate(shell, cmd, level);
    if (own) {
        tn_sh_restore(shell, &before);
        shell->over = over;
    }
    return true;
}

static void end_command(struct tn_sh *shell, struct tn_sh_list *cmd, int level)
{
    bool own = shell->pipes || shell->piped, execs = shell->execs;
    size_t at = shell->declares ? cmd->n : tn_sh_program_of(cmd);
    struct tn_sh_list *last = shell->last;
    bool runs = tn_sh_runs(shell) != TN_SH_FALSE, declares = shell->declares, ended = cmd->n > 0;
    struct tn_sh_asides asides = tn_sh_asides_run(shell);

    tn_sh_written(shell, cmd);
    shell->cut = shell->declares = false;
    if (cmd->n || shell->assigned)
        shell->piped = false;
    if (shell->pipes && declares && runs && shell->r == 0)
        shell->r = err_set(shell->e, -EINVAL,
                           "a declaration before | or & sets nothing in the script%s%.64s: write "
                           "it on a line of its own",
                           cmd->n ? ": " : "", cmd->n ? cmd->v[0] : "");
    shell->pipes = shell->execs = false;
    if (shell->r == 0 && runs && cmd->n && !declares &&
        (calls(shell, cmd, level, own) || sources_own(shell, cmd, level))) {
        shell->last = NULL;
        goto out;
    }
    if (shell->r == 0 && (cmd->n || shell->assigned))
        tn_sh_status(shell, !cmd->n    ? shell->assigned
                            : declares ? TN_SH_TRUE
                                       : tn_sh_status_of(shell, cmd));
    shell->assigned = TN_SH_FALSE;
    if (!cmd->n || shell->r < 0)
        goto out;
    shell->last = NULL;
    if (!runs)
        goto out;
    note_unsure(shell, cmd);
    if (declares) {
        tn_sh_declare(shell, cmd);
    } else if (at < cmd->n) {
        tn_sh_take_program(shell, cmd, at);
    } else if (begins_arguments(cmd)) {
        if (!last || !tn_sh_argument_first(cmd->v[0]))
            last = &shell->bare;
        shell->last = last == &shell->args ? &shell->apart : last;
        tn_sh_take_words(shell->last, cmd, 0);
    } else if (!tn_sh_builtin(shell, cmd) && level < MAX_DEPTH && tn_sh_command_within(cmd)) {
        read_within(shell, tn_sh_command_within(cmd), level, true);
    }
out:
    tn_sh_asides_end(shell, &asides, (!cmd->n && !own) || declares);
    if (execs && ended && !own) {
        tn_sh_exit(shell);
        shell->replaced = shell->over;
    }
    free(shell->string);
    shell->string = NULL;
    tn_sh_list_done(cmd);
}

static bool is_redirection(const char *pos)
{
    pos += strspn(pos, "0123456789&");
    return *pos == '>' || *pos == '<';
}

/* What follows is no argument: said once, of the command that counts. */
static void cut(struct tn_sh *shell, const struct tn_sh_list *cmd, const char *pos)
{
    char text[24];

    if (shell->cut || (tn_sh_program_of(cmd) == cmd->n && !begins_arguments(cmd)))
        return;
    shell->cut = true;
    snprintf(text, sizeof(text), "%.*s", (int)strcspn(pos, " \t\r\n;"), pos);
    tn_finding_add(shell->ignored, text, "the command ends here");
}

/* WORD is behind a redirection, where a shell would still take it for an argument, and a reader for
 * none: "--load <PATH TO IT> --bf16". */
static void refuse_behind(struct tn_sh *shell, const struct tn_sh_list *word)
{
    if (shell->r == 0 && shell->cut && word->n && tn_sh_argument_first(word->v[0]))
        shell->r = err_set(shell->e, -EINVAL,
                           "`%.64s` is behind a < or > of its command: write redirections last, "
                           "and values for placeholders",
                           word->v[0]);
}

/* Behind a redirection and its file, or the word that ends a here-document. */
static const char *redirection(struct tn_sh *shell, const char *pos)
{
    struct tn_sh_list file = {0};
    bool whole = *pos == '>' || (*pos == '1' && pos[1] == '>'), append;
    bool string = str_starts(pos, "<<<");

    pos += strspn(pos, "0123456789&");
    if ((*pos == '<' || *pos == '>') && pos[1] == '(')
        return tn_sh_closing(shell, pos + 1);
    if (pos[0] == '<' && pos[1] == '<' && pos[2] != '<')
        return tn_sh_here(shell, pos + 2);
    append = pos[1] == '>';
    whole &= pos[1] != '&';
    pos = tn_sh_skip(pos + strspn(pos, "<>&|-"), false);
    pos = tn_sh_word(shell, &file, pos, false, tn_sh_in_brackets(shell));
    refuse_behind(shell, &file);
    if (whole && file.n == 1)
        tn_sh_output(shell, file.v[0], append);
    if (string && file.n == 1 && shell->r == 0) {
        free(shell->string);
        shell->string = mem_strdup(file.v[0]);
    }
    tn_sh_list_done(&file);
    return pos;
}

/* && and the like. Returns behind it, or POS where there is none. */
static const char *operator_at(struct tn_sh *shell, struct tn_sh_list *cmd, const char *pos,
                               int level)
{
    size_t n = strspn(pos, "&|");

    if (!n || n > 2 || is_redirection(pos))
        return pos;
    cut(shell, cmd, pos);
    shell->pipes = n == 1 || pos[0] != pos[1];
    end_command(shell, cmd, level);
    shell->pipes = false;
    shell->last = NULL;
    if (n == 2 && pos[0] == pos[1])
        tn_sh_join(shell, *pos);
    else if (*pos == '|')
        shell->joined = 0, shell->piped = true; /* what it succeeds with is its last command's */
    else
        tn_sh_list_begin(shell);
    return (n == 2 || *pos == '|') && !shell->pending.n ? tn_sh_skip(pos + n, true) : pos + n;
}

/* Within [[ … ]], where operators are words, and lines do not end it? */
static bool in_test(const struct tn_sh_list *cmd)
{
    return cmd->n && str_eq(cmd->v[0], "[[") && !str_eq(cmd->v[cmd->n - 1], "]]");
}

/* Is the word, LENGTH letters of a script at SOURCE that became WORD, a pattern to some part and to
 * another part not? */
static bool quotes_pattern(const char *source, size_t length, const char *word)
{
    char quote = 0;

    if (!strpbrk(word, "*?["))
        return false;
    for (size_t i = 0; i < length; i++) {
        if (strchr("\\$`", source[i]) || (quote && strchr("*?[", source[i])))
            return true;
        if (quote ? source[i] == quote : strchr("\"'", source[i]) != NULL)
            quote = quote ? 0 : source[i];
    }
    return false;
}

/* A word of [[ … ]], which nothing splits. */
static const char *test_word(struct tn_sh *shell, struct tn_sh_list *cmd, const char *pos)
{
    const char *end = tn_sh_word(shell, cmd, pos, false, false);

    if (shell->r == 0 && quotes_pattern(pos, (size_t)(end - pos), cmd->v[cmd->n - 1])) {
        free(cmd->v[--cmd->n]);
        tn_sh_list_add(cmd, mem_printf("%c%c%c", MARK, TN_WORD_RUN, ENDMARK));
    }
    return end;
}

/* A word of the command, or what is behind its end. */
static const char *word_at(struct tn_sh *shell, struct tn_sh_list *cmd, const char *pos)
{
    struct tn_sh_list dropped = {0};

    if (!shell->cut)
        return tn_sh_word(shell, cmd, pos, true, tn_sh_in_brackets(shell));
    pos = tn_sh_word(shell, &dropped, pos, true, tn_sh_in_brackets(shell));
    refuse_behind(shell, &dropped);
    tn_sh_list_done(&dropped);
    return pos;
}

/* POS is at the end of a line, a semicolon, or the end: behind it. */
static const char *end_list(struct tn_sh *shell, struct tn_sh_list *cmd, const char *pos, int level)
{
    bool fails = shell->errexit && (cmd->n || shell->assigned || shell->summed) &&
                 shell->chain == TN_SH_TRUE && !shell->negated;

    shell->ends = true;
    end_command(shell, cmd, level);
    shell->ends = shell->summed = false;
    if (fails && shell->status == TN_SH_FALSE)
        tn_sh_failed(shell);
    tn_sh_list_begin(shell);
    if (pos[0] == ';' && (pos[1] == ';' || pos[1] == '&')) {
        tn_sh_case_end(shell, pos[1] == '&' || pos[2] == '&');
        return pos + 2 + (pos[1] == ';' && pos[2] == '&');
    }
    if (*pos == '\n')
        return tn_sh_heres(shell, pos + 1);
    return *pos ? pos + 1 : pos;
}

void tn_sh_commands(struct tn_sh *shell, const char *pos, int level)
{
    struct tn_sh_list cmd = {0};
    size_t reading = shell->reading;
    uint64_t place = shell->place, begin = tn_sh_place_of(pos);
    const char *text = pos;

    shell->reading = ++shell->texts;
    while (shell->r == 0 && !shell->over) {
        const char *next;

        shell->place = begin + (uint64_t)(pos - text);
        pos = tn_sh_skip(pos, shell->plain || in_test(&cmd));
        if (*pos && in_test(&cmd)) {
            next = *pos == ';' ? pos + 1 : test_word(shell, &cmd, pos);
            pos = next;
            continue;
        }
        if (*pos == '#') {
            pos += strcspn(pos, "\n");
            continue;
        }
        if (!*pos || *pos == '\n' || *pos == ';') {
            pos = end_list(shell, &cmd, pos, level);
            if (!*pos)
                break;
            continue;
        }
        if (!cmd.n && tn_sh_at_pattern(shell) &&
            !tn_sh_is_word(pos, strcspn(pos, " \t\r\n;"), "esac")) {
            pos = tn_sh_pattern(shell, pos);
            continue;
        }
        if (*pos == ')' && tn_sh_in_brackets(shell)) {
            end_command(shell, &cmd, level);
            tn_sh_group_end(shell, TN_SH_BRACKETS, ++pos);
            continue;
        }
        next = operator_at(shell, &cmd, pos, level);
        if (next == pos && is_redirection(pos)) {
            cut(shell, &cmd, pos);
            next = redirection(shell, pos);
        }
        if (next == pos && (!cmd.n || shell->declares))
            next = tn_sh_assignment(shell, pos);
        if (next == pos && !cmd.n && !shell->plain)
            next = tn_sh_keyword(shell, pos);
        if (next == pos && !cmd.n)
            tn_sh_asides_words(shell);
        pos = next == pos ? word_at(shell, &cmd, pos) : next;
    }
    shell->reading = reading;
    shell->place = place;
    tn_sh_list_done(&cmd);
}
