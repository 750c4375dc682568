#include "db/internal.h"

#include <errno.h>

enum { TRIM_ROWS = 500 }; /* a few milliseconds */

int db_event_add(int64_t *ret_id, struct db *writer, const struct db_event *ev, struct err *error)
{
    int r = db_do(writer, error,
                  "INSERT INTO event (campaign, trial, kind, data, t) VALUES (?, ?, ?, ?, ?)",
                  "sissi", ev->campaign, ev->trial, ev->kind, ev->data, ev->t);

    if (r < 0)
        return r;
    *ret_id = sqlite3_last_insert_rowid(writer->h);
    return 0;
}

int db_event_each(struct db *db, const char *campaign, int64_t after, int64_t limit,
                  bool (*fn)(void *ctx, const struct db_event *ev), void *ctx, struct err *error)
{
#define COLUMNS "SELECT id, campaign, trial, kind, data, t FROM event WHERE id > ?1"
#define LIVE " AND campaign NOT IN (SELECT id FROM campaign WHERE state = 'deleted')"
    static const char all[] = COLUMNS LIVE " AND ?3 IS NULL ORDER BY id LIMIT ?2";
    static const char one[] = COLUMNS LIVE " AND campaign = ?3 ORDER BY id LIMIT ?2";
    sqlite3_stmt *st;
    int r = db_query(&st, db, error, campaign ? one : all, "iis", after, limit, campaign);

    while (r >= 0 && (r = db_next(db, st, error)) == 1) {
        struct db_event ev = {
            .id = sqlite3_column_int64(st, 0),
            .campaign = (const char *)sqlite3_column_text(st, 1),
            .trial =
                sqlite3_column_type(st, 2) == SQLITE_NULL ? DB_NULL : sqlite3_column_int64(st, 2),
            .kind = (const char *)sqlite3_column_text(st, 3),
            .data = (const char *)sqlite3_column_text(st, 4),
            .t = sqlite3_column_int64(st, 5),
        };

        if (!fn(ctx, &ev)) {
            sqlite3_reset(st);
            return 0;
        }
    }
    return r;
}

int64_t db_event_last(struct db *db)
{
    int64_t id = 0;

    /* Also right after old events were forgotten: the sequence never goes back. */
    db_number(&id, db, 0, NULL, "SELECT seq FROM sqlite_sequence WHERE name = 'event'", "");
    return id;
}

int db_event_trim(struct db *writer, int64_t keep, struct err *error)
{
    static const char sql[] = "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE id <="
                              " (SELECT max(id) FROM event) - ?1 ORDER BY id LIMIT ?2)";
    int r = db_do(writer, error, sql, "ii", keep, (int64_t)TRIM_ROWS);

    return r < 0 ? r : r == TRIM_ROWS;
}
