/*
 * A shell script as the arguments of the program that it starts. Nothing is run: variables and
 * arrays that the script itself sets are put in their places, word by word as a shell splits them;
 * what only a shell could tell ($(…), a variable of the environment) stays as it is written
 * and is marked, so that a reader who needs the word refuses it by name.
 *
 * Of if, case, && and || the branch is read that a shell would take, where the script itself says
 * all that decides. What is set where only a shell could tell, and within loops and braces, is
 * marked as maybe said.
 */
#include "tuner/export/shell_flow.h"

/* Past blanks, continued lines and, if LINES, the ends of lines and comments. */
static const char *skip(const char *pos, bool lines)
{
    for (;;) {
        if (tn_sh_continues(pos))
            pos += pos[1] == '\r' ? 3 : 2;
        else if (*pos == '\n' ? lines : isspace((unsigned char)*pos))
            pos++;
        else if (*pos == '#' && lines)
            pos += strcspn(pos, "\n");
        else
            return pos;
    }
}

static const char *array(struct tn_sh *shell, struct tn_sh_list *out, const char *pos)
{
    for (pos = skip(pos, true); *pos && *pos != ')' && shell->r == 0; pos = skip(pos, true))
        pos = *pos == ';' ? pos + 1 : tn_sh_word(shell, out, pos, true, true);
    if (!*pos && shell->r == 0)
        shell->r = err_set(shell->e, -EINVAL, "unclosed bracket in the script: (");
    return *pos ? pos + 1 : pos;
}

/* NAME=…, NAME+=…, NAME=(…); POS itself where there is none. */
static const char *assignment(struct tn_sh *shell, const char *pos)
{
    size_t n = isalpha((unsigned char)*pos) || *pos == '_' ? tn_sh_name_length(pos) : 0;
    const char *q = pos + n;
    struct tn_sh_list values = {0};
    char name[MAX_NAME];
    bool append, is_array;

    if (!n || n >= MAX_NAME)
        return pos;
    append = *q == '+';
    q += append;
    if (*q++ != '=')
        return pos;
    snprintf(name, sizeof(name), "%.*s", (int)n, pos);
    is_array = *q == '(';
    q = is_array ? array(shell, &values, q + 1)
                 : tn_sh_word(shell, &values, q, false, tn_sh_in_brackets(shell));
    if (!shell->assigned)
        shell->assigned = TN_SH_TRUE;
    for (size_t i = 0; i < values.n; i++)
        if (strchr(values.v[i], MARK)) /* maybe of $(…), which may fail */
            shell->assigned = TN_SH_UNSURE;
    if (shell->local && shell->declares)
        tn_sh_local(shell, name);
    tn_sh_assign(shell, name, &values, append, is_array);
    return q;
}

/* ((NAME = …)): what it sets is a shell's to compute. */
static const char *arithmetic(struct tn_sh *shell, const char *pos)
{
    const char *end = tn_sh_closing(shell, pos);

    if (end - pos > 4 && shell->r == 0) {
        AUTO_FREE char *inside = tn_sh_copy(pos + 2, (size_t)(end - pos) - 4);

        tn_sh_status(shell, tn_sh_sum_truth(shell, inside));
    }

    while (pos < end) {
        size_t n = isalpha((unsigned char)*pos) || *pos == '_' ? tn_sh_name_length(pos) : 0;
        const char *op = pos + n + strspn(pos + n, " \t");
        char name[MAX_NAME];

        if (n && n < MAX_NAME &&
            ((*op == '=' && op[1] != '=') ||
             (*op && strchr("+-*/%", *op) && (op[1] == '=' || op[1] == *op)))) {
            snprintf(name, sizeof(name), "%.*s", (int)n, pos);
            tn_sh_forget(shell, name);
        }
        pos += n ? n : 1;
    }
    return end;
}

static bool is_word(const char *pos, size_t len, const char *word)
{
    return strlen(word) == len && !strncmp(word, pos, len);
}

/* POS is behind `case`. Returns behind its `in`. */
static const char *case_of(struct tn_sh *shell, const char *pos)
{
    struct tn_sh_list of = {0};

    pos = skip(tn_sh_word(shell, &of, pos, false, false), true);
    tn_sh_case(shell, of.n ? of.v[0] : NULL);
    tn_sh_list_done(&of);
    return str_starts(pos, "in") ? pos + 2 : pos;
}

/* Words of loops, and brackets of groups: behind the one of N letters at POS, or POS. */
static const char *loop_or_group(struct tn_sh *shell, const char *pos, size_t n)
{
    const char *end = pos + n;

    if (is_word(pos, n, "for") || is_word(pos, n, "select"))
        return tn_sh_for(shell, skip(end, false), *pos == 's');
    if (is_word(pos, n, "do"))
        return tn_sh_do(shell, end);
    if (is_word(pos, n, "done"))
        return tn_sh_done(shell, end);
    if (is_word(pos, n, "while") || is_word(pos, n, "until"))
        tn_sh_while(shell, end, *pos == 'u');
    else if (is_word(pos, n, "{"))
        tn_sh_group(shell, TN_SH_BRACES);
    else if (is_word(pos, n, "}"))
        tn_sh_group_end(shell, TN_SH_BRACES, end);
    else
        return pos;
    return end;
}

static void close_if(struct tn_sh *shell)
{
    tn_sh_close(shell, TN_SH_IF);
}

static void close_case(struct tn_sh *shell)
{
    tn_sh_close(shell, TN_SH_CASE);
}

/* Words that open or close levels, or divide them: behind the one of N letters at POS, or POS. */
static const char *divider(struct tn_sh *shell, const char *pos, size_t n)
{
    static const struct {
        const char *word;
        void (*fn)(struct tn_sh *shell);
    } words[] = {{"if", tn_sh_if},     {"then", tn_sh_then}, {"elif", tn_sh_elif},
                 {"else", tn_sh_else}, {"fi", close_if},     {"esac", close_case}};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (is_word(pos, n, words[i].word)) {
            words[i].fn(shell);
            return pos + n;
        }
    return loop_or_group(shell, pos, n);
}

/* A word of the shell's own at the beginning of a command: behind it, or POS. */
static const char *keyword(struct tn_sh *shell, const char *pos)
{
    static const char *const sets[] = {"export", "declare", "local", "readonly", "typeset", NULL};
    static const char *const passes[] = {"time", "exec", "nohup", "eval", "function", NULL};
    size_t n = strcspn(pos, " \t\r\n;");
    const char *next = skip(pos + n, false), *behind = tn_sh_function_at(shell, pos);

    if (behind == pos)
        behind = divider(shell, pos, n);

    if (behind != pos)
        return behind;
    if (pos[0] == '(' && pos[1] == '(')
        return arithmetic(shell, pos);
    if (pos[0] == '(') {
        tn_sh_group(shell, TN_SH_BRACKETS);
        return pos + 1;
    }
    if (is_word(pos, n, "case"))
        return case_of(shell, next);
    if (is_word(pos, n, "!")) {
        shell->negated = !shell->negated;
        return pos + n;
    }
    if (tn_sh_one_of(pos, n, sets)) {
        shell->declares = true;
        shell->local =
            is_word(pos, n, "local") || is_word(pos, n, "declare") || is_word(pos, n, "typeset");
        for (; *next == '-' || *next == '+'; next = skip(next + n, false)) {
            n = strcspn(next, " \t\r\n;");
            shell->local &= !memchr(next, 'g', n); /* declare -g */
        }
        return next;
    }
    if (n > 2 && pos[n - 1] == ')' && pos[n - 2] == '(') /* a function */
        return pos + n;
    if (n > 3 && !strncmp(pos + n - 3, "(){", 3)) /* and the brace that opens it */
        return pos + n - 1;
    return tn_sh_one_of(pos, n, passes) ? pos + n : pos;
}

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

static bool sets_what_it_names(const char *word)
{
    static const char *const words[] = {"read", "mapfile", "readarray", "getopts", "unset", NULL};

    return tn_sh_one_of(word, strlen(word), words);
}

/* export NAME, local NAME: without values. */
static void declare(struct tn_sh *shell, const struct tn_sh_list *command)
{
    for (size_t i = 0; shell->local && i < command->n; i++)
        if (tn_sh_name_length(command->v[i]) == strlen(command->v[i]) &&
            strlen(command->v[i]) < MAX_NAME) {
            tn_sh_local(shell, command->v[i]);
            tn_sh_unset(shell, command->v[i], false);
        }
}

/* A word of the list as others see it: the marks gone. */
static struct tn_word unmarked(const char *text)
{
    struct tn_word w = {.text = mem_alloc(strlen(text) + 1)};
    char *to = w.text;

    for (const char *p = text; *p; p++) {
        if (*p == MARK) {
            const char *end = strchr(p, ENDMARK);

            if (end && (!w.why || w.why == TN_WORD_MAYBE)) {
                w.why = (enum tn_word_why)p[1];
                free(w.unknown);
                w.unknown = tn_sh_copy(p + 2, (size_t)(end - p - 2));
            }
            p++;
        } else if (*p != ENDMARK) {
            *to++ = *p;
        }
    }
    *to = '\0';
    return w;
}

static void word_done(struct tn_word *word)
{
    free(word->text);
    free(word->unknown);
}

/* What FILE sets is not in this text. */
static void say_sourced(struct tn_sh *shell, const char *command, const char *file)
{
    struct tn_word name = unmarked(file);

    tn_finding_add(shell->ignored, command, "what %.100s sets is unknown here", name.text);
    word_done(&name);
}

/* Commands of the shell's own that change what it knows; false where COMMAND is another. */
static bool builtin(struct tn_sh *shell, const struct tn_sh_list *command)
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

static void commands(struct tn_sh *shell, const char *pos, int level);

/* The command line that a command holds, as after sh -c. */
static void read_within(struct tn_sh *shell, const char *text, int level)
{
    struct tn_sh_list pending = shell->pending;
    bool over = shell->over;

    shell->pending = (struct tn_sh_list){0};
    commands(shell, text, level + 1);
    tn_sh_list_done(&shell->pending);
    shell->pending = pending;
    shell->over = over; /* an exit there is another shell's */
    shell->last = NULL;
    shell->status = TN_SH_UNSURE;
}

/* Whether COMMAND, which is no function, succeeds. */
static enum tn_sh_truth status_of(struct tn_sh *shell, const struct tn_sh_list *command)
{
    const char *name = command->v[0];

    if (str_eq(name, "unset") || (str_eq(name, "set") && command->n > 1))
        return TN_SH_TRUE;
    return str_eq(name, "shift") ? tn_sh_shifts(shell, command) : tn_sh_test(command);
}

static void end_command(struct tn_sh *shell, struct tn_sh_list *cmd, int level)
{
    size_t at = shell->declares ? cmd->n : tn_sh_program_of(cmd);
    struct tn_sh_list *last = shell->last;
    bool runs = tn_sh_runs(shell) != TN_SH_FALSE, declares = shell->declares;

    shell->cut = shell->declares = false;
    if (cmd->n || shell->assigned)
        shell->piped = false;
    if (shell->r == 0 && runs && cmd->n && !declares && tn_sh_call_function(shell, cmd, level)) {
        shell->last = NULL;
        goto out;
    }
    if (shell->r == 0 && (cmd->n || shell->assigned))
        tn_sh_status(shell, !cmd->n    ? shell->assigned
                            : declares ? TN_SH_TRUE
                                       : status_of(shell, cmd));
    shell->assigned = TN_SH_FALSE;
    if (!cmd->n || shell->r < 0)
        goto out;
    shell->last = NULL;
    if (!runs)
        goto out;
    if (declares) {
        declare(shell, cmd);
    } else if (at < cmd->n) {
        tn_sh_take_program(shell, cmd, at);
    } else if (begins_arguments(cmd)) {
        shell->last = last && tn_sh_argument_first(cmd->v[0]) ? last : &shell->bare;
        tn_sh_take_words(shell->last, cmd, 0);
    } else if (!builtin(shell, cmd) && level < MAX_DEPTH && tn_sh_command_within(cmd)) {
        read_within(shell, tn_sh_command_within(cmd), level);
    }
out:
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

/* Behind a redirection and its file; the end of a here-document is kept. */
static const char *redirection(struct tn_sh *shell, const char *pos)
{
    bool here;

    pos += strspn(pos, "0123456789&");
    here = pos[0] == '<' && pos[1] == '<' && pos[2] != '<';
    if ((*pos == '<' || *pos == '>') && pos[1] == '(')
        return tn_sh_closing(shell, pos + 1);
    pos += strspn(pos, "<>&|-");
    pos = skip(pos, false);
    if (here)
        return tn_sh_word(shell, &shell->pending, pos, false, false);
    {
        struct tn_sh_list file = {0};

        pos = tn_sh_word(shell, &file, pos, false, tn_sh_in_brackets(shell));
        refuse_behind(shell, &file);
        tn_sh_list_done(&file);
    }
    return pos;
}

/* POS is at the beginning of a line: past the here-documents that the line before has opened. */
static const char *here_documents(struct tn_sh *shell, const char *pos)
{
    for (size_t i = 0; i < shell->pending.n; i++) {
        const char *from = pos, *end = shell->pending.v[i];

        while (*pos) {
            size_t n = strcspn(pos, "\n"), tabs = strspn(pos, "\t"),
                   bare = n - (n && pos[n - 1] == '\r');

            if (bare >= tabs && bare - tabs == strlen(end) && !memcmp(pos + tabs, end, bare - tabs))
                break;
            pos += n + (pos[n] == '\n');
        }
        if (!shell->within && tn_sh_runs(shell) != TN_SH_FALSE)
            tn_sh_list_add(&shell->here, tn_sh_copy(from, (size_t)(pos - from)));
        pos += strcspn(pos, "\n");
        pos += *pos == '\n';
    }
    tn_sh_list_done(&shell->pending);
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
    end_command(shell, cmd, level);
    shell->last = NULL;
    if (n == 2 && pos[0] == pos[1])
        tn_sh_join(shell, *pos);
    else if (*pos == '|')
        shell->joined = 0, shell->piped = true; /* what it succeeds with is its last command's */
    else
        tn_sh_list_begin(shell);
    return (n == 2 || *pos == '|') && !shell->pending.n ? skip(pos + n, true) : pos + n;
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

/* POS is at the end of a line, a semicolon, or the end: behind it. */
static const char *end_list(struct tn_sh *shell, struct tn_sh_list *cmd, const char *pos, int level)
{
    end_command(shell, cmd, level);
    tn_sh_list_begin(shell);
    if (pos[0] == ';' && (pos[1] == ';' || pos[1] == '&')) {
        tn_sh_case_end(shell, pos[1] == '&' || pos[2] == '&');
        return pos + 2 + (pos[1] == ';' && pos[2] == '&');
    }
    if (*pos == '\n')
        return here_documents(shell, pos + 1);
    return *pos ? pos + 1 : pos;
}

static void commands(struct tn_sh *shell, const char *pos, int level)
{
    struct tn_sh_list cmd = {0};
    size_t reading = shell->reading;

    shell->reading = ++shell->texts;
    while (shell->r == 0 && !shell->over) {
        const char *next;

        pos = skip(pos, shell->plain || in_test(&cmd));
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
        if (!cmd.n && tn_sh_at_pattern(shell) && !is_word(pos, strcspn(pos, " \t\r\n;"), "esac")) {
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
            next = assignment(shell, pos);
        if (next == pos && !cmd.n && !shell->plain)
            next = keyword(shell, pos);
        if (next == pos && shell->cut) {
            struct tn_sh_list dropped = {0};

            next = tn_sh_word(shell, &dropped, pos, true, tn_sh_in_brackets(shell));
            refuse_behind(shell, &dropped);
            tn_sh_list_done(&dropped);
        } else if (next == pos) {
            next = tn_sh_word(shell, &cmd, pos, true, tn_sh_in_brackets(shell));
        }
        pos = next;
    }
    shell->reading = reading;
    tn_sh_list_done(&cmd);
}

/* Without a command: the arguments that variables hold, if no other variable is made of them. */
static void take_variables(struct tn_sh *shell)
{
    for (size_t i = 0; i < shell->count && shell->r == 0; i++) {
        const struct tn_sh_variable *v = &shell->vars[i];

        if (v->used || !v->values.n || !tn_sh_argument_first(v->values.v[0]))
            continue;
        tn_sh_words_of(shell, &shell->args, v);
    }
}

/* Without a command: a degree that no argument has is for a part of the script that is not here. */
static void refuse_unused_degrees(struct tn_sh *shell)
{
    for (size_t i = 0; i < shell->count && shell->r == 0; i++) {
        const struct tn_sh_variable *v = &shell->vars[i];
        const char *value = v->values.n ? v->values.v[0] : "";

        /* the number of devices is the caller's, and replicas follow from it */
        if (v->used || v->array || strcasestr(v->name, "world") || strcasestr(v->name, "dp") ||
            !tn_import_is_degree(v->name, value))
            continue;
        shell->r = err_set(shell->e, -EINVAL,
                           "`%s=%.40s` is set, but no argument in this text uses it: is this the "
                           "whole script?",
                           v->name, value);
    }
}

void tn_words_done(struct tn_words *words)
{
    for (size_t i = 0; i < words->n; i++)
        word_done(&words->v[i]);
    free(words->v);
    *words = (struct tn_words){0};
}

static void give_words(struct tn_words *ret, const struct tn_sh_list *from)
{
    ret->v = mem_alloc((from->n + 1) * sizeof(*ret->v));
    for (size_t i = 0; i < from->n; i++)
        ret->v[i] = unmarked(from->v[i]);
    ret->n = from->n;
}

/* Does it begin with an argument, so that it is nothing but arguments? */
static bool is_plain(const char *text)
{
    text = skip(text, true);
    return str_starts(text + (*text == '"' || *text == '\''), "--");
}

/* Without a command: functions, which something else may call. */
static void read_uncalled(struct tn_sh *shell)
{
    for (size_t i = 0;
         i < shell->nfunctions && shell->r == 0 && !shell->program[0] && !shell->bare.n; i++) {
        AUTO_FREE char *body = mem_strdup(shell->functions[i].body);

        tn_sh_open(shell, TN_SH_BRACES);
        commands(shell, body, MAX_DEPTH - 1);
        tn_sh_levels_done(shell);
    }
}

/* Nothing in TEXT starts a program: perhaps what it was called with would. */
static void refuse_unstarted(struct tn_sh *shell, const char *text, const char *call)
{
    const char *first = skip(text, true);
    size_t length = strcspn(first, "\r\n");
    bool given = strstr(text, "$@") || strstr(text, "$*") || strstr(text, "$1");

    shell->r = err_set(shell->e, -EINVAL,
                       "expected a command that starts a .py program, or an argument that begins "
                       "with --, found `%.*s`; if the script calls another, import the final "
                       "command (bash -x shows it)%s",
                       length < 64 ? (int)length : 64, first,
                       call || !given ? ""
                                      : "; if its own arguments decide, say how it is called "
                                        "(--call \"bash job.sh ARGUMENT ...\")");
}

int tn_shell_arguments(struct tn_words *ret, struct tn_findings *ignored, const char *text,
                       const char *call, struct err *error)
{
    AUTO_FREE char *clean = mem_strdup(text);
    struct tn_sh s = {.ignored = ignored, .e = error, .chain = TN_SH_TRUE, .commands = commands};

    for (char *p = clean; *p; p++)
        if (*p == MARK || *p == ENDMARK)
            *p = ' ';
    s.plain = is_plain(clean);
    tn_sh_slurm(&s, clean);
    if (call)
        tn_sh_call(&s, call), tn_sh_own(&s, clean);
    commands(&s, clean, 0);
    tn_sh_levels_done(&s);
    if (s.over && s.r == 0 && !s.program[0] && !s.bare.n)
        s.r = err_set(error, -EINVAL, "the script exits before it starts a program");
    read_uncalled(&s);
    s.within = true;
    for (size_t i = 0; i < s.here.n && s.r == 0 && !s.program[0] && !s.bare.n; i++)
        commands(&s, s.here.v[i], MAX_DEPTH - 1);
    if (s.r == 0 && !s.program[0] && !s.bare.n) {
        take_variables(&s);
        if (!s.args.n && *skip(clean, true))
            refuse_unstarted(&s, clean, call);
    }
    if (s.r == 0 && !s.program[0])
        refuse_unused_degrees(&s);
    if (s.r == 0 && s.twice.code < 0)
        s.r = err_set(error, s.twice.code, "%s", s.twice.text);
    if (s.r == 0)
        give_words(ret, s.program[0] || !s.bare.n ? &s.args : &s.bare);
    snprintf(ret->program, sizeof(ret->program), "%s", s.program);
    ret->script = !s.plain;
    tn_sh_levels_done(&s);
    tn_sh_functions_done(&s);
    for (size_t i = 0; i < s.count; i++)
        tn_sh_list_done(&s.vars[i].values);
    free(s.vars);
    tn_sh_list_done(&s.args);
    tn_sh_list_done(&s.bare);
    tn_sh_list_done(&s.here);
    tn_sh_list_done(&s.pending);
    return s.r;
}
