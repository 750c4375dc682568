// Tried here, run there: a campaign's trials carried to other numbers of devices, how well that went before, and
// published studies asked again.

import { campaignPath, explain, get, post } from "../lib/api.js";
import { fill, h, whileBusy } from "../lib/dom.js";
import { count, counted, interval, isolated, percent, rate, rateNumber } from "../lib/format.js";
import { href, setQuery } from "../lib/router.js";
import { turns } from "../lib/turn.js";
import { spoken } from "../lib/words.js";
import { chartPanel } from "../charts/panel.js";
import { efficiency, study, throughput } from "../charts/scaling.js";
import { empty, loading, notice, panel, simulatedBadge, table } from "../parts/parts.js";

const SIZES = "1, 2, 4, 8, 16, 32, 64";

/** "8, 16 64" as numbers; null where it is no list of whole numbers. */
export function parseSizes(text) {
    const words = text.split(/[\s,;]+/).filter(Boolean);
    const list = words.map(Number);
    return list.length && list.every((n) => Number.isInteger(n) && n > 0)
        ? [...new Set(list)].sort((a, b) => a - b)
        : null;
}

const ROW_COLUMNS = [
    ["Devices", 1],
    ["Batch, sequences", 1],
    ["Layout", 0, "mono layout"],
    ["Tokens/s", 1],
    ["95 % interval, tokens/s", 1],
    ["MFU", 1],
    ["Efficiency", 1],
];

function scalingPanel(kind, answer) {
    return panel(
        `${kind === "weak" ? "Weak" : "Strong"} scaling`,
        {
            note:
                kind === "weak"
                    ? "The batch grows with the devices."
                    : "The batch stays what it was.",
            tools: simulatedBadge(answer) ?? [],
        },
        table(
            `table of ${kind} scaling`,
            ROW_COLUMNS,
            answer.rows.map((r) => [
                count(r.devices),
                count(r.global_batch),
                r.text ?? r.reason,
                rateNumber(r.tokens_per_s),
                interval(r.lo, r.hi),
                percent(r.mfu),
                percent(r.efficiency),
            ]),
        ),
    );
}

function signed(x) {
    return `${x > 0 ? "+" : ""}${percent(x)}`;
}

/** What was projected before and has been measured since: the only proof a projection has. */
function earlierPanel(list) {
    const inside = list.filter((e) => e.inside).length;
    const note = list.length
        ? `${counted(list.length, "projection")} measured since; ${inside} within the 95 % interval.`
        : "No trial has tested an earlier projection yet: a later one of a projected layout appears here by itself. A simulated trial is no test.";
    return panel(
        "Errors of earlier projections",
        { note },
        list.length > 0 &&
            table(
                "table of earlier projections",
                [
                    ["Devices", 1],
                    ["Layout", 0, "mono layout"],
                    ["Projected tokens/s", 1],
                    ["95 % interval, tokens/s", 1],
                    ["Measured tokens/s", 1],
                    ["Error", 1],
                    ["Inside"],
                    ["By"],
                ],
                list.map((e) => [
                    count(e.devices),
                    e.text,
                    [rateNumber(e.projected), e.simulated && [" ", simulatedBadge(e)]],
                    interval(e.lo, e.hi),
                    rateNumber(e.measured),
                    signed(e.error),
                    e.inside ? "✓ yes" : "✕ no",
                    h(
                        "a",
                        { href: href(["campaigns", e.measured_by, "trials", String(e.trial)]) },
                        `${e.measured_by}, trial ${e.trial}`,
                    ),
                ]),
            ),
    );
}

/** That the target is another machine than the trials ran on, and what its intervals include for it; null where nothing
 * is to be said. */
export function transferText(answer) {
    const { changed, deviation } = answer.transfer;
    const apart = answer.rows.some((r) => r.transferred);
    if (!changed.length && !apart) return null;
    const where = changed.length
        ? `Projected to another machine (changed: ${changed.join(", ")}): ${answer.cluster} of ${answer.device}. `
        : "";
    if (!apart) return `${where}Trials on that machine are among those learned from.`;
    return `${where}No trial ran on ${changed.length ? "that machine at that precision" : "some of these precisions"}: the intervals include how far the cost model's error differs between machines (standard deviation ${percent(deviation)}).`;
}

function select(title, options, onchange) {
    const element = h(
        "select",
        { onchange },
        options.map(([value, text]) => h("option", { value }, text)),
    );
    return { field: h("label", { class: "field" }, h("span", {}, title), element), element };
}

function projection(ctx, campaigns, clusters) {
    const campaign = select(
        "Campaign",
        campaigns.map((c) => [
            c.id,
            `${isolated(c.name.slice(0, 80))} (${c.id}${c.simulated ? ", simulated" : ""})`,
        ]),
        () => setQuery({ campaign: campaign.element.value }),
    );
    const layouts = select("Layouts", [
        ["winner", "the winner's shape"],
        ["best", "the fastest of the space"],
    ]);
    const cluster = select("Cluster", [["", "that of the campaign"], ...clusters]);
    const sizes = h("input", { value: SIZES, "aria-describedby": "sizes-error" });
    const error = h("span", { class: "field-error", role: "status", id: "sizes-error" });
    const button = h("button", { class: "primary" }, "Project");
    const result = h("div", { "aria-live": "polite" });
    const next = turns(ctx);
    if (campaigns.some((c) => c.id === ctx.query.campaign))
        campaign.element.value = ctx.query.campaign;

    function show(now, strong, weak) {
        const moved = transferText({ ...strong, rows: [...strong.rows, ...weak.rows] });
        now.simulated = strong.simulated;
        const charts = [throughput, efficiency].map((spec) => {
            const chart = chartPanel(now, {
                ...spec,
                name: `${spec.name}-${strong.campaign}`,
                className: "w6",
            });
            chart.set({ strong, weak });
            return chart.element;
        });
        const { base, calibration: k } = strong;
        fill(
            result,
            h(
                "p",
                { class: "sub", role: "status" },
                strong.simulated && [simulatedBadge(strong), " "],
                `${spoken("Measured", base.simulated)}: ${rate(base.tokens_per_s)} on ${counted(base.devices, "device")}, batch ${count(base.global_batch)} (${base.text}). ` +
                    `Learned from ${counted(k.trials, "trial")}${k.simulated ? ` (${k.simulated === k.trials ? "all" : count(k.simulated)} simulated)` : ""}: ${k.factor.toPrecision(3)} times the seconds that the cost model expects (95 %: ${k.lo.toPrecision(3)} – ${k.hi.toPrecision(3)}).`,
            ),
            moved && notice("warn", h("p", {}, moved)),
            h("div", { class: "grid" }, charts),
            scalingPanel("strong", strong),
            h("br"),
            scalingPanel("weak", weak),
            h("br"),
            earlierPanel(strong.earlier),
        );
    }

    async function run() {
        const devices = parseSizes(sizes.value);
        error.textContent = devices ? "" : "Whole numbers of devices, for instance 64, 128.";
        sizes.setAttribute("aria-invalid", String(!devices));
        if (!devices) return;
        const body = {
            campaign: campaign.element.value,
            devices,
            layouts: layouts.element.value,
            ...(cluster.element.value && {
                cluster: { profile: cluster.element.value, nodes: 1 },
            }),
        };
        const now = next();
        const ask = (scaling) =>
            post("v1/project", { ...body, scaling }, { signal: now.signal });
        fill(result, loading("the projection"));
        try {
            show(now, await ask("strong"), await ask("weak"));
        } catch (e) {
            if (!now.signal.aborted) fill(result, notice("bad", h("p", {}, explain(e))));
        }
    }

    if (!campaigns.length)
        return empty(
            "Nothing to project yet",
            h("p", {}, "A campaign with a successful trial can be carried to other scales."),
            h("p", {}, h("a", { href: href(["new"]) }, "Start a campaign")),
        );
    fill(
        result,
        empty("Nothing projected yet", h("p", {}, "Strong and weak scaling, with intervals.")),
    );
    return [
        h(
            "form",
            {
                onsubmit: (event) => {
                    event.preventDefault();
                    whileBusy(button, run);
                },
            },
            h(
                "fieldset",
                {},
                h("legend", {}, "From a campaign's trials"),
                h(
                    "div",
                    { class: "fields" },
                    campaign.field,
                    h("label", { class: "field" }, h("span", {}, "Devices"), sizes, error),
                    layouts.field,
                    cluster.field,
                ),
                h("p", { class: "actions" }, button),
            ),
        ),
        result,
    ];
}

function studies(ctx, names) {
    const source = h("p", { class: "sub", role: "status" });
    const chart = chartPanel(ctx, study);
    const rows = h("div", {});
    chart.set({ study: null });
    const pick = select("Study", [["", "choose one …"], ...names.map((n) => [n, n])], load);

    async function load() {
        const name = pick.element.value;
        setQuery({ study: name || null });
        chart.set({ study: null });
        fill(rows);
        source.textContent = "";
        if (!name) return;
        source.textContent = "Ranking layouts …";
        try {
            const s = await get(
                `v1/plan/examples/${encodeURIComponent(name)}`,
                null,
                ctx.signal,
            );
            if (pick.element.value !== name) return;
            source.textContent = `${s.title}. Source: ${s.source}.`;
            chart.set({ study: s });
            const p = (r, key) => percent(r.published?.[key]);
            fill(
                rows,
                panel(
                    "The model's best layouts",
                    {},
                    table(
                        "table of the study",
                        [
                            ["Devices", 1],
                            ["Layout", 0, "mono layout"],
                            ["Tokens/s", 1],
                            ["MFU", 1],
                            ["MFU, published", 1],
                            ["Efficiency", 1],
                            ["Efficiency, published", 1],
                            ["Rank of the published layout", 1],
                        ],
                        s.rows.map((r) => [
                            count(r.devices),
                            r.text ?? r.reason ?? "",
                            rateNumber(r.tokens_per_s),
                            percent(r.mfu),
                            p(r, "mfu"),
                            percent(r.efficiency),
                            p(r, "efficiency"),
                            r.published_layout?.rank
                                ? `${count(r.published_layout.rank)} of ${count(r.published_layout.of)}`
                                : "–",
                        ]),
                    ),
                ),
            );
        } catch (e) {
            if (e.name !== "AbortError") source.textContent = explain(e);
        }
    }

    if (names.includes(ctx.query.study)) {
        pick.element.value = ctx.query.study;
        load();
    }
    return [
        h("h2", { class: "part" }, "Published studies, asked again"),
        h("div", { class: "fields" }, pick.field),
        source,
        h("div", { class: "grid" }, chart.element, rows),
    ];
}

export async function render(ctx) {
    const asked = ctx.query.campaign;
    const [campaigns, clusters, examples] = await Promise.all([
        get("v1/campaigns", { page_size: 200, sort: "-created" }, ctx.signal),
        get("v1/presets/clusters", null, ctx.signal),
        get("v1/plan/examples", null, ctx.signal),
    ]);
    if (asked && !campaigns.items.some((c) => c.id === asked))
        await get(campaignPath(asked), null, ctx.signal).then(
            (c) => campaigns.items.unshift(c),
            () => {}, // the address may name one that was deleted
        );
    const names = clusters.items.map((c) => c.name ?? c).filter((n) => n !== "local");
    ctx.title("Projection");
    fill(
        ctx.root,
        h("h1", {}, "Projection"),
        h(
            "p",
            { class: "sub" },
            "Tried here, run there: trials at small scale calibrate the cost model, which then speaks of other sizes and machines.",
        ),
        projection(
            ctx,
            campaigns.items.filter((c) => c.best),
            names.map((n) => [n, n]),
        ),
        studies(ctx, examples.items),
    );
}
