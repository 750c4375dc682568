/*
 * A trial as JSON text, as docs/reference/http.md shows it.
 *
 * Trials are shown by the hundred, so their text is written at once instead of by way of a tree of
 * values: columns that hold JSON go into it as they are, and nothing is allocated for a field.
 * A caller that needs the tree parses the text, so there is one form of a trial only.
 */
#include <math.h>

#include "tuner/results/view.h"

static void add_string(struct str *out, const char *text)
{
    const char *from = text;

    if (!text || !str_is_utf8(text, strlen(text))) {
        str_add(out, "null");
        return;
    }
    str_addc(out, '"');
    for (; *text; text++) {
        if ((unsigned char)*text >= ' ' && *text != '"' && *text != '\\')
            continue;
        str_addn(out, from, (size_t)(text - from));
        str_addf(out, "\\u%04x", (unsigned)(unsigned char)*text);
        from = text + 1;
    }
    str_addn(out, from, (size_t)(text - from));
    str_addc(out, '"');
}

/* The digits of VALUE below END, least last, at least LEAST of them; returns where they begin. */
static char *digits(char *end, uint64_t value, int least)
{
    char *at = end;

    for (; value || end - at < least; value /= 10)
        *--at = (char)('0' + value % 10);
    return at;
}

static void add_integer(struct str *out, int64_t value)
{
    char text[24], *end = text + sizeof(text),
                   *at = digits(end, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 1);

    if (value == DB_NULL) {
        str_add(out, "null");
        return;
    }
    if (value < 0)
        *--at = '-';
    str_addn(out, at, (size_t)(end - at));
}

/* COUNT thousandths with as many digits behind the point as they need, at least one. */
static void add_thousandths(struct str *out, int64_t count)
{
    char text[32], *end = text + sizeof(text), *point = end - 3, *at;
    uint64_t all = count < 0 ? 0 - (uint64_t)count : (uint64_t)count;

    digits(end, all % 1000, 3);
    *--point = '.';
    at = digits(point, all / 1000, 1);
    if (count < 0)
        *--at = '-';
    while (end[-1] == '0' && end[-2] != '.')
        end--;
    str_addn(out, at, (size_t)(end - at));
}

/*
 * What reads as the same number, and never looks like an integer. Most values are whole thousandths
 * and quick to write: the quotient of two integers below 2^53 is rounded as a parser rounds its
 * decimal digits. Others have all 17 digits.
 */
static void add_number(struct str *out, double value)
{
    char text[40];
    double count = round(value * 1000);

    if (!isfinite(value)) {
        str_add(out, "null");
    } else if (fabs(count) < 0x1p53 && count / 1000 == value) {
        add_thousandths(out, (int64_t)count);
    } else {
        snprintf(text, sizeof(text), "%.17g", value);
        str_add(out, text);
        if (!strpbrk(text, ".e"))
            str_add(out, ".0");
    }
}

/* A column of JSON, which this program wrote; null where it is NULL or was cut. */
static void add_json(struct str *out, const char *json)
{
    size_t n = json ? strlen(json) : 0;
    bool whole = n >= 2 &&
                 ((json[0] == '{' && json[n - 1] == '}') || (json[0] == '[' && json[n - 1] == ']'));

    str_addn(out, whole ? json : "null", whole ? n : 4);
}

static void add_time(struct str *out, int64_t ms)
{
    char buf[CLOCK_TEXT];

    if (ms == DB_NULL)
        str_add(out, "null");
    else
        str_addf(out, "\"%s\"", clock_format(buf, ms));
}

/* "key": the comma before it included; a literal. */
#define FIELD(s, text, add, value)                                                                 \
    do {                                                                                           \
        str_addn(s, text, sizeof(text) - 1);                                                       \
        add(s, value);                                                                             \
    } while (0)

static void add_measurements(struct str *out, const struct db_trial *trial, bool simulated)
{
    FIELD(out, ",\"predicted\":{\"tokens_per_s\":", add_number, trial->predicted_tokens_per_s);
    FIELD(out, ",\"memory_bytes\":", add_number, trial->predicted_memory);
    FIELD(out, ",\"p_fits\":", add_number, trial->predicted_fits);
    FIELD(out, "},\"tokens_per_s\":", add_number, trial->tokens_per_s);
    FIELD(out, ",\"tokens_per_s_se\":", add_number, trial->tokens_per_s_se);
    FIELD(out, ",\"mfu\":", add_number, trial->mfu);
    FIELD(out, ",\"step_ms\":{\"median\":", add_number, trial->step_ms);
    FIELD(out, ",\"p10\":", add_number, trial->step_ms_p10);
    FIELD(out, ",\"p90\":", add_number, trial->step_ms_p90);
    FIELD(out, ",\"ci95\":", add_number, trial->step_ms_ci95);
    FIELD(out, "},\"phases_ms\":", add_json, trial->phases);
    FIELD(out, ",\"memory\":{\"planned\":", add_json, trial->memory_planned);
    /* Rows of earlier versions have the simulator's plan here, too. */
    FIELD(out, ",\"measured\":", add_json, simulated ? NULL : trial->memory_measured);
    FIELD(out, "},\"loss\":{\"first\":", add_number, trial->loss_first);
    FIELD(out, ",\"last\":", add_number, trial->loss_last);
    FIELD(out, "},\"expert_imbalance\":", add_number, trial->imbalance);
    FIELD(out, ",\"tokens_per_joule\":", add_number, trial->tokens_per_joule);
}

/* "failure" and "warning". A trial that was not counted, or was disturbed, ran to its end: what it
 * has is a warning, the detail of its column `failure`. */
static void add_trouble(struct str *out, const struct db_trial *trial)
{
    bool warned = str_eq(trial->state, "implausible") || str_eq(trial->state, "ok");
    AUTO_JSON *v = warned && trial->failure ? json_loads(trial->failure, 0, NULL) : NULL;

    FIELD(out, ",\"failure\":", add_json, warned ? NULL : trial->failure);
    FIELD(out, ",\"warning\":", add_string, json_string_value(json_object_get(v, "detail")));
}

void tn_trial_text(struct str *out, const struct db_trial *trial, bool simulated)
{
    FIELD(out, "{\"campaign\":", add_string, trial->campaign);
    FIELD(out, ",\"n\":", add_integer, trial->n);
    str_add(out, simulated ? ",\"simulated\":true" : ",\"simulated\":false");
    FIELD(out, ",\"kind\":", add_string, trial->kind);
    FIELD(out, ",\"state\":", add_string, trial->state);
    FIELD(out, ",\"repeat_of\":", add_integer, trial->repeat_of);
    FIELD(out, ",\"attempts\":", add_integer, trial->attempts);
    FIELD(out, ",\"fidelity\":", add_integer, trial->fidelity);
    FIELD(out, ",\"layout\":", add_json, trial->layout);
    FIELD(out, ",\"text\":", add_string, trial->layout_text);
    FIELD(out, ",\"why\":", add_string, trial->why);
    add_measurements(out, trial, simulated);
    FIELD(out, ",\"run\":", add_json, trial->run);
    FIELD(out, ",\"inferred\":", add_json, trial->inferred);
    FIELD(out, ",\"devices\":", add_integer, trial->devices);
    FIELD(out, ",\"device_s\":", add_number, trial->device_s);
    FIELD(out, ",\"created\":", add_time, trial->created);
    FIELD(out, ",\"started\":", add_time, trial->started);
    FIELD(out, ",\"ended\":", add_time, trial->ended);
    FIELD(out, ",\"seconds\":", add_number, trial->seconds);
    add_trouble(out, trial);
    str_addc(out, '}');
}
