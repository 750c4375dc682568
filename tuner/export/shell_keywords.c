/*
 * Words of the shell's own at the beginning of a command: those that open, close and divide levels,
 * and what sets variables, NAME=… and ((…)).
 */
#include "tuner/export/shell_flow.h"

#include <assert.h>

static const char *array(struct tn_sh *shell, struct tn_sh_list *out, const char *pos)
{
    for (pos = tn_sh_skip(pos, true); *pos && *pos != ')' && shell->r == 0;
         pos = tn_sh_skip(pos, true))
        pos = *pos == ';' ? pos + 1 : tn_sh_word(shell, out, pos, true, true);
    if (!*pos && shell->r == 0)
        shell->r = err_set(shell->e, -EINVAL, "unclosed bracket in the script: (");
    return *pos ? pos + 1 : pos;
}

/* ([KEY]=… …): an array by keys, of which only a shell could tell what is where. */
static void forget_keys(struct tn_sh_list *values, const char *name)
{
    for (size_t i = 0; i < values->n; i++)
        if (values->v[i][0] == '[' && strstr(values->v[i], "]=")) {
            tn_sh_list_done(values);
            tn_sh_list_add(values, mem_printf("%c%c$%s%c", MARK, TN_WORD_RUN, name, ENDMARK));
            return;
        }
}

/* NAME[KEY]=… or NAME[KEY]+=…, N letters of a name at POS: behind it, or POS where there is
 * none. */
static const char *element(struct tn_sh *shell, const char *pos, size_t n)
{
    const char *end = pos + n + strcspn(pos + n, "] \t\r\n;=");
    AUTO_FREE char *text = NULL, *key = NULL;
    struct tn_sh_list value = {0};
    const char *close;
    char name[MAX_NAME];
    bool append;

    if (pos[n] != '[' || *end != ']')
        return pos;
    end += 1 + (end[1] == '+');
    if (*end != '=')
        return pos;
    snprintf(name, sizeof(name), "%.*s", (int)n, pos);
    close = pos + n + strcspn(pos + n, "]");
    text = tn_sh_copy(pos + n + 1, (size_t)(close - pos) - n - 1);
    key = tn_sh_key(shell, text);
    append = end[-1] == '+';
    end = tn_sh_word(shell, &value, end + 1, false, tn_sh_in_brackets(shell));
    if (!shell->assigned)
        shell->assigned = TN_SH_TRUE;
    if (shell->r == 0)
        tn_sh_assign_element(shell, name, key, value.n ? value.v[0] : "", append);
    tn_sh_list_done(&value);
    return end;
}

/* NAME is set to VALUE, or added to, as the sum that it is. */
static void sum_up(struct tn_sh *shell, const char *name, struct tn_sh_list *value, bool append)
{
    const char *text = value->n ? value->v[0] : "", *old = append ? tn_sh_value(shell, name) : "0";
    AUTO_FREE char *whole = mem_printf("(%s)+(%s)", old && *old ? old : "0", *text ? text : "0");
    AUTO_FREE char *unset = NULL;
    char *sum;
    int64_t v = 0;

    assert(value->n <= 1);

    if (strchr(whole, MARK))
        sum = mem_printf("%c%c$%s%c", MARK, TN_WORD_RUN, name, ENDMARK);
    else if (tn_sh_arithmetic(&v, &unset, shell, whole) == TN_SH_SUM)
        sum = mem_printf("%lld", (long long)v);
    else
        sum = mem_printf("%c%c$%s%c", MARK, TN_WORD_RUN, name, ENDMARK);
    tn_sh_list_done(value);
    tn_sh_list_add(value, sum);
}

const char *tn_sh_assignment(struct tn_sh *shell, const char *pos)
{
    size_t n = isalpha((unsigned char)*pos) || *pos == '_' ? tn_sh_name_length(pos) : 0;
    const char *q = pos + n;
    struct tn_sh_list values = {0};
    const struct tn_sh_variable *v;
    char name[MAX_NAME];
    bool append, is_array;

    if (!n || n >= MAX_NAME)
        return pos;
    append = *q == '+';
    q += append;
    if (*q == '[')
        return element(shell, pos, n);
    if (*q++ != '=')
        return pos;
    snprintf(name, sizeof(name), "%.*s", (int)n, pos);
    is_array = *q == '(';
    q = is_array ? array(shell, &values, q + 1)
                 : tn_sh_word(shell, &values, q, false, tn_sh_in_brackets(shell));
    v = tn_sh_find(shell, name);
    if (is_array && ((shell->declares && shell->keyed) || (v && v->keyed))) {
        if (!shell->assigned)
            shell->assigned = TN_SH_TRUE;
        if (shell->local && shell->declares)
            tn_sh_local(shell, name);
        tn_sh_assign_keyed(shell, name, &values, append);
        return q;
    }
    if (is_array)
        forget_keys(&values, name);
    if (!shell->assigned)
        shell->assigned = TN_SH_TRUE;
    for (size_t i = 0; i < values.n; i++)
        if (strchr(values.v[i], MARK)) /* maybe of $(…), which may fail */
            shell->assigned = TN_SH_UNSURE;
    if (shell->local && shell->declares)
        tn_sh_local(shell, name);
    if (!shell->declares && !is_array) /* which no command can be given */
        tn_sh_aside(shell, name);
    if ((v && v->integer) || (shell->declares && shell->integer)) {
        if (is_array) {
            tn_sh_list_done(&values);
            tn_sh_computed(shell, name);
            return q;
        }
        sum_up(shell, name, &values, append);
        append = false;
    }
    tn_sh_assign(shell, name, &values, append, is_array);
    if (shell->declares && shell->integer)
        tn_sh_integer(shell, name);
    return q;
}

/* ((…)), which may set variables. */
static const char *arithmetic(struct tn_sh *shell, const char *pos)
{
    const char *end = tn_sh_closing(shell, pos);

    if (end - pos > 4 && shell->r == 0) {
        AUTO_FREE char *inside = tn_sh_copy(pos + 2, (size_t)(end - pos) - 4);

        shell->summed = !shell->negated;
        tn_sh_status(shell, tn_sh_sum_truth(shell, inside));
    }
    return end;
}

/* POS is behind `case`. Returns behind its `in`. */
static const char *case_of(struct tn_sh *shell, const char *pos)
{
    struct tn_sh_list of = {0};

    pos = tn_sh_skip(tn_sh_word(shell, &of, pos, false, false), true);
    tn_sh_case(shell, of.n ? of.v[0] : NULL);
    tn_sh_list_done(&of);
    return str_starts(pos, "in") ? pos + 2 : pos;
}

/* Words of loops, and brackets of groups: behind the one of N letters at POS, or POS. */
static const char *loop_or_group(struct tn_sh *shell, const char *pos, size_t n)
{
    const char *end = pos + n;

    if (str_starts(pos, "for(("))
        return tn_sh_for(shell, pos + 3, false);
    if (tn_sh_is_word(pos, n, "for") || tn_sh_is_word(pos, n, "select"))
        return tn_sh_for(shell, tn_sh_skip(end, false), *pos == 's');
    if (tn_sh_is_word(pos, n, "do"))
        return tn_sh_do(shell, end);
    if (tn_sh_is_word(pos, n, "done"))
        return tn_sh_done(shell, end);
    if (tn_sh_is_word(pos, n, "while") || tn_sh_is_word(pos, n, "until"))
        tn_sh_while(shell, end, *pos == 'u');
    else if (tn_sh_is_word(pos, n, "{"))
        tn_sh_group(shell, TN_SH_BRACES);
    else if (tn_sh_is_word(pos, n, "}"))
        tn_sh_group_end(shell, TN_SH_BRACES, end);
    else
        return pos;
    return end;
}

static void close_if(struct tn_sh *shell)
{
    tn_sh_close(shell, TN_SH_IF);
}

static void close_case(struct tn_sh *shell)
{
    tn_sh_close(shell, TN_SH_CASE);
}

/* Words that open or close levels, or divide them: behind the one of N letters at POS, or POS. */
static const char *divider(struct tn_sh *shell, const char *pos, size_t n)
{
    static const struct {
        const char *word;
        void (*fn)(struct tn_sh *shell);
    } words[] = {{"if", tn_sh_if},     {"then", tn_sh_then}, {"elif", tn_sh_elif},
                 {"else", tn_sh_else}, {"fi", close_if},     {"esac", close_case}};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (tn_sh_is_word(pos, n, words[i].word)) {
            words[i].fn(shell);
            return pos + n;
        }
    return loop_or_group(shell, pos, n);
}

/* declare -n: a name for another variable, set and read through it. */
static void refuse_reference(struct tn_sh *shell, const char *names)
{
    if (shell->r == 0 && tn_sh_runs(shell) != TN_SH_FALSE)
        shell->r = err_set(shell->e, -EINVAL,
                           "declare -n%.*s: a variable by another name is not followed here: write "
                           "the variable itself",
                           (int)strcspn(names, "\r\n;"), names);
}

const char *tn_sh_keyword(struct tn_sh *shell, const char *pos)
{
    static const char *const sets[] = {"export", "declare", "local", "readonly", "typeset", NULL};
    static const char *const passes[] = {"time", "exec", "nohup", "function", NULL};
    size_t n = strcspn(pos, " \t\r\n;");
    const char *next = tn_sh_skip(pos + n, false), *behind = tn_sh_function_at(shell, pos);

    if (behind == pos)
        behind = divider(shell, pos, n);

    if (behind != pos)
        return behind;
    if (pos[0] == '(' && pos[1] == '(')
        return arithmetic(shell, pos);
    if (pos[0] == '(') {
        tn_sh_group(shell, TN_SH_BRACKETS);
        return pos + 1;
    }
    if (tn_sh_is_word(pos, n, "case"))
        return case_of(shell, next);
    if (tn_sh_is_word(pos, n, "!")) {
        shell->negated = !shell->negated;
        return pos + n;
    }
    if (tn_sh_one_of(pos, n, sets)) {
        shell->declares = true;
        shell->local = tn_sh_is_word(pos, n, "local") || tn_sh_is_word(pos, n, "declare") ||
                       tn_sh_is_word(pos, n, "typeset");
        shell->keyed = shell->integer = false;
        for (; *next == '-' || *next == '+'; next = tn_sh_skip(next + n, false)) {
            n = strcspn(next, " \t\r\n;");
            shell->keyed |= *next == '-' && memchr(next, 'A', n);
            shell->integer |= *next == '-' && memchr(next, 'i', n);
            if (*next == '-' && memchr(next, 'n', n) && !tn_sh_is_word(pos, 6, "export"))
                refuse_reference(shell, next + n);
            shell->local &= !memchr(next, 'g', n); /* declare -g */
        }
        return next;
    }
    if (n > 2 && pos[n - 1] == ')' && pos[n - 2] == '(') /* a function */
        return pos + n;
    if (n > 3 && !strncmp(pos + n - 3, "(){", 3)) /* and the brace that opens it */
        return pos + n - 1;
    shell->execs |= tn_sh_is_word(pos, n, "exec");
    return tn_sh_one_of(pos, n, passes) ? pos + n : pos;
}
