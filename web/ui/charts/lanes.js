// The pipeline of one step as swim lanes, from a Chrome trace: one lane for each process and thread of the trace.

import { counted, ms } from "../lib/format.js";
import { axes, tip, tooltip } from "./panel.js";

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
    const zero = Math.min(...bars.map((e) => e.ts));
    const laneName = (e) =>
        [names.get(`${e.pid}`) ?? `rank ${e.pid}`, names.get(`${e.pid} ${e.tid}`)]
            .filter(Boolean)
            .join(" · ");
    return bars.map((e) => ({
        lane: laneName(e),
        name: String(e.name),
        kind: String(e.name).replace(/[ \d].*$/, ""),
        from: (e.ts - zero) / 1000,
        to: (e.ts - zero + e.dur) / 1000,
    }));
}

function bar(params, api) {
    const [x1, y] = api.coord([api.value(0), api.value(2)]);
    const [x2] = api.coord([api.value(1), api.value(2)]);
    const height = Math.min(24, api.size([0, 1])[1] * 0.75);
    const area = params.coordSys;
    const from = Math.max(x1, area.x);
    const to = Math.min(Math.max(x2, x1 + 1), area.x + area.width);
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
    note: "One lane for each rank. Control and wheel zoom. The file opens in Perfetto, too.",
    name: "step-timeline",
    none: "This trial has no timeline.",
    option({ trace }, p) {
        const bars = trace ? laneBars(trace) : [];
        if (!bars.length) return null;
        const rows = [...new Set(bars.map((b) => b.lane))];
        const kinds = [...new Set(bars.map((b) => b.kind))];
        return {
            ...axes(p, {
                x: { name: "ms", min: 0, splitLine: { show: true, lineStyle: { color: p.line } } },
                y: { type: "category", data: rows, inverse: true, splitLine: { show: false } },
                grid: { left: 120, top: 12 },
            }),
            tooltip: tooltip(p, {
                trigger: "item",
                formatter: (q) => {
                    const b = bars[q.dataIndex];
                    return tip(b.name, [
                        ["Lane", b.lane],
                        ["From", ms(b.from)],
                        ["Takes", ms(b.to - b.from)],
                    ]);
                },
            }),
            dataZoom: [{ type: "inside", filterMode: "weakFilter", zoomOnMouseWheel: "ctrl" }],
            series: [
                {
                    type: "custom",
                    renderItem: bar,
                    encode: { x: [0, 1], y: 2 },
                    clip: true,
                    data: bars.map((b) => ({
                        value: [b.from, b.to, rows.indexOf(b.lane)],
                        itemStyle: { color: p.series[kinds.indexOf(b.kind) % p.series.length] },
                    })),
                },
            ],
        };
    },
    summary: ({ trace }) => (trace ? counted(laneBars(trace).length, "span") : ""),
    table: ({ trace }) => ({
        columns: ["lane", "what", "from ms", "to ms"],
        rows: (trace ? laneBars(trace) : []).map((b) => [b.lane, b.name, b.from, b.to]),
    }),
};
