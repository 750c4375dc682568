// The colours of the present theme for charts, which are drawn on a canvas.

import { h } from "../lib/dom.js";

let colours = null; // of the present theme

/** The colours of the present theme, for a canvas, which knows no variables and not the system's names of colours. */
export function palette() {
    if (!colours) document.addEventListener("themechange", forget, { once: true });
    colours ??= readPalette();
    return colours;
}

function forget() {
    colours = null;
}

function readPalette() {
    const root = getComputedStyle(document.documentElement);
    const probe = h("span", { class: "probe" });
    document.body.append(probe);
    const style = getComputedStyle(probe);
    const colour = (name) => {
        probe.style.setProperty("color", `var(--${name})`);
        return style.color;
    };
    const found = {
        text: colour("text"),
        soft: colour("text-soft"),
        line: colour("line"),
        strong: colour("line-strong"),
        surface: colour("surface"),
        raised: colour("raised"),
        sunken: colour("sunken"),
        accent: colour("accent"),
        good: colour("good"),
        bad: colour("bad"),
        warn: colour("warn"),
        wait: colour("wait"),
        run: colour("run"),
        series: [1, 2, 3, 4, 5, 6, 7, 8].map((i) => colour(`series-${i}`)),
        sans: root.getPropertyValue("--sans").trim(),
    };
    probe.remove();
    return found;
}
