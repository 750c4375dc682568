// Two to five trials or campaigns side by side; what differs is marked.

import { campaignPath, eachPage, get, trialPath } from "../lib/api.js";
import { atMostEvery, fill, h, keepFocus } from "../lib/dom.js";
import {
    bytes,
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
import { LAYOUT_KEYS, MEMORY_CLASSES, PHASES, ordered, phaseColour } from "../lib/words.js";
import { bestSoFar, bounds } from "../charts/best.js";
import { axes, chartPanel, legend, narrow, short, tip, tooltip } from "../charts/panel.js";
import { campaignBadge, empty, failure, loading, notice, simulatedBadge, trialBadge } from "../parts/parts.js";
import { failuresText } from "./campaigns.js";

const MOST = 5;

/** "id/3,id/5" as [["id", "3"], …] */
export function parseTrials(text) {
    return (text ?? "")
        .split(",")
        .map((t) => t.trim().split("/"))
        .filter(([id, n]) => id && /^\d+$/.test(n ?? ""))
        .slice(0, MOST);
}

function sideBySide(caption, heads, rows) {
    return h(
        "div",
        { class: "panel scroll", tabindex: "0", role: "region", "aria-label": caption },
        h(
            "table",
            {},
            h(
                "thead",
                {},
                h(
                    "tr",
                    {},
                    h("th", { scope: "col" }, "compared"),
                    heads.map((x) => h("th", { scope: "col" }, x)),
                ),
            ),
            h(
                "tbody",
                {},
                rows.map(([name, cells]) => {
                    const texts = cells.map((c) => (c instanceof Node ? c.textContent : String(c)));
                    const differs = new Set(texts).size > 1;
                    return h(
                        "tr",
                        {},
                        h(
                            "th",
                            { scope: "row" },
                            name,
                            differs && h("span", { class: "soft", title: "these differ" }, " ≠"),
                        ),
                        cells.map((c) => h("td", {}, differs ? h("strong", {}, c) : c)),
                    );
                }),
            ),
        ),
    );
}

/** Simulated ones beside real ones: the numbers are of two kinds. */
function mixedNotice(items) {
    const n = items.filter((x) => x.simulated).length;
    return (
        n > 0 &&
        n < items.length &&
        notice(
            "warn",
            "Some of these are simulated and some were measured: what the simulator says does not compare with a measurement.",
        )
    );
}

const simulatedRow = (items) => [
    "Simulated",
    items.map((x) => simulatedBadge(x) ?? "no"),
];

/** What a page shows of ITEMS is simulated if all of them are. */
function markAll(ctx, items) {
    ctx.simulated = items.every((x) => x.simulated);
}

/** By class; of a simulated trial what was planned, which is all that it has. */
const memoryOf = (t) => (t.simulated ? t.memory?.planned : t.memory?.measured);

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
        row("95 % interval, tokens/s", (t) => (bounds(t) ? interval(...bounds(t)) : NONE)),
        row("vs the first", (t) => (base && t.tokens_per_s ? ratio(t.tokens_per_s / base) : NONE)),
        row("Expected", (t) => rate(t.predicted?.tokens_per_s)),
        row("Step", (t) => ms(t.step_ms?.median)),
        row("MFU", (t) => percent(t.mfu)),
        row("Memory of the worst rank", (t) => bytes(memoryOf(t)?.total)),
        row("Loss, last, nats a token", (t) => significant(t.loss?.last, 4)),
        row("Failure", (t) => t.failure?.detail ?? NONE),
        ...keys.map((k) => row(k, (t) => String(t.layout?.[k] ?? NONE))),
    ];
}

function stackChart(ctx, title, name, labels, parts, order, unit, divide, show) {
    const keys = ordered(Object.assign({}, ...parts.map((p) => p ?? {})), order).filter(
        (k) => !["total", "rank"].includes(k) && parts.some((p) => p?.[k] > 0),
    );
    const chart = chartPanel(ctx, {
        title,
        name,
        className: "w6",
        none: "None of these has such numbers.",
        option: (_, p, width) =>
            keys.length
                ? {
                      ...axes(p, {
                          x: {
                              name: unit,
                              splitLine: { show: true, lineStyle: { color: p.line } },
                          },
                          y: {
                              type: "category",
                              data: labels,
                              inverse: true,
                              splitLine: { show: false },
                              axisLabel: {
                                  color: p.soft,
                                  width: narrow(width) ? 60 : 130,
                                  overflow: "truncate",
                              },
                          },
                          grid: { left: narrow(width) ? 72 : 145 },
                      }),
                      legend: legend(p),
                      tooltip: tooltip(p, {
                          trigger: "axis",
                          axisPointer: { type: "shadow" },
                          formatter: (l) =>
                              tip(
                                  l[0].name,
                                  l.map((q) => [q.seriesName, show(q.value * divide)]),
                              ),
                      }),
                      series: keys.map((k, i) => ({
                          name: k,
                          type: "bar",
                          stack: "all",
                          barMaxWidth: 40,
                          itemStyle: { color: p.series[order === PHASES ? phaseColour(k, 8) : i % 8] },
                          data: parts.map((x) => (x?.[k] ?? 0) / divide),
                      })),
                  }
                : null,
        summary: () => labels.join(", "),
        table: () => ({
            columns: ["", ...keys.map((k) => `${k} ${unit}`)],
            rows: labels.map((l, i) => [l, ...keys.map((k) => (parts[i]?.[k] ?? 0) / divide)]),
        }),
    });
    chart.set({});
    return chart.element;
}

async function showTrials(ctx, body, list) {
    const trials = await Promise.all(
        list.map(([id, n]) => get(trialPath(id, n), null, ctx.signal)),
    );
    markAll(ctx, trials);
    const many = new Set(list.map(([id]) => id)).size > 1;
    const label = (t) => (many ? `${t.campaign} / ${t.n}` : `trial ${t.n}`);
    const heads = trials.map((t) =>
        h("a", { href: href(["campaigns", t.campaign, "trials", String(t.n)]) }, label(t)),
    );
    fill(
        body,
        mixedNotice(trials),
        sideBySide("trials side by side", heads, trialRows(trials)),
        h("br"),
        h(
            "div",
            { class: "grid" },
            stackChart(
                ctx,
                "Phases of the median step",
                "compare-phases",
                trials.map(label),
                trials.map((t) => t.phases_ms),
                PHASES,
                "ms",
                1,
                ms,
            ),
            stackChart(
                ctx,
                trials.some((t) => t.simulated) ? "Memory by class" : "Memory measured",
                "compare-memory",
                trials.map(label),
                trials.map(memoryOf),
                MEMORY_CLASSES,
                "MiB",
                1024 ** 2,
                bytes,
            ),
        ),
    );
}

function campaignRows(list) {
    const row = (name, fn) => [name, list.map(fn)];
    return [
        row("State", (c) => campaignBadge(c.state)),
        simulatedRow(list),
        row("Model", (c) => c.model?.name ?? NONE),
        row("Cluster", (c) => c.cluster?.name ?? NONE),
        row("Global batch", (c) => `${c.workload?.global_batch ?? NONE} sequences`),
        row("Best", (c) => rate(c.best?.tokens_per_s)),
        row("95 % interval, tokens/s", (c) => (c.best ? interval(c.best.lo, c.best.hi) : NONE)),
        row("Best layout", (c) => h("span", { class: "mono" }, c.best?.text ?? NONE)),
        row("MFU", (c) => percent(c.best?.mfu)),
        row("Baseline", (c) => rate(c.baseline?.tokens_per_s)),
        row("vs baseline", (c) => ratio(c.verify?.ratio ?? c.best?.ratio)),
        row("Trials", (c) => String(c.progress?.trials ?? NONE)),
        row("Failures", (c) => failuresText(c.progress?.by_state) || "none"),
        row("Spent", (c) => (c.simulated ? NONE : deviceTime(c.progress?.device_s))),
        row("Time", (c) => seconds(c.progress?.elapsed_s)),
        row("Search", (c) =>
            [
                c.spec?.search?.method ?? "bayes",
                c.spec?.search?.prior === "none" ? "without prior" : "",
            ]
                .join(" ")
                .trim(),
        ),
    ];
}

async function showCampaigns(ctx, body, ids) {
    const list = await Promise.all(ids.map((id) => get(campaignPath(id), null, ctx.signal)));
    markAll(ctx, list);
    const curves = new Map(ids.map((id) => [id, []]));
    const chart = chartPanel(ctx, {
        title: "Best so far",
        name: "compare-best",
        note: "Over the number of trials.",
        size: "tall",
        none: "No trial has succeeded.",
        option: ({ rows }, p) =>
            rows.some((r) => r.curve.length)
                ? {
                      ...axes(p, {
                          x: { name: "trial", minInterval: 1, min: 0 },
                          y: {
                              name: "tokens/s",
                              scale: true,
                              axisLabel: { color: p.soft, formatter: short },
                          },
                      }),
                      legend: legend(p),
                      tooltip: tooltip(p, {
                          trigger: "item",
                          formatter: (q) =>
                              tip(q.seriesName, [
                                  ["Trial", String(q.value[0])],
                                  ["Best so far", rate(q.value[1])],
                              ]),
                      }),
                      series: rows.map((r, i) => ({
                          name: r.name,
                          type: "line",
                          step: "end",
                          symbolSize: 6,
                          lineStyle: {
                              width: 2,
                              color: p.series[i],
                              type: ["solid", "dashed", "dotted"][i % 3],
                          },
                          itemStyle: { color: p.series[i] },
                          data: r.curve,
                      })),
                  }
                : null,
        summary: ({ rows }) =>
            rows.map((r) => `${r.name}: ${rate(r.curve.at(-1)?.[1])}`).join("; "),
        table: ({ rows }) => ({
            columns: ["campaign", "trial", "best so far tokens/s"],
            rows: rows.flatMap((r) => r.curve.map((x) => [r.name, ...x])),
        }),
    });
    const heads = list.map((c) =>
        h(
            "a",
            { href: href(["campaigns", c.id]), class: "name" },
            h("bdi", {}, c.name.slice(0, 80)),
        ),
    );
    fill(
        body,
        mixedNotice(list),
        sideBySide("campaigns side by side", heads, campaignRows(list)),
        h("br"),
        h("div", { class: "grid" }, chart.element),
    );
    await Promise.all(
        list.map(async (c) => {
            const trials = [];
            await eachPage(
                campaignPath(c.id, "/trials"),
                { sort: "n" },
                (items) =>
                    trials.push(
                        ...items.map(
                            ({ n, kind, state, repeat_of, tokens_per_s, tokens_per_s_se }) => ({
                                n,
                                kind,
                                state,
                                repeat_of,
                                tokens_per_s,
                                tokens_per_s_se,
                            }),
                        ),
                    ),
                ctx.signal,
            );
            curves.set(c.id, bestSoFar(trials));
        }),
    );
    chart.set({
        rows: list.map((c) => ({
            name: `${isolated(c.name.slice(0, 40))} (${c.id}${c.simulated ? ", simulated" : ""})`,
            curve: curves.get(c.id),
        })),
    });
}

async function chooser(ctx, chosen, open) {
    const find = (name) =>
        get("v1/campaigns", { page_size: 100, sort: "-created", name }, ctx.signal);
    const page = await find("");
    const picked = new Set(chosen);
    const named = new Map(page.items.map((c) => [c.id, c.name]));
    const list = h("div", { class: "choices", tabindex: "0", role: "group", "aria-label": "campaigns" });
    const name = h("input", { type: "search", placeholder: "part of the name" });
    let asked = 0;

    const choice = (id) =>
        h(
            "label",
            {},
            h("input", {
                type: "checkbox",
                checked: picked.has(id),
                onchange: (e) => {
                    if (e.target.checked) picked.add(id);
                    else picked.delete(id);
                    update();
                },
            }),
            h("bdi", {}, (named.get(id) ?? "").slice(0, 60)),
            h("span", { class: "soft" }, id),
        );

    // Those that are picked stay in sight, whatever is looked for.
    function draw(items) {
        for (const c of items) named.set(c.id, c.name);
        const found = items.map((c) => c.id).filter((id) => !picked.has(id));
        fill(list, [...picked, ...found].map(choice));
        if (!list.children.length) fill(list, h("p", { class: "soft" }, "No campaign matches."));
    }

    const look = atMostEvery(300, async () => {
        const mine = ++asked;
        const { items } = await find(name.value.trim()).catch(() => ({ items: null }));
        if (items && mine === asked) draw(items);
    });
    name.addEventListener("input", look);
    draw(page.items);
    const button = h(
        "button",
        { type: "button", class: "primary", onclick: () => open([...picked]) },
        "Compare",
    );
    const update = () => {
        button.disabled = picked.size < 2 || picked.size > MOST;
    };
    update();
    if (!page.items.length)
        return empty("Nothing to compare yet", h("p", {}, "Start a campaign first."));
    return h(
        "fieldset",
        {},
        h("legend", {}, "Campaigns, two to five"),
        page.total > page.items.length &&
            h("div", { class: "filters" }, h("label", { class: "field" }, h("span", {}, "Name"), name)),
        list,
        h("p", { class: "actions" }, button),
    );
}

function trialForm(open, text) {
    const field = h("input", { value: text ?? "", placeholder: "k3v9qw2m/1, k3v9qw2m/5" });
    return h(
        "form",
        {
            class: "filters",
            onsubmit: (e) => {
                e.preventDefault();
                open(field.value);
            },
        },
        h("label", { class: "field" }, h("span", {}, "Trials, as campaign/number"), field),
        h("button", {}, "Compare trials"),
    );
}

export async function render(ctx) {
    const choices = h("div", {}, loading("campaigns"));
    const body = h("div", { "aria-live": "polite" });
    const form = h("div");
    const next = turns(ctx);
    let shown = false;

    async function show(query) {
        const now = next();
        const trials = parseTrials(query.trials);
        const campaigns = (query.campaigns ?? "").split(",").filter(Boolean).slice(0, MOST);
        fill(
            form,
            trialForm(
                (text) => setQuery({ trials: text.replace(/\s/g, ""), campaigns: "" }, true),
                query.trials,
            ),
        );
        try {
            const picker = await chooser(now, campaigns, (ids) =>
                setQuery({ campaigns: ids.join(","), trials: "" }, true),
            );
            fill(choices, picker);
            if (shown) keepFocus();
            shown = true;
            if (trials.length) await showTrials(now, body, trials);
            else if (campaigns.length > 1) await showCampaigns(now, body, campaigns);
            else
                fill(
                    body,
                    empty(
                        "Choose two to five",
                        h("p", {}, "Campaigns above, or trials by their numbers."),
                    ),
                );
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
        h("p", { class: "sub" }, "What differs is in bold and marked with ≠."),
        choices,
        form,
        body,
    );
    await show(ctx.query);
    return { update: show };
}
