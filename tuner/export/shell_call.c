/*
 * What a job script is given when it is started: its arguments and variables of its environment,
 * as the command line says that starts it, and the variables that Slurm makes of the options of
 * sbatch, there or in the script's #SBATCH lines (sbatch(1), "output environment variables").
 */
#include "tuner/export/shell_flow.h"

/* Sets NAME to VALUE, which the environment gives. */
static void set(struct tn_sh *shell, const char *name, const char *value)
{
    struct tn_sh_list values = {0};
    struct tn_sh_variable *v;

    tn_sh_list_add(&values, mem_strdup(value));
    tn_sh_assign(shell, name, &values, false, false);
    v = tn_sh_find(shell, name);
    if (v)
        v->used = true; /* a degree that the script does not read is none of its own */
}

static bool is_number(const char *text)
{
    return *text && !text[strspn(text, "0123456789")];
}

static const struct {
    const char *option, *letter;
    const char *names[3];
    bool text; /* the value may be other than a number */
} slurm_options[] = {
    {"--nodes", "-N", {"SLURM_JOB_NUM_NODES", "SLURM_NNODES", NULL}, false},
    {"--ntasks", "-n", {"SLURM_NTASKS", "SLURM_NPROCS", NULL}, false},
    {"--ntasks-per-node", NULL, {"SLURM_NTASKS_PER_NODE", NULL}, false},
    {"--gpus-per-node", NULL, {"SLURM_GPUS_PER_NODE", NULL}, false},
    {"--gpus", "-G", {"SLURM_GPUS", NULL}, false},
    {"--cpus-per-task", "-c", {"SLURM_CPUS_PER_TASK", NULL}, false},
    {"--job-name", "-J", {"SLURM_JOB_NAME", NULL}, true},
};

/* --export=ALL,NAME=value,… */
static void exported(struct tn_sh *shell, const char *list)
{
    AUTO_FREE char *copy = mem_strdup(list);
    char *rest = copy;

    for (char *part; (part = strsep(&rest, ","));) {
        char *equals = strchr(part, '=');

        if (!equals || (size_t)(equals - part) != tn_sh_name_length(part) ||
            equals - part >= MAX_NAME)
            continue;
        *equals = '\0';
        set(shell, part, equals + 1);
    }
}

/* The option of sbatch at AT of WORDS. Returns how many words it and its value are. */
static size_t slurm_option(struct tn_sh *shell, const struct tn_sh_list *words, size_t at)
{
    const char *word = words->v[at], *next = at + 1 < words->n ? words->v[at + 1] : "";

    if (str_starts(word, "--export=")) {
        exported(shell, word + strlen("--export="));
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(slurm_options); i++) {
        const char *option = slurm_options[i].option, *letter = slurm_options[i].letter;
        size_t length = strlen(option);
        bool apart = str_eq(word, option) || (letter && str_eq(word, letter));
        const char *value = apart                                             ? next
                            : str_starts(word, option) && word[length] == '=' ? word + length + 1
                            : letter && str_starts(word, letter) && word[1] != '-' ? word + 2
                                                                                   : NULL;

        if (!value)
            continue;
        for (int k = 0; slurm_options[i].names[k]; k++) {
            if (slurm_options[i].text || is_number(value))
                set(shell, slurm_options[i].names[k], value);
            else
                tn_sh_unset(shell, slurm_options[i].names[k], true);
        }
        return apart ? 2 : 1;
    }
    return 1;
}

/* #SBATCH lines end where commands begin. */
void tn_sh_slurm(struct tn_sh *shell, const char *text)
{
    while (*text == '#' || isspace((unsigned char)*text)) {
        size_t length = strcspn(text, "\n");

        if (str_starts(text, "#SBATCH") && isspace((unsigned char)text[7])) {
            AUTO_FREE char *line = tn_sh_copy(text + 7, length - 7);
            struct tn_sh_list words = {0};
            char *rest = line;

            for (char *word; (word = strsep(&rest, " \t\r")) && *word != '#';)
                if (*word)
                    tn_sh_list_add(&words, mem_strdup(word));
            for (size_t i = 0; i < words.n;)
                i += slurm_option(shell, &words, i);
            tn_sh_list_done(&words);
        }
        text += length + (text[length] == '\n');
    }
}

/* NAME, LENGTH letters, holds nothing unless it is set by now, or elsewhere. */
static void own(struct tn_sh *shell, const char *text, size_t length)
{
    char name[MAX_NAME];

    if (!length || length >= MAX_NAME || (!isalpha((unsigned char)*text) && *text != '_'))
        return;
    snprintf(name, sizeof(name), "%.*s", (int)length, text);
    if (!tn_sh_find(shell, name) && !tn_sh_is_set_outside(name))
        tn_sh_presume(shell, name);
}

/* The words behind `read` and the like at POS that are names, up to the end of the command. */
static void own_named(struct tn_sh *shell, const char *pos)
{
    for (pos += strspn(pos, " \t"); *pos && !strchr("\r\n;|&<>", *pos); pos += strspn(pos, " \t")) {
        size_t n = strcspn(pos, " \t\r\n;|&<>");

        if (tn_sh_name_length(pos) == n)
            own(shell, pos, n);
        pos += n;
    }
}

/* May a command begin at POS of TEXT? Behind NAME=…, ;, & or |, or on a line of its own. */
static bool at_command(const char *text, const char *pos)
{
    const char *word = pos;

    while (word > text && strchr(" \t", word[-1]))
        word--;
    if (word == text || strchr("\n;&|({", word[-1]))
        return true;
    for (pos = word; word > text && !isspace((unsigned char)word[-1]);)
        word--;
    return tn_sh_name_length(word) < (size_t)(pos - word) && word[tn_sh_name_length(word)] == '=';
}

/* NAME=… that begins a word of TEXT, and what read, readarray and mapfile name. */
void tn_sh_own(struct tn_sh *shell, const char *text)
{
    static const char *const readers[] = {"read", "readarray", "mapfile", NULL};

    for (const char *p = text; *p && shell->r == 0;) {
        size_t n = isalpha((unsigned char)*p) || *p == '_' ? tn_sh_name_length(p) : 0;
        const char *end = p + n + (n && p[n] == '+');
        bool begins = p == text || isspace((unsigned char)p[-1]) || p[-1] == ';';

        if (begins && *end == '=')
            own(shell, p, n);
        else if (begins && tn_sh_one_of(p, n, readers) && at_command(text, p))
            own_named(shell, end);
        p += n ? n : 1;
    }
}

static bool is_launcher(const char *word)
{
    static const char *const words[] = {"bash", "sh", "sbatch", "source", ".", "env", "srun", NULL};

    return tn_sh_one_of(word, strlen(word), words);
}

static bool is_script(const char *word)
{
    static const char *const endings[] = {".sh",     ".bash", ".slurm", ".sbatch",
                                          ".submit", ".job",  ".pbs"};

    for (size_t i = 0; i < ARRAY_LEN(endings); i++)
        if (str_ends(word, endings[i]))
            return true;
    return false;
}

/* NAME=value of WORD, if it is one. */
static bool set_word(struct tn_sh *shell, const char *word)
{
    const char *equals = strchr(word, '=');
    char name[MAX_NAME];

    if (!equals || equals == word || isdigit((unsigned char)*word) ||
        (size_t)(equals - word) != tn_sh_name_length(word) || equals - word >= MAX_NAME)
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)(equals - word), word);
    set(shell, name, equals + 1);
    return true;
}

/* The words of CALL to WORDS. */
static void split(struct tn_sh *shell, struct tn_sh_list *words, const char *call)
{
    while (shell->r == 0) {
        call += strspn(call, " \t\r\n;");
        if (!*call)
            break;
        call = tn_sh_word(shell, words, call, true, false);
    }
}

void tn_sh_call(struct tn_sh *shell, const char *call)
{
    struct tn_sh_list words = {0}, given = {0};
    size_t at = 0, script;

    split(shell, &words, call);
    while (at < words.n && set_word(shell, words.v[at]))
        at++;
    script = at;
    if (at < words.n && is_launcher(words.v[at]))
        while (script < words.n && !is_script(words.v[script]))
            script++;
    if (shell->r == 0 && script == words.n)
        shell->r = err_set(shell->e, -EINVAL,
                           "the call `%.64s` names no script: write it as it is typed, as in "
                           "\"TP=4 bash job.sh 8b\"",
                           call);
    while (shell->r == 0 && at < script)
        at += str_starts(words.v[at], "-") ? slurm_option(shell, &words, at)
                                           : (set_word(shell, words.v[at]), 1);
    if (shell->r == 0) {
        tn_sh_take_words(&given, &words, script + 1);
        tn_sh_assign(shell, "@", &given, false, true);
        if (shell->paths->assumed)
            tn_sh_find(shell, "@")->presumed = true;
    }
    tn_sh_list_done(&words);
}
