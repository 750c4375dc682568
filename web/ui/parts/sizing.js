// How many devices a job needs: the form and the answer of /v1/size.

import { h, whileBusy } from "../lib/dom.js";
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
    ["A further device", 1],
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

export function sizeForm(fields, run) {
    const submit = h("button", {}, "Compare sizes");
    const onsubmit = (event) => {
        event.preventDefault();
        whileBusy(submit, run);
    };
    const elements = fields.map((each) => each.element);
    return h(
        "form",
        { onsubmit },
        h(
            "fieldset",
            {},
            h("legend", {}, "Number of devices"),
            h("div", { class: "fields" }, elements),
            h("p", { class: "actions" }, submit),
        ),
    );
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
    if (fewest === null) return `${within}more devices than these.`;
    const slow = sure === null ? "more than these" : count(sure);
    return `${within}${count(fewest)} devices as expected, ${slow} at the slow end of the interval.`;
}

/** ANSWER of the service to ASKED as nodes. */
export function sizesView(answer, asked) {
    const said = [
        asked.days > 0 && fewestText(answer, asked),
        answer.pays !== null &&
            `Up to ${count(answer.pays)} devices a further one brings at least half of what the first ones do.`,
    ].filter(Boolean);
    return [
        said.length > 0 && notice("good", said.map((text) => h("p", {}, text))),
        panel(
            "Sizes",
            {
                note:
                    "The best layout of each number of devices, expected by the cost model. " +
                    "The intervals are those of a job without a trial.",
            },
            table("table of sizes", COLUMNS, answer.items.map(row)),
        ),
    ];
}
