// Throughput over numbers of devices: what a campaign's trials say of other scales, and published studies asked again.

import { count, counted, interval, percent, rate } from "../lib/format.js";
import { axes, legend, short, tip, tooltip } from "./options.js";

const KINDS = ["strong", "weak"];
const inPercent = (x) => (typeof x === "number" ? 100 * x : null);
const known = (rows) => (rows ?? []).filter((r) => r.tokens_per_s > 0);

/** Which answers there are: [["strong", answer], …]. */
function given(data) {
    return KINDS.filter((k) => data[k]).map((k) => [k, data[k]]);
}

/** A line through the rows and a bar over the 95 % interval of each. */
function withIntervals(name, rows, color, valueOf) {
    return [
        {
            name,
            type: "line",
            symbolSize: 8,
            lineStyle: { color, width: 2 },
            itemStyle: { color },
            data: rows.map((r) => ({ value: [r.devices, valueOf(r)], row: r })),
        },
        {
            name,
            type: "custom",
            silent: true,
            itemStyle: { color },
            encode: { x: 0, y: [1, 2] },
            tooltip: { show: false },
            data: rows.map((r) => [r.devices, valueOf(r, r.lo), valueOf(r, r.hi)]),
            renderItem: (params, api) => {
                const [x, top] = api.coord([api.value(0), api.value(2)]);
                const [, bottom] = api.coord([api.value(0), api.value(1)]);
                return {
                    type: "line",
                    shape: { x1: x, y1: bottom, x2: x, y2: top },
                    style: { stroke: color, lineWidth: 6, opacity: 0.3 },
                };
            },
        },
    ];
}

function rowTip(params) {
    const r = params.data?.row;
    if (!r) return "";
    return tip(`${counted(r.devices, "device")}, ${params.seriesName}`, [
        ["Layout", r.text],
        ["Batch", counted(r.global_batch, "sequence")],
        ["Projected", rate(r.tokens_per_s)],
        ["95 % interval", interval(r.lo, r.hi)],
        ["Efficiency", percent(r.efficiency)],
    ]);
}

function deviceAxis(palette, values) {
    const low = Math.min(...values);
    const high = Math.max(...values);
    return {
        name: "devices",
        type: "log",
        logBase: 2,
        min: 2 ** Math.floor(Math.log2(low)),
        max: 2 ** Math.ceil(Math.log2(high)),
        axisLabel: { color: palette.soft, formatter: count, hideOverlap: true },
    };
}

const devicesOf = (data) =>
    given(data).flatMap(([, a]) => [a.base.devices, ...known(a.rows).map((r) => r.devices)]);

export const throughput = {
    title: "Throughput at other scales",
    note: "Projected from measured trials, with 95 % intervals. Dashed line: linear scaling.",
    name: "projection-throughput",
    none: "No projection yet.",
    option(data, palette) {
        const all = given(data);
        if (!all.some(([, a]) => known(a.rows).length)) return null;
        const { base } = all[0][1];
        const x = devicesOf(data);
        const each = base.tokens_per_s / base.devices;
        const ends = [Math.min(...x), Math.max(...x)];
        return {
            ...axes(palette, {
                x: deviceAxis(palette, x),
                y: {
                    name: "tokens/s",
                    type: "log",
                    axisLabel: { color: palette.soft, formatter: short },
                },
            }),
            legend: legend(palette),
            tooltip: tooltip(palette, { trigger: "item", formatter: rowTip }),
            series: [
                ...all.flatMap(([kind, answer], i) =>
                    withIntervals(
                        `${kind} scaling`,
                        known(answer.rows),
                        palette.series[i],
                        (r, v = r.tokens_per_s) => v,
                    ),
                ),
                {
                    name: "linear",
                    type: "line",
                    symbol: "none",
                    silent: true,
                    lineStyle: { color: palette.strong, type: "dashed", width: 1 },
                    itemStyle: { color: palette.strong },
                    data: ends.map((n) => [n, each * n]),
                },
                {
                    name: "measured",
                    type: "scatter",
                    symbol: "diamond",
                    symbolSize: 13,
                    itemStyle: { color: palette.good },
                    data: [[base.devices, base.tokens_per_s]],
                    silent: true,
                    z: 4,
                },
            ],
        };
    },
    summary: (data) =>
        given(data)
            .map(([kind, answer]) => {
                const last = known(answer.rows).at(-1);
                return last
                    ? `${kind} scaling: ${rate(last.tokens_per_s)} on ${counted(last.devices, "device")}`
                    : `${kind} scaling: nothing could be projected`;
            })
            .join("; "),
    table: (data) => ({
        columns: [
            "scaling",
            "devices",
            "batch, sequences",
            "layout or reason",
            "tokens/s",
            "95 % low tokens/s",
            "95 % high tokens/s",
            "MFU, %",
            "efficiency, %",
        ],
        rows: given(data).flatMap(([kind, answer]) =>
            answer.rows.map((row) => [
                kind,
                row.devices,
                row.global_batch,
                row.text ?? row.reason,
                row.tokens_per_s,
                row.lo,
                row.hi,
                inPercent(row.mfu),
                inPercent(row.efficiency),
            ]),
        ),
    }),
};

export const efficiency = {
    ...throughput,
    title: "Efficiency",
    note: "Throughput per device relative to the measured size; on another kind of device, to the first size.",
    name: "projection-efficiency",
    option(data, palette) {
        const all = given(data);
        if (!all.some(([, a]) => known(a.rows).length)) return null;
        return {
            ...axes(palette, {
                x: deviceAxis(palette, devicesOf(data)),
                y: {
                    name: "efficiency, %",
                    min: 0,
                    axisLabel: { color: palette.soft },
                },
            }),
            legend: legend(palette),
            tooltip: tooltip(palette, { trigger: "item", formatter: rowTip }),
            series: all.flatMap(([kind, answer], i) =>
                withIntervals(
                    `${kind} scaling`,
                    known(answer.rows),
                    palette.series[i],
                    (r, v = r.tokens_per_s) => (100 * r.efficiency * v) / r.tokens_per_s,
                ),
            ),
        };
    },
};

/** What of a study's rows was published, and what the model says of the same. */
const MEASURES = [
    ["mfu", "MFU"],
    ["efficiency", "efficiency"],
];

export const study = {
    title: "MFU and efficiency",
    note: "The cost model's best layout at each size, and the published values.",
    name: "study",
    none: "No study selected.",
    option({ study: chosen }, palette) {
        if (!chosen?.rows.length) return null;
        const published = [...MEASURES, ["best", "MFU, the study's own system"]];
        const line = (key, name, i) => ({
            name: `${name}, model`,
            type: "line",
            symbolSize: 7,
            lineStyle: { color: palette.series[i] },
            itemStyle: { color: palette.series[i] },
            data: chosen.rows.filter((r) => r[key] > 0).map((r) => [r.devices, 100 * r[key]]),
        });
        const points = (key, name, i) => ({
            name: `${name}, published`,
            type: "scatter",
            symbol: ["diamond", "triangle", "rect"][i],
            symbolSize: 12,
            itemStyle: { color: palette.series[i] },
            data: chosen.rows
                .filter((r) => r.published?.[key] > 0)
                .map((r) => [r.devices, 100 * r.published[key]]),
        });
        return {
            ...axes(palette, {
                x: deviceAxis(
                    palette,
                    chosen.rows.map((r) => r.devices),
                ),
                y: { name: "%", min: 0, axisLabel: { color: palette.soft } },
            }),
            legend: legend(palette),
            tooltip: tooltip(palette, {
                trigger: "item",
                formatter: (point) =>
                    tip(point.seriesName, [
                        ["Devices", String(point.value[0])],
                        ["Value", percent(point.value[1] / 100)],
                    ]),
            }),
            series: [
                ...MEASURES.map(([key, name], i) => line(key, name, i)),
                ...published.map(([key, name], i) => points(key, name, i)),
            ].filter((series) => series.data.length),
        };
    },
    summary: ({ study: s }) => (s ? `${s.title}, ${counted(s.rows.length, "size")}.` : ""),
    table: ({ study: chosen }) => ({
        columns: [
            "devices",
            "batch, sequences",
            "layout",
            "tokens/s",
            "MFU, %",
            "published MFU, %",
            "published MFU, own system, %",
            "efficiency, %",
            "published efficiency, %",
        ],
        rows: (chosen?.rows ?? []).map((row) => [
            row.devices,
            row.global_batch,
            row.text,
            row.tokens_per_s,
            inPercent(row.mfu),
            inPercent(row.published?.mfu),
            inPercent(row.published?.best),
            inPercent(row.efficiency),
            inPercent(row.published?.efficiency),
        ]),
    }),
};
