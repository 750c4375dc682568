// One campaign, live. The head and the tiles are the campaign's resource; charts see every trial; the table asks the
// service for one page at a time.

import { ApiError, campaignPath, eachPage, explain, get, post, remove } from "../lib/api.js";
import { announce, atMostEvery, fill, h, oncePerFrame } from "../lib/dom.js";
import {
    NONE,
    count,
    deviceTime,
    interval,
    isolated,
    percent,
    ratio,
    rate,
    seconds,
    time,
} from "../lib/format.js";
import { openStream } from "../lib/live.js";
import { go, href, setQuery } from "../lib/router.js";
import { BASELINE_RULES, SIMULATED, reasonText } from "../lib/words.js";
import {
    campaignBadge,
    confirmDialog,
    failure,
    loading,
    notice,
    simulatedBadge,
    tabs,
    tile,
    tiles,
} from "../parts/parts.js";
import { failuresText, savedDeviceSeconds, stoppedText } from "./campaigns.js";
import { firstTrials, overviewTab } from "./campaign-overview.js";

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

/** What charts need of a trial: ten thousand whole ones would be a lot of memory. */
function brief(t) {
    return {
        n: t.n,
        kind: t.kind,
        state: t.state,
        repeat_of: t.repeat_of ?? null,
        text: t.text,
        why: t.why,
        layout: t.layout,
        tokens_per_s: t.tokens_per_s ?? null,
        tokens_per_s_se: t.tokens_per_s_se ?? null,
        predicted: t.predicted,
        mfu: t.mfu ?? null,
        seconds: t.seconds ?? null,
        // What is simulated needs just what was planned for it.
        measured_bytes: (t.simulated ? t.memory?.planned : t.memory?.measured)?.total ?? null,
        planned_bytes: t.memory?.planned?.total ?? null,
        started: t.started,
        ended: t.ended,
        failure: t.failure ?? null,
    };
}

/** Every trial by its number, and who wants to know of changes. */
function trialStore() {
    const byN = new Map();
    const heard = new Set(); // of which an event has spoken since the pages of all trials were asked for
    const readers = new Set();
    let sorted = null;
    const tell = () => readers.forEach((fn) => fn());
    const soon = atMostEvery(250, tell);
    const later = atMostEvery(1500, tell);
    // Drawing thousands of points takes as long as fetching them: while they come, seldom is often enough.
    const changed = () => (byN.size > 2000 && filling ? later() : soon());
    let filling = false;
    function put(items) {
        for (const t of items) byN.set(t.n, brief(t));
        sorted = null;
        changed();
    }
    return {
        /** What an event says, which is newer than any page that is under way. */
        hear(t) {
            heard.add(t.n);
            put([t]);
        },
        page: (items) => put(items.filter((t) => !heard.has(t.n))),
        filling(on) {
            filling = on;
            heard.clear();
            if (!on) soon();
        },
        get: (n) => byN.get(n),
        all() {
            sorted ??= [...byN.values()].sort((a, b) => a.n - b.n);
            return sorted;
        },
        onChange: (fn) => readers.add(fn),
    };
}

function summaryTiles() {
    const best = tile(
        "Best so far",
        "the fastest layout tried, and the 95 % interval of its throughput",
    );
    const baseline = tile("Baseline", "what the winner is compared with");
    const gain = tile("Gain", "throughput of the best over the baseline");
    const mfu = tile(
        "MFU",
        "model FLOP utilisation of the best: 3 × forward, no recompute, over the peak of all devices",
    );
    const trials = tile("Trials");
    const clock = tile("Time", "while the campaign was running");
    const cost = tile(
        "Device time",
        "devices times seconds, against an estimate of what trying every legal layout would take",
    );
    const link = (c, r) => [
        h("a", { href: href(["campaigns", c.id, "trials", r.trial]) }, `trial ${r.trial}`),
        ` · ${r.text}`,
    ];
    const noted = (...nodes) => h("span", {}, nodes.flat());
    const within = (r) => `${r.simulated ? "simulated, " : ""}95 %: ${interval(r.lo, r.hi)}`;

    function gainNote(c) {
        const v = c.verify;
        if (v?.verdict)
            return `${v.simulated ? "simulated" : "measured"} again in turn: ${ratio(v.lo)} – ${ratio(v.hi)}, ${v.verdict}`;
        return c.state === "verifying" ? "is being run again" : "";
    }

    // The campaign tells of its time when something happens; a trial may take minutes in between.
    let told = 0;
    function drawClock(c) {
        const { elapsed_s = null, eta_s = null } = c.progress ?? {};
        const since = c.state === "running" ? (performance.now() - told) / 1000 : 0;
        const left = eta_s === null ? null : Math.max(0, eta_s - since);
        clock.set(
            seconds(elapsed_s === null ? null : elapsed_s + since),
            c.state === "running" && left > 0
                ? `about ${seconds(left)} left`
                : `started ${time(c.started ?? c.created)}`,
        );
    }

    function update(c) {
        const p = c.progress ?? {};
        best.set(
            rate(c.best?.tokens_per_s),
            c.best
                ? noted(within(c.best), h("br"), link(c, c.best))
                : "no trial has succeeded yet",
        );
        baseline.set(
            rate(c.baseline?.tokens_per_s),
            c.baseline
                ? noted(
                      `${BASELINE_RULES[c.baseline_rule] ?? ""} · `,
                      within(c.baseline),
                      h("br"),
                      link(c, c.baseline),
                  )
                : (BASELINE_RULES[c.baseline_rule] ?? ""),
        );
        gain.set(ratio(c.verify?.ratio ?? c.best?.ratio), gainNote(c));
        mfu.set(
            percent(c.best?.mfu),
            c.best && c.best.mfu === null ? "the peak of the device is unknown" : "",
        );
        trials.set(
            p.budget ? `${count(p.trials)} of ${count(p.budget)}` : count(p.trials),
            [
                failuresText(p.by_state) ? `failed: ${failuresText(p.by_state)}` : "none failed",
                stoppedText(p.by_state),
            ]
                .filter(Boolean)
                .join(" · "),
        );
        told = performance.now();
        drawClock(c);
        const saved = savedDeviceSeconds(c);
        if (c.simulated) cost.set(NONE, "simulated: no device was used");
        else cost.set(deviceTime(p.device_s), saved ? `about ${deviceTime(saved)} saved` : "");
    }
    return { element: tiles(best, baseline, gain, mfu, trials, clock, cost), update, drawClock };
}

function actionBar(ctx, campaign, changed) {
    const bar = h("div", { class: "actions" });
    const answer = h("div");
    let busy = false;
    let shown = "";

    /** Ask first; the button that asked may have been drawn anew meanwhile and has the focus again. */
    async function confirmed(verb, ...question) {
        const yes = await confirmDialog(...question);
        if (bar.isConnected && !document.activeElement?.closest("main *")) focusOn(verb);
        return yes;
    }

    function focusOn(text) {
        const button = [...bar.children].find((b) => b.textContent === text);
        button?.focus();
        return Boolean(button);
    }

    async function act(verb, said) {
        if (busy) return; // pressed twice
        busy = true;
        try {
            const c = await post(campaignPath(campaign().id, `:${verb}`), {});
            announce(said);
            fill(answer);
            if (c?.id && c.id === campaign().id) changed(c);
        } catch (error) {
            fill(answer, failure(error));
        }
        busy = false;
    }

    async function cancel() {
        const c = campaign();
        if (
            await confirmed(
                "Cancel",
                `Cancel ${isolated(c.name.slice(0, 80))}?`,
                "Running trials are killed. Results so far stay.",
                "Cancel the campaign",
            )
        )
            await act("cancel", "cancelled");
    }

    async function drop() {
        const c = campaign();
        if (
            !(await confirmed(
                "Delete",
                `Delete ${isolated(c.name.slice(0, 80))}?`,
                "All its trials and logs go with it.",
                "Delete",
            ))
        )
            return;
        try {
            await remove(campaignPath(c.id));
            go(["campaigns"]);
        } catch (error) {
            fill(answer, failure(error));
        }
    }

    function update() {
        const c = campaign();
        const button = (text, onclick, className) =>
            h("button", { type: "button", class: className, onclick }, text);
        const over = ["done", "cancelled", "failed"].includes(c.state);
        const now = `${c.state} ${Boolean(c.best)}`; // all that the bar depends on
        if (now === shown) return;
        shown = now;
        const place = [...bar.children].indexOf(document.activeElement);
        const focused = bar.children[place]?.textContent;
        fill(
            bar,
            c.state === "running" && button("Pause", () => act("pause", "paused")),
            c.state === "paused" && button("Resume", () => act("resume", "resumed"), "primary"),
            over && c.best && button("Verify", () => act("verify", "verifying")),
            c.best &&
                h("a", { class: "button", href: href(["campaigns", c.id, "export"]) }, "Export"),
            c.best &&
                h("a", { class: "button", href: href(["project"], { campaign: c.id }) }, "Project"),
            h("a", { class: "button", href: href(["new"], { from: c.id }) }, "Clone with changes"),
            h("a", { class: "button", href: href(["compare"], { campaigns: c.id }) }, "Compare"),
            over ? button("Delete", drop, "danger") : button("Cancel", cancel, "danger"),
        );
        // What takes the place of the one that was pressed is pressed next: Resume where Pause was.
        if (place >= 0 && !focusOn(focused)) bar.children[Math.min(place, bar.children.length - 1)].focus();
    }
    return { bar, answer, update };
}

export async function render(ctx) {
    const id = ctx.segments[1];
    const tab = ctx.query.tab ?? "overview";
    // Both are asked for at once: the table stands a round trip earlier.
    const coming = tab === "overview" ? firstTrials(ctx) : null;
    let campaign = await get(campaignPath(id), null, ctx.signal);
    let changes = 0;
    ctx.simulated = campaign.simulated;
    const store = trialStore();
    const name = h("h1", {});
    const badge = h("span", {});
    const reason = h("p", { class: "sub" });
    const heads = summaryTiles();
    const actions = actionBar(ctx, () => campaign, setCampaign);
    const problem = h("div");
    const page = {
        ctx,
        id,
        store,
        campaign: () => campaign,
        readers: new Set(),
        setCampaign,
        firstTrials: coming,
    };
    const strip = tabs(
        "Views of the campaign",
        TABS.map((t) => ({
            key: t.key,
            title: t.title,
            open: (body) => t.open(page, body),
        })),
        (key) => setQuery({ tab: key === "overview" ? "" : key }, true),
    );

    function drawHead() {
        ctx.title(`${campaign.name.slice(0, 60)} (${campaign.state})`);
        name.textContent = campaign.name;
        badge.replaceChildren(campaignBadge(campaign.state), " ", simulatedBadge(campaign) ?? "");
        reason.textContent = [
            reasonText(campaign.reason),
            campaign.simulated && SIMULATED[1],
            modelText(campaign),
            warmText(campaign.warm_start),
        ]
            .filter(Boolean)
            .join(" · ");
        heads.update(campaign);
        actions.update();
        page.readers.forEach((fn) => fn(campaign));
    }
    const drawSoon = oncePerFrame(drawHead);

    // Events bring the campaign without what was submitted, which does not change.
    function setCampaign(c) {
        campaign = { ...campaign, ...c };
        changes += 1;
        drawSoon();
    }

    async function loadTrials() {
        await coming?.catch(() => {}); // what is looked at first comes first
        store.filling(true);
        try {
            await eachPage(
                campaignPath(id, "/trials"),
                { sort: "n" },
                store.page,
                ctx.signal,
            );
            store.filling(false);
            fill(problem);
            // The other views are fetched now that nobody waits; a failure shows when one is opened.
            TABS.forEach((t) => t.load?.().catch(() => {}));
        } catch (error) {
            if (error.name !== "AbortError") fill(problem, failure(error, loadTrials));
        }
    }

    async function reload() {
        const before = changes;
        try {
            const c = await get(campaignPath(id), null, ctx.signal);
            if (changes === before) setCampaign(c); // else events have told of newer
        } catch (error) {
            if (error instanceof ApiError) fill(problem, notice("bad", explain(error)));
        }
    }

    function onTrial(t) {
        const before = store.get(t.n);
        store.hear(t);
        page.onTrial?.(t, before);
    }

    fill(
        ctx.root,
        h("p", { class: "crumbs" }, h("a", { href: href([]) }, "Campaigns"), ` / ${id}`),
        h("div", { class: "head" }, name, badge, h("span", { class: "grow" }), actions.bar),
        reason,
        actions.answer,
        problem,
        heads.element,
        strip.element,
    );
    drawHead();
    strip.show(tab, true);
    const ticking = setInterval(() => campaign.state === "running" && heads.drawClock(campaign), 1000);
    ctx.onLeave(() => clearInterval(ticking));

    let first = true;
    const stream = openStream(campaignPath(id, "/events"), {
        onState: (state, wait) => {
            ctx.streamState(state, wait);
            if (state === "gone")
                fill(
                    problem,
                    notice(
                        "warn",
                        "The service no longer has this campaign, or does not show it to you. What you see is how it was. ",
                        h("a", { href: href([]) }, "All campaigns"),
                    ),
                );
        },
        onOpen: (resumed) => {
            reload();
            page.onReload?.();
            if (!resumed || first) loadTrials();
            first = false;
        },
        onEvent: (event, data) => {
            if (event === "campaign" && data.id === id) setCampaign(data);
            else if (event === "trial") onTrial(data);
        },
    });
    ctx.onLeave(stream.close);
    return { update: (query) => strip.show(query.tab ?? "overview") };
}

/** "mixtral-tiny · local, 2 devices · 32 sequences a step" */
export /** What informs the search besides its own trials. */
function warmText(w) {
    if (!w) return "";
    const simulated = w.simulated ? `, ${count(w.simulated)} of them simulated` : "";
    return `informed by ${count(w.trials)} trials of earlier campaigns${simulated}`;
}

function modelText(c) {
    const devices =
        c.cluster?.nodes && c.cluster?.devices_per_node
            ? c.cluster.nodes * c.cluster.devices_per_node
            : null;
    return (
        [
            c.model?.name && `model ${c.model.name}`,
            c.cluster?.name &&
                `cluster ${c.cluster.name}${devices ? ` (${devices === 1 ? "1 device" : `${count(devices)} devices`})` : ""}`,
            c.workload?.global_batch && `${count(c.workload.global_batch)} sequences a step`,
            c.workload?.data && `data ${c.workload.data}`,
            c.trainer && `trainer ${c.trainer}`,
            c.space?.legal !== undefined && `${count(c.space.legal)} legal layouts`,
        ]
            .filter(Boolean)
            .join(" · ") || NONE
    );
}
