// Charts of one trial: step times, phases, spread over ranks, memory.

import { bytes, counted, ms, significant } from "../lib/format.js";
import { MEMORY_CLASSES, PHASES, PHASE_HELP, ordered, phaseColor } from "../lib/words.js";
import { tip } from "./options.js";
import { thin } from "./thin.js";

const MAX_POINTS = 2000;

/** The phases that STEPS mention, in the order of a step. */
export function phasesOf(steps) {
    const all = {};
    for (const s of steps)
        for (const [k, v] of Object.entries(s.phases ?? {})) if (v > 0) all[k] = true;
    return ordered(all, PHASES);
}

function median(sorted) {
    const m = sorted.length >> 1;
    return sorted.length % 2 ? sorted[m] : (sorted[m - 1] + sorted[m]) / 2;
}

export const stepTime = {
    title: "Step time",
    name: "step-time",
    none: "No step has been reported yet.",
    plot({ steps }, palette) {
        if (!steps.length) return null;
        const line = thin(steps, MAX_POINTS, (s) => s.ms);
        return {
            x: { title: "step", whole: true, exact: true },
            y: { title: "ms" },
            room: { left: 60 },
            zoom: "inside",
            tip: (step) =>
                tip(`Step ${step.x}`, [
                    ["Time", ms(step.y)],
                    step.warmup && ["", "warm-up, not counted"],
                ]),
            series: [
                {
                    type: "line",
                    color: palette.series[0],
                    dots: line.length > 200 ? 0 : 6,
                    rows: line.map((step) => ({
                        x: step.n,
                        y: step.ms,
                        warmup: step.warmup,
                        fill: step.warmup ? palette.strong : palette.series[0],
                    })),
                },
            ],
        };
    },
    summary: ({ steps }) =>
        steps.length
            ? `${counted(steps.length, "step")}, median ${ms(median(steps.map((s) => s.ms).sort((a, b) => a - b)))}.`
            : "",
    table: ({ steps }) => ({
        columns: ["step", "ms", "tokens", "loss, nats/token", "aux loss", "gradient norm"],
        rows: steps.map((step) => [
            step.n,
            step.ms,
            step.tokens ?? null,
            step.loss ?? null,
            step.aux_loss ?? null,
            step.grad_norm ?? null,
        ]),
    }),
};

/** Counts of VALUES in equal bins, as many as the Freedman-Diaconis rule asks for (at most 40). */
export function histogram(values) {
    const v = [...values].sort((a, b) => a - b);
    const range = v.at(-1) - v[0];
    const iqr = v[Math.floor(v.length * 0.75)] - v[Math.floor(v.length * 0.25)];
    const width = (2 * iqr) / Math.cbrt(v.length);
    const bins = range > 0 && width > 0 ? Math.min(40, Math.max(1, Math.ceil(range / width))) : 1;
    const size = range > 0 ? range / bins : Math.max(v[0] * 0.01, 1e-3);
    const counts = new Array(bins).fill(0);
    for (const x of v) counts[Math.min(bins - 1, Math.floor((x - v[0]) / size))] += 1;
    return counts.map((c, i) => ({ from: v[0] + i * size, to: v[0] + (i + 1) * size, count: c }));
}

const measuredSteps = ({ steps }) => steps.filter((s) => !s.warmup);

export const stepHistogram = {
    title: "Distribution of step times",
    name: "step-time-distribution",
    none: "No step has been measured yet.",
    plot(data, palette) {
        const steps = measuredSteps(data);
        if (!steps.length) return null;
        const bins = histogram(steps.map((s) => s.ms));
        return {
            x: {
                title: "ms",
                type: "category",
                names: bins.map((b) => significant((b.from + b.to) / 2, 4)),
            },
            y: { title: "steps", whole: true, zero: true },
            room: { left: 52 },
            tip: ({ bin }) =>
                tip(`${significant(bin.from, 4)} – ${significant(bin.to, 4)} ms`, [
                    ["Steps", String(bin.count)],
                ]),
            series: [
                {
                    type: "bars",
                    gap: 0.06,
                    color: palette.series[0],
                    rows: bins.map((bin, at) => ({ at, value: bin.count, bin })),
                },
            ],
        };
    },
    summary: (data) => counted(measuredSteps(data).length, "measured step"),
    table: (data) => ({
        columns: ["from ms", "to ms", "steps"],
        rows: (measuredSteps(data).length
            ? histogram(measuredSteps(data).map((s) => s.ms))
            : []
        ).map((b) => [b.from, b.to, b.count]),
    }),
};

// Runs of steps averaged to as many bars as there is room for: a stack is not a curve, so it has no extremes to keep.
function averaged(steps, keys, bars) {
    if (steps.length <= bars)
        return steps.map((step) => ({
            label: String(step.n),
            values: keys.map((k) => step.phases?.[k] ?? 0),
        }));
    const result = [];
    for (let b = 0; b < bars; b++) {
        const run = steps.slice(
            Math.floor((b * steps.length) / bars),
            Math.floor(((b + 1) * steps.length) / bars),
        );
        const mean = (k) => run.reduce((sum, s) => sum + (s.phases?.[k] ?? 0), 0) / run.length;
        result.push({ label: `${run[0].n}–${run.at(-1).n}`, values: keys.map(mean) });
    }
    return result;
}

export const phaseStack = {
    title: "Phases of each step",
    name: "phases-by-step",
    none: "No phase times. Not every trainer reports them.",
    plot({ steps }, palette) {
        const keys = phasesOf(steps);
        if (!keys.length) return null;
        const bars = averaged(steps, keys, 200);
        return {
            x: { title: "step", type: "category", names: bars.map((b) => b.label) },
            y: { title: "ms", zero: true },
            room: { left: 60 },
            legend: true,
            stack: true,
            bands: {
                at: bars.map((_, i) => i),
                tip: (i, shown) =>
                    tip(
                        `Step ${bars[i].label}`,
                        keys.map((k, at) => shown(k) && [k, ms(bars[i].values[at])]),
                    ),
            },
            series: keys.map((k, i) => ({
                type: "bars",
                name: k,
                gap: bars.length > 60 ? 0 : 0.15,
                color: palette.series[phaseColor(k, palette.series.length)],
                rows: bars.map(({ values }, at) => ({ at, value: values[i] })),
            })),
        };
    },
    summary: ({ steps }) =>
        `Phases: ${phasesOf(steps)
            .map((k) => PHASE_HELP[k] ?? k)
            .join(", ")}.`,
    table: ({ steps }) => {
        const keys = phasesOf(steps);
        return {
            columns: ["step", ...keys.map((k) => `${k} ms`)],
            rows: steps.map((s) => [s.n, ...keys.map((k) => s.phases?.[k] ?? null)]),
        };
    },
};

const spreadOf = (s) => s.ranks ?? null;

export const rankSpread = {
    title: "Spread over ranks",
    note:
        "Compute time of the fastest, median and slowest rank in each step. " +
        "A rank that is repeatedly slowest is a straggler.",
    name: "rank-spread",
    none: "No times by rank. Not every trainer reports them.",
    plot({ steps }, palette) {
        const list = thin(steps.filter(spreadOf), MAX_POINTS, (s) => spreadOf(s).max);
        if (!list.length) return null;
        const lines = [
            ["slowest", "max", 1],
            ["median", "median", 0],
            ["fastest", "min", 2],
        ];
        return {
            x: { title: "step", whole: true, exact: true },
            y: { title: "ms" },
            room: { left: 60 },
            legend: true,
            zoom: "inside",
            bands: {
                at: list.map((s) => s.n),
                tip: (i, shown) =>
                    tip(`Step ${list[i].n}`, [
                        ...lines.map(
                            ([name, key]) => shown(name) && [name, ms(spreadOf(list[i])[key])],
                        ),
                        ["slowest rank", String(spreadOf(list[i]).slowest ?? "–")],
                    ]),
            },
            series: lines.map(([name, key, color]) => ({
                type: "line",
                name,
                dots: list.length > 200 ? 0 : 5,
                color: palette.series[color],
                rows: list.map((s) => ({ x: s.n, y: spreadOf(s)[key] })),
            })),
        };
    },
    summary: ({ steps }) => stragglerText(steps),
    table: ({ steps }) => ({
        columns: ["step", "fastest ms", "median ms", "slowest ms", "slowest rank"],
        rows: steps.filter(spreadOf).map((step) => {
            const r = spreadOf(step);
            return [step.n, r.min, r.median, r.max, r.slowest ?? null];
        }),
    }),
};

/** How often each rank was the slowest: [[rank, steps]], most often first. */
export function slowestRanks(steps) {
    const times = new Map();
    for (const s of steps) {
        const slowest = spreadOf(s)?.slowest;
        if (slowest !== null && slowest !== undefined)
            times.set(slowest, (times.get(slowest) ?? 0) + 1);
    }
    return [...times].sort((a, b) => b[1] - a[1]);
}

/**
 * Ranks that chance would hardly make the slowest so often: were all of WORLD ranks alike, each would be the slowest in
 * a share of 1 / world of the steps; a straggler is more than four standard deviations of that binomial above it.
 */
export function stragglers(steps, world) {
    const list = slowestRanks(steps);
    const total = list.reduce((sum, [, n]) => sum + n, 0);
    if (!total || !(world > 1)) return [];
    const p = 1 / world;
    const limit = total * p + 4 * Math.sqrt(total * p * (1 - p));
    return list.filter(([, n]) => n > limit).map(([rank]) => rank);
}

function stragglerText(steps) {
    const list = slowestRanks(steps);
    const total = list.reduce((sum, [, n]) => sum + n, 0);
    return total
        ? `Rank ${list[0][0]} was the slowest in ${list[0][1]} of ${counted(total, "step")}.`
        : "";
}

const HEAT_COLUMNS = 60;

/** Busy times of one step by row: {ranks, each}, each row being that many consecutive ranks by the slowest of them. */
function busyRows(steps, world) {
    const rows = Math.max(0, ...steps.map((s) => spreadOf(s)?.busy?.length ?? 0));
    return { rows, each: Math.max(1, Math.ceil((world ?? rows) / rows)) };
}

function rowName(row, each, world) {
    const last = Math.min((row + 1) * each, world ?? (row + 1) * each) - 1;
    return each > 1 ? `ranks ${row * each}–${last}` : `rank ${row}`;
}

/**
 * Steps cut into at most COLUMNS runs; of each run and row the longest time: a single slow step is not averaged away.
 */
export function busyCells(steps, world, most = HEAT_COLUMNS) {
    const known = steps.filter((s) => spreadOf(s)?.busy);
    const { rows, each } = busyRows(known, world);
    const columns = Math.min(most, known.length);
    const labels = [];
    const cells = [];
    for (let c = 0; c < columns; c++) {
        const run = known.slice(
            Math.floor((c * known.length) / columns),
            Math.floor(((c + 1) * known.length) / columns),
        );
        labels.push(run.length > 1 ? `${run[0].n}–${run.at(-1).n}` : String(run[0].n));
        for (let r = 0; r < rows; r++) {
            const values = run.map((s) => spreadOf(s).busy[r]).filter((x) => x > 0);
            if (values.length) cells.push([c, r, Math.max(...values)]);
        }
    }
    const names = Array.from({ length: rows }, (_, r) => rowName(r, each, world));
    return { names, labels, cells };
}

export const rankHeat = {
    title: "Busy time by rank",
    note:
        "Milliseconds of computing (not waiting) in each step. " +
        "A row that stands out is a straggler, or a stage with more work.",
    name: "rank-busy",
    none: "No busy times by rank. Not every trainer reports them.",
    plot({ steps, world }, palette) {
        const { names, labels, cells } = busyCells(steps, world);
        if (!cells.length) return null;
        const values = cells.map((c) => c[2]);
        const low = Math.min(...values);
        const high = Math.max(...values);
        return {
            x: { title: "step", type: "category", names: labels },
            y: { type: "category", names },
            room: { left: names[0].length > 9 ? 110 : 74, top: 36, right: 24 },
            tip: ({ x, y, value }) => tip(`Step ${labels[x]}`, [[names[y], ms(value)]]),
            ramp: {
                low,
                high: high > low ? high : low * 1.01,
                texts: [ms(low), ms(high)],
                colors: [palette.sunken, palette.series[4], palette.series[1]],
                flat: true,
            },
            series: [{ type: "cells", rows: cells.map(([x, y, value]) => ({ x, y, value })) }],
        };
    },
    summary: ({ steps }) => stragglerText(steps),
    table: ({ steps, world }) => {
        const known = steps.filter((s) => spreadOf(s)?.busy);
        const { rows, each } = busyRows(known, world);
        return {
            columns: [
                "step",
                ...Array.from({ length: rows }, (_, r) => `${rowName(r, each, world)} ms`),
            ],
            rows: known.map((s) => [s.n, ...spreadOf(s).busy]),
        };
    },
};

function memoryRows(memory) {
    const planned = memory?.planned ?? {};
    const measured = memory?.measured ?? {};
    const isClass = (k) => k !== "total" && k !== "rank" && k !== "device";
    const keys = ordered({ ...planned, ...measured }, MEMORY_CLASSES).filter(isClass);
    return keys
        .map((k) => [k, planned[k] ?? null, measured[k] ?? null])
        .filter(([, a, b]) => a > 0 || b > 0);
}

// MiB up to ten GiB: whole numbers on the axis either way.
function memoryUnit(rows) {
    const most = Math.max(...rows.flatMap((r) => [r[1] ?? 0, r[2] ?? 0]));
    return most >= 10 * 1024 ** 3 ? [1024 ** 3, "GiB"] : [1024 ** 2, "MiB"];
}

export const memoryBars = {
    title: "Memory of the worst rank",
    name: "memory",
    none: "No memory plan or measurement.",
    plot({ memory }, palette) {
        const list = memoryRows(memory);
        if (!list.length) return null;
        const [size, unit] = memoryUnit(list);
        const kinds = ["planned", ...(memory?.measured ? ["measured"] : [])];
        const bar = (name, i) => ({
            type: "bars",
            name,
            slot: [i, kinds.length],
            color: palette.series[i ? 0 : 7],
            rows: list
                .map((row, at) => ({ at, value: row[i + 1] === null ? null : row[i + 1] / size }))
                .filter(({ value }) => value !== null),
        });
        return {
            x: { title: unit, zero: true, grid: true },
            y: { type: "category", names: list.map((r) => r[0]), every: true },
            room: { left: 96 },
            legend: true,
            bands: {
                at: list.map((_, i) => i),
                tip: (at, shown) =>
                    tip(
                        list[at][0],
                        kinds.map(
                            (name, i) =>
                                shown(name) && [
                                    name,
                                    list[at][i + 1] === null ? "–" : bytes(list[at][i + 1]),
                                ],
                        ),
                    ),
            },
            series: kinds.map(bar),
        };
    },
    summary({ memory }) {
        const measured = memory?.measured ? `, measured ${bytes(memory.measured.total)}` : "";
        return `Planned ${bytes(memory?.planned?.total)}${measured}.`;
    },
    table: ({ memory }) => ({
        columns: ["class", "planned bytes", ...(memory?.measured ? ["measured bytes"] : [])],
        rows: [
            ...memoryRows(memory),
            ["total", memory?.planned?.total ?? null, memory?.measured?.total ?? null],
        ].map((r) => (memory?.measured ? r : r.slice(0, 2))),
    }),
};
