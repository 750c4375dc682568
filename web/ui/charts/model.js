// Charts that hold the cost model against the measurements, and throughput against memory.

import { bytes, counted, percent, rate } from "../lib/format.js";
import { FAILED_TRIAL, STOPPED_TRIAL } from "../lib/words.js";
import { FEW } from "./marks.js";
import { short, tip } from "./options.js";
import { thin } from "./thin.js";

const MAX_POINTS = 2000;
const GIB = 1024 ** 3;

/** The unit in which the largest of VALUES (bytes) is a handy number. */
function memoryUnit(values) {
    return Math.max(...values) >= GIB ? ["GiB", GIB] : ["MiB", 1024 ** 2];
}

function median(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    if (!sorted.length) return null;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Median error and median size of the error of PAIRS [{predicted, measured}], as shares of the measured value. */
export function errorsOf(pairs) {
    const relative = pairs.map((q) => (q.predicted - q.measured) / q.measured);
    return { bias: median(relative), size: median(relative.map(Math.abs)), count: pairs.length };
}

/** Spearman's rank correlation: does the model order the layouts as the measurements do? Null for fewer than 3. */
export function rankCorrelation(pairs) {
    if (pairs.length < 3) return null;
    const ranks = (key) => {
        const order = pairs.map((q, i) => [q[key], i]).sort((a, b) => a[0] - b[0]);
        const r = new Array(pairs.length);
        for (let i = 0; i < order.length; ) {
            let j = i;
            while (j < order.length && order[j][0] === order[i][0]) j += 1;
            for (let k = i; k < j; k++) r[order[k][1]] = (i + j - 1) / 2;
            i = j;
        }
        return r;
    };
    const a = ranks("predicted");
    const b = ranks("measured");
    const mean = (pairs.length - 1) / 2;
    let top = 0;
    let aa = 0;
    let bb = 0;
    for (let i = 0; i < a.length; i++) {
        top += (a[i] - mean) * (b[i] - mean);
        aa += (a[i] - mean) ** 2;
        bb += (b[i] - mean) ** 2;
    }
    return aa && bb ? top / Math.sqrt(aa * bb) : null;
}

export function speedPairs(trials) {
    return trials
        .filter((t) => t.state === "ok" && t.tokens_per_s && t.predicted?.tokens_per_s)
        .map((trial) => ({
            n: trial.n,
            text: trial.text,
            predicted: trial.predicted.tokens_per_s,
            measured: trial.tokens_per_s,
        }));
}

export function memoryPairs(trials) {
    return trials
        .filter((t) => t.measured_bytes && (t.predicted?.memory_bytes ?? t.planned_bytes))
        .map((trial) => ({
            n: trial.n,
            text: trial.text,
            predicted: trial.predicted?.memory_bytes ?? trial.planned_bytes,
            measured: trial.measured_bytes,
        }));
}

function pairTip({ n, text, predicted, measured }, show) {
    return tip(`Trial ${n}: ${text ?? ""}`, [
        ["Predicted", show(predicted)],
        ["Actual", show(measured)],
        ["Error", percent((predicted - measured) / measured)],
    ]);
}

/** Both axes of a comparison of VALUES, with a little room at the ends. */
function equalAxis(values, format) {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const margin = (high - low || high) * 0.05;
    return { from: Math.max(0, low - margin), to: high + margin, format };
}

function diagonal(low, high, palette) {
    return {
        type: "line",
        silent: true,
        color: palette.strong,
        dash: [4, 4],
        width: 1,
        rows: [
            { x: low, y: low },
            { x: high, y: high },
        ],
    };
}

function againstDiagonal(pairs, palette, { unit, label, show, divide }) {
    const shown = thin(pairs, MAX_POINTS, (pair) => pair.measured);
    const rows = shown.map((pair) => ({
        n: pair.n,
        x: pair.predicted / divide,
        y: pair.measured / divide,
        pair,
    }));
    const axis = equalAxis(
        rows.flatMap(({ x, y }) => [x, y]),
        label,
    );
    return {
        x: { ...axis, title: `predicted ${unit}` },
        y: { ...axis, title: `measured ${unit}` },
        tip: ({ pair }) => pairTip(pair, show),
        series: [
            diagonal(axis.from, axis.to, palette),
            {
                type: "points",
                size: rows.length > FEW ? 3 : 8,
                color: palette.series[0],
                opacity: 0.8,
                rows,
            },
        ],
    };
}

function errorText(pairs) {
    if (!pairs.length) return "";
    const { count, size, bias } = errorsOf(pairs);
    const rank = rankCorrelation(pairs);
    const errors = `median error ${percent(size)} (bias ${bias > 0 ? "+" : ""}${percent(bias)})`;
    const order = rank === null ? "" : `, rank correlation ${rank.toFixed(2)}`;
    return `${counted(count, "trial")}: ${errors}${order}.`;
}

const pairTable = (pairs, unit) => ({
    columns: ["trial", "layout", `predicted ${unit}`, `measured ${unit}`, "error, %"],
    rows: pairs.map((pair) => [
        pair.n,
        pair.text,
        pair.predicted,
        pair.measured,
        (100 * (pair.predicted - pair.measured)) / pair.measured,
    ]),
});

export const speedModel = {
    title: "Throughput, predicted and measured",
    note: "Dashed line: perfect prediction. Above it, the trial was faster than predicted.",
    name: "predicted-throughput",
    none: "No trial with a prediction has been measured.",
    plot({ trials }, palette) {
        const pairs = speedPairs(trials);
        return pairs.length
            ? againstDiagonal(pairs, palette, {
                  unit: "tokens/s",
                  label: short,
                  show: rate,
                  divide: 1,
              })
            : null;
    },
    summary: ({ trials }) => errorText(speedPairs(trials)),
    table: ({ trials }) => pairTable(speedPairs(trials), "tokens/s"),
};

export const memoryModel = {
    title: "Memory, predicted and measured",
    note: "Peak of the worst rank.",
    name: "predicted-memory",
    none: "No trial with a memory prediction has been measured.",
    plot({ trials }, palette) {
        const pairs = memoryPairs(trials);
        if (!pairs.length) return null;
        const [unit, divide] = memoryUnit(pairs.map((q) => q.measured));
        return againstDiagonal(pairs, palette, { unit, label: short, show: bytes, divide });
    },
    summary: ({ trials }) => errorText(memoryPairs(trials)),
    table: ({ trials }) => pairTable(memoryPairs(trials), "bytes"),
};

/** Trials that no other beats in both throughput and memory, from the leanest up. */
export function paretoFront(trials) {
    const points = trials
        .filter((t) => t.state === "ok" && t.tokens_per_s && t.measured_bytes)
        .sort((a, b) => a.measured_bytes - b.measured_bytes || b.tokens_per_s - a.tokens_per_s);
    let best = -Infinity;
    return points.filter((trial) => {
        if (trial.tokens_per_s <= best) return false;
        best = trial.tokens_per_s;
        return true;
    });
}

export const pareto = {
    title: "Throughput and memory",
    note: "Line: Pareto front. No other trial is both faster and smaller.",
    name: "pareto",
    none: "No trial with measured memory yet.",
    plot({ trials }, palette) {
        const points = trials.filter((t) => t.state === "ok" && t.tokens_per_s && t.measured_bytes);
        if (!points.length) return null;
        const front = paretoFront(trials);
        const onFront = new Set(front.map((t) => t.n));
        const [unit, divide] = memoryUnit(points.map((t) => t.measured_bytes));
        const at = (trial) => ({
            n: trial.n,
            x: trial.measured_bytes / divide,
            y: trial.tokens_per_s,
            trial,
        });
        const rest = thin(
            points.filter((t) => !onFront.has(t.n)),
            MAX_POINTS,
            (t) => t.tokens_per_s,
        );
        return {
            x: { title: `memory of the worst rank, ${unit}`, format: short },
            y: { title: "tokens/s", format: short },
            legend: true,
            tip: ({ trial }) =>
                tip(`Trial ${trial.n}: ${trial.text ?? ""}`, [
                    ["Throughput", rate(trial.tokens_per_s)],
                    ["Memory", bytes(trial.measured_bytes)],
                ]),
            series: [
                {
                    type: "points",
                    name: "dominated",
                    size: rest.length > FEW ? 3 : 7,
                    color: palette.series[7],
                    opacity: 0.7,
                    rows: rest.map(at),
                },
                {
                    type: "line",
                    name: "front",
                    step: true,
                    dots: 8,
                    color: palette.series[2],
                    rows: front.map(at),
                },
            ],
        };
    },
    summary: ({ trials }) => `${counted(paretoFront(trials).length, "trial")} on the Pareto front.`,
    table: ({ trials }) => ({
        columns: ["trial", "layout", "tokens/s", "memory bytes"],
        rows: paretoFront(trials).map((t) => [t.n, t.text, t.tokens_per_s, t.measured_bytes]),
    }),
};

/** Trials in bins of their predicted probability of fitting, with the share that did. */
export function fitBins(trials, bins = 10) {
    const list = Array.from({ length: bins }, (_, i) => ({
        from: i / bins,
        to: (i + 1) / bins,
        all: 0,
        fit: 0,
        sum: 0,
    }));
    for (const t of trials) {
        const q = t.predicted?.p_fits;
        if (
            q === null ||
            q === undefined ||
            !(t.state === "ok" || STOPPED_TRIAL.has(t.state) || FAILED_TRIAL.has(t.state))
        )
            continue;
        const b = list[Math.min(bins - 1, Math.floor(q * bins))];
        b.all += 1;
        b.sum += q;
        b.fit += t.state === "oom" ? 0 : 1;
    }
    return list.filter((b) => b.all > 0);
}

export const fitCalibration = {
    title: "Calibration of P(fits)",
    note: "One point per tenth of predicted probability. Dashed line: perfect calibration.",
    name: "fit-calibration",
    none: "No trial with a predicted probability has ended.",
    plot({ trials }, palette) {
        const bins = fitBins(trials);
        if (!bins.length) return null;
        const axis = { from: 0, to: 100, ticks: [0, 25, 50, 75, 100] };
        return {
            x: { ...axis, title: "predicted, %" },
            y: { ...axis, title: "fitted, %" },
            room: { top: 22, left: 60, right: 28 },
            tip: ({ bin }) =>
                tip(`${percent(bin.from, 0)} – ${percent(bin.to, 0)}`, [
                    ["Fitted", `${bin.fit} of ${bin.all}`],
                ]),
            series: [
                diagonal(0, 100, palette),
                {
                    type: "points",
                    color: palette.series[0],
                    opacity: 0.85,
                    rows: bins.map((bin) => ({
                        x: (100 * bin.sum) / bin.all,
                        y: (100 * bin.fit) / bin.all,
                        size: Math.min(8 + 4 * Math.log2(bin.all), 32),
                        bin,
                    })),
                },
            ],
        };
    },
    summary: ({ trials }) =>
        fitBins(trials)
            .map((b) => `${percent(b.from, 0)} to ${percent(b.to, 0)}: ${b.fit} of ${b.all} fitted`)
            .join("; "),
    table: ({ trials }) => ({
        columns: ["predicted from, %", "to, %", "trials", "trials that fitted"],
        rows: fitBins(trials).map((b) => [100 * b.from, 100 * b.to, b.all, b.fit]),
    }),
};
