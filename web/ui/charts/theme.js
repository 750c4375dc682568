// The colors of the present theme for charts, which are drawn on a canvas.

import { h } from "../lib/dom.js";

let colors = null; // of the present theme

/** The colors of the present theme, for a canvas, which knows no variables and not the system's names of colors. */
export function palette() {
    if (!colors) document.addEventListener("themechange", forget, { once: true });
    colors ??= readPalette();
    return colors;
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
