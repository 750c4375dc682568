/*
 * Tables that fit the terminal. Columns that may shrink give way first; then columns that may be
 * missing go, the least wanted first; what is still too wide is cut at the edge.
 */
#include "tuner/client/client.h"

#include <assert.h>
#include <wchar.h>

#include "db/db.h"

enum { MAX_COLUMNS = 16, COMFORT = 16, LEAST = 6, GAP = 2 };

/* Columns that TEXT needs, by the locale's idea of wide and combining characters. */
int cl_columns(const char *text)
{
    mbstate_t state = {0};
    size_t left = strlen(text);
    int n = 0;

    while (left) {
        wchar_t w;
        size_t k = mbrtowc(&w, text, left, &state);

        if (k == 0 || k > left) { /* not text of this locale: a column a byte */
            w = L'?';
            k = 1;
            state = (mbstate_t){0};
        }
        n += wcwidth(w) > 0 ? wcwidth(w) : 0;
        text += k;
        left -= k;
    }
    return n;
}

/* Bytes of the longest start of TEXT that fits COLUMNS. */
size_t cl_fitting(const char *text, int columns)
{
    mbstate_t state = {0};
    size_t all = strlen(text), at = 0;

    while (at < all) {
        wchar_t w;
        size_t k = mbrtowc(&w, text + at, all - at, &state);

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

void cl_table_add(struct cl_table *table, int col, const char *fmt, ...)
{
    char *text;
    va_list ap;

    assert(col >= 0 && col < table->ncolumns && (col == 0 || table->rows > 0));
    if (col == 0) {
        if (table->rows == table->cap) {
            table->cap = table->cap ? table->cap * 2 : 16;
            table->cell = mem_realloc(
                table->cell, mem_mul((size_t)table->cap, (size_t)table->ncolumns, sizeof(char *)));
        }
        for (int i = 0; i < table->ncolumns; i++)
            table->cell[table->rows * table->ncolumns + i] = NULL;
        table->rows++;
    }
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    table->cell[(table->rows - 1) * table->ncolumns + col] = text;
}

void cl_table_done(struct cl_table *table)
{
    for (int i = 0; i < table->rows * table->ncolumns; i++)
        free(table->cell[i]);
    free(table->cell);
    table->cell = NULL;
    table->rows = table->cap = 0;
}

static const char *text_at(const struct cl_table *table, int row, int col)
{
    const char *s = row < 0 ? table->column[col].title : table->cell[row * table->ncolumns + col];

    return s && *s ? s : "-";
}

/* ---- widths -------------------------------------------------------------- */

struct plan {
    int width[MAX_COLUMNS]; /* 0: the column is missing */
    int n;
};

static int total(const struct plan *plan)
{
    int sum = 0;

    for (int k = 0; k < plan->n; k++)
        sum += plan->width[k] ? plan->width[k] + GAP : 0;
    return sum - GAP;
}

/* Take what is too much from the columns that may shrink, the last first, down to LEAST_WIDTH. */
static void shrink(struct plan *plan, const struct cl_table *table, int room, int least_width)
{
    for (int k = plan->n - 1; k >= 0 && total(plan) > room; k--) {
        int give = total(plan) - room, most = plan->width[k] - least_width;

        if (table->column[k].shrink && most > 0)
            plan->width[k] -= give < most ? give : most;
    }
}

/* The column that is missed least, or -1. */
static int least_wanted(const struct plan *plan, const struct cl_table *table)
{
    int found = -1;

    for (int k = 0; k < plan->n; k++)
        if (plan->width[k] && table->column[k].drop &&
            (found < 0 || table->column[k].drop >= table->column[found].drop))
            found = k;
    return found;
}

static void fit(struct plan *plan, const struct cl_table *table, int room)
{
    int k;

    plan->n = table->ncolumns;
    for (k = 0; k < plan->n; k++) {
        plan->width[k] = 1;
        for (int r = -1; r < table->rows; r++) {
            int need = cl_columns(text_at(table, r, k));

            if (need > plan->width[k])
                plan->width[k] = need;
        }
    }
    shrink(plan, table, room, COMFORT);
    while (total(plan) > room && (k = least_wanted(plan, table)) >= 0)
        plan->width[k] = 0;
    shrink(plan, table, room, LEAST);
}

/* ---- output -------------------------------------------------------------- */

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

/* Of a campaign or a trial, as the dashboard has it; NULL: no such state. */
static const char *tone_of(const char *state)
{
    static const struct {
        const char *state, *tone;
    } campaigns[] = {{"paused", "warn"}, {"verifying", "run"}, {"done", "good"}, {"failed", "bad"}};
    int trial = db_state_find(state);

    for (size_t i = 0; i < ARRAY_LEN(campaigns); i++)
        if (str_eq(campaigns[i].state, state))
            return campaigns[i].tone;
    return trial < 0 ? NULL : db_states[trial].tone;
}

/* A state is a word; its color only repeats it. */
const char *cl_paint(const struct cl *client, const char *state)
{
    static const struct {
        const char *tone, *paint;
    } paints[] = {
        {"bad", "\033[31m"}, {"good", "\033[32m"}, {"warn", "\033[33m"}, {"run", "\033[34m"}};
    const char *tone = client->color ? tone_of(state) : NULL;

    for (size_t i = 0; tone && i < ARRAY_LEN(paints); i++)
        if (str_eq(paints[i].tone, tone))
            return paints[i].paint;
    return "";
}

void cl_table_print(const struct cl *client, const struct cl_table *table, FILE *out)
{
    struct plan p;

    fit(&p, table, client->width);
    for (int r = -1; r < table->rows; r++) {
        int left = client->width;

        for (int k = 0; k < p.n && left > 0; k++) {
            const char *text = text_at(table, r, k);
            int width = p.width[k] < left ? p.width[k] : left;
            const char *paint = r < 0                    ? (client->color ? "\033[1m" : "")
                                : table->column[k].state ? cl_paint(client, text)
                                                         : "";

            if (!p.width[k])
                continue;
            print_cell(text, width, table->column[k].align, k == p.n - 1, paint, out);
            left -= width + GAP;
            if (left > 0 && k < p.n - 1)
                fprintf(out, "%*s", GAP, "");
        }
        fputc('\n', out);
    }
}
