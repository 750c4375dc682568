// The colors of the present theme for charts, which are drawn on a canvas.

import { h } from "../lib/dom.js";

const FONT_SIZE = 12;

let colors = null; // of the present theme

/** The colors of the present theme, for a canvas, which knows no variables and not the system's names of colors. */
export function palette() {
    if (!colors) document.addEventListener("themechange", forget, { once: true });
    colors ??= readPalette();
    return colors;
}

/** The theme of Vega's axes, legends and texts in COLORS, a palette. */
export function vegaConfig({ sans, soft, line, strong, text }) {
    return {
        background: null,
        axis: {
            domainColor: strong,
            tickColor: strong,
            gridColor: line,
            labelColor: soft,
            titleColor: soft,
            labelFont: sans,
            titleFont: sans,
            labelFontSize: FONT_SIZE,
            titleFontSize: FONT_SIZE,
            titleFontWeight: "normal",
            titlePadding: 5,
            labelPadding: 4,
        },
        legend: {
            labelColor: soft,
            titleColor: soft,
            labelFont: sans,
            titleFont: sans,
            labelFontSize: 11,
            titleFontSize: 11,
            titleFontWeight: "normal",
        },
        text: { font: sans, fontSize: FONT_SIZE, fill: text },
        style: { cell: { stroke: "transparent" } },
        group: { stroke: "transparent" },
    };
}

function forget() {
    colors = null;
}

function readPalette() {
    const root = getComputedStyle(document.documentElement);
    const probe = h("span", { class: "probe" });
    document.body.append(probe);
    const style = getComputedStyle(probe);
    const color = (name) => {
        probe.style.setProperty("color", `var(--${name})`);
        return style.color;
    };
    const found = {
        text: color("text"),
        soft: color("text-soft"),
        line: color("line"),
        strong: color("line-strong"),
        surface: color("surface"),
        raised: color("raised"),
        sunken: color("sunken"),
        accent: color("accent"),
        good: color("good"),
        bad: color("bad"),
        warn: color("warn"),
        wait: color("wait"),
        run: color("run"),
        series: [1, 2, 3, 4, 5, 6, 7, 8].map((i) => color(`series-${i}`)),
        sans: root.getPropertyValue("--sans").trim(),
    };
    probe.remove();
    return found;
}
