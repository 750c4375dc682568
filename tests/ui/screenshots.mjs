// screenshots.mjs DIR: a picture of every page in both themes, and of two on a phone, from a real campaign.

import fs from "node:fs";
import path from "node:path";
import { openBrowser, openPage, scrollThrough } from "./browser.mjs";
import { scratch, startDaemon, tinyCampaign, until } from "./daemon.mjs";

const out = process.argv[2];
fs.mkdirSync(out, { recursive: true });
const dir = scratch("screenshots");
const daemon = await startDaemon(dir);
const browser = await openBrowser(dir);
const c = await daemon.api(
    "POST",
    "v1/campaigns",
    tinyCampaign("nano mixture of experts on two cores", {
        budget: { trials: 20 },
        tags: ["example", "moe"],
        notes: "Which mix of parallelism is fastest here?",
        trial: { warmup_steps: 2, min_steps: 6, max_steps: 12, ci: 0.05, timeout_s: 600 },
    }),
);
const state = async () => (await daemon.api("GET", `v1/campaigns/${c.id}`)).state;
const ended = async () => ["done", "failed", "cancelled", "paused"].includes(await state());

async function picture(name, route, { theme = "light", width = 1440, before } = {}) {
    const page = await openPage(browser, daemon.url, {
        theme,
        width,
        height: width < 500 ? 800 : 900,
    });
    await page.goto(daemon.link(route));
    await page.waitForSelector("main h1");
    await page.waitForTimeout(600);
    await before?.(page);
    await scrollThrough(page);
    await page.waitForTimeout(600);
    await page.screenshot({ path: path.join(out, `${name}.png`), fullPage: true });
    await page.context().close();
}

await until(
    async () => ((await daemon.api("GET", `v1/campaigns/${c.id}`)).progress.trials ?? 0) >= 8,
    "eight trials",
    1_800_000,
);
await picture("campaign-live", `/campaigns/${c.id}`);
await until(ended, "the campaign", 600_000);
const second = await daemon.api(
    "POST",
    "v1/campaigns",
    tinyCampaign("the same at random", {
        budget: { trials: 6 },
        search: { method: "random", seed: 2 },
    }),
);
await until(
    async () => (await daemon.api("GET", `v1/campaigns/${second.id}`)).state === "done",
    "the second campaign",
    1_800_000,
);

const best = (await daemon.api("GET", `v1/campaigns/${c.id}`)).best.trial;
const plan = async (page) => {
    await page.click("button:text-is('Rank layouts')");
    await page.waitForSelector("[aria-label='table of ranked layouts']", { timeout: 60_000 });
};
const pages = {
    campaigns: "/campaigns",
    campaign: `/campaigns/${c.id}`,
    "campaign-space": `/campaigns/${c.id}?tab=space`,
    "campaign-model": `/campaigns/${c.id}?tab=model`,
    "campaign-timeline": `/campaigns/${c.id}?tab=timeline`,
    "campaign-settings": `/campaigns/${c.id}?tab=settings`,
    trial: `/campaigns/${c.id}/trials/${best}`,
    export: `/campaigns/${c.id}/export?to=megatron`,
    new: "/new",
    plan: "/plan",
    "compare-trials": `/compare?trials=${c.id}/${best},${c.id}/1`,
    "compare-campaigns": `/compare?campaigns=${c.id},${second.id}`,
};
for (const theme of ["light", "dark"])
    for (const [name, route] of Object.entries(pages))
        await picture(`${name}-${theme}`, route, {
            theme,
            before: name === "plan" ? plan : undefined,
        });
for (const name of ["campaign", "trial"])
    await picture(`${name}-phone`, pages[name], { width: 390 });

await browser.close();
await daemon.stop();
fs.rmSync(dir, { recursive: true, force: true });
process.exit(0);
