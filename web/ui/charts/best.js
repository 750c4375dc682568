// Throughput of every trial with its interval, the best so far, what the cost model expected, and what failed.

import { counted, interval, rate } from "../lib/format.js";
import { FAILED_TRIAL, STOPPED_TRIAL } from "../lib/words.js";
import { axes, insideZoom, legend, short, tip, tooltip } from "./options.js";
import { thin } from "./thin.js";

export const MAX_POINTS = 2000;
const FEW = 400;
const CROSS = "path://M0 0L10 10M10 0L0 10";
const Z95 = 1.959964; // of the normal distribution

/** The 95 % interval of a trial's throughput, or null. */
export function bounds(trial) {
    if (
        trial.tokens_per_s === null ||
        trial.tokens_per_s_se === null ||
        trial.tokens_per_s_se === undefined
    )
        return null;
    return [
        trial.tokens_per_s - Z95 * trial.tokens_per_s_se,
        trial.tokens_per_s + Z95 * trial.tokens_per_s_se,
    ];
}

/**
 * [[n, best so far]] at every change, and at the last trial. A layout that was measured again counts with the mean of
 * its measurements, weighted by 1 / error squared as the service does, so that a lucky first one does not stand: the
 * curve may fall. Verification is not part of the search.
 */
export function bestSoFar(trials) {
    const layouts = new Map(); // number of the first trial of a layout: {weight, sum}
    const mean = (l) => l.sum / l.weight;
    const curve = [];
    let best = null;
    let last = 0;
    for (const t of trials) {
        if (t.kind === "verify") continue;
        last = t.n;
        if (t.state !== "ok" || !(t.tokens_per_s > 0)) continue;
        const root = t.repeat_of ?? t.n;
        const l = layouts.get(root) ?? { weight: 0, sum: 0 };
        const weight = 1 / (t.tokens_per_s_se || 1e-3 * t.tokens_per_s) ** 2;
        l.weight += weight;
        l.sum += weight * t.tokens_per_s;
        layouts.set(root, l);
        if (best === l)
            // it may have become worse than another
            best = [...layouts.values()].reduce((x, y) => (mean(y) > mean(x) ? y : x));
        else if (!best || mean(l) > mean(best)) best = l;
        if (!curve.length || curve.at(-1)[1] !== mean(best)) curve.push([t.n, mean(best)]);
    }
    if (curve.length && curve.at(-1)[0] !== last) curve.push([last, curve.at(-1)[1]]);
    return curve;
}

/** An interval that exceeds the scale has no cap at that end. */
function whisker(color, ceiling) {
    return (params, api) => {
        const [x, hi] = api.coord([api.value(0), api.value(2)]);
        const [, lo] = api.coord([api.value(0), api.value(1)]);
        const line = (x1, y1, x2, y2) => ({
            type: "line",
            shape: { x1, y1, x2, y2 },
            style: { stroke: color, lineWidth: 1 },
        });
        return {
            type: "group",
            children: [
                line(x, lo, x, hi),
                ...(api.value(1) > 0 ? [line(x - 3, lo, x + 3, lo)] : []),
                ...(api.value(2) < ceiling ? [line(x - 3, hi, x + 3, hi)] : []),
            ],
        };
    };
}

function trialTip(byN, unit) {
    return (params) => {
        const t = byN.get(params.value?.[0]);
        if (!t) return "";
        const b = bounds(t);
        return tip(`Trial ${t.n}: ${t.text ?? ""}`, [
            ["State", t.state],
            t.run
                ? ["Inferred", rate(t.inferred?.tokens_per_s, unit)]
                : ["Throughput", rate(t.tokens_per_s, unit)],
            t.inferred && ["95 % interval", interval(t.inferred.lo, t.inferred.hi)],
            b && ["95 % interval", interval(...b)],
            ["Expected", rate(t.predicted?.tokens_per_s, unit)],
        ]);
    };
}

const HEADROOM = 1.6;

/**
 * What was measured sets the scale: an expectation far above it (the cost model knew a faster machine), or the interval
 * of a trial whose steps scattered wildly, would press all results to the floor. Both are shown up to the ceiling.
 */
export function ceilingOf(measured) {
    const top = Math.max(...measured.map((t) => t.tokens_per_s));
    return Number.isFinite(top) ? HEADROOM * top : Infinity;
}

/**
 * What the chart shows of TRIALS: measured, inferred, expected, failed and stopped ones, thinned, and the scale that
 * they need.
 */
function bestModel(trials) {
    const thinned = (list, y) => thin(list, MAX_POINTS, y);
    const measured = trials.filter((trial) => trial.state === "ok" && trial.tokens_per_s !== null);
    const failed = trials.filter((trial) => FAILED_TRIAL.has(trial.state));
    const stopped = trials.filter((trial) => STOPPED_TRIAL.has(trial.state));
    const expected = thinned(
        trials.filter((trial) => trial.predicted?.tokens_per_s),
        (trial) => trial.predicted.tokens_per_s,
    );
    const inferred = thinned(
        trials.filter((trial) => trial.inferred),
        (trial) => trial.inferred.tokens_per_s,
    );
    const low = Math.min(
        ...measured.map((trial) => trial.tokens_per_s),
        ...inferred.map((trial) => trial.inferred.tokens_per_s),
        ...expected.map((trial) => trial.predicted.tokens_per_s),
    );
    const shown = thinned(measured, (trial) => trial.tokens_per_s);
    return {
        shown,
        inferred,
        expected,
        failed: thinned(failed, (trial) => trial.n),
        stopped: thinned(stopped, (trial) => trial.n),
        few: shown.length <= FEW,
        floor: Number.isFinite(low) ? low : 0,
        ceiling: ceilingOf(measured),
    };
}

// Beyond FEW points a series is one path instead of an element a point.
const scatter = (few, name, more) => ({
    name,
    type: "scatter",
    large: !few,
    largeThreshold: FEW,
    ...more,
});

function expectedSeries({ expected, few, ceiling }, palette) {
    const color = palette.series[7];
    const point = ({ n, predicted }) =>
        predicted.tokens_per_s <= ceiling
            ? [n, predicted.tokens_per_s]
            : { value: [n, ceiling], symbol: "arrow" };
    return scatter(few, "cost model", {
        symbol: few ? "diamond" : "circle",
        symbolSize: few ? 8 : 2,
        itemStyle: {
            color: few ? "transparent" : color,
            borderColor: color,
            borderWidth: few ? 1.2 : 0,
        },
        data: expected.map(point),
    });
}

function intervalSeries({ shown, few, ceiling }, palette) {
    const range = (trial) => {
        const [low, high] = bounds(trial);
        return [trial.n, Math.max(low, 0), Math.min(high, ceiling)];
    };
    return {
        name: "95 % interval",
        type: "custom",
        renderItem: whisker(palette.series[0], ceiling),
        itemStyle: { color: palette.series[0] },
        encode: { x: 0, y: [1, 2] },
        silent: true,
        tooltip: { show: false },
        data: few ? shown.filter(bounds).map(range) : [],
    };
}

function measuredSeries({ shown, few }, palette) {
    return scatter(few, "measured", {
        symbolSize: few ? 8 : 3,
        itemStyle: { color: palette.series[0] },
        data: shown.map((trial) => [trial.n, trial.tokens_per_s]),
        z: 3,
    });
}

/** What smaller trials say of the full size: hollow, so that no one takes it for a measurement. */
function inferredSeries({ inferred, few, ceiling }, palette) {
    const color = palette.series[0];
    const point = ({ n, inferred: { tokens_per_s: y } }) =>
        y <= ceiling ? [n, y] : { value: [n, ceiling], symbol: "arrow" };
    return scatter(few, "inferred", {
        symbolSize: few ? 9 : 3,
        itemStyle: {
            color: "transparent",
            borderColor: color,
            borderWidth: 1.5,
            borderType: "dashed",
        },
        data: inferred.map(point),
        z: 3,
    });
}

/** Trials without a throughput, on the floor of the chart. */
function failedSeries({ failed, stopped, few, floor }, palette) {
    const onFloor = (trial) => [trial.n, floor];
    const size = few ? 8 : 4;
    return [
        scatter(few, "failed", {
            symbol: few ? CROSS : "triangle",
            symbolSize: size,
            itemStyle: few
                ? { color: "none", borderColor: palette.bad, borderWidth: 2 }
                : { color: palette.bad },
            data: failed.map(onFloor),
            z: 3,
        }),
        scatter(few, "stopped early", {
            symbol: "triangle",
            symbolRotate: 180,
            symbolSize: size,
            itemStyle: few
                ? { color: "transparent", borderColor: palette.warn, borderWidth: 1.5 }
                : { color: palette.warn },
            data: stopped.map(onFloor),
            z: 3,
        }),
    ];
}

function baselineMark(baseline, palette) {
    if (!baseline?.tokens_per_s) return undefined;
    return {
        symbol: "none",
        silent: true,
        lineStyle: { color: palette.strong, type: "dashed" },
        label: {
            formatter: "baseline",
            position: "insideEndBottom",
            color: palette.soft,
            backgroundColor: palette.surface,
            padding: [1, 3],
        },
        data: [{ yAxis: baseline.tokens_per_s }],
    };
}

function bestSeries(trials, baseline, palette) {
    return {
        name: "best so far",
        type: "line",
        step: "end",
        symbol: "none",
        lineStyle: { width: 2, color: palette.good },
        itemStyle: { color: palette.good },
        data: bestSoFar(trials),
        z: 4,
        silent: true,
        markLine: baselineMark(baseline, palette),
    };
}

export function bestOption({ trials, baseline, unit = "tokens/s" }, palette) {
    const model = bestModel(trials);
    const seen = [model.shown, model.inferred, model.failed, model.stopped];
    if (!seen.some((list) => list.length)) return null;
    const byN = new Map(trials.map((trial) => [trial.n, trial]));
    const { soft } = palette;
    return {
        ...axes(palette, {
            x: {
                name: "trial",
                minInterval: 1,
                min: 0,
                axisLabel: { color: soft, hideOverlap: true, showMaxLabel: false },
                max: Math.max(trials.at(-1)?.n ?? 1, 4),
            },
            y: { name: unit, scale: true, axisLabel: { color: soft, formatter: short } },
        }),
        legend: legend(palette),
        tooltip: tooltip(palette, { trigger: "item", formatter: trialTip(byN, unit) }),
        dataZoom: [insideZoom()],
        series: [
            expectedSeries(model, palette),
            intervalSeries(model, palette),
            measuredSeries(model, palette),
            ...(model.inferred.length ? [inferredSeries(model, palette)] : []),
            ...failedSeries(model, palette),
            bestSeries(trials, baseline, palette),
        ],
    };
}

export function bestSummary({ trials, unit = "tokens/s" }) {
    const curve = bestSoFar(trials);
    if (!curve.length) return `${counted(trials.length, "trial")}, none measured yet.`;
    return `${counted(trials.length, "trial")}; the best so far reaches ${rate(
        curve.at(-1)[1],
        unit,
    )}, starting from ${rate(curve[0][1], unit)}.`;
}

export function bestTable({ trials, unit = "tokens/s" }) {
    const curve = bestSoFar(trials);
    let at = -1;
    return {
        columns: [
            "trial",
            "layout",
            "state",
            unit,
            `95 % low ${unit}`,
            `95 % high ${unit}`,
            `inferred ${unit}`,
            `inferred 95 % low ${unit}`,
            `inferred 95 % high ${unit}`,
            `expected ${unit}`,
            `best so far ${unit}`,
        ],
        rows: trials.map((trial) => {
            while (at + 1 < curve.length && curve[at + 1][0] <= trial.n) at += 1;
            const b = bounds(trial) ?? [null, null];
            return [
                trial.n,
                trial.text,
                trial.state,
                trial.tokens_per_s,
                ...b,
                trial.inferred?.tokens_per_s ?? null,
                trial.inferred?.lo ?? null,
                trial.inferred?.hi ?? null,
                trial.predicted?.tokens_per_s ?? null,
                curve[at]?.[1] ?? null,
            ];
        }),
    };
}
