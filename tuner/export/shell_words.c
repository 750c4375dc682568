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

static bool spend(struct tn_sh *s, size_t *what, size_t by, size_t most)
{
    *what += by;
    if (*what > most && s->r == 0)
        s->r = err_set(s->e, -EINVAL, "the text is too long, or its variables expand without end");
    return s->r == 0;
}

static void end_word(struct tn_sh *s, struct sink *k)
{
    if (k->open && spend(s, &s->words, 1, MAX_WORDS))
        tn_sh_list_add(k->out, str_take(&k->cur));
    str_trunc(&k->cur, 0);
    k->open = false;
}

static void put(struct tn_sh *s, struct sink *k, char c)
{
    if (!spend(s, &s->bytes, 1, MAX_BYTES))
        return;
    str_addc(&k->cur, c);
    k->open = true;
}

static void mark(struct tn_sh *s, struct sink *k, enum tn_word_why why, const char *source,
                 size_t n)
{
    put(s, k, MARK);
    put(s, k, (char)why);
    for (size_t i = 0; i < n; i++)
        put(s, k, source[i]);
    put(s, k, ENDMARK);
}

/* WHOLE: no white space of it splits words. */
static void put_value(struct tn_sh *s, struct sink *k, const char *text, bool whole)
{
    bool marked = false;

    for (; *text; text++) {
        marked = *text == MARK || (marked && *text != ENDMARK);
        if (!whole && !marked && isspace((unsigned char)*text))
            end_word(s, k);
        else
            put(s, k, *text);
    }
}

/* ---- variables ----------------------------------------------------------------------------------
 */

static struct tn_sh_variable *find(struct tn_sh *s, const char *name)
{
    if (!spend(s, &s->lookups, 1, MAX_LOOKUPS))
        return NULL;
    for (size_t i = 0; i < s->count; i++)
        if (str_eq(s->vars[i].name, name))
            return &s->vars[i];
    return NULL;
}

static struct tn_sh_variable *find_or_add(struct tn_sh *s, const char *name)
{
    struct tn_sh_variable *v = find(s, name);

    if (v || s->r < 0)
        return v;
    if (s->count == MAX_VARIABLES) {
        s->r = err_set(s->e, -EINVAL, "the script has over %d variables", MAX_VARIABLES);
        return NULL;
    }
    if (!(s->count & (s->count - 1)))
        s->vars = mem_realloc(s->vars, (s->count ? 2 * s->count : 1) * sizeof(*s->vars));
    v = &s->vars[s->count++];
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
static bool holds_arguments(const struct tn_sh_list *l, bool array)
{
    return array || !l->n || !l->v[0][strspn(l->v[0], " \t\r\n")] || tn_sh_argument_first(l->v[0]);
}

/* The words of FROM, each marked as maybe said. */
static void add_maybe(struct tn_sh *s, struct tn_sh_list *to, const struct tn_sh_list *from)
{
    for (size_t i = 0; i < from->n; i++) {
        struct tn_sh_list words = {0};
        struct sink k = {.out = &words, .split = true};

        put_value(s, &k, from->v[i], false);
        end_word(s, &k);
        for (size_t w = 0; w < words.n; w++)
            tn_sh_list_add(to, mem_printf("%c%c%c%s", MARK, TN_WORD_MAYBE, ENDMARK, words.v[w]));
        tn_sh_list_done(&words);
        str_done(&k.cur);
    }
}

/* The words of L in one. */
static void join(struct tn_sh_list *l)
{
    struct str text = {0};

    for (size_t i = 0; i < l->n; i++)
        str_addf(&text, "%s%s", i ? " " : "", l->v[i]);
    tn_sh_list_done(l);
    tn_sh_list_add(l, str_take(&text));
}

/* Under a condition, the arguments said before and those said now are all kept as maybes; of one
 * value nothing is known then. Takes VALUES. */
static void assign_maybe(struct tn_sh *s, struct tn_sh_variable *v, struct tn_sh_list *values,
                         bool append, bool array)
{
    const char *old = !array && !v->array && v->values.n ? v->values.v[0] : "";
    struct tn_sh_list merged = {0};

    array |= v->array;
    if (!holds_arguments(values, array) || !holds_arguments(&v->values, array)) {
        tn_sh_list_add(&merged, mem_printf("%c%c$%s%c", MARK, TN_WORD_MAYBE, v->name, ENDMARK));
    } else {
        if (*old && values->n && str_starts(values->v[0], old)) { /* ARGS="$ARGS --more" */
            char *more = mem_strdup(values->v[0] + strlen(old));

            tn_sh_list_done(values);
            tn_sh_list_add(values, more);
            append = true;
        }
        if (append)
            for (size_t i = 0; i < v->values.n; i++)
                tn_sh_list_add(&merged, mem_strdup(v->values.v[i]));
        else
            add_maybe(s, &merged, &v->values);
        add_maybe(s, &merged, values);
        if (!array)
            join(&merged);
    }
    spend(s, &s->words, merged.n, MAX_WORDS);
    tn_sh_list_done(values);
    tn_sh_list_done(&v->values);
    v->values = merged;
    v->array = array;
}

/* Takes VALUES. */
void tn_sh_assign(struct tn_sh *s, const char *name, struct tn_sh_list *values, bool append,
                  bool array)
{
    struct tn_sh_variable *v = find_or_add(s, name);

    if (!v) {
        tn_sh_list_done(values);
        return;
    }
    v->used = false;
    if (s->depth || s->chained) {
        assign_maybe(s, v, values, append, array);
        return;
    }
    if (append && v->values.n && !array && !v->array) {
        char *whole = mem_printf("%s%s", v->values.v[0], values->n ? values->v[0] : "");

        spend(s, &s->bytes, strlen(whole), MAX_BYTES);
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
void tn_sh_forget(struct tn_sh *s, const char *name)
{
    struct tn_sh_variable *v = find(s, name);

    if (!v)
        return;
    tn_sh_list_done(&v->values);
    tn_sh_list_add(&v->values, mem_printf("%c%c$%s%c", MARK, TN_WORD_RUN, name, ENDMARK));
}

/* ---- expansion ----------------------------------------------------------------------------------
 */

/* P is at an opening bracket: behind the one that closes it, quotes and nesting left alone. */
const char *tn_sh_closing(struct tn_sh *s, const char *p)
{
    char open = *p, close = open == '(' ? ')' : '}', quote = 0;
    int depth = 0;

    for (; *p; p++) {
        if (*p == '\\' && quote != '\'' && p[1])
            p++;
        else if (quote)
            quote = *p == quote ? 0 : quote;
        else if (*p == '\'' || *p == '"')
            quote = *p;
        else if (*p == open)
            depth++;
        else if (*p == close && !--depth)
            return p + 1;
    }
    s->r = err_set(s->e, -EINVAL, "a bracket of the script does not close: %c", open);
    return p;
}

size_t tn_sh_name_length(const char *p)
{
    size_t n = 0;

    if (*p && strchr("@*#?$!-", *p))
        return 1;
    if (isdigit((unsigned char)*p))
        return 1;
    while (isalnum((unsigned char)p[n]) || p[n] == '_')
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
static const char *read_ref(struct ref *ret, const char *p)
{
    size_t n = isdigit((unsigned char)*p) ? strspn(p, "0123456789") : tn_sh_name_length(p);
    char *end;

    *ret = (struct ref){0};
    if (!n || n >= MAX_NAME)
        return NULL;
    memcpy(ret->name, p, n);
    p += n;
    ret->star = ret->name[0] == '*';
    ret->all = ret->star || ret->name[0] == '@';
    if (ret->all)
        ret->name[0] = '@';
    if (*p != '[')
        return p;
    if ((p[1] == '@' || p[1] == '*') && p[2] == ']') {
        ret->all = true;
        ret->star = p[1] == '*';
        return p + 3;
    }
    ret->index = strtoul(p + 1, &end, 10);
    return isdigit((unsigned char)p[1]) && *end == ']' ? end + 1 : NULL;
}

static void put_variable(struct tn_sh *s, struct sink *k, struct tn_sh_variable *v,
                         const struct ref *r, bool quoted)
{
    bool whole = quoted || !k->split;

    v->used = true;
    k->open |= quoted && !r->all;
    for (size_t i = r->all ? 0 : r->index; i < v->values.n; i++) {
        if (r->all && i && k->split && !(quoted && r->star))
            end_word(s, k);
        else if (r->all && i)
            put(s, k, ' ');
        put_value(s, k, v->values.v[i], whole);
        k->open |= quoted;
        if (!r->all)
            return;
    }
}

/* A variable that the script does not set. */
static void put_unset(struct tn_sh *s, struct sink *k, const struct ref *r, const char *source,
                      size_t n)
{
    bool given = r->name[0] == '@' || isdigit((unsigned char)r->name[0]);
    bool special = strchr("#?$!-", r->name[0]) != NULL;

    mark(s, k, given ? TN_WORD_GIVEN : special ? TN_WORD_RUN : TN_WORD_UNSET, source, n);
}

static const char *piece(struct tn_sh *s, struct sink *k, const char *p, char *quote, int depth);

static void put_text(struct tn_sh *s, struct sink *k, const char *p, bool quoted, int depth)
{
    char quote = quoted ? '"' : 0;

    while (*p && s->r == 0) {
        if (!quote && k->split && isspace((unsigned char)*p)) {
            end_word(s, k);
            p++;
        } else {
            p = piece(s, k, p, &quote, depth);
        }
    }
}

/* The inside of ${…}, SOURCE with its dollar and brackets. */
static void braced(struct tn_sh *s, struct sink *k, const char *source, size_t n, bool quoted,
                   int depth)
{
    AUTO_FREE char *inside = tn_sh_copy(source + 2, n - 3);
    struct tn_sh_variable *v;
    struct ref r;
    const char *p = read_ref(&r, inside);
    bool colon, empty;

    if (!p || (r.name[0] == '#' && *p) || (r.name[0] == '!' && *p)) {
        mark(s, k, TN_WORD_RUN, source, n);
        return;
    }
    colon = *p == ':';
    p += colon;
    if (*p && !strchr("-=+?", *p)) {
        mark(s, k, TN_WORD_RUN, source, n);
        return;
    }
    v = find(s, r.name);
    empty = !v || (colon && (r.index >= v->values.n || !*v->values.v[r.index]));
    if (*p == '+') {
        if (!empty)
            put_text(s, k, p + 1, quoted, depth + 1);
    } else if (*p == '=' && empty) {
        struct tn_sh_list value = {0};
        struct sink one = {.out = &value};

        one.open = true;
        put_text(s, &one, p + 1, true, depth + 1);
        end_word(s, &one);
        str_done(&one.cur);
        tn_sh_assign(s, r.name, &value, false, false);
        v = find(s, r.name);
        if (v)
            put_variable(s, k, v, &r, quoted);
    } else if (*p == '-' && empty) {
        put_text(s, k, p + 1, quoted, depth + 1);
    } else if (v) {
        put_variable(s, k, v, &r, quoted);
    } else {
        put_unset(s, k, &r, source, n);
    }
}

const char *tn_sh_value(struct tn_sh *s, const char *name)
{
    struct tn_sh_variable *v = find(s, name);

    if (!v)
        return NULL;
    v->used = true;
    return v->values.n ? v->values.v[0] : "";
}

/* Why and of what the first part of TEXT that is not known is not, as a mark. */
static void put_mark_of(struct tn_sh *s, struct sink *k, const char *text, const char *source,
                        size_t n)
{
    const char *at = strchr(text, MARK), *end = at ? strchr(at, ENDMARK) : NULL;

    if (end && end > at + 2)
        mark(s, k, (enum tn_word_why)at[1], at + 2, (size_t)(end - at - 2));
    else
        mark(s, k, end ? (enum tn_word_why)at[1] : TN_WORD_RUN, source, n);
}

/* $((…)), N letters at SOURCE. */
static void put_sum(struct tn_sh *s, struct sink *k, const char *source, size_t n, int depth)
{
    AUTO_FREE char *inside = tn_sh_copy(source + 3, n - 5);
    AUTO_FREE char *unset = NULL;
    struct sink text = {.out = NULL};
    char digits[24];
    int64_t v = 0;

    put_text(s, &text, inside, true, depth + 1);
    if (s->r == 0 && strchr(str_text(&text.cur), MARK)) {
        put_mark_of(s, k, str_text(&text.cur), source, n);
        str_done(&text.cur);
        return;
    }
    switch (tn_sh_arithmetic(&v, &unset, s, str_text(&text.cur))) {
    case TN_SH_SUM:
        snprintf(digits, sizeof(digits), "%lld", (long long)v);
        put_value(s, k, digits, true);
        break;
    case TN_SH_UNSET:
        mark(s, k, TN_WORD_UNSET, unset, strlen(unset));
        break;
    case TN_SH_WRONG:
        mark(s, k, TN_WORD_WRONG, source, n);
        break;
    default:
        mark(s, k, TN_WORD_RUN, source, n);
    }
    str_done(&text.cur);
}

/* P is at the dollar. Returns behind what belongs to it. */
static const char *dollar(struct tn_sh *s, struct sink *k, const char *p, bool quoted, int depth)
{
    const char *end;
    struct tn_sh_variable *v;
    struct ref r;
    size_t n;

    if (p[1] == '(' || p[1] == '{') {
        end = tn_sh_closing(s, p + 1);
        if (s->r < 0)
            return end;
        if (p[1] == '(' && p[2] == '(' && end - p > 5 && end[-2] == ')' && depth < MAX_DEPTH)
            put_sum(s, k, p, (size_t)(end - p), depth);
        else if (p[1] == '(' || depth >= MAX_DEPTH)
            mark(s, k, TN_WORD_RUN, p, (size_t)(end - p));
        else
            braced(s, k, p, (size_t)(end - p), quoted, depth);
        return end;
    }
    n = tn_sh_name_length(p + 1);
    if (!n || n >= MAX_NAME) {
        put(s, k, *p);
        return p + 1;
    }
    r = (struct ref){.all = p[1] == '@' || p[1] == '*', .star = p[1] == '*'};
    memcpy(r.name, r.all ? "@" : p + 1, r.all ? 1 : n);
    v = find(s, r.name);
    if (v)
        put_variable(s, k, v, &r, quoted);
    else
        put_unset(s, k, &r, p, n + 1);
    return p + 1 + n;
}

/* A backslash at the end of a line, whichever system's. */
bool tn_sh_continues(const char *p)
{
    return *p == '\\' && (p[1] == '\n' || (p[1] == '\r' && p[2] == '\n'));
}

/* One letter, quote or expansion of a word. Returns behind it. */
static const char *piece(struct tn_sh *s, struct sink *k, const char *p, char *quote, int depth)
{
    if (*p == MARK) { /* from the outer text */
        for (; *p && *p != ENDMARK; p++)
            put(s, k, *p);
        put(s, k, ENDMARK);
        return p + (*p == ENDMARK);
    }
    if (*quote == '\'' ? *p == '\'' : *p == '"') {
        *quote = *quote ? 0 : *p;
        k->open = true;
        return p + 1;
    }
    if (!*quote && *p == '\'') {
        *quote = *p;
        k->open = true;
        return p + 1;
    }
    if (*quote == '\'') {
        put(s, k, *p);
        return p + 1;
    }
    if (tn_sh_continues(p))
        return p + (p[1] == '\r' ? 3 : 2);
    if (*p == '\\' && p[1] && (!*quote || strchr("$`\"\\", p[1]))) {
        put(s, k, p[1]);
        return p + 2;
    }
    if (*p == '$' && !*quote && (p[1] == '\'' || p[1] == '"'))
        return p + 1;
    if (*p == '$')
        return dollar(s, k, p, *quote != 0, depth);
    if (*p == '`') {
        const char *end = strchr(p + 1, '`');

        if (!end) {
            s->r = err_set(s->e, -EINVAL, "a quote does not end: %.64s", p);
            return p;
        }
        mark(s, k, TN_WORD_RUN, p, (size_t)(end + 1 - p));
        return end + 1;
    }
    put(s, k, *p);
    return p + 1;
}

/* The word at P, as many words as it becomes. In an array, a bracket that it did not open ends it.
 */
const char *tn_sh_word(struct tn_sh *s, struct tn_sh_list *out, const char *p, bool split,
                       bool in_array)
{
    struct sink k = {.out = out, .split = split};
    const char *from = p;
    char quote = 0;
    int brackets = 0;

    while (*p && s->r == 0) {
        if (!quote && (isspace((unsigned char)*p) || *p == ';' || tn_sh_continues(p)))
            break;
        if (!quote && *p == '(')
            brackets++;
        else if (!quote && *p == ')' && brackets-- <= 0 && in_array)
            break;
        p = piece(s, &k, p, &quote, 0);
    }
    if (quote && s->r == 0)
        s->r = err_set(s->e, -EINVAL, "a quote does not end: %.64s", from);
    k.open |= !split; /* NAME= is an empty value */
    end_word(s, &k);
    str_done(&k.cur);
    return p;
}

void tn_sh_words_of(struct tn_sh *s, struct tn_sh_list *out, const struct tn_sh_variable *v)
{
    struct sink k = {.out = out, .split = true};

    for (size_t i = 0; i < v->values.n; i++) {
        put_value(s, &k, v->values.v[i], v->array);
        end_word(s, &k);
    }
    str_done(&k.cur);
}
