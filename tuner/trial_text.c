/*
 * A trial as JSON text, as docs/reference/http.md shows it.
 *
 * Trials are shown by the hundred, so their text is written at once instead of by way of a tree of
 * values: columns that hold JSON go into it as they are, and nothing is allocated for a field.
 * Whoever needs the tree parses the text, so there is one form of a trial only.
 */
#include <math.h>

#include "tuner/internal.h"

static void add_string(struct str *s, const char *text)
{
    const char *from = text;

    if (!text || !str_is_utf8(text, strlen(text))) {
        str_add(s, "null");
        return;
    }
    str_addc(s, '"');
    for (; *text; text++) {
        if ((unsigned char)*text >= ' ' && *text != '"' && *text != '\\')
            continue;
        str_addn(s, from, (size_t)(text - from));
        str_addf(s, "\\u%04x", (unsigned)(unsigned char)*text);
        from = text + 1;
    }
    str_addn(s, from, (size_t)(text - from));
    str_addc(s, '"');
}

static void add_integer(struct str *s, int64_t v)
{
    if (v == DB_NULL)
        str_add(s, "null");
    else
        str_addf(s, "%lld", (long long)v);
}

/* As Jansson writes a real: all its digits, and never the look of an integer. */
static void add_number(struct str *s, double v)
{
    char text[40];

    if (!isfinite(v)) {
        str_add(s, "null");
        return;
    }
    if (fabs(v) < 1e15 && v == (double)(int64_t)v)
        snprintf(text, sizeof(text), "%lld.0", (long long)v);
    else
        snprintf(text, sizeof(text), "%.17g", v);
    str_add(s, text);
    if (!strpbrk(text, ".e"))
        str_add(s, ".0");
}

/* A column of JSON, which this program wrote; null where it is NULL or was cut. */
static void add_json(struct str *s, const char *json)
{
    size_t n = json ? strlen(json) : 0;
    bool whole = n >= 2 &&
                 ((json[0] == '{' && json[n - 1] == '}') || (json[0] == '[' && json[n - 1] == ']'));

    str_addn(s, whole ? json : "null", whole ? n : 4);
}

static void add_time(struct str *s, int64_t ms)
{
    char buf[CLOCK_TEXT];

    if (ms == DB_NULL)
        str_add(s, "null");
    else
        str_addf(s, "\"%s\"", clock_format(buf, ms));
}

/* "key": the comma before it included. */
#define FIELD(s, text, add, value)                                                                 \
    do {                                                                                           \
        str_add(s, text);                                                                          \
        add(s, value);                                                                             \
    } while (0)

static void add_measurements(struct str *s, const struct db_trial *t, bool simulated)
{
    FIELD(s, ",\"predicted\":{\"tokens_per_s\":", add_number, t->predicted_tokens_per_s);
    FIELD(s, ",\"memory_bytes\":", add_number, t->predicted_memory);
    FIELD(s, ",\"p_fits\":", add_number, t->predicted_fits);
    FIELD(s, "},\"tokens_per_s\":", add_number, t->tokens_per_s);
    FIELD(s, ",\"tokens_per_s_se\":", add_number, t->tokens_per_s_se);
    FIELD(s, ",\"mfu\":", add_number, t->mfu);
    FIELD(s, ",\"step_ms\":{\"median\":", add_number, t->step_ms);
    FIELD(s, ",\"p10\":", add_number, t->step_ms_p10);
    FIELD(s, ",\"p90\":", add_number, t->step_ms_p90);
    FIELD(s, ",\"ci95\":", add_number, t->step_ms_ci95);
    FIELD(s, "},\"phases_ms\":", add_json, t->phases);
    FIELD(s, ",\"memory\":{\"planned\":", add_json, t->memory_planned);
    /* Rows of earlier versions have the simulator's plan here, too. */
    FIELD(s, ",\"measured\":", add_json, simulated ? NULL : t->memory_measured);
    FIELD(s, "},\"loss\":{\"first\":", add_number, t->loss_first);
    FIELD(s, ",\"last\":", add_number, t->loss_last);
    str_addc(s, '}');
}

/* "failure" and "warning". A trial that was not counted ran to its end: what it has is a warning,
 * the detail of its column `failure`. */
static void add_trouble(struct str *s, const struct db_trial *t)
{
    bool warned = str_eq(t->state, "implausible");
    AUTO_JSON *v = warned && t->failure ? json_loads(t->failure, 0, NULL) : NULL;

    FIELD(s, ",\"failure\":", add_json, warned ? NULL : t->failure);
    FIELD(s, ",\"warning\":", add_string, json_string_value(json_object_get(v, "detail")));
}

void tn_trial_text(struct str *s, const struct db_trial *t, bool simulated)
{
    FIELD(s, "{\"campaign\":", add_string, t->campaign);
    FIELD(s, ",\"n\":", add_integer, t->n);
    str_add(s, simulated ? ",\"simulated\":true" : ",\"simulated\":false");
    FIELD(s, ",\"kind\":", add_string, t->kind);
    FIELD(s, ",\"state\":", add_string, t->state);
    FIELD(s, ",\"repeat_of\":", add_integer, t->repeat_of);
    FIELD(s, ",\"attempts\":", add_integer, t->attempts);
    FIELD(s, ",\"layout\":", add_json, t->layout);
    FIELD(s, ",\"text\":", add_string, t->layout_text);
    FIELD(s, ",\"why\":", add_string, t->why);
    add_measurements(s, t, simulated);
    FIELD(s, ",\"created\":", add_time, t->created);
    FIELD(s, ",\"started\":", add_time, t->started);
    FIELD(s, ",\"ended\":", add_time, t->ended);
    FIELD(s, ",\"seconds\":", add_number, t->seconds);
    add_trouble(s, t);
    str_addc(s, '}');
}
