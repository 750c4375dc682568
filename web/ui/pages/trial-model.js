// What the page of one trial knows: the trial, its campaign, the best trial, its steps and its trace.

import { campaignPath, get, trialPath } from "../lib/api.js";
import { count, counted, interval, rate } from "../lib/format.js";
import { LIVE_TRIAL, PHASES, ordered } from "../lib/words.js";
import { thin } from "../charts/thin.js";

const KEEP_STEPS = 2000;

/**
 * The steps of a trial in order, without doubles. A long one is thinned to KEEP_STEPS, the shortest and the longest of
 * every run kept, so that a page which is watched for days stays as large as it is.
 */
export function stepStore() {
    let byN = new Map();
    let thinned = false;
    const inOrder = () => [...byN.values()].sort((a, b) => a.n - b.n);
    return {
        put(items) {
            for (const step of items) byN.set(step.n, step);
            if (byN.size <= 2 * KEEP_STEPS) return;
            const kept = thin(inOrder(), KEEP_STEPS, (step) => step.ms);
            byN = new Map(kept.map((step) => [step.n, step]));
            thinned = true;
        },
        clear() {
            byN.clear();
            thinned = false;
        },
        thinned: () => thinned,
        all: inOrder,
    };
}

/** The number of the newest trial of campaign ID; null where it cannot be had. */
export async function newestTrial(id, signal) {
    try {
        const query = { sort: "-n", page_size: 1 };
        const page = await get(campaignPath(id, "/trials"), query, signal);
        return page.items[0]?.n ?? null;
    } catch {
        return null;
    }
}

/**
 * The model of the trial that the address calls NUMBER, of campaign ID: {id, n, campaign, trial, last, best, why,
 * trace, steps}. last is the number of the campaign's newest trial (where it cannot be had, the way to the next one
 * opens with the next one's event), best the campaign's best trial where that is another one, why what the service
 * says of it against the baseline, trace the timeline once it has come.
 */
export async function loadTrial(id, number, signal) {
    const [campaign, trial, newest] = await Promise.all([
        get(campaignPath(id), null, signal),
        get(trialPath(id, number), null, signal),
        newestTrial(id, signal),
    ]);
    const last = newest ?? trial.n;
    const later = { best: null, why: null, trace: null };
    return { id, n: trial.n, campaign, trial, last, ...later, steps: stepStore() };
}

/** Did TRIAL run a smaller problem? Then its measurements are of that run, and its layout has none. */
export const isSmaller = (trial) => Boolean(trial.run);

/** What has TRIAL's measurements, and the layout that ran: a smaller trial's run, else the trial. */
export const ranOf = (trial) => (trial.run ? { ...trial, ...trial.run } : trial);

/** What a smaller trial ran, of WORLD devices: "2 layers, global batch 4, 1 of 32 devices". */
export function ranText({ run, layout }) {
    const whole = layout?.world ? ` of ${count(layout.world * (layout.threads ?? 1))}` : "";
    const work = `${counted(run.layers, "layer")}, global batch ${count(run.global_batch)}`;
    return `${work}, ${count(run.devices)}${whole} devices`;
}

/** What smaller trials let expect of a layout: "1,234 tokens/s, 95 %: 1,100 – 1,300"; null: nothing yet. */
export const inferredText = ({ inferred }) =>
    inferred && `${rate(inferred.tokens_per_s)}, 95 %: ${interval(inferred.lo, inferred.hi)}`;

export const isLive = (trial) => LIVE_TRIAL.has(trial.state);

/** Bytes by class; of a simulated trial what was planned, which is all that it has. */
export const memoryOf = (trial) =>
    trial.simulated ? trial.memory?.planned : trial.memory?.measured;

/** What a trial is compared with: it changes when another one is the best, or the baseline was measured again. */
export const standing = (campaign) => `${campaign.best?.trial} ${campaign.baseline?.tokens_per_s}`;

const sumOf = (phases) => Object.values(phases ?? {}).reduce((sum, value) => sum + (value ?? 0), 0);

/**
 * Where the time of a step went: {rows: [{phase, mine, theirs, share}], total: {mine, theirs}} in milliseconds, THEIRS
 * being the phases of another trial, or null. Phases that neither has are left out.
 */
export function phaseRows(mine, theirs) {
    const known = (phases, name) => (phases?.[name] ?? null) !== null;
    const names = ordered({ ...mine, ...theirs }, PHASES).filter(
        (name) => known(mine, name) || known(theirs, name),
    );
    const total = { mine: sumOf(mine), theirs: sumOf(theirs) };
    const rows = names.map((phase) => ({
        phase,
        mine: mine[phase] ?? 0,
        theirs: theirs?.[phase] ?? 0,
        share: total.mine ? (mine[phase] ?? 0) / total.mine : null,
    }));
    return { rows, total };
}
