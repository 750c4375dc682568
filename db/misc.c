/* Artifacts, and the rows of the HTTP side: answers, tokens, audit. */
#include "db/internal.h"

#include <errno.h>

#define COLUMN(type, field, kind)                                                                  \
    {                                                                                              \
#field, kind, offsetof(struct type, field)                                                 \
    }

static const struct db_column artifact_columns[] = {
    COLUMN(db_artifact, campaign, DB_TEXT),
    COLUMN(db_artifact, name, DB_TEXT),
    COLUMN(db_artifact, type, DB_TEXT),
    COLUMN(db_artifact, path, DB_TEXT),
    COLUMN(db_artifact, body, DB_TEXT),
    COLUMN(db_artifact, created, DB_INT),
    {0},
};

int db_artifact_put(struct db *writer, const struct db_artifact *ar, struct err *error)
{
    return db_insert(writer, "INSERT OR REPLACE", "artifact", artifact_columns, ar, error);
}

int db_artifact_list(struct db_artifact **ret, int *ret_count, struct db *db, struct arena *arena,
                     const char *prefix, int64_t limit, struct err *error)
{
    AUTO_STR sql = {0};
    struct db_rows rows = {.a = arena, .size = sizeof(struct db_artifact)};
    sqlite3_stmt *st;
    int r;

    str_add(&sql, "SELECT ");
    db_add_columns(&sql, artifact_columns);
    str_add(&sql, " FROM artifact WHERE substr(name, 1, length(?1)) = ?1"
                  " AND campaign NOT IN (SELECT id FROM campaign WHERE state = 'deleted')"
                  " ORDER BY created DESC LIMIT ?2");
    r = db_query(&st, db, error, sql.text, "si", prefix, limit);
    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        db_read_row(db_rows_add(&rows), st, artifact_columns, arena);
    if (r < 0)
        return r;
    *ret = (struct db_artifact *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

static const struct db_column answer_columns[] = {
    COLUMN(db_answer, key, DB_TEXT),    COLUMN(db_answer, hash, DB_TEXT),
    COLUMN(db_answer, type, DB_TEXT),   COLUMN(db_answer, location, DB_TEXT),
    COLUMN(db_answer, body, DB_TEXT),   COLUMN(db_answer, status, DB_INT),
    COLUMN(db_answer, created, DB_INT), {0},
};

int db_answer_put(struct db *writer, const struct db_answer *an, struct err *error)
{
    int r = db_insert(writer, "INSERT OR IGNORE", "answer", answer_columns, an, error);

    if (r >= 0)
        r = db_do(writer, error,
                  "DELETE FROM answer WHERE key IN (SELECT key FROM (SELECT key,"
                  " row_number() OVER newest AS n, sum(length(body)) OVER newest AS bytes"
                  " FROM answer WHERE key >= substr(?1, 1, 16) AND key < substr(?1, 1, 16) || 'x'"
                  " WINDOW newest AS (ORDER BY created DESC, key))"
                  " WHERE n > 1 AND (n > 1000 OR bytes > 8388608))",
                  "s", an->key);
    return r < 0 ? r : 0;
}

int db_answer_get(struct db_answer *ret, struct db *db, struct arena *arena, const char *key,
                  struct err *error)
{
    return db_select_one(ret, db, arena, "answer", answer_columns, "answer of that key", error,
                         "key = ?", "s", key);
}

int db_answer_trim(struct db *writer, int64_t before, struct err *error)
{
    int r = db_do(writer, error, "DELETE FROM answer WHERE created < ?", "i", before);

    return r < 0 ? r : 0;
}

static const struct db_column token_columns[] = {
    COLUMN(db_token, id, DB_TEXT),     COLUMN(db_token, name, DB_TEXT),
    COLUMN(db_token, scope, DB_TEXT),  COLUMN(db_token, hash, DB_TEXT),
    COLUMN(db_token, created, DB_INT), COLUMN(db_token, expires, DB_INT),
    COLUMN(db_token, used, DB_INT),    {0},
};

int db_token_put(struct db *writer, const struct db_token *token, struct err *error)
{
    return db_insert(writer, "INSERT OR REPLACE", "token", token_columns, token, error);
}

int db_token_list(struct db_token **ret, int *ret_count, struct db *db, struct arena *arena,
                  struct err *error)
{
    AUTO_STR sql = {0};
    struct db_rows rows = {.a = arena, .size = sizeof(struct db_token)};
    sqlite3_stmt *st;
    int r;

    str_add(&sql, "SELECT ");
    db_add_columns(&sql, token_columns);
    str_add(&sql, " FROM token ORDER BY created, id");
    r = db_query(&st, db, error, sql.text, "");
    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        db_read_row(db_rows_add(&rows), st, token_columns, arena);
    if (r < 0)
        return r;
    *ret = (struct db_token *)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

int db_token_delete(struct db *writer, const char *id, struct err *error)
{
    int r = db_do(writer, error, "DELETE FROM token WHERE id = ?", "s", id);

    if (r < 0)
        return r;
    return r == 0 ? err_set(error, -ENOENT, "no token %.60s", id) : 0;
}

int db_audit_add(struct db *writer, int64_t time_ms, const char *who, const char *what,
                 const char *resource, const char *result, struct err *error)
{
    int r = db_do(writer, error,
                  "INSERT INTO audit (t, who, what, resource, result) VALUES (?, ?, ?, ?, ?)",
                  "issss", time_ms, who, what, resource, result);

    return r < 0 ? r : 0;
}
