/*
 * Trials and their life:
 *
 *     queued -> starting -> running -> a final state of states.def
 *        ^________|___________|
 *
 * (back to queued: another attempt). Each transition is one UPDATE whose WHERE names the states
 * that it leaves.
 */
#include "db/internal.h"

#include <errno.h>
#include <math.h>

#define T(field)                                                                                   \
    {                                                                                              \
#field, DB_TEXT, offsetof(struct db_trial, field)                                          \
    }
#define I(field)                                                                                   \
    {                                                                                              \
#field, DB_INT, offsetof(struct db_trial, field)                                           \
    }
#define R(field)                                                                                   \
    {                                                                                              \
#field, DB_REAL, offsetof(struct db_trial, field)                                          \
    }

static const struct db_column columns[] = {
    T(campaign),
    I(n),
    T(kind),
    T(state),
    I(repeat_of),
    I(search_id),
    I(attempts),
    T(layout),
    T(layout_text),
    T(why),
    R(predicted_tokens_per_s),
    R(predicted_memory),
    R(predicted_fits),
    R(tokens_per_s),
    R(tokens_per_s_se),
    R(tokens_per_s_max),
    R(mfu),
    R(step_ms),
    R(step_ms_p10),
    R(step_ms_p90),
    R(step_ms_ci95),
    T(phases),
    T(memory_planned),
    T(memory_measured),
    R(memory),
    R(loss_first),
    R(loss_last),
    R(imbalance),
    R(tokens_per_joule),
    T(failure),
    I(created),
    I(started),
    I(ended),
    R(seconds),
    I(rev),
    I(fidelity),
    T(run),
    T(inferred),
    I(devices),
    R(device_s),
    {0},
};

int db_trial_next(int64_t *ret_n, struct db *db, const char *campaign, struct err *error)
{
    return db_number(ret_n, db, 1, error, "SELECT next_n FROM campaign WHERE id = ?", "s",
                     campaign);
}

void db_trial_blank(struct db_trial *ret)
{
    *ret = (struct db_trial){
        .repeat_of = DB_NULL,
        .search_id = DB_NULL,
        .predicted_tokens_per_s = NAN,
        .predicted_memory = NAN,
        .predicted_fits = NAN,
        .tokens_per_s = NAN,
        .tokens_per_s_se = NAN,
        .tokens_per_s_max = NAN,
        .mfu = NAN,
        .step_ms = NAN,
        .step_ms_p10 = NAN,
        .step_ms_p90 = NAN,
        .step_ms_ci95 = NAN,
        .memory = NAN,
        .loss_first = NAN,
        .loss_last = NAN,
        .imbalance = NAN,
        .tokens_per_joule = NAN,
        .started = DB_NULL,
        .ended = DB_NULL,
        .seconds = NAN,
        .fidelity = DB_NULL,
        .devices = DB_NULL,
        .device_s = NAN,
    };
}

int db_trial_add(int64_t *ret_n, struct db *writer, struct db_trial *trial, struct err *error)
{
    int64_t n;
    int r =
        db_number(&n, writer, -1, error,
                  "SELECT next_n FROM campaign WHERE id = ? AND state IN ('running', 'verifying')",
                  "s", trial->campaign);

    if (r < 0)
        return r;
    if (n < 0)
        return err_set(error, -ESTALE, "campaign %s takes no trials now", trial->campaign);
    trial->n = n;
    trial->state = "queued";
    trial->attempts = 0;
    r = db_insert(writer, "INSERT", "trial", columns, trial, error);
    if (r == 0)
        *ret_n = n;
    return r;
}

int db_trial_get(struct db_trial *ret, struct db *db, struct arena *arena, const char *campaign,
                 int64_t trial, struct err *error)
{
    AUTO_FREE char *what = mem_printf("trial %lld of campaign %.40s", (long long)trial, campaign);

    return db_select_one(ret, db, arena, "trial", columns, what, error,
                         "campaign = ?1 AND n = ?2 AND EXISTS (SELECT 1 FROM campaign"
                         " WHERE id = ?1 AND state <> 'deleted')",
                         "si", campaign, trial);
}

static const char *order(const struct db_filter *filter)
{
    static const char *const keys[] = {"n", "tokens_per_s", "state", "memory", "kind", "seconds"};

    /* What is the same in all rows orders nothing. */
    if ((filter->state && str_eq(filter->sort, "state")) ||
        (filter->kind && str_eq(filter->sort, "kind")))
        return "n";
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (str_eq(filter->sort, keys[i]))
            return keys[i];
    return "n";
}

/* In order of n the primary key would do as well, but reads every trial to find the few in a rare
 * state; these indexes hold the filter first and n next. */
static const char *index_for(const struct db_filter *filter, const char *by)
{
    if (strcmp(by, "n") != 0)
        return "";
    return filter->state ? "INDEXED BY trial_state" : filter->kind ? "INDEXED BY trial_kind" : "";
}

const char *db_trial_position(struct arena *arena, const struct db_filter *filter,
                              const struct db_trial *trial)
{
    return db_position(arena, columns, order(filter), "n", trial);
}

static int count_matching(int64_t *ret, struct db *db, const char *campaign,
                          const struct db_filter *filter, struct err *error)
{
    return db_number(ret, db, 0, error,
                     "SELECT sum(n) FROM trial_tally WHERE campaign = ?1"
                     " AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR kind = ?3)",
                     "sss", campaign, filter->state, filter->kind);
}

/* The index of an order whose values may be unknown; NULL: they never are. */
static const char *nullable_index(const struct db_filter *filter, const char *by)
{
    return !strcmp(by, "memory")        ? "trial_memory"
           : !strcmp(by, "seconds")     ? "trial_seconds"
           : strcmp(by, "tokens_per_s") ? NULL
           : filter->state              ? "trial_state_speed"
                                        : "trial_speed";
}

/* Trials of the filter, by INDEX, that meet WHICH too. */
static void add_matching(struct str *sql, const struct db_filter *filter, const char *by,
                         const char *index, const char *which)
{
    str_addf(sql, "trial %s WHERE campaign = ?1%s", index, which);
    str_add(sql, filter->state ? " AND state = ?2" : " AND ?2 IS NULL");
    str_add(sql, filter->kind ? " AND kind = ?3" : " AND ?3 IS NULL");
    db_add_position(sql, filter->after, by, "n", filter->descending);
}

/*
 * A page of trials, ?4 and ?5 being its limit and offset. Unknown values are last, whatever the
 * direction; to SQLite they are the smallest, and NULLS LAST takes 3.30. So an ascending page is
 * taken from two: of trials that have a value, and of those that have none. The second key runs the
 * same way as the first, so that one scan of an index gives a page.
 */
static void add_page(struct str *sql, const struct db_filter *filter, const char *by)
{
    static const char *const half[] = {"IS NOT NULL", "IS NULL"};
    const char *way = filter->descending ? "DESC" : "ASC", *name = nullable_index(filter, by);

    if (!name || filter->descending) {
        add_matching(sql, filter, by, index_for(filter, by), "");
        str_addf(sql, " ORDER BY %s %s%s%s", by, way, strcmp(by, "n") ? ", n " : "",
                 strcmp(by, "n") ? way : "");
    } else {
        AUTO_FREE char *index = mem_printf("INDEXED BY %s", name);

        str_add(sql, "(");
        for (int i = 0; i < 2; i++) {
            AUTO_FREE char *which = mem_printf(" AND %s %s", by, half[i]);

            str_addf(sql, "%sSELECT * FROM (SELECT * FROM ", i ? " UNION ALL " : "");
            add_matching(sql, filter, by, index, which);
            str_addf(sql, " ORDER BY %s, n LIMIT ?4 + ?5)", by);
        }
        str_addf(sql, ") ORDER BY %s IS NULL, %s, n", by, by);
    }
    str_add(sql, " LIMIT ?4 OFFSET ?5");
}

int db_trial_list(struct db_trial **ret, int *ret_count, int64_t *ret_total, struct db *db,
                  struct arena *arena, const char *campaign, const struct db_filter *filter,
                  struct err *error)
{
    AUTO_STR sql = {0};
    struct db_rows rows = {.a = arena, .size = sizeof(struct db_trial)};
    const char *by = order(filter);
    sqlite3_stmt *st;
    int r = count_matching(ret_total, db, campaign, filter, error);

    if (r < 0)
        return r;
    str_add(&sql, "SELECT ");
    db_add_columns(&sql, columns);
    str_add(&sql, " FROM ");
    add_page(&sql, filter, by);
    r = db_query(&st, db, error, sql.text, "sssii", campaign, filter->state, filter->kind,
                 filter->limit, filter->offset);
    if (r == 0)
        r = db_bind_position(st, filter->after, DB_INT, error);
    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        db_read_row(db_rows_add(&rows), st, columns, arena);
    if (r < 0)
        return r;
    *ret = (struct db_trial *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

static int guarded(int changed, const char *campaign, int64_t trial, const char *to,
                   struct err *error)
{
    if (changed < 0)
        return changed;
    if (changed == 0)
        return err_set(error, -ESTALE, "trial %lld of campaign %s cannot become %s now",
                       (long long)trial, campaign, to);
    return 0;
}

int db_trial_start(struct db *writer, const char *campaign, int64_t trial, int64_t now,
                   struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE trial SET state = 'starting', attempts = attempts + 1, started = "
                  "coalesce(started, ?3),"
                  " rev = rev + 1 WHERE campaign = ?1 AND n = ?2 AND state = 'queued'",
                  "sii", campaign, trial, now);

    return guarded(r, campaign, trial, "starting", error);
}

int db_trial_run(struct db *writer, const char *campaign, int64_t trial, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE trial SET state = 'running', rev = rev + 1"
                  " WHERE campaign = ? AND n = ? AND state = 'starting'",
                  "si", campaign, trial);

    return guarded(r, campaign, trial, "running", error);
}

int db_trial_requeue(struct db *writer, const char *campaign, int64_t trial, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE trial SET state = 'queued', rev = rev + 1"
                  " WHERE campaign = ? AND n = ? AND state IN ('starting', 'running')",
                  "si", campaign, trial);

    return guarded(r, campaign, trial, "queued", error);
}

int db_trial_settle(struct db *writer, const struct db_trial *trial, struct err *error)
{
    static const char sql[] =
        "UPDATE trial SET state = ?3, tokens_per_s = ?4, tokens_per_s_se = ?5, tokens_per_s_max = "
        "?6, mfu = ?7,"
        " step_ms = ?8, step_ms_p10 = ?9, step_ms_p90 = ?10, step_ms_ci95 = ?11, phases = ?12,"
        " memory_planned = coalesce(?13, memory_planned), memory_measured = ?14, memory = ?15,"
        " loss_first = ?16, loss_last = ?17, failure = ?18, ended = ?19,"
        " run = coalesce(?20, run), imbalance = ?21, tokens_per_joule = ?22,"
        " seconds = CASE WHEN started IS NULL THEN NULL ELSE max(0, ?19 - started) / 1000.0 END, "
        "rev = rev + 1"
        " WHERE campaign = ?1 AND n = ?2 AND state IN ('queued', 'starting', 'running')";
    int r;

    if (!db_trial_final(trial->state))
        return err_set(error, -EINVAL, "%s is not a final state", trial->state);
    r = db_do(writer, error, sql, "sisrrrrrrrrsssrrrsisrr", trial->campaign, trial->n, trial->state,
              trial->tokens_per_s, trial->tokens_per_s_se, trial->tokens_per_s_max, trial->mfu,
              trial->step_ms, trial->step_ms_p10, trial->step_ms_p90, trial->step_ms_ci95,
              trial->phases, trial->memory_planned, trial->memory_measured, trial->memory,
              trial->loss_first, trial->loss_last, trial->failure, trial->ended, trial->run,
              trial->imbalance, trial->tokens_per_joule);
    return guarded(r, trial->campaign, trial->n, trial->state, error);
}

int db_trial_cancel_queued(struct db *writer, const char *campaign, int64_t now, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE trial SET state = 'cancelled', ended = ?2, rev = rev + 1"
                  " WHERE campaign = ?1 AND state = 'queued'",
                  "si", campaign, now);

    return r < 0 ? r : 0;
}

int db_trial_planned(struct db *writer, const char *campaign, int64_t trial,
                     const char *memory_json, struct err *error)
{
    int r =
        db_do(writer, error,
              "UPDATE trial SET memory_planned = ?3, rev = rev + 1 WHERE campaign = ?1 AND n = ?2",
              "sis", campaign, trial, memory_json);

    return guarded(r, campaign, trial, "planned", error);
}

int db_trial_infer(struct db *writer, const char *campaign, int64_t trial,
                   const char *inferred_json, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE trial SET inferred = ?3, rev = rev + 1"
                  " WHERE campaign = ?1 AND n = ?2 AND fidelity IS NOT NULL",
                  "sis", campaign, trial, inferred_json);

    return guarded(r, campaign, trial, "inferred", error);
}

int db_trial_smaller(int64_t *ret_count, double *ret_device_s, struct db *db, const char *campaign,
                     struct err *error)
{
    sqlite3_stmt *st;
    int r = db_query(&st, db, error,
                     "SELECT count(started), coalesce(sum(device_s), 0) FROM trial"
                     " INDEXED BY trial_fidelity WHERE campaign = ? AND fidelity IS NOT NULL",
                     "s", campaign);

    if (r == 0 && (r = db_next(db, st, error)) == 1) {
        *ret_count = sqlite3_column_int64(st, 0);
        *ret_device_s = sqlite3_column_double(st, 1);
        sqlite3_reset(st);
    }
    return r < 0 ? r : 0;
}

/* Rows of trials of a query that follows "SELECT <columns> FROM trial". */
static int read_trials(struct db_trial **ret, int *ret_count, struct db *db, struct arena *arena,
                       const char *where, const char *campaign, int64_t trial, struct err *error)
{
    AUTO_STR sql = {0};
    struct db_rows rows = {.a = arena, .size = sizeof(struct db_trial)};
    sqlite3_stmt *st;
    int r;

    str_add(&sql, "SELECT ");
    db_add_columns(&sql, columns);
    str_add(&sql, " FROM trial WHERE campaign = ?1 AND ");
    str_add(&sql, where);
    r = db_query(&st, db, error, sql.text, "si", campaign, trial);
    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        db_read_row(db_rows_add(&rows), st, columns, arena);
    if (r < 0)
        return r;
    *ret = (struct db_trial *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

int db_trial_group(struct db_trial **ret, int *ret_count, struct db *db, struct arena *arena,
                   const char *campaign, int64_t trial, struct err *error)
{
    /* Not "n = ?2 OR repeat_of = ?2": that reads every trial of the campaign. */
    return read_trials(ret, ret_count, db, arena,
                       "n IN (SELECT ?2 UNION ALL"
                       " SELECT n FROM trial WHERE campaign = ?1 AND repeat_of = ?2)"
                       " AND +state = 'ok' AND kind <> 'verify' AND +fidelity IS NULL ORDER BY n",
                       campaign, trial, error);
}

int db_trial_repeated(struct db_trial **ret, int *ret_count, struct db *db, struct arena *arena,
                      const char *campaign, struct err *error)
{
    /* ?2 is 0, which no trial is. As with groups, the conditions are put so that trials are found
     * by their numbers; there may be many others. */
    return read_trials(ret, ret_count, db, arena,
                       "+n > ?2 AND n IN (SELECT repeat_of FROM trial"
                       " WHERE campaign = ?1 AND repeat_of IS NOT NULL"
                       " UNION SELECT n FROM trial WHERE campaign = ?1 AND repeat_of IS NOT NULL)"
                       " AND +state = 'ok' AND kind <> 'verify' AND +fidelity IS NULL"
                       " ORDER BY coalesce(repeat_of, n), n",
                       campaign, 0, error);
}

/* SLICE's key in a layout's JSON; NULL without a slice. */
static char *slice_path(const struct db_slice *slice)
{
    return slice ? mem_printf("$.%s", slice->key) : NULL;
}

int db_trial_spent(int64_t *ret_count, double *ret_device_s, struct db *db, const char *campaign,
                   const struct db_slice *slice, struct err *error)
{
    AUTO_FREE char *path = slice_path(slice);
    sqlite3_stmt *st;
    int r = db_query(&st, db, error,
                     "SELECT coalesce(sum(kind <> 'verify'), 0), coalesce(sum(device_s), 0)"
                     " FROM trial WHERE campaign = ?1 AND json_extract(layout, ?2) IN (?3, ?4)",
                     "ssis", campaign, path, slice->value, slice->text);

    if (r == 0 && (r = db_next(db, st, error)) == 1) {
        *ret_count = sqlite3_column_int64(st, 0);
        *ret_device_s = sqlite3_column_double(st, 1);
        sqlite3_reset(st);
    }
    return r < 0 ? r : 0;
}

#define LEADERS(value)                                                                             \
    "SELECT coalesce(repeat_of, n) FROM trial WHERE campaign = ?1 AND state = 'ok'"                \
    " AND kind <> 'verify' AND fidelity IS NULL"                                                   \
    " AND (?3 IS NULL OR json_extract(layout, ?3) IN (?4, ?5))"                                    \
    " ORDER BY " value " DESC LIMIT ?2"

#define DEVICES "(json_extract(layout, '$.world') * coalesce(json_extract(layout, '$.threads'), 1))"

/* The layouts that ST, of LEADERS, yields, each once. */
static int read_leaders(int64_t *ret, int *ret_count, struct db *db, sqlite3_stmt *st, int max,
                        struct err *error)
{
    int count = 0, r;

    while ((r = db_next(db, st, error)) == 1) {
        int64_t n = sqlite3_column_int64(st, 0);
        int i = 0;

        while (i < count && ret[i] != n)
            i++;
        if (i == count && count < max)
            ret[count++] = n;
    }
    if (r < 0)
        return r;
    *ret_count = count;
    return 0;
}

int db_trial_leaders(int64_t *ret, int *ret_count, struct db *db, int max, const char *campaign,
                     const char *objective, const struct db_slice *slice, struct err *error)
{
    static const char rate[] = LEADERS("tokens_per_s"), joule[] = LEADERS("tokens_per_joule"),
                      each[] = LEADERS("tokens_per_s / " DEVICES);
    const char *sql = str_eq(objective, "tokens_per_s_per_device") ? each
                      : str_eq(objective, "tokens_per_joule")      ? joule
                                                                   : rate;
    AUTO_FREE char *path = slice_path(slice);
    sqlite3_stmt *st;
    int r = db_query(&st, db, error, sql, "sisis", campaign, (int64_t)4 * max, path,
                     slice ? slice->value : 0, slice ? slice->text : NULL);

    return r < 0 ? r : read_leaders(ret, ret_count, db, st, max, error);
}

int db_trial_cheapest(int64_t *ret, int *ret_count, struct db *db, int max, const char *campaign,
                      const char *prices, const struct db_slice *slice, struct err *error)
{
    static const char sql[] =
        LEADERS("tokens_per_s / " DEVICES " / coalesce(json_extract(?6, '$.\"' || "
                "json_extract(layout, '$.cluster') || '\"'), 1)");
    AUTO_FREE char *path = slice_path(slice);
    sqlite3_stmt *st;
    int r = db_query(&st, db, error, sql, "sisiss", campaign, (int64_t)4 * max, path,
                     slice ? slice->value : 0, slice ? slice->text : NULL, prices ? prices : "{}");

    return r < 0 ? r : read_leaders(ret, ret_count, db, st, max, error);
}
