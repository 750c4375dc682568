// Charts of the space: every layout as a line over its dimensions, what matters, what the search predicts, what fits.

import { counted, percent, rate, rateNumber, significant } from "../lib/format.js";
import { FAILED_TRIAL, LAYOUT_KEYS, STOPPED_TRIAL, WORD_ORDER } from "../lib/words.js";
import { axes, brief, legend, narrow, short, tip, tooltip } from "./options.js";
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

/** An axis for each of KEYS, and one for the throughput. */
function parallelAxes(keys, palette) {
    const label = {
        color: palette.text,
        fontSize: 11,
        backgroundColor: palette.surface,
        borderRadius: 2,
        padding: [1, 3],
    };
    const common = {
        nameTextStyle: { color: palette.text, fontSize: 11, lineHeight: 13 },
        axisLine: { lineStyle: { color: palette.strong } },
        axisLabel: label,
        axisTick: { show: false },
        areaSelectStyle: {
            color: palette.accent,
            opacity: 0.25,
            borderColor: palette.accent,
            borderWidth: 1,
            width: 18,
        },
    };
    const keyAxis = ({ key, values }, i) => ({
        ...common,
        id: key, // by which it is known again when trials come, so that its brush stays
        dim: i,
        name: key.replace(/^overlap_/, "overlap\n"),
        type: "category",
        data: values.map(String),
        boundaryGap: true,
    });
    const speedAxis = {
        ...common,
        id: "tokens/s",
        dim: keys.length,
        name: "tokens/s",
        axisLabel: { ...label, formatter: short },
        scale: true,
    };
    return [...keys.map(keyAxis), speedAxis];
}

function parallelSeries(trials, keys) {
    const many = trials.length > 300;
    const line = ({ layout, tokens_per_s: speed }) => [
        ...keys.map(({ key, values }) => values.indexOf(layout?.[key])),
        speed,
    ];
    return {
        type: "parallel",
        smooth: false,
        inactiveOpacity: 0.03,
        activeOpacity: 0.9,
        lineStyle: { width: many ? 1 : 1.8, opacity: many ? 0.35 : 0.75 },
        data: trials.map(line),
    };
}

export const parallel = {
    title: "Layouts, parallel coordinates",
    note:
        "One line per measured layout, one axis per varying dimension, throughput on the right. " +
        "Drag along an axis to select, click it to clear, or select values below.",
    name: "parallel",
    none: "At least two layouts must have been measured.",
    minWidth: ({ keys }) => 110 + 74 * (keys?.length ?? 0),
    form: ({ keys }) => keys.map((k) => `${k.key} ${k.values}`).join(";"),
    option({ trials, keys }, palette) {
        const measured = trials.filter((t) => t.state === "ok" && t.tokens_per_s !== null);
        if (measured.length < 2 || !keys.length) return null;
        const lines = thin(measured, MAX_LINES, (t) => t.tokens_per_s);
        const speeds = measured.map((t) => t.tokens_per_s);
        return {
            animation: false,
            textStyle: { fontFamily: palette.sans },
            parallel: {
                left: 40,
                right: 70,
                top: 46,
                bottom: 24,
                layout: "horizontal",
            },
            parallelAxis: parallelAxes(keys, palette),
            visualMap: {
                show: false,
                dimension: keys.length,
                min: Math.min(...speeds),
                max: Math.max(...speeds),
                inRange: { color: ramp(palette) },
            },
            series: [parallelSeries(lines, keys)],
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
    option({ shares, effects }, palette, width) {
        const rows = Object.entries(shares ?? {})
            .filter(([, v]) => v > 0)
            .sort((a, b) => a[1] - b[1]);
        if (!rows.length) return null;
        return {
            ...axes(palette, {
                x: {
                    name: "share, %",
                    splitLine: { show: true, lineStyle: { color: palette.line } },
                },
                y: {
                    type: "category",
                    data: rows.map((r) => r[0]),
                    splitLine: { show: false },
                    axisLabel: {
                        color: palette.soft,
                        interval: 0,
                        width: narrow(width) ? 96 : 152,
                        overflow: "truncate",
                    },
                },
                grid: { left: narrow(width) ? 104 : 160, top: 8, right: 56 },
            }),
            tooltip: tooltip(palette, {
                trigger: "item",
                formatter: (point) =>
                    tip(point.name, [
                        ["Share", percent(point.value / 100)],
                        ["Fastest", effectText(effects?.[point.name], true) ?? "–"],
                        ["Slowest", effectText(effects?.[point.name], false) ?? "–"],
                        ["", LAYOUT_KEYS[point.name] ?? ""],
                    ]),
            }),
            series: [
                {
                    type: "bar",
                    itemStyle: { color: palette.series[0] },
                    data: rows.map((r) => 100 * r[1]),
                    label: {
                        show: true,
                        position: "right",
                        color: palette.text,
                        formatter: (q) => (q.value < 0.5 ? "< 1 %" : percent(q.value / 100, 0)),
                    },
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

function heatScale(palette, width, { label, unitOfScale, lowest, highest }) {
    return {
        type: "continuous",
        show: !narrow(width),
        orient: "vertical",
        right: 0,
        top: "center",
        itemHeight: 140,
        itemWidth: 12,
        calculable: false,
        min: lowest,
        max: highest > lowest ? highest : lowest + 1,
        text: [`${unitOfScale}\n${label(highest)}`, label(lowest)],
        textStyle: { color: palette.soft, fontSize: 11, lineHeight: 14 },
        inRange: { color: [palette.sunken, palette.series[5], palette.series[2]] },
        dimension: 2,
    };
}

function heatSeries(palette, { unit, cells, label, strong, labeled }) {
    const cellLabel = ({ value: [, , value] }) =>
        Number.isFinite(value) ? `{${strong(value) ? "strong" : "weak"}|${label(value)}}` : "";
    return {
        name: unit,
        type: "heatmap",
        data: cells,
        itemStyle: { borderColor: palette.surface, borderWidth: 1 },
        label: {
            show: labeled,
            fontSize: 11,
            formatter: cellLabel,
            // Readable on the color of its cell, in both themes.
            rich: { strong: { color: palette.surface }, weak: { color: palette.text } },
        },
    };
}

/**
 * Options of a heat map of CELLS, [column, row, value, …]. SPEC: {xName, xs, yName, ys, cells, label(value), unit,
 * unitOfScale, tips(cell), strong(value)?}; strong() says whether a cell is filled so strongly that its label must be
 * light on dark (or the reverse).
 */
function heat(palette, width, spec) {
    const { xName, xs, yName, ys, cells } = spec;
    const values = cells.map((cell) => cell[2]).filter(Number.isFinite);
    const lowest = Math.min(...values);
    const highest = Math.max(...values);
    const gap = 14 + 7 * Math.max(...ys.map((y) => String(y).length));
    const left = gap + 28;
    const right = narrow(width) ? 12 : 90; // the scale goes first: each cell says its value, or a table does
    const roomy = (width - left - right) / xs.length >= 44;
    const strong = spec.strong ?? ((value) => value - lowest > 0.45 * (highest - lowest));
    return {
        ...axes(palette, {
            x: { name: xName, type: "category", data: xs.map(String) },
            y: {
                name: yName,
                nameGap: gap,
                type: "category",
                data: ys.map(String),
                splitLine: { show: false },
            },
            grid: { left, top: 12, right },
        }),
        tooltip: tooltip(palette, { trigger: "item", formatter: ({ data }) => spec.tips(data) }),
        visualMap: heatScale(palette, width, { ...spec, lowest, highest }),
        series: [heatSeries(palette, { ...spec, strong, labeled: roomy && cells.length <= 80 })],
    };
}

// Cuts through the surface: a curve over x for each value of y, with the band of the one that holds the highest point.
function slices(surface, palette) {
    const best = surface.mean
        .map((row) => Math.max(...row.filter(Number.isFinite)))
        .reduce((top, v, j, all) => (v > all[top] ? j : top), 0);
    const line = (name, data, style) => ({ name, type: "line", data, symbolSize: 6, ...style });
    const bound = (name, values) =>
        line(name, values[best], {
            symbol: "none",
            lineStyle: { type: "dashed", color: palette.strong, width: 1 },
            itemStyle: { color: palette.strong },
        });
    return {
        ...axes(palette, {
            x: { name: surface.x.key, type: "category", data: surface.x.values.map(String) },
            y: {
                name: "expected tokens/s",
                scale: true,
                axisLabel: { color: palette.soft, formatter: short },
            },
        }),
        legend: legend(palette),
        tooltip: tooltip(palette, {
            trigger: "axis",
            formatter: (points) =>
                tip(
                    `${surface.x.key} ${points[0].name}`,
                    points.map((q) => [q.seriesName, rate(q.value)]),
                ),
        }),
        series: [
            ...surface.mean.map((row, j) =>
                line(`${surface.y.key} ${surface.y.values[j]}`, row, {
                    lineStyle: { width: j === best ? 2.5 : 1.5, color: palette.series[j % 8] },
                    itemStyle: { color: palette.series[j % 8] },
                }),
            ),
            bound(`95 % low at ${surface.y.values[best]}`, surface.lo),
            bound(`95 % high at ${surface.y.values[best]}`, surface.hi),
        ],
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
    option({ surface: known, value }, palette, width) {
        if (!known?.mean?.length) return null;
        if (value === "slices") return slices(known, palette);
        const [unit, at, label, scale] = SURFACE_VALUES[value];
        const ys = known.y.values;
        const cells = ys
            .flatMap((_, j) => known.x.values.map((__, i) => [i, j, at(known, j, i) ?? NaN]))
            .filter((c) => Number.isFinite(c[2]));
        if (!cells.length) return null;
        return heat(palette, width, {
            xName: known.x.key,
            xs: known.x.values,
            yName: known.y.key,
            ys,
            cells,
            label,
            unit,
            unitOfScale: scale,
            tips: ([i, j]) =>
                tip(`${known.x.key} ${known.x.values[i]}, ${known.y.key} ${ys[j]}`, [
                    ["Expected", rate(known.mean[j][i])],
                    [
                        "95 % interval",
                        `${rateNumber(known.lo[j][i])} – ${rateNumber(known.hi[j][i])}`,
                    ],
                    ["P(fits)", percent(known.p_fits?.[j]?.[i], 0)],
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
    option({ trials, x, y }, palette, width) {
        if (!x || !y || x === y) return null;
        const cells = feasibilityCells(trials, x, y);
        if (!cells.length) return null;
        const option = heat(palette, width, {
            xName: x.key,
            xs: x.values,
            yName: y.key,
            ys: y.values,
            unit: "share",
            unitOfScale: "",
            label: (v) => `${Math.round(v)} %`,
            strong: (v) => Math.abs(v - 50) > 30,
            cells: cells.map((c) => [c.i, c.j, (100 * c.ok) / c.all, c]),
            tips: ([i, j, , cell]) =>
                tip(`${x.key} ${x.values[i]}, ${y.key} ${y.values[j]}`, [
                    ["Ran", `${cell.ok} of ${cell.all}`],
                    ...Object.entries(cell.states),
                ]),
        });
        return {
            ...option,
            visualMap: {
                ...option.visualMap,
                min: 0,
                max: 100,
                text: ["100 %", "0 %"],
                inRange: { color: [palette.series[1], palette.sunken, palette.series[2]] },
            },
        };
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
