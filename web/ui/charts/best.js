// Throughput of every trial with its interval, the best so far, what the cost model expected, and what failed.

import { counted, interval, rate } from "../lib/format.js";
import { FAILED_TRIAL, STOPPED_TRIAL } from "../lib/words.js";
import { ARROW, CROSS, FEW } from "./marks.js";
import { short, tip } from "./options.js";
import { thin } from "./thin.js";

export const MAX_POINTS = 2000;
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

function trialTip(byN, unit, slice) {
    return ({ n }) => {
        const t = byN.get(n);
        const b = bounds(t);
        return tip(`Trial ${t.n}: ${t.text ?? ""}`, [
            ["State", t.state],
            slice && [slice.title, String(t.layout?.[slice.key])],
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

const place = (n, y) => ({ n, x: n, y });

/** The point of trial N at Y; an arrow at the CEILING where it is off the scale. */
const below = (n, y, ceiling) =>
    y <= ceiling ? place(n, y) : { ...place(n, ceiling), shape: ARROW, size: 14 };

function expectedSeries({ expected, few, ceiling }, palette) {
    return {
        type: "points",
        name: "cost model",
        color: palette.series[7],
        shape: few ? "diamond" : "circle",
        size: few ? 9 : 2,
        hollow: few,
        width: few ? 1.2 : 0,
        rows: expected.map(({ n, predicted }) => below(n, predicted.tokens_per_s, ceiling)),
    };
}

/** An interval that exceeds the scale has no cap at that end. */
function intervalSeries({ shown, few, ceiling }, color) {
    const range = (trial) => {
        const [low, high] = bounds(trial);
        return {
            x: trial.n,
            low: Math.max(low, 0),
            high: Math.min(high, ceiling),
            capLow: low > 0,
            capHigh: high < ceiling,
        };
    };
    return {
        type: "ranges",
        name: "95 % interval",
        color,
        silent: true,
        rows: few ? shown.filter(bounds).map(range) : [],
    };
}

const SLICE_SHAPES = ["circle", "square", "triangle-right", "triangle-left", "stroke"];

/** The values of SLICE's layout key that TRIALS have, if a shape and a color can tell them apart; else none. */
function valuesOf(trials, slice) {
    if (!slice) return [];
    const values = [...new Set(trials.map((trial) => trial.layout?.[slice.key]))];
    return values.length > SLICE_SHAPES.length ? [] : values.sort((a, b) => (a < b ? -1 : 1));
}

/** Points and their intervals; of a campaign with several of SLICE (batch sizes ...) a series of points for each. */
function measuredSeries(model, palette, slice) {
    const { shown, few } = model;
    const series = (name, trials, i) => ({
        type: "points",
        name,
        color: palette.series[i],
        shape: few ? SLICE_SHAPES[i] : "circle",
        size: few ? 8 : 3,
        rows: trials.map((trial) => place(trial.n, trial.tokens_per_s)),
    });
    const values = valuesOf(shown, slice);
    if (values.length < 2) return [intervalSeries(model, palette.series[0]), series("measured", shown, 0)];
    const points = values.map((value, i) =>
        series(
            `${slice.title.toLowerCase()} ${value}`,
            shown.filter((trial) => trial.layout?.[slice.key] === value),
            i,
        ),
    );
    return [intervalSeries(model, palette.soft), ...points];
}

/** What smaller trials say of the full size: hollow, so that no one takes it for a measurement. */
function inferredSeries({ inferred, few, ceiling }, palette) {
    return {
        type: "points",
        name: "inferred",
        color: palette.series[0],
        size: few ? 9 : 3,
        hollow: true,
        width: 1.5,
        dash: [3, 2],
        rows: inferred.map(({ n, inferred: { tokens_per_s: y } }) => below(n, y, ceiling)),
    };
}

/** Trials without a throughput, on the floor of the chart. */
function failedSeries({ failed, stopped, few, floor }, palette) {
    const onFloor = (trial) => place(trial.n, floor);
    const size = few ? 8 : 4;
    return [
        {
            type: "points",
            name: "failed",
            color: palette.bad,
            shape: few ? CROSS : "triangle-up",
            hollow: few,
            width: few ? 2 : 0,
            size: few ? 10 : size,
            rows: failed.map(onFloor),
        },
        {
            type: "points",
            name: "stopped early",
            color: palette.warn,
            shape: "triangle-down",
            hollow: few,
            width: few ? 1.5 : 0,
            size: few ? 10 : size,
            rows: stopped.map(onFloor),
        },
    ];
}

function bestSeries(trials, palette) {
    return {
        type: "line",
        name: "best so far",
        color: palette.good,
        width: 2,
        step: true,
        silent: true,
        rows: bestSoFar(trials).map(([n, y]) => place(n, y)),
    };
}

function baselineSeries(baseline, palette) {
    if (!baseline?.tokens_per_s) return [];
    const { tokens_per_s: y } = baseline;
    return [{ type: "level", y, label: "baseline", color: palette.strong, silent: true }];
}

export function bestPlot({ trials, baseline, unit = "tokens/s", slice }, palette) {
    const model = bestModel(trials);
    const seen = [model.shown, model.inferred, model.failed, model.stopped];
    if (!seen.some((list) => list.length)) return null;
    const byN = new Map(trials.map((trial) => [trial.n, trial]));
    return {
        x: { title: "trial", whole: true, from: 0, to: Math.max(trials.at(-1)?.n ?? 1, 4) },
        y: { title: unit, format: short },
        legend: true,
        zoom: "inside",
        tip: trialTip(byN, unit, slice),
        series: [
            ...baselineSeries(baseline, palette),
            expectedSeries(model, palette),
            ...measuredSeries(model, palette, slice),
            ...(model.inferred.length ? [inferredSeries(model, palette)] : []),
            ...failedSeries(model, palette),
            bestSeries(trials, palette),
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

export function bestTable({ trials, unit = "tokens/s", slice }) {
    const curve = bestSoFar(trials);
    const sliceCell = ({ layout }) => (slice ? [layout?.[slice.key] ?? null] : []);
    let at = -1;
    return {
        columns: [
            "trial",
            "layout",
            ...(slice ? [slice.title.toLowerCase()] : []),
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
                ...sliceCell(trial),
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
