/*
 * Words of a shell script: quotes, variables, arrays and what only a shell could tell, which stays
 * as it is written and is marked. Quotes and expansions follow POSIX, arrays bash.
 */
#include "tuner/export/shell.h"

/* Words go to OUT as they end. */
struct sink {
    struct tn_sh_list *out;
    struct str cur;
    bool open, split;
};

static bool spend(struct tn_sh *shell, size_t *what, size_t by, size_t most)
{
    *what += by;
    if (*what > most && shell->r == 0)
        shell->r =
            err_set(shell->e, -EINVAL, "the text is too long, or its variables expand without end");
    return shell->r == 0;
}

static void end_word(struct tn_sh *shell, struct sink *sink)
{
    if (sink->open && spend(shell, &shell->words, 1, MAX_WORDS))
        tn_sh_list_add(sink->out, str_take(&sink->cur));
    str_trunc(&sink->cur, 0);
    sink->open = false;
}

static void put(struct tn_sh *shell, struct sink *sink, char ch)
{
    if (!spend(shell, &shell->bytes, 1, MAX_BYTES))
        return;
    str_addc(&sink->cur, ch);
    sink->open = true;
}

static void mark(struct tn_sh *shell, struct sink *sink, enum tn_word_why why, const char *source,
                 size_t len)
{
    put(shell, sink, MARK);
    put(shell, sink, (char)why);
    for (size_t i = 0; i < len; i++)
        put(shell, sink, source[i]);
    put(shell, sink, ENDMARK);
}

/* WHOLE: no white space of it splits words. */
static void put_value(struct tn_sh *shell, struct sink *sink, const char *text, bool whole)
{
    bool marked = false;

    for (; *text; text++) {
        marked = *text == MARK || (marked && *text != ENDMARK);
        if (!whole && !marked && isspace((unsigned char)*text))
            end_word(shell, sink);
        else
            put(shell, sink, *text);
    }
}

/* ---- variables ----------------------------------------------------------- */

static struct tn_sh_variable *find(struct tn_sh *shell, const char *name)
{
    if (!spend(shell, &shell->lookups, 1, MAX_LOOKUPS))
        return NULL;
    for (size_t i = 0; i < shell->count; i++)
        if (str_eq(shell->vars[i].name, name))
            return &shell->vars[i];
    return NULL;
}

static struct tn_sh_variable *find_or_add(struct tn_sh *shell, const char *name)
{
    struct tn_sh_variable *v = find(shell, name);

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
        struct sink k = {.out = &words, .split = true};

        put_value(shell, &k, from->v[i], false);
        end_word(shell, &k);
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

/* Under a condition, the arguments said before and those said now are all kept as maybes; of one
 * value nothing is known then. Takes VALUES. */
static void assign_maybe(struct tn_sh *shell, struct tn_sh_variable *variable,
                         struct tn_sh_list *values, bool append, bool array)
{
    const char *old = !array && !variable->array && variable->values.n ? variable->values.v[0] : "";
    struct tn_sh_list merged = {0};

    array |= variable->array;
    if (!holds_arguments(values, array) || !holds_arguments(&variable->values, array)) {
        tn_sh_list_add(&merged,
                       mem_printf("%c%c$%s%c", MARK, TN_WORD_MAYBE, variable->name, ENDMARK));
    } else {
        if (*old && values->n && str_starts(values->v[0], old)) { /* ARGS="$ARGS --more" */
            char *more = mem_strdup(values->v[0] + strlen(old));

            tn_sh_list_done(values);
            tn_sh_list_add(values, more);
            append = true;
        }
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
    struct tn_sh_variable *v = find_or_add(shell, name);

    if (!v) {
        tn_sh_list_done(values);
        return;
    }
    v->used = false;
    if (shell->depth || shell->chained) {
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
    struct tn_sh_variable *v = find(shell, name);

    if (!v)
        return;
    tn_sh_list_done(&v->values);
    tn_sh_list_add(&v->values, mem_printf("%c%c$%s%c", MARK, TN_WORD_RUN, name, ENDMARK));
}

/* ---- expansion ----------------------------------------------------------- */

/* POS is at an opening bracket: behind the one that closes it, quotes and nesting left alone. */
const char *tn_sh_closing(struct tn_sh *shell, const char *pos)
{
    char open = *pos, close = open == '(' ? ')' : '}', quote = 0;
    int depth = 0;

    for (; *pos; pos++) {
        if (*pos == '\\' && quote != '\'' && pos[1])
            pos++;
        else if (quote)
            quote = *pos == quote ? 0 : quote;
        else if (*pos == '\'' || *pos == '"')
            quote = *pos;
        else if (*pos == open)
            depth++;
        else if (*pos == close && !--depth)
            return pos + 1;
    }
    shell->r = err_set(shell->e, -EINVAL, "a bracket of the script does not close: %c", open);
    return pos;
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

/* $NAME, ${NAME[@]} … */
struct ref {
    char name[MAX_NAME];
    bool all, star;
    size_t index;
};

/* Returns behind the name and its subscript; NULL where it is none that we read. */
static const char *read_ref(struct ref *ret, const char *pos)
{
    size_t n = isdigit((unsigned char)*pos) ? strspn(pos, "0123456789") : tn_sh_name_length(pos);
    char *end;

    *ret = (struct ref){0};
    if (!n || n >= MAX_NAME)
        return NULL;
    memcpy(ret->name, pos, n);
    pos += n;
    ret->star = ret->name[0] == '*';
    ret->all = ret->star || ret->name[0] == '@';
    if (ret->all)
        ret->name[0] = '@';
    if (*pos != '[')
        return pos;
    if ((pos[1] == '@' || pos[1] == '*') && pos[2] == ']') {
        ret->all = true;
        ret->star = pos[1] == '*';
        return pos + 3;
    }
    ret->index = strtoul(pos + 1, &end, 10);
    return isdigit((unsigned char)pos[1]) && *end == ']' ? end + 1 : NULL;
}

static void put_variable(struct tn_sh *shell, struct sink *sink, struct tn_sh_variable *variable,
                         const struct ref *ref, bool quoted)
{
    bool whole = quoted || !sink->split;

    variable->used = true;
    sink->open |= quoted && !ref->all;
    for (size_t i = ref->all ? 0 : ref->index; i < variable->values.n; i++) {
        if (ref->all && i && sink->split && !(quoted && ref->star))
            end_word(shell, sink);
        else if (ref->all && i)
            put(shell, sink, ' ');
        put_value(shell, sink, variable->values.v[i], whole);
        sink->open |= quoted;
        if (!ref->all)
            return;
    }
}

/* A variable that the script does not set. */
static void put_unset(struct tn_sh *shell, struct sink *sink, const struct ref *ref,
                      const char *source, size_t len)
{
    bool given = ref->name[0] == '@' || isdigit((unsigned char)ref->name[0]);
    bool special = strchr("#?$!-", ref->name[0]) != NULL;

    mark(shell, sink, given ? TN_WORD_GIVEN : special ? TN_WORD_RUN : TN_WORD_UNSET, source, len);
}

static const char *piece(struct tn_sh *shell, struct sink *sink, const char *pos, char *quote,
                         int depth);

static void put_text(struct tn_sh *shell, struct sink *sink, const char *pos, bool quoted,
                     int depth)
{
    char quote = quoted ? '"' : 0;

    while (*pos && shell->r == 0) {
        if (!quote && sink->split && isspace((unsigned char)*pos)) {
            end_word(shell, sink);
            pos++;
        } else {
            pos = piece(shell, sink, pos, &quote, depth);
        }
    }
}

/* The inside of ${…}, SOURCE with its dollar and brackets. */
static void braced(struct tn_sh *shell, struct sink *sink, const char *source, size_t len,
                   bool quoted, int depth)
{
    AUTO_FREE char *inside = tn_sh_copy(source + 2, len - 3);
    struct tn_sh_variable *v;
    struct ref r;
    const char *p = read_ref(&r, inside);
    bool colon, empty;

    if (!p || (r.name[0] == '#' && *p) || (r.name[0] == '!' && *p)) {
        mark(shell, sink, TN_WORD_RUN, source, len);
        return;
    }
    colon = *p == ':';
    p += colon;
    if (*p && !strchr("-=+?", *p)) {
        mark(shell, sink, TN_WORD_RUN, source, len);
        return;
    }
    v = find(shell, r.name);
    empty = !v || (colon && (r.index >= v->values.n || !*v->values.v[r.index]));
    if (*p == '+') {
        if (!empty)
            put_text(shell, sink, p + 1, quoted, depth + 1);
    } else if (*p == '=' && empty) {
        struct tn_sh_list value = {0};
        struct sink one = {.out = &value};

        one.open = true;
        put_text(shell, &one, p + 1, true, depth + 1);
        end_word(shell, &one);
        str_done(&one.cur);
        tn_sh_assign(shell, r.name, &value, false, false);
        v = find(shell, r.name);
        if (v)
            put_variable(shell, sink, v, &r, quoted);
    } else if (*p == '-' && empty) {
        put_text(shell, sink, p + 1, quoted, depth + 1);
    } else if (v) {
        put_variable(shell, sink, v, &r, quoted);
    } else {
        put_unset(shell, sink, &r, source, len);
    }
}

const char *tn_sh_value(struct tn_sh *shell, const char *name)
{
    struct tn_sh_variable *v = find(shell, name);

    if (!v)
        return NULL;
    v->used = true;
    return v->values.n ? v->values.v[0] : "";
}

/* Why and of what the first part of TEXT that is not known is not, as a mark. */
static void put_mark_of(struct tn_sh *shell, struct sink *sink, const char *text,
                        const char *source, size_t len)
{
    const char *at = strchr(text, MARK), *end = at ? strchr(at, ENDMARK) : NULL;

    if (end && end > at + 2)
        mark(shell, sink, (enum tn_word_why)at[1], at + 2, (size_t)(end - at - 2));
    else
        mark(shell, sink, end ? (enum tn_word_why)at[1] : TN_WORD_RUN, source, len);
}

/* $((…)), LEN letters at SOURCE. */
static void put_sum(struct tn_sh *shell, struct sink *sink, const char *source, size_t len,
                    int depth)
{
    AUTO_FREE char *inside = tn_sh_copy(source + 3, len - 5);
    AUTO_FREE char *unset = NULL;
    struct sink text = {.out = NULL};
    char digits[24];
    int64_t v = 0;

    put_text(shell, &text, inside, true, depth + 1);
    if (shell->r == 0 && strchr(str_text(&text.cur), MARK)) {
        put_mark_of(shell, sink, str_text(&text.cur), source, len);
        str_done(&text.cur);
        return;
    }
    switch (tn_sh_arithmetic(&v, &unset, shell, str_text(&text.cur))) {
    case TN_SH_SUM:
        snprintf(digits, sizeof(digits), "%lld", (long long)v);
        put_value(shell, sink, digits, true);
        break;
    case TN_SH_UNSET:
        mark(shell, sink, TN_WORD_UNSET, unset, strlen(unset));
        break;
    case TN_SH_WRONG:
        mark(shell, sink, TN_WORD_WRONG, source, len);
        break;
    default:
        mark(shell, sink, TN_WORD_RUN, source, len);
    }
    str_done(&text.cur);
}

/* POS is at the dollar. Returns behind what belongs to it. */
static const char *dollar(struct tn_sh *shell, struct sink *sink, const char *pos, bool quoted,
                          int depth)
{
    const char *end;
    struct tn_sh_variable *v;
    struct ref r;
    size_t n;

    if (pos[1] == '(' || pos[1] == '{') {
        end = tn_sh_closing(shell, pos + 1);
        if (shell->r < 0)
            return end;
        if (pos[1] == '(' && pos[2] == '(' && end - pos > 5 && end[-2] == ')' && depth < MAX_DEPTH)
            put_sum(shell, sink, pos, (size_t)(end - pos), depth);
        else if (pos[1] == '(' || depth >= MAX_DEPTH)
            mark(shell, sink, TN_WORD_RUN, pos, (size_t)(end - pos));
        else
            braced(shell, sink, pos, (size_t)(end - pos), quoted, depth);
        return end;
    }
    n = tn_sh_name_length(pos + 1);
    if (!n || n >= MAX_NAME) {
        put(shell, sink, *pos);
        return pos + 1;
    }
    r = (struct ref){.all = pos[1] == '@' || pos[1] == '*', .star = pos[1] == '*'};
    memcpy(r.name, r.all ? "@" : pos + 1, r.all ? 1 : n);
    v = find(shell, r.name);
    if (v)
        put_variable(shell, sink, v, &r, quoted);
    else
        put_unset(shell, sink, &r, pos, n + 1);
    return pos + 1 + n;
}

/* A backslash at the end of a line, whichever system's. */
bool tn_sh_continues(const char *pos)
{
    return *pos == '\\' && (pos[1] == '\n' || (pos[1] == '\r' && pos[2] == '\n'));
}

/* One letter, quote or expansion of a word. Returns behind it. */
static const char *piece(struct tn_sh *shell, struct sink *sink, const char *pos, char *quote,
                         int depth)
{
    if (*pos == MARK) { /* from the outer text */
        for (; *pos && *pos != ENDMARK; pos++)
            put(shell, sink, *pos);
        put(shell, sink, ENDMARK);
        return pos + (*pos == ENDMARK);
    }
    if (*quote == '\'' ? *pos == '\'' : *pos == '"') {
        *quote = *quote ? 0 : *pos;
        sink->open = true;
        return pos + 1;
    }
    if (!*quote && *pos == '\'') {
        *quote = *pos;
        sink->open = true;
        return pos + 1;
    }
    if (*quote == '\'') {
        put(shell, sink, *pos);
        return pos + 1;
    }
    if (tn_sh_continues(pos))
        return pos + (pos[1] == '\r' ? 3 : 2);
    if (*pos == '\\' && pos[1] && (!*quote || strchr("$`\"\\", pos[1]))) {
        put(shell, sink, pos[1]);
        return pos + 2;
    }
    if (*pos == '$' && !*quote && (pos[1] == '\'' || pos[1] == '"'))
        return pos + 1;
    if (*pos == '$')
        return dollar(shell, sink, pos, *quote != 0, depth);
    if (*pos == '`') {
        const char *end = strchr(pos + 1, '`');

        if (!end) {
            shell->r = err_set(shell->e, -EINVAL, "a quote does not end: %.64s", pos);
            return pos;
        }
        mark(shell, sink, TN_WORD_RUN, pos, (size_t)(end + 1 - pos));
        return end + 1;
    }
    put(shell, sink, *pos);
    return pos + 1;
}

/* The word at POS, as many words as it becomes. In an array, a bracket that it did not open ends
 * it.
 */
const char *tn_sh_word(struct tn_sh *shell, struct tn_sh_list *out, const char *pos, bool split,
                       bool in_array)
{
    struct sink k = {.out = out, .split = split};
    const char *from = pos;
    char quote = 0;
    int brackets = 0;

    while (*pos && shell->r == 0) {
        if (!quote && (isspace((unsigned char)*pos) || *pos == ';' || tn_sh_continues(pos)))
            break;
        if (!quote && *pos == '(')
            brackets++;
        else if (!quote && *pos == ')' && brackets-- <= 0 && in_array)
            break;
        pos = piece(shell, &k, pos, &quote, 0);
    }
    if (quote && shell->r == 0)
        shell->r = err_set(shell->e, -EINVAL, "a quote does not end: %.64s", from);
    k.open |= !split; /* NAME= is an empty value */
    end_word(shell, &k);
    str_done(&k.cur);
    return pos;
}

void tn_sh_words_of(struct tn_sh *shell, struct tn_sh_list *out,
                    const struct tn_sh_variable *variable)
{
    struct sink k = {.out = out, .split = true};

    for (size_t i = 0; i < variable->values.n; i++) {
        put_value(shell, &k, variable->values.v[i], variable->array);
        end_word(shell, &k);
    }
    str_done(&k.cur);
}
