/*
 * Paths through a job script by its conditions that only a shell could tell.
 *
 * A script is first read once, with what such a condition decides marked as maybe said. Where that
 * refuses a word, the conditions that decide it are forked: every path through them is read, and
 * the layout is known if all that start a program lead to the same one.
 *
 * Where nothing says how the script is called and it is refused, it is read once more as called by
 * its name alone, which the result says.
 */
#ifndef TUNER_EXPORT_PATHS_H
#define TUNER_EXPORT_PATHS_H

#include "tuner/export/words.h"

enum { TN_PATH_CHOICES = 24, TN_PATH_FORKS = 16, TN_PATH_EFFECTS = 512, TN_PATH_DOUBTS = 16 };

/* Instead of a variable's name: the program that a condition starts; any name at all. */
#define TN_PATH_PROGRAM "."
#define TN_PATH_ANY "*"

/* What NAME holds depends on CONDITION, a place in the script's texts. */
struct tn_effect {
    uint64_t condition;
    char name[64];
};

struct tn_paths {
    bool assumed; /* nothing says how the script is called: as if by its name alone */
    uint64_t forked[TN_PATH_FORKS];
    size_t nforked;
    bool taken[TN_PATH_CHOICES]; /* the outcomes of forked conditions, in the order of reading */
    size_t chosen;               /* how many of them are given; reading adds to them */
    size_t at;                   /* how many were met */
    bool unstarted;              /* the path starts no program */
    size_t start;                /* which of several starts of a program is read, from 0 */
    size_t starts;               /* how many more there are, with other arguments */
    struct err twice;            /* what is wrong with that */
    struct tn_effect effects[TN_PATH_EFFECTS];
    size_t neffects;
    char doubts[TN_PATH_DOUBTS][64]; /* names that a reader needs and that conditions decide */
    size_t ndoubts;
    size_t lookups, bytes, copied; /* what reading has cost, over all paths */
};

/* A reader needs WORD. Nothing is noted where no condition decides it. */
void tn_paths_doubt_word(struct tn_paths *paths, const struct tn_word *word);
void tn_paths_doubt(struct tn_paths *paths, const char *name);

/* Are these one layout, with one batch and sequence length? */
bool tn_paths_same(const struct tn_imported *left, const struct tn_imported *right);

/* Reads JOB on the path of PATHS to OUT, whose findings are there before. */
typedef int tn_paths_read(struct tn_imported *out, struct tn_paths *paths, const struct tn_job *job,
                          const struct pl_model *model, struct err *error);

/* Reads JOB by READ as above. The error is that of the first reading. A finding `call` says that
 * the script was read as called by its name alone. */
int tn_paths_import(struct tn_imported *out, tn_paths_read *read, const struct tn_job *job,
                    const struct pl_model *model, struct err *error);

#endif
