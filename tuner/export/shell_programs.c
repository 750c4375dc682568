/*
 * Which command of a shell script starts the program that trains.
 */
#include "tuner/export/shell_flow.h"

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

    return tn_sh_one_of(command, strlen(command), words);
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

    return str_starts(command, "python") || tn_sh_one_of(command, strlen(command), words);
}

static bool is_program(const char *word)
{
    const char *marked = strrchr(word, ENDMARK); /* $(dirname $0)/pretrain_gpt.py */

    if (marked)
        word = marked + 1;
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

size_t tn_sh_program_of(const struct tn_sh_list *cmd)
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

static void keep_program(struct tn_sh *shell, const char *name, struct tn_sh_list *taken)
{
    snprintf(shell->program, sizeof(shell->program), "%s", name);
    tn_sh_list_done(&shell->args);
    shell->args = *taken;
    *taken = (struct tn_sh_list){0};
    shell->last = &shell->args;
}

/* NAME trains as well as the program that is kept, by other arguments, which are taken if this is
 * the start to read. */
static void note_twice(struct tn_sh *shell, const char *name, struct tn_sh_list *args)
{
    if (shell->twice.code == 0)
        (void)(str_eq(shell->program, name)
                   ? err_set(&shell->twice, -EINVAL,
                             "the script starts %.64s twice, with different arguments: keep the "
                             "one that trains",
                             name)
                   : err_set(&shell->twice, -EINVAL,
                             "the script starts both %s and %.64s: keep the one that trains",
                             shell->program, name));
    if (++shell->starts == shell->paths->start)
        keep_program(shell, name, args);
}

static bool same_words(const struct tn_sh_list *left, const struct tn_sh_list *right)
{
    for (size_t i = 0; i < left->n && left->n == right->n; i++)
        if (strcmp(left->v[i], right->v[i]))
            return false;
    return left->n == right->n;
}

void tn_sh_take_program(struct tn_sh *shell, const struct tn_sh_list *cmd, size_t at)
{
    const char *name = base_name(cmd->v[at]);
    struct tn_sh_list args = {0};
    int rank;

    if (tn_sh_runs(shell) == TN_SH_UNSURE)
        tn_sh_effect(shell, TN_PATH_PROGRAM);
    tn_sh_take_words(&args, cmd, at + 1);
    rank = rank_of(name, &args);
    if (shell->program[0] && rank == rank_of(shell->program, &shell->args) &&
        !(str_eq(shell->program, name) && same_words(&args, &shell->args)))
        note_twice(shell, name, &args);
    else if (shell->r == 0 &&
             (!shell->program[0] || rank > rank_of(shell->program, &shell->args))) {
        keep_program(shell, name, &args);
        shell->twice = (struct err){0};
        shell->starts = 0;
    }
    tn_sh_list_done(&args);
}

static bool is_shell(const char *command)
{
    static const char *const words[] = {"bash", "sh", "zsh", "dash", "ksh", NULL};

    return tn_sh_one_of(command, strlen(command), words);
}

const char *tn_sh_command_within(const struct tn_sh_list *cmd)
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
