/*
 * Functions and groups of a shell script. A function is kept where it is defined and read where it
 * is called.
 */
#include "tuner/export/shell_flow.h"

#include <assert.h>

enum { MAX_CALLS = 12 };

/* ---- definitions --------------------------------------------------------- */

static struct tn_sh_function *function_of(struct tn_sh *shell, const char *name)
{
    for (size_t i = 0; i < shell->nfunctions; i++)
        if (str_eq(shell->functions[i].name, name))
            return &shell->functions[i];
    return NULL;
}

/* END is behind its brace. */
static void define(struct tn_sh *shell, const char *name, const char *from, const char *end)
{
    struct tn_sh_function *function = function_of(shell, name);

    if (!function && shell->nfunctions == MAX_VARIABLES)
        return;
    if (!function) {
        shell->functions =
            mem_realloc(shell->functions, (shell->nfunctions + 1) * sizeof(*shell->functions));
        function = &shell->functions[shell->nfunctions++];
        *function = (struct tn_sh_function){0};
        snprintf(function->name, sizeof(function->name), "%s", name);
    }
    free(function->body);
    function->body = tn_sh_copy(from, (size_t)(end - from) - 1);
}

/* ---- groups -------------------------------------------------------------- */

void tn_sh_group(struct tn_sh *shell, enum tn_sh_kind kind)
{
    struct tn_sh_level *level;
    bool piped = shell->piped;

    tn_sh_open(shell, kind);
    if (shell->r < 0)
        return;
    level = &shell->level[shell->depth - 1];
    level->exact = true;
    level->piped = piped;
    level->runs = level->base;
    tn_sh_keep(&level->before, shell);
}

bool tn_sh_in_brackets(const struct tn_sh *shell)
{
    for (int i = shell->depth - 1; i >= 0 && shell->level[i].kind != TN_SH_CALL; i--)
        if (shell->level[i].kind == TN_SH_BRACKETS)
            return shell->level[i].reading == shell->reading;
    return false;
}

void tn_sh_group_end(struct tn_sh *shell, enum tn_sh_kind kind, const char *pos)
{
    struct tn_sh_level *level = tn_sh_inside(shell, kind);
    struct tn_sh_level group = level ? *level : (struct tn_sh_level){0};
    enum tn_sh_truth status = shell->status;

    if (level && level->name[0]) {
        if (level->reading == shell->reading && level->reached != TN_SH_FALSE)
            define(shell, level->name, level->from, pos);
    } else if (level && (kind == TN_SH_BRACKETS || level->piped || tn_sh_in_own_shell(pos))) {
        tn_sh_restore(shell, &level->before);
    }
    tn_sh_close(shell, kind);
    if (!level || group.name[0] || !group.exact || group.broken)
        return;
    shell->status = group.outer; /* the group's is that of its last command */
    shell->joined = group.outer_joined;
    shell->negated = group.outer_negated;
    tn_sh_status(shell, status);
    tn_sh_list_begin(shell);
    shell->summed = kind == TN_SH_BRACKETS && group.base == TN_SH_TRUE && !group.outer_negated;
}

/* ---- leaving them --------------------------------------------------------- */

/* return leaves the function. */
static void leave_function(struct tn_sh *shell, const char *with)
{
    enum tn_sh_truth runs = shell->chain;
    enum tn_sh_truth status = !with || !*with || with[strspn(with, "0123456789")] ? TN_SH_UNSURE
                              : with[strspn(with, "0")]                           ? TN_SH_FALSE
                                                                                  : TN_SH_TRUE;

    for (int i = shell->depth - 1; i >= 0; i--) {
        struct tn_sh_level *level = &shell->level[i];

        if (level->kind == TN_SH_CALL) {
            if (runs != TN_SH_FALSE)
                level->returns = level->broken || runs == TN_SH_UNSURE ? TN_SH_UNSURE : status;
            level->broken |= runs != TN_SH_FALSE;
            if (runs != TN_SH_FALSE && tn_sh_not(runs) < level->runs)
                level->runs = tn_sh_not(runs);
            return;
        }
        if (level->runs < runs)
            runs = level->runs;
    }
}

bool tn_sh_leave(struct tn_sh *shell, const struct tn_sh_list *command)
{
    bool ends = str_eq(command->v[0], "break"), next = str_eq(command->v[0], "continue");
    const char *count = command->n > 1 ? command->v[1] : "1";

    if (ends || next)
        tn_sh_leave_loops(shell, count[strspn(count, "0123456789")] ? 0 : strtoul(count, NULL, 10),
                          next);
    else if (str_eq(command->v[0], "return"))
        leave_function(shell, command->n > 1 ? command->v[1] : NULL);
    else
        return false;
    return true;
}

void tn_sh_exit(struct tn_sh *shell)
{
    enum tn_sh_truth runs = shell->chain;

    for (int i = shell->depth - 1; i >= 0; i--) {
        struct tn_sh_level *level = &shell->level[i];

        if (level->runs < runs)
            runs = level->runs;
        if (level->kind == TN_SH_BRACKETS || level->piped) {
            if (runs == TN_SH_TRUE)
                level->broken = true, level->runs = TN_SH_FALSE;
            return;
        }
    }
    shell->over |= runs == TN_SH_TRUE;
}

void tn_sh_failed(struct tn_sh *shell)
{
    for (int i = 0; i < shell->depth; i++)
        if (shell->level[i].tests || shell->level[i].guarded)
            return;
    tn_sh_exit(shell);
}

/* ---- functions ----------------------------------------------------------- */

const char *tn_sh_function_at(struct tn_sh *shell, const char *pos)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
    bool known = str_starts(pos, "function") && isspace((unsigned char)pos[8]);
    const char *name = pos + (known ? 8 + strspn(pos + 8, " \t") : 0), *p;
    size_t n = strspn(name, letters);
    struct tn_sh_level *level;

    p = name + n + strspn(name + n, " \t");
    if (*p == '(') {
        p += 1 + strspn(p + 1, " \t");
        if (*p++ != ')')
            return pos;
        known = true;
    }
    p += strspn(p, " \t\r\n");
    if (!known || !n || n >= MAX_NAME || *p != '{' || !isspace((unsigned char)p[1]))
        return pos;
    tn_sh_open(shell, TN_SH_BRACES);
    if (shell->r < 0)
        return pos;
    level = &shell->level[shell->depth - 1];
    level->reached = tn_sh_runs(shell);
    level->runs = TN_SH_FALSE; /* but where it is called */
    level->from = p + 1;
    snprintf(level->name, sizeof(level->name), "%.*s", (int)n, name);
    return p + 1;
}

/* What NAME holds is put back when the function ends. */
void tn_sh_local(struct tn_sh *shell, const char *name)
{
    struct tn_sh_variable *v;
    struct tn_sh_variable *kept;

    if (!shell->calls || tn_sh_runs(shell) == TN_SH_FALSE)
        return;
    v = tn_sh_find(shell, name);
    shell->kept = mem_realloc(shell->kept, (shell->nkept + 1) * sizeof(*shell->kept));
    kept = &shell->kept[shell->nkept++];
    *kept = (struct tn_sh_variable){.array = v && v->array,
                                    .keyed = v && v->keyed,
                                    .integer = v && v->integer,
                                    .presumed = v && v->presumed,
                                    .used = v};
    snprintf(kept->name, sizeof(kept->name), "%s", name);
    if (v)
        tn_sh_take_words(&kept->values, &v->values, 0);
}

static void put_back(struct tn_sh *shell, size_t from)
{
    while (shell->nkept > from) {
        struct tn_sh_variable *kept = &shell->kept[--shell->nkept],
                              *v = tn_sh_find(shell, kept->name);

        if (!v) {
            tn_sh_list_done(&kept->values);
            continue;
        }
        if (!kept->used)
            tn_sh_list_add(&kept->values,
                           mem_printf("%c%c$%s%c", MARK,
                                      str_eq(v->name, "@") ? TN_WORD_GIVEN : TN_WORD_UNSET, v->name,
                                      ENDMARK));
        tn_sh_list_done(&v->values);
        v->values = kept->values;
        v->array = kept->array;
        v->keyed = kept->keyed;
        v->integer = kept->integer;
        v->presumed = kept->presumed;
    }
}

bool tn_sh_call_function(struct tn_sh *shell, const struct tn_sh_list *command, int level)
{
    const struct tn_sh_function *function = function_of(shell, command->v[0]);
    AUTO_FREE char *body = function ? mem_strdup(function->body) : NULL;
    struct tn_sh_list given = {0};
    struct tn_sh_heres pending = shell->pending;
    enum tn_sh_truth chain = shell->chain, status = shell->status;
    bool negated = shell->negated;
    size_t kept = shell->nkept;
    enum tn_sh_truth inner, returns = TN_SH_UNSURE;
    bool returned = false;
    int depth = shell->depth;
    char joined = shell->joined;

    if (!function)
        return false;
    if (shell->calls == MAX_CALLS) {
        shell->r = err_set(shell->e, -EINVAL, "functions call each other over %d deep: `%.64s`",
                           MAX_CALLS, command->v[0]);
        return true;
    }
    shell->copied += strlen(body);
    shell->pending = (struct tn_sh_heres){0};
    shell->calls++;
    tn_sh_open(shell, TN_SH_CALL);
    if (shell->r == 0) {
        shell->level[depth].runs = shell->level[depth].base;
        shell->level[depth].guarded = !shell->ends || negated;
        tn_sh_local(shell, "@");
        tn_sh_take_words(&given, command, 1);
        tn_sh_assign(shell, "@", &given, false, true);
        shell->commands(shell, body, level);
    }
    for (; shell->depth > depth; tn_sh_level_done(&shell->level[--shell->depth])) {
        returned |= shell->level[shell->depth - 1].broken;
        returns = shell->level[shell->depth - 1].returns;
    }
    put_back(shell, kept);
    shell->calls--;
    tn_sh_heres_done(&shell->pending);
    shell->pending = pending;
    shell->chain = chain;
    shell->joined = joined;
    shell->negated = negated;
    inner = returned ? returns : shell->status;
    shell->status = status;
    tn_sh_status(shell, inner);
    return true;
}

void tn_sh_functions_done(struct tn_sh *shell)
{
    for (size_t i = 0; i < shell->nfunctions; i++)
        free(shell->functions[i].body);
    free(shell->functions);
    put_back(shell, 0);
    free(shell->kept);
}

/* ---- their arguments ----------------------------------------------------- */

enum tn_sh_truth tn_sh_shifts(struct tn_sh *shell, const struct tn_sh_list *command)
{
    const struct tn_sh_variable *v = tn_sh_given(shell);
    const char *by = command->n > 1 ? command->v[1] : "1";

    if (!v || by[strspn(by, "0123456789")])
        return TN_SH_UNSURE;
    return strtoul(by, NULL, 10) <= v->values.n ? TN_SH_TRUE : TN_SH_FALSE;
}

void tn_sh_shift(struct tn_sh *shell, const struct tn_sh_list *command)
{
    enum tn_sh_truth runs = tn_sh_runs(shell);
    struct tn_sh_variable *v = tn_sh_given(shell);
    size_t by = command->n > 1 ? strtoul(command->v[1], NULL, 10) : 1;

    if (runs == TN_SH_FALSE)
        return;
    if (!v || runs == TN_SH_UNSURE ||
        (command->n > 1 && command->v[1][strspn(command->v[1], "0123456789")])) {
        tn_sh_forget(shell, "@");
        return;
    }
    if (by > v->values.n) /* a shell shifts nothing then */
        return;
    for (size_t i = 0; i < v->values.n; i++) {
        if (i < by)
            free(v->values.v[i]);
        else
            v->values.v[i - by] = v->values.v[i];
    }
    v->values.n -= by;
}

/* What getopts finds next. */
struct option {
    char name[2], argument_of; /* "?": none, or an unknown one */
    const char *argument;      /* NULL: none */
    size_t word, letter;       /* where it looks then; the first letter is 0 */
    enum tn_sh_truth found;
};

/* The value of the option whose letter is the last that was read, in WORD from NEXT on, or the word
 * behind it. */
static void option_value(struct option *ret, const struct tn_sh_list *words, const char *next,
                         bool quiet)
{
    ret->letter = 0;
    if (*next) {
        ret->argument = next;
    } else if (ret->word <= words->n) {
        ret->argument = words->v[ret->word - 1];
        ret->word++;
    } else {
        ret->argument_of = quiet ? ret->name[0] : 0;
        ret->name[0] = quiet ? ':' : '?';
    }
}

/* WORDS are all known; ret->word counts from 1, as OPTIND does. */
static void next_option(struct option *ret, const struct tn_sh_list *words, const char *letters)
{
    const char *word = ret->word <= words->n ? words->v[ret->word - 1] : "", *at;
    bool quiet = *letters == ':';

    assert(ret->word > 0);
    ret->name[0] = '?';
    ret->found = TN_SH_FALSE;
    if (*word != '-' || !word[1] || str_eq(word, "--")) {
        ret->word += str_eq(word, "--");
        return;
    }
    if (ret->letter == 0 || ret->letter >= strlen(word))
        ret->letter = 1;
    ret->found = TN_SH_TRUE;
    at = word[ret->letter] == ':' ? NULL : strchr(letters, word[ret->letter]);
    if (at)
        ret->name[0] = *at;
    else if (quiet)
        ret->argument_of = word[ret->letter];
    ret->letter++;
    if ((at && at[1] == ':') || !word[ret->letter])
        ret->word++;
    if (at && at[1] == ':')
        option_value(ret, words, word + ret->letter, quiet);
    else if (!word[ret->letter])
        ret->letter = 0;
}

/* Where COMMAND is getopts: what it finds, `found` unsure where only a shell could tell. */
static void find_option(struct option *ret, struct tn_sh *shell, const struct tn_sh_list *command)
{
    const char *index = tn_sh_value(shell, "OPTIND");
    struct tn_sh_list words = {0};
    const struct tn_sh_variable *given = tn_sh_given(shell);

    *ret = (struct option){.word = 1, .letter = shell->letter, .found = TN_SH_UNSURE};
    if (index && !index[strspn(index, "0123456789")])
        ret->word = strtoul(index, NULL, 10);
    if (command->n != 3 || !given || !ret->word || ret->word > MAX_WORDS ||
        (index && strchr(index, MARK)) || strchr(command->v[1], MARK))
        return;
    words = given->values;
    next_option(ret, &words, command->v[1]);
}

enum tn_sh_truth tn_sh_has_option(struct tn_sh *shell, const struct tn_sh_list *command)
{
    struct option option;

    find_option(&option, shell, command);
    return option.found;
}

static void set_to(struct tn_sh *shell, const char *name, char *taken)
{
    struct tn_sh_list value = {0};

    tn_sh_list_add(&value, taken);
    tn_sh_assign(shell, name, &value, false, false);
}

void tn_sh_getopts(struct tn_sh *shell, const struct tn_sh_list *command)
{
    struct option option;

    if (command->n < 3 || strlen(command->v[2]) >= MAX_NAME)
        return;
    find_option(&option, shell, command);
    if (option.found == TN_SH_UNSURE || tn_sh_runs(shell) == TN_SH_UNSURE) {
        tn_sh_computed(shell, command->v[2]);
        tn_sh_computed(shell, "OPTARG");
        tn_sh_computed(shell, "OPTIND");
        return;
    }
    shell->letter = option.letter;
    set_to(shell, "OPTIND", mem_printf("%zu", option.word));
    set_to(shell, command->v[2], mem_strdup(option.name));
    if (option.argument || option.argument_of)
        set_to(shell, "OPTARG",
               option.argument ? mem_strdup(option.argument) : tn_sh_copy(&option.argument_of, 1));
    else
        tn_sh_unset(shell, "OPTARG", false);
}
