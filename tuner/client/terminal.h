/*
 * terminal - tables and whole screens of the program `partune`.
 */
#ifndef TUNER_CLIENT_TERMINAL_H
#define TUNER_CLIENT_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cl;

/* ---- table.c ------------------------------------------------------------- */

enum cl_align { CL_LEFT, CL_RIGHT };

struct cl_column {
    const char *title;
    enum cl_align align;
    bool shrink; /* gives way first when the terminal is narrow */
    int drop;    /* then those go that have this, the largest first; 0 stays */
    bool state;  /* its cells are states, which have a color */
};

struct cl_table {
    const struct cl_column *column;
    int ncolumns;
    char **cell; /* rows x ncolumns, owned */
    int rows, cap;
};

void cl_table_add(struct cl_table *table, int col, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cl_table_print(const struct cl *client, const struct cl_table *table, FILE *out);
void cl_table_done(struct cl_table *table);
int cl_columns(const char *text);                 /* that TEXT needs on a terminal */
size_t cl_fitting(const char *text, int columns); /* bytes of TEXT that fit */
/* The color of STATE, "" for none. */
const char *cl_paint(const struct cl *client, const char *state);

/* ---- screen.c ------------------------------------------------------------ */

/* Take the whole terminal, and give it back as it was; closing twice is harmless. */
void cl_screen_open(struct cl *client);
void cl_screen_close(void);
/* Show TEXT from the top, cut at the edges. */
void cl_screen_show(const char *text, int columns, int lines);
int cl_screen_key(const struct cl *client); /* a key that was pressed, or -1 */
bool cl_screen_resized(void);               /* since the last call */
/* Left alone where it is not known. */
void cl_terminal_size(int *ret_columns, int *ret_lines);

#endif
