// The space as the campaign has come to know it.

import { campaignPath, explain, get } from "../lib/api.js";
import { atMostEvery, fill, h } from "../lib/dom.js";
import { rateNumber } from "../lib/format.js";
import { href } from "../lib/router.js";
import { chartPanel } from "../charts/panel.js";
import {
    brushOf,
    brushed,
    feasibility,
    importance,
    onlyValue,
    parallel,
    surface,
    varying,
} from "../charts/space.js";

const REFIT_MS = 5000; // the service fits after each trial; asking more often shows nothing new

function choice(title, onChange) {
    const select = h("select", { onchange: onChange });
    return {
        element: h("label", { class: "field" }, h("span", {}, title), select),
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

/** What dragging does, for those who cannot drag: a list of values for each dimension. ON_PICK(key, value) is told. */
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
            const next = parallel.form({ keys });
            if (next === form) return;
            form = next;
            selects = keys.map((k) => {
                const select = h(
                    "select",
                    { onchange: () => onPick(k, select.value) },
                    h("option", { value: "" }, "any"),
                    k.values.map((v) => h("option", { value: String(v) }, String(v))),
                );
                return select;
            });
            fill(
                place,
                keys.map((k, i) =>
                    h("label", { class: "field" }, h("span", {}, k.key), selects[i]),
                ),
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

function selection(page) {
    const element = h("div", { class: "panel-note", role: "status" });
    return {
        element,
        show(list, all) {
            const best = [...list]
                .filter((t) => t.tokens_per_s)
                .sort((a, b) => b.tokens_per_s - a.tokens_per_s)
                .slice(0, 5);
            fill(
                element,
                list.length === all
                    ? ""
                    : [
                          `${list.length} of ${all} selected. Fastest: `,
                          best.map((t, i) => [
                              i ? ", " : "",
                              h(
                                  "a",
                                  { href: href(["campaigns", page.id, "trials", String(t.n)]) },
                                  `trial ${t.n}`,
                              ),
                              ` (${t.text}, ${rateNumber(t.tokens_per_s)} tokens/s)`,
                          ]),
                      ],
            );
        },
    };
}

export const spaceTab = {
    key: "space",
    title: "Space",
    open(page, body) {
        const { ctx, id, store } = page;
        const picked = selection(page);
        let keys = [];
        let brush = {};
        let known = null;
        let shares = null;
        let started = false;
        let asking = false;
        let asked = 0;
        let trouble = "";

        const lines = chartPanel(ctx, {
            ...parallel,
            name: `parallel-${id}`,
            size: "tall",
            ready: (chart) => {
                brush = {};
                chart.on("axisareaselected", () => {
                    // The event tells of one axis; the model knows all of them.
                    const list = chart.getModel().findComponents({ mainType: "parallelAxis" });
                    brush = Object.fromEntries(list.map((a, i) => [i, a.activeIntervals ?? []]));
                    values.show(keys, brush);
                    drawSelection();
                });
            },
        });
        // A chart tells of the choice by its own event; without one there is nobody else to tell.
        const values = pickers((k, value) => {
            const intervals = brushOf(k, value);
            const chart = lines.chart();
            if (chart) {
                chart.dispatchAction({
                    type: "axisAreaSelect",
                    parallelAxisId: k.key,
                    intervals,
                });
                return;
            }
            brush = { ...brush, [keys.indexOf(k)]: intervals };
            drawSelection();
        });
        const weights = chartPanel(ctx, {
            ...importance,
            name: `importance-${id}`,
        });
        const field = chartPanel(ctx, { ...surface, name: `surface-${id}`, className: "w6" });
        const ran = chartPanel(ctx, { ...feasibility, name: `feasibility-${id}`, className: "w6" });

        const x = choice("Across", () => loadSurface());
        const y = choice("Up", () => loadSurface());
        const value = h(
            "select",
            { onchange: drawSurface },
            h("option", { value: "mean" }, "expected throughput"),
            h("option", { value: "slices" }, "slices of it"),
            h("option", { value: "spread" }, "uncertainty"),
            h("option", { value: "p_fits" }, "probability of fitting"),
        );

        function drawSelection() {
            const measured = store.all().filter((t) => t.state === "ok" && t.tokens_per_s !== null);
            picked.show(brushed(measured, keys, brush), measured.length);
        }

        function drawSurface() {
            field.set({ surface: known, value: value.value, asking, trouble });
            ran.set({
                trials: store.all(),
                x: keys.find((k) => k.key === x.value()),
                y: keys.find((k) => k.key === y.value()),
            });
        }

        // The answer to the last question counts, whichever comes last.
        async function loadSurface() {
            if (ctx.signal.aborted) return;
            const mine = ++asked;
            const pair = { x: x.value(), y: y.value() };
            let found = null;
            trouble = "";
            asking = Boolean(pair.x && pair.y && pair.x !== pair.y);
            drawSurface();
            try {
                if (asking) found = await get(campaignPath(id, "/surface"), pair, ctx.signal);
            } catch (error) {
                if (error.name === "AbortError") return;
                if (error.status !== 404) trouble = explain(error);
            }
            if (mine !== asked) return;
            asking = false;
            known = found;
            drawSurface();
        }

        async function loadShares() {
            try {
                shares = (await get(campaignPath(id, "/importance"), null, ctx.signal)).shares;
            } catch {
                shares = null;
            }
            weights.set({ shares });
        }

        const refit = atMostEvery(REFIT_MS, () => {
            if (body.hidden || ctx.signal.aborted) return;
            loadShares();
            loadSurface();
        });

        function update() {
            if (!started) return;
            const now = varying(store.all());
            if (parallel.form({ keys: now }) !== parallel.form({ keys })) brush = {};
            keys = now;
            values.set(keys);
            lines.set({ trials: store.all(), keys });
            const first = byImportance(
                keys.map((k) => k.key),
                shares,
            );
            x.set(
                keys.map((k) => k.key),
                first[0],
            );
            y.set(
                keys.map((k) => k.key),
                first[1],
            );
            drawSelection();
            drawSurface();
            if (known === null && !asking) loadSurface();
            refit();
        }

        fill(
            body,
            h("div", { class: "grid" }, lines.element),
            h(
                "div",
                { class: "filters" },
                x.element,
                y.element,
                h("label", { class: "field" }, h("span", {}, "Shows"), value),
            ),
            h("div", { class: "grid" }, field.element, ran.element, weights.element),
        );
        lines.element.append(picked.element, values.element);
        store.onChange(update);
        loadShares().then(() => {
            started = true;
            update();
        });
    },
};
