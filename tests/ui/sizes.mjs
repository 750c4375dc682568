// Every page on every size of screen: nothing wider than the window, nothing cut off, nothing too small for a finger,
// and legible in the colors that a system forces. A real campaign is the material, and one with a hostile name.

import assert from "node:assert/strict";
import fs from "node:fs";
import { openBrowser, openPage, inked, scrollThrough, violations, show } from "./browser.mjs";
import { scratch, startDaemon, tinyCampaign, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const HOSTILE = `\u202E<b>${"W".repeat(90)}</b> \u05D0\u05D1 &amp;`;
const LONG = Boolean(process.env.PT_LONG);
const SIZES = LONG
    ? [
          [320, 568],
          [360, 800],
          [568, 320],
          [640, 400], // 1280 x 800 at 200 %
          [768, 1024],
          [1024, 768],
          [1024, 600],
          [1440, 900],
          [2560, 1440],
      ]
    : [
          [320, 568],
          [640, 400],
          [1024, 600],
          [2560, 1440],
      ];

const dir = scratch("sizes");
const daemon = await startDaemon(dir);
const start = async (name, more) =>
    (await daemon.api("POST", "v1/campaigns", tinyCampaign(name, more))).id;
const ended = async (id) =>
    ["done", "failed"].includes((await daemon.api("GET", `v1/campaigns/${id}`)).state);
const id = await start("sizes", { budget: { trials: 7 }, tags: ["one", "two"] });
await until(() => ended(id), "the campaign", 600_000);
const hostile = await start(HOSTILE, {
    budget: { trials: 2 },
    tags: ["W".repeat(60)],
    notes: "W".repeat(2000),
});
await until(() => ended(hostile), "the other campaign", 600_000);
const { best } = await daemon.api("GET", `v1/campaigns/${id}`);

const ROUTES = [
    "/campaigns",
    ...["", "?tab=space", "?tab=model", "?tab=timeline", "?tab=settings"].map(
        (t) => `/campaigns/${id}${t}`,
    ),
    `/campaigns/${hostile}`,
    `/campaigns/${hostile}?tab=settings`,
    `/campaigns/${id}/trials/1`,
    `/campaigns/${hostile}/trials/1`,
    `/campaigns/${id}/export`,
    "/new",
    `/new?from=${hostile}`,
    "/plan",
    `/project?campaign=${hostile}`,
    `/compare?trials=${id}/1,${id}/2,${hostile}/1`,
    `/compare?campaigns=${id},${hostile}`,
    "/campaigns/zzzzzzzz",
    "/nowhere",
];

const browser = await openBrowser(dir);

// What a page shows only once it was asked for.
const ASK = {
    "/plan": async (p) => {
        await p.click("button:text-is('Rank layouts')");
        await p.waitForSelector("[aria-label='table of ranked layouts']", { timeout: 300_000 });
    },
    [`/campaigns/${id}`]: (p) => p.click("summary:has-text('Columns')"),
    [`/campaigns/${id}?tab=space`]: (p) => p.click("summary:has-text('Select by value')"),
};

/** Wait until the page has stopped growing: what it shows has come. */
async function settled(p) {
    let last = -1;
    await until(async () => {
        await p.waitForTimeout(150);
        const now = await p.evaluate(
            () => document.body.scrollHeight + document.querySelectorAll("*").length,
        );
        const same = now === last && (await p.locator("main .loading").count()) === 0;
        last = now;
        return same;
    }, "the page to settle");
}

/** Controls and texts that stick out of the window, but for what is scrolled in a frame of its own. */
const cutOff = (p) =>
    p.evaluate(() =>
        [...document.querySelectorAll("a, button, input, select, textarea, summary, h1, h2, dd, p")]
            .filter((e) => e.checkVisibility() && !e.closest(".scroll, .chart, pre, .chart-table, .skip"))
            .filter((e) => {
                const box = e.getBoundingClientRect();
                return box.width > 0 && (box.left < -1 || box.right > innerWidth + 1);
            })
            .map((e) => e.outerHTML.slice(0, 100)),
    );

/** Pairs of controls that lie over each other. */
const overlapping = (p) =>
    p.evaluate(() => {
        const list = [...document.querySelectorAll("a, button, input, select, textarea, summary")].filter(
            (e) => e.checkVisibility() && !e.closest(".scroll, .chart, .chart-table, .skip, p"),
        );
        const box = new Map(list.map((e) => [e, e.getBoundingClientRect()]));
        const found = [];
        list.forEach((a, i) =>
            list.slice(i + 1).forEach((b) => {
                const [x, y] = [box.get(a), box.get(b)];
                const wide = Math.min(x.right, y.right) - Math.max(x.left, y.left);
                const high = Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top);
                if (wide > 2 && high > 2 && !a.contains(b) && !b.contains(a))
                    found.push(`${a.outerHTML.slice(0, 80)} over ${b.outerHTML.slice(0, 80)}`);
            }),
        );
        return found;
    });

const shown = await openPage(browser, daemon.url);
for (const route of ROUTES)
    test(`${route.replace(id, "ID").replaceAll(hostile, "OTHER")} fits every screen: nothing scrolls sideways, is cut off or overlaps`, async () => {
        await show(shown, daemon, route);
        await ASK[route]?.(shown);
        await scrollThrough(shown); // the charts are drawn, in the size of before
        for (const [width, height] of SIZES) {
            const where = `at ${width} x ${height}`;
            await shown.setViewportSize({ width, height });
            await settled(shown);
            const wide = await shown.evaluate(
                () => document.scrollingElement.scrollWidth - innerWidth,
            );
            assert.ok(wide <= 0, `${wide} pixels too wide ${where}`);
            assert.deepEqual(await cutOff(shown), [], where);
            assert.deepEqual(await overlapping(shown), [], where);
        }
        assert.deepEqual(shown.faults, []);
    });

/** What a finger would miss. */
const tooSmall = (p) =>
    p.evaluate(() =>
        [...document.querySelectorAll("button, .button, select, input, nav a, [role=tab]")]
            .filter((e) => e.checkVisibility())
            .map((e) => [e.closest("label") ?? e, e.outerHTML.slice(0, 90)])
            .filter(([e]) => {
                const box = e.getBoundingClientRect();
                return Math.min(box.width, box.height) < 22 || box.height < (e.matches("label, input") ? 22 : 36);
            })
            .map(([, html]) => html),
    );

// pages.mjs has both themes at another size; names change no color or label.
for (const theme of LONG ? ["light", "dark"] : ["light"])
    test(`on the smallest phone touch targets are large enough, and no page has a serious violation in the ${theme} theme`, async () => {
        const p = await openPage(browser, daemon.url, {
            width: 320,
            height: 568,
            theme,
            bypassCSP: true,
            hasTouch: true,
            isMobile: true,
        });
        const found = [];
        for (const route of ROUTES) {
            const known = !LONG && route.startsWith(`/campaigns/${hostile}`);
            await show(p, daemon, route);
            await ASK[route]?.(p);
            if (theme === "light" && !known) await scrollThrough(p);
            else await settled(p); // only colors or names differ
            assert.deepEqual(await tooSmall(p), [], route);
            const rules = theme === "dark" ? ["color-contrast"] : undefined;
            if (!known) found.push(...(await violations(p, rules)).map((v) => `${route}: ${v}`));
        }
        assert.deepEqual(found, []);
        await p.context().close();
    });

test("on a phone each trial and campaign shows its throughput without scrolling aside", async () => {
    const p = await openPage(browser, daemon.url, { width: 320, height: 568 });
    for (const [route, region, name] of [
        [`/campaigns/${id}`, "table of trials", "Tokens/s"],
        ["/campaigns", "table of campaigns", "Best, tokens/s"],
        ["/plan", "table of ranked layouts", "Expected tokens/s"],
    ]) {
        await show(p, daemon, route);
        if (route === "/plan") await ASK[route](p);
        const cells = p.locator(`[aria-label="${region}"] td[data-name="${name}"]`);
        await cells.first().waitFor();
        for (const cell of await cells.all()) {
            const box = await cell.boundingBox();
            assert.ok(box.x >= 0 && box.x + box.width <= 320, JSON.stringify(box));
        }
        const label = await cells
            .first()
            .evaluate((e) => getComputedStyle(e, "::before").content);
        assert.match(label, new RegExp(name));
    }
    await show(p, daemon, "/campaigns");
    await p.click("th button:has-text('Created')"); // sorting stays possible
    await p.waitForSelector("th[aria-sort=ascending] button:has-text('Created')");
    await p.context().close();
});

test("a swipe that begins on a chart scrolls the page", async () => {
    const p = await openPage(browser, daemon.url, {
        width: 360,
        height: 800,
        hasTouch: true,
        isMobile: true,
    });
    await show(p, daemon, `/campaigns/${id}`);
    const place = p.locator("section.panel:has(h2:text-is('Best so far'))");
    const canvas = place.locator("canvas").first();
    await place.scrollIntoViewIfNeeded();
    await canvas.waitFor();
    await until(async () => (await inked(canvas)) > 200, "the chart");
    await canvas.scrollIntoViewIfNeeded();
    const box = await canvas.boundingBox();
    const before = await p.evaluate(() => scrollY);
    const cdp = await p.context().newCDPSession(p);
    const x = Math.round(box.x + box.width / 2);
    const y = Math.round(box.y + box.height / 2);
    const touch = (type, at) =>
        cdp.send("Input.dispatchTouchEvent", { type, touchPoints: at ? [{ x, y: at }] : [] });
    await touch("touchStart", y);
    for (let way = 10; way <= 200; way += 10) await touch("touchMove", y - way);
    await touch("touchEnd");
    await until(async () => (await p.evaluate(() => scrollY)) > before + 100, "the page to scroll");
    await p.context().close();
});

test("charts use forced colors, and selections stay marked", async () => {
    for (const colorScheme of ["light", "dark"]) {
        const p = await openPage(browser, daemon.url, {
            theme: colorScheme,
            forcedColors: "active",
        });
        await show(p, daemon, `/campaigns/${id}`);
        const canvas = p.locator("section.panel:has(h2:text-is('Best so far')) canvas").first();
        await canvas.waitFor();
        await until(async () => (await inked(canvas)) > 200, "the chart");
        const seen = await p.evaluate(() => {
            const probe = document.createElement("span");
            probe.style.color = "CanvasText";
            document.body.append(probe);
            const text = getComputedStyle(probe).color;
            const border = (e) => getComputedStyle(e).borderBottomColor;
            const tabs = [...document.querySelectorAll("[role=tab]")];
            return { text, chosen: border(tabs[0]), other: border(tabs[1]) };
        });
        assert.notEqual(seen.chosen, seen.other);
        // The axis' words: pixels of the system's color of text.
        const [r, g, b] = seen.text.match(/\d+/g).map(Number);
        const found = await canvas.evaluate(
            (c, want) => {
                const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
                let n = 0;
                for (let i = 0; i < data.length; i += 4)
                    n +=
                        data[i + 3] > 250 &&
                        want.every((v, k) => Math.abs(data[i + k] - v) < 8)
                            ? 1
                            : 0;
                return n;
            },
            [r, g, b],
        );
        assert.ok(found > 50, `${found} pixels of ${seen.text}`);
        assert.deepEqual(p.faults, []);
        await p.context().close();
    }
});

test("the table marks the best trial by a word", async () => {
    const p = await openPage(browser, daemon.url);
    await show(p, daemon, `/campaigns/${id}`);
    const row = p.locator("tr.winner");
    await row.waitFor();
    assert.equal(await row.locator("th").textContent(), String(best.trial));
    assert.match(await row.textContent(), /★ best/);
    await p.context().close();
});

const failed = await finish();
await browser.close();
await daemon.stop();
if (failed === 0) fs.rmSync(dir, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
