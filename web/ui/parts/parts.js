// Parts that every page uses: badges, tiles, notices, the states of a page, tabs.

import { explain } from "../lib/api.js";
import { afterPaint, h, keepFocus, uniqueId } from "../lib/dom.js";
import { CAMPAIGN_STATES, SIMULATED, TRIAL_STATES } from "../lib/words.js";

function badge(table, state) {
    const [sign, tone, help] = table[state] ?? ["?", "wait", ""];
    return h(
        "span",
        { class: `badge ${tone}`, title: help },
        h("span", { "aria-hidden": "true" }, sign),
        state,
    );
}

export const trialBadge = (state) => badge(TRIAL_STATES, state);
export const campaignBadge = (state) => badge(CAMPAIGN_STATES, state);

/** Beside the name of what is simulated, which its resource OF says; null beside what is not. */
export const simulatedBadge = (of) =>
    of?.simulated ? h("span", { class: "badge warn", title: SIMULATED[1] }, SIMULATED[0]) : null;

/** A tile of the strip at the head of a page; set(value, note) changes it. */
export function tile(name, help = "") {
    const value = h("dd", {}, "–");
    const note = h("dd", { class: "note" });
    const element = h("div", { class: "tile", title: help || null }, h("dt", {}, name), value, note);
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
        list.map((t) => t.element),
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
        list.filter((p) => p).map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]),
    );
}

/**
 * A table of ROWS, arrays of cells. COLUMNS are [title, is a number, class]. On a narrow screen each row is a card, where a
 * cell has its column's title before it, but for a layout, which speaks for itself.
 */
export function table(label, columns, rows) {
    const cls = ([, num, name]) => [num && "num", name].filter(Boolean).join(" ") || null;
    const named = ([title, , name]) => (/\blayout\b/.test(name ?? "") ? null : title);
    return h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
        h(
            "table",
            { class: "cards" },
            h(
                "thead",
                {},
                h(
                    "tr",
                    {},
                    columns.map((c) => h("th", { scope: "col", class: cls(c) }, c[0])),
                ),
            ),
            h(
                "tbody",
                {},
                rows.map((r) =>
                    h(
                        "tr",
                        {},
                        r.map((cell, i) => {
                            const attributes = {
                                class: cls(columns[i]),
                                "data-name": named(columns[i]),
                            };
                            return i
                                ? h("td", attributes, cell)
                                : h("th", { scope: "row", ...attributes }, cell);
                        }),
                    ),
                ),
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
                rules.map((r) => h("li", {}, h("code", {}, r.rule), ` ${r.detail}`)),
            ),
        retry && h("p", {}, h("button", { type: "button", onclick: again }, "Try again")),
    );
}

/**
 * Tabs with the arrow keys, Home and End. LIST is [{key, title, open(body)}]; open() is called when a tab is first shown.
 * ON_CHANGE(key) is told when the user picks one. Returns {element, show(key), at()}.
 */
export function tabs(label, list, onChange) {
    const opened = new Set();
    let current = null;
    const items = list.map((t) => {
        const id = uniqueId("tab");
        const body = h("div", {
            role: "tabpanel",
            id: `${id}-body`,
            "aria-labelledby": id,
            onbeforematch: () => pick(t.key),
        });
        const button = h(
            "button",
            {
                type: "button",
                role: "tab",
                id,
                "aria-controls": `${id}-body`,
                "aria-selected": "false",
                tabindex: "-1",
                onclick: () => pick(t.key),
            },
            t.title,
        );
        return { ...t, button, body };
    });

    function show(key, atOnce = false) {
        current = items.find((t) => t.key === key) ?? items[0];
        for (const t of items) {
            const on = t === current;
            t.button.setAttribute("aria-selected", String(on));
            t.button.tabIndex = on ? 0 : -1;
            // Not merely hidden: what stands there keeps its layout, so it is back at once, and the browser's search finds it.
            t.body.hidden = on ? false : "until-found";
        }
        if (!opened.has(current.key)) {
            const t = current;
            opened.add(t.key);
            if (atOnce) t.open(t.body);
            else afterPaint(() => t.open(t.body));
        }
    }

    function pick(key) {
        show(key);
        onChange(current.key);
    }

    function onKey(event) {
        const last = items.length - 1;
        const here = items.indexOf(current);
        const at = {
            ArrowRight: here === last ? 0 : here + 1,
            ArrowLeft: here === 0 ? last : here - 1,
            Home: 0,
            End: last,
        }[event.key];
        if (at === undefined) return;
        const next = items[at];
        pick(next.key);
        next.button.focus();
        event.preventDefault();
    }

    const strip = h(
        "div",
        { class: "tabs", role: "tablist", "aria-label": label, onkeydown: onKey },
        items.map((t) => t.button),
    );
    return {
        element: h(
            "div",
            {},
            strip,
            items.map((t) => t.body),
        ),
        show,
        at: () => current?.key,
    };
}

/** Layout keys as chips, those that differ from OTHER marked. */
export function layoutChips(layout, keys, help, other) {
    return h(
        "div",
        { class: "chips" },
        keys.map((k) =>
            h(
                "span",
                { class: "chip", title: help[k] ?? "" },
                `${k} `,
                h("b", {}, String(layout[k])),
                other && other[k] !== layout[k] && ` (baseline ${other[k] ?? "–"})`,
            ),
        ),
    );
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
