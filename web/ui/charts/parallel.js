// Parallel coordinates: a line for each layout over an axis for each dimension, and the choice of values on an axis.
//
// The plot is {type: "parallel", axes, lines, speeds, colors, brush}: axes as [{name, names}, …, {name, values}]
// (axis.js), lines as [[place on each axis]], the last being the speed that colors the line, brush as
// {axis index: [[lo, hi], …]}.

import { resolved } from "./axis.js";
import { FEW } from "./marks.js";

const ROOM = { left: 40, right: 70, top: 46, bottom: 24 };
const SHADES = 24; // colors of many lines: those of one are drawn at once
const GRIP = 18; // pixels across of a brush
const FONT_SIZE = 11;
const LINE_HEIGHT = 13;

/** Where the axes are: {left, top, width, height, axes: [{x, y: resolved}]}. */
function frameOf({ axes }, { width, height }) {
    const inner = {
        width: Math.max(1, width - ROOM.left - ROOM.right),
        height: Math.max(1, height - ROOM.top - ROOM.bottom),
    };
    const size = { length: inner.height, vertical: true };
    const places = axes.map((axis, i) => ({
        x: (i * inner.width) / Math.max(1, axes.length - 1),
        y: axis.names
            ? resolved({ type: "category", names: axis.names, upward: true }, [], size)
            : resolved(axis, axis.values, size),
    }));
    return { left: ROOM.left, top: ROOM.top, ...inner, axes: places };
}

/** The value at PIXEL of an axis; categories lie at whole numbers. */
function valueAt({ y }, pixel, height) {
    return y.value ? y.value(pixel) : (height - pixel) / y.band - 0.5;
}

const pixelAt = ({ y }, value, height) =>
    y.value ? y.pixel(value) : height - (value + 0.5) * y.band;

function isInside(line, brush) {
    return Object.entries(brush).every(
        ([i, intervals]) =>
            !intervals.length || intervals.some(([low, high]) => line[i] >= low && line[i] <= high),
    );
}

/** Rows of lines, a path each: {path, speed, opacity}. Many lines that look alike are one row. */
function lineRows({ lines, speeds, brush }, { axes, height }) {
    const chosen = Object.values(brush).some((intervals) => intervals.length);
    const many = lines.length > FEW;
    const plain = many ? 0.35 : 0.75;
    const opacityOf = (line) => {
        if (!chosen) return plain;
        return isInside(line, brush) ? 0.9 : 0.03;
    };
    const pathOf = (line) =>
        line.map((value, i) => `${i ? "L" : "M"}${axes[i].x},${pixelAt(axes[i], value, height)}`).join("");
    const rows = lines.map((line) => ({
        path: pathOf(line),
        speed: line.at(-1),
        opacity: opacityOf(line),
    }));
    if (!many) return rows;
    const [low, high] = speeds;
    const groups = new Map();
    for (const row of rows) {
        const shade = Math.round(((row.speed - low) / (high - low || 1)) * SHADES);
        const key = `${shade} ${row.opacity}`;
        const group = groups.get(key);
        if (group) group.path += row.path;
        else groups.set(key, row);
    }
    return [...groups.values()];
}

function axisRows({ axes }, frame) {
    return axes.map(({ name }, i) => ({ x: frame.axes[i].x, name: name.split("\n") }));
}

function labelRows(frame) {
    return frame.axes.flatMap(({ x, y }) =>
        y.ticks.map((tick, i) => ({ x, y: y.pixel(tick), text: y.texts[i] })),
    );
}

function brushRows({ brush }, frame) {
    return Object.entries(brush).flatMap(([i, intervals]) =>
        intervals.map(([low, high]) => {
            const axis = frame.axes[i];
            const [top, bottom] = [high, low].map((value) =>
                Math.min(frame.height, Math.max(0, pixelAt(axis, value, frame.height))),
            );
            return { x: axis.x - GRIP / 2, y: top - 2, size: bottom - top + 4 };
        }),
    );
}

const field = (name) => ({ field: name });
const value = (constant) => ({ value: constant });

function lineMark(many) {
    return {
        type: "path",
        interactive: false,
        encode: {
            enter: {
                path: field("path"),
                stroke: { scale: "speed", field: "speed" },
                strokeWidth: value(many ? 1 : 1.8),
                strokeJoin: value("round"),
                opacity: field("opacity"),
            },
        },
    };
}

function labelMark(palette, more) {
    return {
        type: "text",
        interactive: false,
        encode: {
            enter: {
                x: { field: "x", offset: 9 },
                y: field("y"),
                text: field("text"),
                baseline: value("middle"),
                fontSize: value(FONT_SIZE),
                ...more,
            },
        },
    };
}

function marksOf(frame, palette, many) {
    const rule = {
        x: field("x"),
        y: value(0),
        y2: value(frame.height),
        stroke: value(palette.strong),
    };
    const name = {
        x: field("x"),
        y: value(-14),
        text: field("name"),
        align: value("center"),
        baseline: value("line-bottom"),
        lineHeight: value(LINE_HEIGHT),
        fontSize: value(FONT_SIZE),
        fill: value(palette.text),
    };
    const brush = {
        x: field("x"),
        y: field("y"),
        width: value(GRIP),
        height: field("size"),
        fill: value(palette.accent),
        fillOpacity: value(0.25),
        stroke: value(palette.accent),
    };
    const grip = {
        x: { field: "x", offset: -GRIP / 2 },
        y: value(0),
        width: value(GRIP),
        height: value(frame.height),
        fill: value("transparent"),
        cursor: value("crosshair"),
    };
    const silent = { interactive: false };
    // The text on a rim of the surface's color: a line that passes leaves it readable.
    const rim = { stroke: value(palette.surface), strokeWidth: value(4), strokeJoin: value("round") };
    return [
        { type: "rule", from: { data: "axes" }, ...silent, encode: { enter: rule } },
        { ...lineMark(many), from: { data: "lines" } },
        { ...labelMark(palette, rim), from: { data: "labels" } },
        { ...labelMark(palette, { fill: value(palette.text) }), from: { data: "labels" } },
        { type: "text", from: { data: "axes" }, ...silent, encode: { enter: name } },
        { type: "rect", from: { data: "brush" }, ...silent, encode: { enter: brush } },
        { type: "rect", from: { data: "axes" }, encode: { enter: grip } },
    ];
}

/** The Vega spec of PLOT and its frame; HOW as in plot.js. */
export function parallelDrawing(plot, { palette, ...how }) {
    const frame = frameOf(plot, how);
    const [low, high] = plot.speeds;
    const spec = {
        width: frame.width,
        height: frame.height,
        padding: ROOM,
        autosize: "none",
        data: [
            { name: "axes", values: axisRows(plot, frame) },
            { name: "lines", values: lineRows(plot, frame) },
            { name: "labels", values: labelRows(frame) },
            { name: "brush", values: brushRows(plot, frame) },
        ],
        scales: [
            {
                name: "speed",
                type: "linear",
                domain: [low, (low + high) / 2, high > low ? high : low + 1],
                range: plot.colors,
                interpolate: "rgb",
                zero: false,
            },
        ],
        marks: marksOf(frame, palette, plot.lines.length > FEW),
    };
    return { spec, frame };
}

/**
 * The choice of values on the axes of a parallel plot on PLACE, an element. FRAME() is the plot's; CHANGE(i, intervals)
 * is told of what lies under a drag along axis i, none after a click on it. End it by SIGNAL.
 */
export function brushGestures(place, { frame, change, signal }) {
    let held = null; // {i, from}
    const at = (event) => {
        const box = place.getBoundingClientRect();
        const { left, top, height } = frame();
        const y = Math.min(height, Math.max(0, event.clientY - box.top - top));
        return { x: event.clientX - box.left - left, y, height };
    };
    const choose = (event) => {
        const { y, height } = at(event);
        if (Math.abs(y - held.from) < 3) return;
        held.moved = true;
        const axis = frame().axes[held.i];
        const ends = [y, held.from].map((pixel) => valueAt(axis, pixel, height));
        change(held.i, [ends.sort((one, other) => one - other)]);
    };
    const listen = (type, fn) =>
        place.addEventListener(type, (event) => frame()?.axes && fn(event), { signal });
    listen("pointerdown", (event) => {
        if (event.pointerType !== "mouse" || event.button !== 0) return;
        const { x, y } = at(event);
        const i = frame().axes.findIndex((axis) => Math.abs(axis.x - x) <= GRIP / 2);
        if (i < 0) return;
        event.preventDefault(); // no text is selected
        held = { i, from: y };
        place.setPointerCapture?.(event.pointerId);
    });
    listen("pointermove", (event) => held && choose(event));
    listen("pointerup", (event) => {
        if (!held) return;
        choose(event);
        if (!held.moved) change(held.i, []);
        held = null;
    });
    listen("pointercancel", () => {
        held = null;
    });
}
