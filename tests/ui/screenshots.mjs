// screenshots.mjs DIR: a picture of every page, of one in the dark theme and of one on a phone, from a real campaign.

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
    // Steps of some hundred milliseconds: shorter ones show what else the machine does.
    tinyCampaign("mixture of experts on two cores", {
        model: "tiny-moe",
        workload: { global_batch: 16, data: "synthetic" },
        budget: { trials: 16 },
        tags: ["example", "moe"],
        notes: "Which mix of parallelism is fastest here?",
        trial: { warmup_steps: 1, min_steps: 5, max_steps: 8, ci: 0.05, timeout_s: 600 },
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
    await scrollThrough(page); // the chart library comes with the first chart,
    await scrollThrough(page); // which is drawn when it is seen again
    await page.waitForTimeout(600);
    await page.screenshot({ path: path.join(out, `${name}.png`), fullPage: true });
    await page.context().close();
}

await until(ended, "the campaign", 1_800_000);
const second = await daemon.api(
    "POST",
    "v1/campaigns",
    tinyCampaign("the same at random", {
        model: "tiny-moe",
        workload: { global_batch: 16, data: "synthetic" },
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
const project = async (page) => {
    await page.selectOption("label:has-text('Layouts') select", "best");
    await page.selectOption("label:has-text('Cluster') select", "dgx-a100");
    await page.click("button:text-is('Project')");
    await page.waitForSelector("[aria-label='table of weak scaling']", { timeout: 60_000 });
    await page.waitForSelector("[aria-label='table of the study']", { timeout: 60_000 });
};
const first = { plan, project };
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
    project: `/project?campaign=${c.id}&study=megascale-175b`,
    "compare-trials": `/compare?trials=${c.id}/${best},${c.id}/1`,
    "compare-campaigns": `/compare?campaigns=${c.id},${second.id}`,
};
for (const [name, route] of Object.entries(pages))
    await picture(name, route, { before: first[name] });
await picture("campaign-dark", pages.campaign, { theme: "dark" });
await picture("campaign-phone", pages.campaign, { width: 390 });

await browser.close();
await daemon.stop();
fs.rmSync(dir, { recursive: true, force: true });
process.exit(0);
