#include "db/internal.h"

#include <errno.h>
#include <math.h>

int db_fail(struct db *db, struct err *e, const char *text)
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
    return err_set(e, code, "%s: %s: %s", db->path, text, sqlite3_errmsg(db->h));
}

int db_prepare(struct db *db, sqlite3_stmt **ret, const char *sql, struct err *e)
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
        return db_fail(db, e, "prepare a statement");
    MEM_GROW(db->cached, db->ncached, db->cap);
    db->cached[db->ncached++] = (struct db_cached){mem_strdup(sql), st};
    *ret = st;
    return 0;
}

static void bind_int(sqlite3_stmt *st, int at, int64_t v)
{
    if (v == DB_NULL)
        sqlite3_bind_null(st, at);
    else
        sqlite3_bind_int64(st, at, v);
}

static void bind_real(sqlite3_stmt *st, int at, double v)
{
    if (isnan(v))
        sqlite3_bind_null(st, at);
    else
        sqlite3_bind_double(st, at, v);
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

int db_next(struct db *db, sqlite3_stmt *st, struct err *e)
{
    int rc = sqlite3_step(st);

    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE) {
        sqlite3_reset(st);
        return 0;
    }
    rc = db_fail(db, e, "read or write rows");
    sqlite3_reset(st);
    return rc;
}

int db_do(struct db *db, struct err *e, const char *sql, const char *format, ...)
{
    sqlite3_stmt *st;
    va_list ap;
    int r = db_prepare(db, &st, sql, e);

    if (r < 0)
        return r;
    va_start(ap, format);
    bind_all(st, format, ap);
    va_end(ap);
    r = db_next(db, st, e);
    if (r == 1)
        sqlite3_reset(st);
    return r < 0 ? r : sqlite3_changes(db->h);
}

int db_query(struct db *db, sqlite3_stmt **ret, struct err *e, const char *sql, const char *format,
             ...)
{
    va_list ap;
    int r = db_prepare(db, ret, sql, e);

    if (r < 0)
        return r;
    va_start(ap, format);
    bind_all(*ret, format, ap);
    va_end(ap);
    return 0;
}

int db_number(struct db *db, int64_t *ret, int64_t fallback, struct err *e, const char *sql,
              const char *format, ...)
{
    sqlite3_stmt *st;
    va_list ap;
    int r = db_prepare(db, &st, sql, e);

    if (r < 0)
        return r;
    va_start(ap, format);
    bind_all(st, format, ap);
    va_end(ap);
    r = db_next(db, st, e);
    if (r < 0)
        return r;
    *ret = fallback;
    if (r == 1 && sqlite3_column_type(st, 0) != SQLITE_NULL)
        *ret = sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    return 0;
}

/* ---- rows as structs ---- */

void db_read_row(sqlite3_stmt *st, const struct db_column *c, void *row, struct arena *a)
{
    for (int i = 0; c[i].name; i++) {
        char *field = (char *)row + c[i].offset;
        bool null = sqlite3_column_type(st, i) == SQLITE_NULL;

        switch (c[i].type) {
        case DB_TEXT:
            *(const char **)field =
                null ? NULL : arena_strdup(a, (const char *)sqlite3_column_text(st, i));
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

void db_add_columns(struct str *s, const struct db_column *c)
{
    for (int i = 0; c[i].name; i++)
        str_addf(s, "%s%s", i ? ", " : "", c[i].name);
}

int db_insert(struct db *db, const char *verb, const char *table, const struct db_column *c,
              const void *row, struct err *e)
{
    AUTO_STR sql = {0};
    sqlite3_stmt *st;
    int r;

    str_addf(&sql, "%s INTO %s (", verb, table);
    db_add_columns(&sql, c);
    str_add(&sql, ") VALUES (");
    for (int i = 0; c[i].name; i++)
        str_add(&sql, i ? ", ?" : "?");
    str_add(&sql, ")");
    r = db_prepare(db, &st, sql.text, e);
    if (r < 0)
        return r;
    for (int i = 0; c[i].name; i++) {
        const char *field = (const char *)row + c[i].offset;

        if (c[i].type == DB_TEXT)
            sqlite3_bind_text(st, i + 1, *(const char *const *)field, -1, SQLITE_TRANSIENT);
        else if (c[i].type == DB_INT)
            bind_int(st, i + 1, *(const int64_t *)field);
        else
            bind_real(st, i + 1, *(const double *)field);
    }
    return db_next(db, st, e);
}

int db_select_one(struct db *db, struct arena *a, void *row, const char *table,
                  const struct db_column *c, const char *what, struct err *e, const char *tail,
                  const char *format, ...)
{
    AUTO_STR sql = {0};
    sqlite3_stmt *st;
    va_list ap;
    int r;

    str_add(&sql, "SELECT ");
    db_add_columns(&sql, c);
    str_addf(&sql, " FROM %s WHERE %s", table, tail);
    r = db_prepare(db, &st, sql.text, e);
    if (r < 0)
        return r;
    va_start(ap, format);
    bind_all(st, format, ap);
    va_end(ap);
    r = db_next(db, st, e);
    if (r < 0)
        return r;
    if (r == 0)
        return err_set(e, -ENOENT, "no %s", what);
    db_read_row(st, c, row, a);
    sqlite3_reset(st);
    return 0;
}

void *db_rows_add(struct db_rows *r)
{
    if (r->count == r->cap) {
        int cap = r->cap ? 2 * r->cap : 16;
        char *rows = arena_alloc(r->a, (size_t)cap * r->size);

        if (r->count)
            memcpy(rows, r->rows, (size_t)r->count * r->size);
        r->rows = rows;
        r->cap = cap;
    }
    return r->rows + (size_t)r->count++ * r->size;
}
