// A chart as plain data, its plot, and the Vega spec that draws it.
//
// A plot is what the modules of charts make of their data:
//   x, y       axes (axis.js)
//   series     what is drawn, the last on top (marks.js)
//   room       {left, right, top, bottom}: pixels around the axes
//   legend     names of series above; a click on one hides it
//   ramp       {low, high, texts, title, colors: of low, middle, high; flat, hidden}: of cells
//   zoom       "inside", or "slider" for one below as well; of the x axis
//   tip(row)   a node for what the pointer is on; series gives the name of that
//   stack      bars begin where those of the series before end
//   bands      {at: [values of x, or indices of categories], tip(i, shown)}: one tooltip for all series at a value;
//              shown(name) tells whether a series is
// A plot of type "parallel" is parallel.js's.

import { legendLayout, legendMarks, rampLegend } from "./legend.js";
import { marksOf, valuesAlong } from "./marks.js";
import { resolved, textsSignal, vegaAxis, vegaScale } from "./axis.js";

const ROOM = { left: 74, right: 20, top: 14, bottom: 46 };
const ABOVE = 14; // pixels between the legend and the plot

/** LIST with the ends of its bars: {from, to} of each row. */
function withEnds(list, stack) {
    const tops = [];
    return list.map((series) => {
        if (series.type !== "bars") return series;
        const rows = series.rows.map((row) => {
            const from = stack ? (tops[row.at] ?? 0) : 0;
            const to = from + row.value;
            tops[row.at] = to;
            return { ...row, from, to };
        });
        return { ...series, rows };
    });
}

/** The series that are not hidden, and the room around them. */
function shownOf(plot, { width, hidden, palette }) {
    const legend = plot.legend ? legendLayout(plot.series, { width, hidden, palette }) : null;
    const room = { ...ROOM, ...plot.room };
    const shown = withEnds(
        plot.series.filter(({ name }) => !hidden.has(name)),
        plot.stack,
    );
    return { legend, room: legend ? { ...room, top: legend.height + ABOVE } : room, shown };
}

/** Where things lie: {left, top, width, height, x, y}; width and height are those of the plot inside of its axes. */
function frameOf(plot, shown, room, { width, height, zoom }) {
    const inner = {
        width: Math.max(1, width - room.left - room.right),
        height: Math.max(1, height - room.top - room.bottom),
    };
    return {
        left: room.left,
        top: room.top,
        ...inner,
        x: resolved(plot.x, valuesAlong(shown, "x"), { length: inner.width, zoom }),
        y: resolved(plot.y, valuesAlong(shown, "y"), { length: inner.height, vertical: true }),
    };
}

/** Stripes that the pointer is on, one for each value of x: it need not meet a point. */
function bandMarks({ at }, { x, y, width, height }, palette) {
    const flat = y.type === "band";
    const axis = flat ? y : x;
    const banded = axis.type === "band";
    const places = at.map((value) => axis.pixel(value));
    const end = flat ? height : width;
    const rows = places.map((place, i) => {
        const before = banded ? axis.start(at[i]) : (places[i - 1] + place) / 2 || 0;
        const after = banded ? before + axis.band : (places[i + 1] + place) / 2 || end;
        const from = Math.max(0, before);
        return { index: i, from, size: Math.max(0, Math.min(end, after) - from) };
    });
    const [place, extent, across] = flat ? ["y", "height", "width"] : ["x", "width", "height"];
    const enter = {
        [place]: { field: "from" },
        [extent]: { field: "size" },
        [across]: { value: flat ? width : height },
        fill: { value: palette.line },
    };
    const update = { fillOpacity: { value: 0 } };
    const hover = { fillOpacity: { value: 0.6 } };
    return [{ rows, mark: { type: "rect", encode: { enter, update, hover } } }];
}

/** A group of the plot's size that cuts off what a zoom has moved out of it. */
function clipped(marks, { width, height }) {
    return {
        type: "group",
        clip: true,
        interactive: false,
        encode: { enter: { width: { value: width }, height: { value: height } } },
        marks,
    };
}

/** MADE, lists of {rows, mark, name}, as the data and the marks of a spec. */
function withData(made, stem) {
    const data = made.map(({ rows }, i) => ({ name: `${stem}${i}`, values: rows }));
    const marks = made.map(({ mark, name }, i) => ({
        ...mark,
        from: { data: `${stem}${i}` },
        ...(name && { name: `${name}#${i}` }),
    }));
    return { data, marks };
}

function rampScale({ low, high, colors }) {
    return {
        name: "color",
        type: "linear",
        domain: [low, (low + high) / 2, high],
        range: colors,
        interpolate: "rgb",
        clamp: true,
        zero: false,
    };
}

/** The marks of SHOWN, series, with their names; those that can be clicked have a hand. */
function seriesMarks(plot, { frame, shown }, { palette, clickable }) {
    const silent = plot.bands && { silent: true }; // the stripes below have the tooltip
    const drawn = shown.flatMap((series) =>
        marksOf({ ...series, ...silent }, frame, palette).map((made) => ({
            ...made,
            name: series.name,
        })),
    );
    for (const { mark } of clickable ? drawn : [])
        if (mark.interactive !== false) mark.encode.enter.cursor = { value: "pointer" };
    return drawn;
}

function specOf(plot, parts, how) {
    const { frame, legend } = parts;
    const { left, right, top, bottom } = parts.room;
    const { palette } = how;
    const { ramp } = plot;
    const stripes = withData(plot.bands ? bandMarks(plot.bands, frame, palette) : [], "band");
    const series = withData(seriesMarks(plot, parts, how), "series");
    const above = withData(
        legend ? legendMarks(legend, { left: -left, top: 2 - top }, palette) : [],
        "legend",
    );
    return {
        width: frame.width,
        height: frame.height,
        padding: { left, right, top, bottom },
        autosize: "none",
        signals: [textsSignal("x", frame.x), textsSignal("y", frame.y)],
        data: [...stripes.data, ...series.data, ...above.data],
        scales: [
            vegaScale("x", frame.x),
            vegaScale("y", frame.y),
            ...(ramp ? [rampScale(ramp)] : []),
        ],
        axes: [vegaAxis("x", plot.x, frame.x), vegaAxis("y", plot.y, frame.y)],
        legends: ramp && !ramp.hidden ? [rampLegend(ramp, frame)] : [],
        marks: [
            ...stripes.marks,
            ...(how.zoom ? [clipped(series.marks, frame)] : series.marks),
            ...above.marks,
        ],
    };
}

/**
 * The Vega spec of PLOT and its frame. HOW is {width, height, palette, hidden: names of series, zoom: [from, to] of the
 * x axis or null, clickable}; sizes in pixels. Returns {spec, frame}.
 */
export function drawingOf(plot, how) {
    const { legend, room, shown } = shownOf(plot, how);
    const frame = frameOf(plot, shown, room, how);
    return { spec: specOf(plot, { frame, legend, shown, room }, how), frame };
}
