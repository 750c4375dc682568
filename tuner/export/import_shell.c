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
    for (size_t i = 0; i < words->n + words->napart; i++)
        tn_sh_word_done(&words->v[i]);
    free(words->v);
    for (size_t i = 0; i < words->nfiles; i++) {
        free(words->files[i].name);
        free(words->files[i].text);
    }
    free(words->files);
    *words = (struct tn_words){0};
}

static void give_words(struct tn_words *ret, const struct tn_sh_list *from,
                       const struct tn_sh_list *apart)
{
    ret->v = mem_alloc((from->n + apart->n + 1) * sizeof(*ret->v));
    for (size_t i = 0; i < from->n; i++)
        ret->v[i] = tn_sh_unmarked(from->v[i]);
    for (size_t i = 0; i < apart->n; i++)
        ret->v[from->n + i] = tn_sh_unmarked(apart->v[i]);
    ret->n = from->n;
    ret->napart = apart->n;
}

static void give_files(struct tn_words *ret, const struct tn_sh_files *files)
{
    ret->files = mem_alloc((files->n + 1) * sizeof(*ret->files));
    for (size_t i = 0; i < files->n; i++) {
        struct tn_word name = tn_sh_unmarked(files->v[i].name);

        ret->files[i].name = TAKE(name.text);
        ret->files[i].text = files->v[i].text ? tn_sh_json(files->v[i].text) : NULL;
        tn_sh_word_done(&name);
    }
    ret->nfiles = files->n;
}

/* Does it begin with an argument, so that it is nothing but arguments? */
static bool is_plain(const char *text)
{
    text = tn_sh_skip(text, true);
    return str_starts(text + (*text == '"' || *text == '\''), "--");
}

/* Without a command: functions, which something else may call. */
static void read_uncalled(struct tn_sh *shell)
{
    for (size_t i = 0;
         i < shell->nfunctions && shell->r == 0 && !shell->program[0] && !shell->bare.n; i++) {
        AUTO_FREE char *body = mem_strdup(shell->functions[i].body);

        tn_sh_open(shell, TN_SH_BRACES);
        tn_sh_commands(shell, body, MAX_DEPTH - 1);
        tn_sh_levels_done(shell);
    }
}

/* Nothing in TEXT starts a program: perhaps what it was called with would. */
static void refuse_unstarted(struct tn_sh *shell, const char *text, const char *call)
{
    const char *first = tn_sh_skip(text, true);
    size_t length = strcspn(first, "\r\n");
    bool given = strstr(text, "$@") || strstr(text, "$*") || strstr(text, "$1");

    if (shell->unsure.code < 0) {
        shell->r = err_set(shell->e, shell->unsure.code, "%s", shell->unsure.text);
        return;
    }
    shell->r = err_set(shell->e, -EINVAL,
                       "expected a command that starts a .py program, or an argument that begins "
                       "with --, found `%.*s`; if the script calls another, import the final "
                       "command (bash -x shows it)%s",
                       length < 64 ? (int)length : 64, first,
                       call || !given ? ""
                                      : "; if its own arguments decide, say how it is called "
                                        "(--call \"bash job.sh ARGUMENT ...\")");
}

/* What reading has cost is kept. */
static void shell_done(struct tn_sh *shell)
{
    shell->paths->lookups = shell->lookups;
    shell->paths->bytes = shell->bytes;
    shell->paths->copied = shell->copied;
    tn_sh_levels_done(shell);
    tn_sh_functions_done(shell);
    for (size_t i = 0; i < shell->count; i++)
        tn_sh_list_done(&shell->vars[i].values);
    free(shell->vars);
    tn_sh_list_done(&shell->args);
    tn_sh_list_done(&shell->bare);
    tn_sh_list_done(&shell->apart);
    tn_sh_list_done(&shell->here);
    tn_sh_heres_done(&shell->pending);
    tn_sh_files_done(&shell->files);
    tn_sh_asides_done(&shell->asides);
    free(shell->string);
    free(shell->output);
}

int tn_shell_arguments(struct tn_words *ret, struct tn_findings *ignored, const char *text,
                       const char *call, struct tn_paths *paths, struct err *error)
{
    AUTO_FREE char *clean = mem_strdup(text);
    struct tn_sh s = {.ignored = ignored,
                      .e = error,
                      .chain = TN_SH_TRUE,
                      .lookups = paths->lookups,
                      .bytes = paths->bytes,
                      .copied = paths->copied,
                      .paths = paths,
                      .commands = tn_sh_commands};

    for (char *p = clean; *p; p++)
        if (*p == MARK || *p == ENDMARK)
            *p = ' ';
    s.plain = is_plain(clean);
    tn_sh_slurm(&s, clean);
    if (call)
        tn_sh_call(&s, call), tn_sh_own(&s, clean);
    tn_sh_commands(&s, clean, 0);
    tn_sh_levels_done(&s);
    if ((s.over || paths->nforked) && s.r == 0 && !s.program[0] && !s.bare.n) {
        if (!s.replaced)
            s.r = err_set(error, -EINVAL, "the script exits before it starts a program");
        paths->unstarted = true;
    }
    read_uncalled(&s);
    s.within = true;
    for (size_t i = 0; i < s.here.n && s.r == 0 && !s.program[0] && !s.bare.n; i++)
        tn_sh_commands(&s, s.here.v[i], MAX_DEPTH - 1);
    if (s.r == 0 && !s.program[0] && !s.bare.n) {
        take_variables(&s);
        if (!s.args.n && *tn_sh_skip(clean, true))
            refuse_unstarted(&s, clean, call);
    }
    if (s.r == 0 && !s.program[0])
        refuse_unused_degrees(&s);
    paths->starts = s.starts;
    paths->twice = s.twice;
    if (s.r == 0)
        give_words(ret, s.program[0] || !s.bare.n ? &s.args : &s.bare, &s.apart),
            give_files(ret, &s.files);
    snprintf(ret->program, sizeof(ret->program), "%s", s.program);
    ret->script = !s.plain;
    shell_done(&s);
    return s.r;
}
