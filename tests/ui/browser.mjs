// Chromium, driven by Playwright; a page that knows what went wrong in it.

import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";

const build = process.env.PT_BUILD;
const npm = path.join(build, "web", "ui", "npm");
const require = createRequire(`${npm}/`);
const { chromium } = require("playwright-core");
const axeSource = fs.readFileSync(path.join(npm, "node_modules", "axe-core", "axe.min.js"), "utf8");

export async function openBrowser(dir) {
    return chromium.launch({
        executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
        args: [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--js-flags=--expose-gc",
        ],
        env: { ...process.env, HOME: dir, XDG_CONFIG_HOME: dir, XDG_CACHE_HOME: dir },
    });
}

/**
 * A page in a context of its own. page.faults lists what no page may do: uncaught errors, refusals by the content
 * policy, requests to other hosts, dialogs. Answers that a test provokes (4xx) are the browser's own message and not a
 * fault. MORE are options of Playwright's newContext().
 */
export async function openPage(
    browser,
    origin,
    { width = 1440, height = 900, theme = "light", bypassCSP = false, ...more } = {},
) {
    const context = await browser.newContext({
        viewport: { width, height },
        colorScheme: theme,
        bypassCSP,
        acceptDownloads: true,
        ...more,
    });
    const page = await context.newPage();
    page.faults = [];
    page.on("pageerror", (e) => page.faults.push(`uncaught: ${e.stack}`));
    page.on("console", (m) => {
        if (m.type() === "error" && !/Failed to load resource/.test(m.text()))
            page.faults.push(`console: ${m.text()}`);
    });
    page.on("request", (r) => {
        if (!r.url().startsWith(origin) && !/^(data|blob|about):/.test(r.url()))
            page.faults.push(`request to ${r.url()}`);
    });
    page.on("dialog", (d) => {
        page.faults.push(`dialog: ${d.message()}`);
        d.dismiss();
    });
    page.setDefaultTimeout(90_000);
    return page;
}

/**
 * Show ROUTE afresh: by its link where PAGE does not have the app yet, else as the app goes there itself, by way of an
 * address without a page, so that a page of the same name begins anew.
 */
export async function show(page, daemon, route) {
    if (page.url().startsWith(daemon.url))
        await page.evaluate(async (to) => {
            for (const hash of ["#/-", to]) {
                const changed = new Promise((resolve) => {
                    window.addEventListener("hashchange", resolve, { once: true }); // after the app's: its old page has gone
                });
                location.hash = hash;
                await changed;
            }
        }, `#${route}`);
    else await page.goto(daemon.link(route));
    await page.waitForSelector("main h1");
}

/**
 * Serious and critical violations of accessibility, as lines. The page must have been opened with bypassCSP. RULES
 * names the rules to hold it to; all, where it is absent.
 */
export async function violations(page, rules) {
    await page.evaluate(axeSource);
    const found = await page.evaluate(
        async (only) =>
            (
                await window.axe.run(document, {
                    resultTypes: ["violations"],
                    ...(only && { runOnly: only }),
                })
            ).violations.map((v) => ({
                impact: v.impact,
                id: v.id,
                node: v.nodes[0].html.slice(0, 160),
                why: v.nodes[0].failureSummary,
            })),
        rules,
    );
    return found
        .filter((v) => v.impact === "serious" || v.impact === "critical")
        .map((v) => `${v.impact} ${v.id}: ${v.node} ${v.why}`);
}

/** Scroll through the page, so that charts below the fold are drawn. */
export async function scrollThrough(page) {
    await page.evaluate(async () => {
        for (let y = 0; y < document.body.scrollHeight; y += 400) {
            scrollTo(0, y);
            await new Promise((resolve) => {
                setTimeout(resolve, 60);
            });
        }
        scrollTo(0, 0);
    });
    await page.waitForTimeout(500);
}

/** Number of pixels of a canvas that are neither transparent nor white: has the chart been drawn? */
export async function inked(locator) {
    return locator.evaluate((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let n = 0;
        for (let i = 0; i < data.length; i += 4)
            n +=
                data[i + 3] > 0 && (data[i] < 250 || data[i + 1] < 250 || data[i + 2] < 250)
                    ? 1
                    : 0;
        return n;
    });
}
