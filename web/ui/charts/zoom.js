// Zoom along the x axis of a plot: control and wheel, two fingers, a drag, or the slider below. One finger scrolls the
// page.

import { h } from "../lib/dom.js";

const WHEEL = 0.002; // of a zoom step, by pixels of the wheel
const LINE_PIXELS = 16; // that a wheel counts in lines moves
const SLIDER_STEPS = 1000;

/** The ends [from, to] inside FULL; null where they are all of it. */
export function clamped([from, to], full) {
    const size = Math.min(to - from, full[1] - full[0]);
    if (size >= (full[1] - full[0]) * 0.999) return null;
    const start = Math.min(Math.max(from, full[0]), full[1] - size);
    return [start, start + size];
}

/** DOMAIN shrunk by FACTOR around the value at ANCHOR. */
export const around = ([from, to], anchor, factor) => [
    anchor - (anchor - from) * factor,
    anchor + (to - anchor) * factor,
];

/** DOMAIN changed so that what was under two fingers, at the shares BEFORE of its width, is at the shares AFTER. */
export function pinched(domain, before, after) {
    const size = domain[1] - domain[0];
    const value = (share) => domain[0] + share * size;
    const [low, high] = before.map(value);
    const spread = after[1] - after[0];
    if (!spread) return domain;
    const scale = (high - low) / spread;
    const start = low - after[0] * scale;
    return [start, start + scale];
}

/**
 * Zoom by gestures on HOLDER. FRAME() gives the plot's frame (plot.js), or null where it has no zoom; CHANGE(ends) is
 * told of what the reader asks for, null for all. End it by SIGNAL.
 */
export function zoomGestures(holder, { frame, change, signal }) {
    const share = (event) => {
        const { left, width } = frame();
        return (event.clientX - holder.getBoundingClientRect().left - left) / width;
    };
    const set = (domain) => change(clamped(domain, frame().x.full));
    const listen = (type, fn, passive = true) =>
        holder.addEventListener(type, (event) => frame() && fn(event), { signal, passive });
    const wheel = (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        const { domain } = frame().x;
        const pixels = event.deltaY * (event.deltaMode ? LINE_PIXELS : 1);
        const anchor = domain[0] + share(event) * (domain[1] - domain[0]);
        set(around(domain, anchor, Math.exp(pixels * WHEEL)));
    };
    listen("wheel", wheel, false);
    dragGestures({ listen, share, set, shown: () => frame().x });
    pinchGestures({ listen, share, set, shown: () => frame().x });
}

/** A drag by the mouse moves what is zoomed. */
function dragGestures({ listen, share, set, shown }) {
    let held = null; // {domain, at} at its beginning
    const release = () => {
        held = null;
    };
    listen("pointerdown", (event) => {
        const { domain, full } = shown();
        if (event.pointerType === "mouse" && event.button === 0 && domain !== full)
            held = { domain, at: share(event) };
    });
    listen("pointermove", (event) => {
        if (!held) return;
        const { domain, at } = held;
        const moved = (at - share(event)) * (domain[1] - domain[0]);
        if (moved) set([domain[0] + moved, domain[1] + moved]);
    });
    for (const type of ["pointerup", "pointerleave"]) listen(type, release);
}

/** Two fingers zoom and move. */
function pinchGestures({ listen, share, set, shown }) {
    let held = null; // {domain, places} at its beginning
    const release = () => {
        held = null;
    };
    const places = ({ touches }) => [...touches].map(share).sort((one, other) => one - other);
    listen("touchstart", (event) => {
        held = event.touches.length === 2 ? { domain: shown().domain, places: places(event) } : null;
    });
    const move = (event) => {
        if (!held || event.touches.length !== 2) return;
        event.preventDefault();
        set(pinched(held.domain, held.places, places(event)));
    };
    listen("touchmove", move, false);
    for (const type of ["touchend", "touchcancel"]) listen(type, release);
}

/** Two ends to drag, or to move by the arrow keys: {element, show(frame, format)}. CHANGE(ends) as above. */
export function zoomSlider(title, change) {
    let full = [0, 1];
    let say = String;
    const value = (input) => full[0] + (Number(input.value) / SLIDER_STEPS) * (full[1] - full[0]);
    const end = (name) =>
        h("input", {
            type: "range",
            min: 0,
            max: SLIDER_STEPS,
            "aria-label": `${title}, ${name}`,
            oninput: moved,
        });
    const [from, to] = [end("from"), end("to")];
    const texts = [h("span"), h("span")];
    const element = h("div", { class: "zoom-slider" }, texts[0], h("div", { class: "zoom-track" }, from, to), texts[1]);

    function label() {
        [from, to].forEach((input, i) => {
            const text = say(value(input));
            input.setAttribute("aria-valuetext", text);
            texts[i].textContent = text;
        });
    }
    function moved() {
        const gap = SLIDER_STEPS / 100;
        if (this === from) from.value = Math.min(Number(from.value), Number(to.value) - gap);
        else to.value = Math.max(Number(to.value), Number(from.value) + gap);
        label();
        change(clamped([value(from), value(to)], full));
    }
    return {
        element,
        show({ left, x }, format) {
            full = x.full;
            say = format;
            const step = (at) => Math.round(((at - full[0]) / (full[1] - full[0])) * SLIDER_STEPS);
            if (document.activeElement !== from) from.value = step(x.domain[0]);
            if (document.activeElement !== to) to.value = step(x.domain[1]);
            element.style.setProperty("left", `${left}px`);
            label();
        },
    };
}
