// Two to five trials or campaigns side by side; what differs is marked.

import { campaignPath, eachPage, get, trialPath } from "../lib/api.js";
import { atMostEvery, fill, h, keepFocus } from "../lib/dom.js";
import {
    bytes,
    counts,
    deviceTime,
    interval,
    isolated,
    ms,
    percent,
    ratio,
    rate,
    seconds,
    significant,
    NONE,
} from "../lib/format.js";
import { href, setQuery } from "../lib/router.js";
import { turns } from "../lib/turn.js";
import { LAYOUT_KEYS, MEMORY_CLASSES, PHASES, phaseColor } from "../lib/words.js";
import { bestSoFar, bounds } from "../charts/best.js";
import { narrow, short, tip } from "../charts/options.js";
import { chartPanel } from "../charts/panel.js";
import { stackedBars } from "../charts/stacked.js";
import {
    button,
    campaignBadge,
    empty,
    failure,
    field,
    loading,
    notice,
    simulatedBadge,
    trialBadge,
} from "../parts/parts.js";
import { sliceRows } from "../parts/slices.js";
import { failuresText } from "./campaigns.js";
import { inferredText, isSmaller, memoryOf, ranOf, ranText } from "./trial-model.js";

const MOST = 5;

/** "id/3,id/5" as [["id", "3"], …] */
export function parseTrials(text) {
    return (text ?? "")
        .split(",")
        .map((t) => t.trim().split("/"))
        .filter(([id, n]) => id && /^\d+$/.test(n ?? ""))
        .slice(0, MOST);
}

/** ROWS, [name, [content of each cell]], under HEADS; those whose cells differ are marked. */
function sideBySide(caption, heads, rows) {
    const textOf = (cell) => (cell instanceof Node ? cell.textContent : String(cell));
    const line = ([name, cells]) => {
        const differs = new Set(cells.map(textOf)).size > 1;
        const sign = differs && h("span", { class: "soft", title: "these differ" }, " ≠");
        return h(
            "tr",
            {},
            h("th", { scope: "row" }, name, sign),
            cells.map((cell) => h("td", {}, differs ? h("strong", {}, cell) : cell)),
        );
    };
    const columns = ["property", ...heads].map((head) => h("th", { scope: "col" }, head));
    return h(
        "div",
        { class: "panel scroll", tabindex: "0", role: "region", "aria-label": caption },
        h("table", {}, h("thead", {}, h("tr", {}, columns)), h("tbody", {}, rows.map(line))),
    );
}

/** Simulated and real ones together: the numbers are of two kinds. */
function mixedNotice(items) {
    const n = items.filter((x) => x.simulated).length;
    return (
        n > 0 &&
        n < items.length &&
        notice(
            "warn",
            "Some of these are simulated, some were measured. A simulated number is not a measurement.",
        )
    );
}

const simulatedRow = (items) => ["Simulated", items.map((x) => simulatedBadge(x) ?? "no")];

/** What a page shows of ITEMS is simulated if all of them are. */
function markAll(ctx, items) {
    ctx.simulated = items.every((x) => x.simulated);
}

function trialRows(trials) {
    const base = trials[0].tokens_per_s;
    const row = (name, fn) => [name, trials.map(fn)];
    const keys = Object.keys(LAYOUT_KEYS).filter((k) =>
        trials.some((t) => t.layout?.[k] !== undefined && t.layout[k] !== null),
    );
    return [
        row("State", (t) => trialBadge(t.state)),
        simulatedRow(trials),
        row("Throughput", (t) => rate(t.tokens_per_s)),
        trials.some(isSmaller) && row("Inferred", (t) => inferredText(t) ?? NONE),
        trials.some(isSmaller) && row("Ran", (t) => (isSmaller(t) ? ranText(t) : "the full size")),
        row("95 % interval, tokens/s", (t) => (bounds(t) ? interval(...bounds(t)) : NONE)),
        row("vs first", (t) => (base && t.tokens_per_s ? ratio(t.tokens_per_s / base) : NONE)),
        row("Expected", (t) => rate(t.predicted?.tokens_per_s)),
        row("Step", (t) => ms(ranOf(t).step_ms?.median)),
        row("MFU", (t) => percent(ranOf(t).mfu)),
        trials.some((t) => ranOf(t).tokens_per_joule) &&
            row("Tokens per joule", (t) => significant(ranOf(t).tokens_per_joule)),
        row("Memory of the worst rank", (t) => bytes(memoryOf(ranOf(t))?.total)),
        row("Final loss, nats/token", (t) => significant(ranOf(t).loss?.last, 4)),
        row("Failure", (t) => t.failure?.detail ?? NONE),
        ...keys.map((k) => row(k, (t) => String(t.layout?.[k] ?? NONE))),
    ].filter(Boolean);
}

/** A chart of stacked bars, one for each of NAMES, made of PARTS. */
function stackChart(ctx, spec, names, parts) {
    const chart = chartPanel(
        ctx,
        stackedBars({
            className: "w6",
            none: "No data.",
            names: (width) => ({
                whole: true,
                left: narrow(width) ? 72 : 145,
                limit: narrow(width) ? 60 : 130,
            }),
            summary: () => names.join(", "),
            ...spec,
        }),
    );
    chart.set({ bars: names.map((name, i) => ({ name, parts: parts[i] })) });
    return chart.element;
}

const phasesChart = {
    title: "Phases of the median step",
    name: "compare-phases",
    order: PHASES,
    unit: "ms",
    scale: 1,
    show: ms,
    color: (name) => phaseColor(name, 8),
};
const memoryChart = {
    title: "Memory measured",
    name: "compare-memory",
    order: MEMORY_CLASSES,
    unit: "MiB",
    scale: 1024 ** 2,
    show: bytes,
};

async function showTrials(ctx, body, list) {
    const trials = await Promise.all(
        list.map(([id, n]) => get(trialPath(id, n), null, ctx.signal)),
    );
    markAll(ctx, trials);
    const many = new Set(list.map(([id]) => id)).size > 1;
    const names = trials.map(({ campaign, n }) => (many ? `${campaign} / ${n}` : `trial ${n}`));
    const heads = trials.map((trial, i) =>
        h("a", { href: href(["campaigns", trial.campaign, "trials", String(trial.n)]) }, names[i]),
    );
    const title = trials.some((trial) => trial.simulated) ? "Memory by class" : memoryChart.title;
    const phases = trials.map((trial) => trial.phases_ms);
    fill(
        body,
        mixedNotice(trials),
        sideBySide("trials side by side", heads, trialRows(trials)),
        h("br"),
        h(
            "div",
            { class: "grid" },
            stackChart(ctx, phasesChart, names, phases),
            stackChart(ctx, { ...memoryChart, title }, names, trials.map(memoryOf)),
        ),
    );
}

function campaignRows(list) {
    const row = (name, fn) => [name, list.map(fn)];
    return [
        row("State", (c) => campaignBadge(c.state)),
        simulatedRow(list),
        row("Model", (c) => c.model?.name ?? NONE),
        row("Cluster", (c) => [c.cluster].flat().map((one) => one?.name ?? NONE).join(", ")),
        row("Global batch", (c) => `${counts(c.workload?.global_batch)} sequences`),
        row("Best", (c) => rate(c.best?.tokens_per_s)),
        row("95 % interval, tokens/s", (c) => (c.best ? interval(c.best.lo, c.best.hi) : NONE)),
        row("Best layout", (c) => h("span", { class: "mono" }, c.best?.text ?? NONE)),
        ...sliceRows(list),
        row("MFU", (c) => percent(c.best?.mfu)),
        row("Baseline", (c) => rate(c.baseline?.tokens_per_s)),
        row("vs baseline", (c) => ratio(c.verify?.ratio ?? c.best?.ratio)),
        row("Trials", (c) => String(c.progress?.trials ?? NONE)),
        row("Failures", (c) => failuresText(c.progress?.by_state) || "none"),
        row("Spent", (c) => (c.simulated ? NONE : deviceTime(c.progress?.device_s))),
        row("Time", (c) => seconds(c.progress?.elapsed_s)),
        row("Search", (campaign) =>
            [
                campaign.spec?.search?.method ?? "bayes",
                campaign.spec?.search?.prior === "none" ? "without prior" : "",
            ]
                .join(" ")
                .trim(),
        ),
    ];
}

const bestCurves = {
    title: "Best so far",
    name: "compare-best",
    note: "Against the number of trials.",
    size: "tall",
    none: "No trial has succeeded.",
    plot({ rows }, palette) {
        if (!rows.some((row) => row.curve.length)) return null;
        const line = ({ name, curve }, i) => ({
            type: "line",
            name,
            step: true,
            dots: 6,
            width: 2,
            color: palette.series[i],
            dash: [undefined, [6, 4], [2, 3]][i % 3],
            rows: curve.map(([n, best]) => ({ x: n, y: best })),
        });
        return {
            x: { title: "trial", whole: true, from: 0 },
            y: { title: "tokens/s", format: short },
            legend: true,
            tip: ({ x, y }, name) =>
                tip(name, [
                    ["Trial", String(x)],
                    ["Best so far", rate(y)],
                ]),
            series: rows.map(line),
        };
    },
    summary: ({ rows }) =>
        rows.map(({ name, curve }) => `${name}: ${rate(curve.at(-1)?.[1])}`).join("; "),
    table: ({ rows }) => ({
        columns: ["campaign", "trial", "best so far tokens/s"],
        rows: rows.flatMap(({ name, curve }) => curve.map((point) => [name, ...point])),
    }),
};

/** The best so far over the trials of campaign ID, which may have many: only what that needs is kept. */
async function curveOf(id, signal) {
    const trials = [];
    const keep = ({ n, kind, state, repeat_of, tokens_per_s, tokens_per_s_se }) =>
        trials.push({ n, kind, state, repeat_of, tokens_per_s, tokens_per_s_se });
    await eachPage(
        campaignPath(id, "/trials"),
        { sort: "n" },
        (items) => items.forEach(keep),
        signal,
    );
    return bestSoFar(trials);
}

async function showCampaigns(ctx, body, ids) {
    const list = await Promise.all(ids.map((id) => get(campaignPath(id), null, ctx.signal)));
    markAll(ctx, list);
    const chart = chartPanel(ctx, bestCurves);
    const heads = list.map(({ id, name }) =>
        h("a", { href: href(["campaigns", id]), class: "name" }, h("bdi", {}, name.slice(0, 80))),
    );
    fill(
        body,
        mixedNotice(list),
        sideBySide("campaigns side by side", heads, campaignRows(list)),
        h("br"),
        h("div", { class: "grid" }, chart.element),
    );
    const curves = await Promise.all(list.map(({ id }) => curveOf(id, ctx.signal)));
    const rows = list.map(({ id, name, simulated }, i) => ({
        name: `${isolated(name.slice(0, 40))} (${id}${simulated ? ", simulated" : ""})`,
        curve: curves[i],
    }));
    chart.set({ rows });
}

/** Boxes for campaigns: {element, show(items)}. PICKED holds the ids that are picked; ON_CHANGE() is told. */
function choiceList(picked, onChange) {
    const names = new Map();
    const element = h("div", {
        class: "choices",
        tabindex: "0",
        role: "group",
        "aria-label": "campaigns",
    });
    const choose = (id) => (event) => {
        if (event.target.checked) picked.add(id);
        else picked.delete(id);
        onChange();
    };
    const choice = (id) =>
        h(
            "label",
            {},
            h("input", { type: "checkbox", checked: picked.has(id), onchange: choose(id) }),
            h("bdi", {}, (names.get(id) ?? "").slice(0, 60)),
            h("span", { class: "soft" }, id),
        );
    return {
        element,
        // Those that are picked stay in sight, whatever is looked for.
        show(items) {
            for (const { id, name } of items) names.set(id, name);
            const found = items.map(({ id }) => id).filter((id) => !picked.has(id));
            fill(element, [...picked, ...found].map(choice));
            if (!element.children.length)
                fill(element, h("p", { class: "soft" }, "No campaign matches."));
        },
    };
}

/** Choose among the campaigns, of which there may be many; OPEN(ids) is told what to compare. */
async function chooser(ctx, chosen, open) {
    const find = (name) =>
        get("v1/campaigns", { page_size: 100, sort: "-created", name }, ctx.signal);
    const page = await find("");
    if (!page.items.length)
        return empty("Nothing to compare yet", h("p", {}, "Start a campaign first."));
    const picked = new Set(chosen);
    const name = h("input", { type: "search", placeholder: "part of the name" });
    const compare = button("Compare", () => open([...picked]), "primary");
    const update = () => {
        compare.disabled = picked.size < 2 || picked.size > MOST;
    };
    const list = choiceList(picked, update);
    let asked = 0;
    const look = atMostEvery(300, async () => {
        asked += 1;
        const mine = asked;
        const { items } = await find(name.value.trim()).catch(() => ({ items: null }));
        if (items && mine === asked) list.show(items);
    });
    name.addEventListener("input", look);
    list.show(page.items);
    update();
    return h(
        "fieldset",
        {},
        h("legend", {}, "Campaigns (two to five)"),
        page.total > page.items.length && h("div", { class: "filters" }, field("Name", name)),
        list.element,
        h("p", { class: "actions" }, compare),
    );
}

function trialForm(open, text) {
    const input = h("input", { value: text ?? "", placeholder: "k3v9qw2m/1, k3v9qw2m/5" });
    return h(
        "form",
        {
            class: "filters",
            onsubmit: (event) => {
                event.preventDefault();
                open(input.value);
            },
        },
        field("Trials (campaign/number)", input),
        h("button", {}, "Compare trials"),
    );
}

const campaignIds = (text) => (text ?? "").split(",").filter(Boolean).slice(0, MOST);

/** What QUERY asks for, in BODY. */
async function showChosen(ctx, body, query) {
    const trials = parseTrials(query.trials);
    const ids = campaignIds(query.campaigns);
    const hint = h("p", {}, "Select campaigns or enter trials.");
    if (trials.length) await showTrials(ctx, body, trials);
    else if (ids.length > 1) await showCampaigns(ctx, body, ids);
    else fill(body, empty("Nothing selected", hint));
}

export async function render(ctx) {
    const choices = h("div", {}, loading("campaigns"));
    const body = h("div", { "aria-live": "polite" });
    const form = h("div");
    const next = turns(ctx);
    const openTrials = (text) => setQuery({ trials: text.replace(/\s/g, ""), campaigns: "" }, true);
    const openCampaigns = (ids) => setQuery({ campaigns: ids.join(","), trials: "" }, true);
    let shown = false;

    async function show(query) {
        const now = next();
        fill(form, trialForm(openTrials, query.trials));
        try {
            fill(choices, await chooser(now, campaignIds(query.campaigns), openCampaigns));
            if (shown) keepFocus();
            shown = true;
            await showChosen(now, body, query);
        } catch (error) {
            if (now.signal.aborted) return;
            if (!choices.querySelector("fieldset, .empty")) fill(choices);
            fill(
                body,
                failure(error, () => show(query)),
            );
        }
    }

    ctx.title("Compare");
    fill(
        ctx.root,
        h("h1", {}, "Compare"),
        h("p", { class: "sub" }, "Differences are bold and marked ≠."),
        choices,
        form,
        body,
    );
    await show(ctx.query);
    return { update: show };
}
