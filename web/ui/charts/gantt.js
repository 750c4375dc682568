// When each trial ran, in the slot that it had.

import { counted, seconds } from "../lib/format.js";
import { TRIAL_STATES } from "../lib/words.js";
import { axes, insideZoom, legend, narrow, tip, tooltip } from "./options.js";

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

function drawBar(params, api) {
    const [x1, y] = api.coord([api.value(0), api.value(2)]);
    const [x2] = api.coord([api.value(1), api.value(2)]);
    const height = Math.min(36, api.size([0, 1])[1] * 0.7);
    const width = Math.max(1, x2 - x1 - 0.5);
    const { x: left, width: room } = params.coordSys;
    const from = Math.max(x1, left);
    const to = Math.min(x1 + width, left + room);
    if (to <= from) return null;
    return {
        type: "rect",
        shape: { x: from, y: y - height / 2, width: to - from, height, r: 2 },
        style: { fill: api.visual("color") },
        textContent: {
            style: {
                text: to - from > 8 + 7 * String(api.value(3)).length ? String(api.value(3)) : "",
                fill: api.value(4) === 1 ? "#0b1220" : "#ffffff",
                fontSize: 11,
            },
        },
        textConfig: { position: "inside" },
    };
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
    const dark = document.documentElement.dataset.theme === "dark" ? 1 : 0;
    const item = (bar) => ({
        value: [bar.from / size, bar.to / size, bar.slot, bar.t.n, dark],
        bar,
    });
    return {
        name: `${sign} ${state}`,
        type: "custom",
        renderItem: drawBar,
        encode: { x: [0, 1], y: 2 },
        clip: true,
        progressive: 0,
        itemStyle: { color: palette[tone] },
        data: bars.filter((bar) => bar.t.state === state).map(item),
    };
}

export const gantt = {
    title: "Trials over time",
    note: "One row per slot, one bar per trial. Ctrl + wheel or pinch to zoom, drag to pan.",
    name: "timeline",
    none: "No trial has started.",
    option({ trials }, palette, width) {
        const bars = joined(slots(trials));
        if (!bars.length) return null;
        const count = Math.max(...bars.map((b) => b.slot)) + 1;
        const states = Object.keys(TRIAL_STATES).filter((s) => bars.some((b) => b.t.state === s));
        const [unit, size] = spanUnit(bars.reduce((most, b) => Math.max(most, b.to), 0));
        return {
            ...axes(palette, {
                x: {
                    name: `${unit} since the first trial`,
                    min: 0,
                    splitLine: { show: true, lineStyle: { color: palette.line } },
                },
                y: {
                    type: "category",
                    data: Array.from({ length: count }, (_, i) => `slot ${i + 1}`),
                    inverse: true,
                    splitLine: { show: false },
                },
                grid: { top: 34, bottom: 76, ...(narrow(width) && { left: 56 }) },
            }),
            legend: legend(palette),
            tooltip: tooltip(palette, {
                trigger: "item",
                formatter: ({ data }) => barTip(data.bar),
            }),
            dataZoom: [
                insideZoom({ filterMode: "weakFilter" }),
                {
                    type: "slider",
                    filterMode: "weakFilter",
                    height: 18,
                    bottom: 8,
                    borderColor: palette.line,
                    textStyle: { color: palette.soft },
                    labelFormatter: (v) => seconds(v * size),
                },
            ],
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
