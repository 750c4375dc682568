/*
 * Where a page of a list ended, so that the next one begins behind that row even if rows before it
 * have come or gone meanwhile.
 *
 * A position is a text: the row's key and, after a blank, its value in the column that orders the
 * list with a letter for its type: "7 r0x1.8p+13", "k3v9qw2m tlarge MoE", "12 n" (unknown). The
 * list is ordered by that column, unknown values last in either direction, then by the key in the
 * same direction.
 */
#include "db/internal.h"

#include <errno.h>
#include <math.h>

static const struct db_column *column(const struct db_column *column, const char *name)
{
    while (strcmp(column->name, name) != 0)
        column++;
    return column;
}

static void add_value(struct str *out, const struct db_column *column, const void *row)
{
    const char *field = (const char *)row + column->offset;
    const char *text = column->type == DB_TEXT ? *(const char *const *)field : NULL;
    int64_t i = column->type == DB_INT ? *(const int64_t *)field : DB_NULL;
    double r = column->type == DB_REAL ? *(const double *)field : (double)NAN;

    if (text)
        str_addf(out, "t%s", text);
    else if (i != DB_NULL)
        str_addf(out, "i%lld", (long long)i);
    else if (!isnan(r))
        str_addf(out, "r%a", r);
    else
        str_add(out, "n");
}

const char *db_position(struct arena *arena, const struct db_column *columns, const char *by,
                        const char *key, const void *row)
{
    const struct db_column *k = column(columns, key);
    const char *field = (const char *)row + k->offset;
    AUTO_STR s = {0};

    if (k->type == DB_TEXT)
        str_addf(&s, "%s ", *(const char *const *)field);
    else
        str_addf(&s, "%lld ", (long long)*(const int64_t *)field);
    add_value(&s, column(columns, by), row);
    return arena_strdup(arena, s.text);
}

void db_add_position(struct str *sql, const char *after, const char *by, const char *key,
                     bool descending)
{
    const char *value = after ? strchr(after, ' ') : NULL;
    char way = descending ? '<' : '>';

    /* ?8 is the value, ?9 the key. The plus keeps the planner on the index that gives the order. */
    if (!value)
        return;
    if (!strcmp(by, key))
        str_addf(sql, " AND %s %c ?9", key, way);
    else if (value[1] == 'n')
        str_addf(sql, " AND (+%s IS NULL AND +%s %c ?9)", by, key, way);
    else
        str_addf(sql, " AND (+%s %c ?8 OR (+%s = ?8 AND +%s %c ?9) OR +%s IS NULL)", by, way, by,
                 key, way, by);
}

/* The whole of TEXT as a number. */
static bool number(double *ret, const char *text)
{
    char *end;

    *ret = strtod(text, &end);
    return *text && !*end;
}

static int bind_value(sqlite3_stmt *st, const char *value)
{
    int64_t i;
    double r;

    if (*value == 't')
        sqlite3_bind_text(st, 8, value + 1, -1, SQLITE_TRANSIENT);
    else if (*value == 'i' && str_to_i64(&i, value + 1, INT64_MIN, INT64_MAX) == 0)
        sqlite3_bind_int64(st, 8, i);
    else if (*value == 'r' && number(&r, value + 1))
        sqlite3_bind_double(st, 8, r);
    else if (strcmp(value, "n") != 0)
        return -EINVAL;
    return 0;
}

int db_bind_position(sqlite3_stmt *st, const char *after, enum db_type key, struct err *error)
{
    const char *value = after ? strchr(after, ' ') : NULL;
    AUTO_FREE char *text = value ? mem_printf("%.*s", (int)(value - after), after) : NULL;
    int64_t n;

    if (!after)
        return 0;
    if (!value || bind_value(st, value + 1) < 0 ||
        (key == DB_INT && str_to_i64(&n, text, INT64_MIN, INT64_MAX) < 0))
        return err_set(error, -EINVAL, "not a position in a list: %.80s", after);
    if (key == DB_INT)
        sqlite3_bind_int64(st, 9, n);
    else
        sqlite3_bind_text(st, 9, text, -1, SQLITE_TRANSIENT);
    return 0;
}
