// The series of a plot as Vega marks.
//
// A series is {type, name, color, rows, …}; the rows hold where they lie, and what their tooltip needs:
//   points   {x, y, shape?, fill?, size?}: shape, size (pixels across), hollow, opacity; width and dash of the outline
//   line     {x, y}: width, dash, step (the value holds until the next point), dots (pixels across; none where absent)
//   ranges   {x, low, high, capLow?, capHigh?}: width, opacity
//   bars     {at, value, label?} along the axis that is no category axis, from zero or from the bar below (plot.js):
//            most (pixels of a bar), gap (share of the room between bars), slot ([i, n]: the i-th of n side by side)
//   spans    {at, from, to, label?} on a horizontal axis, beside each other: most, share (of the row's height)
//   cells    {x, y, value, label?, labelColor?}: colors are those of the plot's ramp
//   level    a line across at y, with a label
// Common: silent (no tooltip, no click), unlisted (not in the legend), clip.

export const FEW = 400; // beyond, a series is one path instead of a mark for each row

export const CROSS = "M-.7,-.7L.7,.7M-.7,.7L.7,-.7";
export const ARROW = "M0,-1L.8,.2L.25,.2L.25,1L-.25,1L-.25,.2L-.8,.2Z";

const TEXT_SIZE = 11;

const constant = (value) => (value === undefined ? undefined : { value });

/** ENCODED without what is undefined. */
const given = (encoded) =>
    Object.fromEntries(Object.entries(encoded).filter(([, value]) => value !== undefined));

function mark(type, rows, { enter, update, hover }, more) {
    return {
        rows,
        mark: {
            type,
            encode: { enter: given(enter), update: given(update ?? {}), ...(hover && { hover }) },
            ...more,
        },
    };
}

/** Where ROW lies along an axis whose categories have a width. */
const along = (name, { type }, field) => ({
    scale: name,
    field,
    ...(type === "band" && { band: 0.5 }),
});

/** One path for all ROWS of a series, each as the path that DRAW(row) gives. */
function onePath(series, draw, style) {
    const path = series.rows.map(draw).join("");
    return mark("path", [{ path, all: series.rows }], { enter: { path: { field: "path" }, ...style } });
}

function smallPoint({ pixelX, pixelY, half, shape }) {
    const [x, y] = [pixelX.toFixed(1), pixelY.toFixed(1)];
    if (shape === "triangle-down") return `M${x},${y}l${half},${-2 * half}h${-2 * half}z`;
    if (shape === "triangle-up") return `M${x},${y}l${half},${2 * half}h${-2 * half}z`;
    return `M${(pixelX - half).toFixed(1)},${(pixelY - half).toFixed(1)}h${2 * half}v${2 * half}h${-2 * half}z`;
}

function manyPoints(series, { x, y }) {
    const half = series.size / 2;
    const draw = (row) =>
        smallPoint({ pixelX: x.pixel(row.x), pixelY: y.pixel(row.y), half, shape: series.shape });
    return [
        onePath(series, draw, { fill: { value: series.color }, opacity: constant(series.opacity) }),
    ];
}

function points(series, frame) {
    const { rows, color, hollow, width, dash, opacity, shape = "circle", size = 8 } = series;
    if (rows.length > FEW) return manyPoints({ ...series, size: Math.min(size, 4) }, frame);
    const own = (key, fallback) =>
        rows.some((row) => row[key] !== undefined)
            ? { signal: `isDefined(datum.${key}) ? datum.${key} : ${JSON.stringify(fallback)}` }
            : { value: fallback };
    const area = rows.some((row) => row.size !== undefined)
        ? { signal: `pow(isDefined(datum.size) ? datum.size : ${size}, 2)` }
        : { value: size ** 2 };
    const enter = {
        shape: own("shape", shape),
        size: area,
        fill: hollow ? { value: "transparent" } : own("fill", color),
        stroke: width ? own("fill", color) : undefined,
        strokeWidth: constant(width),
        strokeDash: constant(dash),
        opacity: constant(opacity),
    };
    const update = { x: along("x", frame.x, "x"), y: along("y", frame.y, "y") };
    return [mark("symbol", rows, { enter, update })];
}

function linePath(series, { x, y }) {
    let path = "";
    for (const row of series.rows) {
        const at = `${x.pixel(row.x).toFixed(1)},${y.pixel(row.y).toFixed(1)}`;
        if (!path) path = `M${at}`;
        else path += series.step ? at.replace(/(.*),(.*)/, "H$1V$2") : `L${at}`;
    }
    return path;
}

/** The dots of a line: hollow, with the colors of the row where it has its own. */
function dots(series, frame, palette) {
    const { rows, color, dots: size } = series;
    const own = rows.some((row) => row.fill) ? { field: "fill" } : { value: color };
    const enter = {
        size: { value: size ** 2 },
        fill: { value: palette.surface },
        stroke: own,
        strokeWidth: { value: 1.5 },
    };
    const update = { x: along("x", frame.x, "x"), y: along("y", frame.y, "y") };
    return mark("symbol", rows, { enter, update });
}

function line(series, frame, palette) {
    const { rows, color, width = 1.5, dash, step } = series;
    const style = {
        stroke: { value: color },
        strokeWidth: { value: width },
        strokeDash: constant(dash),
        strokeJoin: { value: "round" },
    };
    if (rows.length > FEW) {
        const path = linePath(series, frame);
        return [mark("path", [{ path }], { enter: { path: { field: "path" }, ...style } }, { interactive: false })];
    }
    const update = { x: along("x", frame.x, "x"), y: along("y", frame.y, "y") };
    const enter = { ...style, interpolate: { value: step ? "step-after" : "linear" } };
    const curve = mark("line", rows, { enter, update }, { interactive: false });
    return series.dots ? [curve, dots(series, frame, palette)] : [curve];
}

function ranges({ rows, color, width = 1, opacity }, { x }) {
    const enter = {
        stroke: { value: color },
        strokeWidth: { value: width },
        opacity: constant(opacity),
    };
    const at = along("x", x, "x");
    const cap = (which, end) =>
        mark(
            "rule",
            rows.filter((row) => row[which]),
            {
                enter,
                update: {
                    x: { ...at, offset: -3 },
                    x2: { ...at, offset: 3 },
                    y: { scale: "y", field: end },
                },
            },
        );
    const update = { x: at, y: { scale: "y", field: "low" }, y2: { scale: "y", field: "high" } };
    return [mark("rule", rows, { enter, update }), cap("capLow", "low"), cap("capHigh", "high")];
}

function barLabels(rows, style) {
    return mark("text", rows, style, { interactive: false });
}

function bars({ rows, color, most = Infinity, gap = 0.3, slot = [0, 1] }, { x, y }, palette) {
    const flat = y.type === "band";
    const room = (flat ? y : x).band * (1 - gap);
    const thick = Math.max(0.5, Math.min(most, room / slot[1]));
    const offset = thick * (slot[0] - slot[1] / 2);
    const [value, place] = flat ? ["x", "y"] : ["y", "x"];
    const update = {
        [value]: { scale: value, field: "from" },
        [`${value}2`]: { scale: value, field: "to" },
        [place]: { scale: place, field: "at", band: 0.5, offset },
        [flat ? "height" : "width"]: { value: thick * (slot[1] > 1 ? 0.92 : 1) },
    };
    const list = [mark("rect", rows, { enter: { fill: { value: color } }, update })];
    const labeled = rows.filter((row) => row.label !== undefined);
    if (!labeled.length) return list;
    const enter = {
        text: { field: "label" },
        baseline: { value: "middle" },
        fill: { value: palette.text },
    };
    const label = {
        x: { scale: "x", field: "to", offset: 5 },
        y: { scale: "y", field: "at", band: 0.5 },
    };
    return [...list, barLabels(labeled, { enter, update: label })];
}

/** The pixels that a span covers; one at least, so that short ones are seen. */
function covered(row, { x, width }) {
    const from = Math.max(0, x.pixel(row.from));
    const to = Math.min(width, Math.max(x.pixel(row.to), x.pixel(row.from) + 1));
    return to > from ? [from, to] : null;
}

function spans(series, frame) {
    const { rows, color, most, share, corner = 0, labelColor } = series;
    const { y } = frame;
    const height = Math.min(most, y.band * share);
    const shown = [];
    for (const row of rows) {
        const room = covered(row, frame);
        const top = y.pixel(row.at) - height / 2;
        if (room) shown.push({ row, x: room[0], wide: room[1] - room[0], top });
    }
    const style = { fill: { value: color } };
    if (shown.length > FEW) {
        const draw = ({ x, top, wide }) =>
            `M${x.toFixed(1)},${top.toFixed(1)}h${wide.toFixed(1)}v${height.toFixed(1)}h${(-wide).toFixed(1)}z`;
        return [onePath({ rows: shown }, draw, style)];
    }
    const enter = { ...style, cornerRadius: { value: corner }, height: { value: height } };
    const update = { x: { field: "x" }, y: { field: "top" }, width: { field: "wide" } };
    const labeled = shown.filter(
        ({ row, wide }) => row.label !== undefined && wide > 8 + 7 * String(row.label).length,
    );
    const label = {
        enter: {
            text: { field: "row.label" },
            align: { value: "center" },
            baseline: { value: "middle" },
            fontSize: { value: TEXT_SIZE },
            fill: constant(labelColor),
        },
        update: { x: { signal: "datum.x + datum.wide / 2" }, y: { signal: `datum.top + ${height / 2}` } },
    };
    return [mark("rect", shown, { enter, update }), barLabels(labeled, label)];
}

function cells({ rows }, frame, palette) {
    const enter = {
        stroke: { value: palette.surface },
        strokeWidth: { value: 1 },
        fill: { scale: "color", field: "value" },
    };
    const update = {
        x: { scale: "x", field: "x" },
        y: { scale: "y", field: "y" },
        width: { scale: "x", band: 1 },
        height: { scale: "y", band: 1 },
    };
    const labels = {
        enter: {
            text: { field: "label" },
            align: { value: "center" },
            baseline: { value: "middle" },
            fontSize: { value: TEXT_SIZE },
            fill: { field: "labelColor" },
        },
        update: { x: along("x", frame.x, "x"), y: along("y", frame.y, "y") },
    };
    const labeled = rows.filter((row) => row.label !== undefined);
    return [mark("rect", rows, { enter, update }), barLabels(labeled, labels)];
}

/** A dashed line across, its label at the right end above it, on the color of the surface. */
function level({ y: value, color, label }, { width }, palette) {
    const rows = [{ y: value, label }];
    const at = { scale: "y", field: "y" };
    const wide = 7 * label.length + 4;
    return [
        mark("rule", rows, {
            enter: {
                stroke: { value: color },
                strokeDash: { value: [4, 4] },
                x: { value: 0 },
                x2: { value: width },
            },
            update: { y: at },
        }),
        mark("rect", rows, {
            enter: {
                fill: { value: palette.surface },
                x: { value: width - wide },
                width: { value: wide },
                height: { value: 15 },
            },
            update: { y: { ...at, offset: 3 } },
        }),
        mark("text", rows, {
            enter: {
                text: { field: "label" },
                x: { value: width - 4 },
                align: { value: "right" },
                baseline: { value: "top" },
                fill: { value: palette.soft },
            },
            update: { y: { ...at, offset: 5 } },
        }),
    ];
}

const TYPES = { points, line, ranges, bars, spans, cells, level };

/** The marks of SERIES as [{rows, mark}]: rows are the data of each. A mark's description is its series' name. */
export function marksOf(series, frame, palette) {
    const list = TYPES[series.type](series, frame, palette);
    if (!series.silent) return list;
    return list.map(({ rows, mark: one }) => ({ rows, mark: { ...one, interactive: false } }));
}

const ALONG = {
    x: { points: ["x"], line: ["x"], ranges: ["x"], bars: ["from", "to"], spans: ["from", "to"] },
    y: { points: ["y"], line: ["y"], ranges: ["low", "high"], bars: ["from", "to"], level: [] },
};

/** All values of LIST, series, along the axis SIDE. */
export function valuesAlong(list, side) {
    const values = [];
    for (const { type, rows = [] } of list)
        for (const key of ALONG[side][type] ?? []) for (const row of rows) values.push(row[key]);
    return values;
}

/**
 * The row of a mark's DATUM that lies at POINT, pixels of the plot: the datum itself, or of a series that is one path
 * the nearest one.
 */
export function rowAt(datum, [left, top], { x, y }) {
    if (datum.row) return datum.row;
    if (!datum.all) return datum;
    if (datum.all[0]?.row) {
        const inside = (one) =>
            left >= one.x - 1 &&
            left <= one.x + one.wide + 1 &&
            Math.abs(y.pixel(one.row.at) - top) <= y.band / 2;
        return datum.all.find(inside)?.row;
    }
    const distance = (row) => Math.hypot(x.pixel(row.x) - left, y.pixel(row.y) - top);
    return datum.all.reduce((best, row) => (distance(row) < distance(best) ? row : best));
}
