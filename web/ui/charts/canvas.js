// A plot on a canvas by Vega: drawn anew for new data, in one step, with tooltips, clicks, legend and zoom.

import { oncePerFrame, h } from "../lib/dom.js";
import { rowAt } from "./marks.js";
import { parallelDrawing } from "./parallel.js";
import { drawingOf } from "./plot.js";
import { palette, vegaConfig } from "./theme.js";
import { zoomGestures, zoomSlider } from "./zoom.js";

const TIP_DISTANCE = 14; // pixels from the pointer

export class ChartCanvas {
    #holder;
    #vega;
    #onClick;
    #view = null;
    #plot = null;
    #frame = null;
    #zoom = null; // the ends that the reader asked for
    #hidden = new Set(); // names of series that the reader has hidden
    #tip = h("div", { class: "chart-tip", hidden: true });
    #slider = null;
    #end = new AbortController();
    #latest = 0; // number of the latest drawing that was begun
    #redraw = oncePerFrame(() => this.#plot && !this.#end.signal.aborted && this.#draw());

    /** On HOLDER, an element, by the library VEGA; ON_CLICK(row) is told which row was clicked. */
    constructor(holder, vega, onClick) {
        this.#holder = holder;
        this.#vega = vega;
        this.#onClick = onClick;
        const { signal } = this.#end;
        holder.addEventListener("pointerleave", () => this.#hideTip(), { signal });
        zoomGestures(holder, {
            signal,
            frame: () => (this.#plot?.zoom ? this.#frame : null),
            change: (ends) => this.#setZoom(ends),
        });
    }

    get holder() {
        return this.#holder;
    }

    /** Aborted when the canvas ends. */
    get signal() {
        return this.#end.signal;
    }

    /** The Vega view; null before the first drawing. */
    get view() {
        return this.#view;
    }

    /** Where things lie on the canvas, in pixels (plot.js); null before the first drawing. */
    get frame() {
        return this.#frame;
    }

    /** Draw PLOT in the holder's present size, with what the reader zoomed into and hid. */
    draw(plot) {
        this.#plot = plot;
        return this.#draw();
    }

    async #draw() {
        const plot = this.#plot;
        const { clientWidth: width, clientHeight: height } = this.#holder;
        this.#latest += 1;
        const number = this.#latest;
        const colors = palette();
        const how = {
            width,
            height,
            palette: colors,
            hidden: this.#hidden,
            zoom: this.#zoom,
            clickable: Boolean(this.#onClick),
        };
        const drawing = plot.type === "parallel" ? parallelDrawing(plot, how) : drawingOf(plot, how);
        const { View, parse, expressionInterpreter } = this.#vega;
        const view = new View(parse(drawing.spec, vegaConfig(colors), { ast: true }), {
            expr: expressionInterpreter,
            renderer: "canvas",
        });
        const place = h("div");
        view.initialize(place).hover();
        // The holder says what the chart is: Vega's own role and label would say it again.
        for (const name of ["role", "aria-roledescription", "aria-label"]) place.removeAttribute(name);
        await view.runAsync();
        if (number !== this.#latest || this.#end.signal.aborted) {
            view.finalize();
            return;
        }
        this.#listen(view);
        this.#holder.replaceChildren(place, this.#tip);
        this.#view?.finalize();
        this.#view = view;
        this.#frame = drawing.frame;
        this.#showSlider();
    }

    #listen(view) {
        view.addEventListener("mousemove", (event, item) => this.#point(event, item));
        view.addEventListener("mouseout", () => this.#hideTip());
        view.addEventListener("click", (event, item) => {
            const name = item?.datum?.legend;
            if (name) this.#toggle(name);
            else if (item) this.#onClick?.(this.#row(event, item) ?? {});
        });
    }

    /** The row under the pointer, where it is on one. */
    #row(event, item) {
        const datum = item?.mark?.marktype !== "group" && item?.datum;
        if (!datum || datum.legend || datum.index !== undefined || !this.#frame?.x) return null;
        const box = this.#holder.getBoundingClientRect();
        const { left, top } = this.#frame;
        return rowAt(datum, [event.clientX - box.left - left, event.clientY - box.top - top], this.#frame);
    }

    #toggle(name) {
        if (!this.#hidden.delete(name)) this.#hidden.add(name);
        this.#draw();
    }

    #point(event, item) {
        const { bands, tip } = this.#plot;
        const band = item?.datum?.index;
        const row = this.#row(event, item);
        let node = null;
        if (bands && band !== undefined) node = bands.tip(band, (name) => !this.#hidden.has(name));
        else if (row && tip) node = tip(row, item.mark.name?.replace(/#\d+$/, ""));
        if (!node) this.#hideTip();
        else this.#showTip(node, event);
    }

    #showTip(node, event) {
        const box = this.#holder.getBoundingClientRect();
        this.#tip.replaceChildren(node);
        this.#tip.hidden = false;
        const { offsetWidth: width, offsetHeight: height } = this.#tip;
        const x = event.clientX - box.left;
        const y = event.clientY - box.top;
        const left = x + TIP_DISTANCE + width < box.width ? x + TIP_DISTANCE : x - TIP_DISTANCE - width;
        const top = Math.min(y + TIP_DISTANCE, box.height - height);
        this.#tip.style.setProperty("left", `${Math.max(0, left)}px`);
        this.#tip.style.setProperty("top", `${Math.max(0, top)}px`);
    }

    #hideTip() {
        this.#tip.hidden = true;
    }

    #setZoom(ends) {
        this.#zoom = ends;
        this.#hideTip();
        this.#redraw();
    }

    #showSlider() {
        const { zoom, x, zoomText = String } = this.#plot;
        if (zoom !== "slider") return;
        this.#slider ??= zoomSlider(x.title, (ends) => this.#setZoom(ends));
        if (!this.#slider.element.isConnected) this.#holder.after(this.#slider.element);
        this.#slider.show(this.#frame, zoomText);
    }

    /** The picture as a PNG's data URL, twice as fine, on the color of the surface. */
    async png() {
        const drawn = await this.#view.toCanvas(2);
        const picture = h("canvas", { width: drawn.width, height: drawn.height });
        const context = picture.getContext("2d");
        context.fillStyle = palette().surface;
        context.fillRect(0, 0, picture.width, picture.height);
        context.drawImage(drawn, 0, 0);
        return picture.toDataURL("image/png");
    }

    /** End it: its listeners and its view. */
    end() {
        this.#end.abort();
        this.#view?.finalize();
        this.#view = null;
        this.#slider?.element.remove();
        this.#holder.replaceChildren();
    }
}
