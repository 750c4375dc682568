// A chart with its table behind it, and both as files. The chart library is fetched when the first chart is due. A dashboard
// that was built without it (web/ui/build-vendor.sh) has a module in its place that exports no init: then panels show tables.

import { afterPaint, atMostEvery, fill, h, setText, uniqueId } from "../lib/dom.js";
import { saveCsv, saveDataUrl } from "../lib/download.js";
import { explain } from "../lib/api.js";
import { count, significant } from "../lib/format.js";
import { spoken } from "../lib/words.js";
import { simulatedBadge } from "../parts/parts.js";

const TABLE_ROWS = 500;
const REDRAW_MS = 250;

let library = null;

// One that failed is asked for again: the service may have been away for a moment.
function loadLibrary() {
    library ??= import("../vendor/echarts.min.js").catch((error) => {
        library = null;
        throw error;
    });
    return library;
}

let without = false; // this build has no chart library

/** From now on every panel shows its table; the frame says why, once. */
function goWithout() {
    if (without) return;
    without = true;
    document.dispatchEvent(new Event("nocharts"));
}

let colours = null; // of the present theme

/** The colours of the present theme, for a canvas, which knows no variables and not the system's names of colours. */
export function palette() {
    if (!colours) document.addEventListener("themechange", () => (colours = null), { once: true });
    colours ??= readPalette();
    return colours;
}

function readPalette() {
    const root = getComputedStyle(document.documentElement);
    const probe = h("span", { class: "probe" });
    document.body.append(probe);
    const style = getComputedStyle(probe);
    const v = (name) => {
        probe.style.setProperty("color", `var(--${name})`);
        return style.color;
    };
    const found = {
        text: v("text"),
        soft: v("text-soft"),
        line: v("line"),
        strong: v("line-strong"),
        surface: v("surface"),
        raised: v("raised"),
        sunken: v("sunken"),
        accent: v("accent"),
        good: v("good"),
        bad: v("bad"),
        warn: v("warn"),
        wait: v("wait"),
        run: v("run"),
        series: [1, 2, 3, 4, 5, 6, 7, 8].map((i) => v(`series-${i}`)),
        sans: root.getPropertyValue("--sans").trim(),
    };
    probe.remove();
    return found;
}

/** Is WIDTH, the chart's in pixels, that of a phone? Then names and scales give way to the data. */
export const narrow = (width) => width < 480;

/** Zoom in a chart: control and wheel, or two fingers. One finger goes on scrolling the page. */
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
export function axes(p, { x, y, grid } = {}) {
    const axis = (a, side) => ({
        type: "value",
        nameLocation: "middle",
        nameGap: side === "y" ? 56 : 28,
        nameTextStyle: { color: p.soft, fontSize: 12 },
        axisLine: { lineStyle: { color: p.strong } },
        axisTick: { lineStyle: { color: p.strong } },
        axisLabel: { color: p.soft, hideOverlap: true },
        splitLine: { show: side === "y", lineStyle: { color: p.line } },
        ...a,
    });
    return {
        animation: false,
        textStyle: { fontFamily: p.sans },
        grid: { left: 74, right: 20, top: 34, bottom: 46, ...grid },
        xAxis: axis(x, "x"),
        yAxis: axis(y, "y"),
    };
}

export function legend(p, more) {
    return {
        top: 0,
        left: 8,
        right: 8,
        type: "scroll",
        itemWidth: 16,
        itemHeight: 9,
        itemGap: 14,
        textStyle: { color: p.soft, fontSize: 12 },
        pageTextStyle: { color: p.soft },
        pageIconColor: p.soft,
        pageIconInactiveColor: p.line,
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
            list.filter((p) => p).map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]),
        ),
    );
}

export function tooltip(p, more) {
    return {
        confine: true,
        backgroundColor: p.raised,
        borderColor: p.strong,
        borderWidth: 1,
        padding: [6, 10],
        textStyle: { color: p.text, fontSize: 12 },
        transitionDuration: 0,
        ...more,
    };
}

function shortened(x, digits) {
    const a = Math.abs(x);
    for (const [size, letter] of [
        [1e12, "T"],
        [1e9, "G"],
        [1e6, "M"],
        [1e3, "k"],
    ])
        if (a >= size) return `${Number((x / size).toPrecision(digits))}${letter}`;
    return String(Number(x.toPrecision(digits)));
}

/** A short label of an axis: 41,000 as "41k". */
export const short = (x) => shortened(x, 4);
/** The same for many cells side by side. */
export const brief = (x) => shortened(x, 3);

/** A cell of a table; WHOLE says that its column has whole numbers only, such as a trial's. */
function cell(value, whole) {
    if (typeof value !== "number") return value ?? "–";
    return whole ? count(value) : significant(value, 4);
}

/** OPTION, of a chart, with its axes and series named as they are for simulated trials. */
function renamed(option, simulated) {
    if (!option || !simulated) return option;
    const named = (list) =>
        Array.isArray(list) ? list.map(named) : list && { ...list, name: spoken(list.name, true) };
    const parts = ["xAxis", "yAxis", "parallelAxis", "series"].filter((key) => option[key]);
    return { ...option, ...Object.fromEntries(parts.map((key) => [key, named(option[key])])) };
}

/**
 * A panel with a chart. Where ctx.simulated is set, so are the trials, and all that the panel shows says so. SPEC:
 *   title, note, name   heading, explanation, stem of file names
 *   option(data, palette, width)  the chart's options, or null when there is nothing to draw
 *   table(data)         {columns: [names with units], rows: [[cells]]}
 *   summary(data)       one sentence for those who cannot see the chart
 *   none                what to say when there is nothing to draw, or none(data) that says it
 *   minWidth(data)      pixels that the chart needs; on a narrower screen it is scrolled
 *   form(data)          text that differs where the chart must be made anew instead of changed
 *   className, size     "w6", "tall"
 *   onClick(params), ready(chart)   events of the chart
 * ctx is the page's context: the chart dies with the page. Returns {element, set(data)}.
 */
export function chartPanel(ctx, written) {
    const say = (text) => spoken(text, ctx.simulated);
    const spec = {
        ...written,
        title: say(written.title),
        note: say(written.note),
        summary: (data) => say(written.summary?.(data) ?? ""),
        option: (...given) => renamed(written.option(...given), ctx.simulated),
        table(data) {
            const t = written.table(data);
            return { ...t, columns: t.columns.map(say) };
        },
    };
    const id = uniqueId("chart");
    const canvas = h("div", { class: "chart-canvas", role: "img", "aria-label": spec.title });
    canvas.style.setProperty("height", "100%");
    const nothing = h("div", { class: "chart-empty", hidden: true });
    const place = h(
        "div",
        {
            class: `chart ${spec.size ?? ""} ${spec.minWidth ? "scroll" : ""}`,
            tabindex: spec.minWidth && "0",
            role: spec.minWidth && "region",
            "aria-label": spec.minWidth && `${spec.title}, the chart`,
        },
        canvas,
        nothing,
    );
    const table = h("div", {
        class: "chart-table",
        hidden: true,
        tabindex: "0",
        role: "region",
        "aria-label": `${spec.title}, as a table`,
    });
    let chart = null;
    let data = null;
    let seen = false;
    let opening = false;
    let failed = false; // the library did not come; somebody must ask for it again
    let ratio = 0; // device pixels a pixel, when the chart was made
    let form = "";
    let drawn = null; // the size, {width, height}, in which the chart shows its data

    const tableButton = h(
        "button",
        { type: "button", class: "quiet", "aria-pressed": "false", onclick: toggleTable },
        "Table",
    );
    const csvButton = h(
        "button",
        {
            type: "button",
            class: "quiet",
            onclick: () => {
                const t = spec.table(data);
                saveCsv(t.columns, t.rows, spec.name);
            },
        },
        "CSV",
    );
    const pngButton = h(
        "button",
        {
            type: "button",
            class: "quiet",
            onclick: () =>
                chart &&
                saveDataUrl(
                    chart.getDataURL({
                        type: "png",
                        pixelRatio: 2,
                        backgroundColor: palette().surface,
                    }),
                    `${spec.name}.png`,
                ),
        },
        "PNG",
    );
    for (const b of [tableButton, csvButton, pngButton]) b.setAttribute("aria-describedby", id);
    csvButton.disabled = pngButton.disabled = true; // until there is something to save

    const note = h("p", { class: "panel-note" }, spec.note ?? "");
    const element = h(
        "section",
        { class: `panel ${spec.className ?? ""}`, "aria-labelledby": id },
        h(
            "div",
            { class: "panel-head" },
            h("h2", { id }, spec.title),
            simulatedBadge(ctx),
            h("span", { class: "grow" }),
            spec.tools ?? null,
            h("span", { class: "tools" }, tableButton, csvButton, pngButton),
        ),
        spec.note && note,
        place,
        table,
    );

    function toggleTable() {
        table.hidden = !table.hidden;
        tableButton.setAttribute("aria-pressed", String(!table.hidden));
        afterPaint(drawTable);
    }

    function drawTable() {
        if (table.hidden || data === null) return;
        const t = spec.table(data);
        const numeric = t.columns.map((_, i) => t.rows.some((r) => typeof r[i] === "number"));
        const whole = t.columns.map((_, i) =>
            t.rows.every((r) => typeof r[i] !== "number" || Number.isInteger(r[i])),
        );
        const className = (i) => (numeric[i] ? "num" : null);
        fill(
            table,
            h(
                "table",
                {},
                without && h("caption", {}, spec.summary?.(data) || spec.title),
                h(
                    "thead",
                    {},
                    h(
                        "tr",
                        {},
                        t.columns.map((c, i) => h("th", { scope: "col", class: className(i) }, c)),
                    ),
                ),
                h(
                    "tbody",
                    {},
                    t.rows.slice(0, TABLE_ROWS).map((r) =>
                        h(
                            "tr",
                            {},
                            r.map((c, i) => h("td", { class: className(i) }, cell(c, whole[i]))),
                        ),
                    ),
                ),
            ),
            t.rows.length > TABLE_ROWS &&
                h(
                    "p",
                    { class: "panel-note" },
                    `The first ${TABLE_ROWS} of ${t.rows.length} rows; the CSV file has all.`,
                ),
        );
    }

    async function open() {
        if (chart || opening) return;
        opening = true;
        let echarts = null;
        let trouble = "";
        try {
            echarts = await loadLibrary();
        } catch (error) {
            trouble = explain(error);
        }
        opening = false;
        if (ctx.signal.aborted || chart) return;
        if (echarts && !echarts.init) {
            goWithout();
            draw();
            return;
        }
        failed = echarts === null;
        nothing.hidden = !failed;
        if (failed) {
            fill(
                nothing,
                h("p", {}, `The chart could not be loaded. ${trouble}`),
                h("button", { type: "button", onclick: open }, "Try again"),
            );
            return;
        }
        ratio = devicePixelRatio;
        chart = echarts.init(canvas, null, { renderer: "canvas" });
        if (spec.onClick) chart.on("click", spec.onClick);
        spec.ready?.(chart);
        draw();
    }

    /** Does the chart show its data already, in its present size? A view that comes back is as it was left. */
    function upToDate() {
        return (
            drawn !== null &&
            drawn.width === place.clientWidth &&
            drawn.height === place.clientHeight &&
            ratio === devicePixelRatio
        );
    }

    function sayIfNothing(there) {
        nothing.hidden = there;
        if (!there)
            setText(
                nothing,
                say(typeof spec.none === "function" ? spec.none(data) : spec.none) ??
                    "Nothing to show yet.",
            );
    }

    /** The table in place of the chart, wherever the chart would have had something to draw. */
    function drawAsTable() {
        const there = spec.option(data, palette(), element.clientWidth) !== null;
        tableButton.hidden = pngButton.hidden = canvas.hidden = true;
        csvButton.disabled = !there;
        place.hidden = there;
        table.hidden = !there;
        sayIfNothing(there);
        drawTable();
    }

    function draw() {
        if (data === null || !seen || upToDate()) return;
        if (without) {
            drawAsTable();
            return;
        }
        drawTable();
        if (failed) return;
        const option = spec.option(data, palette(), place.clientWidth);
        sayIfNothing(option !== null);
        canvas.hidden = option === null;
        pngButton.disabled = option === null;
        csvButton.disabled = option === null;
        if (option === null) return;
        if (spec.minWidth) canvas.style.setProperty("min-width", `${spec.minWidth(data)}px`);
        canvas.setAttribute("aria-label", `${spec.title}. ${spec.summary(data)}`);
        // A zoomed page has other pixels: a chart keeps those that it was made with.
        if (chart && ratio !== devicePixelRatio) discard();
        if (!chart) {
            open();
            return;
        }
        if (chart.getWidth() !== canvas.clientWidth || chart.getHeight() !== canvas.clientHeight)
            chart.resize();
        const next = spec.form?.(data) ?? "";
        if (next !== form) chart.clear();
        form = next;
        chart.setOption(option, {
            replaceMerge: ["series", "visualMap", "parallelAxis"],
            lazyUpdate: false,
        });
        drawn = { width: place.clientWidth, height: place.clientHeight };
    }

    function discard() {
        chart?.dispose();
        chart = null;
        drawn = null;
    }

    const drawSoon = atMostEvery(REDRAW_MS, draw);
    const sight = new IntersectionObserver(
        (entries) => {
            seen = entries.at(-1).isIntersecting;
            if (seen) drawSoon();
        },
        { rootMargin: "200px" },
    );
    // In a view that was put aside it has no size: drawing it would hold up the view that takes its place.
    const size = new ResizeObserver(() => seen && place.clientWidth > 0 && drawSoon());
    const onTheme = () => {
        discard();
        drawSoon();
    };
    sight.observe(element); // not its place, which a table may take
    size.observe(place);
    document.addEventListener("themechange", onTheme);
    ctx.onLeave(() => {
        sight.disconnect();
        size.disconnect();
        document.removeEventListener("themechange", onTheme);
        discard();
        data = null;
    });

    return {
        element,
        set(next) {
            data = next;
            drawn = null;
            drawSoon();
        },
        setNote(text) {
            note.textContent = say(text);
        },
        chart: () => chart,
    };
}
