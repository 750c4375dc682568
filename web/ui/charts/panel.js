// A chart with its table behind it, and both as files.

import { afterPaint, atMostEvery, fill, h, oncePerFrame, setText, uniqueId } from "../lib/dom.js";
import { saveCsv, saveDataUrl } from "../lib/download.js";
import { explain } from "../lib/api.js";
import { spoken } from "../lib/words.js";
import { button, simulatedBadge } from "../parts/parts.js";
import { ChartCanvas } from "./canvas.js";
import { drawDataTable } from "./data-table.js";
import { lacksLibrary, loadLibrary } from "./library.js";
import { palette } from "./theme.js";

const REDRAW_MS = 250;

/** PLOT with its axes and series named as they are for simulated trials. */
function renamed(plot, simulated) {
    if (!plot || !simulated) return plot;
    const titled = (axis) => axis && { ...axis, title: spoken(axis.title, true) };
    const named = (list) => list?.map((one) => ({ ...one, name: spoken(one.name, true) }));
    const { x, y, series, axes, ramp } = plot;
    return {
        ...plot,
        x: titled(x),
        y: titled(y),
        series: named(series),
        axes: named(axes),
        ramp: ramp?.title ? titled(ramp) : ramp,
    };
}

/** WRITTEN, the spec of a chart for real trials, as it reads for SIMULATED ones. */
function worded(written, simulated) {
    const say = (text) => spoken(text, simulated);
    return {
        ...written,
        title: say(written.title),
        note: say(written.note),
        summary: (data) => say(written.summary?.(data) ?? ""),
        plot: (...given) => renamed(written.plot(...given), simulated),
        table(data) {
            const { columns, rows } = written.table(data);
            return { columns: columns.map(say), rows };
        },
        none: (data) =>
            say(typeof written.none === "function" ? written.none(data) : written.none) ??
            "Nothing to show yet.",
    };
}

/** The elements of a chart's panel: {element, place, canvas, nothing, table, and the buttons}. */
function panelView(spec, badge) {
    const id = uniqueId("chart");
    const tool = (text, more) =>
        h("button", { type: "button", class: "quiet", "aria-describedby": id, ...more }, text);
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
    const tableButton = tool("Table", { "aria-pressed": "false" });
    const csvButton = tool("CSV", { disabled: true }); // until there is something to save
    const pngButton = tool("PNG", { disabled: true });
    const head = h(
        "div",
        { class: "panel-head" },
        h("h2", { id }, spec.title),
        badge,
        h("span", { class: "grow" }),
        spec.tools ?? null,
        h("span", { class: "tools" }, tableButton, csvButton, pngButton),
    );
    const element = h(
        "section",
        { class: `panel ${spec.className ?? ""}`, "aria-labelledby": id },
        head,
        spec.note && h("p", { class: "panel-note" }, spec.note),
        place,
        table,
    );
    return { element, place, canvas, nothing, table, tableButton, csvButton, pngButton };
}

class ChartPanel {
    #ctx;
    #spec;
    #view;
    #data = null;
    #chart = null;
    #drawn = null; // {width, height, pixelRatio} in which the chart shows its data
    #seen = false;
    #opening = false;
    #failed = false; // the library did not come; somebody must ask for it again
    #drawSoon = atMostEvery(REDRAW_MS, () => this.#draw());
    #drawNext = oncePerFrame(() => this.#draw());

    constructor(ctx, written) {
        this.#ctx = ctx;
        this.#spec = worded(written, ctx.simulated);
        this.#view = panelView(this.#spec, simulatedBadge(ctx));
        this.#view.tableButton.addEventListener("click", () => this.#toggleTable());
        this.#view.csvButton.addEventListener("click", () => this.#saveCsv());
        this.#view.pngButton.addEventListener("click", () => this.#savePng());
        this.#watch();
    }

    get element() {
        return this.#view.element;
    }

    set(data) {
        this.#data = data;
        this.#drawn = null;
        this.#drawSoon();
    }

    follow(data) {
        this.#data = data;
        this.#drawn = null;
        this.#drawNext();
    }

    /** Draw when the panel comes into view, changes its size, or the theme changes; end with the page. */
    #watch() {
        const { element, place } = this.#view;
        const sight = new IntersectionObserver(
            (entries) => {
                this.#seen = entries.at(-1).isIntersecting;
                if (this.#seen) this.#drawSoon();
            },
            { rootMargin: "200px" },
        );
        // In a view that was put aside it has no size: drawing it would hold up the view that takes its place.
        const size = new ResizeObserver(
            () => this.#seen && place.clientWidth > 0 && this.#drawSoon(),
        );
        const onTheme = () => {
            this.#drawn = null;
            this.#drawSoon();
        };
        sight.observe(element); // not its place, which a table may take
        size.observe(place);
        document.addEventListener("themechange", onTheme);
        this.#ctx.onLeave(() => {
            sight.disconnect();
            size.disconnect();
            document.removeEventListener("themechange", onTheme);
            this.#chart?.end();
            this.#chart = null;
            this.#data = null;
        });
    }

    #toggleTable() {
        const { table, tableButton } = this.#view;
        table.hidden = !table.hidden;
        tableButton.setAttribute("aria-pressed", String(!table.hidden));
        afterPaint(() => this.#drawTable());
    }

    #drawTable() {
        if (this.#view.table.hidden || this.#data === null) return;
        const { summary, title, table } = this.#spec;
        const caption = lacksLibrary() && (summary(this.#data) || title);
        drawDataTable(this.#view.table, table(this.#data), caption);
    }

    #saveCsv() {
        const { columns, rows } = this.#spec.table(this.#data);
        saveCsv(columns, rows, this.#spec.name);
    }

    async #savePng() {
        if (this.#chart?.view) saveDataUrl(await this.#chart.png(), `${this.#spec.name}.png`);
    }

    /** Fetch the library and make the chart. */
    async #open() {
        if (this.#chart || this.#opening) return;
        this.#opening = true;
        let vega = null;
        let trouble = null;
        try {
            vega = await loadLibrary();
        } catch (error) {
            trouble = error;
        }
        this.#opening = false;
        if (this.#ctx.signal.aborted || this.#chart) return;
        this.#failed = trouble !== null;
        if (trouble) this.#showTrouble(trouble);
        else if (vega) this.#make(vega);
        if (!trouble) this.#draw();
    }

    #make(vega) {
        this.#view.nothing.hidden = true;
        this.#chart = new ChartCanvas(this.#view.canvas, vega, this.#spec.onClick);
        this.#spec.ready?.(this.#chart);
    }

    #showTrouble(error) {
        const again = button("Try again", () => this.#open());
        this.#view.nothing.hidden = false;
        fill(
            this.#view.nothing,
            h("p", {}, `The chart could not be loaded. ${explain(error)}`),
            again,
        );
    }

    /** Does the chart show its data already, in its present size? A view that comes back is as it was left. */
    #upToDate() {
        const { clientWidth, clientHeight } = this.#view.place;
        return (
            this.#drawn !== null &&
            this.#drawn.width === clientWidth &&
            this.#drawn.height === clientHeight &&
            this.#drawn.pixelRatio === devicePixelRatio // of a zoomed page there are others
        );
    }

    #sayIfNothing(there) {
        this.#view.nothing.hidden = there;
        if (!there) setText(this.#view.nothing, this.#spec.none(this.#data));
    }

    /** The table in place of the chart, wherever the chart would have had something to draw. */
    #drawAsTable() {
        const { element, tableButton, pngButton, csvButton, canvas, place, table } = this.#view;
        const there = this.#spec.plot(this.#data, palette(), element.clientWidth) !== null;
        for (const unused of [tableButton, pngButton, canvas]) unused.hidden = true;
        csvButton.disabled = !there;
        place.hidden = there;
        table.hidden = !there;
        this.#sayIfNothing(there);
        this.#drawTable();
    }

    #draw() {
        if (this.#data === null || !this.#seen || this.#upToDate()) return;
        if (lacksLibrary()) {
            this.#drawAsTable();
            return;
        }
        this.#drawTable();
        if (this.#failed) return;
        const { canvas, place, pngButton, csvButton } = this.#view;
        const plot = this.#spec.plot(this.#data, palette(), place.clientWidth);
        const nothing = plot === null;
        this.#sayIfNothing(!nothing);
        for (const saver of [pngButton, csvButton]) saver.disabled = nothing;
        canvas.hidden = nothing;
        if (nothing) return;
        this.#describe();
        if (this.#chart) this.#drawChart(plot);
        else this.#open();
    }

    #describe() {
        const { canvas } = this.#view;
        const { minWidth, title, summary } = this.#spec;
        if (minWidth) canvas.style.setProperty("min-width", `${minWidth(this.#data)}px`);
        canvas.setAttribute("aria-label", `${title}. ${summary(this.#data)}`);
    }

    #drawChart(plot) {
        const { clientWidth: width, clientHeight: height } = this.#view.place;
        this.#chart.draw(plot);
        this.#drawn = { width, height, pixelRatio: devicePixelRatio };
    }
}

/**
 * A panel with a chart. Where ctx.simulated is set, so are the trials, and all that the panel shows says so. SPEC:
 *   title, note, name   heading, explanation, stem of file names
 *   plot(data, palette, width)  what to draw (plot.js), or null when there is nothing
 *   table(data)         {columns: [names with units], rows: [[cells]]}
 *   summary(data)       one sentence for those who cannot see the chart
 *   none                what to say when there is nothing to draw, or none(data) that says it
 *   minWidth(data)      pixels that the chart needs; on a narrower screen it is scrolled
 *   className, size     "w6", "tall"
 *   onClick(row), ready(canvas)     a row of the plot was clicked; the chart's canvas (canvas.js) was made
 * ctx is the page's context: the chart dies with the page. Returns {element, set(data), follow(data)}; follow() draws
 * in the next frame, as a drag needs it.
 */
export function chartPanel(ctx, spec) {
    return new ChartPanel(ctx, spec);
}
