// What an engineer feels, measured in Chromium against the real daemon: one JSON object a line.

import zlib from "node:zlib";
import fs from "node:fs";
import path from "node:path";
import { openBrowser, openPage } from "./browser.mjs";
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

// The end of a trial, until the row says so: both clocks are this machine's.
async function updateTimes() {
    const c = await daemon.api(
        "POST",
        "v1/campaigns",
        tinyCampaign("bench", { budget: { trials: 8 } }),
    );
    const page = await openPage(browser, daemon.url);
    await page.goto(daemon.link(`/campaigns/${c.id}`));
    await page.waitForSelector("main h1");
    await page.evaluate(() => {
        window.seen = {};
        new MutationObserver(() => {
            for (const row of document.querySelectorAll("section[aria-label=Trials] tbody tr")) {
                const n = row.querySelector("th")?.textContent;
                if (n && !(n in window.seen) && !row.querySelector(".badge.run, .badge.wait")) {
                    window.seen[n] = 0;
                    requestAnimationFrame(() => {
                        window.seen[n] = Date.now();
                    });
                }
            }
        }).observe(document.body, { subtree: true, childList: true, characterData: true });
    });
    await until(
        async () =>
            ["done", "failed"].includes((await daemon.api("GET", `v1/campaigns/${c.id}`)).state),
        "the campaign",
        300_000,
    );
    await page.waitForTimeout(800);
    const seen = await page.evaluate(() => window.seen);
    const trials = (await daemon.api("GET", `v1/campaigns/${c.id}/trials`)).items;
    const delays = trials
        .filter((t) => t.ended && seen[t.n])
        .map((t) => seen[t.n] - Date.parse(t.ended));
    await page.context().close();
    print("update, trial end to pixels", median(delays), "ms", 500, {
        worst: Math.max(...delays),
        trials: delays.length,
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
    await page.context().close();
}

// The updates of two hours as fast as the page takes them: in the first the page fills its charts and the engine compiles
// what is used often; in the second the heap should stay as it is.
async function heap(id) {
    const page = await openPage(browser, daemon.url);
    const trial = (await daemon.api("GET", `v1/campaigns/${id}/trials?sort=-n&page_size=1`))
        .items[0];
    const campaign = await daemon.api("GET", `v1/campaigns/${id}`);
    const step = (await daemon.api("GET", `v1/campaigns/${id}/trials/${trial.n}/steps`)).items[0];
    let sent = 0;
    let gate = () => {};
    await page.route("**/v1/campaigns/*/events", async (route) => {
        await new Promise((resolve) => {
            gate = resolve;
        });
        let text = "";
        for (let i = 0; i < HOUR_OF_UPDATES / 8; i++) {
            sent += 1;
            text += `event: step\nid: ${sent}\ndata: ${JSON.stringify({ campaign: id, n: trial.n, step: { ...step, n: 1 + (sent % 500) } })}\n\n`;
            if (i % 20 === 0)
                text += `event: trial\nid: ${sent}\ndata: ${JSON.stringify({ ...trial, rev: sent })}\n\nevent: campaign\nid: ${sent}\ndata: ${JSON.stringify(campaign)}\n\n`;
        }
        await route
            .fulfill({ status: 200, contentType: "text/event-stream", body: text })
            .catch(() => {});
    });
    await page.goto(daemon.link(`/campaigns/${id}/trials/${trial.n}`));
    await page.waitForSelector("main h1");
    const session = await page.context().newCDPSession(page);
    const sizes = [];
    for (let batch = 0; batch < 16; batch++) {
        await page.waitForTimeout(1200);
        gate();
        await page.waitForTimeout(2500);
        await session.send("HeapProfiler.collectGarbage");
        sizes.push((await session.send("Runtime.getHeapUsage")).usedSize / 1048576);
    }
    await page.context().close();
    print(
        "heap after the second hour of updates, over that after the first",
        sizes.at(-1) / sizes[7],
        "ratio",
        1.05,
        { updates: sent, mib: sizes.map((s) => Number(s.toFixed(1))) },
    );
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
        .filter((f) => f !== "echarts-entry.js")
        .reduce((sum, f) => {
            const file = [path.join(ui, f), path.join(built, f)].find((x) => fs.existsSync(x));
            return sum + zlib.gzipSync(fs.readFileSync(file), { level: 9 }).length;
        }, 0);
    print("all files, compressed", size / 1024, "KB", 450);
}

weight();
const id = await updateTimes();
await firstVisit(id);
await heap(id);
await hugeCampaign(id);
await browser.close();
await daemon.stop();
fs.rmSync(dir, { recursive: true, force: true });
process.exit(0);
