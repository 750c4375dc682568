// Parts that every page uses: badges, tiles, notices, the states of a page, tabs.

import { explain } from "../lib/api.js";
import { afterPaint, h, keepFocus, uniqueId } from "../lib/dom.js";
import { CAMPAIGN_STATES, SIMULATED, TRIAL_STATES } from "../lib/words.js";

function badge(states, state) {
    const [sign, tone, help] = states[state] ?? ["?", "wait", ""];
    return h(
        "span",
        { class: `badge ${tone}`, title: help },
        h("span", { "aria-hidden": "true" }, sign),
        state,
    );
}

export const trialBadge = (state) => badge(TRIAL_STATES, state);
export const campaignBadge = (state) => badge(CAMPAIGN_STATES, state);

/** Shown next to the name of what is simulated, which its resource OF says; else null. */
export const simulatedBadge = (of) =>
    of?.simulated ? h("span", { class: "badge warn", title: SIMULATED[1] }, SIMULATED[0]) : null;

/** A button that runs ONCLICK. */
export const button = (text, onclick, className = null) =>
    h("button", { type: "button", class: className, onclick }, text);

/** A link that looks like a button. */
export const linkButton = (text, address, more) =>
    h("a", { class: "button", href: address, ...more }, text);

/** INPUT with its title above it and, where it has one, the place of its ERROR below. */
export const field = (title, input, error = null) =>
    h("label", { class: "field" }, h("span", {}, title), input, error);

/**
 * The way back: links and, at last, the name of the page. TRAIL is [[text, address], …], address null for a plain text.
 */
export const crumbs = (...trail) =>
    h(
        "p",
        { class: "crumbs" },
        trail.map(([text, address], i) => [
            i ? " / " : "",
            address ? h("a", { href: address }, h("bdi", {}, text)) : text,
        ]),
    );

/** A tile of the strip at the head of a page; set(value, note) changes it. */
export function tile(name, help = "") {
    const value = h("dd", {}, "–");
    const note = h("dd", { class: "note" });
    const element = h(
        "div",
        { class: "tile", title: help || null },
        h("dt", {}, name),
        value,
        note,
    );
    return {
        element,
        set(text, more = "") {
            value.replaceChildren(text);
            value.title = value.textContent;
            note.replaceChildren(more);
        },
    };
}

export function tiles(...list) {
    return h(
        "dl",
        { class: "tiles" },
        list.map((each) => each.element),
    );
}

export function panel(title, { className = "", note, tools = [] } = {}, ...body) {
    const id = uniqueId("panel");
    return h(
        "section",
        { class: `panel ${className}`, "aria-labelledby": id },
        h(
            "div",
            { class: "panel-head" },
            h("h2", { id }, title),
            h("span", { class: "grow" }),
            tools,
        ),
        note && h("p", { class: "panel-note" }, note),
        h("div", { class: "panel-body" }, body),
    );
}

export function pairs(list) {
    return h(
        "dl",
        { class: "pairs" },
        list.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    );
}

/**
 * A table of ROWS, arrays of cells. COLUMNS are [title, is a number, class]. On a narrow screen each row is a card,
 * where a cell has its column's title before it, but for a layout, which speaks for itself.
 */
export function table(label, columns, rows) {
    const classOf = ([, isNumber, name]) =>
        [isNumber && "num", name].filter(Boolean).join(" ") || null;
    const named = ([title, , name]) => (/\blayout\b/.test(name ?? "") ? null : title);
    const header = (column) => h("th", { scope: "col", class: classOf(column) }, column[0]);
    const cell = (content, i) => {
        const attributes = { class: classOf(columns[i]), "data-name": named(columns[i]) };
        return i ? h("td", attributes, content) : h("th", { scope: "row", ...attributes }, content);
    };
    return h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
        h(
            "table",
            { class: "cards" },
            h("thead", {}, h("tr", {}, columns.map(header))),
            h(
                "tbody",
                {},
                rows.map((row) => h("tr", {}, row.map(cell))),
            ),
        ),
    );
}

export function loading(what) {
    return h(
        "p",
        { class: "loading", role: "status" },
        h("span", { class: "ring spin", "aria-hidden": "true" }),
        `Loading ${what} …`,
    );
}

export function empty(title, ...body) {
    return h("div", { class: "empty" }, h("h2", {}, title), body);
}

export function notice(tone, ...body) {
    return h("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : "status" }, body);
}

/** An error in place of what could not be loaded, with a way to try again. */
export function failure(error, retry) {
    const rules = error.rules ?? [];
    const again = () => {
        retry();
        keepFocus();
    };
    return notice(
        "bad",
        h("p", {}, explain(error)),
        rules.length > 1 &&
            h(
                "ul",
                {},
                rules.map(({ rule, detail }) => h("li", {}, h("code", {}, rule), ` ${detail}`)),
            ),
        retry && h("p", {}, button("Try again", again)),
    );
}

/** Which of COUNT tabs KEY leads to from the one at HERE; undefined for other keys. */
function tabAfter(key, here, count) {
    return {
        ArrowRight: (here + 1) % count,
        ArrowLeft: (here + count - 1) % count,
        Home: 0,
        End: count - 1,
    }[key];
}

/** The button of a tab and the place below it, which PICK(key) shows. */
function tabItem(tab, pick) {
    const id = uniqueId("tab");
    const body = h("div", {
        role: "tabpanel",
        id: `${id}-body`,
        "aria-labelledby": id,
        onbeforematch: () => pick(tab.key),
    });
    const attributes = {
        type: "button",
        role: "tab",
        id,
        "aria-controls": `${id}-body`,
        "aria-selected": "false",
        tabindex: "-1",
        onclick: () => pick(tab.key),
    };
    return { ...tab, button: h("button", attributes, tab.title), body };
}

/**
 * Tabs with the arrow keys, Home and End. LIST is [{key, title, open(body)}]; open() is called when a tab is first
 * shown. ON_CHANGE(key) is told when the user picks one. Returns {element, show(key), at()}.
 */
export function tabs(label, list, onChange) {
    const opened = new Set();
    const items = list.map((tab) => tabItem(tab, pick));
    let current = null;

    function open(tab, atOnce) {
        if (opened.has(tab.key)) return;
        opened.add(tab.key);
        if (atOnce) tab.open(tab.body);
        else afterPaint(() => tab.open(tab.body));
    }

    function show(key, atOnce = false) {
        current = items.find((tab) => tab.key === key) ?? items[0];
        for (const tab of items) {
            const on = tab === current;
            tab.button.setAttribute("aria-selected", String(on));
            tab.button.tabIndex = on ? 0 : -1;
            // Not merely hidden: what stands there keeps its layout, so it is back at once, and the browser's search
            // finds it.
            tab.body.hidden = on ? false : "until-found";
        }
        open(current, atOnce);
    }

    function pick(key) {
        show(key);
        onChange(current.key);
    }

    function onKey(event) {
        const next = items[tabAfter(event.key, items.indexOf(current), items.length)];
        if (!next) return;
        pick(next.key);
        next.button.focus();
        event.preventDefault();
    }

    const strip = h(
        "div",
        { class: "tabs", role: "tablist", "aria-label": label, onkeydown: onKey },
        items.map((tab) => tab.button),
    );
    const bodies = items.map((tab) => tab.body);
    return { element: h("div", {}, strip, bodies), show, at: () => current?.key };
}

/** Layout keys as chips, those that differ from OTHER marked. */
export function layoutChips(layout, keys, help, other) {
    const difference = (key) =>
        other && other[key] !== layout[key] && ` (baseline ${other[key] ?? "–"})`;
    const chip = (key) =>
        h(
            "span",
            { class: "chip", title: help[key] ?? "" },
            `${key} `,
            h("b", {}, String(layout[key])),
            difference(key),
        );
    return h("div", { class: "chips" }, keys.map(chip));
}

/** Ask before something that cannot be undone. Resolves to true or false. TITLE and TEXT are texts. */
export function confirmDialog(title, text, verb) {
    return new Promise((resolve) => {
        const dialog = h(
            "dialog",
            { "aria-label": title },
            h(
                "form",
                { method: "dialog" },
                h("h2", {}, title),
                h("p", {}, text),
                h(
                    "div",
                    { class: "actions" },
                    h("button", { value: "no" }, "Keep it"),
                    h("button", { class: "danger", value: "yes" }, verb),
                ),
            ),
        );
        dialog.addEventListener("close", () => {
            resolve(dialog.returnValue === "yes");
            dialog.remove();
        });
        document.body.append(dialog);
        dialog.showModal();
    });
}
