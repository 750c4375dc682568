/*
 * $((…)) of a shell script: + - * / % **, comparisons, ! && || ?: and brackets over 64-bit
 * integers, as the shell computes them (division truncates, ** binds to the right and tighter than
 * a sign). A name without a dollar is a variable, and what it holds is an expression again.
 */
#include "tuner/export/shell.h"

#include <assert.h>

struct expression {
    struct tn_sh *s;
    const char *p;
    int depth;
    enum tn_sh_sum state;
    char *unset; /* the first name that the script does not set */
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

    if (expression->state != TN_SH_SUM)
        return 0;
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

/* A name: what the script has set it to. */
static int64_t name(struct expression *expression)
{
    size_t n = tn_sh_name_length(expression->p);
    AUTO_FREE char *text = tn_sh_copy(expression->p, n);
    const char *value = tn_sh_value(expression->s, text);
    struct expression inner = {.s = expression->s, .p = value, .depth = expression->depth + 1};
    int64_t v;

    expression->p += n;
    if (value && (strchr(value, MARK) || expression->depth >= MAX_DEPTH))
        return stop(expression, TN_SH_UNKNOWN);
    if (!value) {
        if (!expression->unset)
            expression->unset = TAKE(text);
        return stop(expression, TN_SH_UNSET);
    }
    v = choice(&inner);
    if (inner.state == TN_SH_SUM && operator_at(&inner))
        inner.state = TN_SH_UNKNOWN;
    if (!expression->unset)
        expression->unset = TAKE(inner.unset);
    free(inner.unset);
    return inner.state == TN_SH_SUM ? v : stop(expression, inner.state);
}

/* A number, a name, brackets. */
static int64_t operand(struct expression *expression)
{
    char c = operator_at(expression), *end;
    int64_t v;

    if (++expression->depth > 64)
        return stop(expression, TN_SH_UNKNOWN);
    if (c == '(') {
        expression->p++;
        v = choice(expression);
        if (operator_at(expression) != ')')
            return stop(expression, TN_SH_UNKNOWN);
        expression->p++;
    } else if (isdigit((unsigned char)c)) {
        errno = 0;
        v = strtoll(expression->p, &end, 0); /* 0x… and 0… as the shell reads them */
        if (errno)
            return stop(expression, TN_SH_WRONG);
        if (isalnum((unsigned char)*end) || *end == '#' || *end == '_')
            return stop(expression, TN_SH_UNKNOWN);
        expression->p = end;
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

    if (operator_at(expression) == '!' && expression->p[1] != '=') {
        expression->p++;
        if (++expression->depth > 64)
            return stop(expression, TN_SH_UNKNOWN);
        v = !signed_operand(expression);
        expression->depth--;
        return v;
    }

    for (char c; (c = operator_at(expression)) == '-' || c == '+'; expression->p++) {
        if (expression->p[1] == c) /* ++X sets X */
            return stop(expression, TN_SH_UNKNOWN);
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

static int64_t order(struct expression *expression)
{
    static const char *const ops[] = {"<=", ">=", "<", ">", NULL};
    int64_t left = sum(expression), right;

    for (int op; (op = take_one_of(expression, ops)) >= 0;) {
        if (*expression->p == '<' || *expression->p == '>') /* << and >> */
            return stop(expression, TN_SH_UNKNOWN);
        right = sum(expression);
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

/* Both sides are read, and have to be known, whatever the left one is. */
static int64_t both(struct expression *expression)
{
    static const char *const ops[] = {"&&", NULL};
    int64_t left = equality(expression);

    while (take_one_of(expression, ops) >= 0) {
        bool right = equality(expression) != 0;

        left = left && right;
    }
    return left;
}

static int64_t either(struct expression *expression)
{
    static const char *const ops[] = {"||", NULL};
    int64_t left = both(expression);

    while (take_one_of(expression, ops) >= 0) {
        bool right = both(expression) != 0;

        left = left || right;
    }
    return left;
}

/* Both values are read, and have to be known, whichever it takes. */
static int64_t choice(struct expression *expression)
{
    int64_t which = either(expression), yes, no;

    if (expression->state != TN_SH_SUM || operator_at(expression) != '?')
        return which;
    if (++expression->depth > 64)
        return stop(expression, TN_SH_UNKNOWN);
    expression->p++;
    yes = choice(expression);
    if (expression->state != TN_SH_SUM || operator_at(expression) != ':')
        return stop(expression, TN_SH_UNKNOWN);
    expression->p++;
    no = choice(expression);
    expression->depth--;
    return which ? yes : no;
}

enum tn_sh_sum tn_sh_arithmetic(int64_t *ret, char **ret_unset, struct tn_sh *shell,
                                const char *text)
{
    struct expression x = {.s = shell, .p = text};
    int64_t v = choice(&x);

    if (x.state == TN_SH_SUM && operator_at(&x))
        x.state = TN_SH_UNKNOWN;
    if (x.state == TN_SH_SUM)
        *ret = v;
    assert(x.state != TN_SH_UNSET || x.unset);
    *ret_unset = x.unset;
    return x.state;
}
