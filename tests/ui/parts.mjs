// Two kinds of devices in the dashboard: a plan says which part has which stages and whether mixing pays, offers no
// campaign that would be refused but one on each part, and refusals name the field.

import assert from "node:assert/strict";
import path from "node:path";
import { openBrowser, openPage, scrollThrough, show, violations } from "./browser.mjs";
import { scratch, startDaemon } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const pictures = process.env.PT_PICTURES; // a folder for pictures to look at
const dir = scratch("parts");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url);

const H100 = { profile: "dgx-h100", nodes: 2 };
const A100 = { profile: "dgx-a100", nodes: 4 };
const MIXED = { parts: [H100, A100], between: { gbs: 25 } };

const rowsOf = (label) => page.locator(`[aria-label='${label}'] tbody tr`);
const cellsOf = (row) => row.locator("th, td").allTextContents();
const textOf = () => page.locator("main").innerText();

/** Fill the job's cluster and batch in the form of the page. */
async function choose(cluster, batch) {
    await page.locator("select[id^=cluster]").selectOption("custom (JSON) …");
    await page.fill("textarea[aria-label='cluster as JSON']", JSON.stringify(cluster));
    await page.locator("label.field", { hasText: "Global batch" }).locator("input").fill(batch);
}

/** Rank the layouts of the default model on CLUSTER, and take the service's answer with what is shown. */
async function rank(cluster, batch, name) {
    await show(page, daemon, "/plan");
    await choose(cluster, batch);
    const answered = page.waitForResponse((r) => r.url().endsWith("/v1/plan"));
    await page.click("button:text-is('Rank layouts')");
    const answer = await (await answered).json();
    if (answer.legal !== undefined) await page.waitForSelector("text=legal layouts");
    await scrollThrough(page);
    if (pictures) await page.screenshot({ path: path.join(pictures, `${name}.png`), fullPage: true });
    return answer;
}

test("a plan on two parts says which part has which stages", async () => {
    const { items } = await rank(MIXED, "512", "parts");
    const { placement } = items[0];
    for (const [i, part] of placement.entries())
        assert.deepEqual(await cellsOf(rowsOf("table of stages on each part").nth(i)), [
            part.name,
            ...[part.stages, part.layers, part.devices].map(String),
        ]);
    const row = await rowsOf("table of ranked layouts").first().innerText();
    for (const { name, layers } of placement)
        assert.match(row, new RegExp(`${name}: \\d+ stages?, ${layers} layers`));
    assert.match(await textOf(), /25(\.0)? GB\/s per device between the parts, as the cluster says/);
});

test("and whether both are faster than either, or than two jobs", async () => {
    const { items, alone } = await rank(MIXED, "512", "parts-alone");
    const both = items[0].tokens_per_s;
    for (const [i, { name, devices, best }] of alone.entries()) {
        const cells = await cellsOf(rowsOf("table of each part alone").nth(i));
        assert.deepEqual(cells.slice(0, 2), [name, String(devices)]);
        assert.equal(cells[3], `${(both / best.tokens_per_s).toFixed(2)} ×`);
        assert.equal(cells[4], best.text);
    }
    const sum = alone[0].best.tokens_per_s + alone[1].best.tokens_per_s;
    assert.ok((await textOf()).includes(`${(sum / both).toFixed(2)} × that of one job over both`));
    assert.deepEqual(await violations(page), []);
});

test("no campaign over both is offered, but one on each part, which is accepted", async () => {
    const { alone } = await rank(MIXED, "512", "parts-campaign");
    assert.equal(await page.locator("button:text-is('Start a campaign')").count(), 0);
    assert.equal(await rowsOf("table of ranked layouts").locator("button").count(), 0);
    await rowsOf("table of each part alone").nth(1).locator("button").click();
    await page.waitForSelector("h1:text-is('New campaign')");
    const spec = JSON.parse(await page.inputValue("textarea[aria-label='the campaign as JSON']"));
    assert.deepEqual(spec.cluster, A100);
    assert.deepEqual(spec.baseline, alone[1].best.layout);
    const simulated = { ...spec, launcher: { kind: "simulated" } };
    const { baseline_rule: rule } = await daemon.api("POST", "v1/campaigns?dry_run=true", simulated);
    assert.equal(rule, "given");
});

test("without a link between them the answer says which was taken", async () => {
    await rank({ parts: [H100, A100] }, "512", "parts-between");
    assert.match(await textOf(), /the slower of their networks, since the cluster has no "between"/);
});

test("a refusal is shown at the cluster", async () => {
    await rank({ ...MIXED, between: { gbps: 25 } }, "512", "parts-refused");
    const field = page.locator(".field", { has: page.locator("textarea[aria-label='cluster as JSON']") });
    await field.locator(".field-error:has-text('gbps')").waitFor();
    assert.match(await field.locator(".field-error").innerText(), /did you mean "gbs"/);
});

test("a plan of one cluster has nothing of that", async () => {
    await rank(A100, "128", "parts-none");
    assert.equal(await rowsOf("table of each part alone").count(), 0);
    assert.ok((await page.locator("button:text-is('Start a campaign')").count()) > 0);
    assert.doesNotMatch(await textOf(), /each part|both parts/i);
});

test("no error in any page", () => {
    assert.deepEqual(page.faults, []);
});

const failed = await finish();
await browser.close();
await daemon.stop();
process.exit(failed ? 1 : 0);
