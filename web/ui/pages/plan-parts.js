// A plan on a cluster of two parts: which part has which stages, whether both are faster than either, and what a
// campaign, which runs on one cluster, can do with that.

import { h } from "../lib/dom.js";
import { NONE, count, counted, rate, ratio, rateNumber, significant } from "../lib/format.js";
import { button, notice, panel, table } from "../parts/parts.js";

/** Where the stages of ITEM lie, in their order: "dgx-a100: 1 stage, 9 layers → dgx-h100: 1 stage, 23 layers". */
export const placementText = ({ placement }) =>
    (placement ?? [])
        .map(({ name, stages, layers }) => `${name}: ${counted(stages, "stage")}, ${counted(layers, "layer")}`)
        .join(" → ");

/** The link between the parts, and whose choice it is. */
function betweenText({ between, between_given: given }) {
    const link = `${significant(between.gbs)} GB/s per device between the parts`;
    return given
        ? `${link}, as the cluster says.`
        : `${link}: the slower of their networks, since the cluster has no "between".`;
}

/** First of ITEMS: its stages on each part. */
function placementTable([first]) {
    return table(
        "table of stages on each part",
        [["Part, in order of the stages"], ["Stages", 1], ["Layers", 1], ["Devices", 1]],
        first.placement.map(({ name, stages, layers, devices }) => [
            name,
            count(stages),
            count(layers),
            count(devices),
        ]),
    );
}

/** How fast each part is without the other. START(item, index) begins a campaign on that part. */
function aloneTable({ alone, items }, start) {
    const both = items?.[0]?.tokens_per_s;
    return table(
        "table of each part alone",
        [
            ["Part"],
            ["Devices", 1],
            ["Expected tokens/s", 1],
            ["Both parts", 1],
            ["Layout", 0, "mono layout"],
            ["Campaign", 1],
        ],
        alone.map(({ name, devices, best, reason }, i) => [
            name,
            count(devices),
            rateNumber(best?.tokens_per_s),
            best && both ? ratio(both / best.tokens_per_s) : NONE,
            best?.text ?? reason ?? NONE,
            best ? button("Use as baseline", () => start(best, i), "quiet") : "",
        ]),
    );
}

/** Two jobs instead of one: "Two jobs, one on each part: 110,203 tokens/s, 1.10 × that of one job over both." */
export function twoJobsText({ alone, items }) {
    const rates = alone.map(({ best }) => best?.tokens_per_s);
    const both = items?.[0]?.tokens_per_s;
    if (!both || !rates.every(Boolean)) return "";
    const sum = rates.reduce((all, speed) => all + speed, 0);
    return `Two jobs, one on each part: ${rate(sum)} together, ${ratio(sum / both)} that of one job over both.`;
}

/** What ANSWER says of a cluster of parts; null of any other. START as for aloneTable(). */
export function partsPanels(answer, start) {
    if (!answer.alone) return null;
    return [
        notice(
            "info",
            "A campaign runs on one cluster: layouts over both parts are planned only. Use a part's own layout below " +
                "to tune that part.",
        ),
        answer.items?.length
            ? [
                  panel(
                      "Stages of the fastest layout",
                      { note: betweenText(answer.cluster) },
                      placementTable(answer.items),
                  ),
                  h("br"),
              ]
            : null,
        panel(
            "Each part alone",
            {
                note: `Both parts: how many times as fast the fastest layout over both is. ${twoJobsText(answer)}`,
            },
            aloneTable(answer, start),
        ),
        h("br"),
    ];
}
