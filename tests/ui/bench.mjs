// What an engineer feels, measured in Chromium against the real daemon: one JSON object a line.

import zlib from "node:zlib";
import fs from "node:fs";
import path from "node:path";
import { openBrowser, openPage, scrollThrough, violations } from "./browser.mjs";
import { startProxy } from "./proxy.mjs";
import { multiply, scratch, startDaemon, tinyCampaign, until } from "./daemon.mjs";

const COUNT = 10_000;
const HOUR_OF_UPDATES = 7200; // two steps a second for an hour

const print = (name, value, unit, must, more) =>
    console.log(
        JSON.stringify({
            bench: "ui",
            case: name,
            value: Number(value.toPrecision(4)),
            unit,
            must,
            ...more,
        }),
    );
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

const dir = scratch("bench");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);

/** Note in window.seen, by the number of a trial, when its row first says that it has ended: the frame after that. */
function watchRows(page) {
    return page.evaluate(() => {
        window.seen = {};
        const look = () => {
            for (const row of document.querySelectorAll("section[aria-label=Trials] tbody tr")) {
                const n = row.querySelector("th")?.textContent;
                if (!n || n in window.seen || row.querySelector(".badge.run, .badge.wait")) continue;
                window.seen[n] = 0;
                requestAnimationFrame(() => {
                    window.seen[n] = Date.now();
                });
            }
        };
        look();
        new MutationObserver(look).observe(document.body, {
            subtree: true,
            childList: true,
            characterData: true,
        });
        return Date.now();
    });
}

// The end of a trial, until the row says so: both clocks are this machine's. The campaign waits until the page is
// there: a trial that ends while the page is being fetched tells how long that takes, which is another number. From
// then on the ranks of the next trial start on both cores as each one ends.
async function updateTimes() {
    const c = await daemon.api(
        "POST",
        "v1/campaigns",
        tinyCampaign("bench", { budget: { trials: 24 }, space: { world: [1, 2] } }),
    );
    const where = `v1/campaigns/${c.id}`;
    const trials = async () => (await daemon.api("GET", `${where}/trials?page_size=1000`)).items;
    await daemon.api("POST", `${where}:pause`, {});
    await until(async () => (await trials()).every((t) => t.ended), "trials that run");
    const page = await openPage(browser, daemon.url);
    await page.goto(daemon.link(`/campaigns/${c.id}`));
    await page.waitForSelector(".live-on");
    await page.waitForSelector("section[aria-label=Trials] .panel-body :is(tbody tr, .empty)");
    const from = await watchRows(page);
    await daemon.api("POST", `${where}:resume`, {});
    await until(
        async () => ["done", "failed"].includes((await daemon.api("GET", where)).state),
        "the campaign",
        300_000,
    );
    await page.waitForTimeout(800);
    const seen = await page.evaluate(() => window.seen);
    const watched = (await trials()).filter((t) => Date.parse(t.ended) >= from);
    const delays = watched.map((t) => seen[t.n] - Date.parse(t.ended)).filter(Number.isFinite);
    await page.context().close();
    print("update, trial end to pixels", median(delays), "ms", 500, {
        worst: Math.max(...delays),
        trials: watched.length,
        never_shown: watched.length - delays.length,
    });
    return c.id;
}

async function firstVisit(id) {
    const page = await openPage(browser, daemon.url);
    let bytes = 0;
    let requests = 0;
    const session = await page.context().newCDPSession(page);
    const assets = new Set();
    await session.send("Network.enable");
    session.on("Network.responseReceived", (e) => {
        if (!e.response.url.includes("/v1/")) assets.add(e.requestId);
    });
    session.on("Network.loadingFinished", (e) => {
        if (assets.has(e.requestId)) {
            bytes += e.encodedDataLength;
            requests += 1;
        }
    });
    await page.goto(daemon.link(`/campaigns/${id}`));
    await page.waitForSelector("canvas");
    await page.waitForTimeout(1500);
    await page.context().close();
    print("first visit, compressed", bytes / 1024, "KB", 450, { requests });
}

async function hugeCampaign(seed) {
    await daemon.kill();
    multiply(daemon.data, seed, "huge0001", "ten thousand", COUNT);
    await daemon.restart();
    const paints = [];
    for (let i = 0; i < 3; i++) {
        const page = await openPage(browser, daemon.url);
        const start = Date.now();
        await page.goto(daemon.link("/campaigns/huge0001"));
        await page.waitForSelector("section[aria-label=Trials] tbody tr");
        paints.push(Date.now() - start);
        await page.context().close();
    }
    print("10,000 trials, first useful paint", median(paints), "ms", 1500, { runs: paints });

    const page = await openPage(browser, daemon.url);
    await page.addInitScript(() => {
        window.durations = [];
        new PerformanceObserver((list) => {
            for (const e of list.getEntries())
                if (e.interactionId) window.durations.push(e.duration);
        }).observe({ type: "event", durationThreshold: 16, buffered: true });
    });
    await page.goto(daemon.link("/campaigns/huge0001"));
    await page.waitForSelector("section[aria-label=Trials] tbody tr");
    await page.waitForTimeout(6000);
    const clicks = [
        "th button:has-text('Tokens/s')",
        "button:text-is('Next')",
        "[role=tab]:text-is('Space')",
        "[role=tab]:text-is('Model and memory')",
        "[role=tab]:text-is('Timeline')",
        "[role=tab]:text-is('Overview')",
        "section.panel button:text-is('Table')",
    ];
    const worst = [];
    for (const selector of clicks) {
        await page.click(selector);
        await page.waitForTimeout(1500);
        // Nothing is reported below 16 ms: a frame.
        worst.push(await page.evaluate(() => Math.max(16, ...window.durations.splice(0))));
    }
    print("10,000 trials, interaction to next paint", Math.max(...worst), "ms", 100, { each: worst });
    // The worst and the best measured trial must be among the points that are drawn.
    const [points, kept] = await page.evaluate(async (campaign) => {
        const { thin } = await import("./charts/thin.js");
        const { eachPage, campaignPath } = await import("./lib/api.js");
        const all = [];
        await eachPage(campaignPath(campaign, "/trials"), { sort: "n", state: "ok" }, (items) =>
            all.push(...items),
        );
        const value = (t) => t.tokens_per_s;
        const some = thin(all, 2000, value);
        const ends = (list) => [Math.min(...list.map(value)), Math.max(...list.map(value))];
        return [some.length, String(ends(some)) === String(ends(all))];
    }, "huge0001");
    print("10,000 trials, points drawn", points, "points", 2000, { extremes_kept: kept });
    await page.context().close();
    await hugeUpdates();
}

const UPDATES = 40;

// Trials that end on a page of ten thousand, four a second, from the event's last byte to the row's pixels: what the
// page itself costs, while its charts draw all of them anew.
async function hugeUpdates() {
    const where = "v1/campaigns/huge0001";
    const trials = (await daemon.api("GET", `${where}/trials?sort=-n&page_size=${UPDATES}`)).items;
    const streams = new Set();
    const proxy = await startProxy(daemon.url, "/", (target, request, response) => {
        if (!target.endsWith("/events")) return false;
        response.writeHead(200, { "Content-Type": "text/event-stream" });
        response.flushHeaders();
        streams.add(response);
        response.on("close", () => streams.delete(response));
        return true;
    });
    const send = (trial) => {
        const text = `event: trial\nid: ${trial.n}\ndata: ${JSON.stringify(trial)}\n\n`;
        for (const response of streams) response.write(text);
    };
    const page = await openPage(browser, proxy.url);
    const token = encodeURIComponent(daemon.token);
    await page.goto(`${proxy.url}#token=${token}&to=/campaigns/huge0001`);
    await page.waitForSelector("section[aria-label=Trials] tbody tr");
    await page.waitForTimeout(6000);
    for (const t of trials) send({ ...t, state: "running" });
    await page.waitForFunction(
        (count) =>
            document.querySelectorAll("section[aria-label=Trials] .badge.run").length >= count,
        UPDATES,
    );
    await watchRows(page);
    const sent = {};
    for (const t of trials) {
        sent[t.n] = Date.now();
        send(t);
        await page.waitForTimeout(250);
    }
    await page.waitForTimeout(1000);
    const seen = await page.evaluate(() => window.seen);
    const delays = Object.keys(sent).map((n) => seen[n] - sent[n]);
    print("10,000 trials, event to pixels", median(delays), "ms", 500, {
        worst: Math.max(...delays),
        updates: delays.length,
    });
    await page.context().close();
    proxy.close();
}

// An hour's updates in five minutes: two steps a second with increasing numbers, and the trial and the campaign as
// often as the daemon sends them. Both sizes are taken after a forced collection. Before the first, the same updates
// are sent until the engine has compiled what it will: its code grows by half a MiB or more in the first minutes and is
// no object of the page: over 6,000 updates of a trial and its campaign, strings, arrays, closures and objects stayed
// as they were to the KiB, while code grew from 4.6 to 5.5 MiB and no further. While a page warms up every update is
// one of trial and campaign, too, which are what it draws anew for. The output tells code and objects apart, and the
// ratio that is judged is that of the whole heap.
//
// The trial page keeps all steps up to a number, then thins them to half: its size is a saw. Both of its samples are
// taken at the same height of the saw, which a store of the page's own kind, fed with the same steps, tells.
const PER_SECOND = HOUR_OF_UPDATES / 300;
const SETTLED = 0.01; // code that grew by less from one look to the next
const LOOK_EVERY = HOUR_OF_UPDATES / 10; // updates
const MIN_LOOKS = 5;
const MAX_LOOKS = 15;

/** The smallest of some sizes, each right after a collection: between two looks updates leave garbage. */
async function usedSize(session) {
    let least = Infinity;
    for (let i = 0; i < 5; i++) {
        await session.send("HeapProfiler.collectGarbage");
        least = Math.min(least, (await session.send("Runtime.getHeapUsage")).usedSize);
    }
    return least;
}

async function sizes(session) {
    const used = await usedSize(session);
    let text = "";
    const chunk = (e) => {
        text += e.chunk;
    };
    session.on("HeapProfiler.addHeapSnapshotChunk", chunk);
    await session.send("HeapProfiler.takeHeapSnapshot", { reportProgress: false });
    session.off("HeapProfiler.addHeapSnapshotChunk", chunk);
    const { nodes, snapshot } = JSON.parse(text);
    const { node_fields: fields, node_types: types } = snapshot.meta;
    const type = fields.indexOf("type");
    const self = fields.indexOf("self_size");
    let code = 0;
    let objects = 0;
    for (let i = 0; i < nodes.length; i += fields.length)
        if (types[type][nodes[i + type]] === "code") code += nodes[i + self];
        else objects += nodes[i + self];
    return { heap: used / 1048576, code: code / 1048576, objects: objects / 1048576 };
}

/** Wait until the size of compiled code stays; returns the sizes then and how many looks that took. */
async function warmUp(session, sent) {
    let last = null;
    for (let looks = 1; ; looks++) {
        const from = sent();
        await until(() => sent() - from >= LOOK_EVERY, "updates to warm up", 300_000);
        const now = await sizes(session);
        if (looks >= MIN_LOOKS && now.code < last.code * (1 + SETTLED)) return [now, looks];
        if (looks === MAX_LOOKS) return [now, looks];
        last = now;
    }
}

/** The page's own store of steps, here: modules of the dashboard load without a browser if they find a document. */
async function mirrorOfSteps() {
    globalThis.document = { baseURI: "http://127.0.0.1/", documentElement: { dataset: {} } };
    globalThis.sessionStorage = { getItem: () => null };
    const ui = path.join(dir, "ui"); // the files of the source and those that the build makes, as the daemon serves them
    for (const top of [process.env.PT_SRC, process.env.PT_BUILD])
        for (const folder of ["charts", "lib", "pages"])
            if (fs.existsSync(path.join(top, "web", "ui", folder)))
                fs.cpSync(path.join(top, "web", "ui", folder), path.join(ui, folder), { recursive: true });
    fs.writeFileSync(path.join(ui, "package.json"), '{"type": "module"}');
    const { stepStore } = await import(path.join(ui, "pages", "trial-model.js"));
    return stepStore();
}

const HEIGHT = 3000; // steps in the store where the samples are taken, and how far they may be from it
const NEAR = 60;

async function heapOf(proxy, name, route, { sent, height, warm }) {
    const page = await openPage(browser, proxy.url);
    await page.goto(
        `${proxy.url}#token=${encodeURIComponent(daemon.token)}&to=${encodeURIComponent(route)}`,
    );
    await page.waitForSelector("main h1");
    const session = await page.context().newCDPSession(page);
    const atHeight = () =>
        until(() => Math.abs(height() - HEIGHT) < NEAR, "the height of the saw", 1_800_000);
    const [, looks] = await warmUp(session, sent);
    warm();
    await atHeight();
    const before = await sizes(session);
    const from = sent();
    const kept = [height()];
    await until(() => sent() - from >= HOUR_OF_UPDATES, "an hour's updates", 1_800_000);
    await atHeight();
    kept.push(height());
    const after = await sizes(session);
    await page.context().close();
    const mib = (key) => [before[key], after[key]].map((x) => Number(x.toFixed(2)));
    print(`heap of the ${name} page over an hour's updates`, after.heap / before.heap, "ratio", 1, {
        updates: sent() - from,
        steps_kept: kept,
        mib: mib("heap"),
        code_mib: mib("code"),
        objects_mib: mib("objects"),
        objects_ratio: Number((after.objects / before.objects).toPrecision(4)),
        warm_up: `${looks * LOOK_EVERY} updates or more, until compiled code grew by under ${100 * SETTLED} % in ${LOOK_EVERY}; forced collection before each size`,
    });
}

async function heap(id) {
    const campaign = await daemon.api("GET", `v1/campaigns/${id}`);
    const where = `v1/campaigns/${id}/trials`;
    const trial = (await daemon.api("GET", `${where}?sort=-n&page_size=1`)).items[0];
    const step = (await daemon.api("GET", `${where}/${campaign.best.trial}/steps`)).items[0];
    const mirror = await mirrorOfSteps();
    let sent = 0;
    let height = 0;
    let cold = 2; // pages that warm up
    const streams = new Set();
    const timer = setInterval(() => {
        if (sent === 0 && streams.size < 2) return; // until both pages watch
        sent += 1;
        // Steps as they are: each takes a little longer or shorter.
        const now = { ...step, n: sent, ms: step.ms * (1 + 0.1 * Math.sin(sent * 12.9898)) };
        mirror.put([now]);
        height = mirror.all().length;
        for (const send of streams) {
            send("step", { campaign: id, n: trial.n, step: now });
            if (cold > 0 || sent % 20 === 0) {
                send("trial", { ...trial, rev: sent });
                send("campaign", campaign);
            }
        }
    }, 1000 / PER_SECOND);
    const proxy = await startProxy(daemon.url, "/", (route, request, response) => {
        if (!route.endsWith("/events")) return false;
        response.writeHead(200, { "Content-Type": "text/event-stream" });
        response.flushHeaders();
        const send = (event, data) =>
            response.write(`event: ${event}\nid: ${sent}\ndata: ${JSON.stringify(data)}\n\n`);
        streams.add(send);
        response.on("close", () => streams.delete(send));
        return true;
    });
    const watched = {
        sent: () => sent,
        warm: () => {
            cold -= 1;
        },
    };
    await Promise.all([
        heapOf(proxy, "trial", `/campaigns/${id}/trials/${trial.n}`, {
            ...watched,
            height: () => height,
        }),
        heapOf(proxy, "campaign", `/campaigns/${id}`, { ...watched, height: () => HEIGHT }),
    ]);
    clearInterval(timer);
    proxy.close();
}

/** What the files weigh that a browser may fetch, whether or not a first visit needs them. */
function weight() {
    const ui = path.join(process.env.PT_SRC, "web", "ui");
    const built = path.join(process.env.PT_BUILD, "web", "ui");
    const list = fs
        .readFileSync(path.join(ui, "Makemodule.am"), "utf8")
        .match(/%D%\/\S+\.(?:js|css|html|svg)\b/g)
        .map((f) => f.slice(4));
    const size = [...new Set(list)]
        .filter((f) => f !== "vega-entry.js")
        .reduce((sum, f) => {
            const file = [path.join(ui, f), path.join(built, f)].find((x) => fs.existsSync(x));
            return sum + zlib.gzipSync(fs.readFileSync(file), { level: 9 }).length;
        }, 0);
    print("all files, compressed", size / 1024, "KB", 450);
}

/**
 * Violations of accessibility that are serious or critical, and requests to other hosts, over every page and both
 * themes.
 */
async function pages(id) {
    const found = [];
    let foreign = 0;
    for (const theme of ["light", "dark"])
        for (const route of [
            "/campaigns",
            ...["", "?tab=space", "?tab=model", "?tab=timeline", "?tab=settings"].map(
                (tab) => `/campaigns/${id}${tab}`,
            ),
            `/campaigns/${id}/trials/1`,
            `/campaigns/${id}/export`,
            "/new",
            "/plan",
            `/project?campaign=${id}&study=frontier-1t`,
            `/compare?trials=${id}/1,${id}/2`,
        ]) {
            const page = await openPage(browser, daemon.url, { theme, bypassCSP: true });
            await page.goto(daemon.link(route));
            await page.waitForSelector("main h1");
            await scrollThrough(page);
            found.push(...(await violations(page)));
            foreign += page.faults.filter((f) => f.startsWith("request to")).length;
            await page.context().close();
        }
    print("axe-core violations, serious or critical", found.length, "violations", 0, { found });
    print("external requests", foreign, "requests", 0);
}

// bench.mjs [PART ...]: all parts, or those named.
const asked = process.argv.slice(2);
const wanted = (part) => !asked.length || asked.includes(part);
if (wanted("weight")) weight();
const id = await updateTimes();
if (wanted("weight")) await firstVisit(id);
if (wanted("pages")) await pages(id);
if (wanted("heap")) await heap(id);
if (wanted("huge")) await hugeCampaign(id);
await browser.close();
await daemon.stop();
fs.rmSync(dir, { recursive: true, force: true });
process.exit(0);
