/*
 * What the reader of shell scripts keeps: its variables, levels, documents and files.
 */
#ifndef TUNER_EXPORT_SHELL_TYPES_H
#define TUNER_EXPORT_SHELL_TYPES_H

#include <ctype.h>
#include <errno.h>

#include "tuner/export/internal.h"
#include "tuner/export/paths.h"

/* Bounds of what a text from outside may cost: a variable can be doubled line by line. */
enum { MAX_VARIABLES = 1024, MAX_WORDS = 1 << 18, MAX_BYTES = 16 << 20, MAX_LOOKUPS = 1 << 25 };
enum { MAX_NAME = 64, MAX_DEPTH = 6, MAX_LEVELS = 64 };

/* Around what is marked: MARK, the reason (enum tn_word_why), the source, ENDMARK. */
enum { MARK = 1, ENDMARK = 2 };

struct tn_sh_list {
    char **v;
    size_t n, room;
};

struct tn_sh_variable {
    char name[MAX_NAME];
    struct tn_sh_list values; /* a scalar has one */
    bool array, used;
    bool keyed;   /* an array by keys: shell_keys.c */
    bool integer; /* what it is set to is a sum: declare -i */
    /* Nothing is in it since nothing says that it is called with any: a file that the script reads
     * could set it. Of @: since nothing says how the script is called. */
    bool presumed;
};

/* Of a condition, and of what runs under it. */
enum tn_sh_truth { TN_SH_FALSE, TN_SH_UNSURE, TN_SH_TRUE };

/* A here-document. */
struct tn_sh_here {
    char *end, *file; /* the line that ends it; the file that it is written to, or NULL */
    bool tabs;        /* without those before its lines: <<- */
    bool quoted;      /* taken as it is written */
    bool append;
    bool given; /* its command has ended */
    bool piped; /* and gives it to the next one */
    enum tn_sh_truth runs;
};

struct tn_sh_heres {
    struct tn_sh_here *v;
    size_t n;
};

/* A file with the text that the script writes to it, with its marks; NULL: only a shell could tell
 * the text. */
struct tn_sh_file {
    char *name, *text;
};

struct tn_sh_files {
    struct tn_sh_file *v;
    size_t n;
};

/* The variables as they were. */
struct tn_sh_state {
    struct tn_sh_variable *vars;
    size_t count;
    bool kept;
};

static inline enum tn_sh_truth tn_sh_not(enum tn_sh_truth truth)
{
    return (enum tn_sh_truth)(TN_SH_TRUE - truth);
}

enum tn_sh_kind { TN_SH_IF, TN_SH_CASE, TN_SH_LOOP, TN_SH_BRACES, TN_SH_BRACKETS, TN_SH_CALL };

/* An if, case, loop or group that is not closed yet. */
struct tn_sh_level {
    enum tn_sh_kind kind;
    enum tn_sh_truth base;    /* whether it itself runs, by && and || before it */
    enum tn_sh_truth reached; /* if and case: whether these themselves run */
    enum tn_sh_truth taken;   /* whether a branch before this one ran */
    enum tn_sh_truth runs;    /* whether what is read now runs, if what is around it does */
    char *word;               /* of case; NULL: not known */
    bool pattern;             /* of case: a pattern comes next */
    bool exact;               /* a loop or group: how often it runs is known */
    bool piped;               /* its input is a pipe: it is a shell of its own */
    bool tests;               /* what is read is its condition: of if and while */
    enum tn_sh_truth returns; /* of a call: the status that a return has given, if broken */
    /* of the list that a group is in, before it */
    enum tn_sh_truth outer;
    char outer_joined;
    bool outer_negated;
    bool guarded;        /* of a call: what fails there ends nothing */
    size_t reading;      /* the text that it is in */
    char name[MAX_NAME]; /* of a function, or a loop's variable */
    const char *from;    /* a function's body */
    struct tn_sh_state before;
    uint64_t place;  /* of if and case: where it is in the script; 0: another level */
    uint64_t joined; /* where the && or || before it is */
    /* of loops: */
    bool condition, until; /* while and until; the latter */
    bool broken, unsure;   /* it has ended; or only a shell could tell */
    const char *again;     /* where the next round is read from; NULL: not there yet */
    struct tn_sh_list each;
    char *test, *step; /* of for ((…; TEST; STEP)); NULL: another loop */
    size_t round;
};

/* A variable as it is for one command alone, or for all others meanwhile. */
struct tn_sh_aside {
    struct tn_sh_variable variable;
    bool there; /* it is set at all */
};

struct tn_sh_asides {
    struct tn_sh_aside *v;
    size_t n;
    bool others; /* the variables are those of the other commands now */
};

struct tn_sh_function {
    char name[MAX_NAME];
    char *body;
};

struct tn_sh {
    struct tn_sh_variable *vars;
    size_t count, bytes, words, lookups;
    struct tn_sh_list args;     /* of the program that trains */
    struct tn_sh_list bare;     /* without a program: commands that begin with -- */
    struct tn_sh_list here;     /* texts of here-documents */
    struct tn_sh_heres pending; /* those that begin behind the line that is read */
    char *string;               /* what the command reads, after <<<; NULL: something else */
    char *output;               /* the file that the command writes; NULL: none */
    bool append;                /* it writes behind what is there */
    struct tn_sh_files files;   /* that the script has written */
    struct tn_sh_list *last;    /* what a line that begins with -- continues */
    struct tn_sh_list apart;    /* such lines behind a program's, which no backslash joins to it */
    char program[96];           /* "" until one is found */
    struct err twice;           /* another one trains as well as it */
    size_t starts;              /* how many such there are */
    struct err unsure;          /* of a command that is set under a condition */
    struct tn_sh_level level[MAX_LEVELS];
    int depth;                 /* levels that are open */
    enum tn_sh_truth chain;    /* whether the next command runs, by && and || before it */
    uint64_t condition;        /* the place of the last of them */
    uint64_t place;            /* of the word that is read */
    struct tn_paths *paths;    /* never NULL */
    enum tn_sh_truth status;   /* of the list of commands so far */
    char joined;               /* '&', '|': how the next command's is joined to it; 0: not */
    bool negated;              /* behind ! */
    enum tn_sh_truth assigned; /* whether what the command sets succeeds; FALSE: it sets nothing */
    bool plain;                /* arguments only: lines do not end a command */
    bool within;               /* a here-document is read */
    bool piped;                /* the next command reads from a pipe */
    bool pipes;                /* the command that ends writes to a pipe, or is left to run */
    bool declares, local;      /* the command declares variables; a function's own */
    bool keyed, integer;       /* it declares arrays by keys, or whole numbers */
    bool over;                 /* it has come to an exit */
    bool doubted;              /* something may have set variables that this text does not set */
    bool errexit;              /* a command that fails ends it: set -e */
    bool ends;                 /* the command that ends is the last of its list */
    bool summed;               /* it is ((…)) */
    bool replaced;             /* by another program, which the script has exec'd */
    bool execs;                /* it takes the shell's place: exec */
    bool nounset;              /* a variable that is not set ends it: set -u */
    size_t letter;             /* of its word that getopts looks at next */
    struct tn_sh_function *functions;
    size_t nfunctions;
    struct tn_sh_variable *kept; /* that functions have of their own, as they were before */
    size_t nkept;
    struct tn_sh_asides asides; /* of NAME=… before the command that is read */
    int calls;                  /* of functions that are read now */
    int substitutes;            /* $(…) within each other that are read now */
    void (*commands)(struct tn_sh *shell, const char *text, int level); /* reads them */
    size_t texts, reading; /* how many have been begun; which is read */
    size_t copied;
    bool cut; /* the command has ended, what follows is not read */
    struct tn_findings *ignored;
    struct err *e;
    int r;
};

#endif
