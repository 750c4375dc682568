// The real daemon, in a data directory of its own below the build directory.

import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

const build = process.env.PT_BUILD;

/** A fresh folder for one test, removed when the process ends well. */
export function scratch(name) {
    const parent = path.join(build, "tests", "ui");
    fs.mkdirSync(parent, { recursive: true });
    return fs.mkdtempSync(path.join(parent, `${name}-`));
}

const sleep = (ms) =>
    new Promise((resolve) => {
        setTimeout(resolve, ms);
    });

/**
 * Wait until FN gives something; WHAT is named if it never does. Patience is cheap: it is spent only where something is
 * wrong, while a machine with other work to do may be ten times slower than an idle one.
 */
export async function until(fn, what, ms = 90_000) {
    const end = Date.now() + ms;
    for (;;) {
        const value = await fn();
        if (value) return value;
        if (Date.now() > end) throw new Error(`waited ${ms / 1000} s for ${what}`);
        await sleep(50);
    }
}

/**
 * Start partuned in DIR. Returns {url, token, link(route), api(method, path, body), kill(signal), restart(), stop()}; a
 * restart takes the same port, so that pages which are open find it again.
 */
export async function startDaemon(dir, more = []) {
    const data = path.join(dir, "data");
    const log = path.join(dir, "partuned.log");
    let child = null;
    let port = 0;

    async function start() {
        const out = fs.openSync(log, "a");
        const from = fs.fstatSync(out).size;
        child = spawn(
            path.join(build, "partuned"),
            [
                "--data",
                data,
                "--listen",
                `127.0.0.1:${port}`,
                "--train",
                path.join(build, "partune-train"),
                "--supervisor",
                path.join(build, "partune-run"),
                ...more,
            ],
            { stdio: ["ignore", out, out] },
        );
        fs.closeSync(out);
        const mine = child;
        mine.on("exit", (code, signal) => {
            mine.ended = { code, signal };
        });
        const said = () => fs.readFileSync(log).subarray(from).toString();
        port = await until(() => {
            if (mine.ended)
                throw new Error(`partuned ended (${JSON.stringify(mine.ended)}): ${said()}`);
            return Number(said().match(/http:\/\/127\.0\.0\.1:(\d+)/)?.[1] ?? 0);
        }, `partuned to say its address (${log})`);
        await until(
            () =>
                fetch(`http://127.0.0.1:${port}/healthz`).then(
                    (r) => r.ok,
                    () => false,
                ),
            "partuned to answer",
        );
    }

    // A test that ends badly leaves no daemon behind.
    process.on("exit", () => {
        if (child && !child.ended) child.kill("SIGKILL");
    });
    await start();
    const tokenFile = fs.readdirSync(data).find((f) => f === "token" || f.endsWith(".token"));
    const token = fs.readFileSync(path.join(data, tokenFile), "utf8").trim();
    const url = `http://127.0.0.1:${port}/`;

    async function api(method, where, body) {
        const response = await fetch(new URL(where, url), {
            method,
            headers: {
                Authorization: `Bearer ${token}`,
                ...(body && { "Content-Type": "application/json" }),
            },
            body: body && JSON.stringify(body),
        });
        const text = await response.text();
        if (!response.ok)
            throw new Error(`${method} ${where}: ${response.status} ${text.slice(0, 300)}`);
        return text ? JSON.parse(text) : null;
    }

    async function kill(signal = "SIGTERM") {
        const mine = child;
        mine.kill(signal);
        await until(() => mine.ended, "partuned to end");
    }

    return {
        url,
        token,
        data,
        log,
        api,
        kill,
        link: (route) =>
            `${url}#token=${encodeURIComponent(token)}&to=${encodeURIComponent(route)}`,
        restart: start,
        /** Cancel what runs, so that no trial outlives the test, and end the daemon. */
        async stop() {
            if (!child.ended) {
                const list = await api("GET", "v1/campaigns?page_size=1000").catch(() => ({
                    items: [],
                }));
                for (const c of list.items)
                    if (["running", "paused", "verifying"].includes(c.state))
                        await api("POST", `v1/campaigns/${c.id}:cancel`, {}).catch(() => {});
                await sleep(300);
                await kill();
            }
        },
    };
}

/** A campaign of a very small model that this machine finishes in seconds when it has nothing else to do. */
export function tinyCampaign(name, more = {}) {
    return {
        name,
        model: "nano-moe",
        cluster: "local",
        workload: { global_batch: 8, data: "synthetic" },
        space: { world: [2], micro_batch: [1, 2, 4] },
        budget: { trials: 6 },
        trial: { warmup_steps: 1, min_steps: 3, max_steps: 4, ci: 0.2, timeout_s: 600 },
        search: { method: "bayes", seed: 1 },
        ...more,
    };
}

/** Run SQL on a daemon's database, which a running one is using, too; gives the rows as objects. */
export function sql(data, text) {
    const out = execFileSync("sqlite3", ["-json", path.join(data, "partune.db")], {
        input: text,
        encoding: "utf8",
        maxBuffer: 1 << 28,
    });
    return out.trim() ? JSON.parse(out) : [];
}

/**
 * A campaign of COUNT trials made from those of SOURCE, through the daemon's own schema: every trial is one of the real
 * ones, its throughput scaled, its micro-batch varied, each 17th without memory enough.
 */
export function multiply(data, source, id, name, count) {
    const columns = (table) => sql(data, `PRAGMA table_info(${table});`).map((c) => c.name);
    const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
    const pick = (table, changes) => {
        const names = columns(table);
        return [names.join(", "), names.map((c) => changes[c] ?? `s.${c}`).join(", ")];
    };
    const oom = "k.i % 17 = 0";
    const [campaignColumns, campaignValues] = pick("campaign", {
        id: quoted(id),
        name: quoted(name),
        trials: "0",
        next_n: "1",
        budget_trials: String(count),
        device_s: String(count * 9.5),
        state: "'done'",
        reason: "'budget'",
    });
    const [trialColumns, trialValues] = pick("trial", {
        campaign: quoted(id),
        n: "k.i",
        repeat_of: "NULL",
        kind: "CASE WHEN k.i = 1 THEN 'baseline' ELSE 'search' END",
        search_id: "k.i",
        layout: "json_set(s.layout, '$.micro_batch', 1 << (k.i % 5))",
        layout_text: "s.layout_text || ' mb' || (1 << (k.i % 5))",
        tokens_per_s: `CASE WHEN ${oom} THEN NULL ELSE s.tokens_per_s * (0.5 + 0.5 * ((k.i * 7919) % 1000) / 1000.0) END`,
        state: `CASE WHEN ${oom} THEN 'oom' ELSE 'ok' END`,
        failure: `CASE WHEN ${oom} THEN json_object('class', 'oom', 'detail', 'activations: 512.0 MiB over the budget of 256.0 MiB', 'rank', 1, 'exit_code', 66, 'signal', NULL) END`,
        created:
            "s.created + k.i * (SELECT ended - started FROM trial WHERE campaign = s.campaign AND n = s.n)",
        started: "s.started + k.i * (s.ended - s.started)",
        ended: "s.ended + k.i * (s.ended - s.started)",
    });
    sql(
        data,
        `BEGIN;
        INSERT INTO campaign (${campaignColumns}) SELECT ${campaignValues} FROM campaign s WHERE s.id = ${quoted(source)};
        CREATE TEMP TABLE good AS SELECT n, row_number() OVER (ORDER BY n) - 1 AS place FROM trial
            WHERE campaign = ${quoted(source)} AND state = 'ok' AND kind <> 'verify';
        WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < ${count})
        INSERT INTO trial (${trialColumns}) SELECT ${trialValues} FROM k
            JOIN good ON good.place = (k.i - 1) % (SELECT count(*) FROM good)
            JOIN trial s ON s.campaign = ${quoted(source)} AND s.n = good.n ORDER BY k.i;
        COMMIT;`,
    );
}
