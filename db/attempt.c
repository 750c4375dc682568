#include "db/internal.h"

#include <errno.h>

#define T(field)                                                                                   \
    {                                                                                              \
#field, DB_TEXT, offsetof(struct db_attempt, field)                                        \
    }
#define I(field)                                                                                   \
    {                                                                                              \
#field, DB_INT, offsetof(struct db_attempt, field)                                         \
    }

static const struct db_column columns[] = {
    T(campaign), I(n),       I(attempt), T(state),     T(folder),  T(cpus),
    T(gpus),     T(job),     I(devices), I(offset),    I(created), I(started),
    I(ended),    T(outcome), T(failure), I(exit_code), I(signal),  {0},
};

int db_attempt_add(struct db *writer, const struct db_attempt *at, struct err *error)
{
    return db_insert(writer, "INSERT", "attempt", columns, at, error);
}

static int guarded(int changed, int64_t attempt, const char *to, struct err *error)
{
    if (changed < 0)
        return changed;
    return changed ? 0
                   : err_set(error, -ESTALE, "attempt %lld cannot become %s now",
                             (long long)attempt, to);
}

int db_attempt_progress(struct db *writer, const char *campaign, int64_t trial, int64_t attempt,
                        int64_t offset, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE attempt SET offset = ?4 WHERE campaign = ?1 AND n = ?2 AND attempt = ?3",
                  "siii", campaign, trial, attempt, offset);

    return guarded(r, attempt, "read", error);
}

int db_attempt_run(struct db *writer, const char *campaign, int64_t trial, int64_t attempt,
                   const char *job, int64_t now, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE attempt SET state = 'running', job = coalesce(?4, job), started = ?5"
                  " WHERE campaign = ?1 AND n = ?2 AND attempt = ?3 AND state = 'starting'",
                  "siisi", campaign, trial, attempt, job, now);

    return guarded(r, attempt, "running", error);
}

int db_attempt_end(struct db *writer, const struct db_attempt *at, struct err *error)
{
#define DEVICE_S                                                                                   \
    "coalesce((SELECT devices * max(0, ended - started) / 1000.0 FROM attempt"                     \
    " WHERE campaign = ?1 AND n = ?2 AND attempt = ?3), 0)"
    static const char *const costs[] = {
        "UPDATE trial SET device_s = coalesce(device_s, 0) + " DEVICE_S
        " WHERE campaign = ?1 AND n = ?2",
        "UPDATE campaign SET device_s = device_s + " DEVICE_S ", rev = rev + 1 WHERE id = ?1",
    };
    int r = db_do(writer, error,
                  "UPDATE attempt SET state = 'ended', ended = ?4, outcome = ?5, failure = ?6, "
                  "exit_code = ?7,"
                  " signal = ?8, offset = max(offset, ?9)"
                  " WHERE campaign = ?1 AND n = ?2 AND attempt = ?3 AND state <> 'ended'",
                  "siiissiii", at->campaign, at->n, at->attempt, at->ended, at->outcome,
                  at->failure, at->exit_code, at->signal, at->offset);

    r = guarded(r, at->attempt, "ended", error);
    if (r < 0)
        return r;
    for (size_t i = 0; r >= 0 && i < ARRAY_LEN(costs); i++)
        r = db_do(writer, error, costs[i], "sii", at->campaign, at->n, at->attempt);
    return r < 0 ? r : 0;
}

int db_attempt_open_list(struct db_attempt **ret, int *ret_count, struct db *db,
                         struct arena *arena, struct err *error)
{
    AUTO_STR sql = {0};
    struct db_rows rows = {.a = arena, .size = sizeof(struct db_attempt)};
    sqlite3_stmt *st;
    int r;

    str_add(&sql, "SELECT ");
    db_add_columns(&sql, columns);
    str_add(&sql, " FROM attempt WHERE state <> 'ended' ORDER BY campaign, n");
    r = db_query(&st, db, error, sql.text, "");
    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        db_read_row(db_rows_add(&rows), st, columns, arena);
    if (r < 0)
        return r;
    *ret = (struct db_attempt *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

int db_attempt_outcomes(int64_t *ret, struct db *db, const char *campaign, int64_t trial,
                        const char *outcome, struct err *error)
{
    return db_number(ret, db, 0, error,
                     "SELECT count(*) FROM attempt WHERE campaign = ? AND n = ? AND outcome = ?",
                     "sis", campaign, trial, outcome);
}

int db_attempt_get(struct db_attempt *ret, struct db *db, struct arena *arena, const char *campaign,
                   int64_t trial, int64_t attempt, struct err *error)
{
    AUTO_FREE char *what =
        mem_printf("attempt %lld of trial %lld", (long long)attempt, (long long)trial);

    return db_select_one(ret, db, arena, "attempt", columns, what, error,
                         "campaign = ? AND n = ? AND attempt = ?", "sii", campaign, trial, attempt);
}

/* ---- steps --------------------------------------------------------------- */

int db_step_add(struct db *writer, const char *campaign, int64_t trial, const struct db_step *step,
                struct err *error)
{
    /* A step that is there already was read before: the file may be read again after a kill. */
    int r = db_do(writer, error, "INSERT OR IGNORE INTO step VALUES (?, ?, ?, ?, ?, ?)", "siiirs",
                  campaign, trial, step->attempt, step->n, step->ms, step->data);

    return r < 0 ? r : 0;
}

int db_step_list(struct db_step **ret, int *ret_count, int64_t *ret_total, struct db *db,
                 struct arena *arena, const char *campaign, int64_t trial, int64_t offset,
                 int64_t limit, struct err *error)
{
    static const struct db_column step_columns[] = {
        {"attempt", DB_INT, offsetof(struct db_step, attempt)},
        {"n", DB_INT, offsetof(struct db_step, n)},
        {"ms", DB_REAL, offsetof(struct db_step, ms)},
        {"data", DB_TEXT, offsetof(struct db_step, data)},
        {0},
    };
    struct db_rows rows = {.a = arena, .size = sizeof(struct db_step)};
    sqlite3_stmt *st;
    int64_t last;
    int r = db_number(&last, db, 0, error,
                      "SELECT max(attempt) FROM step WHERE campaign = ? AND trial = ?", "si",
                      campaign, trial);

    if (r == 0)
        r = db_number(ret_total, db, 0, error,
                      "SELECT count(*) FROM step WHERE campaign = ? AND trial = ? AND attempt = ?",
                      "sii", campaign, trial, last);
    if (r == 0)
        r = db_query(
            &st, db, error,
            "SELECT attempt, n, ms, data FROM step WHERE campaign = ? AND trial = ? AND attempt = ?"
            " ORDER BY n LIMIT ? OFFSET ?",
            "siiii", campaign, trial, last, limit, offset);
    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        db_read_row(db_rows_add(&rows), st, step_columns, arena);
    if (r < 0)
        return r;
    *ret = (struct db_step *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}
