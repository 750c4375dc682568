// Batch sizes, world sizes or clusters side by side, where there are several: each with its best layout, what a token
// costs there, and, of a campaign, what it took of the budget.

import { NONE, count, deviceTime, rate, rateNumber, ratio, significant } from "../lib/format.js";
import { h } from "../lib/dom.js";
import { href } from "../lib/router.js";
import { panel, table } from "./parts.js";

/** Device-seconds of a million tokens, of a layout with its tokens/s. */
export const costOf = ({ layout, tokens_per_s: speed }) => (1e6 * layout.world * (layout.threads ?? 1)) / speed;

/** What a campaign may list several of: the list of its resource, the layout key, and words for people. */
export const SLICES = [
    { list: "batches", key: "global_batch", title: "Global batch", each: "each batch size" },
    { list: "worlds", key: "world", title: "World", each: "each world size" },
    { list: "clusters", key: "cluster", title: "Cluster", each: "each cluster" },
];

/** SLICES that CAMPAIGN has several of. */
export const slicesOf = (campaign) => SLICES.filter(({ list }) => campaign?.[list]);

const SECONDS = [["Device-s per million tokens", 1, (row) => significant(row.device_s_per_mtoken)]];
const PER_DEVICE = [
    "Tokens/s per device",
    1,
    ({ best }) => rateNumber(best && best.tokens_per_s / best.devices),
];
const COST = ["Cost per million tokens", 1, ({ best }) => significant(best?.cost_per_mtok)];

/** Columns of what a token takes in ROWS: devices of different kinds are compared by speed and price. */
function tokenColumns(rows, key) {
    if (key !== "cluster") return SECONDS;
    const measured = rows.filter(({ best }) => best);
    const priced = measured.length > 0 && measured.every(({ best }) => best.cost_per_mtok !== null);
    return priced ? [PER_DEVICE, COST] : [PER_DEVICE];
}

const columnsOf = (rows, key) => [
    ["Tokens/s", 1],
    ...tokenColumns(rows, key).map(([head, right]) => [head, right]),
    ["Layout", 0, "mono layout"],
];
const SPENT = [
    ["vs baseline", 1],
    ["Trials", 1],
    ["Device time", 1],
];

/** A value of a slice's key: a name or a number. */
export const valueText = (value) => (typeof value === "string" ? value : count(value));

const cellsOf = (rows, row, key) => [
    valueText(row[key]),
    rateNumber(row.best?.tokens_per_s),
    ...tokenColumns(rows, key).map(([, , cell]) => cell(row)),
    row.best?.text ?? NONE,
];

/** BATCHES of a plan. LAST(row) gives the cell of the last column. */
export function batchTable(batches, last) {
    return table(
        "table of batch sizes",
        [["Global batch", 1], ...columnsOf(batches, "global_batch"), ["", 1]],
        batches.map((row) => [...cellsOf(batches, row, "global_batch"), last(row)]),
    );
}

/** "13 (93 %)" of ALL trials. */
function share(trials, all) {
    return all > 0 ? `${count(trials)} (${Math.round((100 * trials) / all)} %)` : count(trials);
}

/** ROWS of CAMPAIGN, its list of SLICE: the best of each, and what each took of the budget. */
function sliceTable({ id, simulated, progress }, rows, { key, title, each }) {
    const link = ({ trial }) =>
        h("a", { href: href(["campaigns", id, "trials", trial]) }, `trial ${trial}`);
    return table(
        `table of ${each.replace("each ", "")}s`,
        [[title, key === "cluster" ? 0 : 1], ...columnsOf(rows, key), ...SPENT, ["", 1]],
        rows.map((row) => [
            ...cellsOf(rows, row, key),
            ratio(row.best?.ratio),
            share(row.trials, progress?.trials),
            simulated ? NONE : deviceTime(row.device_s),
            row.best ? link(row.best) : "none yet",
        ]),
    );
}

/** A panel for each of the SLICES that CAMPAIGN has several of. */
export function slicePanels(campaign) {
    return slicesOf(campaign).flatMap((slice) => [
        panel(
            `Best of ${slice.each}`,
            { note: campaign.simulated ? "Simulated." : "" },
            sliceTable(campaign, campaign[slice.list], slice),
        ),
        h("br"),
    ]);
}

/** The best of CAMPAIGN at VALUE of a slice: where it has no other value, its best. */
function bestAt(campaign, { list, key }, value) {
    if (campaign[list]) return campaign[list].find((row) => row[key] === value)?.best ?? null;
    const only = campaign.best?.layout?.[key] ?? campaign.workload?.[key] ?? campaign[key]?.name;
    return only === value ? campaign.best : null;
}

/** For each value of a slice that one of CAMPAIGNS has several of: [title, [tokens/s of the best of each campaign]]. */
export function sliceRows(campaigns) {
    return SLICES.flatMap((slice) => {
        const { list, key, title } = slice;
        const values = new Set(campaigns.flatMap((each) => (each[list] ?? []).map((row) => row[key])));
        return [...values].map((value) => [
            `Best at ${title.toLowerCase()} ${value}`,
            campaigns.map((each) => rate(bestAt(each, slice, value)?.tokens_per_s)),
        ]);
    });
}
