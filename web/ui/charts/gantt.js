// When each trial ran, in the slot that it had.

import { counted, seconds } from "../lib/format.js";
import { TRIAL_STATES } from "../lib/words.js";
import { narrow, tip } from "./options.js";

/** Trials as bars {t, slot, from, to} in seconds since the first; a slot is the first one that is free. */
export function slots(trials, now = Date.now()) {
    const started = trials
        .filter((t) => t.started)
        .map((trial) => ({
            t: trial,
            from: Date.parse(trial.started),
            to: trial.ended ? Date.parse(trial.ended) : now,
        }))
        .sort((a, b) => a.from - b.from);
    const busyUntil = [];
    const zero = started[0]?.from ?? 0;
    return started.map((bar) => {
        let slot = busyUntil.findIndex((end) => end <= bar.from);
        if (slot < 0) slot = busyUntil.length;
        busyUntil[slot] = bar.to;
        return { t: bar.t, slot, from: (bar.from - zero) / 1000, to: (bar.to - zero) / 1000 };
    });
}

/** The unit in which SPAN seconds has handy numbers: [name, seconds]. */
export function spanUnit(span) {
    if (span < 600) return ["seconds", 1];
    return span < 36_000 ? ["minutes", 60] : ["hours", 3600];
}

const MAX_BARS = 2000;

/**
 * With more than MAX_BARS bars, neighbors in one slot that ended alike become one bar: a failure between them keeps
 * its own, so that nothing which stands out is lost.
 */
export function joined(bars) {
    if (bars.length <= MAX_BARS) return bars;
    const last = new Map();
    const result = [];
    for (const b of bars) {
        const before = last.get(b.slot);
        if (before && before.t.state === b.t.state) {
            before.to = b.to;
            before.until = b.t.n;
        } else {
            const copy = { ...b };
            last.set(b.slot, copy);
            result.push(copy);
        }
    }
    return result;
}

function barTip({ t: trial, until, from, to }) {
    const title = until ? `Trials ${trial.n} to ${until}` : `Trial ${trial.n}: ${trial.text ?? ""}`;
    return tip(title, [
        ["State", trial.state],
        ["Duration", seconds(to - from)],
        !until && trial.devices && ["Devices", String(trial.devices)],
        ["Started at", seconds(from)],
    ]);
}

/** The bars of one STATE, in units of SIZE seconds. */
function stateSeries(state, bars, size, palette) {
    const [sign = "", tone = "wait"] = TRIAL_STATES[state] ?? [];
    const dark = document.documentElement.dataset.theme === "dark";
    return {
        type: "spans",
        name: `${sign} ${state}`,
        color: palette[tone],
        most: 36,
        share: 0.7,
        corner: 2,
        labelColor: dark ? "#0b1220" : "#ffffff",
        rows: bars
            .filter((bar) => bar.t.state === state)
            .map((bar) => ({
                n: bar.t.n,
                from: bar.from / size,
                to: bar.to / size,
                at: bar.slot,
                label: bar.t.n,
                bar,
            })),
    };
}

export const gantt = {
    title: "Trials over time",
    note: "One row per slot, one bar per trial. Ctrl + wheel or pinch to zoom, drag to pan.",
    name: "timeline",
    none: "No trial has started.",
    plot({ trials }, palette, width) {
        const bars = joined(slots(trials));
        if (!bars.length) return null;
        const count = Math.max(...bars.map((b) => b.slot)) + 1;
        const states = Object.keys(TRIAL_STATES).filter((s) => bars.some((b) => b.t.state === s));
        const [unit, size] = spanUnit(bars.reduce((most, b) => Math.max(most, b.to), 0));
        return {
            x: { title: `${unit} since the first trial`, from: 0, grid: true },
            y: { type: "category", names: Array.from({ length: count }, (_, i) => `slot ${i + 1}`) },
            room: { bottom: 76, ...(narrow(width) && { left: 56 }) },
            legend: true,
            zoom: "slider",
            zoomText: (value) => seconds(value * size),
            tip: ({ bar }) => barTip(bar),
            series: states.map((state) => stateSeries(state, bars, size, palette)),
        };
    },
    summary({ trials }) {
        const bars = slots(trials);
        const rows = Math.max(0, ...bars.map((bar) => bar.slot + 1));
        return `${counted(bars.length, "trial")} in ${counted(rows, "slot")}.`;
    },
    table: ({ trials }) => ({
        columns: ["trial", "layout", "state", "slot", "from s", "to s"],
        rows: slots(trials).map((b) => [b.t.n, b.t.text, b.t.state, b.slot + 1, b.from, b.to]),
    }),
};
