// All campaigns: the state of each, what it found against the baseline, what it cost and what failed.

import { openStream } from "../lib/live.js";
import { atMostEvery, fill, h } from "../lib/dom.js";
import { count, deviceTime, interval, ratio, rateNumber, seconds, time } from "../lib/format.js";
import { href, setQuery } from "../lib/router.js";
import { CAMPAIGN_STATES, FAILED_TRIAL, STOPPED_TRIAL, reasonText } from "../lib/words.js";
import { campaignBadge, empty, field, simulatedBadge } from "../parts/parts.js";
import { listTable } from "../parts/list.js";

/** "2 oom, 1 crash" */
export function failuresText(byState) {
    return Object.entries(byState ?? {})
        .filter(([state, n]) => FAILED_TRIAL.has(state) && n > 0)
        .map(([state, n]) => `${count(n)} ${state}`)
        .join(", ");
}

/** "11 stopped early", of those that were too slow to be worth their time. */
export function stoppedText(byState) {
    const n = Object.entries(byState ?? {}).reduce(
        (sum, [state, k]) => sum + (STOPPED_TRIAL.has(state) ? k : 0),
        0,
    );
    return n ? `${count(n)} stopped early` : "";
}

/**
 * Device-seconds that trying every legal layout would have cost beyond what was spent, at the mean cost of a trial of
 * the full size so far.
 */
export function savedDeviceSeconds(campaign) {
    if (campaign.simulated) return null; // no device was used, and what trials would take is what is to be found out
    const { trials, device_s, smaller_trials = 0, smaller_device_s = 0 } = campaign.progress ?? {};
    const legal = campaign.space?.legal;
    const whole = trials - smaller_trials;
    if (!whole || !device_s || !legal || legal <= trials) return null;
    return (legal * (device_s - smaller_device_s)) / whole - device_s;
}

function progress(campaign) {
    const { trials = 0, budget = null, eta_s = null } = campaign.progress ?? {};
    const share = budget ? Math.min(1, trials / budget) : null;
    const bar = h("i");
    bar.style.setProperty("width", `${100 * (share ?? 0)}%`);
    return [
        h("span", {}, budget ? `${count(trials)} of ${count(budget)}` : count(trials)),
        share !== null && h("span", { class: "meter", "aria-hidden": "true" }, bar),
        campaign.state === "running" &&
            eta_s !== null &&
            h("span", { class: "soft" }, `${seconds(eta_s)} left`),
    ];
}

const COLUMNS = [
    {
        key: "name",
        title: "Campaign",
        sort: "name",
        plain: true,
        wide: true,
        cell: (campaign) => [
            h(
                "a",
                { href: href(["campaigns", campaign.id]), class: "name" },
                h("bdi", {}, clip(campaign.name)),
            ),
            campaign.tags?.length
                ? h(
                      "div",
                      { class: "chips" },
                      campaign.tags.map((t) => h("span", { class: "tag" }, h("bdi", {}, clip(t)))),
                  )
                : null,
        ],
    },
    {
        key: "state",
        title: "State",
        sort: "state",
        plain: true,
        cell: (campaign) => [
            campaignBadge(campaign.state),
            campaign.simulated && [" ", simulatedBadge(campaign)],
            campaign.reason && h("div", { class: "soft" }, reasonText(campaign.reason)),
        ],
    },
    { key: "trials", title: "Trials", cell: progress },
    {
        key: "best",
        title: "Best, tokens/s",
        num: true,
        cell: (campaign) =>
            campaign.best
                ? [
                      rateNumber(campaign.best.tokens_per_s),
                      h("div", { class: "soft" }, interval(campaign.best.lo, campaign.best.hi)),
                      campaign.simulated && h("div", { class: "soft" }, "simulated"),
                  ]
                : "–",
    },
    {
        key: "ratio",
        title: "vs baseline",
        num: true,
        cell: (c) => ratio(c.verify?.ratio ?? c.best?.ratio),
        help: "throughput of the best layout over that of the baseline",
    },
    {
        key: "layout",
        title: "Best layout",
        wide: true,
        cell: (c) => (c.best ? h("span", { class: "mono name" }, c.best.text) : "–"),
    },
    {
        key: "failures",
        title: "Failures",
        cell: (campaign) => [
            failuresText(campaign.progress?.by_state) || h("span", { class: "soft" }, "none"),
            stoppedText(campaign.progress?.by_state) &&
                h("div", { class: "soft" }, stoppedText(campaign.progress?.by_state)),
        ],
    },
    {
        key: "cost",
        title: "Spent",
        num: true,
        cell: (campaign) => [
            campaign.simulated ? "–" : deviceTime(campaign.progress?.device_s),
            savedDeviceSeconds(campaign) &&
                h(
                    "div",
                    {
                        class: "soft",
                        title: "estimate: mean cost of a trial × legal layouts not tried",
                    },
                    `${deviceTime(savedDeviceSeconds(campaign))} saved`,
                ),
        ],
    },
    {
        key: "created",
        title: "Created",
        sort: "created",
        num: true,
        cell: (c) => h("time", { datetime: c.created, title: c.created }, time(c.created)),
    },
];

/** A name as long as a page is cut; the campaign's own page has all of it. */
function clip(text) {
    return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

function filters(query, changed) {
    const name = h("input", {
        type: "search",
        value: query.name ?? "",
        placeholder: "part of the name",
    });
    const tag = h("input", { type: "search", value: query.tag ?? "" });
    const state = h(
        "select",
        {},
        h("option", { value: "" }, "any"),
        Object.keys(CAMPAIGN_STATES).map((s) => h("option", { value: s }, s)),
    );
    state.value = query.state ?? "";
    const read = () => ({ name: name.value.trim(), tag: tag.value.trim(), state: state.value });
    const soon = atMostEvery(300, () => changed(read()));
    for (const input of [name, tag, state]) input.addEventListener("input", soon);
    return h(
        "form",
        { class: "filters", role: "search", onsubmit: (e) => e.preventDefault() },
        field("Name", name),
        field("State", state),
        field("Tag", tag),
    );
}

function none(filtered) {
    if (filtered) return empty("No campaign matches", h("p", {}, "Change the filters above."));
    return empty(
        "No campaigns yet",
        h("p", {}, "A campaign searches for the fastest layout of one model on one cluster."),
        h("p", {}, h("a", { class: "button primary", href: href(["new"]) }, "New campaign")),
        h("pre", { class: "code" }, "partune new campaign.json\npartune submit campaign.json"),
    );
}

export async function render(ctx) {
    let query = { name: ctx.query.name, state: ctx.query.state, tag: ctx.query.tag };
    ctx.title("Campaigns");

    const list = listTable(ctx, {
        path: "v1/campaigns",
        query: () => query,
        columns: COLUMNS,
        id: (c) => c.id,
        sort: "-created",
        label: "campaigns",
        none: () => none(Object.values(query).some(Boolean)),
    });
    const reload = atMostEvery(1000, () => list.load());
    // What filters and orders go by, but for the time of creation, which stays.
    const placeOf = (c) => JSON.stringify([c.name, c.state, c.tags]);

    fill(
        ctx.root,
        h(
            "div",
            { class: "head" },
            h("h1", {}, "Campaigns"),
            h("span", { class: "grow" }),
            h("a", { class: "button primary", href: href(["new"]) }, "New campaign"),
        ),
        filters(ctx.query, (next) => {
            if (ctx.signal.aborted) return; // typed just before the page was left
            query = next;
            setQuery(next);
            list.load(true);
        }),
        h("div", { class: "panel" }, list.element),
    );

    const first = list.load();
    const stream = openStream("v1/events", {
        // A second load would have the first one's answer thrown away, and the table wait for it.
        onOpen: () => first.then(() => list.load()),
        onState: ctx.streamState,
        onEvent: (name, data) => {
            if (name !== "campaign") return;
            const before = list.update(data);
            if (!before || placeOf(before) !== placeOf(data)) reload();
        },
    });
    ctx.onLeave(stream.close);
    await first;
}
