// The columns of the table of trials, and which of them a person has chosen.

import { h } from "../lib/dom.js";
import {
    NONE,
    bytes,
    count,
    deviceTime,
    ms,
    percent,
    plusMinus,
    ratio,
    rateNumber,
    seconds,
    significant,
} from "../lib/format.js";
import { gainOf } from "../lib/objective.js";
import { href } from "../lib/router.js";
import { local } from "../lib/store.js";
import { KINDS } from "../lib/words.js";
import { trialBadge } from "../parts/parts.js";
import { slicesOf, valueText } from "../parts/slices.js";
import { inferredText, isSmaller, memoryOf, ranOf, ranText } from "./trial-model.js";

const CHOSEN = "partune-trial-columns";
const FIRST_CHOICE = ["kind", "step", "mfu", "memory", "expected", "seconds", "compare"];
const Z95 = 1.959964;

function stateCell(trial, best) {
    const trouble = trial.failure?.detail ?? trial.warning;
    return [
        trialBadge(trial.state),
        trial.n === best && [" ", h("span", { class: "badge good" }, "★ best")],
        trouble &&
            h("div", { class: "soft detail", title: trial.warning ?? null }, trouble.slice(0, 160)),
    ];
}

/** Of a smaller trial what it lets expect of the layout, which is no measurement. */
function inferredCell(trial) {
    const title = inferredText(trial) ?? "nothing is inferred from it yet";
    const speed = trial.inferred ? `~ ${rateNumber(trial.inferred.tokens_per_s)}` : NONE;
    return h("span", { title }, speed, h("span", { class: "soft" }, " inferred"));
}

function speedCell(trial) {
    const { tokens_per_s: speed, tokens_per_s_se: error } = trial;
    if (isSmaller(trial)) return inferredCell(trial);
    const range = speed && error ? ` ${plusMinus(Z95 * error, speed)}` : null;
    return [rateNumber(speed), range && h("span", { class: "soft" }, range)];
}

function kindCell({ kind, repeat_of: first }) {
    return h("span", { title: KINDS[kind] ?? "" }, kind, first ? ` of ${first}` : "");
}

function layoutCell(trial) {
    const text = h("span", { class: "mono name" }, trial.text ?? NONE);
    return isSmaller(trial) ? [text, h("div", { class: "soft" }, ranText(trial))] : text;
}

/** Of a campaign with several batch sizes, world sizes or clusters: which of them a trial is of. */
const sliceColumn = ({ key, title }) => ({
    key: `slice-${key}`,
    title,
    num: key !== "cluster",
    cell: ({ layout }) => valueText(layout?.[key]),
});

/** What every table has: which trial, how it ended, how fast it was. */
function mainColumns(campaign) {
    const speedup = ({ tokens_per_s: speed, inferred, layout, tokens_per_joule: efficiency }) => {
        const gain = gainOf(campaign(), inferred?.tokens_per_s ?? speed, layout, efficiency);
        return `${inferred && gain ? "~ " : ""}${ratio(gain)}`;
    };
    const link = (trial) => {
        const address = ["campaigns", trial.campaign ?? campaign().id, "trials", trial.n];
        return h("a", { href: href(address) }, String(trial.n));
    };
    return [
        { key: "n", title: "Trial", sort: "n", num: true, cell: link },
        {
            key: "layout",
            title: "Layout",
            plain: true,
            cell: layoutCell,
        },
        ...slicesOf(campaign()).map(sliceColumn),
        {
            key: "state",
            title: "State",
            sort: "state",
            plain: true,
            cell: (trial) => stateCell(trial, campaign().best?.trial),
        },
        {
            key: "tokens",
            title: campaign().simulated ? "Simulated tokens/s" : "Tokens/s",
            sort: "tokens_per_s",
            num: true,
            cell: speedCell,
        },
        { key: "ratio", title: "vs baseline", num: true, cell: speedup },
    ];
}

/** Numbers of a trial that may be chosen: [key, title, cell, more]. */
const OPTIONAL = [
    ["kind", "Kind", kindCell, { num: false, fixed: true }],
    ["step", "Step", (trial) => ms(ranOf(trial).step_ms?.median)],
    ["mfu", "MFU", (trial) => percent(ranOf(trial).mfu)],
    [
        "memory",
        "Memory",
        (trial) => bytes(memoryOf(ranOf(trial))?.total),
        { sort: "memory", help: "of the worst rank" },
    ],
    ["expected", "Expected tokens/s", (trial) => rateNumber(trial.predicted?.tokens_per_s)],
    ["fits", "P(fits)", (trial) => percent(trial.predicted?.p_fits, 0)],
    ["loss", "Loss, nats", (trial) => ranOf(trial).loss?.last?.toFixed(3) ?? NONE],
    [
        "energy",
        "Tokens/J",
        (trial) => significant(ranOf(trial).tokens_per_joule),
        { help: "where the trainer measures energy" },
    ],
    ["attempts", "Attempts", (trial) => String(trial.attempts ?? NONE)],
    ["seconds", "Duration", (trial) => seconds(trial.seconds)],
    ["devices", "Devices", (trial) => count(trial.devices)],
    ["cost", "Cost", (trial) => (trial.simulated ? NONE : deviceTime(trial.device_s))],
    ["why", "Reason", (trial) => trial.why ?? NONE, { num: false, wide: true }],
];

function compareColumn(picked) {
    const box = ({ n }) =>
        h("input", {
            type: "checkbox",
            "aria-label": `compare trial ${n}`,
            checked: picked.has(n),
            onchange: (event) => picked.set(n, event.target.checked),
        });
    return { key: "compare", title: "Compare", optional: true, cell: box };
}

/** Columns for listTable(). CAMPAIGN() is the campaign as it is now; PICKED has the trials that are to be compared. */
export function trialColumns(campaign, picked) {
    const optional = ([key, title, cell, more]) => ({
        key,
        title,
        cell,
        optional: true,
        num: true,
        ...more,
    });
    return [...mainColumns(campaign), ...OPTIONAL.map(optional), compareColumn(picked)];
}

/** Keys of the optional columns that are shown. */
export function chosenColumns() {
    const kept = local.get(CHOSEN);
    return new Set(kept === null ? FIRST_CHOICE : kept.split(" "));
}

/** A box for each optional column. ON_CHANGE(keys) is told of a choice, which is kept. */
export function columnChooser(columns, chosen, onChange) {
    const box = ({ key, title }) => {
        const choose = (event) => {
            if (event.target.checked) chosen.add(key);
            else chosen.delete(key);
            local.set(CHOSEN, [...chosen].join(" "));
            onChange([...chosen]);
        };
        const input = h("input", { type: "checkbox", checked: chosen.has(key), onchange: choose });
        return h("label", {}, input, title);
    };
    const boxes = columns.filter(({ optional }) => optional).map(box);
    return h(
        "details",
        {},
        h("summary", { class: "soft" }, "Columns"),
        h("div", { class: "filters" }, boxes),
    );
}
