// One campaign, live. The head and the tiles are the campaign's resource; charts see every trial; the table asks the
// service for one page at a time.

import { ApiError, campaignPath, eachPage, explain, get } from "../lib/api.js";
import { fill, h, oncePerFrame } from "../lib/dom.js";
import { openStream } from "../lib/live.js";
import { href, setQuery } from "../lib/router.js";
import { crumbs, failure, loading, notice, tabs } from "../parts/parts.js";
import { campaignHead } from "./campaign-head.js";
import { firstTrials, overviewTab } from "./campaign-overview.js";
import { trialStore } from "./campaign-store.js";

const CLOCK_MS = 1000;

/** A view whose module is fetched when it is first wanted. */
function lazyTab(key, title, load) {
    return {
        key,
        title,
        load,
        async open(page, body) {
            fill(body, loading("the view"));
            try {
                const tab = await load();
                if (!page.ctx.signal.aborted) tab.open(page, body);
            } catch (error) {
                fill(
                    body,
                    failure(error, () => this.open(page, body)),
                );
            }
        },
    };
}

const TABS = [
    overviewTab,
    lazyTab("space", "Space", async () => (await import("./campaign-space.js")).spaceTab),
    lazyTab(
        "model",
        "Model and memory",
        async () => (await import("./campaign-model.js")).modelTab,
    ),
    lazyTab(
        "timeline",
        "Timeline",
        async () => (await import("./campaign-timeline.js")).timelineTab,
    ),
    lazyTab(
        "settings",
        "Settings",
        async () => (await import("./campaign-settings.js")).settingsTab,
    ),
];

/** The page of CAMPAIGN: what its views share. */
function campaignPage(ctx, firstCampaign, coming) {
    const { id } = firstCampaign;
    let campaign = firstCampaign;
    let changes = 0;
    const readers = new Set();
    const head = campaignHead(ctx, () => campaign, setCampaign);

    function draw() {
        head.draw();
        readers.forEach((fn) => fn(campaign));
    }
    const drawSoon = oncePerFrame(draw);

    // Events bring the campaign without what was submitted, which does not change.
    function setCampaign(now) {
        campaign = { ...campaign, ...now };
        changes += 1;
        drawSoon();
    }
    return {
        ctx,
        id,
        head,
        readers,
        draw,
        setCampaign,
        store: trialStore(),
        campaign: () => campaign,
        changes: () => changes,
        firstTrials: coming,
    };
}

/** What fetches into PAGE: {campaign(), trials()}. */
function loaders(page) {
    const { ctx, id, store } = page;
    const { problem } = page.head;

    async function trials() {
        await page.firstTrials?.catch(() => {}); // what is looked at first comes first
        store.filling(true);
        try {
            await eachPage(campaignPath(id, "/trials"), { sort: "n" }, store.page, ctx.signal);
            store.filling(false);
            fill(problem);
            // The other views are fetched now that nobody waits; a failure shows when one is opened.
            TABS.forEach((tab) => tab.load?.().catch(() => {}));
        } catch (error) {
            if (error.name !== "AbortError") fill(problem, failure(error, trials));
        }
    }

    async function campaign() {
        const before = page.changes();
        try {
            const now = await get(campaignPath(id), null, ctx.signal);
            if (page.changes() === before) page.setCampaign(now); // else events have told of newer
        } catch (error) {
            if (error instanceof ApiError) fill(problem, notice("bad", explain(error)));
        }
    }
    return { campaign, trials };
}

const GONE =
    "This campaign was deleted, or your token may no longer read it. The page shows its last state. ";

/** Follow the campaign's events until the page is left. */
function follow(page) {
    const { ctx, id, store } = page;
    const load = loaders(page);
    let first = true;
    const stream = openStream(campaignPath(id, "/events"), {
        onState(state, wait) {
            ctx.streamState(state, wait);
            const all = h("a", { href: href([]) }, "All campaigns");
            if (state === "gone") fill(page.head.problem, notice("warn", GONE, all));
        },
        onOpen(resumed) {
            load.campaign();
            page.onReload?.();
            if (!resumed || first) load.trials();
            first = false;
        },
        onEvent(event, data) {
            if (event === "campaign" && data.id === id) page.setCampaign(data);
            else if (event === "trial") {
                const before = store.get(data.n);
                store.hear(data);
                page.onTrial?.(data, before);
            }
        },
    });
    ctx.onLeave(stream.close);
}

function tabStrip(page) {
    return tabs(
        "Views of the campaign",
        TABS.map((tab) => ({
            key: tab.key,
            title: tab.title,
            open: (body) => tab.open(page, body),
        })),
        (key) => setQuery({ tab: key === "overview" ? "" : key }, true),
    );
}

export async function render(ctx) {
    const id = ctx.segments[1];
    const tab = ctx.query.tab ?? "overview";
    // Both are asked for at once: the table stands a round trip earlier.
    const coming = tab === "overview" ? firstTrials(ctx) : null;
    const campaign = await get(campaignPath(id), null, ctx.signal);
    ctx.simulated = campaign.simulated;
    const page = campaignPage(ctx, campaign, coming);
    const strip = tabStrip(page);
    fill(ctx.root, crumbs(["Campaigns", href([])], [id]), page.head.nodes, strip.element);
    page.draw();
    strip.show(tab, true);
    const tick = () => page.campaign().state === "running" && page.head.drawClock();
    const ticking = setInterval(tick, CLOCK_MS);
    ctx.onLeave(() => clearInterval(ticking));
    follow(page);
    return { update: (query) => strip.show(query.tab ?? "overview") };
}
