// What a person may do on each page beyond looking: choose, sort, brush, download, copy, type shortcuts, zoom in, ask
// for less motion, try again after a failure. Two small real campaigns are the material.

import assert from "node:assert/strict";
import fs from "node:fs";
import { inked, openBrowser, openPage, scrollThrough, show, violations } from "./browser.mjs";
import { scratch, startDaemon, tinyCampaign, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const dir = scratch("actions");
const daemon = await startDaemon(dir);
const ended = async (id) =>
    ["done", "failed"].includes((await daemon.api("GET", `v1/campaigns/${id}`)).state);
const run = async (name, more) => {
    const c = await daemon.api("POST", "v1/campaigns", tinyCampaign(name, more));
    await until(() => ended(c.id), `campaign ${name}`, 600_000);
    return c.id;
};
const one = await run("first", { tags: ["red"], budget: { trials: 7 } });
const two = await run("second", { budget: { trials: 3 }, search: { method: "random", seed: 3 } });
const campaign = await daemon.api("GET", `v1/campaigns/${one}`);

const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url);
await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);

const visit = (route) => show(page, daemon, route);
const panel = (title) =>
    page.locator("section.panel", { has: page.locator(`h2:text-is("${title}")`) });
const hash = () => page.evaluate(() => location.hash);

async function drawn(title) {
    const canvas = panel(title).locator("canvas").first();
    await panel(title).scrollIntoViewIfNeeded();
    await canvas.waitFor();
    await until(async () => (await inked(canvas)) > 200, `${title} to be drawn`);
}

// Chromium drops a page's eleventh download within a second, without a word: the next one waits its share of it.
let nextDownload = 0;
async function saved(click) {
    await page.waitForTimeout(Math.max(0, nextDownload - Date.now()));
    nextDownload = Date.now() + 120;
    const [download] = await Promise.all([page.waitForEvent("download"), click()]);
    return fs.readFileSync(await download.path());
}

test("the service sorts and filters the list of campaigns, and the address keeps the filter", async () => {
    await visit("/campaigns");
    const names = () => page.locator("tbody th a").allTextContents();
    await until(async () => (await names()).length === 2, "both campaigns");
    assert.deepEqual(await names(), ["second", "first"]);
    await page.click("th button:has-text('Created')");
    await until(async () => (await names())[0] === "first", "the oldest first");
    await page.fill("label:has-text('Tag') input", "red");
    await until(async () => (await names()).join() === "first", "the one with the tag");
    assert.match(await hash(), /tag=red/);
    await page.fill("label:has-text('Tag') input", "");
    await page.fill("label:has-text('Name') input", "COND");
    await until(async () => (await names()).join() === "second", "the one with that in its name");
    await page.fill("label:has-text('Name') input", "");
    await page.selectOption("label:has-text('State') select", "failed");
    await page.waitForSelector("text=No campaign matches");
});

test("shortcuts go to the pages, focus the filter, change the theme, list and switch off themselves", async () => {
    await visit("/campaigns");
    for (const [key, route] of [
        ["n", "/new"],
        ["p", "/plan"],
        ["j", "/project"],
        ["o", "/compare"],
        ["c", "/campaigns"],
    ]) {
        await page.keyboard.press("g");
        await page.keyboard.press(key);
        await page.waitForFunction((r) => location.hash === `#${r}`, route);
        await page.waitForSelector("main h1");
    }
    await page.waitForSelector("input[placeholder='part of the name']");
    await page.keyboard.press("/");
    assert.equal(
        await page.evaluate(() => document.activeElement.placeholder),
        "part of the name",
    );
    await page.keyboard.press("t"); // typed, not a shortcut
    assert.equal(await page.inputValue("input[placeholder='part of the name']"), "t");
    await page.evaluate(() => document.activeElement.blur());
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
    const before = await theme();
    await page.keyboard.press("t");
    assert.notEqual(await theme(), before);
    await visit(`/campaigns/${one}?tab=settings`);
    await page.waitForSelector("label:has-text('Notes') textarea");
    await page.keyboard.press("/"); // a field in sight, not one of the view that is put aside
    assert.ok(await page.evaluate(() => document.activeElement.closest("form, .filters") !== null));
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("?");
    await page.uncheck("dialog input[type=checkbox]");
    await page.click("dialog button:text-is('Close')");
    await page.waitForSelector("dialog", { state: "detached" });
    await page.keyboard.press("t");
    assert.notEqual(await theme(), before);
    await page.keyboard.press("?");
    assert.equal(await page.locator("dialog").count(), 0);
    await page.click("button:text-is('Keys')"); // the way back
    await page.check("dialog input[type=checkbox]");
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Keys");
    await page.evaluate(() => localStorage.clear());
});

test("dragging along an axis selects layouts, and says which are the fastest", async () => {
    await visit(`/campaigns/${one}?tab=space`);
    await drawn("Layouts, parallel coordinates");
    const canvas = panel("Layouts, parallel coordinates").locator("canvas").first();
    // The last axis is the throughput: its upper part holds the best.
    const box = await canvas.boundingBox();
    const x = box.x + box.width - 70;
    await page.mouse.move(x, box.y + 45);
    await page.mouse.down();
    await page.mouse.move(x, box.y + 100, { steps: 5 });
    await page.mouse.move(x, box.y + box.height * 0.7, { steps: 5 });
    await page.mouse.up();
    await until(
        async () => /of \d+ selected\. Fastest: trial \d+/.test(await page.textContent("main")),
        "the selection",
    );
});

async function pickFirstValue(id) {
    const place = panel("Layouts, parallel coordinates");
    await place.locator("summary").click();
    const select = place.locator("label.field select").first();
    const value = await select.locator("option").nth(1).getAttribute("value");
    const key = await place.locator("label.field span").first().textContent();
    await select.selectOption(value);
    const trials = (await daemon.api("GET", `v1/campaigns/${id}/trials?state=ok`)).items;
    const want = trials.filter((t) => String(t.layout[key]) === value).length;
    await place.locator(`text=${want} of ${trials.length} selected.`).waitFor();
    await select.selectOption("");
    await place.locator("text=selected.").waitFor({ state: "hidden" });
}

test("values can be picked from lists instead of dragging", async () => {
    await visit(`/campaigns/${one}?tab=space`);
    await drawn("Layouts, parallel coordinates");
    await pickFirstValue(one);
});

test("any two dimensions are chosen for the surface, its slices, uncertainty and probability of fitting", async () => {
    await visit(`/campaigns/${one}?tab=space`);
    await drawn("Surrogate");
    const across = page.locator("label:has-text('X axis') select");
    const keys = await across.locator("option").allTextContents();
    assert.ok(keys.length >= 3, keys.join());
    const up = await page.inputValue("label:has-text('Y axis') select");
    await across.selectOption(keys.find((k) => k !== up));
    for (const shows of ["slices", "spread", "p_fits", "mean"]) {
        await page.selectOption("label:has-text('Value') select", shows);
        await drawn("Surrogate");
    }
    await drawn("Trials that ran");
    await across.selectOption(up); // twice the same: said, not drawn
    await panel("Surrogate").locator(".chart-empty:visible").waitFor();
});

test("the mesh shows each kind of group, the log each stream, and the run its configuration", async () => {
    await visit(`/campaigns/${one}/trials/${campaign.best.trial}`);
    await page.waitForSelector("svg.mesh rect.rank");
    const groups = page.locator("label:has-text('Groups by') select");
    for (const axis of await groups.locator("option").evaluateAll((l) => l.map((o) => o.value))) {
        await groups.selectOption(axis);
        await page.waitForSelector(`text=form one ${axis} group`);
    }
    const log = page.locator("section[aria-label=Log]");
    await log.locator("select").selectOption("events");
    await until(
        async () => /"event":"summary"/.test(await log.locator(".log").textContent()),
        "the events",
    );
    await log.locator("input[type=checkbox]").uncheck();
    const text = (await saved(() => log.locator("button:text-is('Download')").click())).toString();
    for (const line of text.trim().split("\n")) JSON.parse(line);
    await page.click("button:text-is('Show the configuration')");
    const config = JSON.parse(await page.textContent("main pre.code:has-text('layout')"));
    assert.deepEqual(config.layout, campaign.best.layout);
});

test("a log that is longer than one part is downloaded whole, its characters unharmed", async () => {
    const trial = campaign.best.trial;
    const folder = `${daemon.data}/campaigns/${one}/trials/${trial}`;
    const attempt = fs.readdirSync(folder).sort().at(-1);
    const file = `${folder}/${attempt}/stdout`;
    fs.appendFileSync(file, `${"für jeden Rang 0.1 µs ± 2 ".repeat(70_000)}\nthe end\n`);
    await visit(`/campaigns/${one}/trials/${trial}`);
    const log = page.locator("section[aria-label=Log]");
    await until(
        async () => /the end/.test(await log.locator(".log").textContent()),
        "the end of the log",
    );
    assert.match(await log.locator(".log").textContent(), /omitted[\s\S]*jeden Rang 0\.1 µs ± 2 /);
    assert.ok((await log.locator(".log").textContent()).length < 100_000);
    const got = await saved(() => log.locator("button:text-is('Download')").click());
    assert.ok(got.equals(fs.readFileSync(file)), `${got.length} bytes`);
});

test("campaigns are chosen for a comparison", async () => {
    await visit("/compare");
    await page.waitForSelector("text=Nothing selected");
    const button = page.locator("fieldset button:text-is('Compare')");
    await page.check(`label:has-text("${one}") input`);
    assert.ok(await button.isDisabled());
    await page.check(`label:has-text("${two}") input`);
    await button.click();
    await page.waitForFunction(() => /campaigns=/.test(location.hash));
    await page.waitForSelector("[aria-label='campaigns side by side'] tbody tr");
    await page.locator("main canvas").first().waitFor();
    await page.fill("label:has-text('Trials (campaign') input", `${one}/1, ${two}/1`);
    await page.click("button:text-is('Compare trials')");
    await page.waitForSelector("text=vs first");
});

test("trials are picked from the table for a comparison", async () => {
    await visit(`/campaigns/${one}`);
    await page.check("input[aria-label='compare trial 1']");
    await page.waitForSelector("text=1 selected");
    await page.check("input[aria-label='compare trial 2']");
    await page.click("main a:text-is('Compare trials 1, 2')");
    await page.waitForSelector("[aria-label='trials side by side'] thead a:text-is('trial 2')");
});

test("a redrawn table keeps the focus, and reports when it could not be loaded", async () => {
    await visit(`/campaigns/${one}`);
    const table = page.locator("section[aria-label=Trials]");
    const first = () => table.locator("tbody tr:first-child th").textContent();
    const focused = () => page.evaluate(() => document.activeElement.textContent);
    const inOrder = async () => {
        const order = await table.locator("th:has(button:has-text('Trial'))").getAttribute("aria-sort");
        const numbers = (await table.locator("tbody tr th").allTextContents()).map((text) => parseInt(text, 10));
        const sign = order === "descending" ? -1 : 1;
        return order !== null && numbers.every((n, i) => i === 0 || sign * (n - numbers[i - 1]) > 0);
    };
    await table.locator("th button:has-text('Tokens/s')").focus();
    for (const sign of ["▼", "▲"]) {
        await page.keyboard.press("Enter");
        await until(async () => (await focused()) === `Tokens/s${sign}`, `the order ${sign}`);
    }
    const was = await first();
    await page.route(/\/trials\?/, (route) => route.abort());
    await table.locator("th button:has-text('Trial')").click();
    await table.locator(".notice.bad:has-text('cannot be reached')").waitFor();
    assert.equal(await first(), was);
    await page.unroute(/\/trials\?/);
    await table.locator("button:text-is('Try again')").click();
    await table.locator(".notice").waitFor({ state: "detached" });
    await until(inOrder, "the order that was asked for");
});

test("a change of notes that another user has changed shows theirs first", async () => {
    await visit(`/campaigns/${two}?tab=settings`);
    const field = (name) => page.locator(`label.field:has-text("${name}")`).locator("input, textarea");
    const noted = async () => (await daemon.api("GET", `v1/campaigns/${two}`)).notes;
    const theirs = (notes) => daemon.api("PATCH", `v1/campaigns/${two}`, { notes });
    await page.waitForSelector(".live-on");
    await theirs("theirs"); // nobody types here: it appears
    await until(async () => (await field("Notes").inputValue()) === "theirs", "their notes");
    await field("Notes").fill("mine");
    await theirs("theirs again");
    await page.click("button:text-is('Save')");
    await page.waitForSelector(".notice.bad:has-text('theirs again')");
    assert.equal(await noted(), "theirs again");
    await page.click("button:text-is('Save')");
    await page.waitForSelector("text=Saved.");
    assert.equal(await noted(), "mine");
    await field("Name").fill("the second");
    await page.click("button:text-is('Save')");
    await page.waitForSelector("h1:text-is('the second')");
});

test("the trials of a campaign are saved as CSV and as JSON lines", async () => {
    await visit(`/campaigns/${one}`);
    const { items } = await daemon.api("GET", `v1/campaigns/${one}/trials?page_size=1000&sort=n`);
    const lines = (await saved(() => page.click("button:text-is('JSON lines')"))).toString();
    assert.deepEqual(
        lines
            .trim()
            .split("\n")
            .map((line) => JSON.parse(line)),
        items,
    );
    const trials = panel("Trials").locator("button:text-is('CSV')");
    const rows = (await saved(() => trials.click())).toString().trim().split("\r\n");
    assert.match(rows[0], /^campaign,n,simulated,kind,state,/);
    assert.equal(rows.length, items.length + 1);
    assert.ok(rows[1].startsWith(`${one},1,false,baseline,ok,`), rows[1]);
});

test("an export is wrapped into a job, downloaded and copied", async () => {
    await visit(`/campaigns/${one}/export?to=partune`);
    await page.selectOption("label:has-text('Job script') select", "slurm");
    const code = page.locator("pre.code");
    await until(async () => /#SBATCH/.test(await code.textContent()), "the job");
    const shown = await code.textContent();
    assert.equal((await saved(() => page.click("button:text-is('Download')"))).toString(), shown);
    await page.click("button:text-is('Copy')");
    await until(
        async () => (await page.evaluate(() => navigator.clipboard.readText())) === shown,
        "the clipboard",
    );
    // Pages that are not from this machine have no clipboard unless they come encrypted.
    await page.evaluate(() =>
        Object.defineProperty(navigator, "clipboard", { value: undefined, configurable: true }),
    );
    await page.click("button:text-is('Copy')");
    assert.equal(await page.evaluate(() => getSelection().toString().trim()), shown.trim());
});

test("a clone with a change is started", async () => {
    await visit(`/campaigns/${two}`);
    await page.click("main a:text-is('Clone and edit')");
    await page.waitForSelector("h1:text-is('Clone and edit')");
    await page.locator("label.field", { hasText: "Name" }).first().locator("input").fill("third");
    await page.waitForSelector("text=Legal layouts");
    await page.click("button:text-is('Start the campaign')");
    await page.waitForFunction(() => /#\/campaigns\/\w+$/.test(location.hash));
    await page.waitForSelector("h1:text-is('third')");
    const id = (await hash()).split("/").pop();
    const { spec } = await daemon.api("GET", `v1/campaigns/${id}`);
    assert.equal(spec.name, "third");
    assert.equal(spec.search.seed, 3);
    await daemon.api("POST", `v1/campaigns/${id}:cancel`, {});
});

test("every chart of every page is a table, a CSV file and a picture", async () => {
    const routes = [
        `/campaigns/${one}`,
        `/campaigns/${one}?tab=space`,
        `/campaigns/${one}?tab=model`,
        `/campaigns/${one}?tab=timeline`,
        `/campaigns/${one}/trials/${campaign.best.trial}`,
        `/compare?trials=${one}/1,${one}/2`,
        `/compare?campaigns=${one},${two}`,
        "/project?study=frontier-1t",
    ];
    let charts = 0;
    for (const route of routes) {
        await visit(route);
        await until(
            async () => {
                await scrollThrough(page); // charts are drawn when they come into sight
                const due = page.locator(
                    "section.panel:visible:has(button:text-is('PNG')):not(:has(canvas)):not(:has(.chart-empty:visible))",
                );
                return (await page.locator("main canvas").count()) > 0 && (await due.count()) === 0;
            },
            `the charts of ${route}`,
            300_000,
        );
        const list = page.locator("section.panel:has(button:text-is('PNG')):has(canvas)");
        for (const chart of await list.all()) {
            const title = await chart.locator("h2").textContent();
            await chart.scrollIntoViewIfNeeded();
            await chart.locator("button:text-is('Table')").click();
            const head = chart.locator(".chart-table thead th");
            await head.first().waitFor();
            const lines = (
                await saved(() => chart.locator("button:text-is('CSV')").click())
            ).toString();
            const first = lines.slice(0, lines.indexOf("\r\n"));
            const commas = first.replaceAll(/"([^"]|"")*"/g, "").split(",").length; // outside quotes
            assert.equal(await head.count(), commas, `${route} ${title}: ${first}`);
            const png = await saved(() => chart.locator("button:text-is('PNG')").click());
            assert.equal(png.subarray(1, 4).toString(), "PNG", `${route} ${title}`);
            charts += 1;
        }
    }
    assert.ok(charts >= 20, `${charts} charts`);
});

const everyPage = () => [
    "/campaigns",
    ...["", "?tab=space", "?tab=model", "?tab=timeline", "?tab=settings"].map(
        (t) => `/campaigns/${one}${t}`,
    ),
    `/campaigns/${one}/trials/1`,
    `/campaigns/${one}/export`,
    "/new",
    "/plan",
    "/project",
    `/compare?trials=${one}/1,${one}/2`,
];

test("the keyboard alone can skip the navigation and reach every control, with visible focus", async () => {
    const p = await openPage(browser, daemon.url);
    await show(p, daemon, `/campaigns/${one}`);
    await p.waitForSelector("section[aria-label=Trials] tbody tr");
    await p.keyboard.press("Tab");
    assert.match(await p.evaluate(() => document.activeElement.className), /skip/);
    await p.keyboard.press("Enter");
    assert.equal(await p.evaluate(() => document.activeElement.id), "main");
    const want = await p.evaluate(
        () =>
            [...document.querySelectorAll("main a, main button, main select, main input")].filter(
                (e) => e.checkVisibility() && !e.disabled && e.tabIndex >= 0,
            ).length,
    );
    const reached = new Set();
    for (let i = 0; i < want + 60; i++) {
        await p.keyboard.press("Tab");
        const at = await p.evaluate(() => {
            const e = document.activeElement;
            if (!e || e === document.body || !e.closest("main")) return null;
            const s = getComputedStyle(e);
            window.marks ??= new Map();
            if (!window.marks.has(e)) window.marks.set(e, window.marks.size);
            return {
                mark: window.marks.get(e),
                control: e.matches("a, button, select, input"),
                seen: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0,
                html: e.outerHTML.slice(0, 120),
            };
        });
        if (!at) break;
        assert.ok(at.seen, `no mark of the focus at ${at.html}`);
        if (at.control) reached.add(at.mark);
    }
    assert.ok(reached.size >= want, `${reached.size} of ${want} controls`);
    await p.context().close();
});

test("a control pressed by key keeps the focus, or moves it to where the page continues", async () => {
    const p = await openPage(browser, daemon.url);
    const focused = () =>
        p.evaluate(() => document.activeElement.textContent.slice(0, 40) || document.activeElement.tagName);
    const press = async (selector, key = "Enter") => {
        await p.focus(selector);
        await p.keyboard.press(key);
    };
    await show(p, daemon, "/plan");
    await press("main button:text-is('Rank layouts')");
    await p.waitForSelector("[aria-label='table of ranked layouts']");
    assert.equal(await focused(), "Rank layouts");
    await show(p, daemon, `/campaigns/${one}?tab=settings`);
    await press("main button:text-is('Save')");
    await p.waitForSelector("text=Saved.");
    assert.equal(await focused(), "Save");
    await press("main button:text-is('Delete')");
    await p.waitForSelector("dialog[open]");
    assert.equal(await focused(), "Keep it");
    await p.keyboard.press("Escape");
    await p.waitForSelector("dialog", { state: "detached" });
    assert.equal(await focused(), "Delete");
    await press("[role=tab][aria-selected=true]", "Home");
    assert.equal(await focused(), "Overview");
    await p.keyboard.press("End");
    assert.equal(await focused(), "Settings");
    await show(p, daemon, `/campaigns/${one}/trials/1`);
    await press("main button:text-is('Show the configuration')");
    await until(async () => /^\{/.test(await focused()), "the focus in the configuration");
    await show(p, daemon, "/compare");
    await p.waitForSelector("text=Nothing selected");
    await press(`label:has-text("${one}") input`, "Space");
    await press(`label:has-text("${two}") input`, "Space");
    await press("fieldset button:text-is('Compare')");
    await p.waitForSelector("[aria-label='campaigns side by side']");
    assert.notEqual(await p.evaluate(() => document.activeElement.tagName), "BODY");
    await p.context().close();
});

test("reduced motion means no motion", async () => {
    const p = await openPage(browser, daemon.url);
    await p.emulateMedia({ reducedMotion: "reduce" });
    const moves = (reducedMotion) =>
        p.emulateMedia({ reducedMotion }).then(() =>
            p.evaluate(() => {
                const tr = document.querySelector("main tbody tr");
                tr.classList.add("fresh"); // as a row that has just changed
                return getComputedStyle(tr).animationName;
            }),
        );
    await show(p, daemon, "/campaigns");
    await p.waitForSelector("main tbody tr");
    assert.equal(await moves("no-preference"), "fresh");
    assert.equal(await moves("reduce"), "none");
    for (const route of everyPage()) {
        await show(p, daemon, route);
        assert.equal(await p.evaluate(() => document.getAnimations().length), 0, route);
        assert.equal(
            await p.evaluate(() => getComputedStyle(document.documentElement).scrollBehavior),
            "auto",
        );
    }
    await p.context().close();
});

test("a failure is reported where it happened, and retrying helps", async () => {
    await page.route("**/v1/exporters*", (route) =>
        route.fulfill({ status: 500, json: { title: "made to fail" } }),
    );
    await page.goto("about:blank");
    await page.goto(daemon.link(`/campaigns/${one}/export`));
    await page.waitForSelector(".notice.bad:has-text('made to fail')");
    await page.unroute("**/v1/exporters*");
    await page.click("button:text-is('Try again')");
    await page.waitForSelector("h1:text-is('Export')");
});

test("a chart without its library says so, and appears on retry", async () => {
    const p = await openPage(browser, daemon.url);
    await p.route("**/vendor/*", (route) => route.abort());
    await show(p, daemon, `/campaigns/${one}`);
    const place = p.locator("section.panel", { has: p.locator("h2:text-is('Best so far')") });
    await place.locator("text=could not be loaded").waitFor();
    await p.unroute("**/vendor/*");
    await place.locator("button:text-is('Try again')").click();
    await place.locator("canvas").waitFor();
    await until(async () => (await inked(place.locator("canvas"))) > 200, "the chart");
    assert.ok(await place.locator(".chart-empty").isHidden());
    await p.context().close();
});

test("a browser without storage shows the pages anyway", async () => {
    const p = await openPage(browser, daemon.url);
    await p.addInitScript(() => {
        for (const name of ["localStorage", "sessionStorage"])
            Object.defineProperty(window, name, {
                get() {
                    throw new DOMException("refused", "SecurityError");
                },
            });
    });
    await show(p, daemon, "/campaigns");
    await p.waitForSelector("main tbody tr");
    await p.keyboard.press("t");
    assert.equal(await p.evaluate(() => document.documentElement.dataset.theme), "dark");
    assert.deepEqual(p.faults, []);
    await p.context().close();
});

test("the theme is the system's until it is changed, and again when it is changed back", async () => {
    const p = await openPage(browser, daemon.url, { theme: "dark" });
    await show(p, daemon, "/campaigns");
    const theme = () => p.evaluate(() => document.documentElement.dataset.theme);
    assert.equal(await theme(), "dark");
    await p.click("button:text-is('Theme')");
    assert.equal(await theme(), "light");
    await p.reload();
    await p.waitForSelector("main h1");
    assert.equal(await theme(), "light");
    await p.click("button:text-is('Theme')");
    await p.emulateMedia({ colorScheme: "light" });
    await until(async () => (await theme()) === "light", "the system's theme");
    await p.context().close();
});

test("when a token is revoked, the page asks for another", async () => {
    const p = await openPage(browser, daemon.url);
    await show(p, daemon, `/campaigns/${one}`);
    await p.waitForSelector(".live-on");
    await p.route("**/events", (route) =>
        route.fulfill({ status: 401, json: { title: "unauthorized" } }),
    );
    await daemon.kill();
    await daemon.restart();
    await p.waitForSelector("h1:text-is('Sign in')");
    await p.unroute("**/events");
    await p.fill("#token", daemon.token);
    await p.click("button.primary");
    await p.waitForSelector("h1:text-is('first')");
    await p.waitForSelector(".live-on");
    await p.context().close();
});

test("a campaign deleted while watched is reported as gone", async () => {
    await visit(`/campaigns/${two}`);
    await page.waitForSelector(".live-on");
    await daemon.api("DELETE", `v1/campaigns/${two}`);
    await daemon.kill();
    await daemon.restart();
    await page.waitForSelector("text=This campaign was deleted");
    await page.waitForSelector(".live:has-text('gone')");
    assert.equal(await page.textContent("h1"), "the second");
});

test("a campaign's page asks for a token when the address has a wrong one", async () => {
    const p = await openPage(browser, daemon.url);
    await p.goto(`${daemon.url}#token=pt_wrong&to=/campaigns/${one}`);
    await p.waitForSelector("#token");
    await p.waitForTimeout(500);
    assert.ok(await p.isVisible("#token"));
    await p.fill("#token", daemon.token);
    await p.keyboard.press("Enter");
    await p.waitForSelector("h1:text-is('first')");
    await p.context().close();
});

test("the last choice of an export is shown, even if an earlier answer arrives later", async () => {
    await visit(`/campaigns/${one}/export?to=partune`);
    await page.waitForSelector("main .panel h2:text-is('partune')");
    let answer;
    const late = new Promise((resolve) => {
        answer = resolve;
    });
    await page.route("**/export/accelerate*", async (route) => {
        await late;
        await route.continue().catch(() => {});
    });
    const target = page.locator("label:has-text('Target') select");
    await target.selectOption("accelerate");
    await target.selectOption("partune");
    await page.waitForSelector("main .panel h2:text-is('partune')");
    answer();
    await page.waitForTimeout(500);
    assert.equal(await page.textContent("main .panel h2"), "partune");
    await page.unroute("**/export/accelerate*");
    await page.selectOption("label:has-text('Job script') select", "slurm");
    await page.waitForFunction(() => /in=slurm/.test(location.hash)); // the address has all of the choice
});

test("leaving a page with an open dialog cancels it", async () => {
    await visit(`/campaigns/${one}`);
    await page.click("main button:text-is('Delete')");
    await page.waitForSelector("dialog[open]");
    await page.evaluate(() => (location.hash = "#/campaigns"));
    await page.waitForSelector("h1:text-is('Campaigns')");
    assert.equal(await page.locator("dialog").count(), 0);
    assert.equal((await daemon.api("GET", `v1/campaigns/${one}`)).name, "first");
});

test("a running campaign: rows enter a filtered table, the submitted text stays, focus and clock continue", async () => {
    const c = await daemon.api(
        "POST",
        "v1/campaigns",
        tinyCampaign("third", { budget: { trials: 5 }, trial: { min_steps: 30, max_steps: 40, timeout_s: 600 } }),
    );
    await visit(`/campaigns/${c.id}?state=ok`);
    await page.locator("main button:text-is('Pause')").focus();
    await page.keyboard.press("Enter");
    await page.waitForSelector("main button:text-is('Resume')");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Resume");
    await page.keyboard.press("Enter");
    await page.waitForSelector("main button:text-is('Pause')");
    const rows = page.locator("section[aria-label=Trials] tbody tr");
    await until(async () => (await rows.count()) >= 1, "the first row that is ok");
    await page.click("[role=tab]:text-is('Settings')");
    await page.waitForSelector("section:has(h2:text-is('As submitted')) pre:has-text('third')");
    await page.click("[role=tab]:text-is('Space')");
    await until(() => ended(c.id), "the campaign", 600_000);
    await pickFirstValue(c.id); // from lists that were made while trials came
    await page.click("[role=tab]:text-is('Overview')");
    const ok = (await daemon.api("GET", `v1/campaigns/${c.id}/trials?state=ok`)).total;
    await until(async () => (await rows.count()) === ok, `${ok} rows`);
});

test("dialogs, tables behind charts and notices are accessible", async () => {
    for (const theme of ["light", "dark"]) {
        const p = await openPage(browser, daemon.url, { theme, bypassCSP: true });
        await show(p, daemon, `/campaigns/${one}`);
        await p.locator("button:text-is('Table')").first().click();
        await p.waitForSelector(".chart-table thead th");
        await p.click("summary:has-text('Columns')");
        assert.deepEqual(await violations(p), [], `${theme}: table and columns`);
        await p.click("main button:text-is('Delete')");
        await p.waitForSelector("dialog");
        assert.deepEqual(await violations(p), [], `${theme}: dialog`);
        await p.click("dialog button:text-is('Keep it')");
        await p.context().close();
    }
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
