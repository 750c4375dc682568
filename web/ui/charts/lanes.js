// The pipeline of one step as swim lanes, from a Chrome trace: one lane for each process and thread of the trace.

import { counted, ms } from "../lib/format.js";
import { PHASES, ordered, phaseColor } from "../lib/words.js";
import { axes, insideZoom, legend, short, tip, tooltip } from "./options.js";

/** Complete events ("ph": "X", microseconds) as {lane, name, kind, from, to} in milliseconds since the first. */
export function laneBars(trace) {
    const events = Array.isArray(trace) ? trace : (trace?.traceEvents ?? []);
    const names = new Map();
    for (const e of events)
        if (e.ph === "M" && (e.name === "thread_name" || e.name === "process_name"))
            names.set(
                e.name === "thread_name" ? `${e.pid} ${e.tid}` : `${e.pid}`,
                String(e.args?.name ?? ""),
            );
    const bars = events.filter((e) => e.ph === "X" && e.dur >= 0);
    const zero = bars.reduce((least, e) => Math.min(least, e.ts), Infinity);
    const several = new Set(bars.map((e) => e.pid)).size > 1;
    const laneName = (event) =>
        [
            several && (names.get(`${event.pid}`) ?? `rank ${event.pid}`),
            names.get(`${event.pid} ${event.tid}`),
        ]
            .filter(Boolean)
            .join(" · ") || `rank ${event.tid ?? event.pid}`;
    return bars.map((event) => ({
        lane: laneName(event),
        name: String(event.name),
        kind: String(event.name).replace(/[ \d].*$/, ""),
        from: (event.ts - zero) / 1000,
        to: (event.ts - zero + event.dur) / 1000,
    }));
}

/** What the trace is of: the name of its only process. */
function traceName(trace) {
    const events = Array.isArray(trace) ? trace : (trace?.traceEvents ?? []);
    const names = events.filter((e) => e.ph === "M" && e.name === "process_name");
    return names.length === 1 ? String(names[0].args?.name ?? "") : "";
}

function bar(params, api) {
    const [x1, y] = api.coord([api.value(0), api.value(2)]);
    const [x2] = api.coord([api.value(1), api.value(2)]);
    const height = Math.min(44, api.size([0, 1])[1] * 0.8);
    const area = params.coordSys;
    const from = Math.max(x1, area.x);
    const to = Math.min(Math.max(x2, x1 + 0.5), area.x + area.width);
    return to > from
        ? {
              type: "rect",
              shape: { x: from, y: y - height / 2, width: to - from, height },
              style: { fill: api.visual("color") },
          }
        : null;
}

export const lanes = {
    title: "Timeline of one step",
    note:
        "One lane per rank (per stage in a simulated trial). " +
        "Ctrl + wheel or pinch to zoom, drag to pan. The trace file opens in Perfetto.",
    name: "step-timeline",
    none: "No timeline. Successful trials of the bundled trainer have one.",
    option({ trace }, palette) {
        const bars = trace ? laneBars(trace) : [];
        if (!bars.length) return null;
        const rows = [...new Set(bars.map((b) => b.lane))];
        const kinds = ordered(Object.fromEntries(bars.map((b) => [b.kind, 1])), PHASES);
        const color = (k) => palette.series[phaseColor(k, palette.series.length)];
        const last = bars.reduce((most, b) => Math.max(most, b.to), 0);
        return {
            ...axes(palette, {
                x: {
                    name: "ms",
                    min: 0,
                    max: last,
                    axisLabel: {
                        color: palette.soft,
                        hideOverlap: true,
                        showMaxLabel: false,
                        formatter: short,
                    },
                    splitLine: { show: true, lineStyle: { color: palette.line } },
                },
                y: { type: "category", data: rows, inverse: true, splitLine: { show: false } },
                grid: { left: 84, top: 34 },
            }),
            legend: legend(palette),
            tooltip: tooltip(palette, {
                trigger: "item",
                formatter: (point) => {
                    const b = point.data.bar;
                    return tip(b.name, [
                        ["Where", b.lane],
                        ["From", ms(b.from)],
                        ["Takes", ms(b.to - b.from)],
                    ]);
                },
            }),
            dataZoom: [insideZoom({ filterMode: "weakFilter" })],
            series: kinds.map((k) => ({
                name: k,
                type: "custom",
                renderItem: bar,
                encode: { x: [0, 1], y: 2 },
                clip: true,
                progressive: 0,
                itemStyle: { color: color(k) },
                data: bars
                    .filter((b) => b.kind === k)
                    .map((b) => ({ value: [b.from, b.to, rows.indexOf(b.lane)], bar: b })),
            })),
        };
    },
    summary: ({ trace }) =>
        trace
            ? [traceName(trace), counted(laneBars(trace).length, "span")].filter(Boolean).join(": ")
            : "",
    table: ({ trace }) => ({
        columns: ["lane", "what", "from ms", "to ms"],
        rows: (trace ? laneBars(trace) : []).map((b) => [b.lane, b.name, b.from, b.to]),
    }),
};
