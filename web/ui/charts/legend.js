// Legends: the names of series in rows above the plot, and the scale of colors of a heat map.

const ROW = 18;
const GAP = 14;
const SIGN = 16;
const FONT_SIZE = 12;
const BOX = "M-1,-.55h2v1.1h-2z";
const LINE = "M-1,0h.65a.35,.35,0,1,1,.7,0h.65h-.65a.35,.35,0,1,1,-.7,0h-.65z";
const DIMMED = 0.4;

let context = null;

/** Pixels across of TEXT in the font of charts. */
function widthOf(text, { sans }) {
    context ??= document.createElement("canvas").getContext("2d");
    context.font = `${FONT_SIZE}px ${sans}`;
    return context.measureText(text).width;
}

/** What stands for SERIES before its name. */
function signOf({ type, color, shape, hollow, width }) {
    if (type === "line") return { shape: LINE, fill: color, stroke: color, size: SIGN };
    if (type !== "points") return { shape: BOX, fill: color, stroke: "transparent", size: SIGN };
    return {
        shape: shape ?? "circle",
        fill: hollow ? "transparent" : color,
        stroke: width ? color : "transparent",
        size: 9,
    };
}

/** The entries of a legend on WIDTH pixels: {rows: [{series, x, y, wide, dim, …}], height}. */
export function legendLayout(list, { width, hidden, palette }) {
    let x = 8;
    let y = 0;
    const rows = [];
    for (const series of list) {
        if (series.unlisted || !series.name) continue;
        const wide = SIGN + 6 + widthOf(series.name, palette);
        if (x + wide > width - 8 && x > 8) {
            x = 8;
            y += ROW;
        }
        const dim = hidden.has(series.name) ? DIMMED : 1;
        rows.push({ name: series.name, legend: series.name, x, y, wide, dim, ...signOf(series) });
        x += wide + GAP;
    }
    return { rows, height: rows.length ? y + ROW : 0 };
}

/** The marks of LAYOUT, whose left upper corner is at X and Y of the plot. */
export function legendMarks({ rows }, { left, top }, palette) {
    const shifted = rows.map((row) => ({ ...row, x: row.x + left, y: row.y + top + ROW / 2 }));
    const field = (name) => ({ field: name });
    const place = { y: field("y"), opacity: field("dim") };
    const sign = {
        x: { field: "x", offset: SIGN / 2 },
        ...place,
        shape: field("shape"),
        size: { signal: "pow(datum.size, 2)" },
        fill: field("fill"),
        stroke: field("stroke"),
        strokeWidth: { value: 1.3 },
    };
    const text = {
        x: { field: "x", offset: SIGN + 6 },
        ...place,
        text: field("name"),
        baseline: { value: "middle" },
        fill: { value: palette.soft },
    };
    const touch = {
        x: { field: "x", offset: -3 },
        y: { field: "y", offset: -ROW / 2 },
        width: { field: "wide", offset: 6 },
        height: { value: ROW },
        fill: { value: "transparent" },
        cursor: { value: "pointer" },
    };
    const silent = { interactive: false };
    return [
        { rows: shifted, mark: { type: "symbol", encode: { enter: sign }, ...silent } },
        { rows: shifted, mark: { type: "text", encode: { enter: text }, ...silent } },
        { rows: shifted, mark: { type: "rect", encode: { enter: touch } } },
    ];
}

/**
 * The Vega legend of a ramp of colors, {low, high, texts: [of low, of high], title?, flat}, on a plot of WIDTH and
 * HEIGHT pixels: above it where it is flat, else right of it.
 */
export function rampLegend({ low, high, texts, title, flat }, { width, height }) {
    const length = flat ? 120 : Math.min(140, height - 40);
    const [first, last] = texts.map((text) => JSON.stringify(text));
    return {
        fill: "color",
        type: "gradient",
        orient: "none",
        direction: flat ? "horizontal" : "vertical",
        legendX: flat ? (width - length) / 2 : width + 14,
        legendY: flat ? -34 : (height - length) / 2 - (title ? 18 : 0),
        gradientLength: length,
        gradientThickness: flat ? 8 : 12,
        values: [low, high],
        ...(title && { title }),
        labelOverlap: false,
        encode: {
            labels: {
                update: { text: { signal: `datum.value === ${low} ? ${first} : ${last}` } },
            },
        },
    };
}
