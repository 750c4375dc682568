// The dashboard without its chart library, as a build without Vega makes it: every chart is a table with the
// same data, and the page says why. The module in its place is the one that such a build writes; the campaign is
// real.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { openBrowser, openPage, scrollThrough, show, violations } from "./browser.mjs";
import { scratch, startDaemon, tinyCampaign, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const ui = path.join(process.env.PT_SRC, "web", "ui");
const dir = scratch("tables");
const standIn = path.join(dir, "web", "vendor", "vega.min.js");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url, { bypassCSP: true });
let id = "";

const visit = (route) => show(page, daemon, route);
const tab = (name) => page.click(`[role=tab]:text-is("${name}")`);
const panel = (title) =>
    page.locator("section.panel", { has: page.locator(`h2:text-is("${title}")`) });

/** The rows of the table that PANEL TITLE shows by itself; its chart must be out of sight. */
async function rowsOf(title) {
    const place = panel(title);
    await place.scrollIntoViewIfNeeded();
    const table = place.locator(".chart-table table");
    await table.waitFor({ state: "visible" });
    assert.equal(await place.locator("canvas, .chart:visible").count(), 0, title);
    assert.notEqual((await table.locator("caption").textContent()).trim(), "", title);
    assert.ok((await table.locator("thead th[scope=col]").count()) > 1, title);
    const rows = await table
        .locator("tbody tr")
        .evaluateAll((list) => list.map((r) => [...r.cells].map((c) => c.textContent)));
    assert.ok(rows.length > 0, title);
    return rows;
}

async function accessible() {
    await scrollThrough(page);
    assert.deepEqual(await violations(page), []);
}

test("a build without Vega writes a module without charts", () => {
    const said = execFileSync("sh", [path.join(ui, "build-vendor.sh"), ui, standIn, dir], {
        encoding: "utf8",
    });
    assert.match(said, /^dashboard: tables in place of charts; .*\n$/);
    assert.match(fs.readFileSync(standIn, "utf8"), /export const View = null/);
});

test("a campaign ends", async () => {
    await page.route("**/vendor/vega.min.js", (route) =>
        route.fulfill({ contentType: "text/javascript", body: fs.readFileSync(standIn, "utf8") }),
    );
    id = (await daemon.api("POST", "v1/campaigns", tinyCampaign("tables"))).id;
    await until(
        async () => (await daemon.api("GET", `v1/campaigns/${id}`)).state === "done",
        "the end of the campaign",
        900_000,
    );
});

test("the overview is a table with a row for each trial, and one line says why", async () => {
    await visit(`/campaigns/${id}`);
    const trials = (await daemon.api("GET", `v1/campaigns/${id}/trials`)).items;
    const rows = await rowsOf("Best so far");
    assert.deepEqual(
        rows.map((r) => [r[0], r[1], r[2]]),
        trials.sort((a, b) => a.n - b.n).map((t) => [String(t.n), t.text, t.state]),
    );
    assert.match(await page.textContent(".no-charts"), /^Charts are shown as tables/);
    assert.equal(await panel("Best so far").locator("button:visible").count(), 1); // CSV
    await accessible();
});

test("the table follows the campaign", async () => {
    const live = (
        await daemon.api("POST", "v1/campaigns", tinyCampaign("live", { budget: { trials: 4 } }))
    ).id;
    await visit(`/campaigns/${live}`);
    await until(
        async () => (await panel("Best so far").locator(".chart-table tbody tr").count()) >= 3,
        "rows of later trials",
        600_000,
    );
    await until(
        async () => (await daemon.api("GET", `v1/campaigns/${live}`)).state === "done",
        "its end",
        600_000,
    );
});

test("the tabs of a campaign show tables, and values are chosen without a chart", async () => {
    await visit(`/campaigns/${id}`);
    await tab("Space");
    for (const title of ["Layouts, parallel coordinates", "Parameter importance", "Surrogate"])
        await rowsOf(title);
    await page.click("summary:text-is('Select by value')");
    await page
        .locator("details[open] label.field select") // of a key that differs between the trials
        .first()
        .selectOption({ index: 1 });
    await page.waitForSelector("text=/of \\d+ selected/");
    await tab("Model and memory");
    for (const title of [
        "Throughput, predicted and measured",
        "Memory, predicted and measured",
        "Throughput and memory",
    ])
        await rowsOf(title);
    await tab("Timeline");
    await rowsOf("Trials over time");
    await accessible();
});

test("a trial's charts are tables", async () => {
    const { best } = await daemon.api("GET", `v1/campaigns/${id}`);
    const steps = (await daemon.api("GET", `v1/campaigns/${id}/trials/${best.trial}/steps`)).items;
    await visit(`/campaigns/${id}/trials/${best.trial}`);
    assert.equal((await rowsOf("Step time")).length, steps.length);
    for (const title of [
        "Distribution of step times",
        "Phases of each step",
        "Memory of the worst rank",
        "Spread over ranks",
        "Busy time by rank",
        "Timeline of one step",
    ])
        await rowsOf(title);
    await accessible();
});

test("a plan, a projection and a comparison are tables", async () => {
    await visit("/plan");
    await page.click("button:text-is('Rank layouts')");
    await page.waitForSelector("text=legal layouts", { timeout: 300_000 });
    await rowsOf("Step time by phase");
    await visit(`/compare?trials=${id}/1,${id}/2`);
    await page.waitForSelector("text=vs first");
    await rowsOf("Phases of the median step");
});

test("no error in the page", () => {
    assert.deepEqual(page.faults, []);
});

const failed = await finish({
    onFail: (name) =>
        page.screenshot({ path: `${dir}/${name.replace(/\W+/g, "-").slice(0, 60)}.png` }),
});
await browser.close();
await daemon.stop();
if (failed === 0) fs.rmSync(dir, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
