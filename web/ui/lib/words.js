// What the words of the service mean, for people. A state is never told by colour alone: it has a sign and a name.

export const TRIAL_STATES = {
    queued: ["○", "wait", "waits for a slot"],
    starting: ["◔", "run", "its processes are being started"],
    running: ["◑", "run", "is training"],
    ok: ["✓", "good", "ran to its end"],
    oom: ["▲", "bad", "did not fit into memory"],
    illegal: ["⊘", "bad", "the trainer refused the layout"],
    numeric: ["∞", "bad", "the loss became infinite or not a number"],
    timeout: ["◕", "warn", "was stopped by its time limit: slower than a bound"],
    pruned: ["✂", "warn", "was stopped because it could no longer win"],
    hang: ["‖", "bad", "stopped making progress"],
    crash: ["✕", "bad", "ended by a signal or an unexpected exit"],
    node_fail: ["⊗", "bad", "its host was lost"],
    preempted: ["⇤", "warn", "the scheduler took its place away"],
    cancelled: ["–", "wait", "was cancelled"],
    implausible: ["≫", "warn", "says more than its devices can do: not counted"],
};

/** Said of every result of a simulated campaign: the badge, and what it means. */
export const SIMULATED = [
    "simulated",
    "no training job ran: every number is the simulator's, none is a measurement",
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
    running: ["◑", "run", "trials are being run"],
    paused: ["‖", "warn", "running trials finish, none starts"],
    verifying: ["◔", "run", "winner and baseline are run again, in turn"],
    done: ["✓", "good", "the search has ended"],
    cancelled: ["–", "wait", "was cancelled"],
    failed: ["✕", "bad", "cannot go on"],
};

const REASONS = {
    budget: "the budget is spent",
    exhausted: "every layout was tried",
    converged: "nothing better is expected",
};

/** Why a campaign is in the state that it is in. */
export const reasonText = (reason) => REASONS[reason] ?? reason ?? "";

export const LIVE_TRIAL = new Set(["queued", "starting", "running"]);
export const FAILED_TRIAL = new Set([
    "oom",
    "illegal",
    "numeric",
    "hang",
    "crash",
    "node_fail",
    "preempted",
    "implausible",
]);
// It ran, but too slowly to be worth its time: a result about its speed, not a failure.
export const STOPPED_TRIAL = new Set(["timeout", "pruned"]);

export const KINDS = {
    baseline: "what the winner is compared with",
    search: "proposed by the search",
    repeat: "a layout tried again",
    verify: "winner or baseline, run again after the search",
};

export const BASELINE_RULES = {
    default: "what a competent engineer would start from",
    naive: "the largest data parallelism that fits",
    given: "the campaign's own layout",
};

// In the order in which a page shows them.
export const LAYOUT_KEYS = {
    world: "ranks in all",
    tp: "tensor parallel: each matrix is split over this many ranks",
    sp: "sequence parallel: activations between the matrices are split too",
    cp: "context parallel: each sequence is split over this many ranks",
    pp: "pipeline parallel: layers are split into this many stages",
    vp: "virtual stages a rank",
    schedule: "order of forward and backward passes in the pipeline",
    ep: "expert parallel: experts are split over this many ranks",
    etp: "tensor parallel inside each expert",
    dp: "data parallel: copies of the dense mesh",
    edp: "data parallel: copies of the expert mesh",
    zero: "sharding: 0 none, 1 optimizer state, 2 gradients too, 3 weights too",
    zero_scope: "over which ranks state is sharded",
    micro_batch: "sequences in a micro-batch",
    recompute: "activations computed again in the backward pass",
    overlap_grad_reduce: "gradients are reduced while the backward pass runs",
    overlap_param_gather: "weights are gathered while the forward pass runs",
    overlap_p2p: "stages exchange activations while they compute",
    overlap_moe_a2a: "tokens travel to experts while others compute",
    precision: "format of the arithmetic",
    threads: "compute threads a rank",
};

/** Values of the keys that hold words, in the order in which they are shown. */
export const WORD_ORDER = {
    schedule: ["gpipe", "1f1b", "interleaved", "zero-bubble"],
    zero_scope: ["none", "ep-aware", "plain"],
    recompute: ["none", "selective", "full"],
    precision: ["fp32", "bf16", "fp8"],
};

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

/** The same phase has the same colour in every chart: its place in the series of COUNT colours. */
export function phaseColour(name, count) {
    const at = COLOURED.indexOf(name);
    return (at >= 0 ? at : COLOURED.length) % count;
}

// Those that occur together come first, so that no two of them share a colour.
const COLOURED = ["forward", "backward", "tp", "ep", "dp", "pp_wait", "optimizer", "other"];

export const PHASE_HELP = {
    forward: "forward pass",
    backward: "backward pass",
    recompute: "forward again, for the backward pass",
    tp: "waiting for tensor-parallel collectives",
    cp: "waiting for context-parallel exchange",
    ep: "waiting for expert all-to-all",
    pp_wait: "waiting for the neighbour stage",
    pp: "sending between stages",
    bubble: "idle in the pipeline",
    dp: "waiting for gradient reduction",
    optimizer: "optimizer step",
    other: "everything else",
};

/** What the memory of a rank holds, by class; plan/memory.c has the same names. */
export const MEMORY_HELP = {
    weights: "weights as the arithmetic reads them",
    gradients: "gradients of the weights",
    master: "master weights in fp32",
    optimizer: "optimizer state: both moments of Adam",
    activations: "activations kept for the backward pass",
    comm: "communication buffers",
    logits: "logits and their gradients",
    workspace: "scratch memory; on a GPU also device context and fragmentation",
};
export const MEMORY_CLASSES = Object.keys(MEMORY_HELP);

/** Keys of OBJECT, those of ORDER first and in its order, others behind. */
export function ordered(object, order) {
    const keys = Object.keys(object ?? {});
    const place = (k) => (order.includes(k) ? order.indexOf(k) : order.length);
    return keys.sort((a, b) => place(a) - place(b));
}
