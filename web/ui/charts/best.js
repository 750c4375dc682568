// Throughput of every trial with its interval, the best so far, what the cost model expected, and what failed.

import { counted, interval, rate } from "../lib/format.js";
import { FAILED_TRIAL, STOPPED_TRIAL } from "../lib/words.js";
import { axes, insideZoom, legend, short, tip, tooltip } from "./panel.js";
import { thin } from "./thin.js";

export const MAX_POINTS = 2000;
const CROSS = "path://M0 0L10 10M10 0L0 10";
const Z95 = 1.959964; // of the normal distribution

/** The 95 % interval of a trial's throughput, or null. */
export function bounds(t) {
    if (t.tokens_per_s === null || t.tokens_per_s_se === null || t.tokens_per_s_se === undefined)
        return null;
    return [t.tokens_per_s - Z95 * t.tokens_per_s_se, t.tokens_per_s + Z95 * t.tokens_per_s_se];
}

/**
 * [[n, best so far]] at every change, and at the last trial. A layout that was measured again counts with the mean of its
 * measurements, weighted by 1 / error squared as the service does, so that a lucky first one does not stand: the curve may
 * fall. Verification is not part of the search.
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

/** An interval that goes on beyond the scale has no cap at that end. */
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

function trialTip(byN) {
    return (params) => {
        const t = byN.get(params.value?.[0]);
        if (!t) return "";
        const b = bounds(t);
        return tip(`Trial ${t.n}: ${t.text ?? ""}`, [
            ["State", t.state],
            ["Throughput", rate(t.tokens_per_s)],
            b && ["95 % interval", interval(...b)],
            ["Expected", rate(t.predicted?.tokens_per_s)],
        ]);
    };
}

const HEADROOM = 1.6;

/**
 * What was measured sets the scale: an expectation far above it (the cost model knew a faster machine), or the interval of
 * a trial whose steps scattered wildly, would press all results to the floor. Both are shown up to the ceiling.
 */
export function ceilingOf(measured) {
    const top = Math.max(...measured.map((t) => t.tokens_per_s));
    return Number.isFinite(top) ? HEADROOM * top : Infinity;
}

export function bestOption(data, p) {
    const { trials, baseline } = data;
    const measured = trials.filter((t) => t.state === "ok" && t.tokens_per_s !== null);
    const failed = trials.filter((t) => FAILED_TRIAL.has(t.state));
    const stopped = trials.filter((t) => STOPPED_TRIAL.has(t.state));
    if (!measured.length && !failed.length && !stopped.length) return null;
    const shown = thin(measured, MAX_POINTS, (t) => t.tokens_per_s);
    const expected = thin(
        trials.filter((t) => t.predicted?.tokens_per_s),
        MAX_POINTS,
        (t) => t.predicted.tokens_per_s,
    );
    const few = shown.length <= 400;
    const many = { large: !few, largeThreshold: 400 }; // one path instead of an element a point
    const low = Math.min(
        ...measured.map((t) => t.tokens_per_s),
        ...expected.map((t) => t.predicted.tokens_per_s),
    );
    const floor = Number.isFinite(low) ? low : 0;
    const ceiling = ceilingOf(measured);
    const whiskerOf = (t) => {
        const [lo, hi] = bounds(t);
        return [t.n, Math.max(lo, 0), Math.min(hi, ceiling)];
    };
    const expectation = (t) =>
        t.predicted.tokens_per_s <= ceiling
            ? [t.n, t.predicted.tokens_per_s]
            : { value: [t.n, ceiling], symbol: "arrow" };
    const byN = new Map(trials.map((t) => [t.n, t]));
    return {
        ...axes(p, {
            x: {
                name: "trial",
                minInterval: 1,
                min: 0,
                axisLabel: { color: p.soft, hideOverlap: true, showMaxLabel: false },
                max: Math.max(trials.at(-1)?.n ?? 1, 4),
            },
            y: { name: "tokens/s", scale: true, axisLabel: { color: p.soft, formatter: short } },
        }),
        legend: legend(p),
        tooltip: tooltip(p, { trigger: "item", formatter: trialTip(byN) }),
        dataZoom: [insideZoom()],
        series: [
            {
                name: "cost model",
                type: "scatter",
                ...many,
                symbol: few ? "diamond" : "circle",
                symbolSize: few ? 8 : 2,
                itemStyle: {
                    color: few ? "transparent" : p.series[7],
                    borderColor: p.series[7],
                    borderWidth: few ? 1.2 : 0,
                },
                data: expected.map(expectation),
            },
            {
                name: "95 % interval",
                type: "custom",
                renderItem: whisker(p.series[0], ceiling),
                itemStyle: { color: p.series[0] },
                encode: { x: 0, y: [1, 2] },
                silent: true,
                tooltip: { show: false },
                data: few ? shown.filter(bounds).map(whiskerOf) : [],
            },
            {
                name: "measured",
                type: "scatter",
                ...many,
                symbolSize: few ? 8 : 3,
                itemStyle: { color: p.series[0] },
                data: shown.map((t) => [t.n, t.tokens_per_s]),
                z: 3,
            },
            {
                name: "failed",
                type: "scatter",
                ...many,
                symbol: few ? CROSS : "triangle",
                symbolSize: few ? 8 : 4,
                itemStyle: few
                    ? { color: "none", borderColor: p.bad, borderWidth: 2 }
                    : { color: p.bad },
                data: thin(failed, MAX_POINTS, (t) => t.n).map((t) => [t.n, floor]),
                z: 3,
            },
            {
                name: "stopped early",
                type: "scatter",
                ...many,
                symbol: "triangle",
                symbolRotate: 180,
                symbolSize: few ? 8 : 4,
                itemStyle: few
                    ? { color: "transparent", borderColor: p.warn, borderWidth: 1.5 }
                    : { color: p.warn },
                data: thin(stopped, MAX_POINTS, (t) => t.n).map((t) => [t.n, floor]),
                z: 3,
            },
            {
                name: "best so far",
                type: "line",
                step: "end",
                symbol: "none",
                lineStyle: { width: 2, color: p.good },
                itemStyle: { color: p.good },
                data: bestSoFar(trials),
                z: 4,
                silent: true,
                markLine: baseline?.tokens_per_s
                    ? {
                          symbol: "none",
                          silent: true,
                          lineStyle: { color: p.strong, type: "dashed" },
                          label: {
                              formatter: "baseline",
                              position: "insideEndBottom",
                              color: p.soft,
                              backgroundColor: p.surface,
                              padding: [1, 3],
                          },
                          data: [{ yAxis: baseline.tokens_per_s }],
                      }
                    : undefined,
            },
        ],
    };
}

export function bestSummary({ trials }) {
    const curve = bestSoFar(trials);
    if (!curve.length) return `${counted(trials.length, "trial")}, none measured yet.`;
    return `${counted(trials.length, "trial")}; the best so far reaches ${rate(curve.at(-1)[1])}, starting from ${rate(
        curve[0][1],
    )}.`;
}

export function bestTable({ trials }) {
    const curve = bestSoFar(trials);
    let at = -1;
    return {
        columns: [
            "trial",
            "layout",
            "state",
            "tokens/s",
            "95 % low tokens/s",
            "95 % high tokens/s",
            "expected tokens/s",
            "best so far tokens/s",
        ],
        rows: trials.map((t) => {
            while (at + 1 < curve.length && curve[at + 1][0] <= t.n) at += 1;
            const b = bounds(t) ?? [null, null];
            return [
                t.n,
                t.text,
                t.state,
                t.tokens_per_s,
                ...b,
                t.predicted?.tokens_per_s ?? null,
                curve[at]?.[1] ?? null,
            ];
        }),
    };
}
