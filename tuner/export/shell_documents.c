/*
 * Here-documents of a shell script, and the files that it writes with cat, tee and echo: DeepSpeed
 * is configured by such a file. A file that anything else writes, or that is written under a
 * condition, is known by its name alone.
 */
#include "tuner/export/shell_flow.h"

#include <assert.h>

enum { MAX_FILES = 64, MAX_FILE = 64 << 10 };

void tn_sh_heres_done(struct tn_sh_heres *heres)
{
    for (size_t i = 0; i < heres->n; i++) {
        free(heres->v[i].end);
        free(heres->v[i].file);
    }
    free(heres->v);
    *heres = (struct tn_sh_heres){0};
}

void tn_sh_files_done(struct tn_sh_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        free(files->v[i].name);
        free(files->v[i].text);
    }
    free(files->v);
    *files = (struct tn_sh_files){0};
}

static struct tn_sh_file *file_of(struct tn_sh *shell, const char *name)
{
    for (size_t i = 0; i < shell->files.n; i++)
        if (str_eq(shell->files.v[i].name, name))
            return &shell->files.v[i];
    return NULL;
}

bool tn_sh_written_file(const char **ret, struct tn_sh *shell, const char *name)
{
    for (size_t i = 0; i < shell->files.n; i++) {
        const char *own = shell->files.v[i].name;

        if (str_eq(own + 2 * str_starts(own, "./"), name + 2 * str_starts(name, "./"))) {
            *ret = shell->files.v[i].text;
            return true;
        }
    }
    return false;
}

/* TEXT, which is taken, goes to the file NAME; NULL: only a shell could tell what does. */
static void write_file(struct tn_sh *shell, const char *name, char *text, bool append)
{
    struct tn_sh_file *file = file_of(shell, name);
    struct tn_sh_files *files = &shell->files;
    AUTO_FREE char *before = NULL;
    bool again = file != NULL;

    if (!file && files->n == MAX_FILES) {
        free(text);
        return;
    }
    if (!file) {
        files->v = mem_realloc(files->v, (files->n + 1) * sizeof(*files->v));
        file = &files->v[files->n++];
        /* what was in it before the script appends to it is not known */
        *file = (struct tn_sh_file){.name = mem_strdup(name)};
    }
    before = file->text;
    file->text = NULL;
    if (text && append && before && strlen(before) + strlen(text) < MAX_FILE)
        file->text = mem_printf("%s%s", before, text);
    else if (text && !append)
        file->text = TAKE(text);
    free(text);
    /* a program that runs by now had another text of it than a later one */
    if (again && shell->program[0] && !(before && str_eq(file->text, before))) {
        free(file->text);
        file->text = NULL;
    }
}

const char *tn_sh_here(struct tn_sh *shell, const char *pos)
{
    struct tn_sh_heres *pending = &shell->pending;
    struct tn_sh_list end = {0};
    bool tabs = *pos == '-';
    const char *word = tn_sh_skip(pos + tabs, false), *behind;

    behind = tn_sh_word(shell, &end, word, false, false);
    if (end.n == 1) {
        pending->v = mem_realloc(pending->v, (pending->n + 1) * sizeof(*pending->v));
        pending->v[pending->n++] =
            (struct tn_sh_here){.end = mem_strdup(end.v[0]),
                                .tabs = tabs,
                                .quoted = strcspn(word, "'\"\\") < (size_t)(behind - word),
                                .runs = tn_sh_runs(shell)};
    }
    tn_sh_list_done(&end);
    return behind;
}

/* The lines of a here-document from POS to END, without tabs at their beginnings if TABS. */
static char *lines_of(const char *pos, const char *end, bool tabs)
{
    AUTO_STR text = {0};

    while (pos < end) {
        const char *line = memchr(pos, '\n', (size_t)(end - pos));
        size_t skip = tabs ? strspn(pos, "\t") : 0;

        line = line ? line + 1 : end;
        str_addf(&text, "%.*s", (int)(line - pos - (ptrdiff_t)skip), pos + skip);
        pos = line;
    }
    return str_take(&text);
}

const char *tn_sh_heres(struct tn_sh *shell, const char *pos)
{
    struct tn_sh_heres heres = shell->pending;

    assert(!heres.n || heres.v[heres.n - 1].given); /* the line has ended its commands */
    shell->pending = (struct tn_sh_heres){0};
    for (size_t i = 0; i < heres.n; i++) {
        const struct tn_sh_here *here = &heres.v[i];
        const char *from = pos;

        while (*pos) {
            size_t n = strcspn(pos, "\n"), tabs = strspn(pos, "\t"),
                   bare = n - (n && pos[n - 1] == '\r');

            if (bare >= tabs && bare - tabs == strlen(here->end) &&
                !memcmp(pos + tabs, here->end, bare - tabs))
                break;
            pos += n + (pos[n] == '\n');
        }
        if (!shell->within && here->runs != TN_SH_FALSE) {
            tn_sh_list_add(&shell->here, tn_sh_copy(from, (size_t)(pos - from)));
            if (here->file) {
                AUTO_FREE char *text = lines_of(from, pos, here->tabs);

                write_file(shell, here->file,
                           here->runs != TN_SH_TRUE ? NULL
                           : here->quoted           ? TAKE(text)
                                                    : tn_sh_expanded(shell, text),
                           here->append);
            }
        }
        pos += strcspn(pos, "\n");
        pos += *pos == '\n';
    }
    tn_sh_heres_done(&heres);
    return pos;
}

void tn_sh_output(struct tn_sh *shell, const char *file, bool append)
{
    assert(file != shell->output);
    free(shell->output);
    shell->output = mem_strdup(file);
    shell->append = append;
}

/* The here-document that COMMAND is given goes to FILE; false where there is none. */
static bool copies_here(struct tn_sh *shell, const char *file, bool append)
{
    struct tn_sh_heres *pending = &shell->pending;
    struct tn_sh_here *here = pending->n ? &pending->v[pending->n - 1] : NULL;

    if (!here || (here->given && !here->piped))
        return false;
    free(here->file);
    here->file = mem_strdup(file);
    here->append = append;
    here->runs = tn_sh_runs(shell);
    return true;
}

/* What `echo WORDS` prints; NULL: not known here. */
static char *printed(const struct tn_sh_list *command)
{
    AUTO_STR text = {0};

    if (!str_eq(command->v[0], "echo") || (command->n > 1 && command->v[1][0] == '-'))
        return NULL;
    for (size_t i = 1; i < command->n; i++)
        str_addf(&text, "%s%s", i > 1 ? " " : "", command->v[i]);
    str_addc(&text, '\n');
    return str_take(&text);
}

/* A file that is there by now is changed by COMMAND, which names it last: sed -i, mv, cp. */
static bool changes_last(const struct tn_sh_list *command)
{
    static const char *const words[] = {"sed", "mv", "cp", "perl", NULL};

    return command->n > 1 && tn_sh_one_of(command->v[0], strlen(command->v[0]), words);
}

void tn_sh_written(struct tn_sh *shell, const struct tn_sh_list *command)
{
    enum tn_sh_truth runs = tn_sh_runs(shell);
    AUTO_FREE char *file = shell->output;
    const char *last = command->n ? command->v[command->n - 1] : "";

    shell->output = NULL;
    if (command->n && runs != TN_SH_FALSE) {
        bool copies = (str_eq(command->v[0], "cat") && command->n == 1 && file &&
                       copies_here(shell, file, shell->append)) ||
                      (str_eq(command->v[0], "tee") && command->n > 1 &&
                       copies_here(shell, last, str_eq(command->v[1], "-a")));

        if (!copies && file)
            write_file(shell, file, runs == TN_SH_TRUE ? printed(command) : NULL, shell->append);
        if (changes_last(command) && file_of(shell, last))
            write_file(shell, last, NULL, false);
    }
    for (size_t i = 0; i < shell->pending.n; i++) {
        struct tn_sh_here *here = &shell->pending.v[i];

        here->piped = !here->given && shell->pipes && command->n == 1 &&
                      str_eq(command->v[0], "cat") && !file;
        here->given = true;
    }
}
