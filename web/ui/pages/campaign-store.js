// What a campaign's page knows: the campaign, and every trial of it.

import { atMostEvery } from "../lib/dom.js";
import { count, counts } from "../lib/format.js";
import { memoryOf } from "./trial-model.js";

const DRAW_MS = 250;
const FILLING_MS = 1500; // while many trials come
const MANY = 2000;

const briefRun = ({ layers, global_batch, devices, tokens_per_s }) => ({
    layers,
    global_batch,
    devices,
    tokens_per_s,
});

/** What charts need of a trial: ten thousand whole ones would be a lot of memory. */
function brief(trial) {
    const known = (value) => value ?? null;
    return {
        n: trial.n,
        kind: trial.kind,
        state: trial.state,
        repeat_of: known(trial.repeat_of),
        text: trial.text,
        why: trial.why,
        layout: trial.layout,
        tokens_per_s: known(trial.tokens_per_s),
        tokens_per_s_se: known(trial.tokens_per_s_se),
        predicted: trial.predicted,
        mfu: known(trial.mfu),
        seconds: known(trial.seconds),
        measured_bytes: known(memoryOf(trial)?.total),
        planned_bytes: known(trial.memory?.planned?.total),
        started: trial.started,
        ended: trial.ended,
        failure: known(trial.failure),
        run: trial.run ? briefRun(trial.run) : null,
        inferred: known(trial.inferred),
        devices: known(trial.devices),
        device_s: known(trial.device_s),
    };
}

/** Every trial by its number, and who wants to know of changes. */
export function trialStore() {
    const byN = new Map();
    const heard = new Set(); // of which an event has spoken since the pages of all trials were asked for
    const readers = new Set();
    let sorted = null;
    let filling = false;
    const tell = () => readers.forEach((fn) => fn());
    const soon = atMostEvery(DRAW_MS, tell);
    const later = atMostEvery(FILLING_MS, tell);
    // Drawing thousands of points takes as long as fetching them: while they come, seldom is often enough.
    const changed = () => (byN.size > MANY && filling ? later() : soon());

    function put(items) {
        for (const trial of items) byN.set(trial.n, brief(trial));
        sorted = null;
        changed();
    }
    return {
        /** What an event says, which is newer than any page that is under way. */
        hear(trial) {
            heard.add(trial.n);
            put([trial]);
        },
        page: (items) => put(items.filter((trial) => !heard.has(trial.n))),
        filling(on) {
            filling = on;
            heard.clear();
            if (!on) soon();
        },
        get: (n) => byN.get(n),
        all() {
            sorted ??= [...byN.values()].sort((a, b) => a.n - b.n);
            return sorted;
        },
        onChange: (fn) => readers.add(fn),
    };
}

/** What informs the search besides its own trials. */
export function warmText(warm) {
    if (!warm) return "";
    const simulated = warm.simulated ? `, ${count(warm.simulated)} of them simulated` : "";
    return `informed by ${count(warm.trials)} trials of earlier campaigns${simulated}`;
}

function clusterText(cluster) {
    if (Array.isArray(cluster)) return `clusters ${cluster.map(({ name }) => name).join(", ")}`;
    const { name, nodes, devices_per_node: perNode } = cluster ?? {};
    if (!name) return "";
    const devices = nodes && perNode ? nodes * perNode : null;
    if (!devices) return `cluster ${name}`;
    return `cluster ${name} (${devices === 1 ? "1 device" : `${count(devices)} devices`})`;
}

/** "model mixtral-tiny · cluster local (2 devices) · 32 sequences per step" */
export function jobText({ model, cluster, workload, trainer, space }) {
    return [
        model?.name && `model ${model.name}`,
        clusterText(cluster),
        workload?.global_batch && `${counts(workload.global_batch)} sequences per step`,
        workload?.data && `data ${workload.data}`,
        trainer && `trainer ${trainer}`,
        space?.legal !== undefined && `${count(space.legal)} legal layouts`,
    ]
        .filter(Boolean)
        .join(" · ");
}
