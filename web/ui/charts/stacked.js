// Horizontal bars, each a stack of named parts: where the time of a step goes, or the memory of a rank.

import { ordered } from "../lib/words.js";
import { tip } from "./options.js";

// Members of a cost or a memory plan that are no part of it; what is offloaded is not the device's.
const TOTALS = ["total", "rank", "host", "tokens_per_s"];

/** Names of the parts that some of BARS has, those of ORDER first. */
function partsOf(bars, order) {
    const all = Object.assign({}, ...bars.map((bar) => bar.parts ?? {}));
    const some = (name) => bars.some((bar) => bar.parts?.[name] > 0);
    return ordered(all, order).filter((name) => !TOTALS.includes(name) && some(name));
}

function barsTable(bars, { order, of = "", unit, scale, raw = [unit, scale] }) {
    const parts = partsOf(bars, order);
    const [rawUnit, rawScale] = raw;
    const cell = (value) => (value === null || value === undefined ? null : value / rawScale);
    return {
        columns: [of, ...parts.map((name) => `${name} ${rawUnit}`)],
        rows: bars.map((bar) => [bar.name, ...parts.map((name) => cell(bar.parts?.[name]))]),
    };
}

/**
 * The spec of a chart of such bars; its data are {bars: [{name, title?, label?, parts: {name: number}}]}, the name
 * being that of the table, the title (or the name) that of the axis, and the label its short form. SPEC is of
 * chartPanel() and:
 *   order            names of parts, in the order in which they are stacked
 *   unit, scale      of the axis, and how many of the parts' unit one of it is
 *   of, raw          what a bar is, and [unit, scale] of the table where they differ
 *   show(value)      a part in its own unit, for the tooltip
 *   color(name, i)  which color of the series the i-th part has; the i-th where it is absent
 *   most             how many bars are drawn; all, where it is absent
 *   names(width)     of the bars: {whole, left, …}: in full or by their labels, the room for them in pixels, and
 *                    how the axis shows them (axis.js: limit, every, mono)
 */
export function stackedBars(spec) {
    const { order, unit, scale, show, most = Infinity } = spec;
    const color = spec.color ?? ((_, i) => i);
    const titleOf = (bar) => bar.title ?? bar.name;

    function plot(data, palette, width) {
        const bars = data.bars.slice(0, most);
        const parts = partsOf(bars, order);
        if (!parts.length) return null;
        const { whole, left, ...label } = spec.names(width);
        const values = parts.map((name) => bars.map((bar) => (bar.parts?.[name] ?? 0) / scale));
        return {
            x: { title: unit, zero: true, grid: true },
            y: {
                type: "category",
                names: bars.map((bar) => (whole ? titleOf(bar) : (bar.label ?? titleOf(bar)))),
                ...label,
            },
            room: { left },
            legend: true,
            bands: {
                at: bars.map((_, i) => i),
                tip: (i, shown) =>
                    tip(
                        titleOf(bars[i]),
                        parts.map((name, k) => shown(name) && [name, show(values[k][i] * scale)]),
                    ),
            },
            stack: true,
            series: parts.map((name, i) => ({
                type: "bars",
                name,
                most: 40,
                color: palette.series[color(name, i) % palette.series.length],
                rows: values[i].map((value, at) => ({ at, value })),
            })),
        };
    }
    return { ...spec, plot, table: ({ bars }) => barsTable(bars, spec) };
}
