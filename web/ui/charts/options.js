// What charts have in common: tooltips, short numbers, the limit of a narrow screen.

import { h } from "../lib/dom.js";

/** Is WIDTH, the chart's in pixels, that of a phone? Then names and scales give way to the data. */
export const narrow = (width) => width < 480;

/** A tooltip made of nodes: LIST is [name, value] pairs. No markup is ever used. */
export function tip(title, list) {
    return h(
        "div",
        { class: "tip" },
        h("b", {}, title),
        h(
            "dl",
            {},
            list.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
        ),
    );
}

function shortened(value, digits) {
    const a = Math.abs(value);
    for (const [size, letter] of [
        [1e12, "T"],
        [1e9, "G"],
        [1e6, "M"],
        [1e3, "k"],
    ])
        if (a >= size) return `${Number((value / size).toPrecision(digits))}${letter}`;
    return String(Number(value.toPrecision(digits)));
}

/** A short label of an axis: 41,000 as "41k". */
export const short = (x) => shortened(x, 4);
/** The same for many cells side by side. */
export const brief = (x) => shortened(x, 3);
