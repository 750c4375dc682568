// The space as the campaign has come to know it.

import { campaignPath, explain, get } from "../lib/api.js";
import { atMostEvery, fill, h } from "../lib/dom.js";
import { rate } from "../lib/format.js";
import { unitOf, worth } from "../lib/objective.js";
import { href } from "../lib/router.js";
import { chartPanel } from "../charts/panel.js";
import { brushGestures } from "../charts/parallel.js";
import { field } from "../parts/parts.js";
import {
    brushOf,
    brushed,
    feasibility,
    formOf,
    importance,
    moved,
    onlyValue,
    parallel,
    surface,
    varying,
} from "../charts/space.js";

const MOST_LISTED = 5;
const REFIT_MS = 5000; // the service fits after each trial; asking more often shows nothing new

function choice(title, onChange) {
    const select = h("select", { onchange: onChange });
    return {
        element: field(title, select),
        value: () => select.value,
        set(values, first) {
            const kept = select.value || first;
            if ([...select.options].map((o) => o.value).join() === values.join()) return;
            fill(
                select,
                values.map((v) => h("option", { value: v }, v || "(none)")),
            );
            select.value = values.includes(kept) ? kept : (values[0] ?? "");
        },
    };
}

/** What dragging does, for those who cannot drag: a list of values for each dimension. ON_PICK(i, value) is told. */
function pickers(onPick) {
    const place = h("div", { class: "fields" });
    const element = h(
        "details",
        { class: "panel-body" },
        h("summary", { class: "soft" }, "Select by value"),
        place,
    );
    let selects = [];
    let form = "";
    return {
        element,
        set(keys) {
            const next = formOf(keys);
            if (next === form) return;
            form = next;
            selects = keys.map((k, i) => {
                const select = h(
                    "select",
                    { onchange: () => onPick(i, select.value) },
                    h("option", { value: "" }, "any"),
                    k.values.map((v) => h("option", { value: String(v) }, String(v))),
                );
                return select;
            });
            fill(
                place,
                keys.map((k, i) => field(k.key, selects[i])),
            );
        },
        show(keys, brush) {
            keys.forEach((k, i) => {
                selects[i].value = onlyValue(k, brush[i]);
            });
        },
    };
}

// What matters most comes first; what follows from other keys (dp from world and the rest) is left to last.
function byImportance(keys, shares) {
    const weight = (k) => (shares?.[k] ?? 0) - (["dp", "edp", "sp"].includes(k) ? 1 : 0);
    return [...keys].sort((a, b) => weight(b) - weight(a));
}

/** How many trials the brushes select, and the fastest of them: {element, show(list, all, chosen)}. */
function selection(page) {
    const element = h("div", { class: "panel-note", role: "status" });
    const value = ({ tokens_per_s: speed, layout, tokens_per_joule: efficiency }) =>
        worth(page.campaign(), speed, layout, efficiency);
    const line = (trial, i) => [
        i ? ", " : "",
        h("a", { href: href(["campaigns", page.id, "trials", String(trial.n)]) }, `trial ${trial.n}`),
        ` (${trial.text}, ${rate(value(trial), unitOf(page.campaign()))})`,
    ];
    return {
        element,
        show(list, all, chosen) {
            const best = list
                .filter((trial) => trial.tokens_per_s)
                .sort((a, b) => value(b) - value(a))
                .slice(0, MOST_LISTED);
            const text = `${list.length} of ${all} selected. Fastest: `;
            fill(element, chosen ? [text, best.map(line)] : "");
        },
    };
}

/** The trials as lines through their values, and the choice among them: {element, update(trials, keys)}. */
function linesPanel(page) {
    const picked = selection(page);
    let trials = [];
    let keys = [];
    let brush = {};
    const chart = chartPanel(page.ctx, {
        ...parallel,
        name: `parallel-${page.id}`,
        size: "tall",
        ready: (canvas) =>
            brushGestures(canvas.holder, {
                frame: () => canvas.frame,
                change: choose,
                signal: canvas.signal,
            }),
    });
    const values = pickers((i, value) => choose(i, brushOf(keys[i], value)));

    function choose(i, intervals) {
        brush = { ...brush, [i]: intervals };
        values.show(keys, brush);
        chart.follow({ trials, keys, brush });
        draw();
    }

    function draw() {
        const measured = page.store
            .all()
            .filter((trial) => trial.state === "ok" && trial.tokens_per_s !== null);
        const chosen = Object.values(brush).some((intervals) => intervals.length > 0);
        picked.show(brushed(measured, keys, brush), measured.length, chosen);
    }
    chart.element.append(picked.element, values.element);
    return {
        element: chart.element,
        update(all, now) {
            if (formOf(now) !== formOf(keys)) brush = moved(brush, keys, now);
            trials = all;
            keys = now;
            values.set(keys);
            values.show(keys, brush);
            chart.set({ trials, keys, brush });
            draw();
        },
    };
}

const SHOWN = [
    ["mean", "expected throughput"],
    ["slices", "expected throughput, slices"],
    ["spread", "uncertainty"],
    ["p_fits", "probability of fitting"],
];

/** Two dimensions of the space, as the search sees them and as they were tried. */
class SurfacePanels {
    #page;
    #keys = [];
    #known = null;
    #asking = false;
    #asked = 0;
    #trouble = "";
    #x = choice("X axis", () => this.load());
    #y = choice("Y axis", () => this.load());
    #value = h(
        "select",
        { onchange: () => this.draw() },
        SHOWN.map(([value, text]) => h("option", { value }, text)),
    );
    #field;
    #ran;
    filters = h(
        "div",
        { class: "filters" },
        this.#x.element,
        this.#y.element,
        field("Value", this.#value),
    );

    constructor(page) {
        const { ctx, id } = page;
        this.#page = page;
        this.#field = chartPanel(ctx, { ...surface, name: `surface-${id}`, className: "w6" });
        this.#ran = chartPanel(ctx, { ...feasibility, name: `feasibility-${id}`, className: "w6" });
    }

    get elements() {
        return [this.#field.element, this.#ran.element];
    }

    /** Offer KEYS, of which the FIRST two are shown until somebody chooses. */
    update(keys, [firstX, firstY]) {
        const names = keys.map(({ key }) => key);
        this.#keys = keys;
        this.#x.set(names, firstX);
        this.#y.set(names, firstY);
        this.draw();
        if (this.#known === null && !this.#asking) this.load();
    }

    draw() {
        const keyOf = (chosen) => this.#keys.find(({ key }) => key === chosen.value());
        this.#field.set({
            surface: this.#known,
            value: this.#value.value,
            asking: this.#asking,
            trouble: this.#trouble,
        });
        const trials = this.#page.store.all();
        this.#ran.set({ trials, x: keyOf(this.#x), y: keyOf(this.#y) });
    }

    /** Ask for the surface. The answer to the last question counts, whichever comes last. */
    async load() {
        const { ctx, id } = this.#page;
        if (ctx.signal.aborted) return;
        this.#asked += 1;
        const mine = this.#asked;
        const pair = { x: this.#x.value(), y: this.#y.value() };
        let found = null;
        let trouble = "";
        this.#trouble = "";
        this.#asking = Boolean(pair.x && pair.y && pair.x !== pair.y);
        this.draw();
        try {
            if (this.#asking) found = await get(campaignPath(id, "/surface"), pair, ctx.signal);
        } catch (error) {
            if (error.name === "AbortError") return;
            if (error.status !== 404) trouble = explain(error);
        }
        if (mine !== this.#asked) return;
        this.#trouble = trouble;
        this.#asking = false;
        this.#known = found;
        this.draw();
    }
}

export const spaceTab = {
    key: "space",
    title: "Space",
    open(page, body) {
        const { ctx, id, store } = page;
        const lines = linesPanel(page);
        const surfaces = new SurfacePanels(page);
        const weights = chartPanel(ctx, { ...importance, name: `importance-${id}` });
        let shares = null;
        let started = false;

        async function loadShares() {
            const path = campaignPath(id, "/importance");
            const answer = await get(path, null, ctx.signal).catch(() => null);
            shares = answer?.shares ?? null;
            weights.set({ shares, effects: answer?.effects ?? null });
        }

        const refit = atMostEvery(REFIT_MS, () => {
            if (body.hidden || ctx.signal.aborted) return;
            loadShares();
            surfaces.load();
        });

        function update() {
            if (!started) return;
            const keys = varying(store.all());
            const names = keys.map(({ key }) => key);
            lines.update(store.all(), keys);
            surfaces.update(keys, byImportance(names, shares));
            refit();
        }

        fill(
            body,
            h("div", { class: "grid" }, lines.element),
            surfaces.filters,
            h("div", { class: "grid" }, surfaces.elements, weights.element),
        );
        store.onChange(update);
        loadShares().then(() => {
            started = true;
            update();
        });
    },
};
