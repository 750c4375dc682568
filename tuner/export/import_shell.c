/*
 * A shell script as the arguments of the program that it starts. Nothing is run: variables and
 * arrays that the script itself sets are put in their places, word by word as a shell splits them;
 * what only a shell could tell ($(…), a variable of the environment) stays as it is written
 * and is marked, so that a reader who needs the word refuses it by name.
 *
 * Branches are not taken. What is set within if, a loop, a case, braces, or behind && is marked as
 * maybe said.
 */
#include "tuner/export/shell.h"

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
    q = is_array ? array(shell, &values, q + 1) : tn_sh_word(shell, &values, q, false, false);
    tn_sh_assign(shell, name, &values, append, is_array);
    return q;
}

/* The first LEN characters of WORD, which may end before. */
static bool one_of(const char *word, size_t len, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strlen(words[i]) == len && !strncmp(words[i], word, len))
            return true;
    return false;
}

/* ((NAME = …)): what it sets is a shell's to compute. */
static const char *arithmetic(struct tn_sh *shell, const char *pos)
{
    const char *end = tn_sh_closing(shell, pos);

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

/* A word of the shell's own at the beginning of a command: behind it, or POS. */
static const char *keyword(struct tn_sh *shell, const char *pos)
{
    static const char *const opens[] = {"if",   "while", "until", "for", "select",
                                        "case", "{",     "(",     NULL};
    static const char *const closes[] = {"fi", "done", "esac", "}", ")", NULL};
    static const char *const in[] = {"in", NULL};
    static const char *const sets[] = {"export", "declare", "local", "readonly", "typeset", NULL};
    static const char *const passes[] = {"then", "else",  "elif", "do",       "!", "time",
                                         "exec", "nohup", "eval", "function", NULL};
    size_t n = strcspn(pos, " \t\r\n;");
    const char *next = skip(pos + n, false);

    if (shell->cases && n && pos[n - 1] == ')' && !one_of(pos, n, closes))
        return pos + n; /* a pattern of case */
    if (pos[0] == '(' && pos[1] == '(')
        return arithmetic(shell, pos);
    if (one_of(pos, n, opens)) {
        shell->depth++;
        if (n == 4) { /* case WORD in */
            struct tn_sh_list of = {0};

            shell->cases++;
            next = skip(tn_sh_word(shell, &of, next, false, false), true);
            tn_sh_list_done(&of);
            return one_of(next, 2, in) ? next + 2 : next;
        }
        if ((n == 3 || n == 6) && (isalpha((unsigned char)*next) || *next == '_')) {
            struct tn_sh_list each = {0}; /* for NAME, select NAME */
            char name[MAX_NAME];

            snprintf(name, sizeof(name), "%.*s", (int)tn_sh_name_length(next), next);
            tn_sh_list_add(&each, mem_strdup("?"));
            tn_sh_assign(shell, name, &each, false, false);
        }
        return pos + n;
    }
    if (one_of(pos, n, closes)) {
        shell->depth -= shell->depth > 0;
        shell->cases -= shell->cases > 0 && n == 4 && *pos == 'e';
        return pos + n;
    }
    if (one_of(pos, n, sets)) {
        while (*next == '-' || *next == '+')
            next = skip(next + strcspn(next, " \t\r\n;"), false);
        return next;
    }
    if (n > 2 && pos[n - 1] == ')' && pos[n - 2] == '(') /* a function */
        return pos + n;
    return one_of(pos, n, passes) ? pos + n : pos;
}

/* The last part of a path, behind what is not known of it. */
static const char *base_name(const char *word)
{
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word,
               *marked = strrchr(name, ENDMARK);

    return marked ? marked + 1 : name;
}

/* Commands that name programs and start none. */
static bool starts_nothing(const char *command)
{
    static const char *const words[] = {
        "echo",     "printf",   "[",      "[[",    "test",   "ls",     "cp",        "mv",
        "ln",       "rm",       "cat",    "mkdir", "rmdir",  "touch",  "chmod",     "chown",
        "head",     "tail",     "tee",    "grep",  "egrep",  "sed",    "awk",       "cut",
        "sort",     "wc",       "diff",   "cmp",   "find",   "stat",   "file",      "du",
        "dirname",  "basename", "pwd",    "git",   "pip",    "pip3",   "wget",      "curl",
        "tar",      "unzip",    "rsync",  "scp",   "cd",     "pushd",  "popd",      "which",
        "type",     "hash",     "trap",   "kill",  "pkill",  "pgrep",  "ps",        "sleep",
        "wait",     "set",      "unset",  "alias", "exit",   "return", "md5sum",    "sha256sum",
        "realpath", "readlink", "source", ".",     "logger", "patch",  "dos2unix",  "vim",
        "nano",     "less",     "more",   "true",  "false",  ":",      "conda",     "module",
        "isort",    "black",    "ruff",   "mypy",  "flake8", "pylint", "autoflake", "shift",
        NULL};

    return one_of(command, strlen(command), words);
}

/* Programs that start others, or the text of a command. */
static bool starts_others(const char *command)
{
    static const char *const words[] = {
        "torchrun",  "deepspeed", "accelerate", "ft_launcher", "srun",   "mpirun",  "mpiexec",
        "jsrun",     "aprun",     "flux",       "bash",        "sh",     "zsh",     "dash",
        "env",       "sudo",      "su",         "exec",        "eval",   "nohup",   "time",
        "timeout",   "nice",      "numactl",    "taskset",     "stdbuf", "nsys",    "ncu",
        "rocprof",   "ssh",       "pdsh",       "docker",      "podman", "enroot",  "singularity",
        "apptainer", "uv",        "poetry",     "coverage",    "torchx", "ray",     "tmux",
        "screen",    "xargs",     "sbatch",     "bsub",        "qsub",   "kubectl", "launch",
        "run",       NULL};

    return str_starts(command, "python") || one_of(command, strlen(command), words);
}

static bool is_program(const char *word)
{
    return str_ends(word, ".py") && !word[strcspn(word, " \t\n")];
}

/* Is the word at AT of CMD run, rather than a file that an unknown command is given? */
static bool is_started(const struct tn_sh_list *cmd, size_t at)
{
    if (at == 0 || strchr(cmd->v[0], MARK))
        return true;
    for (size_t i = 0; i < at; i++) {
        if (i && !strcmp(cmd->v[i], "-c"))
            return false; /* python -c TEXT: what follows is given to the text */
        if (starts_others(base_name(cmd->v[i])))
            return true;
    }
    for (size_t i = at + 1; i < cmd->n; i++)
        if (tn_sh_argument_first(cmd->v[i]))
            return true;
    return false;
}

/* Which of CMD is the program that is started, or its size. A launcher may be a program, too. */
static size_t program_of(const struct tn_sh_list *cmd)
{
    size_t first = cmd->n;

    if (!cmd->n || starts_nothing(base_name(cmd->v[0])))
        return cmd->n;
    for (size_t i = 0; i < cmd->n; i++) {
        if (i && !strcmp(cmd->v[i], "-c") && str_starts(base_name(cmd->v[i - 1]), "python"))
            return cmd->n;
        if (!is_program(cmd->v[i]) || !is_started(cmd, i))
            continue;
        if (first == cmd->n)
            first = i;
        if (str_starts(base_name(cmd->v[i]), "pretrain") &&
            (i == 0 || !tn_sh_argument_first(cmd->v[i - 1])))
            return i;
    }
    return first;
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

static void take_words(struct tn_sh_list *to, const struct tn_sh_list *from, size_t first)
{
    for (size_t i = first; i < from->n; i++)
        tn_sh_list_add(to, mem_strdup(from->v[i]));
}

/* Which of several programs trains: by its name, and by whether it is told of a layout. */
static int rank_of(const char *name, const struct tn_sh_list *args)
{
    int rank = str_starts(name, "pretrain") ? 2 : 0;

    for (size_t i = 0; i < args->n; i++)
        if (str_starts(args->v[i], "--tensor-model-parallel-size") ||
            str_starts(args->v[i], "--micro-batch-size"))
            return rank + 1;
    return rank;
}

static bool same_words(const struct tn_sh_list *left, const struct tn_sh_list *right)
{
    for (size_t i = 0; i < left->n && left->n == right->n; i++)
        if (strcmp(left->v[i], right->v[i]))
            return false;
    return left->n == right->n;
}

static void take_program(struct tn_sh *shell, const struct tn_sh_list *cmd, size_t at)
{
    const char *name = base_name(cmd->v[at]);
    struct tn_sh_list args = {0};
    int rank;

    take_words(&args, cmd, at + 1);
    rank = rank_of(name, &args);
    if (shell->program[0] && rank == rank_of(shell->program, &shell->args) &&
        !(str_eq(shell->program, name) && same_words(&args, &shell->args)))
        shell->r =
            str_eq(shell->program, name)
                ? err_set(shell->e, -EINVAL,
                          "the script starts %.64s twice, with different arguments: keep the "
                          "one that trains",
                          name)
                : err_set(shell->e, -EINVAL,
                          "the script starts both %s and %.64s: keep the one that trains",
                          shell->program, name);
    if (shell->r == 0 && (!shell->program[0] || rank > rank_of(shell->program, &shell->args))) {
        snprintf(shell->program, sizeof(shell->program), "%s", name);
        tn_sh_list_done(&shell->args);
        shell->args = args;
        args = (struct tn_sh_list){0};
        shell->last = &shell->args;
    }
    tn_sh_list_done(&args);
}

static void commands(struct tn_sh *shell, const char *pos, int level);

static bool is_shell(const char *command)
{
    static const char *const words[] = {"bash", "sh", "zsh", "dash", "ksh", NULL};

    return one_of(command, strlen(command), words);
}

/* A word that is a command line itself, as after sh -c. */
static const char *command_within(const struct tn_sh_list *cmd)
{
    for (size_t i = 1; i + 1 < cmd->n; i++)
        if (cmd->v[i][0] == '-' && str_ends(cmd->v[i], "c") && is_shell(base_name(cmd->v[i - 1])) &&
            !starts_nothing(base_name(cmd->v[0])))
            return cmd->v[i + 1];
    /* A text in place of the command's name is what eval is given. */
    if (!starts_others(base_name(cmd->v[0])) && !strchr(cmd->v[0], MARK) &&
        !cmd->v[0][strcspn(cmd->v[0], " \t\n")])
        return NULL;
    for (size_t i = 0; i < cmd->n; i++)
        for (const char *p = strstr(cmd->v[i], ".py"); p; p = strstr(p + 1, ".py"))
            if (isspace((unsigned char)p[3]) || (p[3] && strchr("\"'", p[3]) && p[4]))
                return cmd->v[i];
    return NULL;
}

static bool sets_what_it_names(const char *word)
{
    static const char *const words[] = {"read", "mapfile", "readarray", "getopts", "unset", NULL};

    return one_of(word, strlen(word), words);
}

static void end_command(struct tn_sh *shell, struct tn_sh_list *cmd, int level)
{
    size_t at = program_of(cmd);
    struct tn_sh_list *last = shell->last;

    shell->cut = false;
    if (!cmd->n || shell->r < 0)
        goto out;
    shell->last = NULL;
    if (at < cmd->n) {
        take_program(shell, cmd, at);
    } else if (begins_arguments(cmd)) {
        shell->last = last && tn_sh_argument_first(cmd->v[0]) ? last : &shell->bare;
        take_words(shell->last, cmd, 0);
    } else if (level < MAX_DEPTH && command_within(cmd)) {
        commands(shell, command_within(cmd), level + 1);
        shell->last = NULL;
    } else if (cmd->n > 1 && str_eq(cmd->v[0], "set") && str_eq(cmd->v[1], "--")) {
        struct tn_sh_list given = {0};

        take_words(&given, cmd, 2);
        tn_sh_assign(shell, "@", &given, false, true);
    } else if (sets_what_it_names(cmd->v[0])) {
        for (size_t i = 1; i < cmd->n; i++)
            tn_sh_forget(shell, cmd->v[i]);
    } else if (cmd->n > 1 && (str_eq(cmd->v[0], "source") || str_eq(cmd->v[0], "."))) {
        tn_finding_add(shell->ignored, cmd->v[0], "what %.100s sets is unknown here", cmd->v[1]);
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

    if (shell->cut || (program_of(cmd) == cmd->n && !begins_arguments(cmd)))
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

        pos = tn_sh_word(shell, &file, pos, false, false);
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
        if (!shell->within)
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
    shell->chained = n == 2 && pos[0] == pos[1];
    return pos + n;
}

static void commands(struct tn_sh *shell, const char *pos, int level)
{
    struct tn_sh_list cmd = {0};

    while (shell->r == 0) {
        const char *next;

        pos = skip(pos, shell->plain);
        if (*pos == '#') {
            pos += strcspn(pos, "\n");
            continue;
        }
        if (!*pos || *pos == '\n' || *pos == ';') {
            end_command(shell, &cmd, level);
            shell->chained = false;
            if (!*pos)
                break;
            pos = *pos == '\n' ? here_documents(shell, pos + 1) : pos + 1;
            continue;
        }
        next = operator_at(shell, &cmd, pos, level);
        if (next == pos && is_redirection(pos)) {
            cut(shell, &cmd, pos);
            next = redirection(shell, pos);
        }
        if (next == pos && !cmd.n)
            next = assignment(shell, pos);
        if (next == pos && !cmd.n && !shell->plain)
            next = keyword(shell, pos);
        if (next == pos && shell->cut) {
            struct tn_sh_list dropped = {0};

            next = tn_sh_word(shell, &dropped, pos, true, false);
            refuse_behind(shell, &dropped);
            tn_sh_list_done(&dropped);
        } else if (next == pos) {
            next = tn_sh_word(shell, &cmd, pos, true, false);
        }
        pos = next;
    }
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

void tn_words_done(struct tn_words *words)
{
    for (size_t i = 0; i < words->n; i++) {
        free(words->v[i].text);
        free(words->v[i].unknown);
    }
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

int tn_shell_arguments(struct tn_words *ret, struct tn_findings *ignored, const char *text,
                       struct err *error)
{
    AUTO_FREE char *clean = mem_strdup(text);
    struct tn_sh s = {.ignored = ignored, .e = error};

    for (char *p = clean; *p; p++)
        if (*p == MARK || *p == ENDMARK)
            *p = ' ';
    s.plain = is_plain(clean);
    commands(&s, clean, 0);
    s.within = true;
    for (size_t i = 0; i < s.here.n && s.r == 0 && !s.program[0] && !s.bare.n; i++)
        commands(&s, s.here.v[i], MAX_DEPTH - 1);
    if (s.r == 0 && !s.program[0] && !s.bare.n) {
        const char *first = skip(clean, true);
        size_t length = strcspn(first, "\r\n");

        take_variables(&s);
        if (!s.args.n && *first)
            s.r = err_set(error, -EINVAL,
                          "expected a command that starts a .py program, or an argument that "
                          "begins with --, found `%.*s`; if the script calls another, import the "
                          "final command (bash -x shows it)",
                          length < 64 ? (int)length : 64, first);
    }
    if (s.r == 0 && !s.program[0])
        refuse_unused_degrees(&s);
    if (s.r == 0)
        give_words(ret, s.program[0] || !s.bare.n ? &s.args : &s.bare);
    snprintf(ret->program, sizeof(ret->program), "%s", s.program);
    ret->script = !s.plain;
    for (size_t i = 0; i < s.count; i++)
        tn_sh_list_done(&s.vars[i].values);
    free(s.vars);
    tn_sh_list_done(&s.args);
    tn_sh_list_done(&s.bare);
    tn_sh_list_done(&s.here);
    tn_sh_list_done(&s.pending);
    return s.r;
}
