// Elements from data. Text is always inserted as text, never as markup, so a hostile name stays a name.

const SVG = "http://www.w3.org/2000/svg";

function setAttribute(el, name, value) {
    if (value === null || value === undefined || value === false) return;
    if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
    else if (name === "style")
        // through the object model: the content policy forbids style attributes
        for (const [k, v] of Object.entries(value)) el.style.setProperty(k, v);
    else if (name === "value" || name === "checked" || name === "selected") el[name] = value;
    else el.setAttribute(name, value === true ? "" : value);
}

function append(el, child) {
    if (child === null || child === undefined || child === false) return;
    if (Array.isArray(child)) child.forEach((c) => append(el, c));
    else el.append(child instanceof Node ? child : String(child));
}

function make(el, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) setAttribute(el, name, value);
    children.forEach((c) => append(el, c));
    return el;
}

/** h("a", {href, class, onclick}, "text", node, [nodes]) */
export function h(tag, attributes, ...children) {
    return make(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes, ...children) {
    return make(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace what EL holds. */
export function fill(el, ...children) {
    el.replaceChildren();
    children.forEach((c) => append(el, c));
    return el;
}

/** Change the text of EL only if it differs: a live page should not make a screen reader repeat itself. */
export function setText(el, text) {
    if (el.textContent !== text) el.textContent = text;
}

/** Focus the page where what had the focus is gone: the next Tab continues from there, not from the top. */
export function keepFocus() {
    if (document.activeElement && document.activeElement !== document.body) return;
    document.getElementById("main")?.focus({ preventScroll: true });
}

/** Run FN with BUTTON disabled. Where that took the focus from it, it has it again afterwards. */
export async function whileBusy(button, fn) {
    const focused = document.activeElement === button;
    button.disabled = true;
    try {
        await fn();
    } finally {
        button.disabled = false;
        if (focused && button.isConnected && document.activeElement === document.body)
            button.focus({ preventScroll: true });
    }
}

let lastId = 0;

/** An id that no other element has. */
export function uniqueId(stem) {
    lastId += 1;
    return `${stem}-${lastId}`;
}

/** Call FN once per frame however often the result is called; in a hidden tab, ten times a second. */
export function oncePerFrame(fn) {
    let waiting = false;
    const run = () => {
        waiting = false;
        fn();
    };
    return () => {
        if (waiting) return;
        waiting = true;
        if (document.hidden) setTimeout(run, 100);
        else requestAnimationFrame(run);
    };
}

/** Call FN once the answer to the present click has been painted: what takes long must not hold it up. */
export function afterPaint(fn) {
    if (document.hidden) setTimeout(fn);
    else requestAnimationFrame(() => setTimeout(fn));
}

/** Call FN at most every MS milliseconds, the last call never lost. */
export function atMostEvery(ms, fn) {
    let last = -Infinity;
    let timer = 0;
    const run = () => {
        timer = 0;
        last = performance.now();
        fn();
    };
    return () => {
        if (!timer) timer = setTimeout(run, Math.max(0, last + ms - performance.now()));
    };
}

let silent = 0;

/** Say something for a moment, to everyone: a line at the foot of the window, read aloud where somebody listens. */
export function announce(text) {
    const place = document.getElementById("announce");
    if (!place) return;
    clearTimeout(silent);
    place.textContent = text;
    silent = setTimeout(() => (place.textContent = ""), 4000);
}
