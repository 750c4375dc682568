// Trials of smaller problems in the dashboard: what they ran and cost, and that what they let expect of a layout is never
// shown as a measurement of it.

import assert from "node:assert/strict";
import path from "node:path";
import { openBrowser, openPage, scrollThrough, show } from "./browser.mjs";
import { scratch, startDaemon, tinyCampaign, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const pictures = process.env.PT_PICTURES; // a folder for pictures to look at
const dir = scratch("fidelity");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url);

const device = { kind: "cpu", memory_gib: 1, peak_tflops: { fp32: 1 }, memory_gbs: 10 };
const { id } = await daemon.api(
    "POST",
    "v1/campaigns",
    tinyCampaign("eight ranks, most trials on one", {
        model: { name: "tiny", layers: 8, hidden: 64, heads: 4, ffn: 128, vocab: 256, seq: 64 },
        cluster: {
            nodes: 1,
            devices_per_node: 8,
            oversubscribe: true,
            device,
            links: [{ span: 8, gbs: 5 }],
        },
        workload: { global_batch: 16 },
        space: { world: [8], tp: [1, 2], micro_batch: [1, 2], zero: [0], pp: [1] },
        budget: { trials: 7 },
        trial: { warmup_steps: 1, min_steps: 3, max_steps: 4, ci: 0.2, fidelity: "auto" },
    }),
);
const campaign = () => daemon.api("GET", `v1/campaigns/${id}`);
await until(async () => (await campaign()).state === "done", "the campaign", 600_000);
const { items: trials } = await daemon.api("GET", `v1/campaigns/${id}/trials`);
const smaller = trials.find((t) => t.fidelity && t.state === "ok");

async function open(route, name) {
    await show(page, daemon, route);
    await page.waitForTimeout(500);
    await scrollThrough(page);
    await scrollThrough(page);
    await page.waitForTimeout(500);
    if (pictures)
        await page.screenshot({ path: path.join(pictures, `${name}.png`), fullPage: true });
    return page.evaluate(() => document.body.innerText);
}

test("a campaign says how many trials were smaller and what they cost", async () => {
    const text = await open(`/campaigns/${id}`, "campaign");
    const { progress } = await campaign();
    assert.ok(progress.smaller_trials >= 2 && progress.smaller_device_s < progress.device_s / 2);
    assert.match(text, new RegExp(`${progress.smaller_trials} smaller`));
    assert.match(text, /device-(s|min) of it by \d+ smaller trials/);
});

test("the table of trials marks what is inferred, and says what ran", async () => {
    const row = page.locator("tbody tr", { has: page.locator(`a:text-is("${smaller.n}")`) });
    const text = await row.first().innerText();
    assert.match(text, /~ [\d,.]+ ?[MGT]? inferred/);
    assert.match(text, /\d+ layers, global batch \d+, \d of 8 devices/);
    assert.equal(smaller.tokens_per_s, null);
});

test("the chart's table has measured and inferred rates in columns of their own", async () => {
    await page.locator(".panel button:text-is('Table'):visible").first().click();
    const table = page.locator(".panel table:visible", { hasText: "inferred tokens/s" }).first();
    const cell = page.locator(`th:text-is("${smaller.n}"), td:text-is("${smaller.n}")`);
    await table.locator("tr", { has: cell }).first().waitFor(); // charts and tables come with the data
    const [head, ...rows] = await table
        .locator("tr")
        .evaluateAll((list) => list.map((r) => [...r.cells].map((c) => c.innerText.trim())));
    const at = (name) => head.findIndex((title) => title.toLowerCase() === name);
    const row = rows.find((cells) => cells[at("trial")] === String(smaller.n));
    assert.equal(Number.isFinite(Number.parseFloat(row[at("tokens/s")])), false);
    assert.ok(Number.parseFloat(row[at("inferred tokens/s")]) > 0);
    const baseline = rows.find((cells) => cells[at("trial")] === "1");
    assert.ok(Number.parseFloat(baseline[at("tokens/s")]) > 0);
});

test("a smaller trial's page tells its run from its layout", async () => {
    const text = await open(`/campaigns/${id}/trials/${smaller.n}`, "trial");
    assert.match(text, /inferred from smaller trials, 95 %:/);
    assert.match(text, /Ran\s+\d+ layers, global batch \d+, \d of 8 devices/);
    assert.match(text, /Measured\s+[\d,.]+ ?[MGT]? tokens\/s at that size/);
    assert.match(text, /of the smaller problem/);
    assert.doesNotMatch(text, /Run again/); // an export of a layout that was not measured
});

test("a trial of the full size says nothing of that", async () => {
    const text = await open(`/campaigns/${id}/trials/1`, "baseline");
    assert.doesNotMatch(text, /inferred|smaller problem/i);
    assert.match(text, /Run again/);
});

test("a comparison tells them apart", async () => {
    const text = await open(`/compare?trials=${id}/1,${id}/${smaller.n}`, "compare");
    assert.match(text, /Inferred[\s≠]+–\s+[\d,.]+/);
    assert.match(text, /Ran[\s≠]+the full size\s+\d+ layers/);
});

test("no error in any page", () => {
    assert.deepEqual(page.faults, []);
});

const failed = await finish();
await browser.close();
await daemon.stop();
process.exit(failed ? 1 : 0);
