// Charts of the space: every layout as a line over its dimensions, what matters, what the search predicts, what fits.

import { counted, percent, rate, rateNumber, significant } from "../lib/format.js";
import { FAILED_TRIAL, LAYOUT_KEYS, STOPPED_TRIAL, WORD_ORDER } from "../lib/words.js";
import { brief, narrow, short, tip } from "./options.js";
import { thin } from "./thin.js";

const MAX_LINES = 2000;

const byOrder = (order) => (a, b) => order.indexOf(a) - order.indexOf(b);

/** Layout keys that differ among TRIALS, with their values in order. */
export function varying(trials) {
    const seen = new Map();
    for (const t of trials)
        for (const k of Object.keys(LAYOUT_KEYS)) {
            const v = t.layout?.[k];
            if (v === undefined || v === null) continue;
            if (!seen.has(k)) seen.set(k, new Set());
            seen.get(k).add(v);
        }
    return [...seen]
        .filter(([, values]) => values.size > 1)
        .map(([key, values]) => ({
            key,
            values: [...values].sort(WORD_ORDER[key] ? byOrder(WORD_ORDER[key]) : (a, b) => a - b),
        }));
}

/** Trials inside every interval of a brush: {axis index: [[lo, hi], …]}. */
export function brushed(trials, keys, brush) {
    return trials.filter((trial) =>
        Object.entries(brush).every(([i, intervals]) => {
            const key = keys[i];
            const v = key ? key.values.indexOf(trial.layout?.[key.key]) : trial.tokens_per_s;
            return (
                !intervals.length ||
                (v !== null && intervals.some(([lo, hi]) => v >= lo && v <= hi))
            );
        }),
    );
}

/** BRUSH of the axes of FROM on those of TO, where trials have shown more keys or values: the same ones are inside. */
export function moved(brush, from, to) {
    const axes = Object.entries(brush).map(([i, intervals]) => {
        const key = from[i];
        if (!key) return [to.length, intervals]; // the throughput
        const at = to.findIndex((k) => k.key === key.key);
        if (at < 0) return null;
        const places = key.values
            .filter((_, v) => intervals.some(([low, high]) => v >= low && v <= high))
            .map((v) => to[at].values.indexOf(v));
        return [at, runsOf(places)];
    });
    return Object.fromEntries(axes.filter(Boolean));
}

/** The whole numbers of PLACES, ascending, as intervals: those of neighbors are one. */
function runsOf(places) {
    const runs = [];
    for (const place of places) {
        const last = runs.at(-1);
        if (last?.[1] === place - 1) last[1] = place;
        else runs.push([place, place]);
    }
    return runs;
}

/** A text that differs where KEYS or their values do: then a brush must be moved. */
export const formOf = (keys) => keys.map(({ key, values }) => `${key} ${values}`).join(";");

/** What a brush along the axis of KEY must hold, so that only VALUE is inside. Categories lie at whole numbers. */
export function brushOf(key, value) {
    const at = key.values.map(String).indexOf(value);
    return at < 0 ? [] : [[at, at]];
}

/** The only value of KEY that lies inside the INTERVALS of a brush, or "". */
export function onlyValue(key, intervals) {
    const inside = key.values.filter((_, i) =>
        (intervals ?? []).some(([lo, hi]) => i >= lo && i <= hi),
    );
    return inside.length === 1 ? String(inside[0]) : "";
}

/** The colors of low, middle and high values: distinguishable without hue, and in both themes. */
function ramp(palette) {
    return [palette.line, palette.series[5], palette.series[2]];
}

export const parallel = {
    title: "Layouts, parallel coordinates",
    note:
        "One line per measured layout, one axis per varying dimension, throughput on the right. " +
        "Drag along an axis to select, click it to clear, or select values below.",
    name: "parallel",
    none: "At least two layouts must have been measured.",
    minWidth: ({ keys }) => 110 + 74 * (keys?.length ?? 0),
    plot({ trials, keys, brush }, palette) {
        const measured = trials.filter((t) => t.state === "ok" && t.tokens_per_s !== null);
        if (measured.length < 2 || !keys.length) return null;
        const speeds = measured.map((t) => t.tokens_per_s);
        const line = ({ layout, tokens_per_s: speed }) => [
            ...keys.map(({ key, values }) => values.indexOf(layout?.[key])),
            speed,
        ];
        return {
            type: "parallel",
            axes: [
                ...keys.map(({ key, values }) => ({
                    name: key.replace(/^overlap_/, "overlap\n"),
                    names: values,
                })),
                { name: "tokens/s", values: speeds, format: short },
            ],
            lines: thin(measured, MAX_LINES, (t) => t.tokens_per_s).map(line),
            speeds: [Math.min(...speeds), Math.max(...speeds)],
            colors: ramp(palette),
            brush: brush ?? {},
        };
    },
    summary: ({ trials, keys }) =>
        `${counted(trials.length, "trial")} over ${keys.map((k) => k.key).join(", ")}.`,
    table: ({ trials, keys }) => ({
        columns: ["trial", ...keys.map((k) => k.key), "state", "tokens/s"],
        rows: trials.map((trial) => [
            trial.n,
            ...keys.map((k) => trial.layout?.[k.key] ?? null),
            trial.state,
            trial.tokens_per_s,
        ]),
    }),
};

/** "2 (+12 %)": of EFFECTS, the values of a key, the fastest, or the slowest. */
function effectText(effects, fastest) {
    if (!effects?.length) return null;
    const order = [...effects].sort((a, b) => b.ratio - a.ratio);
    const { value, ratio } = order.at(fastest ? 0 : -1);
    return `${value} (${ratio >= 1 ? "+" : "−"}${percent(Math.abs(ratio - 1), 0)})`;
}

export const importance = {
    title: "Parameter importance",
    note:
        "Share of the variance in throughput that the surrogate attributes to each dimension. On hover, or in the " +
        "table: the value that makes layouts fastest, and slowest, against the mean.",
    name: "importance",
    none: "Available once the search has fitted its first surrogate.",
    plot({ shares, effects }, palette, width) {
        const rows = Object.entries(shares ?? {})
            .filter(([, v]) => v > 0)
            .sort((a, b) => b[1] - a[1]);
        if (!rows.length) return null;
        const shown = (share) => (share < 0.005 ? "< 1 %" : percent(share, 0));
        return {
            x: { title: "share, %", zero: true, grid: true },
            y: {
                type: "category",
                names: rows.map(([key]) => key),
                every: true,
                limit: narrow(width) ? 96 : 152,
            },
            room: { left: narrow(width) ? 104 : 160, top: 8, right: 56 },
            tip: ({ key, value }) =>
                tip(key, [
                    ["Share", percent(value / 100)],
                    ["Fastest", effectText(effects?.[key], true) ?? "–"],
                    ["Slowest", effectText(effects?.[key], false) ?? "–"],
                    ["", LAYOUT_KEYS[key] ?? ""],
                ]),
            series: [
                {
                    type: "bars",
                    color: palette.series[0],
                    rows: rows.map(([key, share], at) => ({
                        at,
                        value: 100 * share,
                        label: shown(share),
                        key,
                    })),
                },
            ],
        };
    },
    summary: ({ shares }) => {
        const top = Object.entries(shares ?? {}).sort((a, b) => b[1] - a[1])[0];
        return top ? `${top[0]} explains most: ${percent(top[1], 0)}.` : "";
    },
    table: ({ shares, effects }) => ({
        columns: ["dimension", "share, %", "fastest", "slowest"],
        rows: Object.entries(shares ?? {})
            .sort((a, b) => b[1] - a[1])
            .map(([key, share]) => [
                key,
                100 * share,
                effectText(effects?.[key], true),
                effectText(effects?.[key], false),
            ]),
    }),
};

const SURFACE_VALUES = {
    mean: ["expected tokens/s", (s, j, i) => s.mean[j]?.[i], brief, "tokens/s"],
    spread: [
        "half-width of the 95 % interval, tokens/s",
        (s, j, i) => (s.hi[j]?.[i] - s.lo[j]?.[i]) / 2,
        brief,
        "± tokens/s",
    ],
    p_fits: [
        "probability of fitting, %",
        (s, j, i) => (s.p_fits?.[j]?.[i] ?? NaN) * 100,
        (v) => `${significant(v, 3)} %`,
        "",
    ],
};

/**
 * A heat map of CELLS, {x, y, value, …}. SPEC: {xName, xs, yName, ys, cells, label(value), title (of the scale of
 * colors), tip(cell), strong(value)?, ramp?}; strong() says whether a cell is filled so strongly that its label must be
 * light on dark (or the reverse), ramp replaces parts of the scale.
 */
function heat(palette, width, spec) {
    const { xName, xs, yName, ys, label } = spec;
    const values = spec.cells.map(({ value }) => value).filter(Number.isFinite);
    const low = Math.min(...values);
    const high = Math.max(...values);
    const left = 42 + 7 * Math.max(...ys.map((y) => String(y).length));
    const right = narrow(width) ? 12 : 90; // the scale goes first: each cell says its value, or a table does
    const labeled = (width - left - right) / xs.length >= 44 && spec.cells.length <= 80;
    const strong = spec.strong ?? ((value) => value - low > 0.45 * (high - low));
    // Readable on the color of its cell, in both themes.
    const text = ({ value }) =>
        labeled && {
            label: label(value),
            labelColor: strong(value) ? palette.surface : palette.text,
        };
    return {
        x: { title: xName, type: "category", names: xs },
        y: { title: yName, type: "category", names: ys, upward: true },
        room: { left, top: 12, right },
        tip: spec.tip,
        ramp: {
            low,
            high: high > low ? high : low + 1,
            texts: [label(low), label(high)],
            title: spec.title,
            colors: [palette.sunken, palette.series[5], palette.series[2]],
            hidden: narrow(width),
            ...spec.ramp,
        },
        series: [{ type: "cells", rows: spec.cells.map((cell) => ({ ...cell, ...text(cell) })) }],
    };
}

// Cuts through the surface: a curve over x for each value of y, with the band of the one that holds the highest point.
function slices(surface, palette) {
    const best = surface.mean
        .map((row) => Math.max(...row.filter(Number.isFinite)))
        .reduce((top, v, j, all) => (v > all[top] ? j : top), 0);
    const line = (name, values, style) => ({
        type: "line",
        name,
        rows: values.map((y, x) => ({ x, y })).filter(({ y }) => Number.isFinite(y)),
        ...style,
    });
    const edge = { dash: [4, 4], color: palette.strong, width: 1 };
    const lines = [
        ...surface.mean.map((row, j) => [
            `${surface.y.key} ${surface.y.values[j]}`,
            row,
            { width: j === best ? 2.5 : 1.5, dots: 6, color: palette.series[j % 8] },
        ]),
        [`95 % low at ${surface.y.values[best]}`, surface.lo[best], edge],
        [`95 % high at ${surface.y.values[best]}`, surface.hi[best], edge],
    ];
    const { key, values } = surface.x;
    return {
        x: { title: key, type: "category", names: values },
        y: { title: "expected tokens/s", format: short },
        legend: true,
        bands: {
            at: values.map((_, i) => i),
            tip: (i, shown) =>
                tip(
                    `${key} ${values[i]}`,
                    lines.map(([name, row]) => shown(name) && [name, rate(row[i])]),
                ),
        },
        series: lines.map((one) => line(...one)),
    };
}

export const surface = {
    title: "Surrogate",
    note: "The fitted surrogate over two dimensions, the others fixed at the best layout.",
    name: "surface",
    none: ({ asking, trouble }) =>
        trouble ||
        (asking
            ? "Loading the surrogate …"
            : "Available once the search has fitted its first surrogate."),
    plot({ surface: known, value: shown }, palette, width) {
        if (!known?.mean?.length) return null;
        if (shown === "slices") return slices(known, palette);
        const [, at, label, title] = SURFACE_VALUES[shown];
        const ys = known.y.values;
        const cells = ys
            .flatMap((_, y) => known.x.values.map((__, x) => ({ x, y, value: at(known, y, x) })))
            .filter(({ value }) => Number.isFinite(value));
        if (!cells.length) return null;
        return heat(palette, width, {
            xName: known.x.key,
            xs: known.x.values,
            yName: known.y.key,
            ys,
            cells,
            label,
            title,
            tip: ({ x, y }) =>
                tip(`${known.x.key} ${known.x.values[x]}, ${known.y.key} ${ys[y]}`, [
                    ["Expected", rate(known.mean[y][x])],
                    [
                        "95 % interval",
                        `${rateNumber(known.lo[y][x])} – ${rateNumber(known.hi[y][x])}`,
                    ],
                    ["P(fits)", percent(known.p_fits?.[y]?.[x], 0)],
                ]),
        });
    },
    summary: ({ surface: known, value }) =>
        known?.mean?.length
            ? `${SURFACE_VALUES[value]?.[0] ?? "Expected tokens/s"} over ${known.x.key} and ${known.y.key}.`
            : "",
    table: ({ surface: known }) => ({
        columns: [
            known?.x.key ?? "x",
            known?.y.key ?? "y",
            "expected tokens/s",
            "95 % low tokens/s",
            "95 % high tokens/s",
            "P(fits), %",
        ],
        rows: (known?.mean ?? []).flatMap((row, j) =>
            row.map((mean, i) => [
                known.x.values[i],
                known.y.values[j],
                mean,
                known.lo[j][i],
                known.hi[j][i],
                typeof known.p_fits?.[j]?.[i] === "number" ? 100 * known.p_fits[j][i] : null,
            ]),
        ),
    }),
};

/** Of the trials at each pair of values: how many ran, and of how many. Pending ones do not count. */
export function feasibilityCells(trials, x, y) {
    const cells = new Map();
    for (const t of trials) {
        const ran = ["ok", "implausible"].includes(t.state) || STOPPED_TRIAL.has(t.state);
        if (!ran && !FAILED_TRIAL.has(t.state)) continue;
        const i = x.values.indexOf(t.layout?.[x.key]);
        const j = y.values.indexOf(t.layout?.[y.key]);
        if (i < 0 || j < 0) continue;
        const c = cells.get(`${i} ${j}`) ?? { i, j, ok: 0, all: 0, states: {} };
        c.all += 1;
        c.ok += ran ? 1 : 0;
        c.states[t.state] = (c.states[t.state] ?? 0) + 1;
        cells.set(`${i} ${j}`, c);
    }
    return [...cells.values()];
}

export const feasibility = {
    title: "Trials that ran",
    note: "Share of the trials at each pair of values that ran, including those stopped early. Blank: not tried.",
    name: "feasibility",
    none: "Needs trials that differ in both dimensions.",
    plot({ trials, x, y }, palette, width) {
        if (!x || !y || x === y) return null;
        const cells = feasibilityCells(trials, x, y);
        if (!cells.length) return null;
        return heat(palette, width, {
            xName: x.key,
            xs: x.values,
            yName: y.key,
            ys: y.values,
            label: (v) => `${Math.round(v)} %`,
            strong: (v) => Math.abs(v - 50) > 30,
            cells: cells.map((cell) => ({
                x: cell.i,
                y: cell.j,
                value: (100 * cell.ok) / cell.all,
                cell,
            })),
            tip: ({ cell }) =>
                tip(`${x.key} ${x.values[cell.i]}, ${y.key} ${y.values[cell.j]}`, [
                    ["Ran", `${cell.ok} of ${cell.all}`],
                    ...Object.entries(cell.states),
                ]),
            ramp: {
                low: 0,
                high: 100,
                texts: ["0 %", "100 %"],
                colors: [palette.series[1], palette.sunken, palette.series[2]],
            },
        });
    },
    summary: ({ x, y }) => (x && y ? `Share of trials that ran, over ${x.key} and ${y.key}.` : ""),
    table: ({ trials, x, y }) => ({
        columns: [x?.key ?? "x", y?.key ?? "y", "trials that ran", "trials"],
        rows:
            x && y
                ? feasibilityCells(trials, x, y).map((cell) => [
                      x.values[cell.i],
                      y.values[cell.j],
                      cell.ok,
                      cell.all,
                  ])
                : [],
    }),
};
