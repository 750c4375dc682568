// Tried here, run there: a campaign's trials carried to other numbers of devices, how well that went before, and
// published studies asked again.

import { campaignPath, explain, get, post } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { count, counted, interval, isolated, percent, rate, rateNumber } from "../lib/format.js";
import { href, setQuery } from "../lib/router.js";
import { turns } from "../lib/turn.js";
import { spoken } from "../lib/words.js";
import { chartPanel } from "../charts/panel.js";
import { efficiency, study, throughput } from "../charts/scaling.js";
import { submitForm } from "../parts/job.js";
import { empty, field, loading, notice, panel, simulatedBadge, table } from "../parts/parts.js";

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
                    ? "The global batch grows with the number of devices."
                    : "The global batch stays the same.",
            tools: simulatedBadge(answer) ?? [],
        },
        table(
            `table of ${kind} scaling`,
            ROW_COLUMNS,
            answer.rows.map((row) => [
                count(row.devices),
                count(row.global_batch),
                row.text ?? row.reason,
                rateNumber(row.tokens_per_s),
                interval(row.lo, row.hi),
                percent(row.mfu),
                percent(row.efficiency),
            ]),
        ),
    );
}

function signed(value) {
    return `${value > 0 ? "+" : ""}${percent(value)}`;
}

/** What was projected before and has been measured since: the only proof a projection has. */
function earlierPanel(list) {
    const inside = list.filter((e) => e.inside).length;
    const note = list.length
        ? `${counted(list.length, "projection")} measured since; ${inside} within the 95 % interval.`
        : "No projection has been tested yet. " +
          "A trial of a projected layout appears here. Simulated trials do not count.";
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
                    ["Within"],
                    ["Measured by"],
                ],
                list.map((earlier) => [
                    count(earlier.devices),
                    earlier.text,
                    [
                        rateNumber(earlier.projected),
                        earlier.simulated && [" ", simulatedBadge(earlier)],
                    ],
                    interval(earlier.lo, earlier.hi),
                    rateNumber(earlier.measured),
                    signed(earlier.error),
                    earlier.inside ? "✓ yes" : "✕ no",
                    h(
                        "a",
                        {
                            href: href([
                                "campaigns",
                                earlier.measured_by,
                                "trials",
                                String(earlier.trial),
                            ]),
                        },
                        `${earlier.measured_by}, trial ${earlier.trial}`,
                    ),
                ]),
            ),
    );
}

/**
 * That the target is another machine than the trials ran on, and what its intervals include for it; null where nothing
 * is to be said.
 */
export function transferText({ transfer, rows, cluster, device }) {
    const { changed, deviation } = transfer;
    const apart = rows.some((row) => row.transferred);
    if (!changed.length && !apart) return null;
    const where = changed.length
        ? `Projected to another machine (changed: ${changed.join(", ")}): ${cluster} of ${device}. `
        : "";
    if (!apart) return `${where}The calibration includes trials on that machine.`;
    const what = changed.length ? "that machine at that precision" : "some of these precisions";
    return (
        `${where}No trial ran on ${what}: the intervals include the variation of the cost model's ` +
        `error between machines (standard deviation ${percent(deviation)}).`
    );
}

const optionNodes = (options) => options.map(([value, text]) => h("option", { value }, text));

function select(title, options, onchange) {
    const element = h("select", { onchange }, optionNodes(options));
    return { field: field(title, element), element };
}

/** Where CAMPAIGN can be projected to: of several clusters from one of them, else also to another, of PROFILES. */
function clusterOptions(campaign, profiles) {
    if (!Array.isArray(campaign?.cluster)) return [["", "the campaign's"], ...profiles];
    return campaign.cluster.map(({ name }) => [name, name]);
}

const DEVICES_ERROR = "sizes-error";

/** The form; RUN(body) is given the request, or null where it cannot be made. */
function projectionForm(ctx, campaigns, clusters, run) {
    const named = ({ id, name, simulated }) => [
        id,
        `${isolated(name.slice(0, 80))} (${id}${simulated ? ", simulated" : ""})`,
    ];
    const offered = () => {
        const chosen = campaigns.find(({ id }) => id === campaign.element.value);
        return clusterOptions(chosen, clusters);
    };
    const campaign = select("Campaign", campaigns.map(named), () => {
        setQuery({ campaign: campaign.element.value });
        cluster.element.replaceChildren(...optionNodes(offered()));
    });
    const layouts = select("Layouts", [
        ["winner", "winner's shape"],
        ["best", "fastest in space"],
    ]);
    const sizes = h("input", { value: SIZES, "aria-describedby": DEVICES_ERROR });
    const error = h("span", { class: "field-error", role: "status", id: DEVICES_ERROR });
    const submit = h("button", { class: "primary" }, "Project");
    if (campaigns.some(({ id }) => id === ctx.query.campaign))
        campaign.element.value = ctx.query.campaign;
    const cluster = select("Cluster", offered());

    function read() {
        const devices = parseSizes(sizes.value);
        error.textContent = devices ? "" : "Enter whole numbers, such as 64, 128.";
        sizes.setAttribute("aria-invalid", String(!devices));
        const name = cluster.element.value;
        return (
            devices && {
                campaign: campaign.element.value,
                devices,
                layouts: layouts.element.value,
                ...(name && { cluster: name }),
            }
        );
    }

    const fields = [campaign.field, field("Devices", sizes, error), layouts.field, cluster.field];
    return submitForm("From a campaign's trials", fields, submit, () => run(read()));
}

/** What was measured, and what it says of the cost model. */
function sourceText({ base, calibration }) {
    const { trials, simulated, factor, lo, hi } = calibration;
    const where = `on ${counted(base.devices, "device")}, batch ${count(base.global_batch)}`;
    const which = simulated === trials ? "all" : count(simulated);
    const learned = `${counted(trials, "trial")}${simulated ? ` (${which} simulated)` : ""}`;
    const range = `${lo.toPrecision(3)} – ${hi.toPrecision(3)}`;
    return (
        `${spoken("Measured", base.simulated)}: ${rate(base.tokens_per_s)} ${where} (${base.text}). ` +
        `Calibrated on ${learned}: ${factor.toPrecision(3)} × the cost model's time (95 %: ${range}).`
    );
}

/** The answers of the service to both kinds of scaling, as nodes. */
function projectionView(ctx, strong, weak) {
    const moved = transferText({ ...strong, rows: [...strong.rows, ...weak.rows] });
    const charts = [throughput, efficiency].map((spec) => {
        const name = `${spec.name}-${strong.campaign}`;
        const chart = chartPanel(ctx, { ...spec, name, className: "w6" });
        chart.set({ strong, weak });
        return chart.element;
    });
    return [
        h(
            "p",
            { class: "sub", role: "status" },
            strong.simulated && [simulatedBadge(strong), " "],
            sourceText(strong),
        ),
        moved && notice("warn", h("p", {}, moved)),
        h("div", { class: "grid" }, charts),
        scalingPanel("strong", strong),
        h("br"),
        scalingPanel("weak", weak),
        h("br"),
        earlierPanel(strong.earlier),
    ];
}

function projection(ctx, campaigns, clusters) {
    if (!campaigns.length)
        return empty(
            "Nothing to project yet",
            h("p", {}, "A projection needs a campaign with a successful trial."),
            h("p", {}, h("a", { href: href(["new"]) }, "Start a campaign")),
        );
    const nothing = h("p", {}, "Strong and weak scaling, with intervals.");
    const result = h("div", { "aria-live": "polite" }, empty("No projection yet", nothing));
    const next = turns(ctx);

    async function run(body) {
        if (!body) return;
        const now = next();
        const ask = (scaling) => post("v1/project", { ...body, scaling }, { signal: now.signal });
        fill(result, loading("the projection"));
        try {
            const strong = await ask("strong");
            const weak = await ask("weak");
            now.simulated = strong.simulated;
            fill(result, projectionView(now, strong, weak));
        } catch (error) {
            if (!now.signal.aborted) fill(result, notice("bad", h("p", {}, explain(error))));
        }
    }
    return [projectionForm(ctx, campaigns, clusters, run), result];
}

const STUDY_COLUMNS = [
    ["Devices", 1],
    ["Layout", 0, "mono layout"],
    ["Tokens/s", 1],
    ["MFU", 1],
    ["MFU, published", 1],
    ["Efficiency", 1],
    ["Efficiency, published", 1],
    ["Rank of the published layout", 1],
];

/** "3 of 41,012": where the cost model ranks the published layout. */
const rankText = (layout) => (layout?.rank ? `${count(layout.rank)} of ${count(layout.of)}` : "–");

function studyPanel({ rows }) {
    const cells = (row) => [
        count(row.devices),
        row.text ?? row.reason ?? "",
        rateNumber(row.tokens_per_s),
        percent(row.mfu),
        percent(row.published?.mfu),
        percent(row.efficiency),
        percent(row.published?.efficiency),
        rankText(row.published_layout),
    ];
    return panel(
        "The model's best layouts",
        {},
        table("table of the study", STUDY_COLUMNS, rows.map(cells)),
    );
}

function studies(ctx, names) {
    const source = h("p", { class: "sub", role: "status" });
    const chart = chartPanel(ctx, study);
    const rows = h("div", {});
    chart.set({ study: null });
    const pick = select("Study", [["", "select …"], ...names.map((name) => [name, name])], load);

    async function load() {
        const name = pick.element.value;
        setQuery({ study: name || null });
        chart.set({ study: null });
        fill(rows);
        source.textContent = name ? "Ranking layouts …" : "";
        if (!name) return;
        try {
            const path = `v1/plan/examples/${encodeURIComponent(name)}`;
            const found = await get(path, null, ctx.signal);
            if (pick.element.value !== name) return;
            source.textContent = `${found.title}. Source: ${found.source}.`;
            chart.set({ study: found });
            fill(rows, studyPanel(found));
        } catch (error) {
            if (error.name !== "AbortError") source.textContent = explain(error);
        }
    }

    if (names.includes(ctx.query.study)) {
        pick.element.value = ctx.query.study;
        load();
    }
    return [
        h("h2", { class: "part" }, "Published studies, reproduced"),
        h("div", { class: "fields" }, pick.field),
        source,
        h("div", { class: "grid" }, chart.element, rows),
    ];
}

/** Campaigns to choose from, the newest first; the one that is ASKED for is among them, if it exists. */
async function campaignList(asked, signal) {
    const { items } = await get("v1/campaigns", { page_size: 200, sort: "-created" }, signal);
    if (!asked || items.some(({ id }) => id === asked)) return items;
    const found = await get(campaignPath(asked), null, signal).catch(() => null);
    return found ? [found, ...items] : items;
}

export async function render(ctx) {
    const [campaigns, clusters, examples] = await Promise.all([
        campaignList(ctx.query.campaign, ctx.signal),
        get("v1/presets/clusters", null, ctx.signal),
        get("v1/plan/examples", null, ctx.signal),
    ]);
    const names = clusters.items
        .map((item) => item.name ?? item)
        .filter((name) => name !== "local");
    ctx.title("Projection");
    fill(
        ctx.root,
        h("h1", {}, "Projection"),
        h(
            "p",
            { class: "sub" },
            "Trials at small scale calibrate the cost model, which projects to other sizes and machines.",
        ),
        projection(
            ctx,
            campaigns.filter(({ best }) => best),
            names.map((name) => [name, name]),
        ),
        studies(ctx, examples.items),
    );
}
