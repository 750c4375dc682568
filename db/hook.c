/*
 * Webhooks: the hooks, and pending deliveries.
 *
 * Triggers (schema 3) make deliveries, inside the transaction of the change that they report, so
 * that none is lost and none is made twice, whenever the daemon dies.
 */
#include "db/internal.h"

#include <errno.h>

#define COL(field, type)                                                                           \
    {                                                                                              \
#field, type, offsetof(struct db_delivery, field)                                          \
    }

static const struct db_column columns[] = {
    COL(id, DB_INT),        COL(uuid, DB_TEXT),    COL(hook, DB_TEXT),  COL(event, DB_TEXT),
    COL(campaign, DB_TEXT), COL(trial, DB_INT),    COL(state, DB_TEXT), COL(reason, DB_TEXT),
    COL(created, DB_INT),   COL(attempts, DB_INT), COL(due, DB_INT),    COL(body, DB_TEXT),
    COL(status, DB_TEXT),   COL(detail, DB_TEXT),  {NULL, DB_TEXT, 0},
};

int db_hook_clear(struct db *writer, struct err *error)
{
    int r = db_do(writer, error, "DELETE FROM hook", "");

    return r < 0 ? r : 0;
}

int db_hook_add(struct db *writer, const char *name, const char *events, struct err *error)
{
    int r =
        db_do(writer, error, "INSERT INTO hook (name, events) VALUES (?, ?)", "ss", name, events);

    return r < 0 ? r : 0;
}

int db_delivery_orphans(struct db *writer, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE delivery SET status = 'failed', detail = 'no longer configured'"
                  " WHERE status = 'pending' AND hook NOT IN (SELECT name FROM hook)",
                  "");

    return r < 0 ? r : 0;
}

int db_delivery_due(struct db_delivery **ret, int *ret_count, struct db *db, struct arena *arena,
                    int64_t now, int64_t limit, struct err *error)
{
    struct db_rows rows = {.a = arena, .size = sizeof(struct db_delivery)};
    AUTO_STR sql = {0};
    sqlite3_stmt *st;
    int r;

    str_add(&sql, "SELECT ");
    db_add_columns(&sql, columns);
    str_add(&sql, " FROM delivery WHERE status = 'pending' AND due <= ? ORDER BY due, id LIMIT ?");
    r = db_query(&st, db, error, sql.text, "ii", now, limit);
    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        db_read_row(db_rows_add(&rows), st, columns, arena);
    if (r < 0)
        return r;
    *ret = (struct db_delivery *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

int db_delivery_try(struct db *writer, int64_t id, const char *body, int64_t due, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE delivery SET attempts = attempts + 1, body = coalesce(body, ?), due = ?"
                  " WHERE id = ? AND status = 'pending'",
                  "sii", body, due, id);

    if (r < 0)
        return r;
    return r == 0 ? err_set(error, -ESTALE, "the delivery has ended") : 0;
}

int db_delivery_end(struct db *writer, int64_t id, const char *status, const char *detail,
                    struct err *error)
{
    int r = db_do(writer, error, "UPDATE delivery SET status = ?, detail = ? WHERE id = ?", "ssi",
                  status, detail, id);

    return r < 0 ? r : 0;
}

void db_delivery_count(int64_t *ret, struct db *db, const char *status)
{
    *ret = 0;
    db_number(ret, db, 0, NULL, "SELECT count(*) FROM delivery WHERE status = ?", "s", status);
}

int db_delivery_trim(struct db *writer, int64_t before, struct err *error)
{
    int r = db_do(writer, error, "DELETE FROM delivery WHERE status <> 'pending' AND created < ?",
                  "i", before);

    return r < 0 ? r : 0;
}
