// Ten thousand trials in the daemon's own database, made from those of a real campaign.

import assert from "node:assert/strict";
import fs from "node:fs";
import { inked, openBrowser, openPage, show, violations } from "./browser.mjs";
import { multiply, scratch, startDaemon, tinyCampaign, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const COUNT = 10_000;
const LONG =
    `</script><script>alert(1)</script> \u202E\u05D0\u05D1 ${"<svg onload=alert(2)>".repeat(500)}`.slice(
        0,
        10_000,
    );

const dir = scratch("huge");
const daemon = await startDaemon(dir);
const seed = await daemon.api(
    "POST",
    "v1/campaigns",
    tinyCampaign("seed", { budget: { trials: 3 } }),
);
await until(
    async () =>
        ["done", "failed"].includes((await daemon.api("GET", `v1/campaigns/${seed.id}`)).state),
    "the seed campaign",
    240_000,
);
await daemon.kill();
multiply(daemon.data, seed.id, "huge0001", LONG, COUNT);
await daemon.restart();

const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url);
const chart = page.locator("section.panel", { has: page.locator("h2:text-is('Best so far')") });

test("a campaign of ten thousand trials is shown, a page of its table at a time", async () => {
    await page.goto(daemon.link("/campaigns/huge0001"));
    await page.waitForSelector("tbody tr");
    assert.equal(await page.locator("section[aria-label=Trials] tbody tr").count(), 100);
    await page.waitForSelector(`text=of ${COUNT.toLocaleString("en")}`);
    await page.click("button:text-is('Next')");
    await page.waitForSelector("text=101–200 of");
    await page.evaluate(() => {
        const next = [...document.querySelectorAll("button")].find((b) => b.textContent === "Next");
        next.click(); // twice before the answer is there: one page on
        next.click();
    });
    await page.waitForSelector("text=201–300 of");
    await page.waitForTimeout(300);
    assert.equal(await page.textContent("section[aria-label=Trials] tbody tr th"), String(COUNT - 200));
});

test("its chart holds at most a few thousand points, the best and every kind of failure among them", async () => {
    await chart.scrollIntoViewIfNeeded();
    await chart.locator("canvas").waitFor();
    await until(async () => (await inked(chart.locator("canvas"))) > 500, "the chart");
    await chart.locator("button:text-is('Table')").click();
    await chart.locator(`text=The first 500 of ${COUNT} rows`).waitFor({ timeout: 60_000 });
    const best = (
        await daemon.api("GET", "v1/campaigns/huge0001/trials?sort=-tokens_per_s&page_size=1")
    ).items[0];
    const fast = best.tokens_per_s;
    const shown = fast < 1000 ? fast.toPrecision(4) : Math.round(fast).toLocaleString("en");
    const label = await until(async () => {
        const text = await chart.locator(".chart-canvas").getAttribute("aria-label");
        return text.includes(shown) && text;
    }, "the best in the chart's summary");
    assert.match(label, /10,000 trials/);
});

test("a filter by state asks the service", async () => {
    await page.selectOption("label:has-text('State') select", "oom");
    const total = (await daemon.api("GET", "v1/campaigns/huge0001/trials?state=oom&page_size=1"))
        .total;
    assert.equal(total, Math.floor(COUNT / 17));
    await page.waitForSelector(`text=of ${total}`);
});

test("every view of it can be drawn", async () => {
    for (const name of ["Space", "Model and memory", "Timeline"]) {
        await page.click(`[role=tab]:text-is("${name}")`);
        const canvas = page.locator("[role=tabpanel]:not([hidden]) canvas").first();
        await canvas.waitFor({ timeout: 60_000 });
        await until(async () => (await inked(canvas)) > 200, name);
    }
});

test("a name of ten kilobytes of markup is text, on every page that shows it", async () => {
    assert.equal((await page.textContent("h1")).trim(), LONG.trim());
    for (const route of [
        "/campaigns",
        "/campaigns/huge0001",
        "/campaigns/huge0001/trials/1",
        "/campaigns/huge0001/export",
        `/compare?campaigns=huge0001,${seed.id}`,
        "/new?from=huge0001",
        "/project?campaign=huge0001",
    ]) {
        await show(page, daemon, route);
        await page.waitForTimeout(500);
        assert.equal(await page.locator("main svg[onload], main script").count(), 0, route);
        assert.ok(
            await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
            `${route} is too wide`,
        );
    }
});

test("the page is accessible at that size", async () => {
    const p = await openPage(browser, daemon.url, { bypassCSP: true });
    await p.goto(daemon.link("/campaigns/huge0001"));
    await p.waitForSelector("tbody tr");
    assert.deepEqual(await violations(p), []);
    await p.context().close();
});

test("no error, refusal or foreign request in the background", async () => {
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
