// A table of a list resource: pages, order and filters are the service's work, so ten thousand rows cost as much as a
// hundred. Rows that are in view change in place when events tell of them.

import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { failure, loading } from "./parts.js";

const CONTROLS = "a, button:not(:disabled), input";

/** What a control says of itself, but for the sign of the order. */
function wordsOf(control) {
    return (control.getAttribute("aria-label") ?? control.textContent).replace(/[▲▼]$/, "");
}

const controlsOf = (place) => [...(place?.querySelectorAll(CONTROLS) ?? [])];

/**
 * The list that SPEC names, a page at a time: which page is in view, which was asked for, what events have told since.
 */
class Pages {
    #spec;
    #size;
    #signal;
    #shown = [null]; // tokens of the pages before and at the one in view
    #asked = this.#shown; // the same of the one that was asked for
    #loads = 0;
    #underWay = 0;
    #told = new Map(); // by events while an answer was under way, which may be older than they are
    sort;
    items = [];
    total = 0;
    next = null; // token of the page after the one in view

    constructor(spec, signal) {
        this.#spec = spec;
        this.#size = spec.pageSize ?? 100;
        this.#signal = signal;
        this.sort = spec.sort;
    }

    get isFirst() {
        return this.#shown.length === 1;
    }

    get busy() {
        return this.#underWay > 0;
    }

    /** Numbers of the first and the last row in view. */
    get range() {
        const from = (this.#shown.length - 1) * this.#size;
        return [from + 1, from + this.items.length];
    }

    reorder(key) {
        this.sort = this.sort === `-${key}` ? key : `-${key}`;
        this.restart();
    }

    /** The next load is of the first page. */
    restart() {
        this.#asked = [null];
    }

    forward() {
        this.#asked = [...this.#shown, this.next];
    }

    back() {
        this.#asked = this.#shown.slice(0, -1);
    }

    #fetch(token) {
        if (this.#loads === 1 && this.#spec.first) return this.#spec.first;
        const { path, query } = this.#spec;
        const page = { sort: this.sort, page_size: this.#size, page_token: token };
        return get(path, { ...query?.(), ...page }, this.#signal);
    }

    /** Fetch what was asked for: true, or false where a later load took its place; throws what get() throws. */
    async load() {
        this.#loads += 1;
        const mine = this.#loads;
        const tokens = this.#asked;
        this.#underWay += 1;
        try {
            const page = await this.#fetch(tokens.at(-1));
            if (mine !== this.#loads) return false;
            this.#shown = tokens;
            this.items = page.items.map((item) => this.#told.get(this.#spec.id(item)) ?? item);
            this.total = page.total;
            this.next = page.next_page_token;
            return true;
        } catch (error) {
            if (mine !== this.#loads) return false;
            throw error;
        } finally {
            this.#underWay -= 1;
            if (this.#underWay === 0) this.#told.clear();
        }
    }

    /** Take ITEM in place of the same one. Returns that, or null where it is not in view. */
    update(item) {
        const key = this.#spec.id(item);
        if (this.busy) this.#told.set(key, item);
        const at = this.items.findIndex((other) => this.#spec.id(other) === key);
        if (at < 0) return null;
        const before = this.items[at];
        this.items = this.items.map((other, i) => (i === at ? item : other));
        return before;
    }
}

function headerCell(column, sort, reorder) {
    const mine = column.sort && (sort === column.sort || sort === `-${column.sort}`);
    const falling = sort.startsWith("-");
    const order = falling ? "descending" : "ascending";
    const sign = mine && h("span", { "aria-hidden": "true" }, falling ? "▼" : "▲");
    return h(
        "th",
        {
            scope: "col",
            class: column.num ? "num" : null,
            "aria-sort": mine ? order : null,
            title: column.help,
        },
        column.sort
            ? h(
                  "button",
                  { type: "button", onclick: () => reorder(column.sort) },
                  column.title,
                  sign,
              )
            : column.title,
    );
}

function bodyCell(column, item, isFirst) {
    const names = [column.num && "num", column.fixed && "fixed", column.wide && "wide"];
    const attributes = {
        class: names.filter(Boolean).join(" ") || null,
        "data-name": column.plain ? null : column.title,
    };
    return isFirst
        ? h("th", { scope: "row", ...attributes }, column.cell(item))
        : h("td", attributes, column.cell(item));
}

/** "1–100 of 2,000" and the buttons; TURN("back" or "forward") is told. */
function pager(pages, turn) {
    const [from, to] = pages.range;
    const button = (text, disabled, way) =>
        h("button", { type: "button", disabled, onclick: () => turn(way) }, text);
    return h(
        "div",
        { class: "pager" },
        h(
            "span",
            { class: "soft", role: "status" },
            `${count(from)}–${count(to)} of ${count(pages.total)}`,
        ),
        h("span", { class: "grow" }),
        pages.total > pages.items.length && [
            button("Previous", pages.isFirst, "back"),
            button("Next", pages.next === null, "forward"),
        ],
    );
}

class ListTable {
    #spec;
    #pages;
    #chosen;
    #rows = new Map();
    #trouble = h("div");
    #body;
    element;

    constructor(ctx, spec) {
        this.#spec = spec;
        this.#pages = new Pages(spec, ctx.signal);
        this.#chosen = new Set(spec.chosen ?? []);
        this.#body = h("div", {}, loading(spec.label));
        this.element = h("div", {}, this.#trouble, this.#body);
    }

    get items() {
        return this.#pages.items;
    }

    get sort() {
        return this.#pages.sort;
    }

    setColumns(keys) {
        this.#chosen = new Set(keys);
        this.redraw();
    }

    #columns() {
        return this.#spec.columns.filter(
            (column) => !column.optional || this.#chosen.has(column.key),
        );
    }

    #row(item) {
        const cells = this.#columns().map((column, i) => bodyCell(column, item, i === 0));
        const row = h("tr", { class: this.#spec.rowClass?.(item) ?? null }, cells);
        this.#rows.set(this.#spec.id(item), row);
        return row;
    }

    #table() {
        const reorder = (key) => {
            this.#pages.reorder(key);
            this.load();
        };
        const headers = this.#columns().map((column) =>
            headerCell(column, this.#pages.sort, reorder),
        );
        const rows = this.items.map((item) => this.#row(item));
        return h(
            "div",
            {
                class: "scroll",
                tabindex: "0",
                role: "region",
                "aria-label": `table of ${this.#spec.label}`,
            },
            h(
                "table",
                { class: "cards" },
                h("thead", {}, h("tr", {}, headers)),
                h("tbody", {}, rows),
            ),
        );
    }

    redraw() {
        const focused = this.#focus();
        const left = this.#body.querySelector(".scroll")?.scrollLeft ?? 0;
        this.#rows = new Map();
        if (!this.items.length && this.#pages.isFirst) {
            fill(this.#body, this.#spec.none());
            return;
        }
        const turn = (way) => {
            this.#pages[way]();
            this.load();
        };
        fill(this.#body, this.#table(), pager(this.#pages, turn));
        this.#body.querySelector(".scroll").scrollLeft = left;
        if (focused) this.#refocus(focused);
    }

    // What has the focus, in words that hold for the table that takes the place of this one.
    #focus() {
        const control = document.activeElement;
        if (!this.#body.contains(control)) return null;
        const row = control.closest("tbody tr");
        const key = row && [...this.#rows].find(([, other]) => other === row)?.[0];
        return { key, text: wordsOf(control), region: control.matches(".scroll") };
    }

    #refocus({ key, text, region }) {
        const whole = this.#body.querySelector(".scroll");
        const place = key ? this.#rows.get(key) : this.#body;
        const same = (control) => wordsOf(control) === text;
        const control = region ? whole : controlsOf(place).find(same);
        (control ?? whole).focus({ preventScroll: true });
    }

    /** Fetch the page that was asked for last; the first one where FRESH. */
    async load(fresh = false) {
        if (fresh) this.#pages.restart();
        this.#body.setAttribute("aria-busy", "true");
        try {
            if (await this.#pages.load()) {
                fill(this.#trouble);
                this.redraw();
            }
        } catch (error) {
            if (error.name !== "AbortError") this.#showTrouble(error);
        } finally {
            if (!this.#pages.busy) this.#body.removeAttribute("aria-busy");
        }
    }

    // What was there stays in sight, and it is said that it is not what was asked for.
    #showTrouble(error) {
        if (!this.items.length) fill(this.#body);
        fill(
            this.#trouble,
            failure(error, () => this.load()),
        );
    }

    update(item) {
        const old = this.#rows.get(this.#spec.id(item));
        const before = this.#pages.update(item);
        if (!old) return null;
        const changed = this.#row(item);
        changed.classList.add("fresh");
        const focused = old.contains(document.activeElement) && wordsOf(document.activeElement);
        old.replaceWith(changed);
        if (focused !== false)
            controlsOf(changed)
                .find((control) => wordsOf(control) === focused)
                ?.focus();
        return before;
    }
}

/**
 * SPEC:
 *   path, query()       the list and its filters
 *   columns             [{key, title, sort?, num?, wide?, plain?, help?, optional?, cell(item) -> node or text}]; on a
 *                       narrow screen a row is a card, where a cell has its column's name before it unless it is plain,
 *                       and a line of its own where it is wide
 *   id(item)            what makes a row the same row
 *   rowClass(item)      class of the row, or null
 *   sort                first order, such as "-created"
 *   none()              nodes for an empty list
 *   label, pageSize
 *   first               promise of the first page in the first order, where it was asked for before
 *   chosen              names of optional columns that are shown
 * Returns {element, items, sort, load(fresh), update(item), setColumns(keys), redraw()}. update() returns the item as
 * it was, or null where it is not among the rows in view.
 */
export function listTable(ctx, spec) {
    return new ListTable(ctx, spec);
}
