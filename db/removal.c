/*
 * Deletion of campaigns: marked at once, removed piece by piece.
 *
 * A campaign with 100,000 trials takes seconds to remove, and one thread writes. So a deletion
 * changes one row, to state `deleted`, which no query sees: once that is committed, the campaign is
 * gone for all clients. Its rows follow in pieces of a few milliseconds, each a transaction of its
 * own; what a killed process left of them is found by that state. The campaign's own row goes last.
 */
#include "db/internal.h"

#include <errno.h>

enum { PIECE_NS = 3000000 };

int db_campaign_delete(struct db *writer, const char *id, struct err *error)
{
    int r = db_do(writer, error,
                  "UPDATE campaign SET state = 'deleted', active_since = NULL, rev = rev + 1"
                  " WHERE id = ? AND state NOT IN ('running', 'verifying', 'deleted')",
                  "s", id);
    int64_t rev;

    if (r != 0)
        return r < 0 ? r : 0;
    r = db_campaign_rev(&rev, writer, id, error);
    return r < 0 ? r : err_set(error, -EBUSY, "campaign %s is not finished: cancel it first", id);
}

int db_removal_list(const char ***ret, int *ret_count, struct db *db, struct arena *arena,
                    struct err *error)
{
    struct db_rows rows = {.a = arena, .size = sizeof(const char *)};
    sqlite3_stmt *st;
    int r = db_query(&st, db, error, "SELECT id FROM campaign WHERE state = 'deleted'", "");

    while (r >= 0 && (r = db_next(db, st, error)) == 1)
        *(const char **)db_rows_add(&rows) =
            arena_strdup(arena, (const char *)sqlite3_column_text(st, 0));
    if (r < 0)
        return r;
    *ret = (const char **)(void *)rows.rows;
    *ret_count = rows.count;
    return 0;
}

/* Remove some rows of a marked campaign, first those on which no others depend; returns how many, 0
 * when no marked campaign is left. */
static int remove_some(struct db *writer, struct err *error)
{
    static const char *const sql[] = {
        "DELETE FROM event WHERE id IN (SELECT e.id FROM campaign AS c JOIN event AS e"
        " ON e.campaign = c.id WHERE c.state = 'deleted' LIMIT 100)",
        "DELETE FROM step WHERE (campaign, trial, attempt, n) IN (SELECT s.campaign, s.trial,"
        " s.attempt, s.n FROM campaign AS c JOIN step AS s ON s.campaign = c.id"
        " WHERE c.state = 'deleted' LIMIT 100)",
        "DELETE FROM trial WHERE (campaign, n) IN (SELECT t.campaign, t.n FROM campaign AS c"
        " JOIN trial AS t ON t.campaign = c.id WHERE c.state = 'deleted' LIMIT 25)",
        "DELETE FROM campaign WHERE id IN (SELECT id FROM campaign WHERE state = 'deleted' LIMIT "
        "1)",
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(sql); i++)
        r = db_do(writer, error, sql[i], "");
    return r;
}

int db_removal_piece(struct db *writer, struct err *error)
{
    uint64_t until = (uint64_t)clock_mono_ns() + PIECE_NS;
    int r, found = 0;

    while ((r = remove_some(writer, error)) > 0) {
        found = 1;
        if ((uint64_t)clock_mono_ns() >= until)
            break;
    }
    return r < 0 ? r : found;
}
