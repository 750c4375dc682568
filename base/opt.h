/*
 * One table of options for each program: command line, environment, file and help from the same
 * rows.
 *
 * Order of precedence: default < configuration file < environment < command line. The origin of
 * each value is kept. Values are parsed and bounded where they enter; an unknown option or key is
 * refused with the nearest name.
 */
#ifndef BASE_OPT_H
#define BASE_OPT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/err.h"

enum opt_type {
    OPT_FLAG,  /* bool; --name or --no-name, true/false in files */
    OPT_INT,   /* int within [min, max] */
    OPT_F64,   /* double within [min, max] */
    OPT_COUNT, /* the same; "15T": K, M, B and T are powers of a thousand */
    OPT_BYTES, /* uint64_t; "64k", "1.5GiB" */
    OPT_STR,   /* const char *; lives as long as the struct opt_set */
};

struct opt {
    const char *name; /* "data-dir": --data-dir, [section] data-dir */
    char letter;      /* 'd' for -d, or 0 */
    enum opt_type type;
    size_t offset; /* into the program's struct of values */
    double min, max;
    const char *standard; /* default as text, or NULL: zero */
    const char *env;      /* environment variable, or NULL */
    const char *metavar;  /* "DIR" in the help, or NULL */
    const char *help;
};

struct opt_set {
    const char *program;
    const char *usage;   /* "partuned [options]" */
    const char *section; /* of the configuration file */
    const struct opt *table;
    size_t count;
    void *values;
    const char **origin; /* one for each row: "default", "file", "environment", "command line" */
    char **owned;
    size_t nowned, owned_cap;
    const char *about;      /* a sentence for the help, what this does; or NULL */
    size_t last;            /* rows at the table's end that the help lists apart, below ... */
    const char *last_title; /* ... "common options" */
};

/* Fill VALUES with the defaults. */
void opt_init(struct opt_set *set);
void opt_done(struct opt_set *set);

int opt_from_conf(struct opt_set *set, const struct conf *conf, struct err *error);
int opt_from_env(struct opt_set *set, struct err *error);

/* Parse argv[1..]; options and operands may mix, "--" ends options. *RET_OPERANDS operands are
 * moved to the front of argv + 1. With STOP_AT_OPERAND the first operand ends parsing
 * (sub-commands). */
int opt_from_argv(int *ret_operands, struct opt_set *set, int argc, char **argv,
                  int stop_at_operand, struct err *error);

void opt_help(const struct opt_set *set, FILE *out); /* usage and the list of options */
/* A line of a help in two columns, as opt_help() prints them: RIGHT is broken between words, and
 * begins below a LEFT that is too long. */
void opt_columns(const char *left, const char *right, FILE *out);

/* What a manual page has besides the options. The texts are roff; a leading line with a dot is a
 * macro. */
struct opt_manual {
    int section;             /* 1 or 8 */
    const char *summary;     /* "the daemon that finds ..." */
    const char *description; /* the first paragraphs */
    const char *more;        /* further sections, each with its .SH */
};
/* The manual page as roff(7): name, synopsis from the usage lines, description, the options as
 * opt_help() lists them, and MORE. */
void opt_manual(const struct opt_set *set, const struct opt_manual *manual, FILE *out);
/* The parts of it, for a program whose page is of another form. TEXT is escaped. */
void opt_roff(const char *text, FILE *out);
void opt_roff_option(const struct opt *option, FILE *out);

#endif
