// What can be done in a chart, in Chromium, with a simulated campaign: tooltips, the legend, zoom by the wheel and by
// keys, a click that opens a trial, a change of the theme.

import assert from "node:assert/strict";
import { inked, openBrowser, openPage, show } from "./browser.mjs";
import { scratch, startDaemon, until } from "./daemon.mjs";
import { finish, test } from "./tap.mjs";

const dir = scratch("charts");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);
const page = await openPage(browser, daemon.url);
let id = "";

const panel = (title) =>
    page.locator("section.panel", { has: page.locator(`h2:text-is("${title}")`) });

/** The box of the canvas of TITLE on the page at ROUTE, once it is drawn. */
async function chartAt(route, title) {
    await show(page, daemon, route);
    const canvas = panel(title).locator("canvas");
    await panel(title).scrollIntoViewIfNeeded(); // out of sight it is not drawn
    await canvas.waitFor();
    await canvas.scrollIntoViewIfNeeded();
    await until(async () => (await inked(canvas)) > 200, title);
    return canvas.boundingBox();
}

/** Look for a place on the canvas of TITLE whose tooltip has something to say: {x, y, text}, x and y on the page. */
async function tipOf(title) {
    const found = await panel(title)
        .locator("canvas")
        .evaluate((canvas) => {
            const box = canvas.getBoundingClientRect();
            const tip = canvas.closest(".chart-canvas").querySelector(".chart-tip");
            for (let x = box.left + 75; x < box.right - 20; x += 4)
                for (let y = box.top + 40; y < box.bottom - 50; y += 4) {
                    const at = { clientX: x, clientY: y, bubbles: true };
                    canvas.dispatchEvent(new MouseEvent("mousemove", at));
                    if (!tip.hidden) return { x, y };
                }
            return null;
        });
    assert.ok(found, `${title}: no tooltip`);
    await page.mouse.move(found.x - 1, found.y);
    await page.mouse.move(found.x, found.y);
    return { ...found, text: await panel(title).locator(".chart-tip:visible").innerText() };
}

const picture = (title) =>
    panel(title)
        .locator("canvas")
        .evaluate((canvas) => canvas.toDataURL());

test("a simulated campaign ends", async () => {
    const spec = {
        name: "charts",
        model: "gpt-1.4B",
        cluster: { profile: "dgx-a100", nodes: 1 },
        trainer: "megatron",
        workload: { global_batch: 16, precision: "bf16" },
        budget: { trials: 8 },
        launcher: { kind: "simulated", speed: 1e6 },
        search: { seed: 3 },
    };
    ({ id } = await daemon.api("POST", "v1/campaigns", spec));
    await until(
        async () => (await daemon.api("GET", `v1/campaigns/${id}`)).state === "done",
        "the end of the campaign",
    );
});

test("a point says which trial it is, and a click opens it", async () => {
    await chartAt(`/campaigns/${id}`, "Best so far");
    const { x, y, text } = await tipOf("Best so far");
    const [, n] = text.match(/^Trial (\d+): /);
    const trial = await daemon.api("GET", `v1/campaigns/${id}/trials/${n}`);
    assert.ok(text.includes(trial.text), text);
    assert.match(text, new RegExp(`State\\s+${trial.state}`));
    await page.mouse.click(x, y);
    await page.waitForFunction((end) => location.hash.endsWith(end), `/trials/${n}`);
});

test("a click on a name of the legend hides what it names, and the next one shows it", async () => {
    const box = await chartAt(`/campaigns/${id}`, "Best so far");
    const before = await picture("Best so far");
    const change = async (from) => {
        await page.mouse.click(box.x + 50, box.y + 11);
        await until(async () => (await picture("Best so far")) !== from, "the change");
        return picture("Best so far");
    };
    const hidden = await change(before);
    await change(hidden);
    await until(async () => (await picture("Best so far")) === before, "what was there before");
});

test("one tooltip names all parts of a bar", async () => {
    const title = "Memory by class";
    await chartAt(`/compare?trials=${id}/1,${id}/2`, title);
    const { text } = await tipOf(title);
    assert.match(text, /^trial 1[\s\S]*weights\s+[\d.]+ [GM]iB/);
});

test("control and wheel zoom, the keys move an end, and one without control scrolls", async () => {
    const box = await chartAt(`/campaigns/${id}?tab=timeline`, "Trials over time");
    const [from, to] = ["from", "to"].map((end) =>
        panel("Trials over time").locator(`input[aria-label$=", ${end}"]`),
    );
    const shown = async () => [
        await from.getAttribute("aria-valuetext"),
        await to.getAttribute("aria-valuetext"),
    ];
    const all = await shown();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page.mouse.wheel(0, -300);
    await page.waitForTimeout(300);
    assert.deepEqual(await shown(), all);
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -300);
    await page.keyboard.up("Control");
    await until(async () => (await shown()).every((text, i) => text !== all[i]), "both ends to move");
    const [zoomed] = await shown();
    const before = await picture("Trials over time");
    await from.focus();
    await page.keyboard.press("PageUp");
    await until(async () => (await shown())[0] !== zoomed, "the end to move");
    await until(async () => (await picture("Trials over time")) !== before, "the chart to follow");
});

test("a theme that changes redraws a chart in its colors, in one step", async () => {
    await chartAt(`/campaigns/${id}`, "Best so far");
    const before = await picture("Best so far");
    await page.evaluate(() => {
        window.without = 0;
        const place = document.querySelector(".chart-canvas");
        new MutationObserver(() => {
            window.without += place.querySelectorAll("canvas").length === 1 ? 0 : 1;
        }).observe(place, { childList: true, subtree: true });
    });
    await page.click("button:text-is('Theme')");
    await until(async () => (await picture("Best so far")) !== before, "other colors");
    assert.equal(await page.evaluate(() => window.without), 0);
});

test("no error, refusal or foreign request in the background", () => {
    assert.deepEqual(page.faults, []);
});

const failed = await finish();
await browser.close();
await daemon.stop();
process.exit(failed ? 1 : 0);
