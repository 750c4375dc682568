/*
 * Words of a job script that only a shell could tell, where the layout needs them: what to add to
 * the script, or to the import.
 */
#include "tuner/export/internal.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* The line of TEXT that has the name of WHAT first ("$TP", "${TP}"); 0: none. */
static int line_of(const char *text, const char *what)
{
    const char *name = what + strspn(what, "${");
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    int line = 1;

    if (!n || what[0] != '$')
        n = strlen(name = what);
    for (const char *p = text; *p; p++) {
        bool begins = p == text || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');

        if (begins && !strncmp(p, name, n) && !(isalnum((unsigned char)p[n]) || p[n] == '_') &&
            (!isdigit((unsigned char)*name) || (p > text && strchr("${", p[-1]))))
            return line;
        line += *p == '\n';
    }
    return 0;
}

/* The last of its own arguments that TEXT reads by its number; "$10" is $1 and a 0. */
static int arguments_read(const char *text)
{
    int most = 0;

    for (const char *p = strchr(text, '$'); p; p = strchr(p + 1, '$')) {
        long number = p[1] == '{'                    ? strtol(p + 2, NULL, 10)
                      : isdigit((unsigned char)p[1]) ? p[1] - '0'
                                                     : 0;

        most = number > most && number < 1000 ? (int)number : most;
    }
    return most;
}

/* Does the script source files, which could set what it does not set? */
static bool sources_files(const struct tn_findings *ignored)
{
    for (int i = 0; i < ignored->count; i++)
        if (str_eq(ignored->v[i].setting, "source") || str_eq(ignored->v[i].setting, "."))
            return true;
    return false;
}

bool tn_word_is_none(const struct tn_word *word)
{
    return word->why == TN_WORD_NONE && str_eq(word->text, word->unknown);
}

void tn_word_say_none(struct tn_findings *ignored, const struct tn_word *word)
{
    for (int i = 0; i < ignored->count; i++)
        if (str_eq(ignored->v[i].setting, word->unknown))
            return;
    tn_finding_add(ignored, word->unknown, "not set in this text: taken as empty");
}

int tn_word_refused(const char *text, const struct tn_findings *ignored, const struct tn_word *word,
                    struct err *error)
{
    const char *what = word->unknown && *word->unknown ? word->unknown : word->text;
    int number = line_of(text, what);
    int last = word->why == TN_WORD_GIVEN ? arguments_read(text) : 0;
    char line[24] = "", of[40] = "";

    if (number)
        snprintf(line, sizeof(line), " (line %d)", number);
    if (last > 1)
        snprintf(of, sizeof(of), ", which reads $1 to $%d", last);
    switch (word->why) {
    case TN_WORD_UNSET:
    case TN_WORD_NONE:
        return err_set(error, -EINVAL,
                       "`%.64s` is not set in this text%s%s: add a line that sets it, or give it "
                       "as the script is called (--call \"NAME=value bash job.sh\")",
                       what, line,
                       sources_files(ignored) ? ", maybe in a file that it sources" : "");
    case TN_WORD_GIVEN:
    case TN_WORD_ABSENT:
        return err_set(error, -EINVAL,
                       "`%.64s` is an argument of the script%s%s: say how the script is called "
                       "(--call \"bash job.sh ARGUMENT ...\"), or replace it with its value",
                       what, of, line);
    case TN_WORD_MAYBE:
        return err_set(error, -EINVAL,
                       "`%.64s` is set under a condition%s: replace it with its value in your "
                       "job, or say how the script is called (--call), if that decides it",
                       what, line);
    case TN_WORD_WRONG:
        return err_set(error, -EINVAL, "`%.64s` divides by zero, or does not fit into 64 bits%s",
                       what, line);
    default:
        return err_set(error, -EINVAL, "`%.64s` needs a shell%s: replace it with its value", what,
                       line);
    }
}
