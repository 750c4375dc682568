#include "db/internal.h"

#include <errno.h>
#include <unistd.h>

/* An empty or a damaged file must be told apart before SQLite makes anything of it; quick_check
 * reads every page but does not compare indexes with tables, which takes milliseconds for 10^5
 * trials. */
static int check(struct db *db, const char *pragma, struct err *error)
{
    sqlite3_stmt *st;
    int r = db_query(&st, db, error, pragma, "");

    if (r < 0)
        return r;
    r = db_next(db, st, error);
    if (r < 0)
        return r;
    if (r == 1 && strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0)
        r = err_set(error, -EUCLEAN,
                    "%s is damaged: %s; restore a backup (partuned backup) or move the file away",
                    db->path, (const char *)sqlite3_column_text(st, 0));
    else
        r = 0;
    sqlite3_reset(st);
    return r;
}

int db_check(struct db *db, struct err *error)
{
    return check(db, "PRAGMA integrity_check(1)", error);
}

static int setup(struct db *db, int mode, struct err *error)
{
    const char *sql = mode == DB_WRITE ? "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                                         "PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 0;"
                                         "PRAGMA journal_size_limit = 67108864;"
                                       : "PRAGMA query_only = ON; PRAGMA foreign_keys = ON;";

    sqlite3_busy_timeout(db->h, 5000);
    if (sqlite3_exec(db->h, sql, NULL, NULL, NULL) != SQLITE_OK)
        return db_fail(db, error, "open the database");
    return 0;
}

static int finish_open(struct db *db, int mode, struct err *error)
{
    int r = setup(db, mode, error);

    if (r == 0 && mode == DB_WRITE)
        r = check(db, "PRAGMA quick_check(1)", error);
    if (r == 0 && mode == DB_WRITE)
        r = db_migrate(db, error);
    return r;
}

static int refuse_network(const char *path, struct err *error)
{
    AUTO_FREE char *folder = mem_strdup(path);
    char *slash = strrchr(folder, '/');
    const char *fs;

    if (slash)
        *slash = '\0';
    fs = file_network_fs(slash ? folder : ".");
    if (!fs)
        return 0;
    return err_set(
        error, -EOPNOTSUPP,
        "%s is on %s, where SQLite's WAL can lose data; choose a local directory with --data", path,
        fs);
}

int db_open(struct db **ret, const char *path, int mode, struct err *error)
{
    AUTO_DB *db = mem_alloc(sizeof(*db));
    int flags =
        mode == DB_WRITE ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READWRITE;
    int r = refuse_network(path, error);

    db->path = mem_strdup(path);
    if (r < 0)
        return r;
    /* Each connection belongs to one thread, so no mutex inside. */
    if (sqlite3_open_v2(path, &db->h, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        if (!db->h)
            return err_set(error, -ENOMEM, "%s: out of memory", path);
        return db_fail(db, error, "open the database");
    }
    sqlite3_extended_result_codes(db->h, 1);
    r = finish_open(db, mode, error);
    if (r < 0)
        return r;
    *ret = TAKE(db);
    return 0;
}

struct db *db_close(struct db *db)
{
    if (!db)
        return NULL;
    for (int i = 0; i < db->ncached; i++) {
        sqlite3_finalize(db->cached[i].st);
        free(db->cached[i].sql);
    }
    free(db->cached);
    sqlite3_close(db->h);
    free(db->path);
    free(db);
    return NULL;
}

/* The whole database into the empty one TO in one step, and so of one moment, whatever the writer
 * does meanwhile. Not VACUUM INTO, which takes SQLite 3.27. */
static int copy_into(sqlite3 *to, struct db *db)
{
    sqlite3_backup *copy = sqlite3_backup_init(to, "main", db->h, "main");
    int rc;

    if (!copy)
        return sqlite3_errcode(to);
    sqlite3_backup_step(copy, -1);
    rc = sqlite3_backup_finish(copy);
    /* The copied header says WAL: without this the copy needs two more files where it is read. */
    return rc == SQLITE_OK ? sqlite3_exec(to, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL)
                           : rc;
}

int db_backup(struct db *db, const char *file, struct err *error)
{
    struct db to = {.path = (char *)(uintptr_t)file};
    int rc, r = 0;

    if (file_exists(file))
        return err_set(error, -EEXIST, "%s exists already", file);
    rc = sqlite3_open_v2(file, &to.h,
                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = copy_into(to.h, db);
    if (!to.h)
        return err_set(error, -ENOMEM, "%s: out of memory", file);
    if (rc != SQLITE_OK)
        r = db_fail(&to, error, "copy the database");
    sqlite3_close(to.h);
    if (r < 0) {
        unlink(file);
        return err_wrap(error, "back up to %s", file);
    }
    return 0;
}

int db_meta_get(const char **ret, struct db *db, struct arena *arena, const char *key,
                struct err *error)
{
    sqlite3_stmt *st;
    int r = db_query(&st, db, error, "SELECT value FROM meta WHERE key = ?", "s", key);

    if (r < 0)
        return r;
    r = db_next(db, st, error);
    if (r < 0)
        return r;
    *ret = r == 1 ? arena_strdup(arena, (const char *)sqlite3_column_text(st, 0)) : NULL;
    sqlite3_reset(st);
    return 0;
}

int db_meta_set(struct db *db, const char *key, const char *value, struct err *error)
{
    int r = db_do(db, error,
                  "INSERT INTO meta VALUES (?, ?)"
                  " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                  "ss", key, value);

    return r < 0 ? r : 0;
}

int64_t db_count(struct db *db, const char *table)
{
    static const char *const tables[] = {"campaign", "trial",  "attempt", "step",  "event",
                                         "artifact", "answer", "token",   "audit", NULL};
    AUTO_STR sql = {0};
    int64_t n = -1;

    for (int i = 0; tables[i]; i++)
        if (!strcmp(tables[i], table)) {
            str_addf(&sql, "SELECT count(*) FROM %s", table);
            db_number(&n, db, -1, NULL, sql.text, "");
        }
    return n;
}
