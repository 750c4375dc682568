// What the plan's page asks for and what it derives from the answer.

import { count, percent } from "../lib/format.js";
import { session } from "../lib/store.js";

const KEEP = "partune-plan";

/** The job that was planned last in this tab, or one to start from. LIST has the names that the service offers. */
export function firstJob(list) {
    const kept = JSON.parse(session.get(KEEP) ?? "null");
    return (
        kept ?? {
            model: list.models.includes("gpt-22B") ? "gpt-22B" : list.models[0],
            cluster: list.clusters.includes("dgx-a100")
                ? { profile: "dgx-a100", nodes: 8 }
                : "local",
            workload: { global_batch: 128 },
            trainer: "megatron",
            top: 30,
        }
    );
}

export function keepJob(job) {
    session.set(KEEP, JSON.stringify(job));
}

/** What the service is asked about the numbers of devices of JOB; ASKED are devices, tokens, days and price. */
export function sizingOf(job, asked) {
    const body = { ...job, ...asked };
    delete body.top;
    delete body.fold;
    return body;
}

/** A campaign of JOB, whose baseline is the layout of ITEM where there is one. */
export function campaignOf(job, item) {
    const model = typeof job.model === "string" ? job.model : (job.model?.name ?? "model");
    return {
        name: `${model} from plan`,
        model: job.model,
        cluster: job.cluster,
        workload: job.workload,
        ...(job.space && { space: job.space }),
        ...(job.trainer && { trainer: job.trainer }),
        ...(job.stack && { stack: job.stack }),
        ...(item && { baseline: item.layout }),
    };
}

/** "+ 15, down to −8.3 %": the other layouts of the item's family. */
export function variantsText({ variants, tokens_per_s: best }) {
    if (!variants?.count) return "";
    return `+ ${count(variants.count)}, down to ${percent(variants.worst / best - 1)}`;
}

/** What the list does not have a line for. */
export function leftOut(items) {
    const equivalents = items.reduce((sum, item) => sum + (item.equivalents ?? 0), 0);
    return [
        items.some((item) => item.variants) &&
            "The best layout of each family. Variants differ in zero_scope and flags (sp, overlap).",
        equivalents > 0 &&
            `${count(equivalents)} equivalent layouts (same time and memory as a listed one) are hidden.`,
    ]
        .filter(Boolean)
        .join(" ");
}

/** Of what an excluded number of layouts is a share: memory excludes legal ones, a rule excludes combinations. */
export function excludedShare({ rule, count: excluded }, { legal, candidates }) {
    return rule === "memory"
        ? `${percent(excluded / legal)} of legal layouts`
        : percent(excluded / candidates);
}

/** Milliseconds of a step of ITEM. */
export function stepMs({ seconds }) {
    if (seconds?.total !== undefined) return seconds.total * 1000;
    const parts = Object.values(seconds ?? {});
    return parts.length ? parts.reduce((sum, part) => sum + part, 0) * 1000 : null;
}

/** What ITEMS of a plan are as bars of a chart, PART being "seconds" or "memory". */
export const barsOf = (items, part) => ({
    bars: items.map((item, i) => ({
        name: item.text,
        title: `#${i + 1} ${item.text}`,
        label: `#${i + 1}`,
        parts: item[part],
    })),
});
