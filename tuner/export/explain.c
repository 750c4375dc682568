/*
 * Why an exported line is what it is: the layout key, or the fact of model, workload or cluster,
 * without which it would be another one.
 *
 * Asked of the exporter itself, so that no second table can disagree with it: the job is exported
 * again and again with one value changed, and a line that is then missing depends on that value. A
 * changed layout is made canonical, must be legal, and the target must take it; where that changes
 * further keys with the first one (sp with tp, vp with the schedule), they are named together, for
 * lines that nothing explains alone. A line that none of the changes touches is the same for all of
 * them.
 */
#include "tuner/export/internal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>

enum { MOST_CAUSES = 4, MOST_VALUES = 16, COLUMN = 44 };

struct line {
    const char *text; /* into the copy of the file, without what ends it */
    size_t size;      /* of what is compared: neither a comma nor blanks at its end */
    char *cause[MOST_CAUSES];
    int ncauses;
    bool more, alone; /* further causes; the causes so far are of single keys */
};

struct explain {
    const char *target;
    const struct tn_export_in *in;
    const struct pl_trainer *trainer;
    const struct pl_layout *baseline; /* NULL: none */
    char *file;                       /* owned; cut into lines */
    struct line *line;
    int nlines, cap;
};

/* ---- lines --------------------------------------------------------------- */

static size_t compared_size(const char *text)
{
    size_t n = strlen(text);

    while (n && strchr(", \t\\", text[n - 1]))
        n--;
    return n;
}

static void cut(struct explain *explain, const char *text)
{
    explain->file = mem_strdup(text);
    for (char *at = explain->file; *at;) {
        char *end = at + strcspn(at, "\n");
        bool last = !*end;

        *end = '\0';
        MEM_GROW(explain->line, explain->nlines, explain->cap);
        explain->line[explain->nlines++] = (struct line){.text = at, .size = compared_size(at)};
        at = last ? end : end + 1;
    }
}

/* How often the line is in TEXT. */
static int count_in(const struct line *line, const char *text)
{
    int n = 0;

    for (const char *at = text; *at;) {
        size_t whole = strcspn(at, "\n"), size = whole;

        while (size && strchr(", \t\\", at[size - 1]))
            size--;
        n += size == line->size && !memcmp(at, line->text, size);
        at += whole + (at[whole] == '\n');
    }
    return n;
}

static int count_here(const struct explain *explain, const struct line *line)
{
    int n = 0;

    for (int i = 0; i < explain->nlines; i++)
        n += explain->line[i].size == line->size &&
             !memcmp(explain->line[i].text, line->text, line->size);
    return n;
}

static void add_cause(struct line *line, const char *cause, bool alone)
{
    assert(line->ncauses >= 0 && line->ncauses <= MOST_CAUSES);
    if (line->ncauses && line->alone && !alone)
        return; /* explained by less */
    while (line->ncauses && alone && !line->alone)
        free(line->cause[--line->ncauses]);
    for (int i = 0; i < line->ncauses; i++)
        if (str_eq(line->cause[i], cause))
            return;
    line->more |= line->ncauses == MOST_CAUSES;
    line->alone = alone;
    if (line->ncauses < MOST_CAUSES)
        line->cause[line->ncauses++] = mem_strdup(cause);
}

/* Export the job as IN, and note CAUSE at the lines that it then lacks. */
static void compare(struct explain *explain, const struct tn_export_in *in, const char *cause,
                    bool alone)
{
    AUTO_FREE char *text = NULL;
    const char *type;
    struct tn_findings findings;
    struct err e;

    if (tn_export(&text, &type, &findings, explain->target, in, true, &e) < 0)
        return; /* the target takes no such job */
    for (int i = 0; i < explain->nlines; i++)
        if (explain->line[i].size &&
            count_in(&explain->line[i], text) < count_here(explain, &explain->line[i]))
            add_cause(&explain->line[i], cause, alone);
}

static bool legal(const struct explain *explain, const struct tn_export_in *in)
{
    struct pl_problem problem = {.model = in->model,
                                 .cluster = in->cluster,
                                 .workload = in->workload,
                                 .trainer = explain->trainer};

    return pl_layout_check(NULL, &problem, in->layout);
}

/* ---- layout keys --------------------------------------------------------- */

/* Other values of KEY to try, near ones first. */
static int other_values(int ret[MOST_VALUES], const struct pl_layout_key *key, int value)
{
    const int numbers[] = {value < INT_MAX / 2 ? value * 2 : value, value / 2, 1, 0, value + 1};
    int n = 0;

    if (key->text || key == &pl_layout_keys[PL_KEY_GLOBAL_BATCH]) /* the batch is the workload's */
        return 0;
    for (int i = 0; key->names && key->names[i] && n < MOST_VALUES; i++)
        if (i != value)
            ret[n++] = i;
    for (size_t i = 0; !key->names && i < ARRAY_LEN(numbers); i++)
        if (numbers[i] != value && numbers[i] >= key->min && numbers[i] <= key->max)
            ret[n++] = numbers[i];
    assert(n <= MOST_VALUES);
    return n;
}

/* "tp 2 (baseline 4): what it means", and the keys that change with it. */
static void name_key(struct str *out, const struct explain *explain,
                     const struct pl_layout_key *key, const struct pl_layout *changed)
{
    const struct pl_layout *ours = explain->in->layout;
    const char *separator = " (with ";
    int value = pl_layout_get(ours, key);
    char text[16], other[16];

    str_addf(out, "%s %s", key->name, pl_layout_value_text(text, key, value));
    if (explain->baseline && pl_layout_get(explain->baseline, key) != value)
        str_addf(out, " (baseline %s)",
                 pl_layout_value_text(other, key, pl_layout_get(explain->baseline, key)));
    str_addf(out, ": %s", key->means);
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++)
        if (k != key && k->part != PL_DERIVED &&
            pl_layout_get(ours, k) != pl_layout_get(changed, k)) {
            str_addf(out, "%s%s", separator, k->name);
            separator = ", ";
        }
    if (*separator == ',')
        str_addc(out, ')');
}

/* Compare with LAYOUT, in which KEY was changed, perhaps among others. False: it is no layout. */
static bool try_layout(struct explain *explain, const struct pl_layout_key *key,
                       struct pl_layout *layout)
{
    struct tn_export_in in = *explain->in;
    int value = pl_layout_get(layout, key), changed = 0;
    AUTO_STR cause = {0};

    if (!pl_layout_derive(layout))
        return false;
    pl_layout_canonical(layout, in.model);
    in.layout = layout;
    if (pl_layout_get(layout, key) != value || !pl_layout_derive(layout) || !legal(explain, &in))
        return false;
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++)
        changed += k->part != PL_DERIVED &&
                   pl_layout_get(layout, k) != pl_layout_get(explain->in->layout, k);
    name_key(&cause, explain, key, layout);
    compare(explain, &in, str_text(&cause), changed == 1);
    return true;
}

/* KEY has no other value that is legal alone: change one more key with it. */
static void try_pairs(struct explain *explain, const struct pl_layout_key *key, const int *values,
                      int n)
{
    for (const struct pl_layout_key *with = pl_layout_keys; with->name; with++) {
        int others[MOST_VALUES];
        int m = with == key || with->part == PL_DERIVED
                    ? 0
                    : other_values(others, with, pl_layout_get(explain->in->layout, with));

        for (int i = 0; i < n * m; i++) {
            struct pl_layout layout = *explain->in->layout;

            pl_layout_set(&layout, key, values[i / m]);
            pl_layout_set(&layout, with, others[i % m]);
            if (try_layout(explain, key, &layout))
                return;
        }
    }
}

static void try_layouts(struct explain *explain)
{
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        int values[MOST_VALUES];
        bool found = false;
        int n = key->part == PL_DERIVED
                    ? 0
                    : other_values(values, key, pl_layout_get(explain->in->layout, key));

        for (int i = 0; i < n; i++) {
            struct pl_layout layout = *explain->in->layout;

            pl_layout_set(&layout, key, values[i]);
            found |= try_layout(explain, key, &layout);
        }
        if (!found)
            try_pairs(explain, key, values, n);
    }
}

/* ---- facts of the job ---------------------------------------------------- */

/* Export with VALUE, which is taken, for KEY of the model WHOLE, or of its object PART. */
static void try_model_value(struct explain *explain, const json_t *whole, const char *part,
                            const char *key, json_t *owned_value, const char *cause)
{
    AUTO_JSON *other = json_deep_copy(whole);
    struct tn_export_in in = *explain->in;
    struct pl_model model;

    json_object_set_new(part ? json_object_get(other, part) : other, key, owned_value);
    in.model = &model;
    if (pl_model_parse(&model, other, NULL) == 0 && legal(explain, &in))
        compare(explain, &in, cause, true);
}

/* KEY of the model, or of its object PART, twice as large, turned, or with a word that a preset
 * has. */
static void try_model(struct explain *explain, const json_t *whole, const char *part,
                      const char *key, const json_t *value)
{
    AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    AUTO_FREE char *cause =
        mem_printf("model: %s%s%s %s", part ? part : "", part ? "." : "", key, text);

    if (json_is_integer(value) && json_integer_value(value) > 0 &&
        json_integer_value(value) < INT_MAX / 2)
        try_model_value(explain, whole, part, key, json_integer(2 * json_integer_value(value)),
                        cause);
    else if (json_is_real(value))
        try_model_value(explain, whole, part, key, json_real(2 * json_real_value(value)), cause);
    else if (json_is_boolean(value))
        try_model_value(explain, whole, part, key, json_boolean(!json_is_true(value)), cause);
    for (const char *const *name = pl_model_presets(); json_is_string(value) && *name; name++) {
        AUTO_JSON *preset = NULL;
        const char *json = pl_model_preset(*name);
        json_t *word;

        if (jx_parse(&preset, json, strlen(json), NULL) < 0)
            continue;
        word = json_object_get(part ? json_object_get(preset, part) : preset, key);
        if (json_is_string(word) && strcmp(key, "name") != 0 && !json_equal(word, value))
            try_model_value(explain, whole, part, key, json_incref(word), cause);
    }
}

static void try_job(struct explain *explain)
{
    const struct tn_export_in *in = explain->in;
    AUTO_JSON *model = pl_model_json(in->model);
    struct pl_workload workload = *in->workload;
    struct pl_cluster cluster = *in->cluster;
    struct tn_export_in other = *in;
    AUTO_FREE char *batch = mem_printf("workload: global_batch %d", workload.global_batch);
    AUTO_FREE char *seq = mem_printf("workload: seq %d", workload.seq);
    AUTO_FREE char *devices = mem_printf("cluster: devices_per_node %d", cluster.devices_per_node);
    const char *key, *inner;
    json_t *value, *part;

    json_object_foreach(model, key, value) {
        try_model(explain, model, NULL, key, value);
        json_object_foreach(value, inner, part)
            try_model(explain, model, key, inner, part);
    }
    other.workload = &workload;
    workload.global_batch *= 2;
    if (legal(explain, &other))
        compare(explain, &other, batch, true);
    workload = *in->workload;
    workload.seq *= 2;
    if (legal(explain, &other))
        compare(explain, &other, seq, true);
    other = *in;
    other.cluster = &cluster;
    cluster.devices_per_node *= 2;
    if (legal(explain, &other))
        compare(explain, &other, devices, true);
}

/* ---- the answer ---------------------------------------------------------- */

static void add_why(struct str *out, const struct line *line, bool comment)
{
    size_t width = strlen(line->text);

    str_addf(out, "%s%*s <- ", line->text, width < COLUMN ? (int)(COLUMN - width) : 0, "");
    if (comment)
        str_add(out, "provenance, expected throughput and what is lost");
    else if (!line->ncauses)
        str_add(out, "no layout key, model fact or batch that was tried changes it");
    for (int i = 0; i < line->ncauses && !comment; i++)
        str_addf(out, "%s%s", i ? "; " : "", line->cause[i]);
    if (line->more && !comment)
        str_add(out, "; and others");
    str_addc(out, '\n');
}

static bool is_comment(const struct tn_exporter *exporter, const struct line *line)
{
    const char *text = line->text + strspn(line->text, " \t");

    size_t size = exporter->comment ? strlen(exporter->comment) : 0;

    /* "#SBATCH" and "#!" are none */
    return size && str_starts(text, exporter->comment) && (!text[size] || text[size] == ' ');
}

int tn_export_explain(char **ret, const char *target, const struct tn_export_in *in,
                      const struct pl_trainer *trainer, const struct pl_layout *baseline,
                      const char *file, struct err *error)
{
    struct explain explain = {.target = target, .in = in, .trainer = trainer, .baseline = baseline};
    const struct tn_wrapper *wrapper;
    const struct tn_exporter *exporter = tn_exporter_find(&wrapper, target);
    AUTO_STR out = {0};

    assert(in->model && in->cluster && in->layout && in->workload && trainer && file);
    if (!exporter)
        return tn_exporter_unknown(target, error);
    cut(&explain, file);
    try_layouts(&explain);
    try_job(&explain);
    for (int i = 0; i < explain.nlines; i++) {
        struct line *line = &explain.line[i];

        if (line->size)
            add_why(&out, line, is_comment(exporter, line));
        else
            str_addc(&out, '\n');
        for (int k = 0; k < line->ncauses; k++)
            free(line->cause[k]);
    }
    free(explain.line);
    free(explain.file);
    *ret = str_take(&out);
    return 0;
}
