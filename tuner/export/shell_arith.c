/*
 * $((…)) and ((…)) of a shell script: C's operators and ** over 64-bit integers, as the shell
 * computes them (division truncates, ** binds to the right and tighter than a sign). A name without
 * a dollar is a variable, and what it holds is an expression again.
 */
#include "tuner/export/shell.h"

#include <assert.h>

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

struct expression {
    struct tn_sh *s;
    const char *p;
    int depth;
    enum tn_sh_sum state;
    char *unset; /* the first name that the script does not set */
    bool idle;   /* behind a false && and the like: what is read is not done */
    bool inner;  /* what a variable holds */
};

static int64_t stop(struct expression *expression, enum tn_sh_sum state)
{
    if (expression->state == TN_SH_SUM)
        expression->state = state;
    return 0;
}

static char operator_at(struct expression *expression)
{
    expression->p += strspn(expression->p, " \t\r\n");
    return *expression->p;
}

static int64_t apply(struct expression *expression, char op, int64_t left, int64_t right)
{
    int64_t v;

    assert(op && strchr("+-*/%<>&^|", op));
    if (expression->state != TN_SH_SUM || expression->idle)
        return 0;
    if (op == '<' || op == '>') {
        if (right < 0 || right > 63)
            return stop(expression, TN_SH_UNKNOWN);
        return op == '>' ? left >> right : (int64_t)((uint64_t)left << right);
    }
    if (strchr("&^|", op))
        return op == '&' ? left & right : op == '^' ? left ^ right : left | right;
    if ((op == '/' || op == '%') && (right == 0 || (left == INT64_MIN && right == -1)))
        return stop(expression, TN_SH_WRONG);
    if (op == '/')
        return left / right;
    if (op == '%')
        return left % right;
    if (op == '+'   ? __builtin_add_overflow(left, right, &v)
        : op == '-' ? __builtin_sub_overflow(left, right, &v)
                    : __builtin_mul_overflow(left, right, &v))
        return stop(expression, TN_SH_WRONG);
    return v;
}

static int64_t choice(struct expression *expression);

/* What VALUE, which a variable holds, is as an expression. */
static int64_t held(struct expression *expression, const char *value)
{
    struct expression inner = {.s = expression->s,
                               .p = value,
                               .depth = expression->depth + 1,
                               .idle = expression->idle,
                               .inner = true};
    int64_t v;

    if (strchr(value, MARK) || expression->depth >= MAX_DEPTH)
        return stop(expression, TN_SH_UNKNOWN);
    if (!value[strspn(value, " \t\n")])
        return 0;
    v = choice(&inner);
    if (inner.state == TN_SH_SUM && operator_at(&inner))
        inner.state = TN_SH_UNKNOWN;
    if (!expression->unset)
        expression->unset = TAKE(inner.unset);
    free(inner.unset);
    return inner.state == TN_SH_SUM ? v : stop(expression, inner.state);
}

static int64_t value_of(struct expression *expression, const char *name)
{
    const char *value = tn_sh_value(expression->s, name);

    if (value)
        return held(expression, value);
    if (!expression->unset)
        expression->unset = mem_strdup(name);
    return stop(expression, TN_SH_UNSET);
}

/* NAME[…], the expression at its bracket. */
static int64_t element(struct expression *expression, const char *name)
{
    const struct tn_sh_variable *v = tn_sh_find(expression->s, name);
    int64_t at, n = v ? (int64_t)v->values.n : 0;

    if (!v || v->keyed || !v->array || ++expression->depth > 64)
        return stop(expression, TN_SH_UNKNOWN);
    expression->p++;
    at = choice(expression);
    expression->depth--;
    if (expression->state != TN_SH_SUM || operator_at(expression) != ']')
        return stop(expression, TN_SH_UNKNOWN);
    expression->p++;
    at = at < 0 ? at + n : at;
    if (at < 0 || (operator_at(expression) == '=' && expression->p[1] != '='))
        return stop(expression, TN_SH_UNKNOWN);
    for (int64_t i = 0; i < n && i <= at; i++)
        if (strchr(v->values.v[i], MARK)) /* which may be several words */
            return stop(expression, TN_SH_UNKNOWN);
    return at < n ? held(expression, v->values.v[at]) : 0;
}

/* NAME is set to VALUE, which is returned. */
static int64_t set(struct expression *expression, const char *name, int64_t value)
{
    const struct tn_sh_variable *v = tn_sh_find(expression->s, name);
    struct tn_sh_list values = {0};

    if (expression->state != TN_SH_SUM || expression->idle)
        return value;
    if (expression->inner || (v && (v->array || v->keyed)))
        return stop(expression, TN_SH_UNKNOWN);
    tn_sh_list_add(&values, mem_printf("%lld", (long long)value));
    tn_sh_assign(expression->s, name, &values, false, false);
    return value;
}

/* Behind a name: the letters of = and the like, 0 where it is not set. *RET is the operator that
 * makes the value, '=' if none does. */
static size_t setter_at(char *ret, struct expression *expression)
{
    const char *p = expression->p + strspn(expression->p, " \t\r\n");

    *ret = *p;
    if (*p == '=')
        return p[1] == '=' ? 0 : (size_t)(p + 1 - expression->p);
    if (*p && strchr("+-*/%&^|", *p) && p[1] == '=')
        return (size_t)(p + 2 - expression->p);
    if ((*p == '<' || *p == '>') && p[1] == *p && p[2] == '=')
        return (size_t)(p + 3 - expression->p);
    return 0;
}

/* A name: what the script has set it to, or what it is set to here. */
static int64_t name(struct expression *expression)
{
    size_t n = tn_sh_name_length(expression->p), setter;
    AUTO_FREE char *text = tn_sh_copy(expression->p, n);
    char op;
    int64_t v;

    expression->p += n;
    if (n >= MAX_NAME)
        return stop(expression, TN_SH_UNKNOWN);
    if (*expression->p == '[')
        return element(expression, text);
    setter = setter_at(&op, expression);
    v = setter && op == '=' ? 0 : value_of(expression, text);
    if (setter) {
        int64_t right;

        expression->p += setter;
        if (++expression->depth > 64)
            return stop(expression, TN_SH_UNKNOWN);
        right = choice(expression);
        expression->depth--;
        return set(expression, text, op == '=' ? right : apply(expression, op, v, right));
    }
    op = operator_at(expression);
    if ((op == '+' || op == '-') && expression->p[1] == op) {
        expression->p += 2;
        set(expression, text, apply(expression, op, v, 1));
    }
    return v;
}

/* ++NAME and --NAME, the expression at its sign. */
static int64_t stepped(struct expression *expression)
{
    char op = *expression->p;
    size_t n;

    expression->p += 2;
    operator_at(expression);
    n = isdigit((unsigned char)*expression->p) ? 0 : strspn(expression->p, NAME_LETTERS);
    if (!n || n >= MAX_NAME || expression->p[n] == '[')
        return stop(expression, TN_SH_UNKNOWN);
    AUTO_FREE char *text = tn_sh_copy(expression->p, n);

    expression->p += n;
    return set(expression, text, apply(expression, op, value_of(expression, text), 1));
}

/* Digits, of another base as in 10#08. */
static int64_t number(struct expression *expression)
{
    char *end;
    int64_t v;

    errno = 0;
    v = strtoll(expression->p, &end, 0); /* 0x… and 0… as the shell reads them */
    if (*end == '#' && v >= 2 && v <= 36 && isalnum((unsigned char)end[1]))
        v = strtoll(end + 1, &end, (int)v);
    if (errno)
        return stop(expression, TN_SH_WRONG);
    if (isalnum((unsigned char)*end) || *end == '#' || *end == '_')
        return stop(expression, TN_SH_UNKNOWN);
    expression->p = end;
    return v;
}

static int64_t list(struct expression *expression);

/* A number, a name, brackets. */
static int64_t operand(struct expression *expression)
{
    char c = operator_at(expression);
    int64_t v;

    if (++expression->depth > 64)
        return stop(expression, TN_SH_UNKNOWN);
    if (c == '(') {
        expression->p++;
        v = list(expression);
        if (operator_at(expression) != ')')
            return stop(expression, TN_SH_UNKNOWN);
        expression->p++;
    } else if (isdigit((unsigned char)c)) {
        v = number(expression);
    } else if (isalpha((unsigned char)c) || c == '_') {
        v = name(expression);
    } else {
        return stop(expression, TN_SH_UNKNOWN);
    }
    expression->depth--;
    return v;
}

static int64_t signed_operand(struct expression *expression);

static int64_t power(struct expression *expression)
{
    int64_t base = operand(expression), exponent, v = 1;

    if (expression->state != TN_SH_SUM || operator_at(expression) != '*' || expression->p[1] != '*')
        return base;
    expression->p += 2;
    exponent = signed_operand(expression);
    if (exponent < 0)
        return stop(expression, TN_SH_WRONG);
    if (base >= -1 && base <= 1)
        return base == -1 && exponent % 2 == 0 ? 1 : exponent == 0 ? 1 : base;
    for (; exponent > 0 && expression->state == TN_SH_SUM; exponent--)
        v = apply(expression, '*', v, base);
    return v;
}

static int64_t signed_operand(struct expression *expression)
{
    bool minus = false;
    int64_t v;

    if ((operator_at(expression) == '!' && expression->p[1] != '=') || *expression->p == '~') {
        bool bits = *expression->p++ == '~';

        if (++expression->depth > 64)
            return stop(expression, TN_SH_UNKNOWN);
        v = signed_operand(expression);
        expression->depth--;
        return bits ? ~v : !v;
    }

    for (char c; (c = operator_at(expression)) == '-' || c == '+'; expression->p++) {
        if (expression->p[1] == c)
            return minus ? apply(expression, '-', 0, stepped(expression)) : stepped(expression);
        minus ^= c == '-';
    }
    v = power(expression);
    return minus ? apply(expression, '-', 0, v) : v;
}

static int64_t product(struct expression *expression)
{
    int64_t v = signed_operand(expression);

    for (char c;
         expression->state == TN_SH_SUM && (c = operator_at(expression)) && strchr("*/%", c);) {
        if (expression->p[1] == '=')
            return stop(expression, TN_SH_UNKNOWN);
        expression->p++;
        v = apply(expression, c, v, signed_operand(expression));
    }
    return v;
}

static int64_t sum(struct expression *expression)
{
    int64_t v = product(expression);

    for (char c;
         expression->state == TN_SH_SUM && (c = operator_at(expression)) && strchr("+-", c);) {
        if (expression->p[1] == '=' || expression->p[1] == c)
            return stop(expression, TN_SH_UNKNOWN);
        expression->p++;
        v = apply(expression, c, v, product(expression));
    }
    return v;
}

/* Which of OPS, longer ones before their beginnings, is at the expression's place, which moves
 * behind it; -1: none. */
static int take_one_of(struct expression *expression, const char *const *ops)
{
    operator_at(expression);
    for (int i = 0; expression->state == TN_SH_SUM && ops[i]; i++)
        if (str_starts(expression->p, ops[i])) {
            expression->p += strlen(ops[i]);
            return i;
        }
    return -1;
}

static int64_t shifted(struct expression *expression)
{
    static const char *const ops[] = {"<<", ">>", NULL};
    int64_t left = sum(expression);

    for (int op; (op = take_one_of(expression, ops)) >= 0;)
        left = apply(expression, ops[op][0], left, sum(expression));
    return left;
}

static int64_t order(struct expression *expression)
{
    static const char *const ops[] = {"<=", ">=", "<", ">", NULL};
    int64_t left = shifted(expression), right;

    for (int op; (op = take_one_of(expression, ops)) >= 0;) {
        right = shifted(expression);
        left = (const bool[]){left <= right, left >= right, left<right, left> right}[op];
    }
    return left;
}

static int64_t equality(struct expression *expression)
{
    static const char *const ops[] = {"==", "!=", NULL};
    int64_t left = order(expression);

    for (int op; (op = take_one_of(expression, ops)) >= 0;)
        left = (left == order(expression)) == (op == 0);
    return left;
}

/* OP, one of & ^ |, between what the operators before it make: not && and ||. */
static int64_t bits(struct expression *expression, int op)
{
    static const char ops[] = "&^|";
    int64_t left;

    assert(op >= 0 && op < 3);
    left = op ? bits(expression, op - 1) : equality(expression);

    while (expression->state == TN_SH_SUM && operator_at(expression) == ops[op] &&
           expression->p[1] != ops[op]) {
        expression->p++;
        left =
            apply(expression, ops[op], left, op ? bits(expression, op - 1) : equality(expression));
    }
    return left;
}

/* What NEXT reads, and does only if IT does. It has to be known all the same. */
static int64_t perhaps(struct expression *expression, bool it,
                       int64_t (*next)(struct expression *expression))
{
    bool idle = expression->idle;
    int64_t v;

    expression->idle |= !it;
    v = next(expression);
    expression->idle = idle;
    return v;
}

static int64_t all_bits(struct expression *expression)
{
    return bits(expression, 2);
}

static int64_t both(struct expression *expression)
{
    static const char *const ops[] = {"&&", NULL};
    int64_t left = all_bits(expression);

    while (take_one_of(expression, ops) >= 0) {
        bool right = perhaps(expression, left, all_bits) != 0;

        left = left && right;
    }
    return left;
}

static int64_t either(struct expression *expression)
{
    static const char *const ops[] = {"||", NULL};
    int64_t left = both(expression);

    while (take_one_of(expression, ops) >= 0) {
        bool right = perhaps(expression, !left, both) != 0;

        left = left || right;
    }
    return left;
}

static int64_t choice(struct expression *expression)
{
    int64_t which = either(expression), yes, no;

    if (expression->state != TN_SH_SUM || operator_at(expression) != '?')
        return which;
    if (++expression->depth > 64)
        return stop(expression, TN_SH_UNKNOWN);
    expression->p++;
    yes = perhaps(expression, which, choice);
    if (expression->state != TN_SH_SUM || operator_at(expression) != ':')
        return stop(expression, TN_SH_UNKNOWN);
    expression->p++;
    no = perhaps(expression, !which, choice);
    expression->depth--;
    return which ? yes : no;
}

/* What commas divide: the last counts. */
static int64_t list(struct expression *expression)
{
    int64_t v = choice(expression);

    while (expression->state == TN_SH_SUM && operator_at(expression) == ',') {
        expression->p++;
        v = choice(expression);
    }
    return v;
}

enum tn_sh_sum tn_sh_arithmetic(int64_t *ret, char **ret_unset, struct tn_sh *shell,
                                const char *text)
{
    struct expression x = {.s = shell, .p = text};
    int64_t v = list(&x);

    if (x.state == TN_SH_SUM && operator_at(&x))
        x.state = TN_SH_UNKNOWN;
    if (x.state == TN_SH_SUM)
        *ret = v;
    assert(x.state != TN_SH_UNSET || x.unset);
    *ret_unset = x.unset;
    return x.state;
}
