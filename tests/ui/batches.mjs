// Several batch sizes, world sizes and clusters in the dashboard: a form takes them, a plan and a campaign show each with
// its best layout, a campaign also which trials are whose and what each took of the budget; pages of one have no word of
// it.

import assert from "node:assert/strict";
import path from "node:path";
import { openBrowser, openPage, scrollThrough, show } from "./browser.mjs";
import { scratch, sql, startDaemon, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const pictures = process.env.PT_PICTURES; // a folder for pictures to look at
const dir = scratch("batches");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url);

const BATCHES = "table of batch sizes";
const RANKED = "table of ranked layouts";
const TRIALS = "[aria-label='Trials'] table";

const campaign = (name, batches, more) => ({
    name,
    model: "gpt-1.4B",
    cluster: { profile: "dgx-a100", nodes: 1 },
    trainer: "megatron",
    workload: { global_batch: batches, precision: "bf16" },
    budget: { trials: 10 },
    launcher: { kind: "simulated", speed: 1e6 },
    ...more,
});

async function finished(name, batches, more) {
    const { id } = await daemon.api("POST", "v1/campaigns", campaign(name, batches, more));
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

/** Head and rows of the table of a chart that is named TITLE. */
async function chartTable(title) {
    const panel = page.locator(".panel", { has: page.locator(`h2:text-is("${title}")`) });
    await panel.locator("button:text-is('Table')").click();
    const rows = panel.locator("table tr");
    await rows.nth(1).waitFor();
    return rows.evaluateAll((list) => list.map((r) => [...r.cells].map((c) => c.innerText.trim())));
}

test("what each batch size took of the budget adds up to the whole", async () => {
    const { id, batches, progress } = await finished("shares", [16, 64]);
    const sum = (of) => batches.reduce((all, row) => all + of(row), 0);
    assert.equal(
        sum((row) => row.trials),
        progress.trials,
    );
    assert.ok(Math.abs(sum((row) => row.device_s) / progress.device_s - 1) < 1e-9);
    await open(`/campaigns/${id}`, "shares");
    await rowsOf(BATCHES).nth(1).waitFor();
    const heads = (await headsOf(BATCHES)).map((text) => text.trim());
    for (const [i, { trials, best }] of batches.entries()) {
        const cells = await rowsOf(BATCHES).nth(i).locator("th, td").allTextContents();
        const share = Math.round((100 * trials) / progress.trials);
        assert.equal(cells[heads.indexOf("Trials")], `${trials} (${share} %)`);
        if (best) assert.match(cells[heads.indexOf("vs baseline")], /^[\d.]+ ?×/);
    }
});

test("a campaign over several world sizes shows the best of each, and which trials are whose", async () => {
    const { id, worlds } = await finished("worlds", 64, {
        space: { world: [4, 8] },
        objective: "tokens_per_s_per_device",
    });
    assert.deepEqual(
        worlds.map((row) => row.world),
        [4, 8],
    );
    await open(`/campaigns/${id}`, "worlds");
    for (const [i, row] of worlds.entries()) {
        const text = await rowsOf("table of world sizes").nth(i).innerText();
        assert.ok(text.startsWith(String(row.world)), text);
        assert.ok(text.includes(row.best ? `trial ${row.best.trial}` : "none yet"), text);
    }
    const [head, ...rows] = await chartTable("Best so far");
    const at = head.findIndex((title) => title.toLowerCase() === "world");
    const { items } = await daemon.api("GET", `v1/campaigns/${id}/trials?sort=n`);
    assert.deepEqual(
        rows.map((cells) => Number(cells[at])),
        items.map((trial) => trial.layout.world),
    );
    await page.locator(`${TRIALS} tbody tr`).first().waitFor();
    const heads = await page.locator(`${TRIALS} thead th`).allInnerTexts();
    assert.ok(
        heads.some((text) => /^World/i.test(text)),
        heads.join("; "),
    );
});

test("a campaign over several clusters shows the best of each, compared by what tokens cost", async () => {
    const { id, clusters, best } = await finished("clusters", 64, {
        cluster: [
            { profile: "dgx-h100", nodes: 1, price_per_device_hour: 9 },
            { profile: "dgx-a100", nodes: 1, price_per_device_hour: 1 },
        ],
        objective: "tokens_per_cost",
    });
    assert.deepEqual(
        clusters.map((row) => row.cluster),
        ["dgx-h100", "dgx-a100"],
    );
    await open(`/campaigns/${id}`, "clusters");
    for (const [i, row] of clusters.entries()) {
        const text = await rowsOf("table of clusters").nth(i).innerText();
        assert.ok(text.startsWith(row.cluster), text);
        assert.ok(text.includes(row.best ? `trial ${row.best.trial}` : "none yet"), text);
    }
    const heads = (await headsOf("table of clusters")).map((text) => text.trim());
    for (const [i, row] of clusters.entries()) {
        const cells = await rowsOf("table of clusters").nth(i).locator("th, td").allTextContents();
        const each = plain(cells[heads.indexOf("Tokens/s per device")]);
        assert.equal(each, Math.round(row.best.tokens_per_s / row.best.devices));
        const cost = Number(cells[heads.indexOf("Cost per million tokens")]);
        assert.ok(Math.abs(cost / row.best.cost_per_mtok - 1) < 0.01, `${heads}; ${cells}`);
    }
    assert.match(await page.locator("main").innerText(), /clusters dgx-h100, dgx-a100/);
    const [head, ...rows] = await chartTable("Best so far");
    const at = head.findIndex((title) => title.toLowerCase() === "cluster");
    const { items } = await daemon.api("GET", `v1/campaigns/${id}/trials?sort=n`);
    assert.deepEqual(
        rows.map((cells) => cells[at]),
        items.map((trial) => trial.layout.cluster),
    );
    // What a trial is worth next to the baseline is the service's own ratio of the best.
    const trials = page.locator(`${TRIALS} tbody tr`);
    await trials.first().waitFor();
    const titles = (await page.locator(`${TRIALS} thead th`).allInnerTexts()).map((text) => text.trim());
    const winner = page.locator(`${TRIALS} tbody tr`, { has: page.locator(`a:text-is("${best.trial}")`) });
    const cells = await winner.first().locator("th, td").allTextContents();
    const gain = titles.findIndex((text) => /^vs baseline/i.test(text));
    assert.equal(parseFloat(cells[gain]).toFixed(1), best.ratio.toFixed(1), `${titles}; ${cells}`);
});

const panelOf = (title) => page.locator(".panel", { has: page.locator(`h2:has-text("${title}")`) });

test("the page of a trial on another cluster than the baseline's says what the cluster brings", async () => {
    const { id, best } = await finished("why", 64, {
        cluster: [
            { profile: "dgx-a100", nodes: 1 },
            { profile: "dgx-h100", nodes: 1 },
        ],
    });
    const why = await daemon.api("GET", `v1/campaigns/${id}/trials/${best.trial}/why`);
    assert.equal(why.clusters.to, "dgx-h100");
    await open(`/campaigns/${id}/trials/${best.trial}`, "why");
    const found = panelOf("Why it is faster than the baseline");
    await found.locator("table").first().waitFor();
    const text = await found.innerText();
    assert.match(text, /It ran on dgx-h100, the baseline on dgx-a100/);
    assert.match(text, /This layout on dgx-h100 instead of dgx-a100, expected: [\d.]+ % faster, a step takes/);
    const row = found.locator("tr", { has: page.locator(":text-is('cluster')") });
    assert.match(await row.innerText(), /cluster\s+dgx-a100\s+dgx-h100\s+−/);
});

test("a projection of a campaign over several clusters is from the one that is chosen", async () => {
    const { id, clusters } = await finished("projected", 64, {
        cluster: [
            { profile: "dgx-a100", name: "old", nodes: 1 },
            { profile: "dgx-h100", name: "new", nodes: 1 },
        ],
    });
    await open(`/project?campaign=${id}`, "project");
    const choice = page.locator("label.field", { hasText: /^Cluster/ }).locator("select").first();
    assert.deepEqual(await choice.locator("option").allTextContents(), ["old", "new"]);
    for (const { cluster, best } of clusters) {
        await choice.selectOption(cluster);
        await page.locator("button:text-is('Project')").first().click();
        const rate = Math.round(best.tokens_per_s).toLocaleString("en");
        await page.locator(`text=Simulated: ${rate} tokens/s on 8 devices`).waitFor();
    }
});

// A trial of a cluster that the campaign does not name: only a damaged database has one.
test("where there is no explanation the page of a trial shows the reason", async () => {
    const { id, best } = await finished("no reason", 64, {
        cluster: [
            { profile: "dgx-a100", nodes: 1 },
            { profile: "dgx-h100", nodes: 1 },
        ],
    });
    sql(
        daemon.data,
        `.timeout 5000
        UPDATE trial SET layout = json_set(layout, '$.cluster', 'gone') WHERE campaign = '${id}' AND n = ${best.trial};`,
    );
    await open(`/campaigns/${id}/trials/${best.trial}`, "no-why");
    const found = panelOf("Compared with the baseline");
    await found.locator("text=one of the campaign's clusters").waitFor();
});

test("a comparison has a row for each batch and world size", async () => {
    const several = await finished("compared", [16, 64]);
    const one = await finished("compared with one", 64, { space: { world: [4, 8] } });
    await open(`/compare?campaigns=${several.id},${one.id}`, "compare");
    const cells = async (title) =>
        page.locator("tr", { has: page.locator(`th:has-text("${title}")`) }).first().locator("td").allTextContents();
    const rateOf = (best) => (best ? Math.round(best.tokens_per_s).toLocaleString("en") : "–");
    const first = await cells("Best at global batch 64");
    assert.ok(first[0].startsWith(rateOf(several.batches[1].best)), first.join("; "));
    assert.ok(first[1].startsWith(rateOf(one.best)), first.join("; "));
    assert.equal((await cells("Best at global batch 16"))[1], "–");
    const world = await cells("Best at world 8");
    assert.ok(world[1].startsWith(rateOf(one.worlds[1].best)), world.join("; "));
    assert.ok(world[0].startsWith(rateOf(several.best)), world.join("; ")); // all eight devices
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
