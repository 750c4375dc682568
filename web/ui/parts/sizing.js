// How many devices a job needs: the form and the answer of /v1/size.

import { h } from "../lib/dom.js";
import { NONE, bytes, count, interval, percent, rateNumber, significant } from "../lib/format.js";
import { boundField } from "./job.js";
import { notice, panel, table } from "./parts.js";

const COLUMNS = [
    ["Devices", 1],
    ["Layout", 0, "mono layout"],
    ["Expected tokens/s", 1],
    ["95 % interval"],
    ["MFU", 1],
    ["Efficiency", 1],
    ["Marginal efficiency", 1],
    ["Memory, worst rank", 1],
    ["Days", 1],
    ["95 % interval"],
    ["Device-hours", 1],
    ["Cost", 1],
];

/** Fields of what the sizes are asked for; EDIT(pointer, value) as in job.js. */
export function sizeFields(edit) {
    const bound = (pointer, title, more) =>
        boundField(pointer, { title, type: "number", ...more }, edit);
    return [
        bound("/devices", "Devices", {
            type: "numbers",
            placeholder: "1, 2, 4, … nodes",
            help: "ascending multiples of a node's devices",
        }),
        bound("/tokens", "Tokens to train on", { placeholder: "15e12" }),
        bound("/days", "Days", { placeholder: "no deadline" }),
        bound("/price", "Price of a device-hour"),
    ];
}

const days = (value) => (value >= 10 ? count(Math.round(value)) : significant(value, 2));
const known = (value, show) => (value === null ? NONE : show(value));

function row(item) {
    if (item.layout === null)
        return [count(item.devices), item.reason, ...COLUMNS.slice(2).map(() => NONE)];
    return [
        count(item.devices),
        item.text,
        rateNumber(item.tokens_per_s),
        interval(item.lo, item.hi),
        percent(item.mfu),
        percent(item.efficiency, 0),
        percent(item.marginal, 0),
        bytes(item.memory_bytes),
        known(item.days, days),
        known(item.days, () => `${days(item.days_lo)} to ${days(item.days_hi)}`),
        known(item.device_hours, (value) => count(Math.round(value))),
        known(item.cost, (value) => count(Math.round(value))),
    ];
}

function fewestText({ fewest, fewest_sure: sure }, asked) {
    const within = `In ${asked.days} days: `;
    if (fewest === null) return `${within}more devices than listed.`;
    const slow = sure === null ? "more than listed" : count(sure);
    return `${within}${count(fewest)} devices expected, ${slow} at the slow end of the interval.`;
}

/** Up to which size further devices pay; nothing where there is none to compare with. */
function paysText({ items, pays }) {
    const fitting = items.filter((item) => item.layout !== null);
    if (pays === null) return null;
    return pays === fitting.at(-1).devices
        ? `Up to ${count(pays)} devices, each added device brings at least half the tokens/s of the first ones.`
        : `Beyond ${count(pays)} devices, each added device brings less than half the tokens/s of the first ones.`;
}

const NOTE =
    "The best layout at each device count, expected by the cost model. " +
    "The intervals are those of a job without a trial.";
const IN_PART =
    " Some spaces were only partly evaluated within the time limit: those sizes may have faster layouts.";

/** ANSWER of the service to ASKED as nodes. */
export function sizesView(answer, asked) {
    const said = [asked.days > 0 && fewestText(answer, asked), paysText(answer)].filter(Boolean);
    const tone = asked.days > 0 && answer.fewest === null ? "warn" : "good";
    const whole = answer.items.every((item) => item.exact);
    return [
        said.length > 0 &&
            notice(
                tone,
                said.map((text) => h("p", {}, text)),
            ),
        panel(
            "Sizes",
            { note: whole ? NOTE : NOTE + IN_PART },
            table("table of sizes", COLUMNS, answer.items.map(row)),
        ),
    ];
}
