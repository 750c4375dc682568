/*
 * Words of a shell script: quotes, variables, arrays and what only a shell could tell, which stays
 * as it is written and is marked. Quotes and expansions follow POSIX, arrays bash.
 */
#include "tuner/export/shell_flow.h"
#include "tuner/export/shell_outputs.h"

#include <assert.h>

/* Sets where REF's value is in V; false where only a shell could tell. */
static bool locate(struct tn_sh *shell, const struct tn_sh_variable *v, struct tn_sh_ref *ref)
{
    AUTO_FREE char *text = ref->key                ? tn_sh_copy(ref->key, ref->key_length)
                           : v->keyed && !ref->all ? mem_strdup("0")
                                                   : NULL;
    AUTO_FREE char *key = text ? tn_sh_key(shell, text) : NULL;

    return !key || (shell->r == 0 && tn_sh_element(&ref->index, shell, v, key));
}

/* $# where there are arguments, ${#NAME} and ${#NAME[@]}; false where it is not known. */
static bool put_length(struct tn_sh *shell, struct tn_sh_sink *sink, const char *of)
{
    struct tn_sh_ref ref;
    const char *end = *of ? tn_sh_ref_read(&ref, of) : NULL;
    struct tn_sh_variable *v = *of ? NULL : tn_sh_given(shell);
    char digits[24];
    size_t n;

    if (*of && (!end || *end || strchr("#?$!-", ref.name[0])))
        return false;
    if (*of && ((v = tn_sh_ref_variable(shell, &ref)) == NULL || !locate(shell, v, &ref)))
        return false;
    if (!v)
        return false;
    for (size_t i = 0; i < v->values.n; i++) /* a pattern is as many words as files match it */
        if (strchr(v->values.v[i], MARK) ||
            (v->array && !v->keyed && (!*of || ref.all) && strpbrk(v->values.v[i], "*?[")))
            return false;
    v->used = true;
    if (*of)
        tn_sh_ref_bound(shell, v, &ref);
    n = !*of || ref.all           ? v->values.n / (v->keyed ? 2 : 1)
        : ref.index < v->values.n ? strlen(v->values.v[ref.index])
                                  : 0;
    snprintf(digits, sizeof(digits), "%zu", n);
    tn_sh_put_value(shell, sink, digits, true);
    return true;
}

static const char *piece(struct tn_sh *shell, struct tn_sh_sink *sink, const char *pos, char *quote,
                         int depth);

static void put_text(struct tn_sh *shell, struct tn_sh_sink *sink, const char *pos, bool quoted,
                     int depth)
{
    char quote = quoted ? '"' : 0;

    while (*pos && shell->r == 0) {
        if (!quote && sink->split && isspace((unsigned char)*pos)) {
            tn_sh_end_word(shell, sink);
            pos++;
        } else {
            pos = piece(shell, sink, pos, &quote, depth);
        }
    }
}

char *tn_sh_key(struct tn_sh *shell, const char *key)
{
    struct tn_sh_sink text = {.out = NULL};

    put_text(shell, &text, key, true, 1);
    return str_take(&text.cur);
}

/* ${@:2} or ${LIST[@]:2}, from OPERATION on: false where it is not of whole numbers. */
static bool put_rest(struct tn_sh *shell, struct tn_sh_sink *sink,
                     const struct tn_sh_variable *variable, const char *operation, bool quoted)
{
    size_t digits = strspn(operation + 1, "0123456789"), from, given = str_eq(variable->name, "@");
    struct tn_sh_variable rest = {.array = true};
    struct tn_sh_ref all = {.all = true};

    from = strtoul(operation + 1, NULL, 10);
    if (*operation != ':' || !digits || digits > 6 || operation[1 + digits] || from < given ||
        variable->keyed)
        return false;
    for (size_t i = 0; i < variable->values.n; i++)
        if (strchr(variable->values.v[i], MARK))
            return false;
    for (size_t i = from - given; i < variable->values.n; i++)
        tn_sh_list_add(&rest.values, mem_strdup(variable->values.v[i]));
    tn_sh_ref_put(shell, sink, &rest, &all, quoted);
    tn_sh_list_done(&rest.values);
    return true;
}

/* What OPERATION makes of what V holds at REF, V's value as it is known. */
static void put_changed(struct tn_sh *shell, struct tn_sh_sink *sink, struct tn_sh_variable *v,
                        const struct tn_sh_ref *ref, const char *operation, const char *source,
                        size_t len, bool quoted, int depth)
{
    const char *value = ref->index < v->values.n ? v->values.v[ref->index] : "";
    struct tn_sh_sink text = {.out = NULL};
    char *changed = NULL;

    v->used = true;
    tn_sh_ref_bound(shell, v, ref);
    if (ref->all && put_rest(shell, sink, v, operation, quoted))
        return;
    put_text(shell, &text, operation, true, depth + 1);
    if (strchr(value, MARK))
        tn_sh_mark_of(shell, sink, value, source, len);
    else if (shell->r == 0 && !ref->all && !strchr(str_text(&text.cur), MARK) &&
             !strpbrk(operation, "\"'\\"))
        changed = tn_sh_changed(value, str_text(&text.cur));
    if (changed && (sink->open |= quoted, true))
        tn_sh_put_value(shell, sink, changed, quoted || !sink->split);
    else if (!strchr(value, MARK))
        tn_sh_mark(shell, sink, TN_WORD_RUN, source, len);
    free(changed);
    str_done(&text.cur);
}

/* ${X:+TEXT} where X may be empty: its words, if they are there at all. */
static void put_maybe(struct tn_sh *shell, struct tn_sh_sink *sink, const char *text, bool quoted,
                      int depth)
{
    struct tn_sh_list words = {0};
    struct tn_sh_sink inner = {.out = &words, .split = true};

    put_text(shell, &inner, text, false, depth);
    tn_sh_end_word(shell, &inner);
    for (size_t i = 0; i < words.n; i++) {
        if (i && sink->split && !quoted)
            tn_sh_end_word(shell, sink);
        else if (i)
            tn_sh_put(shell, sink, ' ');
        tn_sh_mark(shell, sink, TN_WORD_MAYBE, "", 0);
        tn_sh_put_value(shell, sink, words.v[i], true);
    }
    tn_sh_list_done(&words);
    str_done(&inner.cur);
}

/* The inside of ${…}, SOURCE with its dollar and brackets. */
static void braced(struct tn_sh *shell, struct tn_sh_sink *sink, const char *source, size_t len,
                   bool quoted, int depth)
{
    AUTO_FREE char *inside = tn_sh_copy(source + 2, len - 3);
    struct tn_sh_variable *v;
    struct tn_sh_ref r;
    const char *p = tn_sh_ref_read(&r, inside);
    bool colon, empty;

    if (inside[0] == '#' && put_length(shell, sink, inside + 1))
        return;
    if (!p || (r.name[0] == '#' && *p) || (r.name[0] == '!' && *p)) {
        tn_sh_mark(shell, sink, TN_WORD_RUN, source, len);
        return;
    }
    colon = *p == ':' && p[1] && strchr("-=+?", p[1]);
    p += colon;
    v = tn_sh_ref_variable(shell, &r);
    if (v && ((r.key && *p == '=') || !locate(shell, v, &r))) {
        v->used = true;
        tn_sh_mark_of(shell, sink, v->values.n ? v->values.v[0] : "", source, len);
        return;
    }
    if (v && *p && !strchr("-=+?", *p)) {
        put_changed(shell, sink, v, &r, p, source, len, quoted, depth);
        return;
    }
    if (*p && !strchr("-=+?", *p)) {
        tn_sh_ref_unset(shell, sink, &r, source, len, quoted);
        return;
    }
    empty = !v || r.index >= v->values.n || (colon && !*v->values.v[r.index]);
    if (*p == '+') {
        if (!empty && colon && !r.all && tn_sh_may_be_empty(v->values.v[r.index]))
            put_maybe(shell, sink, p + 1, quoted, depth + 1);
        else if (!empty)
            put_text(shell, sink, p + 1, quoted, depth + 1);
    } else if (*p == '=' && empty) {
        struct tn_sh_list value = {0};
        struct tn_sh_sink one = {.out = &value};

        one.open = true;
        put_text(shell, &one, p + 1, true, depth + 1);
        tn_sh_end_word(shell, &one);
        str_done(&one.cur);
        tn_sh_assign(shell, r.name, &value, false, false);
        v = tn_sh_find(shell, r.name);
        if (v)
            tn_sh_ref_put(shell, sink, v, &r, quoted);
    } else if (*p == '-' && empty) {
        put_text(shell, sink, p + 1, quoted, depth + 1);
    } else if (v) {
        tn_sh_ref_put(shell, sink, v, &r, quoted);
    } else {
        tn_sh_ref_unset(shell, sink, &r, source, len, quoted);
    }
}

/* $((…)), LEN letters at SOURCE. */
static void put_sum(struct tn_sh *shell, struct tn_sh_sink *sink, const char *source, size_t len,
                    int depth)
{
    AUTO_FREE char *inside = tn_sh_copy(source + 3, len - 5);
    AUTO_FREE char *unset = NULL;
    struct tn_sh_sink text = {.out = NULL};
    char digits[24];
    int64_t v = 0;

    put_text(shell, &text, inside, true, depth + 1);
    if (shell->r == 0 && strchr(str_text(&text.cur), MARK)) {
        tn_sh_mark_of(shell, sink, str_text(&text.cur), source, len);
        tn_sh_sets(shell, inside, inside + strlen(inside));
        str_done(&text.cur);
        return;
    }
    switch (tn_sh_arithmetic(&v, &unset, shell, str_text(&text.cur))) {
    case TN_SH_SUM:
        snprintf(digits, sizeof(digits), "%lld", (long long)v);
        tn_sh_put_value(shell, sink, digits, true);
        break;
    case TN_SH_UNSET:
        tn_sh_sets(shell, inside, inside + strlen(inside));
        tn_sh_mark(shell, sink, TN_WORD_UNSET, unset, strlen(unset));
        break;
    case TN_SH_WRONG:
        tn_sh_sets(shell, inside, inside + strlen(inside));
        tn_sh_mark(shell, sink, TN_WORD_WRONG, source, len);
        break;
    default:
        tn_sh_sets(shell, inside, inside + strlen(inside));
        tn_sh_mark(shell, sink, TN_WORD_RUN, source, len);
    }
    str_done(&text.cur);
}

enum tn_sh_truth tn_sh_sum_truth(struct tn_sh *shell, const char *text)
{
    struct tn_sh_sink sum = {.out = NULL};
    AUTO_FREE char *unset = NULL;
    enum tn_sh_truth ret = TN_SH_UNSURE;
    int64_t value = 0;

    put_text(shell, &sum, text, true, 0);
    if (shell->r == 0 && !strchr(str_text(&sum.cur), MARK) &&
        tn_sh_arithmetic(&value, &unset, shell, str_text(&sum.cur)) == TN_SH_SUM)
        ret = value ? TN_SH_TRUE : TN_SH_FALSE;
    else
        tn_sh_sets(shell, text, text + strlen(text));
    str_done(&sum.cur);
    return ret;
}

/* What the pipe INSIDE prints, to be freed; NULL: only a shell could tell. */
static char *output_of(struct tn_sh *shell, const char *inside)
{
    const char *pos = tn_sh_skip(inside, false);
    char *output = NULL;

    do {
        struct tn_sh_list words = {0};
        AUTO_FREE char *input = output;

        for (; *pos && *pos != '|' && shell->r == 0; pos = tn_sh_skip(pos, false))
            pos = tn_sh_word(shell, &words, pos, true, false);
        output = tn_sh_substituted(shell, &words, input);
        tn_sh_list_done(&words);
        if (*pos == '|')
            pos = tn_sh_skip(pos + 1, false);
        else
            break;
    } while (output && shell->r == 0);
    return output;
}

/* INSIDE of $(…) or `…`, LEN letters at SOURCE with these. */
static void put_output(struct tn_sh *shell, struct tn_sh_sink *sink, const char *inside,
                       const char *source, size_t len, bool quoted)
{
    AUTO_FREE char *output = NULL;

    if (shell->substitutes < MAX_DEPTH && tn_sh_is_substituted(inside)) {
        shell->substitutes++;
        output = output_of(shell, inside);
        shell->substitutes--;
    }
    if (output)
        tn_sh_put_value(shell, sink, output, quoted || !sink->split);
    else
        tn_sh_mark(shell, sink, TN_WORD_RUN, source, len);
}

/* POS is at the dollar. Returns behind what belongs to it. */
static const char *dollar(struct tn_sh *shell, struct tn_sh_sink *sink, const char *pos,
                          bool quoted, int depth)
{
    const char *end;
    struct tn_sh_variable *v;
    struct tn_sh_ref r;
    size_t n;

    if (pos[1] == '(' || pos[1] == '{') {
        end = tn_sh_closing(shell, pos + 1);
        if (shell->r < 0)
            return end;
        if (pos[1] == '(' && pos[2] == '(' && end - pos > 5 && end[-2] == ')' && depth < MAX_DEPTH)
            put_sum(shell, sink, pos, (size_t)(end - pos), depth);
        else if (pos[1] == '(') {
            AUTO_FREE char *inside = tn_sh_copy(pos + 2, (size_t)(end - pos) - 3);

            put_output(shell, sink, inside, pos, (size_t)(end - pos), quoted);
        } else if (depth >= MAX_DEPTH)
            tn_sh_mark(shell, sink, TN_WORD_RUN, pos, (size_t)(end - pos));
        else
            braced(shell, sink, pos, (size_t)(end - pos), quoted, depth);
        return end;
    }
    n = tn_sh_name_length(pos + 1);
    if (!n || n >= MAX_NAME) {
        tn_sh_put(shell, sink, *pos);
        return pos + 1;
    }
    r = (struct tn_sh_ref){.all = pos[1] == '@' || pos[1] == '*', .star = pos[1] == '*'};
    memcpy(r.name, r.all ? "@" : pos + 1, r.all ? 1 : n);
    if (r.name[0] == '#' && put_length(shell, sink, ""))
        return pos + 2;
    v = tn_sh_ref_variable(shell, &r);
    if (v && locate(shell, v, &r))
        tn_sh_ref_put(shell, sink, v, &r, quoted);
    else
        tn_sh_ref_unset(shell, sink, &r, pos, n + 1, quoted);
    return pos + 1 + n;
}

/* A backslash at the end of a line, whichever system's. */
bool tn_sh_continues(const char *pos)
{
    return *pos == '\\' && (pos[1] == '\n' || (pos[1] == '\r' && pos[2] == '\n'));
}

const char *tn_sh_skip(const char *pos, bool lines)
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

/* One letter, quote or expansion of a word. Returns behind it. */
static const char *piece(struct tn_sh *shell, struct tn_sh_sink *sink, const char *pos, char *quote,
                         int depth)
{
    if (*pos == MARK) { /* from the outer text */
        for (; *pos && *pos != ENDMARK; pos++)
            tn_sh_put(shell, sink,
                      *quote && *pos == TN_WORD_NONE && pos[-1] == MARK ? TN_WORD_UNSET : *pos);
        tn_sh_put(shell, sink, ENDMARK);
        return pos + (*pos == ENDMARK);
    }
    if (*quote == '\'' ? *pos == '\'' : *pos == '"') {
        *quote = *quote ? 0 : *pos;
        sink->open = !sink->none || *str_text(&sink->cur);
        sink->none = false;
        return pos + 1;
    }
    if (!*quote && *pos == '\'') {
        *quote = *pos;
        sink->open = true;
        return pos + 1;
    }
    if (*quote == '\'') {
        tn_sh_put(shell, sink, *pos);
        return pos + 1;
    }
    if (tn_sh_continues(pos))
        return pos + (pos[1] == '\r' ? 3 : 2);
    if (*pos == '\\' && pos[1] && (!*quote || strchr("$`\"\\", pos[1]))) {
        tn_sh_put(shell, sink, pos[1]);
        return pos + 2;
    }
    if (*pos == '$' && !*quote && (pos[1] == '\'' || pos[1] == '"'))
        return pos + 1;
    if (*pos == '$')
        return dollar(shell, sink, pos, *quote != 0, depth);
    if (*pos == '`') {
        const char *end = strchr(pos + 1, '`');

        if (!end) {
            shell->r = err_set(shell->e, -EINVAL, "unterminated quote: %.64s", pos);
            return pos;
        }
        AUTO_FREE char *inside = tn_sh_copy(pos + 1, (size_t)(end - pos) - 1);

        put_output(shell, sink, strchr(inside, '\\') ? "" : inside, pos, (size_t)(end + 1 - pos),
                   *quote);
        return end + 1;
    }
    tn_sh_put(shell, sink, *pos);
    return pos + 1;
}

/* What braces make of the word of LENGTH letters at SOURCE, which SINK has as it is, behind WORDS
 * others. */
static void put_braced(struct tn_sh *shell, struct tn_sh_sink *sink, size_t words,
                       const char *source, size_t length)
{
    size_t n = sink->out->n;
    enum tn_sh_braced braced = tn_sh_braced(sink->out, source, length);

    if (braced == TN_SH_NO_BRACES)
        return;
    str_trunc(&sink->cur, 0);
    sink->open = false;
    if (braced == TN_SH_RANGE) {
        shell->words += sink->out->n - n;
        return;
    }
    while (sink->out->n > words)
        free(sink->out->v[--sink->out->n]);
    tn_sh_mark(shell, sink, TN_WORD_RUN, source, length);
}

/* The word at POS, as many words as it becomes. In an array, a bracket that it did not open ends
 * it.
 */
const char *tn_sh_word(struct tn_sh *shell, struct tn_sh_list *out, const char *pos, bool split,
                       bool in_array)
{
    struct tn_sh_sink k = {.out = out, .split = split};
    const char *from = pos;
    char quote = 0;
    int brackets = 0;
    size_t words = out->n;

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
        shell->r = err_set(shell->e, -EINVAL, "unterminated quote: %.64s", from);
    if (split && shell->r == 0 && memchr(from, '{', (size_t)(pos - from)))
        put_braced(shell, &k, words, from, (size_t)(pos - from));
    k.open |= !split; /* NAME= is an empty value */
    tn_sh_end_word(shell, &k);
    str_done(&k.cur);
    return pos;
}

void tn_sh_words_of(struct tn_sh *shell, struct tn_sh_list *out,
                    const struct tn_sh_variable *variable)
{
    struct tn_sh_sink k = {.out = out, .split = true};

    for (size_t i = 0; i < variable->values.n; i++) {
        tn_sh_put_value(shell, &k, variable->values.v[i], variable->array);
        tn_sh_end_word(shell, &k);
    }
    str_done(&k.cur);
}

char *tn_sh_expanded(struct tn_sh *shell, const char *text)
{
    struct tn_sh_sink sink = {.out = NULL};

    while (*text && shell->r == 0) {
        if (tn_sh_continues(text)) {
            text += text[1] == '\r' ? 3 : 2;
        } else if (*text == '"') { /* no quote here */
            tn_sh_put(shell, &sink, *text++);
        } else {
            char quote = '"';

            text = piece(shell, &sink, text, &quote, 0);
        }
    }
    return str_take(&sink.cur);
}
