// Why a trial is faster or slower than the baseline: its seconds by changed key and by class.

import { h } from "../lib/dom.js";
import { ms, percent, NONE } from "../lib/format.js";
import { LAYOUT_KEYS, PHASES, PHASE_HELP } from "../lib/words.js";
import { panel, table } from "../parts/parts.js";
import { moreMs, shortMs } from "./trial-panels.js";

const MOST_CLASSES = 3;
const LEAST_S = 1e-5; // a hundredth of a millisecond: less is shown as 0
const known = (value) => value !== null && value !== undefined;
const difference = (from, to) => (known(from) && known(to) ? to - from : null);

/** 0.984 as "1.6 % slower" */
export function fasterText(ratio) {
    if (Math.abs(ratio - 1) < 5e-4) return "as fast";
    return ratio > 1 ? `${percent(ratio - 1)} faster` : `${percent(1 - ratio)} slower`;
}

/** A thousandth of the unit of WHY's seconds, which is that of the objective. */
const unitOf = ({ unit }) => ({ device_seconds: "device-ms", joules: "mJ" })[unit] ?? "ms";

/** The CLASSES that a key changed most: "tp −15.0, bubble +2.70"; "" if none did. */
export function mostlyText(classes) {
    return Object.entries(classes)
        .filter(([, seconds]) => Math.abs(seconds) >= LEAST_S)
        .sort(([, left], [, right]) => Math.abs(right) - Math.abs(left))
        .slice(0, MOST_CLASSES)
        .map(([name, seconds]) => `${name} ${moreMs(1e3 * seconds)}`)
        .join(", ");
}

/**
 * Rows of CLASSES in the order of phases, without those that take no time: [name, before, after, change, change of the
 * trials], in ms or null.
 */
export function classRows(classes) {
    const seen = ({ from_s: a, to_s: b, trial_from_s: c, trial_to_s: d }) =>
        Math.max(a, b, c, d) >= LEAST_S; // null counts as 0
    const place = ({ class: name }) => PHASES.indexOf(name);
    const inMs = (seconds) => (known(seconds) ? 1e3 * seconds : null);
    return classes
        .filter(seen)
        .sort((left, right) => place(left) - place(right))
        .map((row) => [
            row.class,
            inMs(row.from_s),
            inMs(row.to_s),
            inMs(difference(row.from_s, row.to_s)),
            inMs(difference(row.trial_from_s, row.trial_to_s)),
        ]);
}

function keyTable({ keys, unit }) {
    const shown = unitOf({ unit });
    const columns = [
        ["Changed key"],
        ["Baseline"],
        ["This trial"],
        [`Expected, ${shown}`, true],
        [`Mostly, ${shown}`],
    ];
    const rows = keys.map((key) => [
        h("span", { title: LAYOUT_KEYS[key.key] }, key.key, key.alone < 0.999 && " *"),
        String(key.from),
        String(key.to),
        `${moreMs(1e3 * key.change_s)} (${fasterText(key.ratio)})`,
        mostlyText(key.classes),
    ]);
    return table("seconds by changed key", columns, rows);
}

function classTable({ classes, unit }, how) {
    const shown = unitOf({ unit });
    const all = classRows(classes);
    const withTrials = all.some((row) => row[4] !== null);
    const columns = [
        ["Class"],
        [`Baseline, ${shown}`, true],
        [`This trial, ${shown}`, true],
        ["Expected change", true],
        withTrials && [`${how} change`, true],
    ].filter(Boolean);
    const cell = (value, text) => (value === null ? NONE : text(value));
    const rows = all.map(([name, from, to, change, seen]) =>
        [
            h("span", { title: PHASE_HELP[name] }, name),
            cell(from, shortMs),
            cell(to, shortMs),
            cell(change, moreMs),
            withTrials && cell(seen, moreMs),
        ].filter((text) => text !== false),
    );
    return table("seconds by class", columns, rows);
}

function step(how, { from_s: from, to_s: to, ratio }, unit) {
    const each = unit === "device_seconds";
    const faster = `${fasterText(ratio)}${each ? " per device" : ""}`;
    const took = `${ms(1e3 * to)}${each ? " of device time" : ""}`;
    return `${how}: ${faster}, a step takes ${took} instead of ${ms(1e3 * from)}.`;
}

/** What the two clusters have to do with it: where both ran, and one layout on both. */
function clusterText({ clusters, unit, against }) {
    const { from, to, same_layout: same, reason } = clusters;
    const where = `It ran on ${to}, the baseline on ${from}.`;
    if (!same) return `${where} How much of this the cluster brings cannot be told: ${reason}.`;
    const whose = same.trial === against ? "The baseline's layout" : "This layout";
    const room = same.fits ? "" : " It does not fit in the memory of both.";
    return `${where} ${step(`${whose} on ${to} instead of ${from}, expected`, same, unit)}${room}`;
}

const saying = (text) => panel("Compared with the baseline", {}, h("p", { class: "soft" }, text));

/** WHY, of the service, or {error: its reason for having none}, as a panel; nothing for the baseline itself. */
export function whyPanel(why) {
    if (why?.error) return saying(`No explanation: ${why.error}`);
    if (!why || why.trial === why.against) return null;
    if (why.keys.length === 0) return saying("Its layout is the baseline's.");
    const how = why.simulated ? "Simulated" : "Measured";
    const faster = (why.trials ?? why.predicted).ratio >= 1;
    const each = why.unit === "device_seconds" ? ", per device" : "";
    return panel(
        `Why it is ${faster ? "faster" : "slower"} than the baseline${each}`,
        {
            note: "The cost model's difference, shared among the changed keys (Shapley values: they add up to it).",
        },
        h(
            "p",
            {},
            why.trials && `${step(how, why.trials, why.unit)} `,
            step("Expected by the cost model", why.predicted, why.unit),
        ),
        why.clusters && h("p", {}, clusterText(why)),
        keyTable(why),
        why.keys.some((key) => key.alone < 0.999) &&
            h("p", { class: "soft" }, "* Shares an effect: some of the layouts in between are illegal."),
        classTable(why, how),
    );
}
