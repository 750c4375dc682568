// Throughput over numbers of devices: what a campaign's trials say of other scales, and published studies asked again.

import { count, counted, interval, percent, rate } from "../lib/format.js";
import { short, tip } from "./options.js";

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
            type: "ranges",
            name,
            unlisted: true,
            silent: true,
            color,
            width: 6,
            opacity: 0.3,
            rows: rows.map((r) => ({ x: r.devices, low: valueOf(r, r.lo), high: valueOf(r, r.hi) })),
        },
        {
            type: "line",
            name,
            color,
            width: 2,
            dots: 8,
            rows: rows.map((row) => ({ x: row.devices, y: valueOf(row), projected: row, kind: name })),
        },
    ];
}

function rowTip({ projected: row, kind }) {
    return tip(`${counted(row.devices, "device")}, ${kind}`, [
        ["Layout", row.text],
        ["Batch", counted(row.global_batch, "sequence")],
        ["Projected", rate(row.tokens_per_s)],
        ["95 % interval", interval(row.lo, row.hi)],
        ["Efficiency", percent(row.efficiency)],
    ]);
}

const DEVICES = { title: "devices", type: "log", base: 2, format: count };

const devicesOf = (data) =>
    given(data).flatMap(([, a]) => [a.base.devices, ...known(a.rows).map((r) => r.devices)]);

export const throughput = {
    title: "Throughput at other scales",
    note: "Projected from measured trials, with 95 % intervals. Dashed line: linear scaling.",
    name: "projection-throughput",
    none: "No projection yet.",
    plot(data, palette) {
        const all = given(data);
        if (!all.some(([, a]) => known(a.rows).length)) return null;
        const { base } = all[0][1];
        const x = devicesOf(data);
        const each = base.tokens_per_s / base.devices;
        const ends = [Math.min(...x), Math.max(...x)];
        return {
            x: DEVICES,
            y: { title: "tokens/s", type: "log", format: short },
            legend: true,
            tip: rowTip,
            series: [
                {
                    type: "line",
                    name: "linear",
                    silent: true,
                    color: palette.strong,
                    dash: [4, 4],
                    width: 1,
                    rows: ends.map((n) => ({ x: n, y: each * n })),
                },
                ...all.flatMap(([kind, answer], i) =>
                    withIntervals(
                        `${kind} scaling`,
                        known(answer.rows),
                        palette.series[i],
                        (r, v = r.tokens_per_s) => v,
                    ),
                ),
                {
                    type: "points",
                    name: "measured",
                    silent: true,
                    shape: "diamond",
                    size: 13,
                    color: palette.good,
                    rows: [{ x: base.devices, y: base.tokens_per_s }],
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
    plot(data, palette) {
        const all = given(data);
        if (!all.some(([, a]) => known(a.rows).length)) return null;
        return {
            x: DEVICES,
            y: { title: "efficiency, %", zero: true },
            legend: true,
            tip: rowTip,
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
    plot({ study: chosen }, palette) {
        if (!chosen?.rows.length) return null;
        const published = [...MEASURES, ["best", "MFU, the study's own system"]];
        const line = (key, name, i) => ({
            type: "line",
            name: `${name}, model`,
            color: palette.series[i],
            dots: 7,
            rows: chosen.rows
                .filter((r) => r[key] > 0)
                .map((r) => ({ x: r.devices, y: 100 * r[key] })),
        });
        const points = (key, name, i) => ({
            type: "points",
            name: `${name}, published`,
            shape: ["diamond", "triangle-up", "square"][i],
            size: 12,
            color: palette.series[i],
            rows: chosen.rows
                .filter((r) => r.published?.[key] > 0)
                .map((r) => ({ x: r.devices, y: 100 * r.published[key] })),
        });
        return {
            x: DEVICES,
            y: { title: "%", zero: true },
            legend: true,
            tip: ({ x, y }, name) =>
                tip(name, [
                    ["Devices", String(x)],
                    ["Value", percent(y / 100)],
                ]),
            series: [
                ...MEASURES.map(([key, name], i) => line(key, name, i)),
                ...published.map(([key, name], i) => points(key, name, i)),
            ].filter(({ rows }) => rows.length),
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
