// What the words of the service mean, for people. A state is never told by color alone: it has a sign and a name.

export { FAILED_TRIAL, LIVE_TRIAL, STOPPED_TRIAL, TRIAL_STATES } from "./trial-states.js";

/** Said of every result of a simulated campaign: the badge, and what it means. */
export const SIMULATED = [
    "simulated",
    "no training job ran: every number comes from the simulator",
];

/**
 * TEXT of a page or a chart as it is for a SIMULATED campaign, of which nothing was measured. Charts and tiles are
 * written for real campaigns; all that they say goes through here.
 */
export function spoken(text, simulated) {
    if (!simulated || typeof text !== "string") return text;
    if (text === "tokens/s") return "simulated tokens/s";
    return text.replace(/\b(m)easured\b/gi, (_, m) => (m === "M" ? "Simulated" : "simulated"));
}

export const CAMPAIGN_STATES = {
    running: ["◑", "run", "running trials"],
    paused: ["‖", "warn", "running trials finish, no new ones start"],
    verifying: ["◔", "run", "re-running winner and baseline, interleaved"],
    done: ["✓", "good", "search finished"],
    cancelled: ["–", "wait", "cancelled"],
    failed: ["✕", "bad", "cannot continue"],
};

const REASONS = {
    budget: "budget spent",
    exhausted: "every layout tried",
    converged: "no better layout expected",
};

/** Why a campaign is in the state that it is in. */
export const reasonText = (reason) => REASONS[reason] ?? reason ?? "";

export const KINDS = {
    baseline: "what the winner is compared with",
    search: "proposed by the search",
    repeat: "repeat of a layout",
    verify: "re-run of winner or baseline after the search",
};

export const BASELINE_RULES = {
    default: "default rule",
    naive: "naive rule: largest data parallelism",
    given: "the campaign's own layout",
};

export { LAYOUT_KEYS, WORD_ORDER } from "./layout-keys.js";

export const PHASES = [
    "forward",
    "backward",
    "recompute",
    "tp",
    "cp",
    "ep",
    "pp_wait",
    "pp",
    "bubble",
    "dp",
    "optimizer",
    "other",
];

/** The same phase has the same color in every chart: its place in the series of COUNT colors. */
export function phaseColor(name, count) {
    const at = COLORED.indexOf(name === "cp" ? "ep" : name);
    return (at >= 0 ? at : COLORED.length) % count;
}

// Those that occur together come first, so that no two of them share a color. There are eight: cp
// has that of ep, for a model with experts seldom has sequences that are long enough.
const COLORED = ["forward", "backward", "tp", "ep", "dp", "pp_wait", "optimizer", "other"];

export const PHASE_HELP = {
    forward: "forward pass",
    backward: "backward pass",
    recompute: "recomputed forward pass",
    tp: "waiting for tensor-parallel collectives",
    cp: "waiting for context-parallel exchange",
    ep: "waiting for expert all-to-all",
    pp_wait: "waiting for the neighboring stage",
    pp: "sending between stages",
    bubble: "pipeline bubble",
    dp: "waiting for gradient reduction",
    optimizer: "optimizer step",
    other: "everything else",
};

/** What the memory of a rank holds, by class; plan/memory.c has the same names. */
export const MEMORY_HELP = {
    weights: "weights in the compute precision",
    gradients: "gradients of the weights",
    master: "master weights in fp32",
    optimizer: "optimizer state: moments of Adam or momentum",
    activations: "activations kept for the backward pass",
    comm: "communication buffers",
    logits: "logits and their gradients",
    workspace: "scratch memory; on a GPU also device context and fragmentation",
    snapshot: "copy of what asynchronous checkpoints save",
    context: "the driver's context on a GPU, as calibration measured it",
    library: "what the GPU's libraries and code take, as calibration measured it",
    nccl: "NCCL's buffers, as calibration measured them",
};
export const MEMORY_CLASSES = Object.keys(MEMORY_HELP);

/** Keys of OBJECT, those of ORDER first and in its order, others behind. */
export function ordered(object, order) {
    const keys = Object.keys(object ?? {});
    const place = (k) => (order.includes(k) ? order.indexOf(k) : order.length);
    return keys.sort((a, b) => place(a) - place(b));
}
