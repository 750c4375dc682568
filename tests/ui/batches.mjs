// Several batch sizes in the dashboard: a form takes them, a plan and a campaign show each with its best layout, and
// pages of one batch size have no word of it.

import assert from "node:assert/strict";
import path from "node:path";
import { openBrowser, openPage, scrollThrough, show } from "./browser.mjs";
import { scratch, startDaemon, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const pictures = process.env.PT_PICTURES; // a folder for pictures to look at
const dir = scratch("batches");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url);

const BATCHES = "table of batch sizes";
const RANKED = "table of ranked layouts";
const TRIALS = "[aria-label='Trials'] table";

const campaign = (name, batches) => ({
    name,
    model: "gpt-1.4B",
    cluster: { profile: "dgx-a100", nodes: 1 },
    trainer: "megatron",
    workload: { global_batch: batches, precision: "bf16" },
    budget: { trials: 10 },
    launcher: { kind: "simulated", speed: 1e6 },
});

async function finished(name, batches) {
    const { id } = await daemon.api("POST", "v1/campaigns", campaign(name, batches));
    const get = () => daemon.api("GET", `v1/campaigns/${id}`);
    await until(async () => (await get()).state === "done", `the end of ${name}`);
    return get();
}

async function open(route, name) {
    await show(page, daemon, route);
    await scrollThrough(page);
    if (pictures)
        await page.screenshot({ path: path.join(pictures, `${name}.png`), fullPage: true });
}

const rowsOf = (label) => page.locator(`[aria-label='${label}'] tbody tr`);
const headsOf = (label) => page.locator(`[aria-label='${label}'] thead th`).allTextContents();
const plain = (number) => Number(number.replaceAll(",", ""));

async function rank(batches) {
    await page.locator("label.field", { hasText: "Global batch" }).locator("input").fill(batches);
    await page.click("button:text-is('Rank layouts')");
    await page.waitForSelector("text=legal layouts", { timeout: 300_000 });
}

test("a plan of several batch sizes has a column and the best of each", async () => {
    await open("/plan", "plan");
    await rank("64, 512");
    await rowsOf(BATCHES).nth(1).waitFor();
    assert.ok((await headsOf(RANKED)).includes("Global batch"));
    const cells = await rowsOf(BATCHES).nth(1).locator("th, td").allTextContents();
    assert.equal(cells[0], "512");
    assert.match(cells[3], / gb512/);
    assert.ok(plain(cells[1]) > 0 && plain(cells[2]) > 0, cells.join("; "));
    await rowsOf(BATCHES).nth(0).locator("button").click();
    await page.waitForSelector("h1:text-is('New campaign')");
    const spec = JSON.parse(await page.inputValue("textarea[aria-label='the campaign as JSON']"));
    assert.deepEqual(spec.workload.global_batch, [64, 512]);
    assert.equal(spec.baseline.global_batch, 64);
});

test("the form of a campaign takes one batch size as a number", async () => {
    const field = page.locator("label.field", { hasText: "Global batch" }).locator("input");
    const spec = async () =>
        JSON.parse(await page.inputValue("textarea[aria-label='the campaign as JSON']"));
    assert.equal(await field.inputValue(), "64, 512");
    await field.fill("128");
    assert.equal((await spec()).workload.global_batch, 128);
    await field.fill("128 256");
    assert.deepEqual((await spec()).workload.global_batch, [128, 256]);
    await field.fill("128 128");
    await page.waitForSelector("text=listed twice");
});

test("a plan of one batch size has neither", async () => {
    await open("/plan", "plan-one");
    await rank("64");
    await rowsOf(RANKED).first().waitFor();
    assert.ok(!(await headsOf(RANKED)).includes("Global batch"));
    assert.equal(await rowsOf(BATCHES).count(), 0);
});

test("a campaign shows the best of each batch size, and each trial's", async () => {
    const { id, batches } = await finished("several batches", [16, 64]);
    await open(`/campaigns/${id}`, "campaign");
    await rowsOf(BATCHES).nth(1).waitFor();
    for (const [i, { global_batch: batch, best }] of batches.entries()) {
        const text = await rowsOf(BATCHES).nth(i).innerText();
        assert.ok(text.startsWith(String(batch)), text);
        assert.ok(!best || text.includes(`trial ${best.trial}`), text);
    }
    assert.ok(batches.some(({ best }) => best));
    assert.match(await page.locator("main").innerText(), /16, 64 sequences per step/);
    await page.locator(`${TRIALS} tbody tr`).first().waitFor();
    const heads = await page.locator(`${TRIALS} thead th`).allInnerTexts();
    assert.ok(
        heads.some((text) => /Global batch/i.test(text)),
        heads.join("; "),
    );
});

test("a campaign of one batch size has neither", async () => {
    const { id, batches } = await finished("one batch", 16);
    assert.equal(batches, undefined);
    await open(`/campaigns/${id}`, "campaign-one");
    await page.locator(`${TRIALS} tbody tr`).first().waitFor();
    assert.equal(await rowsOf(BATCHES).count(), 0);
    const heads = await page.locator(`${TRIALS} thead th`).allInnerTexts();
    assert.ok(!heads.some((text) => /Global batch/i.test(text)));
});

test("no error in any page", () => {
    assert.deepEqual(page.faults, []);
});

const failed = await finish();
await browser.close();
await daemon.stop();
process.exit(failed ? 1 : 0);
