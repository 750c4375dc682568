/*
 * The arguments of the program that a job script starts, as the shell's reader hands them over.
 */
#ifndef TUNER_EXPORT_WORDS_H
#define TUNER_EXPORT_WORDS_H

#include "tuner/export/export.h"

/* Why a word of a shell script is not known. */
enum tn_word_why {
    TN_WORD_KNOWN,
    TN_WORD_UNSET = 'u',  /* a variable that the script does not set */
    TN_WORD_RUN = 'r',    /* what only a shell can tell: $(…), ${X%…} */
    TN_WORD_WRONG = 'w',  /* $((…)) that divides by zero, or does not fit */
    TN_WORD_MAYBE = 'm',  /* set or said under a condition */
    TN_WORD_GIVEN = 'g',  /* $1, "$@": the script's own arguments */
    TN_WORD_ABSENT = 'a', /* $1 of a script that is read as called without arguments */
    TN_WORD_NONE = 'n',   /* a variable that nothing sets there, outside of quotes: no word */
};

/* A word of a command. What is not known is in TEXT as in the script; UNKNOWN is the first part
 * of it that is not ("$TP"), empty where the word is known but may not be said. */
struct tn_word {
    char *text, *unknown;
    enum tn_word_why why;
};
/* A file that the script writes. TEXT is NULL where only a shell could tell what is in it; a string
 * is in the place of each value of JSON that is not known: "$ZERO". */
struct tn_written {
    char *name, *text;
};
struct tn_paths;
struct tn_words {
    struct tn_word *v;
    size_t n;
    size_t napart; /* behind those: lines of arguments that no backslash joins to the command */
    struct tn_written *files;
    size_t nfiles;
    char program[96]; /* that is given them; "": the text does not say */
    bool script;      /* TEXT is more than the arguments alone */
};

/*
 * The arguments of the program (*.py) that the shell script TEXT starts, its variables and arrays
 * put in their places; TEXT may be those arguments alone, or the variables that hold them. Nothing
 * is run. What ends the command is added to IGNORED. -EINVAL where a quote or a bracket does not
 * close, where no program is started, and where expansion does not end. CALL as in struct tn_job.
 * PATHS as in paths.h: of several starts it says which is read, and is told how many there are.
 * Free RET by tn_words_done().
 */
int tn_shell_arguments(struct tn_words *ret, struct tn_findings *ignored, const char *text,
                       const char *call, struct tn_paths *paths, struct err *error);
void tn_words_done(struct tn_words *words);

/* Is WORD nothing but a variable that is empty as the script is read? That is added to IGNORED. */
bool tn_word_is_none(const struct tn_word *word);
void tn_word_say_none(struct tn_findings *ignored, const struct tn_word *word);

/* -EINVAL: WORD of the job script TEXT is not known; ERROR says why, where and what helps. IGNORED
 * is what the reading has listed. */
int tn_word_refused(const char *text, const struct tn_findings *ignored, const struct tn_word *word,
                    struct err *error);

#endif
