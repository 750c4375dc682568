/* What the client prints: tables that fit the terminal, numbers with separators, results on a line.
 */
#include "tuner/client/client.h"

#include <errno.h>
#include <math.h>

static const json_t *at(const json_t *v, const char *path)
{
    while (v && path) {
        const char *dot = strchr(path, '.');
        char key[64];
        size_t n = dot ? (size_t)(dot - path) : strlen(path);

        if (n >= sizeof(key))
            return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        v = json_object_get(v, key);
        path = dot ? dot + 1 : NULL;
    }
    return v && !json_is_null(v) ? v : NULL;
}

const char *cl_string(const json_t *v, const char *path)
{
    const char *s = json_string_value(at(v, path));

    return s ? s : "";
}

double cl_number(const json_t *v, const char *path)
{
    const json_t *n = at(v, path);

    return json_is_number(n) ? json_number_value(n) : NAN;
}

char *cl_rate(char buf[32], double x)
{
    char digits[24];
    int n, out = 0;

    if (!isfinite(x)) {
        snprintf(buf, 32, "-");
        return buf;
    }
    n = snprintf(digits, sizeof(digits), "%.*f", fabs(x) < 100 ? 1 : 0, x);
    for (int i = 0; i < n && out < 30; i++) {
        const char *point = strchr(digits, '.');
        int whole = point ? (int)(point - digits) : n;

        buf[out++] = digits[i];
        if (i < whole - 1 && (whole - 1 - i) % 3 == 0 && digits[i] != '-')
            buf[out++] = ',';
    }
    buf[out] = '\0';
    return buf;
}

char *cl_text(char buf[64], const json_t *v, const char *path)
{
    const json_t *x = at(v, path);

    if (json_is_string(x))
        snprintf(buf, 64, "%s", json_string_value(x));
    else if (json_is_integer(x))
        snprintf(buf, 64, "%lld", (long long)json_integer_value(x));
    else if (json_is_number(x))
        snprintf(buf, 64, "%g", json_number_value(x));
    else if (json_is_boolean(x))
        snprintf(buf, 64, "%s", json_is_true(x) ? "yes" : "no");
    else
        snprintf(buf, 64, "-");
    return buf;
}

char *cl_interval(char buf[64], const json_t *v)
{
    double mean = cl_number(v, "tokens_per_s");
    double half = (cl_number(v, "hi") - cl_number(v, "lo")) / 2;
    char a[32], b[32];

    if (isfinite(half))
        snprintf(buf, 64, "%s ± %s", cl_rate(a, mean), cl_rate(b, half));
    else
        snprintf(buf, 64, "%s", cl_rate(a, mean));
    return buf;
}

void cl_print_json(const json_t *v)
{
    json_dumpf(v, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    putchar('\n');
}

/* Columns that a terminal needs for S: code points, since we print no wide characters of our own.
 */
static int columns_of(const char *s)
{
    int n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Outside text (names, reasons) must not steer the terminal. */
static void sanitise(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            *s = '?';
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
    sanitise(text);
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

static void print_cell(const char *text, int width, enum cl_align align, bool last, FILE *out)
{
    int need = columns_of(text), pad = width - need;

    if (pad < 0) { /* cut after width - 1 code points, and mark the cut */
        int n = 0;

        for (; *text && n < width - 1; text++) {
            fputc(*text, out);
            while (((unsigned char)text[1] & 0xc0) == 0x80)
                fputc(*++text, out);
            n++;
        }
        fputs("…", out);
        return;
    }
    if (align == CL_RIGHT)
        fprintf(out, "%*s", pad, "");
    fputs(text, out);
    if (align == CL_LEFT && !last)
        fprintf(out, "%*s", pad, "");
}

void cl_table_print(const struct cl *c, const struct cl_table *t, FILE *out)
{
    enum { MAX_COLUMNS = 16, LEAST = 8 };
    int width[MAX_COLUMNS], total = 0;

    for (int k = 0; k < t->ncolumns; k++) {
        width[k] = columns_of(t->column[k].title);
        for (int r = 0; r < t->rows; r++) {
            const char *s = t->cell[r * t->ncolumns + k];
            int n = s ? columns_of(s) : 1;

            if (n > width[k])
                width[k] = n;
        }
        total += width[k] + 2;
    }
    for (int k = t->ncolumns - 1; k >= 0 && total - 2 > c->width; k--) {
        int give = total - 2 - c->width;

        if (!t->column[k].shrink || width[k] <= LEAST)
            continue;
        if (give > width[k] - LEAST)
            give = width[k] - LEAST;
        width[k] -= give;
        total -= give;
    }
    for (int r = -1; r < t->rows; r++) {
        for (int k = 0; k < t->ncolumns; k++) {
            const char *s = r < 0 ? t->column[k].title : t->cell[r * t->ncolumns + k];

            if (k)
                fputs("  ", out);
            if (r < 0 && c->color)
                fputs("\033[1m", out);
            print_cell(s ? s : "-", width[k], t->column[k].align, k == t->ncolumns - 1, out);
            if (r < 0 && c->color)
                fputs("\033[0m", out);
        }
        fputc('\n', out);
    }
}

const struct cl_column cl_trial_columns[] = {
    {"trial", CL_RIGHT, false},  {"kind", CL_LEFT, false},      {"layout", CL_LEFT, true},
    {"state", CL_LEFT, false},   {"tokens/s", CL_RIGHT, false}, {"expected", CL_RIGHT, false},
    {"memory", CL_RIGHT, false}, {"why", CL_LEFT, true},
};

void cl_trial_row(struct cl_table *t, const json_t *v)
{
    char rate[32], expected[32], mem[24];
    double bytes = cl_number(v, "memory.measured.total");
    const char *why = cl_string(v, "failure.detail");

    cl_table_add(t, 0, "%.0f", cl_number(v, "n"));
    cl_table_add(t, 1, "%s", cl_string(v, "kind"));
    cl_table_add(t, 2, "%s", cl_string(v, "text"));
    cl_table_add(t, 3, "%s", cl_string(v, "state"));
    cl_table_add(t, 4, "%s", cl_rate(rate, cl_number(v, "tokens_per_s")));
    cl_table_add(t, 5, "%s", cl_rate(expected, cl_number(v, "predicted.tokens_per_s")));
    cl_table_add(t, 6, "%s", isfinite(bytes) ? str_human_bytes(mem, bytes) : "-");
    cl_table_add(t, 7, "%s", *why ? why : cl_string(v, "why"));
}

void cl_print_result(const struct cl *c, const char *title, const json_t *v)
{
    char interval[64];
    double ratio = cl_number(v, "ratio"), mfu = cl_number(v, "mfu");

    (void)c;
    if (!json_is_object(v)) {
        printf("%-10s not measured yet\n", title);
        return;
    }
    printf("%-10s trial %.0f  %s  %s tokens/s", title, cl_number(v, "trial"), cl_string(v, "text"),
           cl_interval(interval, v));
    if (isfinite(mfu))
        printf("  MFU %.1f %%", 100 * mfu);
    if (isfinite(ratio) && strcmp(title, "baseline"))
        printf("  %.2f x baseline", ratio);
    putchar('\n');
}
