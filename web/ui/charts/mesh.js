// A layout as a drawing: every rank, the groups that it forms, and the links that those cross.
//
// Ranks are numbered with tp fastest and pp slowest (tp-cp-dp-pp); the expert mesh (etp-ep-edp-pp) is a second numbering
// of the same ranks. A group of one axis are the ranks that differ in that axis only.

import { h, s } from "../lib/dom.js";
import { significant } from "../lib/format.js";

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

/** Distance in rank numbers between neighbours along AXIS. */
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
    let worst = 0;
    for (let rank = 0; rank < layout.world; rank++) {
        const { place, first } = groupOf(layout, axis, rank);
        if (place !== 0) continue;
        let i = links.findIndex(
            (l) => Math.floor(first / spanOf(l)) === Math.floor((first + reach) / spanOf(l)),
        );
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

/** Every axis with its size, one of its groups and its link, as rows. */
export function meshRows(layout, cluster) {
    return Object.keys(AXES)
        .filter((a) => size(layout, a) > 1)
        .map((a) => {
            const link = linkOf(layout, a, cluster);
            return [
                a,
                AXES[a],
                size(layout, a),
                (layout.world ?? 1) / size(layout, a),
                groupText(layout, a),
                link
                    ? `${link.kind} (${significant(link.gbs, 3)} GB/s, ${significant(link.latency_us, 2)} µs)`
                    : "–",
            ];
        });
}

function colours(count) {
    const style = getComputedStyle(document.documentElement);
    return (i) => style.getPropertyValue(`--series-${1 + (i % Math.min(8, count))}`).trim();
}

// Stages stand side by side; in each, a row for every data- and context-parallel copy, its tp ranks in a run.
function draw(svg, layout, axis, perNode) {
    const { tp = 1, cp = 1, dp = 1, pp = 1 } = layout;
    const shownRows = Math.min(dp * cp, Math.max(1, Math.floor(MAX_RANKS / (tp * pp))));
    const stageWidth = tp * CELL + GAP * 2;
    const color = colours(layout.world / size(layout, axis));
    const nodes = [];
    for (let stage = 0; stage < pp; stage++) {
        const x0 = stage * (stageWidth + GAP) + 2;
        nodes.push(
            s(
                "text",
                { class: "label", x: x0 + GAP, y: 14 },
                pp > 1 ? `stage ${stage}` : "all layers",
            ),
        );
        nodes.push(
            s("rect", {
                class: "box",
                x: x0,
                y: 20,
                width: stageWidth,
                height: shownRows * (CELL + 4) + GAP,
                rx: 6,
            }),
        );
        for (let row = 0; row < shownRows; row++)
            for (let t = 0; t < tp; t++) {
                const rank = stage * tp * cp * dp + row * tp + t;
                const g = groupOf(layout, axis, rank);
                const x = x0 + GAP + t * CELL;
                const y = 26 + row * (CELL + 4);
                nodes.push(
                    s(
                        "rect",
                        {
                            class: "rank",
                            x,
                            y,
                            width: CELL,
                            height: CELL,
                            rx: 4,
                            fill: color(g.group),
                            "fill-opacity": 0.35,
                        },
                        s(
                            "title",
                            {},
                            `rank ${rank}, ${axis} group ${g.group}, place ${g.place}${perNode ? `, node ${Math.floor(rank / perNode)}` : ""}`,
                        ),
                    ),
                );
                nodes.push(
                    s(
                        "text",
                        { class: "rank-text", x: x + CELL / 2, y: y + CELL / 2 },
                        String(rank),
                    ),
                );
            }
    }
    const width = pp * (stageWidth + GAP) + 4;
    const height = 32 + shownRows * (CELL + 4) + 4;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.setProperty("max-width", `${width}px`);
    svg.style.setProperty("min-width", `${Math.min(width, 320)}px`);
    svg.replaceChildren(...nodes);
    return shownRows < dp * cp ? `The first ${shownRows} of ${dp * cp} rows are drawn.` : "";
}

/** A panel's body: choose an axis, see its groups; below, every axis with the link that it crosses. */
export function meshView(layout, cluster) {
    const axes = Object.keys(AXES).filter((a) => size(layout, a) > 1);
    const note = h("p", { class: "soft" });
    if (!layout.world || !axes.length)
        return h("p", { class: "soft" }, "One rank: there are no groups.");
    const svg = s("svg", {
        class: "mesh",
        role: "img",
        "aria-label": "Ranks and their groups; the table below says the same",
    });
    const select = h(
        "select",
        { onchange: redraw },
        axes.map((a) => h("option", { value: a }, `${a}: ${AXES[a]}`)),
    );

    function redraw() {
        const more = draw(svg, layout, select.value, cluster?.devices_per_node);
        note.textContent = `Ranks of one colour form one ${select.value} group. ${more}`;
    }
    redraw();
    const rows = meshRows(layout, cluster);
    const view = h(
        "div",
        {},
        h(
            "div",
            { class: "filters" },
            h("label", { class: "field" }, h("span", {}, "Groups of"), select),
        ),
        h(
            "div",
            {
                class: "scroll",
                tabindex: "0",
                role: "region",
                "aria-label": "drawing of the ranks",
            },
            svg,
        ),
        note,
        h(
            "div",
            { class: "scroll", tabindex: "0", role: "region", "aria-label": "axes of the mesh" },
            h(
                "table",
                {},
                h(
                    "thead",
                    {},
                    h(
                        "tr",
                        {},
                        [
                            "axis",
                            "meaning",
                            "ranks a group",
                            "groups",
                            "one of them",
                            "slowest link it crosses",
                        ].map((c) => h("th", { scope: "col" }, c)),
                    ),
                ),
                h(
                    "tbody",
                    {},
                    rows.map((r) =>
                        h(
                            "tr",
                            {},
                            h("th", { scope: "row", class: "mono" }, r[0]),
                            r.slice(1).map((c) => h("td", {}, String(c))),
                        ),
                    ),
                ),
            ),
        ),
    );
    document.addEventListener("themechange", redraw);
    return Object.assign(view, { done: () => document.removeEventListener("themechange", redraw) });
}
