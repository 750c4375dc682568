/* What the client prints: numbers with separators, results on a line, and no foreign control
 * characters. */
#include "tuner/client/client.h"

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

/* Length of the character at S that a terminal would obey, not show: C0 and DEL, C1, and the marks
 * that turn the direction of text (U+200E, 200F, 202A-202E, 2066-2069). 0: it is harmless. */
static size_t steering(const char *s)
{
    const unsigned char *c = (const unsigned char *)s;

    if (c[0] < ' ' || c[0] == 0x7f)
        return 1;
    if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
        return 2;
    if (c[0] != 0xe2)
        return 0;
    return (c[1] == 0x80 && (c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xaa && c[2] <= 0xae))) ||
                   (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9)
               ? 3
               : 0;
}

static void clean(char *s, const char *keep)
{
    char *out = s;

    while (*s) {
        size_t n = strchr(keep, *s) ? 0 : steering(s);

        *out++ = n ? '?' : *s;
        s += n ? n : 1;
    }
    *out = '\0';
}

void cl_make_text_safe(char *s)
{
    clean(s, "\n\t");
}

void cl_make_safe(json_t *v)
{
    const char *key;
    json_t *it;
    size_t i;

    if (json_is_string(v)) {
        AUTO_FREE char *text = mem_strdup(json_string_value(v));

        clean(text, "");
        json_string_set_nocheck(v, text);
    } else if (json_is_array(v)) {
        json_array_foreach(v, i, it)
            cl_make_safe(it);
    } else if (json_is_object(v)) {
        json_object_foreach(v, key, it)
            cl_make_safe(it);
    }
}

const char *cl_simulated_word(const json_t *v)
{
    return json_is_true(at(v, "simulated")) ? "simulated " : "";
}

const char *cl_simulated_mark(const json_t *v)
{
    return json_is_true(at(v, "simulated")) ? " (simulated)" : "";
}

static const struct cl_column trial_columns[CL_TRIAL_COLUMNS] = {
    {"trial", CL_RIGHT, false, 0, false},    {"kind", CL_LEFT, false, 3, false},
    {"layout", CL_LEFT, true, 0, false},     {"state", CL_LEFT, false, 0, true},
    {"tokens/s", CL_RIGHT, false, 0, false}, {"expected", CL_RIGHT, false, 2, false},
    {"memory", CL_RIGHT, false, 1, false},   {"why", CL_LEFT, true, 4, false},
};

struct cl_table cl_trial_table(struct cl_column columns[CL_TRIAL_COLUMNS], const json_t *first)
{
    memcpy(columns, trial_columns, sizeof(trial_columns));
    if (*cl_simulated_word(first))
        columns[4].title = "simulated tokens/s";
    return (struct cl_table){.column = columns, .ncolumns = CL_TRIAL_COLUMNS};
}

void cl_trial_row(struct cl_table *t, const json_t *v)
{
    char rate[32], expected[32], mem[24];
    /* A simulated trial has just what was planned for it. */
    double bytes =
        cl_number(v, *cl_simulated_word(v) ? "memory.planned.total" : "memory.measured.total");
    const char *failure = cl_string(v, "failure.detail"), *warning = cl_string(v, "warning");
    const char *why = *failure ? failure : warning;

    cl_table_add(t, 0, "%.0f", cl_number(v, "n"));
    cl_table_add(t, 1, "%s", cl_string(v, "kind"));
    cl_table_add(t, 2, "%s", cl_string(v, "text"));
    cl_table_add(t, 3, "%s", cl_string(v, "state"));
    cl_table_add(t, 4, "%s", cl_rate(rate, cl_number(v, "tokens_per_s")));
    cl_table_add(t, 5, "%s", cl_rate(expected, cl_number(v, "predicted.tokens_per_s")));
    cl_table_add(t, 6, "%s", isfinite(bytes) ? str_human_bytes(mem, bytes) : "-");
    cl_table_add(t, 7, "%s", *why ? why : cl_string(v, "why"));
}

void cl_print_result(FILE *out, const char *title, const json_t *v)
{
    char interval[64];
    double ratio = cl_number(v, "ratio"), mfu = cl_number(v, "mfu");

    if (!json_is_object(v)) {
        fprintf(out, "%-10s none yet\n", title);
        return;
    }
    /* What matters first: a narrow terminal cuts the end. */
    fprintf(out, "%-10s %s %stokens/s", title, cl_interval(interval, v), cl_simulated_word(v));
    if (isfinite(ratio) && strcmp(title, "baseline"))
        fprintf(out, "  %.2f x baseline", ratio);
    if (isfinite(mfu))
        fprintf(out, "  MFU %.1f %%", 100 * mfu);
    fprintf(out, "  trial %.0f  %s\n", cl_number(v, "trial"), cl_string(v, "text"));
}
