// What charts have in common: axes, legend, tooltip, zoom, short numbers.

import { h } from "../lib/dom.js";

/** Is WIDTH, the chart's in pixels, that of a phone? Then names and scales give way to the data. */
export const narrow = (width) => width < 480;

/** Zoom in a chart: control and wheel, or two fingers. One finger scrolls the page. */
export function insideZoom(more) {
    return {
        type: "inside",
        filterMode: "none",
        zoomOnMouseWheel: "ctrl",
        preventDefaultMouseMove: !globalThis.matchMedia?.("(pointer: coarse)").matches,
        ...more,
    };
}

/** What every chart with axes has in common. */
export function axes(palette, { x, y, grid } = {}) {
    const axis = (more, side) => ({
        type: "value",
        nameLocation: "middle",
        nameGap: side === "y" ? 56 : 28,
        nameTextStyle: { color: palette.soft, fontSize: 12 },
        axisLine: { lineStyle: { color: palette.strong } },
        axisTick: { lineStyle: { color: palette.strong } },
        axisLabel: { color: palette.soft, hideOverlap: true },
        splitLine: { show: side === "y", lineStyle: { color: palette.line } },
        ...more,
    });
    return {
        animation: false,
        textStyle: { fontFamily: palette.sans },
        grid: { left: 74, right: 20, top: 34, bottom: 46, ...grid },
        xAxis: axis(x, "x"),
        yAxis: axis(y, "y"),
    };
}

export function legend(palette, more) {
    return {
        top: 0,
        left: 8,
        right: 8,
        type: "scroll",
        itemWidth: 16,
        itemHeight: 9,
        itemGap: 14,
        textStyle: { color: palette.soft, fontSize: 12 },
        pageTextStyle: { color: palette.soft },
        pageIconColor: palette.soft,
        pageIconInactiveColor: palette.line,
        ...more,
    };
}

/** A tooltip made of nodes: LIST is [name, value] pairs. The library's own markup is never used. */
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

export function tooltip(palette, more) {
    return {
        confine: true,
        backgroundColor: palette.raised,
        borderColor: palette.strong,
        borderWidth: 1,
        padding: [6, 10],
        textStyle: { color: palette.text, fontSize: 12 },
        transitionDuration: 0,
        ...more,
    };
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
