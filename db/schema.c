/*
 * The schema, as numbered migrations.
 *
 * Migration k brings a database from version k - 1 to k (PRAGMA user_version). A migration that was
 * released is never edited: databases out there have run it. Each runs in one transaction, so that
 * a kill leaves the old version. All of it is SQL of SQLite 3.26 (RHEL 8; tests/structure/sql.t):
 * migrations 1 and 2 named no columns after ON CONFLICT until migration 7, which takes 3.35.
 *
 * Tables
 *   meta         small named values: instance
 *   campaign     one row a campaign; JSON columns hold what is shown, never what is searched by;
 *                in state `deleted` it is being removed, and nobody sees it (removal.c)
 *   trial        (campaign, n): state and result; n counts 1, 2, ... and is never reused. With a
 *                fidelity it ran a smaller problem: `run` has what that was and measured, the
 *                columns of the layout's own results are NULL, and `inferred` is what the search
 *                makes of it
 *   trial_tally  rows of trial by state and kind, kept by triggers, so that progress bars and the
 *                totals of lists cost no scan (schema 1: trial_count, by state)
 *   attempt      each launch of a trial; `offset` says how much of its event file is in table step
 *   step         the trainer's step events
 *   event        what subscribers saw; its id is the SSE id
 *   artifact     results kept with a campaign
 *   answer       answers by Idempotency-Key
 *   token        bearer tokens, hashed
 *   audit        who did what
 *   hook         webhooks of the daemon's configuration, which the triggers below ask
 *   delivery     what was posted to them, or will be
 */
#include "db/internal.h"

#include <errno.h>

/* campaign.importance is not used: nothing ever wrote it, and no SQLite before 3.35 can drop a
 * column. */
static const char *const migrations[] = {
    /* 1 */
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"

    "CREATE TABLE campaign ("
    " id TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, reason TEXT,"
    " spec TEXT NOT NULL, resolved TEXT NOT NULL, objective TEXT NOT NULL, trainer TEXT NOT NULL,"
    " launcher TEXT NOT NULL, baseline TEXT, space TEXT, verify TEXT, importance TEXT,"
    " tags TEXT NOT NULL, notes TEXT NOT NULL, owner TEXT NOT NULL,"
    " created INTEGER NOT NULL, started INTEGER, ended INTEGER,"
    " budget_trials INTEGER, priority INTEGER NOT NULL,"
    " active_s REAL NOT NULL, active_since INTEGER, rev INTEGER NOT NULL,"
    " trials INTEGER NOT NULL, device_s REAL NOT NULL, next_n INTEGER NOT NULL DEFAULT 1"
    ") WITHOUT ROWID;"
    "CREATE INDEX campaign_created ON campaign (created);"
    "CREATE INDEX campaign_state ON campaign (state);"

    "CREATE TABLE trial ("
    " campaign TEXT NOT NULL REFERENCES campaign ON DELETE CASCADE, n INTEGER NOT NULL,"
    " kind TEXT NOT NULL, state TEXT NOT NULL, repeat_of INTEGER, search_id INTEGER, attempts "
    "INTEGER NOT NULL,"
    " layout TEXT NOT NULL, layout_text TEXT NOT NULL, why TEXT,"
    " predicted_tokens_per_s REAL, predicted_memory REAL, predicted_fits REAL,"
    " tokens_per_s REAL, tokens_per_s_se REAL, tokens_per_s_max REAL, mfu REAL,"
    " step_ms REAL, step_ms_p10 REAL, step_ms_p90 REAL, step_ms_ci95 REAL,"
    " phases TEXT, memory_planned TEXT, memory_measured TEXT, memory REAL,"
    " loss_first REAL, loss_last REAL, failure TEXT,"
    " created INTEGER NOT NULL, started INTEGER, ended INTEGER, seconds REAL, rev INTEGER NOT NULL,"
    " PRIMARY KEY (campaign, n)) WITHOUT ROWID;"
    "CREATE INDEX trial_state ON trial (campaign, state);"
    "CREATE INDEX trial_speed ON trial (campaign, tokens_per_s);"
    "CREATE INDEX trial_repeat ON trial (campaign, repeat_of) WHERE repeat_of IS NOT NULL;"

    "CREATE TABLE trial_count ("
    " campaign TEXT NOT NULL REFERENCES campaign ON DELETE CASCADE, state TEXT NOT NULL, n INTEGER "
    "NOT NULL,"
    " PRIMARY KEY (campaign, state)) WITHOUT ROWID;"
    "CREATE TRIGGER trial_added AFTER INSERT ON trial BEGIN"
    " INSERT INTO trial_count VALUES (new.campaign, new.state, 1)"
    "  ON CONFLICT (campaign, state) DO UPDATE SET n = n + 1;"
    " UPDATE campaign SET rev = rev + 1, next_n = new.n + 1,"
    "  trials = trials + (new.kind <> 'verify') WHERE id = new.campaign;"
    "END;"
    "CREATE TRIGGER trial_moved AFTER UPDATE OF state ON trial WHEN old.state <> new.state BEGIN"
    " UPDATE trial_count SET n = n - 1 WHERE campaign = old.campaign AND state = old.state;"
    " INSERT INTO trial_count VALUES (new.campaign, new.state, 1)"
    "  ON CONFLICT (campaign, state) DO UPDATE SET n = n + 1;"
    " UPDATE campaign SET rev = rev + 1 WHERE id = new.campaign;"
    "END;"

    "CREATE TABLE attempt ("
    " campaign TEXT NOT NULL, n INTEGER NOT NULL, attempt INTEGER NOT NULL,"
    " state TEXT NOT NULL, folder TEXT NOT NULL, cpus TEXT, job TEXT, devices INTEGER NOT NULL,"
    " offset INTEGER NOT NULL, created INTEGER NOT NULL, started INTEGER, ended INTEGER,"
    " outcome TEXT, failure TEXT, exit_code INTEGER, signal INTEGER,"
    " PRIMARY KEY (campaign, n, attempt),"
    " FOREIGN KEY (campaign, n) REFERENCES trial ON DELETE CASCADE) WITHOUT ROWID;"
    "CREATE INDEX attempt_open ON attempt (campaign, n) WHERE state <> 'ended';"

    "CREATE TABLE step ("
    " campaign TEXT NOT NULL, trial INTEGER NOT NULL, attempt INTEGER NOT NULL, n INTEGER NOT NULL,"
    " ms REAL, data TEXT NOT NULL, PRIMARY KEY (campaign, trial, attempt, n),"
    " FOREIGN KEY (campaign, trial) REFERENCES trial ON DELETE CASCADE) WITHOUT ROWID;"

    "CREATE TABLE event ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, campaign TEXT NOT NULL REFERENCES campaign ON DELETE "
    "CASCADE,"
    " trial INTEGER, kind TEXT NOT NULL, data TEXT NOT NULL, t INTEGER NOT NULL);"
    "CREATE INDEX event_campaign ON event (campaign, id);"

    "CREATE TABLE artifact ("
    " campaign TEXT NOT NULL REFERENCES campaign ON DELETE CASCADE, name TEXT NOT NULL, type TEXT "
    "NOT NULL,"
    " path TEXT, body TEXT, created INTEGER NOT NULL, PRIMARY KEY (campaign, name)) WITHOUT ROWID;"

    "CREATE TABLE answer ("
    " key TEXT PRIMARY KEY, hash TEXT NOT NULL, type TEXT NOT NULL, location TEXT, body TEXT NOT "
    "NULL,"
    " status INTEGER NOT NULL, created INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX answer_created ON answer (created);"

    "CREATE TABLE token ("
    " id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, hash TEXT NOT NULL UNIQUE,"
    " created INTEGER NOT NULL, expires INTEGER, used INTEGER) WITHOUT ROWID;"

    "CREATE TABLE audit ("
    " id INTEGER PRIMARY KEY, t INTEGER NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, resource "
    "TEXT,"
    " result TEXT);",

    /* 2: a list of trials is served by an index for each of its orders, and for the usual filter.
     */
    "CREATE TABLE trial_tally ("
    " campaign TEXT NOT NULL REFERENCES campaign ON DELETE CASCADE, state TEXT NOT NULL,"
    " kind TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (campaign, state, kind)) WITHOUT ROWID;"
    "INSERT INTO trial_tally"
    " SELECT campaign, state, kind, count(*) FROM trial GROUP BY campaign, state, kind;"
    "DROP TRIGGER trial_added;"
    "DROP TRIGGER trial_moved;"
    "DROP TABLE trial_count;"
    "CREATE TRIGGER trial_added AFTER INSERT ON trial BEGIN"
    " INSERT INTO trial_tally VALUES (new.campaign, new.state, new.kind, 1)"
    "  ON CONFLICT (campaign, state, kind) DO UPDATE SET n = n + 1;"
    " UPDATE campaign SET rev = rev + 1, next_n = new.n + 1,"
    "  trials = trials + (new.kind <> 'verify') WHERE id = new.campaign;"
    "END;"
    "CREATE TRIGGER trial_moved AFTER UPDATE OF state ON trial WHEN old.state <> new.state BEGIN"
    " UPDATE trial_tally SET n = n - 1"
    "  WHERE campaign = old.campaign AND state = old.state AND kind = old.kind;"
    " INSERT INTO trial_tally VALUES (new.campaign, new.state, new.kind, 1)"
    "  ON CONFLICT (campaign, state, kind) DO UPDATE SET n = n + 1;"
    " UPDATE campaign SET rev = rev + 1 WHERE id = new.campaign;"
    "END;"
    "CREATE INDEX trial_kind ON trial (campaign, kind);"
    "CREATE INDEX trial_memory ON trial (campaign, memory);"
    "CREATE INDEX trial_seconds ON trial (campaign, seconds);"
    "CREATE INDEX trial_state_speed ON trial (campaign, state, tokens_per_s);",

    /* 3: webhooks. Without a row in hook, the triggers cost nothing that could be measured. */
    "CREATE TABLE hook (name TEXT PRIMARY KEY, events TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE delivery ("
    " id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE, hook TEXT NOT NULL, event TEXT NOT NULL,"
    " campaign TEXT NOT NULL, trial INTEGER, state TEXT NOT NULL, reason TEXT,"
    " created INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,"
    " due INTEGER NOT NULL DEFAULT 0, body TEXT, status TEXT NOT NULL DEFAULT 'pending',"
    " detail TEXT);"
    "CREATE INDEX delivery_due ON delivery (due, id) WHERE status = 'pending';"
    "CREATE TRIGGER hook_campaign AFTER UPDATE OF state ON campaign"
    " WHEN old.state <> new.state BEGIN"
    " INSERT INTO delivery (uuid, hook, event, campaign, state, reason, created)"
    "  SELECT lower(hex(randomblob(16))), name, 'campaign.' || new.state, new.id, new.state,"
    "   new.reason, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) FROM hook"
    "  WHERE instr(' ' || events || ' ', ' campaign.' || new.state || ' ') > 0;"
    "END;"
    "CREATE TRIGGER hook_trial AFTER UPDATE OF state ON trial"
    " WHEN old.state <> new.state AND new.state NOT IN ('queued', 'starting', 'running') BEGIN"
    " INSERT INTO delivery (uuid, hook, event, campaign, trial, state, created)"
    "  SELECT lower(hex(randomblob(16))), name, 'trial.ended', new.campaign, new.n, new.state,"
    "   CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) FROM hook"
    "  WHERE instr(' ' || events || ' ', ' trial.ended ') > 0;"
    "END;",

    /* 4: one measured step was accepted once, and every trial of such a campaign then refused
     * it. */
    "UPDATE campaign SET spec = json_set(spec, '$.trial.min_steps', 2)"
    " WHERE json_extract(spec, '$.trial.min_steps') < 2;"
    "UPDATE campaign SET spec = json_set(spec, '$.trial.max_steps', 2)"
    " WHERE json_extract(spec, '$.trial.max_steps') < 2;"
    "UPDATE campaign SET resolved = json_set(resolved, '$.trial.min_steps', 2)"
    " WHERE json_extract(resolved, '$.trial.min_steps') < 2;"
    "UPDATE campaign SET resolved = json_set(resolved, '$.trial.max_steps', 2)"
    " WHERE json_extract(resolved, '$.trial.max_steps') < 2;",

    /* 5: trials of smaller problems, and what each trial costs. */
    "ALTER TABLE trial ADD COLUMN fidelity INTEGER;"
    "ALTER TABLE trial ADD COLUMN run TEXT;"
    "ALTER TABLE trial ADD COLUMN inferred TEXT;"
    "ALTER TABLE trial ADD COLUMN devices INTEGER;"
    "ALTER TABLE trial ADD COLUMN device_s REAL;"
    "UPDATE trial SET devices = coalesce((SELECT max(a.devices) FROM attempt a"
    "  WHERE a.campaign = trial.campaign AND a.n = trial.n),"
    "  json_extract(layout, '$.world') * coalesce(json_extract(layout, '$.threads'), 1)),"
    " device_s = (SELECT sum(a.devices * max(0, a.ended - a.started) / 1000.0) FROM attempt a"
    "  WHERE a.campaign = trial.campaign AND a.n = trial.n);"
    "CREATE INDEX trial_fidelity ON trial (campaign) WHERE fidelity IS NOT NULL;",

    /* 6: how unevenly a trial's experts were used. */
    "ALTER TABLE trial ADD COLUMN imbalance REAL;",

    /* 7: the triggers of migration 2 as they are above, for databases that have them without the
     * columns of the conflict. What a verification expects of the next run has today's name. */
    "DROP TRIGGER trial_added;"
    "DROP TRIGGER trial_moved;"
    "CREATE TRIGGER trial_added AFTER INSERT ON trial BEGIN"
    " INSERT INTO trial_tally VALUES (new.campaign, new.state, new.kind, 1)"
    "  ON CONFLICT (campaign, state, kind) DO UPDATE SET n = n + 1;"
    " UPDATE campaign SET rev = rev + 1, next_n = new.n + 1,"
    "  trials = trials + (new.kind <> 'verify') WHERE id = new.campaign;"
    "END;"
    "CREATE TRIGGER trial_moved AFTER UPDATE OF state ON trial WHEN old.state <> new.state BEGIN"
    " UPDATE trial_tally SET n = n - 1"
    "  WHERE campaign = old.campaign AND state = old.state AND kind = old.kind;"
    " INSERT INTO trial_tally VALUES (new.campaign, new.state, new.kind, 1)"
    "  ON CONFLICT (campaign, state, kind) DO UPDATE SET n = n + 1;"
    " UPDATE campaign SET rev = rev + 1 WHERE id = new.campaign;"
    "END;"
    "UPDATE campaign SET verify = json_remove(json_set(verify, '$.prediction',"
    "  json_extract(verify, '$.promise')), '$.promise')"
    " WHERE json_type(verify, '$.promise') IS NOT NULL;",

    /* 8: energy, where a trial measured it. */
    "ALTER TABLE trial ADD COLUMN tokens_per_joule REAL;",

    /* 9: each campaign is a trace. */
    "ALTER TABLE campaign ADD COLUMN traceparent TEXT;"
    "UPDATE campaign SET traceparent ="
    " '00-' || lower(hex(randomblob(16))) || '-' || lower(hex(randomblob(8))) || '-01';",

    /* 10: GPUs that an attempt holds. */
    "ALTER TABLE attempt ADD COLUMN gpus TEXT;",
};

int db_latest_version(void)
{
    return (int)ARRAY_LEN(migrations);
}

int db_version(struct db *db)
{
    int64_t v;

    return db_number(&v, db, 0, NULL, "PRAGMA user_version", "") < 0 ? -1 : (int)v;
}

static int exec(struct db *db, const char *sql, struct err *error)
{
    return sqlite3_exec(db->h, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : db_fail(db, error, "change the schema");
}

static int migrate_one(struct db *db, int to, struct err *error)
{
    AUTO_FREE char *version = mem_printf("PRAGMA user_version = %d", to);
    int r = db_begin(db, error);

    if (r < 0)
        return r;
    r = exec(db, migrations[to - 1], error);
    if (r == 0)
        r = exec(db, version, error);
    if (r == 0)
        r = db_commit(db, error);
    if (r < 0)
        db_rollback(db);
    return r;
}

int db_migrate(struct db *db, struct err *error)
{
    int have = db_version(db);

    if (have < 0)
        return db_fail(db, error, "read the schema's version");
    if (have > db_latest_version())
        return err_set(error, -EPROTO,
                       "%s has schema %d, written by a newer partune; this one knows up to %d",
                       db->path, have, db_latest_version());
    for (int v = have + 1; v <= db_latest_version(); v++) {
        int r = migrate_one(db, v, error);

        if (r < 0)
            return err_wrap(error, "migrate to schema %d", v);
    }
    return 0;
}
