#include "db/internal.h"

#include <errno.h>
#include <math.h>

int db_fail(struct db *db, struct err *error, const char *text)
{
    static const struct {
        int sqlite, code;
    } table[] = {
        {SQLITE_FULL, -ENOSPC},       {SQLITE_READONLY, -EROFS},  {SQLITE_CORRUPT, -EUCLEAN},
        {SQLITE_NOTADB, -EUCLEAN},    {SQLITE_BUSY, -EBUSY},      {SQLITE_LOCKED, -EBUSY},
        {SQLITE_NOMEM, -ENOMEM},      {SQLITE_CANTOPEN, -EACCES}, {SQLITE_PERM, -EACCES},
        {SQLITE_CONSTRAINT, -EEXIST},
    };
    int primary = sqlite3_errcode(db->h) & 0xff;
    int code = -EIO;

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].sqlite == primary)
            code = table[i].code;
    return err_set(error, code, "%s: %s: %s", db->path, text, sqlite3_errmsg(db->h));
}

/* A prepared statement, reset and without bindings; kept for the life of the connection. */
static int prepare(sqlite3_stmt **ret, struct db *db, const char *sql, struct err *error)
{
    sqlite3_stmt *st;

    for (int i = 0; i < db->ncached; i++)
        if (!strcmp(db->cached[i].sql, sql)) {
            st = db->cached[i].st;
            sqlite3_reset(st);
            sqlite3_clear_bindings(st);
            *ret = st;
            return 0;
        }
    if (sqlite3_prepare_v3(db->h, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL) != SQLITE_OK)
        return db_fail(db, error, "prepare a statement");
    MEM_GROW(db->cached, db->ncached, db->cap);
    db->cached[db->ncached++] = (struct db_cached){mem_strdup(sql), st};
    *ret = st;
    return 0;
}

static void bind_int(sqlite3_stmt *st, int at, int64_t value)
{
    if (value == DB_NULL)
        sqlite3_bind_null(st, at);
    else
        sqlite3_bind_int64(st, at, value);
}

static void bind_real(sqlite3_stmt *st, int at, double value)
{
    if (isnan(value))
        sqlite3_bind_null(st, at);
    else
        sqlite3_bind_double(st, at, value);
}

static void bind_all(sqlite3_stmt *st, const char *format, va_list ap)
{
    for (int i = 0; format[i]; i++)
        switch (format[i]) {
        case 's':
            sqlite3_bind_text(st, i + 1, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
            break;
        case 'i':
            bind_int(st, i + 1, va_arg(ap, int64_t));
            break;
        default:
            bind_real(st, i + 1, va_arg(ap, double));
        }
}

int db_next(struct db *db, sqlite3_stmt *st, struct err *error)
{
    int rc = sqlite3_step(st);

    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE) {
        sqlite3_reset(st);
        return 0;
    }
    rc = db_fail(db, error, "read or write rows");
    sqlite3_reset(st);
    return rc;
}

int db_do(struct db *db, struct err *error, const char *sql, const char *format, ...)
{
    sqlite3_stmt *st;
    va_list ap;
    int r = prepare(&st, db, sql, error);

    if (r < 0)
        return r;
    va_start(ap, format);
    bind_all(st, format, ap);
    va_end(ap);
    r = db_next(db, st, error);
    if (r == 1)
        sqlite3_reset(st);
    return r < 0 ? r : sqlite3_changes(db->h);
}

int db_query(sqlite3_stmt **ret, struct db *db, struct err *error, const char *sql,
             const char *format, ...)
{
    va_list ap;
    int r = prepare(ret, db, sql, error);

    if (r < 0)
        return r;
    va_start(ap, format);
    bind_all(*ret, format, ap);
    va_end(ap);
    return 0;
}

int db_number(int64_t *ret, struct db *db, int64_t fallback, struct err *error, const char *sql,
              const char *format, ...)
{
    sqlite3_stmt *st;
    va_list ap;
    int r = prepare(&st, db, sql, error);

    if (r < 0)
        return r;
    va_start(ap, format);
    bind_all(st, format, ap);
    va_end(ap);
    r = db_next(db, st, error);
    if (r < 0)
        return r;
    *ret = fallback;
    if (r == 1 && sqlite3_column_type(st, 0) != SQLITE_NULL)
        *ret = sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    return 0;
}

/* ---- rows as structs ----------------------------------------------------- */

void db_read_row(void *ret_row, sqlite3_stmt *st, const struct db_column *column,
                 struct arena *arena)
{
    for (int i = 0; column[i].name; i++) {
        char *field = (char *)ret_row + column[i].offset;
        bool null = sqlite3_column_type(st, i) == SQLITE_NULL;

        switch (column[i].type) {
        case DB_TEXT:
            *(const char **)field =
                null ? NULL : arena_strdup(arena, (const char *)sqlite3_column_text(st, i));
            break;
        case DB_INT:
            *(int64_t *)field = null ? DB_NULL : sqlite3_column_int64(st, i);
            break;
        case DB_REAL:
            *(double *)field = null ? (double)NAN : sqlite3_column_double(st, i);
            break;
        }
    }
}

void db_add_columns(struct str *out, const struct db_column *column)
{
    for (int i = 0; column[i].name; i++)
        str_addf(out, "%s%s", i ? ", " : "", column[i].name);
}

int db_insert(struct db *db, const char *verb, const char *table, const struct db_column *column,
              const void *row, struct err *error)
{
    AUTO_STR sql = {0};
    sqlite3_stmt *st;
    int r;

    str_addf(&sql, "%s INTO %s (", verb, table);
    db_add_columns(&sql, column);
    str_add(&sql, ") VALUES (");
    for (int i = 0; column[i].name; i++)
        str_add(&sql, i ? ", ?" : "?");
    str_add(&sql, ")");
    r = prepare(&st, db, sql.text, error);
    if (r < 0)
        return r;
    for (int i = 0; column[i].name; i++) {
        const char *field = (const char *)row + column[i].offset;

        if (column[i].type == DB_TEXT)
            sqlite3_bind_text(st, i + 1, *(const char *const *)field, -1, SQLITE_TRANSIENT);
        else if (column[i].type == DB_INT)
            bind_int(st, i + 1, *(const int64_t *)field);
        else
            bind_real(st, i + 1, *(const double *)field);
    }
    return db_next(db, st, error);
}

int db_select_one(void *ret_row, struct db *db, struct arena *arena, const char *table,
                  const struct db_column *column, const char *what, struct err *error,
                  const char *tail, const char *format, ...)
{
    AUTO_STR sql = {0};
    sqlite3_stmt *st;
    va_list ap;
    int r;

    str_add(&sql, "SELECT ");
    db_add_columns(&sql, column);
    str_addf(&sql, " FROM %s WHERE %s", table, tail);
    r = prepare(&st, db, sql.text, error);
    if (r < 0)
        return r;
    va_start(ap, format);
    bind_all(st, format, ap);
    va_end(ap);
    r = db_next(db, st, error);
    if (r < 0)
        return r;
    if (r == 0)
        return err_set(error, -ENOENT, "no %s", what);
    db_read_row(ret_row, st, column, arena);
    sqlite3_reset(st);
    return 0;
}

void *db_rows_add(struct db_rows *list)
{
    if (list->count == list->cap) {
        int cap = list->cap ? 2 * list->cap : 16;
        char *rows = arena_alloc(list->a, (size_t)cap * list->size);

        if (list->count)
            memcpy(rows, list->rows, (size_t)list->count * list->size);
        list->rows = rows;
        list->cap = cap;
    }
    return list->rows + (size_t)list->count++ * list->size;
}
