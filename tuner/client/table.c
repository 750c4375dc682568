/*
 * Tables that fit the terminal. Columns that may shrink give way first; then columns that may be
 * missing go, the least wanted first; what is still too wide is cut at the edge.
 */
#include "tuner/client/client.h"

#include <wchar.h>

enum { MAX_COLUMNS = 16, COMFORT = 16, LEAST = 6, GAP = 2 };

/* Columns that S needs, by the locale's idea of wide and combining characters. */
int cl_columns(const char *s)
{
    mbstate_t state = {0};
    size_t left = strlen(s);
    int n = 0;

    while (left) {
        wchar_t w;
        size_t k = mbrtowc(&w, s, left, &state);

        if (k == 0 || k > left) { /* not text of this locale: a column a byte */
            w = L'?';
            k = 1;
            state = (mbstate_t){0};
        }
        n += wcwidth(w) > 0 ? wcwidth(w) : 0;
        s += k;
        left -= k;
    }
    return n;
}

/* Bytes of the longest start of S that fits COLUMNS. */
size_t cl_fitting(const char *s, int columns)
{
    mbstate_t state = {0};
    size_t all = strlen(s), at = 0;

    while (at < all) {
        wchar_t w;
        size_t k = mbrtowc(&w, s + at, all - at, &state);

        if (k == 0 || k > all - at) {
            w = L'?';
            k = 1;
            state = (mbstate_t){0};
        }
        columns -= wcwidth(w) > 0 ? wcwidth(w) : 0;
        if (columns < 0)
            break;
        at += k;
    }
    return at;
}

void cl_table_add(struct cl_table *t, int col, const char *fmt, ...)
{
    char *text;
    va_list ap;

    if (col == 0) {
        if (t->rows == t->cap) {
            t->cap = t->cap ? t->cap * 2 : 16;
            t->cell =
                mem_realloc(t->cell, mem_mul((size_t)t->cap, (size_t)t->ncolumns, sizeof(char *)));
        }
        for (int i = 0; i < t->ncolumns; i++)
            t->cell[t->rows * t->ncolumns + i] = NULL;
        t->rows++;
    }
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    t->cell[(t->rows - 1) * t->ncolumns + col] = text;
}

void cl_table_done(struct cl_table *t)
{
    for (int i = 0; i < t->rows * t->ncolumns; i++)
        free(t->cell[i]);
    free(t->cell);
    t->cell = NULL;
    t->rows = t->cap = 0;
}

static const char *text_at(const struct cl_table *t, int row, int col)
{
    const char *s = row < 0 ? t->column[col].title : t->cell[row * t->ncolumns + col];

    return s && *s ? s : "-";
}

/* ---- widths ---- */

struct plan {
    int width[MAX_COLUMNS]; /* 0: the column is missing */
    int n;
};

static int total(const struct plan *p)
{
    int sum = 0;

    for (int k = 0; k < p->n; k++)
        sum += p->width[k] ? p->width[k] + GAP : 0;
    return sum - GAP;
}

/* Take what is too much from the columns that may shrink, the last first, down to LEAST_WIDTH. */
static void shrink(struct plan *p, const struct cl_table *t, int room, int least_width)
{
    for (int k = p->n - 1; k >= 0 && total(p) > room; k--) {
        int give = total(p) - room, most = p->width[k] - least_width;

        if (t->column[k].shrink && most > 0)
            p->width[k] -= give < most ? give : most;
    }
}

/* The column that is missed least, or -1. */
static int least_wanted(const struct plan *p, const struct cl_table *t)
{
    int found = -1;

    for (int k = 0; k < p->n; k++)
        if (p->width[k] && t->column[k].drop &&
            (found < 0 || t->column[k].drop >= t->column[found].drop))
            found = k;
    return found;
}

static void fit(struct plan *p, const struct cl_table *t, int room)
{
    int k;

    p->n = t->ncolumns;
    for (k = 0; k < p->n; k++) {
        p->width[k] = 1;
        for (int r = -1; r < t->rows; r++) {
            int need = cl_columns(text_at(t, r, k));

            if (need > p->width[k])
                p->width[k] = need;
        }
    }
    shrink(p, t, room, COMFORT);
    while (total(p) > room && (k = least_wanted(p, t)) >= 0)
        p->width[k] = 0;
    shrink(p, t, room, LEAST);
}

/* ---- output ---- */

static void print_cell(const char *text, int width, enum cl_align align, bool last,
                       const char *paint, FILE *out)
{
    int pad = width - cl_columns(text);

    if (pad > 0 && align == CL_RIGHT)
        fprintf(out, "%*s", pad, "");
    fputs(paint, out);
    if (pad < 0)
        fprintf(out, "%.*s…", (int)cl_fitting(text, width - 1), text);
    else
        fputs(text, out);
    if (*paint)
        fputs("\033[0m", out);
    if (pad > 0 && align == CL_LEFT && !last)
        fprintf(out, "%*s", pad, "");
}

/* A state is a word; its colour only repeats it. */
const char *cl_paint(const struct cl *c, const char *state)
{
    static const char *const bad[] = {"oom",   "illegal",   "numeric", "timeout",     "hang",
                                      "crash", "node_fail", "failed",  "implausible", NULL};

    if (!c->color)
        return "";
    for (int i = 0; bad[i]; i++)
        if (str_eq(state, bad[i]))
            return "\033[31m";
    if (str_eq(state, "ok") || str_eq(state, "done"))
        return "\033[32m";
    return str_eq(state, "running") || str_eq(state, "starting") || str_eq(state, "verifying")
               ? "\033[34m"
               : "";
}

void cl_table_print(const struct cl *c, const struct cl_table *t, FILE *out)
{
    struct plan p;

    fit(&p, t, c->width);
    for (int r = -1; r < t->rows; r++) {
        int left = c->width;

        for (int k = 0; k < p.n && left > 0; k++) {
            const char *text = text_at(t, r, k);
            int width = p.width[k] < left ? p.width[k] : left;
            const char *paint = r < 0                ? (c->color ? "\033[1m" : "")
                                : t->column[k].state ? cl_paint(c, text)
                                                     : "";

            if (!p.width[k])
                continue;
            print_cell(text, width, t->column[k].align, k == p.n - 1, paint, out);
            left -= width + GAP;
            if (left > 0 && k < p.n - 1)
                fprintf(out, "%*s", GAP, "");
        }
        fputc('\n', out);
    }
}
