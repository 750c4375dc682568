// A layout as a drawing: every rank, the groups that it forms, and the links that those cross.
//
// Ranks are numbered with tp fastest and pp slowest (tp-cp-dp-pp); the expert mesh (etp-ep-edp-pp) is a second
// numbering of the same ranks. A group of one axis are the ranks that differ in that axis only.

import { h, s } from "../lib/dom.js";
import { significant } from "../lib/format.js";
import { field } from "../parts/parts.js";

const MAX_RANKS = 512;
const CELL = 30;
const GAP = 10;

const AXES = {
    tp: "tensor parallel",
    cp: "context parallel",
    dp: "data parallel",
    pp: "pipeline",
    etp: "expert tensor parallel",
    ep: "expert parallel",
    edp: "expert data parallel",
};

const size = (layout, axis) => layout[axis] ?? 1;

/** Distance in rank numbers between neighbors along AXIS. */
export function stride(layout, axis) {
    const order = ["etp", "ep", "edp"].includes(axis)
        ? ["etp", "ep", "edp", "pp"]
        : ["tp", "cp", "dp", "pp"];
    let n = 1;
    for (const a of order) {
        if (a === axis) return n;
        n *= size(layout, a);
    }
    return n;
}

/** The number of RANK's group along AXIS, and its place in it. */
export function groupOf(layout, axis, rank) {
    const step = stride(layout, axis);
    const n = size(layout, axis);
    const place = Math.floor(rank / step) % n;
    const low = rank % step;
    const high = Math.floor(rank / (step * n));
    return { group: high * step + low, place, first: high * step * n + low };
}

const spanOf = (link) => (typeof link.span === "number" ? link.span : Infinity);

/** The slowest link that some group of AXIS needs: the first whose block of consecutive ranks holds the whole group. */
export function linkOf(layout, axis, cluster) {
    const links = [...(cluster?.links ?? [])].sort((a, b) => spanOf(a) - spanOf(b));
    const n = size(layout, axis);
    if (n === 1 || !links.length) return null;
    const reach = stride(layout, axis) * (n - 1);
    const node = cluster.devices_per_node ?? Infinity;
    // Jobs are placed in segments inside what joins several nodes: a group that is short enough fits there.
    const holds = (span, first) =>
        (span > node && stride(layout, axis) * n <= span) ||
        Math.floor(first / span) === Math.floor((first + reach) / span);
    let worst = 0;
    for (let rank = 0; rank < layout.world; rank++) {
        const { place, first } = groupOf(layout, axis, rank);
        if (place !== 0) continue;
        let i = links.findIndex((l) => holds(spanOf(l), first));
        if (i < 0) i = links.length - 1;
        worst = Math.max(worst, i);
    }
    return links[worst];
}

function groupText(layout, axis) {
    const step = stride(layout, axis);
    const n = size(layout, axis);
    const ranks = Array.from({ length: Math.min(n, 4) }, (_, i) => i * step).join(", ");
    return `${ranks}${n > 4 ? ` … ${(n - 1) * step}` : ""}`;
}

/** "nvlink4 (450 GB/s, 4 µs)" */
function linkText(link) {
    const { kind = "link", gbs, latency_us: latency, oversubscription } = link;
    const rate = `${significant(gbs, 3)} GB/s${link.per_pair ? " a pair" : ""}`;
    const shared = oversubscription > 1 ? `, ${oversubscription}:1 oversubscribed` : "";
    return `${kind} (${rate}, ${significant(latency, 2)} µs${shared})`;
}

/** Every axis with its size, one of its groups and its link, as rows. */
export function meshRows(layout, cluster) {
    return Object.keys(AXES)
        .filter((a) => size(layout, a) > 1)
        .map((axis) => {
            const link = linkOf(layout, axis, cluster);
            return [
                axis,
                AXES[axis],
                size(layout, axis),
                (layout.world ?? 1) / size(layout, axis),
                groupText(layout, axis),
                link ? linkText(link) : "–",
            ];
        });
}

function colors(count) {
    const style = getComputedStyle(document.documentElement);
    return (i) => style.getPropertyValue(`--series-${1 + (i % Math.min(8, count))}`).trim();
}

const ROW = CELL + 4;
const HEAD = 26; // pixels above the first row

/** Which rows and columns LAYOUT is drawn in: {rows, allRows, stageWidth, left(stage)}. */
function drawingOf({ tp = 1, cp = 1, dp = 1, pp = 1 }) {
    const allRows = dp * cp;
    const rows = Math.min(allRows, Math.max(1, Math.floor(MAX_RANKS / (tp * pp))));
    const stageWidth = tp * CELL + GAP * 2;
    const left = (stage) => stage * (stageWidth + GAP) + 2;
    return { rows, allRows, stageWidth, left };
}

function rankBox(rank, x, y, { layout, axis, perNode, color }) {
    const { group, place } = groupOf(layout, axis, rank);
    const node = perNode ? `, node ${Math.floor(rank / perNode)}` : "";
    const box = { x, y, width: CELL, height: CELL, rx: 4 };
    return [
        s(
            "rect",
            { class: "rank", ...box, fill: color(group), "fill-opacity": 0.35 },
            s("title", {}, `rank ${rank}, ${axis} group ${group}, position ${place}${node}`),
        ),
        s("text", { class: "rank-text", x: x + CELL / 2, y: y + CELL / 2 }, String(rank)),
    ];
}

/** One stage: a row for every data- and context-parallel copy, its tp ranks in a run. */
function stageNodes(stage, drawing, what) {
    const { tp = 1, cp = 1, dp = 1, pp = 1 } = what.layout;
    const left = drawing.left(stage);
    const height = drawing.rows * ROW + GAP;
    const nodes = [
        s(
            "text",
            { class: "label", x: left + GAP, y: 14 },
            pp > 1 ? `stage ${stage}` : "all layers",
        ),
        s("rect", { class: "box", x: left, y: 20, width: drawing.stageWidth, height, rx: 6 }),
    ];
    for (let row = 0; row < drawing.rows; row++)
        for (let column = 0; column < tp; column++) {
            const rank = stage * tp * cp * dp + row * tp + column;
            const x = left + GAP + column * CELL;
            nodes.push(...rankBox(rank, x, HEAD + row * ROW, what));
        }
    return nodes;
}

/** Draw the groups of AXIS, the stages side by side. Returns what there is to say of it. */
function draw(svg, layout, axis, perNode) {
    const { pp = 1 } = layout;
    const drawing = drawingOf(layout);
    const what = { layout, axis, perNode, color: colors(layout.world / size(layout, axis)) };
    const stages = Array.from({ length: pp }, (_, stage) => stageNodes(stage, drawing, what));
    const width = drawing.left(pp) + 2;
    const height = HEAD + 10 + drawing.rows * ROW;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.setProperty("max-width", `${width}px`);
    svg.style.setProperty("min-width", `${Math.min(width, 320)}px`);
    svg.replaceChildren(...stages.flat());
    const { rows, allRows } = drawing;
    return rows < allRows ? `The first ${rows} of ${allRows} rows are drawn.` : "";
}

const MESH_COLUMNS = [
    "axis",
    "meaning",
    "ranks per group",
    "groups",
    "example",
    "slowest link crossed",
];

function scrolled(label, content) {
    return h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
        content,
    );
}

function meshTable(rows) {
    const row = ([axis, ...rest]) =>
        h(
            "tr",
            {},
            h("th", { scope: "row", class: "mono" }, axis),
            rest.map((value) => h("td", {}, String(value))),
        );
    const heads = MESH_COLUMNS.map((name) => h("th", { scope: "col" }, name));
    return h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows.map(row)));
}

/** A panel's body: choose an axis, see its groups; below, every axis with the link that it crosses. */
export function meshView(layout, cluster) {
    const axes = Object.keys(AXES).filter((axis) => size(layout, axis) > 1);
    if (!layout.world || !axes.length) return h("p", { class: "soft" }, "One rank, no groups.");
    const note = h("p", { class: "soft" });
    const svg = s("svg", {
        class: "mesh",
        role: "img",
        "aria-label": "Ranks and their groups, also listed in the table below",
    });
    const select = h(
        "select",
        { onchange: redraw },
        axes.map((axis) => h("option", { value: axis }, `${axis}: ${AXES[axis]}`)),
    );

    function redraw() {
        const more = draw(svg, layout, select.value, cluster?.devices_per_node);
        note.textContent = `Ranks of one color form one ${select.value} group. ${more}`;
    }
    redraw();
    const view = h(
        "div",
        {},
        h("div", { class: "filters" }, field("Groups by", select)),
        scrolled("drawing of the ranks", svg),
        note,
        scrolled("axes of the mesh", meshTable(meshRows(layout, cluster))),
    );
    document.addEventListener("themechange", redraw);
    return Object.assign(view, { done: () => document.removeEventListener("themechange", redraw) });
}
