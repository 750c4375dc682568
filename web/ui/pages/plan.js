// Ranked layouts of a job by the cost model alone: no trial, no cluster needed.

import { ApiError, explain, post } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { bytes, count, ms, percent, rate, rateNumber, significant } from "../lib/format.js";
import { go } from "../lib/router.js";
import { turns } from "../lib/turn.js";
import { MEMORY_CLASSES } from "../lib/words.js";
import { chartPanel } from "../charts/panel.js";
import { stackedBars } from "../charts/stacked.js";
import { button, empty, loading, notice, panel, table } from "../parts/parts.js";
import {
    PRECISIONS,
    boundField,
    keepDraft,
    offers,
    presetField,
    problemsOf,
    put,
    showProblems,
    stackField,
    submitForm,
} from "../parts/job.js";
import { batchTable, costOf } from "../parts/slices.js";
import { sizeFields, sizesView } from "../parts/sizing.js";
import {
    barsOf,
    campaignOf,
    excludedShare,
    firstJob,
    keepJob,
    leftOut,
    sizingOf,
    stepMs,
    variantsText,
} from "./plan-model.js";
import { partsPanels, placementText } from "./plan-parts.js";

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
const DRAWN = 20;
const TRAINERS = ["megatron", "torchtitan", "deepspeed", "partune", "any"];

const common = {
    none: "No plan yet.",
    className: "w6",
    size: "tall",
    of: "layout",
    most: DRAWN,
    // Where names have no room, the numbers of the table alone.
    names(width) {
        const whole = width >= 520;
        return {
            whole,
            left: whole ? 205 : 40,
            limit: 190,
            every: true,
            mono: true,
        };
    },
    summary: ({ bars }) => `The first ${Math.min(DRAWN, bars.length)} of ${bars.length} layouts.`,
};

const timeChart = stackedBars({
    ...common,
    title: "Step time by phase",
    name: "plan-time",
    order: COST_ORDER,
    unit: "s",
    scale: 1,
    show: (value) => ms(value * 1000),
});
const memoryChart = stackedBars({
    ...common,
    title: "Memory of the worst rank by class",
    name: "plan-memory",
    order: MEMORY_CLASSES,
    unit: "GiB",
    scale: 1024 ** 3,
    raw: ["bytes", 1],
    show: bytes,
});

const BATCH_COLUMNS = [
    ["Global batch", 1],
    ["Device-s per million tokens", 1],
];
/** Of a plan of SEVERAL batches, or on PARTS, where no campaign can run. */
const rankColumns = (several, parts) => [
    ["#", 1],
    ["Layout", 0, "mono layout"],
    ...(parts ? [["Stages on each part"]] : []),
    ...(several ? BATCH_COLUMNS : []),
    ["Expected tokens/s", 1],
    ["MFU", 1],
    ["Step", 1],
    ["Memory, worst rank", 1],
    ["Variants"],
    ...(parts ? [] : [["Campaign", 1]]),
    ["Why", 0, "why"],
];

function rankTable({ items, batches, alone }, start) {
    const several = Boolean(batches);
    const parts = Boolean(alone);
    return table(
        "table of ranked layouts",
        rankColumns(several, parts),
        items.map((item, i) => [
            String(i + 1),
            item.text,
            ...(parts ? [placementText(item)] : []),
            ...(several ? [count(item.layout.global_batch), significant(costOf(item))] : []),
            rateNumber(item.tokens_per_s),
            percent(item.mfu),
            ms(stepMs(item)),
            bytes(item.memory?.total),
            variantsText(item),
            ...(parts ? [] : [button("Use as baseline", () => start(item), "quiet")]),
            item.why ?? "",
        ]),
    );
}

/** The best of each batch size, where there are several. */
function batchPanel({ batches, alone }, start) {
    if (!batches) return null;
    return panel(
        "Best of each batch size",
        {},
        batchTable(batches, ({ best }) => {
            if (!best) return "nothing fits";
            return alone ? "" : button("Use as baseline", () => start(best), "quiet");
        }),
    );
}

/** What options that the space does not name would bring. */
function beyondNote({ beyond }) {
    if (!beyond) return null;
    const { keys, ratio, text } = beyond;
    const gain = ratio === null ? "fits" : `is expected to be ${ratio.toFixed(2)} × as fast`;
    return h(
        "p",
        { class: "notice" },
        `Options that this space does not name: ${keys}. With them `,
        h("code", {}, text),
        ` ${gain}.`,
    );
}

/** What each rule excludes, the strictest first, as the service counts it: [{rule, count, sentence}]. */
function excludedPanel(answer) {
    if (!answer.excluded?.length) return null;
    return panel(
        "What each rule excludes",
        {
            note:
                `Of ${answer.exact ? "" : "at least "}${count(answer.candidates)} combinations. ` +
                "One may break several rules. " +
                "Memory counts legal layouts that do not fit.",
        },
        table(
            "table of excluded",
            [
                ["Rule", 0, "mono"],
                ["Excluded", 1],
                ["Share", 1],
                ["Meaning", 0, "why"],
            ],
            answer.excluded.map((item) => [
                item.rule,
                count(item.count),
                excludedShare(item, answer),
                item.sentence ?? "",
            ]),
        ),
    );
}

function verdict({ exact, legal, fitting, items = [] }) {
    const looked =
        exact === false
            ? `${count(legal)} legal layouts evaluated (the space has more); ${count(fitting)} fit in memory. `
            : `${count(legal)} legal layouts; ${count(fitting)} fit in memory. `;
    const fastest = items.length ? `Fastest: ${rate(items[0].tokens_per_s)} (expected).` : "";
    return h("p", { class: "sub", role: "status" }, looked + fastest);
}

function nothingFits({ legal, reason }) {
    const hint = reason ?? "Try a larger cluster, a smaller model or more recomputation.";
    return empty(legal ? "No layout fits" : "No layout is legal", h("p", {}, hint));
}

/**
 * ANSWER of the service as nodes. START(item, part) begins a campaign from an item, or from the job alone where it is
 * null; on the whole cluster, or on the PART of that number.
 */
function answerView(ctx, answer, start) {
    const items = answer.items ?? [];
    const parts = partsPanels(answer, start);
    if (!items.length)
        return [verdict(answer), nothingFits(answer), parts, beyondNote(answer), excludedPanel(answer)];
    const time = chartPanel(ctx, timeChart);
    const memory = chartPanel(ctx, memoryChart);
    time.set(barsOf(items, "seconds"));
    memory.set(barsOf(items, "memory"));
    const tools = parts ? [] : [button("Start a campaign", () => start(null))];
    return [
        verdict(answer),
        beyondNote(answer),
        parts,
        panel(
            "Ranked layouts",
            { note: leftOut(items), tools },
            rankTable(answer, start),
        ),
        h("br"),
        batchPanel(answer, start),
        h("div", { class: "grid" }, time.element, memory.element),
        excludedPanel(answer),
    ];
}

function jobFields(list, edit) {
    const bound = (pointer, title, type, more) =>
        boundField(pointer, { title, type, ...more }, edit);
    return [
        presetField("model", list.models, edit),
        presetField("cluster", list.clusters, edit),
        bound("/workload/global_batch", "Global batch (sequences)", "choices", {
            help: "several, as in 256, 512, are ranked together",
        }),
        bound("/workload/seq", "Sequence (tokens)", "number", { placeholder: "as in the model" }),
        bound("/workload/precision", "Precision", "text", { options: PRECISIONS }),
        bound("/trainer", "Trainer", "text", { options: TRAINERS.map((name) => [name, name]) }),
        stackField(list.stacks, edit),
        bound("/space", "Space, as JSON", "json", { placeholder: '{"tp": [1, 2, 4, 8]}' }),
        bound("/top", "Layouts shown", "number"),
        bound("/fold", "Variants", "json", {
            options: [
                ["", "best per family"],
                ["false", "all"],
            ],
        }),
    ];
}

/** What was wrong with the job and belongs to no field. */
function refusal(problems) {
    return notice(
        "bad",
        problems.length
            ? problems.map(({ pointer, detail }) =>
                  h("p", {}, pointer ? `${pointer}: ` : "", detail),
              )
            : "See the fields above.",
    );
}

/** Ask the service, and show in RESULT its answer by VIEW, or at FIELDS what is wrong. */
function asker(ctx, result, fields) {
    const next = turns(ctx);

    return async (path, what, body, view) => {
        const now = next();
        fill(result, loading(what));
        try {
            const answer = await post(path, body, { signal: now.signal });
            fill(result, view(now, answer));
            fields.forEach((each) => each.fail(""));
        } catch (error) {
            if (now.signal.aborted) return;
            const left =
                error instanceof ApiError
                    ? showProblems(fields, problemsOf(error))
                    : [{ detail: explain(error) }];
            fill(result, refusal(left));
        }
    };
}

const elementsOf = (fields) => fields.map((each) => each.element);

const nothingYet = () =>
    empty(
        "No plan yet",
        h(
            "p",
            {},
            "Rank layouts lists expected throughput, step time and memory; ",
            "Compare sizes what more devices bring.",
        ),
    );

export async function render(ctx) {
    const list = await offers(ctx.signal);
    let job = firstJob(list);
    let asked = {};
    const result = h("div", { "aria-live": "polite" });
    const fields = jobFields(list, (pointer, value) => {
        job = put(job, pointer, value === "" ? undefined : value);
        keepJob(job);
    });
    const sizes = sizeFields((pointer, value) => {
        asked = put(asked, pointer, value === "" ? undefined : value);
    });
    const ask = asker(ctx, result, [...fields, ...sizes]);

    function start(item, part) {
        const cluster = part === undefined ? job.cluster : job.cluster.parts[part];
        keepDraft(campaignOf({ ...job, cluster }, item));
        go(["new"]);
    }

    const rank = () =>
        ask("v1/plan", "the plan", job, (now, answer) => answerView(now, answer, start));
    const size = () =>
        ask("v1/size", "the sizes", sizingOf(job, asked), (_, answer) => sizesView(answer, asked));

    ctx.title("Plan");
    fields.forEach((each) => each.show(job));
    fill(
        ctx.root,
        h("h1", {}, "Plan"),
        h(
            "p",
            { class: "sub" },
            "Rank every legal layout of a model on a cluster by the cost model. Runs no trial.",
        ),
        submitForm("Job", elementsOf(fields), h("button", { class: "primary" }, "Rank layouts"), rank),
        submitForm("Number of devices", elementsOf(sizes), h("button", {}, "Compare sizes"), size),
        result,
    );
    fill(result, nothingYet());
}
