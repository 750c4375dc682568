// Ranked layouts of a job by the cost model alone: no trial, no cluster needed.

import { ApiError, explain, post } from "../lib/api.js";
import { fill, h, whileBusy } from "../lib/dom.js";
import { bytes, count, ms, percent, rate, rateNumber } from "../lib/format.js";
import { go } from "../lib/router.js";
import { session } from "../lib/store.js";
import { turns } from "../lib/turn.js";
import { MEMORY_CLASSES, ordered } from "../lib/words.js";
import { axes, chartPanel, legend, tip, tooltip } from "../charts/panel.js";
import { empty, loading, notice, panel, table } from "../parts/parts.js";
import {
    boundField,
    keepDraft,
    offers,
    presetField,
    problemsOf,
    put,
    showProblems,
} from "../parts/job.js";

const KEEP = "partune-plan";
const COST_ORDER = [
    "forward",
    "backward",
    "recompute",
    "tp",
    "cp",
    "ep",
    "pp",
    "bubble",
    "dp",
    "optimizer",
    "other",
];

function keysOf(items, part, order) {
    const all = {};
    for (const item of items)
        for (const [k, v] of Object.entries(item[part] ?? {}))
            if (v > 0 && !["total", "rank", "tokens_per_s"].includes(k)) all[k] = true;
    return ordered(all, order);
}

function stacked(part, title, name, unit, order, scale, show) {
    return {
        title,
        name,
        none: "Nothing is planned yet.",
        option({ items }, p, width) {
            const top = items.slice(0, 20);
            const named = width >= 520; // else the numbers of the table alone
            const keys = keysOf(top, part, order);
            if (!keys.length) return null;
            return {
                ...axes(p, {
                    x: { name: unit, splitLine: { show: true, lineStyle: { color: p.line } } },
                    y: {
                        type: "category",
                        data: top.map((item, i) => (named ? `#${i + 1} ${item.text}` : `#${i + 1}`)),
                        inverse: true,
                        splitLine: { show: false },
                        axisLabel: {
                            color: p.soft,
                            interval: 0,
                            width: 190,
                            overflow: "truncate",
                            fontFamily: "monospace",
                            fontSize: 11,
                        },
                    },
                    grid: { left: named ? 205 : 40 },
                }),
                legend: legend(p),
                tooltip: tooltip(p, {
                    trigger: "axis",
                    axisPointer: { type: "shadow" },
                    formatter: (l) =>
                        tip(
                            `#${l[0].dataIndex + 1} ${top[l[0].dataIndex].text}`,
                            l.map((q) => [q.seriesName, show(q.value * scale)]),
                        ),
                }),
                series: keys.map((k, i) => ({
                    name: k,
                    type: "bar",
                    stack: "all",
                    itemStyle: { color: p.series[i % 8] },
                    data: top.map((item) => (item[part]?.[k] ?? 0) / scale),
                })),
            };
        },
        summary: ({ items }) =>
            `The first ${Math.min(20, items.length)} of ${items.length} layouts.`,
        table: ({ items }) => {
            const keys = keysOf(items, part, order);
            return {
                columns: [
                    "layout",
                    ...keys.map((k) => `${k} ${part === "memory" ? "bytes" : "s"}`),
                ],
                rows: items.map((i) => [i.text, ...keys.map((k) => i[part]?.[k] ?? null)]),
            };
        },
    };
}

const timeChart = stacked(
    "seconds",
    "Where a step's time goes",
    "plan-time",
    "s",
    COST_ORDER,
    1,
    (s) => ms(s * 1000),
);
const memoryChart = stacked(
    "memory",
    "Where the worst rank's memory goes",
    "plan-memory",
    "GiB",
    MEMORY_CLASSES,
    1024 ** 3,
    bytes,
);

/** "+ 15, down to −8.3 %": the other layouts of the item's family. */
function variantsText({ variants: v, tokens_per_s: best }) {
    if (!v?.count) return "";
    return `+ ${count(v.count)}, down to ${percent(v.worst / best - 1)}`;
}

/** What the list does not have a line for. */
function leftOut(items) {
    const n = items.reduce((sum, x) => sum + (x.equivalents ?? 0), 0);
    return [
        items.some((x) => x.variants) &&
            "The best of each family; its variants differ in sp, zero_scope and overlap flags.",
        n > 0 &&
            `${count(n)} equivalent layouts are left out: the same seconds and memory as a listed one.`,
    ]
        .filter(Boolean)
        .join(" ");
}

function rankTable(items, start) {
    const columns = [
        ["#", 1],
        ["Layout", 0, "mono layout"],
        ["Expected tokens/s", 1],
        ["MFU", 1],
        ["Step", 1],
        ["Memory, worst rank", 1],
        ["Variants"],
        ["Campaign", 1],
        ["Why", 0, "why"],
    ];
    return table(
        "table of ranked layouts",
        columns,
        items.map((item, i) => [
            String(i + 1),
            item.text,
            rateNumber(item.tokens_per_s),
            percent(item.mfu),
            ms(stepMs(item)),
            bytes(item.memory?.total),
            variantsText(item),
            h(
                "button",
                { type: "button", class: "quiet", onclick: () => start(item) },
                "Start here",
            ),
            item.why ?? "",
        ]),
    );
}

/** What each rule excludes, the strictest first, as the service counts it: [{rule, count, sentence}]. */
function excludedPanel(answer) {
    const share = (x) =>
        x.rule === "memory"
            ? `${percent(x.count / answer.legal)} of the legal`
            : percent(x.count / answer.candidates);
    return panel(
        "What each rule excludes",
        {
            note: `Of ${count(answer.candidates)} combinations of the space's values. A combination may break several rules; memory counts legal layouts that do not fit.`,
        },
        table(
            "table of excluded",
            [["Rule", 0, "mono"], ["Excluded", 1], ["Share", 1], ["Which means", 0, "why"]],
            answer.excluded.map((x) => [x.rule, count(x.count), share(x), x.sentence ?? ""]),
        ),
    );
}

function stepMs(item) {
    if (item.seconds?.total !== undefined) return item.seconds.total * 1000;
    const parts = Object.values(item.seconds ?? {});
    return parts.length ? parts.reduce((a, b) => a + b, 0) * 1000 : null;
}

export async function render(ctx) {
    const list = await offers(ctx.signal);
    let job = JSON.parse(session.get(KEEP) ?? "null") ?? {
        model: list.models.includes("gpt-22B") ? "gpt-22B" : list.models[0],
        cluster: list.clusters.includes("dgx-a100") ? { profile: "dgx-a100", nodes: 8 } : "local",
        workload: { global_batch: 128 },
        trainer: "megatron",
        top: 30,
    };
    const edit = (pointer, value) => {
        job = put(job, pointer, value === "" ? undefined : value);
        session.set(KEEP, JSON.stringify(job));
    };
    const f = (pointer, title, type, more) => boundField(pointer, { title, type, ...more }, edit);
    const fields = [
        presetField("model", list.models, edit),
        presetField("cluster", list.clusters, edit),
        f("/workload/global_batch", "Global batch (sequences)", "number"),
        f("/workload/seq", "Sequence (tokens)", "number", { placeholder: "as in the model" }),
        f("/workload/precision", "Precision", "text", {
            options: [
                ["", "the trainer's default"],
                ["fp32", "fp32"],
                ["bf16", "bf16"],
                ["fp8", "fp8"],
            ],
        }),
        f("/trainer", "Trainer", "text", {
            options: ["megatron", "torchtitan", "deepspeed", "partune", "any"].map((t) => [t, t]),
        }),
        f("/space", "Space, as JSON", "json", { placeholder: '{"tp": [1, 2, 4, 8]}' }),
        f("/top", "Layouts shown", "number"),
        f("/fold", "Variants", "json", {
            options: [
                ["", "the best of each family"],
                ["false", "each on a line of its own"],
            ],
        }),
    ];
    const result = h("div", { "aria-live": "polite" });
    const button = h("button", { class: "primary" }, "Rank layouts");
    const next = turns(ctx);

    function start(item) {
        keepDraft({
            name: `${typeof job.model === "string" ? job.model : (job.model?.name ?? "model")} from plan`,
            model: job.model,
            cluster: job.cluster,
            workload: job.workload,
            ...(job.space && { space: job.space }),
            ...(job.trainer && { trainer: job.trainer }),
            ...(item && { baseline: item.layout }),
        });
        go(["new"]);
    }

    function show(now, answer) {
        const items = answer.items ?? [];
        const head = h(
            "p",
            { class: "sub", role: "status" },
            (answer.exact === false
                ? `${count(answer.legal)} legal layouts were looked at, the likeliest first; the space has more. Of these ${count(answer.fitting)} fit. `
                : `${count(answer.legal)} legal layouts, ${count(answer.fitting)} of them fit. `) +
                (items.length
                    ? `The fastest is expected to reach ${rate(items[0].tokens_per_s)}.`
                    : ""),
        );
        if (!items.length) {
            fill(
                result,
                head,
                empty(
                    answer.legal ? "No layout fits" : "No layout is legal",
                    h(
                        "p",
                        {},
                        answer.reason ??
                            "A larger cluster, a smaller model or more recompute may help.",
                    ),
                ),
                answer.excluded?.length > 0 && excludedPanel(answer),
            );
            return;
        }
        const time = chartPanel(now, { ...timeChart, className: "w6", size: "tall" });
        const memory = chartPanel(now, { ...memoryChart, className: "w6", size: "tall" });
        time.set({ items });
        memory.set({ items });
        fill(
            result,
            head,
            panel(
                "Ranked layouts",
                {
                    note: leftOut(items),
                    tools: [
                        h(
                            "button",
                            { type: "button", onclick: () => start(null) },
                            "Start a campaign",
                        ),
                    ],
                },
                rankTable(items, start),
            ),
            h("br"),
            h("div", { class: "grid" }, time.element, memory.element),
            answer.excluded?.length > 0 && excludedPanel(answer),
        );
    }

    async function run() {
        const now = next();
        fill(result, loading("the plan"));
        try {
            show(now, await post("v1/plan", job, { signal: now.signal }));
            fields.forEach((x) => x.fail(""));
        } catch (error) {
            if (now.signal.aborted) return;
            const left =
                error instanceof ApiError
                    ? showProblems(fields, problemsOf(error))
                    : [{ detail: explain(error) }];
            fill(
                result,
                notice(
                    "bad",
                    left.length
                        ? left.map((p) => h("p", {}, p.pointer ? `${p.pointer}: ` : "", p.detail))
                        : "See the fields above.",
                ),
            );
        }
    }

    ctx.title("Plan");
    fields.forEach((x) => x.show(job));
    fill(
        ctx.root,
        h("h1", {}, "Plan"),
        h(
            "p",
            { class: "sub" },
            "Describe a model and a cluster; the cost model ranks every legal layout. No trial is run.",
        ),
        h(
            "form",
            {
                onsubmit: (event) => {
                    event.preventDefault();
                    whileBusy(button, run);
                },
            },
            h(
                "fieldset",
                {},
                h("legend", {}, "Job"),
                h(
                    "div",
                    { class: "fields" },
                    fields.map((x) => x.element),
                ),
                h("p", { class: "actions" }, button),
            ),
        ),
        result,
    );
    fill(
        result,
        empty(
            "Nothing planned yet",
            h("p", {}, "Rank layouts shows expected throughput, time and memory of each."),
        ),
    );
}
