/*
 * The trials of a campaign as one file: CSV for spreadsheets and data frames, or JSON lines, each
 * the trial as the API shows it.
 *
 * CSV is RFC 4180: a header, lines that end with CR LF, quotes around cells that need them, nothing
 * for what is not known. A text that a spreadsheet would run as a formula is preceded by an
 * apostrophe, as in the dashboard's downloads. Each layout key has a column of its own.
 *
 * Runs on any thread, with its own connection, in portions: a reader that waits for ten thousand
 * trials keeps nobody else waiting.
 */
#include <errno.h>
#include <math.h>

#include "plan/plan.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

enum { PORTION = 1000 };

/* ---- cells --------------------------------------------------------------- */

static void add_text(struct str *out, const char *text)
{
    if (!text || !*text || !str_is_utf8(text, strlen(text)))
        return;
    if (!text[strcspn(text, "\",\r\n")] && !strchr("=+-@\t", text[0])) {
        str_add(out, text);
        return;
    }
    str_addc(out, '"');
    if (strchr("=+-@\t\r", *text))
        str_addc(out, '\'');
    for (; *text; text++) {
        if (*text == '"')
            str_addc(out, '"');
        str_addc(out, *text);
    }
    str_addc(out, '"');
}

static void add_integer(struct str *out, int64_t value)
{
    if (value != DB_NULL)
        str_addf(out, "%lld", (long long)value);
}

static void add_real(struct str *out, double value)
{
    if (isfinite(value))
        str_addf(out, "%.15g", value);
}

static void add_time(struct str *out, int64_t ms)
{
    char text[CLOCK_TEXT];

    if (ms != DB_NULL)
        str_add(out, clock_format(text, ms));
}

/* A number or a text of JSON; anything else as JSON. */
static void add_json(struct str *out, const json_t *value)
{
    AUTO_FREE char *text = NULL;

    if (!value || json_is_null(value))
        return;
    if (json_is_string(value)) {
        add_text(out, json_string_value(value));
        return;
    }
    text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    add_text(out, text);
}

/* ---- rows ---------------------------------------------------------------- */

/* A trial with what its columns of JSON hold. */
struct row {
    const struct db_trial *trial;
    bool simulated;
    json_t *layout, *planned, *measured, *failure, *run, *inferred; /* NULL where there is none */
};

static json_t *parsed(const char *json)
{
    return json ? json_loads(json, 0, NULL) : NULL;
}

#define CELL(name, add, value)                                                                     \
    static void cell_##name(struct str *out, const struct row *row)                                \
    {                                                                                              \
        add(out, value);                                                                           \
    }
#include "tuner/results/rows.def"

static const struct {
    const char *name;
    void (*add)(struct str *out, const struct row *row);
} cells[] = {
#define CELL(name, ...) {#name, cell_##name},
#define LAYOUT_KEYS {NULL, NULL}, /* a column for each key */
#include "tuner/results/rows.def"
};

static void add_header(struct str *out)
{
    const char *comma = "";

    for (size_t i = 0; i < ARRAY_LEN(cells); i++) {
        if (cells[i].name)
            str_addf(out, "%s%s", comma, cells[i].name);
        for (const char *const *key = pl_layout_key_names; !cells[i].name && *key; key++)
            str_addf(out, ",%s", *key);
        comma = ",";
    }
    str_add(out, "\r\n");
}

static void add_csv(struct str *out, const struct db_trial *trial, bool simulated)
{
    struct row row = {.trial = trial,
                      .simulated = simulated,
                      .layout = parsed(trial->layout),
                      .planned = parsed(trial->memory_planned),
                      .measured = simulated ? NULL : parsed(trial->memory_measured),
                      .failure = parsed(trial->failure),
                      .run = parsed(trial->run),
                      .inferred = parsed(trial->inferred)};

    for (size_t i = 0; i < ARRAY_LEN(cells); i++) {
        if (cells[i].name) {
            if (i)
                str_addc(out, ',');
            cells[i].add(out, &row);
        }
        for (const char *const *key = pl_layout_key_names; !cells[i].name && *key; key++) {
            str_addc(out, ',');
            add_json(out, json_object_get(row.layout, *key));
        }
    }
    str_add(out, "\r\n");
    json_decref(row.layout);
    json_decref(row.planned);
    json_decref(row.measured);
    json_decref(row.failure);
    json_decref(row.run);
    json_decref(row.inferred);
}

/* ---- the file ------------------------------------------------------------ */

static int add_rows(struct str *out, struct db *db, const char *id, bool csv, struct err *error)
{
    struct arena whole = {0};
    struct db_campaign campaign;
    struct db_filter filter = {.limit = PORTION};
    bool more = true;
    int r = db_campaign_get(&campaign, db, &whole, id, error);

    if (r == 0 && csv)
        add_header(out);
    while (r == 0 && more) {
        struct arena portion = {0};
        struct db_trial *trial = NULL;
        int64_t total;
        int n = 0;

        r = db_trial_list(&trial, &n, &total, db, &portion, id, &filter, error);
        for (int i = 0; r == 0 && i < n; i++) {
            if (csv) {
                add_csv(out, &trial[i], tn_is_simulated(campaign.launcher));
            } else {
                tn_trial_text(out, &trial[i], tn_is_simulated(campaign.launcher));
                str_addc(out, '\n');
            }
        }
        more = r == 0 && n == PORTION;
        if (more)
            filter.after = db_trial_position(&whole, &filter, &trial[n - 1]);
        arena_done(&portion);
    }
    arena_done(&whole);
    return r;
}

int tn_rows(struct str *out, struct tn_service *svc, const char *id, enum tn_rows_format format,
            struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", tn_data_dir(svc));
    AUTO_DB *db = NULL;
    int r = db_open(&db, path, DB_READ, error);

    return r < 0 ? r : add_rows(out, db, id, format == TN_ROWS_CSV, error);
}
