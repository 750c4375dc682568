// A simulated campaign never reads like a measurement: every page that shows it says that it is simulated, and neither
// its text, nor its charts and their tables, say that anything was measured, verified or saved.

import assert from "node:assert/strict";
import path from "node:path";
import { openBrowser, openPage, scrollThrough, show } from "./browser.mjs";
import { scratch, startDaemon, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const pictures = process.env.PT_PICTURES; // a folder for pictures to look at
const dir = scratch("simulated");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url);
// Charts are pictures: what they write is taken down while they draw it.
await page.addInitScript(() => {
    window.painted = new Set();
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
        window.painted.add(String(text));
        return fillText.call(this, text, ...place);
    };
});

const campaign = (name, search = {}) => ({
    name,
    model: "gpt-1.4B",
    cluster: { profile: "dgx-a100", nodes: 1 },
    trainer: "megatron",
    workload: { global_batch: 16, precision: "bf16" },
    budget: { trials: 8 },
    launcher: { kind: "simulated", speed: 1e6 },
    search: { seed: 3, ...search },
});

async function dry(name, search) {
    const { id } = await daemon.api("POST", "v1/campaigns", campaign(name, search));
    const state = async () => (await daemon.api("GET", `v1/campaigns/${id}`)).state;
    await until(async () => (await state()) === "done", `the end of ${name}`);
    return id;
}

/** All that a person can read on the page: its text, what it says on hovering and aloud, and what its charts write. */
async function readable() {
    return page.evaluate(() => {
        const said = [...document.querySelectorAll("[title], [aria-label]")].flatMap((x) => [
            x.title,
            x.getAttribute("aria-label"),
        ]);
        return [document.title, document.body.innerText, ...said, ...window.painted]
            .filter(Boolean)
            .join("\n");
    });
}

const FALSE = /.*\b(?:measured|saved|verified)\b.*/gi;

async function look(name, { allowed = /$^/ } = {}) {
    await scrollThrough(page);
    await scrollThrough(page);
    for (const button of await page.locator(".panel button:text-is('Table'):visible").all())
        await button.click();
    await page.waitForTimeout(200);
    const text = await readable();
    if (pictures) await page.screenshot({ path: path.join(pictures, `${name}.png`), fullPage: true });
    assert.deepEqual(
        (text.match(FALSE) ?? []).filter((line) => !allowed.test(line)),
        [],
        name,
    );
    assert.match(text, /simulated/i, name);
    return text;
}

const visit = async (route) => {
    await show(page, daemon, route);
    await page.waitForTimeout(500);
};

/** What the table of "Parameter importance" lists besides keys of the layout; it lists some. */
async function unknownShares() {
    const names = await page
        .locator(".panel:has(:text-is('Parameter importance')) .chart-table tbody tr > :first-child")
        .allTextContents();
    assert.ok(names.length > 0, "no share at all");
    const { components } = await daemon.api("GET", "openapi.json");
    return names.filter((name) => !(name in components.schemas.Layout.properties));
}

let id = "";
let later = "";

test("a simulated campaign runs, is verified, and warm-starts another", async () => {
    id = await dry("dry one");
    await daemon.api("POST", `v1/campaigns/${id}:verify`, { pairs: 3 });
    await until(
        async () => (await daemon.api("GET", `v1/campaigns/${id}`)).verify?.verdict,
        "its verdict",
    );
    later = await dry("dry two", { warm_start: [id] });
});

test("the list marks it, and claims no saving", async () => {
    await visit("/campaigns");
    await page.waitForSelector("tbody tr");
    await look("campaigns");
    assert.equal(await page.locator("tbody tr .badge:text-is('simulated')").count(), 2);
});

for (const tab of ["overview", "space", "model", "timeline", "settings"])
    test(`the campaign's view ${tab}`, async () => {
        await visit(`/campaigns/${id}?tab=${tab}`);
        await page.waitForTimeout(1500);
        // The profile of the cluster says whether its links were measured.
        const text = await look(`campaign-${tab}`, { allowed: /^ *"measured": false,?$/ });
        assert.equal(await page.locator(".head .badge:text-is('simulated')").count(), 1);
        if (tab === "overview") assert.match(text, /^simulated tokens\/s$/m, "the axis of the chart");
        if (tab === "overview") assert.match(text, /simulated again(, interleaved|: the winner is the baseline)/);
        if (tab === "space") assert.deepEqual(await unknownShares(), [], "shares of other than layout keys");
    });

test("a campaign warm-started from simulated trials says so", async () => {
    await visit(`/campaigns/${later}`);
    assert.match(await look("campaign-later"), /informed by \d+ trials .*, \d+ of them simulated/);
});

test("a trial", async () => {
    await visit(`/campaigns/${id}/trials/2`);
    await page.waitForTimeout(1000);
    const text = await look("trial");
    assert.match(text, /--allow-simulated/);
    assert.match(text, /Why it is (faster|slower) than the baseline/);
    assert.match(text, /Simulated: /);
    await page.click("button:text-is('Show the configuration')");
    await page.waitForSelector("pre.code:has-text('\"simulated\": true')");
    await look("trial-export", { allowed: /^ *"(measured": false|verified": "no"),?$/ });
});

test("a simulated export asks first", async () => {
    await visit(`/campaigns/${id}/export?to=megatron`);
    await page.waitForSelector("text=no training job has run this layout");
    assert.equal(await page.locator("pre.code").count(), 0);
    await page.click("label:has-text('although simulated')");
    await page.click("label:has-text('even if settings are lost')");
    await page.waitForSelector("pre.code:has-text('SIMULATED')");
    await look("export", { allowed: /^# verified: no/ });
});

test("trials and campaigns side by side", async () => {
    await visit(`/compare?trials=${id}/1,${id}/2`);
    await page.waitForSelector("text=vs first");
    await look("compare-trials");
    await visit(`/compare?campaigns=${id},${later}`);
    await page.waitForTimeout(1000);
    await look("compare-campaigns");
});

test("a simulated and a real one are told apart in a comparison", async () => {
    const real = await daemon.api("POST", "v1/campaigns", {
        ...campaign("real one"),
        launcher: { kind: "remote" },
    });
    await visit(`/compare?campaigns=${id},${real.id}`);
    await page.waitForSelector("text=is not a measurement");
});

test("a projection", async () => {
    await visit(`/project?campaign=${id}`);
    await page.fill("fieldset input", "8, 16");
    await page.click("button:text-is('Project')");
    await page.waitForSelector("text=Calibrated on");
    const text = await look("project");
    assert.match(text, /Calibrated on \d+ trials \(all simulated\)/);
});

test("no error in any page", () => {
    assert.deepEqual(page.faults, []);
});

const failed = await finish();
await browser.close();
await daemon.stop();
process.exit(failed ? 1 : 0);
