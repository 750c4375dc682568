/*
 * What a dollar names in a shell script: $NAME, ${NAME[KEY]}, ${NAME[@]}, and what it is replaced
 * by. What only a shell could tell stays as it is written and is marked.
 */
#include "tuner/export/shell_flow.h"

#include <assert.h>

void tn_sh_mark(struct tn_sh *shell, struct tn_sh_sink *sink, enum tn_word_why why,
                const char *source, size_t len)
{
    tn_sh_put(shell, sink, MARK);
    tn_sh_put(shell, sink, (char)why);
    for (size_t i = 0; i < len; i++)
        tn_sh_put(shell, sink, source[i]);
    tn_sh_put(shell, sink, ENDMARK);
}

/* Why and of what the first part of TEXT that is not known is not, as a mark. */
void tn_sh_mark_of(struct tn_sh *shell, struct tn_sh_sink *sink, const char *text,
                   const char *source, size_t len)
{
    const char *at = strchr(text, MARK), *end = at ? strchr(at, ENDMARK) : NULL;

    if (end && end > at + 2)
        tn_sh_mark(shell, sink, (enum tn_word_why)at[1], at + 2, (size_t)(end - at - 2));
    else
        tn_sh_mark(shell, sink, end ? (enum tn_word_why)at[1] : TN_WORD_RUN, source, len);
}

/* POS is at an opening bracket: behind the one that closes it, quotes and nesting left alone. */
const char *tn_sh_closing(struct tn_sh *shell, const char *pos)
{
    char open = *pos, close = open == '(' ? ')' : '}', quote = 0;
    int depth = 0;

    assert(open == '(' || open == '{');
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
    shell->r = err_set(shell->e, -EINVAL, "unclosed bracket in the script: %c", open);
    return pos;
}

/* Returns behind the name and its subscript; NULL where it is none that we read. */
const char *tn_sh_ref_read(struct tn_sh_ref *ret, const char *pos)
{
    size_t n = isdigit((unsigned char)*pos) ? strspn(pos, "0123456789") : tn_sh_name_length(pos);
    int depth = 1;

    *ret = (struct tn_sh_ref){0};
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
    ret->key = ++pos;
    for (; *pos && depth; pos++)
        depth += *pos == '[' ? 1 : *pos == ']' ? -1 : 0;
    ret->key_length = (size_t)(pos - ret->key) - (depth == 0);
    return depth || !ret->key_length ? NULL : pos;
}

/* Elements of an array by keys: several in an order that only a shell could tell. */
static bool put_keyed(struct tn_sh *shell, struct tn_sh_sink *sink, struct tn_sh_variable *variable,
                      const struct tn_sh_ref *ref, bool quoted)
{
    bool many = ref->all && variable->values.n > 2;

    if (many) {
        tn_sh_mark(shell, sink, TN_WORD_RUN, variable->name, strlen(variable->name));
        return true;
    }
    if (!ref->all && ref->index % 2 == 1)
        return false;
    if (ref->all && variable->values.n) {
        tn_sh_put_value(shell, sink, variable->values.v[1], quoted || !sink->split);
        sink->open |= quoted;
    } else if (quoted) {
        sink->open |= !ref->all;
        sink->none = ref->all;
    }
    return true;
}

void tn_sh_ref_bound(struct tn_sh *shell, const struct tn_sh_variable *variable,
                     const struct tn_sh_ref *ref)
{
    if (shell->nounset && !ref->all && ref->index >= variable->values.n &&
        tn_sh_runs(shell) != TN_SH_FALSE && shell->r == 0)
        shell->r = err_set(shell->e, -EINVAL,
                           "`$%.64s` is not set, which ends a script with set -u: say how the "
                           "script is called (--call \"NAME=value bash job.sh ARGUMENT ...\")",
                           ref->name);
}

void tn_sh_ref_put(struct tn_sh *shell, struct tn_sh_sink *sink, struct tn_sh_variable *variable,
                   const struct tn_sh_ref *ref, bool quoted)
{
    bool whole = quoted || !sink->split;

    tn_sh_ref_bound(shell, variable, ref);
    if (variable->keyed && put_keyed(shell, sink, variable, ref, quoted)) {
        variable->used = true;
        return;
    }

    variable->used = true;
    sink->open |= quoted && !ref->all;
    sink->none = quoted && ref->all && !variable->values.n;
    if (ref->star && quoted && variable->values.n > 1 && tn_sh_splits_otherwise(shell, " ")) {
        tn_sh_mark(shell, sink, TN_WORD_RUN, "$IFS", 4);
        return;
    }
    for (size_t i = ref->all ? 0 : ref->index; i < variable->values.n; i++) {
        if (ref->all && i && sink->split && !(quoted && ref->star))
            tn_sh_end_word(shell, sink);
        else if (ref->all && i)
            tn_sh_put(shell, sink, ' ');
        tn_sh_put_value(shell, sink, variable->values.v[i], whole);
        sink->open |= quoted;
        if (!ref->all)
            return;
    }
}

/* The variable of REF, where it is known which; $1 is the first word of $@. */
struct tn_sh_variable *tn_sh_ref_variable(struct tn_sh *shell, struct tn_sh_ref *ref)
{
    size_t number = isdigit((unsigned char)ref->name[0]) ? strtoul(ref->name, NULL, 10) : 0;
    struct tn_sh_variable *v;

    if (!number)
        return tn_sh_find(shell, ref->name);
    v = tn_sh_given(shell);
    if (!v && tn_sh_find(shell, "@"))
        return tn_sh_unknown(shell, ref->name, TN_WORD_GIVEN);
    ref->index = number - 1;
    /* A default is read, but what else it may be is not made of an assumption. */
    return v && v->presumed && ref->index >= v->values.n ? NULL : v;
}

/* A variable that the script does not set. */
void tn_sh_ref_unset(struct tn_sh *shell, struct tn_sh_sink *sink, const struct tn_sh_ref *ref,
                     const char *source, size_t len, bool quoted)
{
    bool given = ref->name[0] == '@' || ref->name[0] == '#' ||
                 (isdigit((unsigned char)ref->name[0]) && ref->name[0] != '0');
    bool special = strchr("?$!-0", ref->name[0]) != NULL;
    bool none = shell->paths->assumed && !shell->doubted && !shell->nounset &&
                !tn_sh_is_set_outside(ref->name) && !(quoted && sink->split);
    const struct tn_sh_variable *arguments = given ? tn_sh_given(shell) : NULL;

    tn_sh_mark(shell, sink,
               arguments && arguments->presumed ? TN_WORD_ABSENT
               : given                          ? TN_WORD_GIVEN
               : special                        ? TN_WORD_RUN
               : none                           ? TN_WORD_NONE
                                                : TN_WORD_UNSET,
               source, len);
}

/* Is VALUE nothing but what is not known, which may be nothing, or what is maybe not said? */
bool tn_sh_may_be_empty(const char *value)
{
    bool maybe = value[0] == MARK && value[1] == TN_WORD_MAYBE;

    while (*value == MARK && strchr(value, ENDMARK))
        value = strchr(value, ENDMARK) + 1;
    return maybe || !*value;
}
