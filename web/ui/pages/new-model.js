// What the form of a new campaign starts from, asks and sends.

import { campaignPath, get, post } from "../lib/api.js";
import { takeDraft } from "../parts/job.js";

function starting(list) {
    return {
        name: "my-campaign",
        model: list.models.includes("tiny-moe") ? "tiny-moe" : list.models[0],
        cluster: "local",
        workload: {
            global_batch: 16,
            data: list.datasets.find((name) => name !== "synthetic") ?? "synthetic",
        },
        budget: { trials: 16 },
    };
}

/**
 * The campaign that the form opens with: that of the address's "from", one that another page handed over, or an
 * example.
 */
export async function firstSpec(ctx, list) {
    if (ctx.query.from) {
        const campaign = await get(campaignPath(ctx.query.from), null, ctx.signal);
        return { ...campaign.spec, name: `${campaign.name.slice(0, 100)} again` };
    }
    const draft = takeDraft();
    return draft ? { ...starting(list), ...draft } : starting(list);
}

/** What the service makes of SPEC, without starting it. */
export function dryRun(spec, signal) {
    return post("v1/campaigns", spec, { query: { dry_run: "true" }, signal });
}

/** Legality, memory and cost of the baseline's LAYOUT. */
export function checkLayout(spec, layout, signal) {
    const { model, cluster, workload, trainer, stack } = spec;
    return post(
        "v1/check",
        {
            model,
            ...(cluster !== undefined && { cluster }),
            workload,
            layout,
            ...(trainer !== undefined && { trainer }),
            ...(stack !== undefined && { stack }),
        },
        { signal },
    );
}

/** The main keys of a layout, where the service gives no text of it. */
export function layoutText(layout) {
    const keys = layout?.layout ?? layout ?? {};
    return ["world", "tp", "pp", "ep", "dp", "micro_batch", "global_batch", "zero"]
        .filter((key) => keys[key] !== undefined)
        .map((key) => `${key} ${keys[key]}`)
        .join(", ");
}

// FNV-1a, 32 bits.
function hash(text) {
    let sum = 0x811c9dc5;
    for (let i = 0; i < text.length; i++)
        sum = Math.imul(sum ^ text.charCodeAt(i), 0x01000193) >>> 0;
    return sum.toString(16);
}

/** Sends specs: the same one sent twice has the same key and starts one campaign, a changed one has another. */
export function sender() {
    let stem = crypto.randomUUID?.() ?? String(Math.random());
    return async (spec) => {
        const key = `${stem}-${hash(JSON.stringify(spec))}`;
        const campaign = await post("v1/campaigns", spec, { key });
        stem = "";
        return campaign;
    };
}
