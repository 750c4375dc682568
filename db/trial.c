/*
 * Trials and their life, in one table of transitions:
 *
 *     queued -> starting -> running -> ok | oom | illegal | numeric | timeout | hang | crash
 *        ^________|___________|        | node_fail | preempted | cancelled | pruned | implausible
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
    T(failure),
    I(created),
    I(started),
    I(ended),
    R(seconds),
    I(rev),
    {0},
};

static const char *const final_states[] = {"ok",        "oom",       "illegal", "numeric",
                                           "timeout",   "hang",      "crash",   "node_fail",
                                           "preempted", "cancelled", "pruned",  "implausible"};

bool db_trial_final(const char *state)
{
    for (size_t i = 0; i < ARRAY_LEN(final_states); i++)
        if (!strcmp(final_states[i], state))
            return true;
    return false;
}

int db_trial_next(struct db *db, const char *campaign, int64_t *ret_n, struct err *e)
{
    return db_number(db, ret_n, 1, e, "SELECT next_n FROM campaign WHERE id = ?", "s", campaign);
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
        .started = DB_NULL,
        .ended = DB_NULL,
        .seconds = NAN,
    };
}

int db_trial_add(struct db *w, struct db_trial *t, int64_t *ret_n, struct err *e)
{
    int64_t n;
    int r =
        db_number(w, &n, -1, e,
                  "SELECT next_n FROM campaign WHERE id = ? AND state IN ('running', 'verifying')",
                  "s", t->campaign);

    if (r < 0)
        return r;
    if (n < 0)
        return err_set(e, -ESTALE, "campaign %s takes no trials now", t->campaign);
    t->n = n;
    t->state = "queued";
    t->attempts = 0;
    r = db_insert(w, "INSERT", "trial", columns, t, e);
    if (r == 0)
        *ret_n = n;
    return r;
}

int db_trial_get(struct db *db, struct arena *a, struct db_trial *ret, const char *campaign,
                 int64_t n, struct err *e)
{
    AUTO_FREE char *what = mem_printf("trial %lld of campaign %.40s", (long long)n, campaign);

    return db_select_one(db, a, ret, "trial", columns, what, e,
                         "campaign = ?1 AND n = ?2 AND EXISTS (SELECT 1 FROM campaign"
                         " WHERE id = ?1 AND state <> 'deleted')",
                         "si", campaign, n);
}

static const char *order(const struct db_filter *f)
{
    static const char *const keys[] = {"n", "tokens_per_s", "state", "memory", "kind", "seconds"};

    /* What is the same in all rows orders nothing. */
    if ((f->state && str_eq(f->sort, "state")) || (f->kind && str_eq(f->sort, "kind")))
        return "n";
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (str_eq(f->sort, keys[i]))
            return keys[i];
    return "n";
}

/* In order of n the primary key would do as well, but reads every trial to find the few in a rare
 * state; these indexes hold the filter first and n next. */
static const char *index_for(const struct db_filter *f, const char *by)
{
    if (strcmp(by, "n") != 0)
        return "";
    return f->state ? "INDEXED BY trial_state" : f->kind ? "INDEXED BY trial_kind" : "";
}

const char *db_trial_position(struct arena *a, const struct db_filter *f, const struct db_trial *t)
{
    return db_position(a, columns, order(f), "n", t);
}

static int count_matching(struct db *db, int64_t *ret, const char *campaign,
                          const struct db_filter *f, struct err *e)
{
    return db_number(db, ret, 0, e,
                     "SELECT sum(n) FROM trial_tally WHERE campaign = ?1"
                     " AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR kind = ?3)",
                     "sss", campaign, f->state, f->kind);
}

int db_trial_list(struct db *db, struct arena *a, struct db_trial **ret, int *ret_count,
                  int64_t *ret_total, const char *campaign, const struct db_filter *f,
                  struct err *e)
{
    AUTO_STR sql = {0};
    struct db_rows rows = {.a = a, .size = sizeof(struct db_trial)};
    const char *by = order(f), *way = f->descending ? "DESC" : "ASC";
    sqlite3_stmt *st;
    int r = count_matching(db, ret_total, campaign, f, e);

    if (r < 0)
        return r;
    str_add(&sql, "SELECT ");
    db_add_columns(&sql, columns);
    str_addf(&sql, " FROM trial %s WHERE campaign = ?1", index_for(f, by));
    str_add(&sql, f->state ? " AND state = ?2" : " AND ?2 IS NULL");
    str_add(&sql, f->kind ? " AND kind = ?3" : " AND ?3 IS NULL");
    db_add_position(&sql, f->after, by, "n", f->descending);
    /* Unknown values last, whatever the direction. The second key runs the same way as the first,
     * so that one scan of an index gives the page. */
    str_addf(&sql, " ORDER BY %s %s NULLS LAST", by, way);
    if (strcmp(by, "n") != 0)
        str_addf(&sql, ", n %s", way);
    str_add(&sql, " LIMIT ?4 OFFSET ?5");
    r = db_query(db, &st, e, sql.text, "sssii", campaign, f->state, f->kind, f->limit, f->offset);
    if (r == 0)
        r = db_bind_position(st, f->after, DB_INT, e);
    while (r >= 0 && (r = db_next(db, st, e)) == 1)
        db_read_row(st, columns, db_rows_add(&rows), a);
    if (r < 0)
        return r;
    *ret = (struct db_trial *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

static int guarded(int changed, const char *campaign, int64_t n, const char *to, struct err *e)
{
    if (changed < 0)
        return changed;
    if (changed == 0)
        return err_set(e, -ESTALE, "trial %lld of campaign %s cannot become %s now", (long long)n,
                       campaign, to);
    return 0;
}

int db_trial_start(struct db *w, const char *campaign, int64_t n, int64_t now, struct err *e)
{
    int r = db_do(w, e,
                  "UPDATE trial SET state = 'starting', attempts = attempts + 1, started = "
                  "coalesce(started, ?3),"
                  " rev = rev + 1 WHERE campaign = ?1 AND n = ?2 AND state = 'queued'",
                  "sii", campaign, n, now);

    return guarded(r, campaign, n, "starting", e);
}

int db_trial_run(struct db *w, const char *campaign, int64_t n, struct err *e)
{
    int r = db_do(w, e,
                  "UPDATE trial SET state = 'running', rev = rev + 1"
                  " WHERE campaign = ? AND n = ? AND state = 'starting'",
                  "si", campaign, n);

    return guarded(r, campaign, n, "running", e);
}

int db_trial_requeue(struct db *w, const char *campaign, int64_t n, struct err *e)
{
    int r = db_do(w, e,
                  "UPDATE trial SET state = 'queued', rev = rev + 1"
                  " WHERE campaign = ? AND n = ? AND state IN ('starting', 'running')",
                  "si", campaign, n);

    return guarded(r, campaign, n, "queued", e);
}

int db_trial_settle(struct db *w, const struct db_trial *t, struct err *e)
{
    static const char sql[] =
        "UPDATE trial SET state = ?3, tokens_per_s = ?4, tokens_per_s_se = ?5, tokens_per_s_max = "
        "?6, mfu = ?7,"
        " step_ms = ?8, step_ms_p10 = ?9, step_ms_p90 = ?10, step_ms_ci95 = ?11, phases = ?12,"
        " memory_planned = coalesce(?13, memory_planned), memory_measured = ?14, memory = ?15,"
        " loss_first = ?16, loss_last = ?17, failure = ?18, ended = ?19,"
        " seconds = CASE WHEN started IS NULL THEN NULL ELSE max(0, ?19 - started) / 1000.0 END, "
        "rev = rev + 1"
        " WHERE campaign = ?1 AND n = ?2 AND state IN ('queued', 'starting', 'running')";
    int r;

    if (!db_trial_final(t->state))
        return err_set(e, -EINVAL, "%s is no final state", t->state);
    r = db_do(w, e, sql, "sisrrrrrrrrsssrrrsi", t->campaign, t->n, t->state, t->tokens_per_s,
              t->tokens_per_s_se, t->tokens_per_s_max, t->mfu, t->step_ms, t->step_ms_p10,
              t->step_ms_p90, t->step_ms_ci95, t->phases, t->memory_planned, t->memory_measured,
              t->memory, t->loss_first, t->loss_last, t->failure, t->ended);
    return guarded(r, t->campaign, t->n, t->state, e);
}

int db_trial_cancel_queued(struct db *w, const char *campaign, int64_t now, struct err *e)
{
    int r = db_do(w, e,
                  "UPDATE trial SET state = 'cancelled', ended = ?2, rev = rev + 1"
                  " WHERE campaign = ?1 AND state = 'queued'",
                  "si", campaign, now);

    return r < 0 ? r : 0;
}

int db_trial_planned(struct db *w, const char *campaign, int64_t n, const char *memory_json,
                     struct err *e)
{
    int r = db_do(
        w, e, "UPDATE trial SET memory_planned = ?3, rev = rev + 1 WHERE campaign = ?1 AND n = ?2",
        "sis", campaign, n, memory_json);

    return guarded(r, campaign, n, "planned", e);
}

/* Rows of trials of a query that follows "SELECT <columns> FROM trial". */
static int read_trials(struct db *db, struct arena *a, struct db_trial **ret, int *ret_count,
                       const char *where, const char *campaign, int64_t n, struct err *e)
{
    AUTO_STR sql = {0};
    struct db_rows rows = {.a = a, .size = sizeof(struct db_trial)};
    sqlite3_stmt *st;
    int r;

    str_add(&sql, "SELECT ");
    db_add_columns(&sql, columns);
    str_add(&sql, " FROM trial WHERE campaign = ?1 AND ");
    str_add(&sql, where);
    r = db_query(db, &st, e, sql.text, "si", campaign, n);
    while (r >= 0 && (r = db_next(db, st, e)) == 1)
        db_read_row(st, columns, db_rows_add(&rows), a);
    if (r < 0)
        return r;
    *ret = (struct db_trial *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

int db_trial_group(struct db *db, struct arena *a, struct db_trial **ret, int *ret_count,
                   const char *campaign, int64_t n, struct err *e)
{
    /* Not "n = ?2 OR repeat_of = ?2": that reads every trial of the campaign. */
    return read_trials(db, a, ret, ret_count,
                       "n IN (SELECT ?2 UNION ALL"
                       " SELECT n FROM trial WHERE campaign = ?1 AND repeat_of = ?2)"
                       " AND +state = 'ok' AND kind <> 'verify' ORDER BY n",
                       campaign, n, e);
}

int db_trial_repeated(struct db *db, struct arena *a, struct db_trial **ret, int *ret_count,
                      const char *campaign, struct err *e)
{
    /* ?2 is 0, which no trial is. As with groups, the conditions are put so that trials are found
     * by their numbers; there may be many others. */
    return read_trials(db, a, ret, ret_count,
                       "+n > ?2 AND n IN (SELECT repeat_of FROM trial"
                       " WHERE campaign = ?1 AND repeat_of IS NOT NULL"
                       " UNION SELECT n FROM trial WHERE campaign = ?1 AND repeat_of IS NOT NULL)"
                       " AND +state = 'ok' AND kind <> 'verify' ORDER BY coalesce(repeat_of, n), n",
                       campaign, 0, e);
}

int db_trial_leaders(struct db *db, int64_t *ret, int *ret_count, int max, const char *campaign,
                     bool per_device, struct err *e)
{
    static const char whole[] =
        "SELECT coalesce(repeat_of, n) FROM trial WHERE campaign = ? AND state = 'ok'"
        " AND kind <> 'verify' ORDER BY tokens_per_s DESC LIMIT ?";
    static const char each[] =
        "SELECT coalesce(repeat_of, n) FROM trial WHERE campaign = ? AND state = 'ok'"
        " AND kind <> 'verify'"
        " ORDER BY tokens_per_s / json_extract(layout, '$.world') DESC LIMIT ?";
    sqlite3_stmt *st;
    int count = 0;
    int r = db_query(db, &st, e, per_device ? each : whole, "si", campaign, (int64_t)4 * max);

    while (r >= 0 && (r = db_next(db, st, e)) == 1) {
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
