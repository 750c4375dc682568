#include "trainer/pattern.h"

#include "base/base.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>

#ifdef HAVE_PCRE2

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* ---- Ruby's syntax to PCRE2's -------------------------------------------- */

struct source {
    const char *next;
    struct str out;
    int sets; /* open brackets */
};

static int refused(struct err *error, const char *what)
{
    return err_set(error, -EINVAL, "%s in a regular expression is not supported", what);
}

/* \p{NAME} or \P{NAME}; NEXT is behind the letter. PCRE2 takes a bare name of a script for the
 * script's extensions, Ruby for the script. */
static int property(struct source *source, char letter, struct err *error)
{
    const char *open = source->next, *close = *open == '{' ? strchr(open, '}') : NULL;
    size_t len = close ? (size_t)(close - open - 1) : 0;

    if (!close || len == 0)
        return refused(error, "\\p without {NAME}");
    str_addf(&source->out, "\\%c{%s%.*s}", letter, len > 2 && open[1] != '^' ? "sc:" : "", (int)len,
             open + 1);
    source->next = close + 1;
    return 0;
}

/* \uHHHH; NEXT is behind the u. */
static int code_point(struct source *source, struct err *error)
{
    for (int i = 0; i < 4; i++)
        if (!isxdigit((unsigned char)source->next[i]))
            return refused(error, "\\u without four hexadecimal digits");
    str_addf(&source->out, "\\x{%.4s}", source->next);
    source->next += 4;
    return 0;
}

/* \xHH or \x{H...}; NEXT is behind the x. */
static int code_point_x(struct source *source, struct err *error)
{
    size_t brace = *source->next == '{', len;

    source->next += brace;
    len = strspn(source->next, "0123456789abcdefABCDEF");
    if (len == 0 || len > (brace ? 6 : 2) || (brace && source->next[len] != '}'))
        return refused(error, "\\x without hexadecimal digits");
    str_addf(&source->out, "\\x{%.*s}", (int)len, source->next);
    source->next += len + brace;
    return 0;
}

static int escape(struct source *source, struct err *error)
{
    char letter = *++source->next;
    char what[3] = {'\\', letter, '\0'};

    source->next += letter != '\0';
    switch (letter) {
    case 's':
    case 'S':
        str_addf(&source->out, "\\%c{White_Space}", letter == 's' ? 'p' : 'P');
        return 0;
    case 'w':
        str_addf(&source->out, source->sets ? "%s" : "[%s]", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}");
        return 0;
    case 'd':
    case 'D':
        str_addf(&source->out, "\\%c{Nd}", letter == 'd' ? 'p' : 'P');
        return 0;
    case 'p':
    case 'P':
        return property(source, letter, error);
    case 'u':
        return code_point(source, error);
    case 'r':
    case 'n':
    case 't':
    case 'f':
        str_add(&source->out, what);
        return 0;
    case 'x':
        return code_point_x(source, error);
    default:
        if (!ispunct((unsigned char)letter))
            return refused(error, letter ? what : "\\ at the end");
        str_add(&source->out, what);
        return 0;
    }
}

/* One character of a set. A set inside a set is its union with the outer one: its brackets go. */
static int in_set(struct source *source, struct err *error)
{
    const char *next = source->next;

    if (next[0] == '\\')
        return escape(source, error);
    if (next[0] == '&' && next[1] == '&')
        return refused(error, "the intersection &&");
    if (next[0] == '[' && next[1] == ':')
        return refused(error, "a POSIX class [:...:]");
    if (next[0] == '[' && next[1] == '^')
        return refused(error, "a negated set inside a set");
    source->next++;
    if (next[0] == '[')
        source->sets++;
    else if (next[0] != ']' || --source->sets == 0)
        str_addc(&source->out, next[0]);
    return 0;
}

static int open_set(struct source *source, struct err *error)
{
    source->sets = 1;
    str_addc(&source->out, *source->next++);
    if (*source->next == '^')
        str_addc(&source->out, *source->next++);
    return *source->next == ']' ? refused(error, "an empty set") : 0;
}

static int open_group(struct source *source, struct err *error)
{
    static const char *const known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_starts(source->next, known[i])) {
            str_add(&source->out, known[i]);
            source->next += strlen(known[i]);
            return 0;
        }
    if (source->next[1] == '?' || source->next[1] == '*')
        return refused(error, "a group but (?:, (?i:, (?=, (?!, (?<=, (?<! and (?>");
    str_addc(&source->out, *source->next++);
    return 0;
}

/* {n}, {n,}, {n,m} or {,m}. */
static int interval(struct source *source, struct err *error)
{
    size_t len = strspn(source->next, "{0123456789,");
    const char *end = source->next + len;

    if (len < 2 || *end != '}')
        return refused(error, "a { that begins no interval");
    if (end[1] == '+')
        return refused(error, "a + behind an interval");
    if (end[1] == '?' && !memchr(source->next, ',', len))
        return refused(error, "a ? behind {n}");
    str_add(&source->out, source->next[1] == ',' ? "{0" : "{");
    str_addn(&source->out, source->next + 1, len);
    source->next = end + 1;
    return 0;
}

static int translate(char **ret, const char *regex, struct err *error)
{
    struct source s = {.next = regex};
    int r = 0;

    while (*s.next && r == 0) {
        if (s.sets)
            r = in_set(&s, error);
        else if (*s.next == '\\')
            r = escape(&s, error);
        else if (*s.next == '[')
            r = open_set(&s, error);
        else if (*s.next == '(')
            r = open_group(&s, error);
        else if (*s.next == '{')
            r = interval(&s, error);
        else
            str_addc(&s.out, *s.next++);
    }
    if (r < 0) {
        str_done(&s.out);
        return r;
    }
    *ret = str_take(&s.out);
    return 0;
}

/* ---- PCRE2 --------------------------------------------------------------- */

enum { STEPS_MAX = 1000000000, STACK_MAX = 16 << 20 };

struct tr_pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

struct tr_pattern *tr_pattern_free(struct tr_pattern *pattern)
{
    if (!pattern)
        return NULL;
    pcre2_match_data_free(pattern->match);
    pcre2_match_context_free(pattern->context);
    pcre2_jit_stack_free(pattern->stack);
    pcre2_code_free(pattern->code);
    free(pattern);
    return NULL;
}

static int compile(struct tr_pattern **ret, const char *regex, uint32_t options, struct err *error)
{
    AUTO(tr_pattern) *p = mem_alloc(sizeof(*p));
    unsigned char text[120] = "";
    uint32_t empty = 0;
    size_t at;
    int code;

    p->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_NO_UTF_CHECK | options, &code, &at, NULL);
    if (!p->code) {
        pcre2_get_error_message(code, text, sizeof(text));
        return err_set(error, -EINVAL, "the regular expression is refused by PCRE2: %s (at %.40s)",
                       (char *)text, regex + at);
    }
    pcre2_pattern_info(p->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty)
        return refused(error, "a match of nothing");
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* else it is interpreted */
    p->match = pcre2_match_data_create_from_pattern(p->code, NULL);
    p->context = pcre2_match_context_create(NULL);
    p->stack = pcre2_jit_stack_create(1 << 16, STACK_MAX, NULL);
    if (!p->match || !p->context)
        return err_set(error, -ENOMEM, "no memory for a regular expression");
    pcre2_set_match_limit(p->context, STEPS_MAX);
    if (p->stack)
        pcre2_jit_stack_assign(p->context, NULL, p->stack);
    *ret = TAKE(p);
    return 0;
}

int tr_pattern_new(struct tr_pattern **ret, const char *regex, struct err *error)
{
    AUTO_FREE char *text = NULL;
    int r = translate(&text, regex, error);

    return r < 0 ? r : compile(ret, text, PCRE2_UCP | PCRE2_MULTILINE, error);
}

int tr_pattern_literal(struct tr_pattern **ret, const char *text, struct err *error)
{
    return compile(ret, text, PCRE2_LITERAL, error);
}

int tr_pattern_find(size_t *ret_start, size_t *ret_end, const struct tr_pattern *pattern,
                    const char *text, size_t len, size_t from, struct err *error)
{
    const size_t *at = pcre2_get_ovector_pointer(pattern->match);
    unsigned char why[120] = "";
    int r;

    assert(from <= len);
    r = pcre2_match(pattern->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK, pattern->match,
                    pattern->context);
    if (r == PCRE2_ERROR_NOMATCH)
        return 0;
    if (r < 0) {
        pcre2_get_error_message(r, why, sizeof(why));
        return err_set(error, -E2BIG,
                       "a regular expression of the tokenizer fails at byte %zu of a document: %s",
                       from, (char *)why);
    }
    assert(at[0] >= from && at[1] > at[0] && at[1] <= len);
    *ret_start = at[0];
    *ret_end = at[1];
    return 1;
}

#else

int tr_pattern_new(struct tr_pattern **ret, const char *regex, struct err *error)
{
    (void)ret;
    return err_set(error, -ENOTSUP,
                   "this build has no PCRE2, which the pattern %.40s needs (install libpcre2-dev, "
                   "or --with-pcre2=DIR, and build again)",
                   regex);
}

int tr_pattern_literal(struct tr_pattern **ret, const char *text, struct err *error)
{
    return tr_pattern_new(ret, text, error);
}

struct tr_pattern *tr_pattern_free(struct tr_pattern *pattern)
{
    assert(!pattern);
    return NULL;
}

int tr_pattern_find(size_t *ret_start, size_t *ret_end, const struct tr_pattern *pattern,
                    const char *text, size_t len, size_t from, struct err *error)
{
    (void)ret_start, (void)ret_end, (void)pattern, (void)text, (void)len, (void)from, (void)error;
    assert(!"a pattern was made");
    return -ENOTSUP;
}

#endif
