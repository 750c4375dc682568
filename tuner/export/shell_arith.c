/*
 * $((…)) of a shell script: + - * / % ** and brackets over 64-bit integers, as the shell computes
 * them (division truncates, ** binds to the right and tighter than a sign). A name without a dollar
 * is a variable, and what it holds is an expression again.
 */
#include "tuner/export/shell.h"

struct expression {
    struct tn_sh *s;
    const char *p;
    int depth;
    enum tn_sh_sum state;
    char *unset; /* the first name that the script does not set */
};

static int64_t stop(struct expression *x, enum tn_sh_sum state)
{
    if (x->state == TN_SH_SUM)
        x->state = state;
    return 0;
}

static char operator_at(struct expression *x)
{
    x->p += strspn(x->p, " \t\r\n");
    return *x->p;
}

static int64_t apply(struct expression *x, char op, int64_t a, int64_t b)
{
    int64_t v;

    if (x->state != TN_SH_SUM)
        return 0;
    if ((op == '/' || op == '%') && (b == 0 || (a == INT64_MIN && b == -1)))
        return stop(x, TN_SH_WRONG);
    if (op == '/')
        return a / b;
    if (op == '%')
        return a % b;
    if (op == '+'   ? __builtin_add_overflow(a, b, &v)
        : op == '-' ? __builtin_sub_overflow(a, b, &v)
                    : __builtin_mul_overflow(a, b, &v))
        return stop(x, TN_SH_WRONG);
    return v;
}

static int64_t sum(struct expression *x);

/* A name: what the script has set it to. */
static int64_t name(struct expression *x)
{
    size_t n = tn_sh_name_length(x->p);
    AUTO_FREE char *text = tn_sh_copy(x->p, n);
    const char *value = tn_sh_value(x->s, text);
    struct expression inner = {.s = x->s, .p = value, .depth = x->depth + 1};
    int64_t v;

    x->p += n;
    if (value && (strchr(value, MARK) || x->depth >= MAX_DEPTH))
        return stop(x, TN_SH_UNKNOWN);
    if (!value) {
        if (!x->unset)
            x->unset = TAKE(text);
        return stop(x, TN_SH_UNSET);
    }
    v = sum(&inner);
    if (inner.state == TN_SH_SUM && operator_at(&inner))
        inner.state = TN_SH_UNKNOWN;
    if (!x->unset)
        x->unset = TAKE(inner.unset);
    free(inner.unset);
    return inner.state == TN_SH_SUM ? v : stop(x, inner.state);
}

/* A number, a name, brackets. */
static int64_t operand(struct expression *x)
{
    char c = operator_at(x), *end;
    int64_t v;

    if (++x->depth > 64)
        return stop(x, TN_SH_UNKNOWN);
    if (c == '(') {
        x->p++;
        v = sum(x);
        if (operator_at(x) != ')')
            return stop(x, TN_SH_UNKNOWN);
        x->p++;
    } else if (isdigit((unsigned char)c)) {
        errno = 0;
        v = strtoll(x->p, &end, 0); /* 0x… and 0… as the shell reads them */
        if (errno)
            return stop(x, TN_SH_WRONG);
        if (isalnum((unsigned char)*end) || *end == '#' || *end == '_')
            return stop(x, TN_SH_UNKNOWN);
        x->p = end;
    } else if (isalpha((unsigned char)c) || c == '_') {
        v = name(x);
    } else {
        return stop(x, TN_SH_UNKNOWN);
    }
    x->depth--;
    return v;
}

static int64_t signed_operand(struct expression *x);

static int64_t power(struct expression *x)
{
    int64_t base = operand(x), exponent, v = 1;

    if (x->state != TN_SH_SUM || operator_at(x) != '*' || x->p[1] != '*')
        return base;
    x->p += 2;
    exponent = signed_operand(x);
    if (exponent < 0)
        return stop(x, TN_SH_WRONG);
    if (base >= -1 && base <= 1)
        return base == -1 && exponent % 2 == 0 ? 1 : exponent == 0 ? 1 : base;
    for (; exponent > 0 && x->state == TN_SH_SUM; exponent--)
        v = apply(x, '*', v, base);
    return v;
}

static int64_t signed_operand(struct expression *x)
{
    bool minus = false;
    int64_t v;

    for (char c; (c = operator_at(x)) == '-' || c == '+'; x->p++) {
        if (x->p[1] == c) /* ++X sets X */
            return stop(x, TN_SH_UNKNOWN);
        minus ^= c == '-';
    }
    v = power(x);
    return minus ? apply(x, '-', 0, v) : v;
}

static int64_t product(struct expression *x)
{
    int64_t v = signed_operand(x);

    for (char c; x->state == TN_SH_SUM && (c = operator_at(x)) && strchr("*/%", c);) {
        if (x->p[1] == '=')
            return stop(x, TN_SH_UNKNOWN);
        x->p++;
        v = apply(x, c, v, signed_operand(x));
    }
    return v;
}

static int64_t sum(struct expression *x)
{
    int64_t v = product(x);

    for (char c; x->state == TN_SH_SUM && (c = operator_at(x)) && strchr("+-", c);) {
        if (x->p[1] == '=' || x->p[1] == c)
            return stop(x, TN_SH_UNKNOWN);
        x->p++;
        v = apply(x, c, v, product(x));
    }
    return v;
}

enum tn_sh_sum tn_sh_arithmetic(int64_t *ret, char **ret_unset, struct tn_sh *s, const char *text)
{
    struct expression x = {.s = s, .p = text};
    int64_t v = sum(&x);

    if (x.state == TN_SH_SUM && operator_at(&x))
        x.state = TN_SH_UNKNOWN;
    if (x.state == TN_SH_SUM)
        *ret = v;
    *ret_unset = x.unset;
    return x.state;
}
