/* Begin, commit, roll back. */
#include "db/internal.h"

int db_begin(struct db *db, struct err *error)
{
    db_rollback(db); /* what is left of a transaction whose own rollback failed */
    return sqlite3_exec(db->h, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : db_fail(db, error, "begin");
}

int db_commit(struct db *db, struct err *error)
{
    return sqlite3_exec(db->h, "COMMIT", NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : db_fail(db, error, "commit");
}

void db_rollback(struct db *db)
{
    if (!sqlite3_get_autocommit(db->h))
        sqlite3_exec(db->h, "ROLLBACK", NULL, NULL, NULL);
}
