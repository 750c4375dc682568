// The pipeline of one step as swim lanes, from a Chrome trace: one lane for each process and thread of the trace.

import { counted, ms } from "../lib/format.js";
import { PHASES, ordered, phaseColor } from "../lib/words.js";
import { short, tip } from "./options.js";

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

export const lanes = {
    title: "Timeline of one step",
    note:
        "One lane per rank (per stage in a simulated trial). " +
        "Ctrl + wheel or pinch to zoom, drag to pan. The trace file opens in Perfetto.",
    name: "step-timeline",
    none: "No timeline. Successful trials of the bundled trainer have one.",
    plot({ trace }, palette) {
        const bars = trace ? laneBars(trace) : [];
        if (!bars.length) return null;
        const rows = [...new Set(bars.map((b) => b.lane))];
        const kinds = ordered(Object.fromEntries(bars.map((b) => [b.kind, 1])), PHASES);
        const last = bars.reduce((most, b) => Math.max(most, b.to), 0);
        return {
            x: { title: "ms", from: 0, to: last, format: short, grid: true },
            y: { type: "category", names: rows, every: true },
            room: { left: 84 },
            legend: true,
            zoom: "inside",
            tip: ({ bar }) =>
                tip(bar.name, [
                    ["Where", bar.lane],
                    ["From", ms(bar.from)],
                    ["Takes", ms(bar.to - bar.from)],
                ]),
            series: kinds.map((kind) => ({
                type: "spans",
                name: kind,
                color: palette.series[phaseColor(kind, palette.series.length)],
                most: 44,
                share: 0.8,
                rows: bars
                    .filter((bar) => bar.kind === kind)
                    .map((bar) => ({ from: bar.from, to: bar.to, at: rows.indexOf(bar.lane), bar })),
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
