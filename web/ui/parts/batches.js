// Batch sizes side by side, where a workload has several: each with its best layout, and what a token costs there.

import { NONE, count, rateNumber, significant } from "../lib/format.js";
import { table } from "./parts.js";

/** Device-seconds of a million tokens, of a layout with its tokens/s. */
export const costOf = ({ layout, tokens_per_s: speed }) => (1e6 * layout.world * (layout.threads ?? 1)) / speed;

/** BATCHES of a plan or a campaign. LAST(row) gives the cells of the last column. */
export function batchTable(batches, last) {
    return table(
        "table of batch sizes",
        [
            ["Global batch", 1],
            ["Tokens/s", 1],
            ["Device-s per million tokens", 1],
            ["Layout", 0, "mono layout"],
            ["", 1],
        ],
        batches.map((row) => [
            count(row.global_batch),
            rateNumber(row.best?.tokens_per_s),
            significant(row.device_s_per_mtoken),
            row.best?.text ?? NONE,
            ...last(row),
        ]),
    );
}
