/*
 * [ … ], test … and [[ … ]] of a shell script, where all of their words are known: strings, whole
 * numbers, !, brackets, -a and -o, && and ||. What only a shell could tell (files, options, =~) is
 * unsure. Next to -eq and the like, [[ … ]] takes sums and names of variables; of [ … ] and test
 * they are an error, by which the whole test fails.
 */
#include "tuner/export/shell_flow.h"

#include <fnmatch.h>

/* Words of a test that are yet to be read. */
struct test {
    char *const *word;
    size_t left;
    bool patterns; /* [[ … ]]: the right side of == is a pattern */
    bool wrong;    /* text is compared as a number */
    struct tn_sh *shell;
};

static bool next_is(const struct test *test, const char *word)
{
    return test->left && str_eq(test->word[0], word);
}

static const char *take(struct test *test)
{
    test->left--;
    return *test->word++;
}

static bool known(const char *word)
{
    return !strchr(word, MARK);
}

static enum tn_sh_truth truth_of(bool is)
{
    return is ? TN_SH_TRUE : TN_SH_FALSE;
}

static bool whole_number(int64_t *ret, const char *word)
{
    char *end;

    errno = 0;
    *ret = strtoll(word, &end, 10);
    return *word && !isspace((unsigned char)*word) && !*end && !errno;
}

/* The number that WORD is next to -eq, to RET; false where it is none that is known. */
static bool number_of(int64_t *ret, struct test *test, const char *word)
{
    AUTO_FREE char *unset = NULL;

    bool octal = test->patterns && word[0] == '0' && word[1];

    if (!octal && whole_number(ret, word))
        return true;
    if (test->patterns)
        return *word && tn_sh_arithmetic(ret, &unset, test->shell, word) == TN_SH_SUM;
    test->wrong |= !*word || word[strspn(word, "+-0123456789 \t\n")];
    return false;
}

static enum tn_sh_truth compare_numbers(struct test *test, const char *left, const char *op,
                                        const char *right)
{
    static const char *const ops[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
    int64_t a, b;
    size_t i = 0;

    while (i < ARRAY_LEN(ops) && !str_eq(op, ops[i]))
        i++;
    if (i == ARRAY_LEN(ops) || !number_of(&a, test, left) || !number_of(&b, test, right))
        return TN_SH_UNSURE;
    return truth_of((const bool[]){a == b, a != b, a<b, a <= b, a> b, a >= b}[i]);
}

static enum tn_sh_truth compare(struct test *test, const char *left, const char *op,
                                const char *right)
{
    bool unequal = str_eq(op, "!=");

    if (!known(left) || !known(right))
        return TN_SH_UNSURE;
    if (!unequal && !str_eq(op, "=") && !str_eq(op, "=="))
        return compare_numbers(test, left, op, right);
    if (!test->patterns)
        return truth_of(!strcmp(left, right) != unequal);
    return truth_of(!fnmatch(right, left, 0) != unequal);
}

static bool is_binary(const char *word)
{
    static const char *const words[] = {"=",   "==",  "!=",  "=~",  "<",   ">",   "-eq", "-ne",
                                        "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef", NULL};

    for (int i = 0; words[i]; i++)
        if (str_eq(words[i], word))
            return true;
    return false;
}

/* An argument of the script itself, which is called without any. */
static bool is_absent(const char *word)
{
    const char *end = strchr(word, ENDMARK);

    return word[0] == MARK && word[1] == TN_WORD_ABSENT && end && !end[1];
}

/* -v NAME; one that the script does not set may be set where it is started. */
static enum tn_sh_truth is_set(struct tn_sh *shell, const char *name)
{
    const struct tn_sh_variable *v = tn_sh_find(shell, name);

    if (!v || v->array || v->keyed || (v->values.n && !known(v->values.v[0])))
        return TN_SH_UNSURE;
    return truth_of(v->values.n > 0);
}

static enum tn_sh_truth either(struct test *test, int depth);

static enum tn_sh_truth primary(struct test *test, int depth)
{
    const char *first, *op;

    if (!test->left || depth > MAX_DEPTH)
        return TN_SH_UNSURE;
    if (test->left >= 3 && is_binary(test->word[1])) {
        first = take(test);
        op = take(test);
        return compare(test, first, op, take(test));
    }
    first = take(test);
    if (str_eq(first, "!"))
        return tn_sh_not(primary(test, depth + 1));
    if (str_eq(first, "(")) {
        enum tn_sh_truth inside = either(test, depth + 1);

        if (next_is(test, ")"))
            take(test);
        return inside;
    }
    if (first[0] == '-' && first[1] && !first[2] && test->left && !next_is(test, "-a") &&
        !next_is(test, "-o") && !next_is(test, "&&") && !next_is(test, "||")) {
        const char *of = take(test);

        if ((first[1] == 'z' || first[1] == 'n') && (known(of) || is_absent(of)))
            return truth_of((*of == '\0' || is_absent(of)) == (first[1] == 'z'));
        return first[1] == 'v' ? is_set(test->shell, of) : TN_SH_UNSURE;
    }
    return known(first) ? truth_of(*first != '\0') : TN_SH_UNSURE;
}

static enum tn_sh_truth both(struct test *test, int depth)
{
    enum tn_sh_truth ret = primary(test, depth);

    while (next_is(test, "&&") || next_is(test, "-a")) {
        enum tn_sh_truth right;

        take(test);
        right = primary(test, depth);
        ret = right < ret ? right : ret;
    }
    return ret;
}

static enum tn_sh_truth either(struct test *test, int depth)
{
    enum tn_sh_truth ret = both(test, depth);

    while (next_is(test, "||") || next_is(test, "-o")) {
        enum tn_sh_truth right;

        take(test);
        right = both(test, depth);
        ret = right > ret ? right : ret;
    }
    return ret;
}

enum tn_sh_truth tn_sh_test(struct tn_sh *shell, const struct tn_sh_list *command)
{
    struct test test = {.word = command->v, .left = command->n, .shell = shell};
    enum tn_sh_truth ret;
    const char *name;

    if (!command->n)
        return TN_SH_UNSURE;
    name = take(&test);
    if (str_eq(name, "true") || str_eq(name, ":"))
        return TN_SH_TRUE;
    if (str_eq(name, "false"))
        return TN_SH_FALSE;
    test.patterns = str_eq(name, "[[");
    if (str_eq(name, "[") || test.patterns) {
        if (!test.left || !str_eq(test.word[test.left - 1], test.patterns ? "]]" : "]"))
            return TN_SH_UNSURE;
        test.left--;
    } else if (!str_eq(name, "test")) {
        return TN_SH_UNSURE;
    }
    if (!test.left) /* as [ ] */
        return TN_SH_FALSE;
    for (size_t i = 0; i < test.left && !test.patterns; i++) /* may be no word, or several */
        if (!known(test.word[i]) && test.left > 3)
            return TN_SH_UNSURE;
    ret = either(&test, 0);
    return test.wrong ? TN_SH_FALSE : test.left ? TN_SH_UNSURE : ret;
}
