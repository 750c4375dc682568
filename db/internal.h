/* Inside db/: a connection with its prepared statements, and short forms for binding and reading
 * rows. */
#ifndef DB_INTERNAL_H
#define DB_INTERNAL_H

#include <sqlite3.h>

#include "db/db.h"

struct db_cached {
    char *sql;
    sqlite3_stmt *st;
};

struct db {
    sqlite3 *h;
    char *path;
    struct db_cached *cached;
    int ncached, cap;
};

enum db_type { DB_TEXT, DB_INT, DB_REAL };

/* A table as data: column and where it lives in the row's struct. INSERT and SELECT are made from
 * it. */
struct db_column {
    const char *name;
    enum db_type type;
    size_t offset;
};

/* The error of the last call on DB as a negative errno, with TEXT before SQLite's own words. */
int db_fail(struct db *db, struct err *error, const char *text);

/*
 * Bind and run. FORMAT has a letter for each ?: s text, i int64_t, r double; DB_NULL, NAN and NULL
 * become NULL. db_do: a statement without rows; returns how many rows changed, or a negative errno.
 * db_query: the statement, ready for db_next; finish with sqlite3_reset (db_next does at the end).
 */
int db_do(struct db *db, struct err *error, const char *sql, const char *format, ...);
int db_query(sqlite3_stmt **ret, struct db *db, struct err *error, const char *sql,
             const char *format, ...);
/* 1: a row, 0: no more, negative: failed. */
int db_next(struct db *db, sqlite3_stmt *st, struct err *error);
/* The first column of the first row as a number; FALLBACK without a row. */
int db_number(int64_t *ret, struct db *db, int64_t fallback, struct err *error, const char *sql,
              const char *format, ...);

/* Rows as structs. */
void db_read_row(void *ret_row, sqlite3_stmt *st, const struct db_column *column,
                 struct arena *arena);
int db_insert(struct db *db, const char *verb, const char *table, const struct db_column *column,
              const void *row, struct err *error);
/* "SELECT columns FROM table WHERE tail"; exactly one row or -ENOENT ("WHAT"). */
int db_select_one(void *ret_row, struct db *db, struct arena *arena, const char *table,
                  const struct db_column *column, const char *what, struct err *error,
                  const char *tail, const char *format, ...);
void db_add_columns(struct str *out, const struct db_column *column);

/* page.c: a list that is ordered by column BY, then by KEY. db_position: where ROW is in it, in
 * ARENA. The others add "and what comes after AFTER" (NULL: nothing is added) to the WHERE of a
 * statement, whose parameters ?8 and ?9 they use, and bind it; KEY is the type of the key there. */
const char *db_position(struct arena *arena, const struct db_column *columns, const char *by,
                        const char *key, const void *row);
void db_add_position(struct str *sql, const char *after, const char *by, const char *key,
                     bool descending);
int db_bind_position(sqlite3_stmt *st, const char *after, enum db_type key, struct err *error);

/* A growing array of rows in an arena. */
struct db_rows {
    struct arena *a;
    char *rows;
    size_t size;
    int count, cap;
};
void *db_rows_add(struct db_rows *list);

/* Bring the schema up to date. */
int db_migrate(struct db *db, struct err *error);

/* Transactions of the writer. */
int db_begin(struct db *db, struct err *error);
int db_commit(struct db *db, struct err *error);
void db_rollback(struct db *db);

#endif
