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
 * Returns {element, load(), update(item), sort(), setColumns(keys), redraw()}.
 */
export function listTable(ctx, spec) {
    const size = spec.pageSize ?? 100;
    let sort = spec.sort;
    let shown = [null]; // tokens of the pages before and at the one in view
    let asked = shown; // the same of the one that was asked for
    let next = null;
    let total = 0;
    let items = [];
    let chosen = new Set(spec.chosen ?? []);
    let rows = new Map();
    let loads = 0;
    let underWay = 0;
    const told = new Map(); // by events while an answer was under way, which may be older than they are

    const trouble = h("div");
    const body = h("div", {}, loading(spec.label));
    const element = h("div", {}, trouble, body);

    const columns = () => spec.columns.filter((c) => !c.optional || chosen.has(c.key));

    function cells(item) {
        return columns().map((c, i) => {
            const names = [c.num && "num", c.fixed && "fixed", c.wide && "wide"].filter(Boolean);
            const attributes = {
                class: names.join(" ") || null,
                "data-name": c.plain ? null : c.title,
            };
            return i === 0
                ? h("th", { scope: "row", ...attributes }, c.cell(item))
                : h("td", attributes, c.cell(item));
        });
    }

    function row(item) {
        const tr = h("tr", { class: spec.rowClass?.(item) ?? null }, cells(item));
        rows.set(spec.id(item), tr);
        return tr;
    }

    function header(c) {
        const mine = c.sort && (sort === c.sort || sort === `-${c.sort}`);
        const order = !mine ? null : sort.startsWith("-") ? "descending" : "ascending";
        const sign = { ascending: "▲", descending: "▼" }[order];
        return h(
            "th",
            { scope: "col", class: c.num ? "num" : null, "aria-sort": order, title: c.help },
            c.sort
                ? h(
                      "button",
                      { type: "button", onclick: () => reorder(c.sort) },
                      c.title,
                      sign && h("span", { "aria-hidden": "true" }, sign),
                  )
                : c.title,
        );
    }

    function reorder(key) {
        sort = sort === `-${key}` ? key : `-${key}`;
        load(true);
    }

    function turnTo(tokens) {
        asked = tokens;
        load();
    }

    function pager() {
        const from = (shown.length - 1) * size;
        return h(
            "div",
            { class: "pager" },
            h(
                "span",
                { class: "soft", role: "status" },
                `${count(from + 1)}–${count(from + items.length)} of ${count(total)}`,
            ),
            h("span", { class: "grow" }),
            total > items.length && [
                h(
                    "button",
                    {
                        type: "button",
                        disabled: shown.length === 1,
                        onclick: () => turnTo(shown.slice(0, -1)),
                    },
                    "Previous",
                ),
                h(
                    "button",
                    {
                        type: "button",
                        disabled: next === null,
                        onclick: () => turnTo([...shown, next]),
                    },
                    "Next",
                ),
            ],
        );
    }

    // What has the focus, in words that hold for the table that takes the place of this one.
    function focus() {
        const at = document.activeElement;
        if (!body.contains(at)) return null;
        const tr = at.closest("tbody tr");
        const key = tr && [...rows].find(([, row_]) => row_ === tr)?.[0];
        return { key, text: wordsOf(at), region: at.matches(".scroll") };
    }

    function refocus({ key, text, region }) {
        const whole = body.querySelector(".scroll");
        const place = key ? rows.get(key) : body;
        const same = (e) => wordsOf(e) === text;
        const next = region ? whole : [...(place?.querySelectorAll(CONTROLS) ?? [])].find(same);
        (next ?? whole).focus({ preventScroll: true });
    }

    function draw() {
        const focused = focus();
        const left = body.querySelector(".scroll")?.scrollLeft ?? 0;
        rows = new Map();
        if (!items.length && shown.length === 1) {
            fill(body, spec.none());
            return;
        }
        fill(
            body,
            h(
                "div",
                {
                    class: "scroll",
                    tabindex: "0",
                    role: "region",
                    "aria-label": `table of ${spec.label}`,
                },
                h(
                    "table",
                    { class: "cards" },
                    h("thead", {}, h("tr", {}, columns().map(header))),
                    h("tbody", {}, items.map(row)),
                ),
            ),
            pager(),
        );
        body.querySelector(".scroll").scrollLeft = left;
        if (focused) refocus(focused);
    }

    async function load(fresh = false) {
        if (fresh) asked = [null];
        const mine = ++loads;
        const tokens = asked;
        underWay += 1;
        body.setAttribute("aria-busy", "true");
        try {
            const page = await (mine === 1 && spec.first
                ? spec.first
                : get(
                      spec.path,
                      { ...spec.query?.(), sort, page_size: size, page_token: tokens.at(-1) },
                      ctx.signal,
                  ));
            if (mine !== loads) return;
            shown = tokens;
            items = page.items.map((i) => told.get(spec.id(i)) ?? i);
            total = page.total;
            next = page.next_page_token;
            fill(trouble);
            draw();
        } catch (error) {
            if (error.name === "AbortError" || mine !== loads) return;
            // What was there stays in sight, and it is said that it is not what was asked for.
            if (!items.length) fill(body);
            fill(
                trouble,
                failure(error, () => load()),
            );
        } finally {
            underWay -= 1;
            if (underWay === 0) {
                told.clear();
                body.removeAttribute("aria-busy");
            }
        }
    }

    // Returns the item as it was, or null where it is not among the rows in view.
    function update(item) {
        const key = spec.id(item);
        const old = rows.get(key);
        if (underWay) told.set(key, item);
        if (!old) return null;
        const before = items.find((i) => spec.id(i) === key);
        items = items.map((i) => (spec.id(i) === key ? item : i));
        const changed = row(item);
        changed.classList.add("fresh");
        const focused = old.contains(document.activeElement) && wordsOf(document.activeElement);
        old.replaceWith(changed);
        if (focused !== false)
            [...changed.querySelectorAll(CONTROLS)].find((e) => wordsOf(e) === focused)?.focus();
        return before;
    }

    return {
        element,
        load,
        update,
        items: () => items,
        sort: () => sort,
        setColumns(keys) {
            chosen = new Set(keys);
            draw();
        },
        redraw: draw,
    };
}
