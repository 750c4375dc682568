#include "db/internal.h"

#include <errno.h>
#include <math.h>

#define T(field)                                                                                   \
    {                                                                                              \
#field, DB_TEXT, offsetof(struct db_campaign, field)                                       \
    }
#define I(field)                                                                                   \
    {                                                                                              \
#field, DB_INT, offsetof(struct db_campaign, field)                                        \
    }
#define R(field)                                                                                   \
    {                                                                                              \
#field, DB_REAL, offsetof(struct db_campaign, field)                                       \
    }

static const struct db_column columns[] = {
    T(id),        T(name),          T(state),    T(reason),      T(spec),         T(resolved),
    T(objective), T(trainer),       T(launcher), T(baseline),    T(space),        T(verify),
    T(tags),      T(notes),         T(owner),    T(traceparent), I(created),      I(started),
    I(ended),     I(budget_trials), I(priority), R(active_s),    I(active_since), I(rev),
    I(trials),    R(device_s),      {0},
};

int db_campaign_add(struct db *writer, const struct db_campaign *campaign, struct err *error)
{
    return db_insert(writer, "INSERT", "campaign", columns, campaign, error);
}

int db_campaign_get(struct db_campaign *ret, struct db *db, struct arena *arena, const char *id,
                    struct err *error)
{
    AUTO_FREE char *what = mem_printf("campaign %.40s", id);

    return db_select_one(ret, db, arena, "campaign", columns, what, error,
                         "id = ? AND state <> 'deleted'", "s", id);
}

int db_campaign_trace(struct db_campaign *ret, struct db *db, struct arena *arena, const char *id,
                      struct err *error)
{
    static const struct db_column trace[] = {T(launcher), T(traceparent), {0}};
    AUTO_FREE char *what = mem_printf("campaign %.40s", id);

    return db_select_one(ret, db, arena, "campaign", trace, what, error, "id = ?", "s", id);
}

int db_campaign_rev(int64_t *ret, struct db *db, const char *id, struct err *error)
{
    int r = db_number(ret, db, -1, error,
                      "SELECT rev FROM campaign WHERE id = ? AND state <> 'deleted'", "s", id);

    if (r < 0)
        return r;
    return *ret < 0 ? err_set(error, -ENOENT, "no campaign %.40s", id) : 0;
}

int db_campaign_launched_by(bool *ret, struct db *db, const char *id, const char *launcher,
                            struct err *error)
{
    int64_t yes;
    int r = db_number(&yes, db, -1, error, "SELECT launcher = ?2 FROM campaign WHERE id = ?1", "ss",
                      id, launcher);

    if (r < 0)
        return r;
    if (yes < 0)
        return err_set(error, -ENOENT, "no campaign %.40s", id);
    *ret = yes != 0;
    return 0;
}

/* WHERE and bindings of a campaign filter; a NULL parameter switches its condition off. Of a name a
 * part is enough, and a Latin letter stands for its other case. */
static const char campaign_where[] =
    "state <> 'deleted' AND (?1 IS NULL OR state = ?1)"
    " AND (?2 IS NULL OR instr(lower(name), lower(?2)) > 0)"
    " AND (?3 IS NULL OR EXISTS (SELECT 1 FROM json_each(campaign.tags) WHERE value = ?3))";

static const char *order(const struct db_filter *filter)
{
    static const char *const keys[] = {"created", "name", "state"};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (str_eq(keys[i], filter->sort))
            return keys[i];
    return keys[0];
}

const char *db_campaign_position(struct arena *arena, const struct db_filter *filter,
                                 const struct db_campaign *campaign)
{
    return db_position(arena, columns, order(filter), "id", campaign);
}

int db_campaign_list(struct db_campaign **ret, int *ret_count, int64_t *ret_total, struct db *db,
                     struct arena *arena, const struct db_filter *filter, struct err *error)
{
    const char *by = order(filter), *way = filter->descending ? "DESC" : "ASC";
    AUTO_STR sql = {0}, count = {0};
    struct db_rows rows = {.a = arena, .size = sizeof(struct db_campaign)};
    sqlite3_stmt *st;
    int r;

    str_addf(&count, "SELECT count(*) FROM campaign WHERE %s", campaign_where);
    r = db_number(ret_total, db, 0, error, count.text, "sss", filter->state, filter->name,
                  filter->tag);
    if (r < 0)
        return r;
    str_add(&sql, "SELECT ");
    db_add_columns(&sql, columns);
    str_addf(&sql, " FROM campaign WHERE %s", campaign_where);
    db_add_position(&sql, filter->after, by, "id", filter->descending);
    str_addf(&sql, " ORDER BY %s %s, id %s LIMIT ?4 OFFSET ?5", by, way, way);
    r = db_query(&st, db, error, sql.text, "sssii", filter->state, filter->name, filter->tag,
                 filter->limit, filter->offset);
    if (r == 0)
        r = db_bind_position(st, filter->after, DB_TEXT, error);
    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        db_read_row(db_rows_add(&rows), st, columns, arena);
    if (r < 0)
        return r;
    *ret = (struct db_campaign *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

static int stale(struct db *writer, const char *id, const char *to, struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    int r = db_campaign_get(&c, writer, &a, id, error);

    if (r == 0)
        r = err_set(error, -ESTALE, "campaign %s is %s and cannot become %s", id, c.state, to);
    arena_done(&a);
    return r;
}

int db_campaign_move(struct db *writer, const char *id, const char *from, const char *to,
                     const char *reason, int64_t now, struct err *error)
{
    /* A state is active when trials may run in it. Leaving one adds its time up, entering one
     * starts the clock. */
    static const char sql[] =
        "UPDATE campaign SET state = ?3, reason = ?4, rev = rev + 1,"
        " active_s = active_s + CASE WHEN active_since IS NULL THEN 0 ELSE max(0, ?5 - "
        "active_since) / 1000.0 END,"
        " active_since = CASE WHEN ?3 IN ('running', 'verifying') THEN ?5 END,"
        " ended = CASE WHEN ?3 IN ('done', 'cancelled', 'failed') THEN ?5 END"
        " WHERE id = ?1 AND instr(' ' || ?2 || ' ', ' ' || state || ' ') > 0";
    int r = db_do(writer, error, sql, "ssssi", id, from, to, reason, now);

    if (r < 0)
        return r;
    return r == 0 ? stale(writer, id, to, error) : 0;
}

int db_campaign_describe(struct db *writer, const char *id, const char *name, const char *notes,
                         const char *tags, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE campaign SET name = coalesce(?2, name), notes = coalesce(?3, notes),"
                  " tags = coalesce(?4, tags), rev = rev + 1"
                  " WHERE id = ?1 AND state <> 'deleted'",
                  "ssss", id, name, notes, tags);

    if (r < 0)
        return r;
    return r == 0 ? err_set(error, -ENOENT, "no campaign %.40s", id) : 0;
}

int db_campaign_set_reason(struct db *writer, const char *id, const char *states,
                           const char *reason, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE campaign SET reason = ?3, rev = rev + 1"
                  " WHERE id = ?1 AND instr(' ' || ?2 || ' ', ' ' || state || ' ') > 0",
                  "sss", id, states, reason);

    return r < 0 ? r : 0;
}

int db_campaign_set_space(struct db *writer, const char *id, const char *space_json,
                          struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE campaign SET space = ?2, rev = rev + 1,"
                  " reason = CASE WHEN state = 'running' THEN NULL ELSE reason END WHERE id = ?1",
                  "ss", id, space_json);

    return r < 0 ? r : 0;
}

int db_campaign_set_priority(struct db *writer, const char *id, int64_t priority, struct err *error)
{
    int r = db_do(writer, error, "UPDATE campaign SET priority = ?2, rev = rev + 1 WHERE id = ?1",
                  "si", id, priority);

    return r < 0 ? r : 0;
}

int db_campaign_set_verify(struct db *writer, const char *id, const char *verify_json,
                           struct err *error)
{
    int r = db_do(writer, error, "UPDATE campaign SET verify = ?2, rev = rev + 1 WHERE id = ?1",
                  "ss", id, verify_json);

    return r < 0 ? r : 0;
}

int db_campaign_end_verify(struct db *writer, const char *id, const char *state, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE campaign SET verify = json_set(verify, '$.state', ?2), rev = rev + 1"
                  " WHERE id = ?1 AND json_extract(verify, '$.state') = 'running'",
                  "ss", id, state);

    return r < 0 ? r : 0;
}

int db_campaign_ended(const char ***ret, int *ret_count, struct db *db, struct arena *arena,
                      int64_t before, int64_t limit, struct err *error)
{
    const char **ids = arena_alloc(arena, sizeof(*ids) * (size_t)limit);
    sqlite3_stmt *st;
    int n = 0;
    int r = db_query(&st, db, error,
                     "SELECT id FROM campaign WHERE ended < ?1 AND state IN"
                     " ('done', 'cancelled', 'failed') ORDER BY ended, id LIMIT ?2",
                     "ii", before, limit);

    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        ids[n++] = arena_strdup(arena, (const char *)sqlite3_column_text(st, 0));
    if (r < 0)
        return r;
    *ret = ids;
    *ret_count = n;
    return 0;
}

int db_campaign_counts(struct db *db, const char *id,
                       void (*fn)(void *ctx, const char *state, int64_t count), void *ctx,
                       struct err *error)
{
    sqlite3_stmt *st;
    int r = db_query(&st, db, error,
                     "SELECT state, sum(n) FROM trial_tally WHERE campaign = ?"
                     " GROUP BY state HAVING sum(n) > 0",
                     "s", id);

    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        fn(ctx, (const char *)sqlite3_column_text(st, 0), sqlite3_column_int64(st, 1));
    return r;
}

void db_campaign_count(int64_t *ret, int64_t *ret_of, struct db *db, const char *state,
                       const char *launcher)
{
    *ret = *ret_of = 0;
    db_number(ret, db, 0, NULL, "SELECT count(*) FROM campaign WHERE state = ?", "s", state);
    db_number(ret_of, db, 0, NULL, "SELECT count(*) FROM campaign WHERE state = ? AND launcher = ?",
              "ss", state, launcher);
}
