/*
 * Variables and arrays of a shell script, and words as they end. Under a condition an assignment
 * may or may not happen: what could be there is then marked so.
 */
#include "tuner/export/shell_flow.h"

/* Adds BY to *WHAT, a cost of SHELL; false once it is over MOST or SHELL has failed. */
static bool spend(struct tn_sh *shell, size_t *what, size_t by, size_t most)
{
    *what += by;
    if (*what > most && shell->r == 0)
        shell->r =
            err_set(shell->e, -EINVAL, "the text is too long, or its variables expand without end");
    return shell->r == 0;
}

void tn_sh_end_word(struct tn_sh *shell, struct tn_sh_sink *sink)
{
    if (sink->open && spend(shell, &shell->words, 1, MAX_WORDS))
        tn_sh_list_add(sink->out, str_take(&sink->cur));
    str_trunc(&sink->cur, 0);
    sink->open = false;
}

void tn_sh_put(struct tn_sh *shell, struct tn_sh_sink *sink, char ch)
{
    if (!spend(shell, &shell->bytes, 1, MAX_BYTES))
        return;
    str_addc(&sink->cur, ch);
    sink->open = true;
}

bool tn_sh_splits_otherwise(struct tn_sh *shell, const char *text)
{
    const struct tn_sh_variable *v = tn_sh_find(shell, "IFS");
    const char *ifs = v && v->values.n ? v->values.v[0] : " \t\n";

    if (ifs[0] == MARK && (strstr(ifs, "$IFS") || strstr(ifs, "${IFS"))) /* kept, and put back */
        return false;
    if (strchr(ifs, MARK))
        return true;
    if (str_eq(ifs, " \t\n"))
        return false;
    if (ifs[0] == '\\' && !ifs[strspn(ifs, "\\nt ")]) /* $'\n\t' is kept as it is written */
        return strpbrk(text, " \t\n") != NULL;
    return strpbrk(text, " \t\n") || strpbrk(text, ifs);
}

/* WHOLE: no white space of it splits words. */
void tn_sh_put_value(struct tn_sh *shell, struct tn_sh_sink *sink, const char *text, bool whole)
{
    bool marked = false, word = whole && sink->split;

    if (!whole && sink->split && tn_sh_splits_otherwise(shell, text)) {
        tn_sh_put(shell, sink, MARK);
        tn_sh_put(shell, sink, TN_WORD_RUN);
        for (const char *p = "$IFS"; *p; p++)
            tn_sh_put(shell, sink, *p);
        tn_sh_put(shell, sink, ENDMARK);
        return;
    }

    for (; *text; text++) {
        marked = *text == MARK || (marked && *text != ENDMARK);
        if (!whole && !marked && isspace((unsigned char)*text))
            tn_sh_end_word(shell, sink);
        else
            tn_sh_put(shell, sink, *text);
        if (word && *text == MARK && text[1] == TN_WORD_NONE) /* in quotes it is a word */
            tn_sh_put(shell, sink, TN_WORD_UNSET), text++;
    }
}

/* ---- variables ----------------------------------------------------------- */

struct tn_sh_variable *tn_sh_find(struct tn_sh *shell, const char *name)
{
    if (!spend(shell, &shell->lookups, 1 + shell->count, MAX_LOOKUPS))
        return NULL;
    for (size_t i = 0; i < shell->count; i++)
        if (str_eq(shell->vars[i].name, name))
            return &shell->vars[i];
    return NULL;
}

static struct tn_sh_variable *find_or_add(struct tn_sh *shell, const char *name)
{
    struct tn_sh_variable *v = tn_sh_find(shell, name);

    if (v || shell->r < 0)
        return v;
    if (shell->count == MAX_VARIABLES) {
        shell->r = err_set(shell->e, -EINVAL, "the script has over %d variables", MAX_VARIABLES);
        return NULL;
    }
    if (!(shell->count & (shell->count - 1)))
        shell->vars =
            mem_realloc(shell->vars, (shell->count ? 2 * shell->count : 1) * sizeof(*shell->vars));
    v = &shell->vars[shell->count++];
    *v = (struct tn_sh_variable){0};
    snprintf(v->name, sizeof(v->name), "%s", name);
    return v;
}

/* Does it begin with an argument, itself maybe said? */
bool tn_sh_argument_first(const char *text)
{
    text += strspn(text, " \t\r\n");
    if (text[0] == MARK && text[1] == TN_WORD_MAYBE && text[2] == ENDMARK)
        text += 3;
    return str_starts(text, "--");
}

/* A list of arguments or nothing, rather than one value? */
static bool holds_arguments(const struct tn_sh_list *list, bool array)
{
    return array || !list->n || !list->v[0][strspn(list->v[0], " \t\r\n")] ||
           tn_sh_argument_first(list->v[0]);
}

/* The words of FROM, each marked as maybe said. */
static void add_maybe(struct tn_sh *shell, struct tn_sh_list *to, const struct tn_sh_list *from)
{
    for (size_t i = 0; i < from->n; i++) {
        struct tn_sh_list words = {0};
        struct tn_sh_sink k = {.out = &words, .split = true};

        tn_sh_put_value(shell, &k, from->v[i], false);
        tn_sh_end_word(shell, &k);
        for (size_t w = 0; w < words.n; w++)
            tn_sh_list_add(to, mem_printf("%c%c%c%s", MARK, TN_WORD_MAYBE, ENDMARK, words.v[w]));
        tn_sh_list_done(&words);
        str_done(&k.cur);
    }
}

/* The words of LIST in one. */
static void join(struct tn_sh_list *list)
{
    struct str text = {0};

    for (size_t i = 0; i < list->n; i++)
        str_addf(&text, "%s%s", i ? " " : "", list->v[i]);
    tn_sh_list_done(list);
    tn_sh_list_add(list, str_take(&text));
}

/* VALUE is OLD with words before or behind it, which are maybe said: CMD="profiler $CMD". To
 * MERGED; false where it is another value. */
static bool wraps(struct tn_sh *shell, struct tn_sh_list *merged, const char *old,
                  const char *value)
{
    size_t n = strlen(old), length = strlen(value);
    bool behind = n && length > n && str_starts(value, old) && isspace((unsigned char)value[n]),
         before = n && length > n && str_ends(value, old) &&
                  isspace((unsigned char)value[length - n - 1]);
    struct tn_sh_list more = {0};

    if (!behind && !before)
        return false;
    tn_sh_list_add(&more, behind ? mem_strdup(value + n) : tn_sh_copy(value, length - n));
    if (behind)
        tn_sh_list_add(merged, mem_strdup(old));
    add_maybe(shell, merged, &more);
    if (before)
        tn_sh_list_add(merged, mem_strdup(old));
    tn_sh_list_done(&more);
    join(merged);
    return true;
}

/* VALUES begin with what VARIABLE holds, as in ARGS="$ARGS --more" and LIST=("${LIST[@]}" --more):
 * they are what is behind it from here on. */
static bool drop_old(const struct tn_sh_variable *variable, struct tn_sh_list *values)
{
    const struct tn_sh_list *old = &variable->values;
    struct tn_sh_list more = {0};
    size_t n = 0, length = old->n ? strlen(old->v[0]) : 0;

    if (variable->array) {
        while (n < old->n && n < values->n && str_eq(old->v[n], values->v[n]))
            n++;
        if (n < old->n)
            return false;
        tn_sh_take_words(&more, values, n);
    } else {
        const char *value = values->n ? values->v[0] : "";

        if (!length || !str_starts(value, old->v[0]) ||
            (value[length] && !isspace((unsigned char)value[length]) &&
             !isspace((unsigned char)value[length - 1])))
            return false;
        tn_sh_list_add(&more, mem_strdup(value + length));
    }
    tn_sh_list_done(values);
    *values = more;
    return true;
}

/* Under a condition, the arguments said before and those said now are all kept as maybes; of one
 * value nothing is known then. Takes VALUES. */
static void assign_maybe(struct tn_sh *shell, struct tn_sh_variable *variable,
                         struct tn_sh_list *values, bool append, bool array)
{
    const char *old = !array && !variable->array && variable->values.n ? variable->values.v[0] : "";
    struct tn_sh_list merged = {0};
    AUTO_FREE char *whole = append && values->n ? mem_printf("%s%s", old, values->v[0]) : NULL;
    bool known;

    array |= variable->array;
    known = holds_arguments(values, array) && holds_arguments(&variable->values, array);
    if (!known && !array && values->n && wraps(shell, &merged, old, whole ? whole : values->v[0])) {
        spend(shell, &shell->bytes, strlen(merged.v[0]), MAX_BYTES);
    } else if (!known) {
        tn_sh_list_add(&merged,
                       mem_printf("%c%c$%s%c", MARK, TN_WORD_MAYBE, variable->name, ENDMARK));
    } else {
        append = append || (array == variable->array && drop_old(variable, values));
        if (append)
            for (size_t i = 0; i < variable->values.n; i++)
                tn_sh_list_add(&merged, mem_strdup(variable->values.v[i]));
        else
            add_maybe(shell, &merged, &variable->values);
        add_maybe(shell, &merged, values);
        if (!array)
            join(&merged);
    }
    spend(shell, &shell->words, merged.n, MAX_WORDS);
    tn_sh_list_done(values);
    tn_sh_list_done(&variable->values);
    variable->values = merged;
    variable->array = array;
}

/* Takes VALUES. */
void tn_sh_assign(struct tn_sh *shell, const char *name, struct tn_sh_list *values, bool append,
                  bool array)
{
    enum tn_sh_truth runs = tn_sh_runs(shell);
    struct tn_sh_variable *v = runs == TN_SH_FALSE ? NULL : find_or_add(shell, name);

    if (!v) {
        tn_sh_list_done(values);
        return;
    }
    v->used = v->presumed = false;
    if (v->keyed && (!array || values->n)) { /* NAME=… is its element 0 */
        tn_sh_list_done(values);
        tn_sh_computed(shell, name);
        return;
    }
    if (runs == TN_SH_UNSURE) {
        tn_sh_effect(shell, name);
        assign_maybe(shell, v, values, append, array);
        return;
    }
    if (append && v->values.n && !array && !v->array) {
        char *whole = mem_printf("%s%s", v->values.v[0], values->n ? values->v[0] : "");

        spend(shell, &shell->bytes, strlen(whole), MAX_BYTES);
        tn_sh_list_done(values);
        tn_sh_list_add(values, whole);
    } else if (append && v->values.n) {
        for (size_t i = 0; i < values->n; i++)
            tn_sh_list_add(&v->values, values->v[i]);
        free(values->v);
        *values = (struct tn_sh_list){0};
        v->array = true;
        return;
    }
    tn_sh_list_done(&v->values);
    v->values = *values;
    *values = (struct tn_sh_list){0};
    v->array = array;
}

/* Only a shell could tell what NAME holds from here on, if it held anything. */
void tn_sh_forget(struct tn_sh *shell, const char *name)
{
    struct tn_sh_variable *v = tn_sh_runs(shell) == TN_SH_FALSE ? NULL : tn_sh_find(shell, name);

    if (!v)
        return;
    if (tn_sh_runs(shell) == TN_SH_UNSURE)
        tn_sh_effect(shell, name);
    v->keyed = false;
    tn_sh_list_done(&v->values);
    tn_sh_list_add(&v->values, mem_printf("%c%c$%s%c", MARK, TN_WORD_RUN, name, ENDMARK));
}

struct tn_sh_aside tn_sh_aside_of(struct tn_sh *shell, const char *name)
{
    const struct tn_sh_variable *v = tn_sh_find(shell, name);
    struct tn_sh_aside ret = {.there = v != NULL};

    if (v) {
        ret.variable = *v;
        ret.variable.values = (struct tn_sh_list){0};
        tn_sh_take_words(&ret.variable.values, &v->values, 0);
        spend(shell, &shell->words, v->values.n, MAX_WORDS);
    } else {
        snprintf(ret.variable.name, sizeof(ret.variable.name), "%s", name);
    }
    return ret;
}

void tn_sh_exchange(struct tn_sh *shell, struct tn_sh_aside *aside)
{
    struct tn_sh_aside next = *aside;
    struct tn_sh_variable *v = tn_sh_find(shell, next.variable.name);

    aside->there = v != NULL;
    if (v)
        aside->variable = *v;
    else
        aside->variable.values = (struct tn_sh_list){0};
    if (!next.there && v) {
        shell->count--;
        memmove(v, v + 1, (size_t)(shell->vars + shell->count - v) * sizeof(*v));
    }
    if (next.there && !v)
        v = find_or_add(shell, next.variable.name);
    if (next.there && v)
        *v = next.variable;
    else
        tn_sh_list_done(&next.variable.values);
}

void tn_sh_unset(struct tn_sh *shell, const char *name, bool unknown)
{
    struct tn_sh_variable *v;

    if (tn_sh_runs(shell) == TN_SH_UNSURE || unknown) {
        tn_sh_forget(shell, name);
        return;
    }
    v = tn_sh_runs(shell) == TN_SH_FALSE ? NULL : find_or_add(shell, name);
    if (!v)
        return;
    tn_sh_list_done(&v->values);
    v->array = v->keyed = v->integer = v->presumed = false;
}

struct tn_sh_variable *tn_sh_unknown(struct tn_sh *shell, const char *name, enum tn_word_why why)
{
    struct tn_sh_variable *v = find_or_add(shell, name);

    if (v) {
        v->keyed = false;
        tn_sh_list_done(&v->values);
        tn_sh_list_add(&v->values, mem_printf("%c%c$%s%c", MARK, why, name, ENDMARK));
    }
    return v;
}

bool tn_sh_is_set_outside(const char *name)
{
    static const char *const names[] = {"IFS",    "HOME",     "PATH",     "PWD",    "OLDPWD",
                                        "USER",   "LOGNAME",  "HOSTNAME", "SHELL",  "SHLVL",
                                        "TERM",   "LANG",     "UID",      "EUID",   "PPID",
                                        "GROUPS", "RANDOM",   "SECONDS",  "LINENO", "PS4",
                                        "OSTYPE", "MACHTYPE", "HOSTTYPE", "TMPDIR", NULL};
    static const char *const starts[] = {"BASH", "SLURM_", "PBS_", "OMPI_",
                                         "PMI_", "PMIX_",  "LSB_"};

    for (size_t i = 0; i < ARRAY_LEN(starts); i++)
        if (str_starts(name, starts[i]))
            return true;
    return tn_sh_one_of(name, strlen(name), names);
}

void tn_sh_presume(struct tn_sh *shell, const char *name)
{
    struct tn_sh_variable *v;

    tn_sh_unset(shell, name, false);
    v = tn_sh_find(shell, name);
    if (v)
        v->presumed = true;
}

void tn_sh_doubt(struct tn_sh *shell)
{
    if (tn_sh_runs(shell) == TN_SH_FALSE)
        return;
    shell->doubted = true;
    for (size_t i = 0; i < shell->count; i++) {
        struct tn_sh_variable *v = &shell->vars[i];

        if (v->presumed && !v->values.n && !str_eq(v->name, "@"))
            tn_sh_list_add(&v->values,
                           mem_printf("%c%c$%s%c", MARK, TN_WORD_UNSET, v->name, ENDMARK));
    }
}

void tn_sh_integer(struct tn_sh *shell, const char *name)
{
    struct tn_sh_variable *v = tn_sh_runs(shell) == TN_SH_FALSE ? NULL : find_or_add(shell, name);

    if (v)
        v->integer = true;
}

void tn_sh_computed(struct tn_sh *shell, const char *name)
{
    if (tn_sh_runs(shell) != TN_SH_FALSE)
        tn_sh_unknown(shell, name, TN_WORD_RUN);
}

/* Is OP, behind a name, =, ++ or the like? */
static bool sets(const char *op)
{
    bool twice = *op && op[1] == *op;

    if (!*op || (*op == '=' && twice))
        return false;
    return *op == '=' || (twice && strchr("+-", *op)) ||
           (op[1] == '=' && strchr("+-*/%&^|", *op)) ||
           (twice && op[2] == '=' && strchr("<>", *op));
}

void tn_sh_sets(struct tn_sh *shell, const char *from, const char *end)
{
    const char *pos = from;

    while (pos < end) {
        size_t n = isalpha((unsigned char)*pos) || *pos == '_' ? tn_sh_name_length(pos) : 0;
        size_t key = n && pos[n] == '[' ? strcspn(pos + n, "]") + 1 : 0;
        const char *op = pos + n;
        char name[MAX_NAME];

        op += key <= strlen(op) ? key : 0;
        op += strspn(op, " \t");

        if (n && n < MAX_NAME &&
            ((pos > from + 1 && strchr("+-", pos[-1]) && pos[-1] == pos[-2]) || sets(op))) {
            snprintf(name, sizeof(name), "%.*s", (int)n, pos);
            tn_sh_computed(shell, name);
        }
        pos += n ? n : 1;
    }
}

bool tn_sh_is_function(const struct tn_sh *shell, const char *name)
{
    for (size_t i = 0; i < shell->nfunctions; i++)
        if (str_eq(shell->functions[i].name, name))
            return true;
    return false;
}

struct tn_sh_variable *tn_sh_given(struct tn_sh *shell)
{
    struct tn_sh_variable *v = tn_sh_find(shell, "@");

    for (size_t i = 0; v && i < v->values.n; i++)
        if (strchr(v->values.v[i], MARK))
            return NULL;
    return v;
}

size_t tn_sh_name_length(const char *pos)
{
    size_t n = 0;

    if (*pos && strchr("@*#?$!-", *pos))
        return 1;
    if (isdigit((unsigned char)*pos))
        return 1;
    while (isalnum((unsigned char)pos[n]) || pos[n] == '_')
        n++;
    return n;
}

const char *tn_sh_value(struct tn_sh *shell, const char *name)
{
    struct tn_sh_variable *v = tn_sh_find(shell, name);

    if (!v || v->keyed || (shell->nounset && !v->values.n))
        return NULL;
    v->used = true;
    return v->values.n ? v->values.v[0] : "";
}
