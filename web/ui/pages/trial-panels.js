// The parts of a trial's page, each made from the trial.

import { campaignPath, getText } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copyText, saveText } from "../lib/download.js";
import {
    bytes,
    counted,
    deviceTime,
    interval,
    ms,
    percent,
    ratio,
    rate,
    seconds,
    significant,
    time,
    NONE,
} from "../lib/format.js";
import { gainOf, ratioNote } from "../lib/objective.js";
import { href } from "../lib/router.js";
import { KINDS, LAYOUT_KEYS, PHASE_HELP, TRIAL_STATES } from "../lib/words.js";
import { bounds } from "../charts/best.js";
import { stragglers } from "../charts/trial.js";
import { button, failure, layoutChips, notice, pairs, panel, tile, tiles } from "../parts/parts.js";
import {
    inferredText,
    isLive,
    isSmaller,
    memoryOf,
    phaseRows,
    ranOf,
    ranText,
} from "./trial-model.js";

const given = (value) => value !== null && value !== undefined;

/** The parts that there are, with dots between them. */
const dotted = (...parts) => parts.filter(Boolean).join(" · ");

/** Throughput of TRIAL's layout: [value, note]. */
function speedTexts(trial) {
    if (!isSmaller(trial)) return [rate(trial.tokens_per_s), speedNote(trial)];
    const { inferred } = trial;
    if (!inferred) return [NONE, `expected ${rate(trial.predicted?.tokens_per_s)}`];
    const range = interval(inferred.lo, inferred.hi);
    return [`~ ${rate(inferred.tokens_per_s)}`, `inferred from smaller trials, 95 %: ${range}`];
}

/** What TRIAL's layout brings against the baseline: [value, note]. */
function gainTexts(trial, campaign) {
    const { inferred, layout } = trial;
    const base = campaign.baseline?.tokens_per_s;
    const speed = inferred?.tokens_per_s ?? trial.tokens_per_s;
    const gain = ratio(gainOf(campaign, speed, layout, trial.tokens_per_joule));
    const how = dotted(
        inferred && "inferred",
        base && `baseline ${rate(base)}`,
        ratioNote(campaign),
    );
    return [inferred ? `~ ${gain}` : gain, how];
}

function speedNote(trial) {
    const range = bounds(trial);
    if (!range) return `expected ${rate(trial.predicted?.tokens_per_s)}`;
    return `${trial.simulated ? "simulated, " : ""}95 %: ${interval(...range)}`;
}

function stepNote({ median, ci95, p10, p90 } = {}) {
    return median ? dotted(`± ${ms(ci95)}`, p10 && `p10 ${ms(p10)}`, p90 && `p90 ${ms(p90)}`) : "";
}

function tookNote(trial) {
    return dotted(
        counted(trial.attempts ?? 0, "attempt"),
        trial.started ? `started ${time(trial.started)}` : "not started",
    );
}

/** Watts of all that the trainer measured. */
const powerNote = ({ tokens_per_s: speed, tokens_per_joule: perJoule }) =>
    given(speed) && given(perJoule) && `${significant(speed / perJoule)} W`;

/** The tiles at the head of the page: {element, update(trial, campaign)}. */
export function trialTiles() {
    const speed = tile("Throughput", "global batch × sequence length / median step time");
    const gain = tile("vs baseline");
    const step = tile(
        "Step time",
        "median of the steps after the warm-up, and the half-width of its 95 % interval",
    );
    const mfu = tile(
        "MFU",
        "model FLOP utilization: 3 × forward, no recompute, over the peak of all devices",
    );
    const memory = tile(
        "Memory of the worst rank",
        "peak of the worst rank; below, what was planned",
    );
    const loss = tile("Loss, nats/token", "of the last step; below, of the first");
    const experts = tile(
        "Expert load",
        "load of a layer's busiest expert over the mean load of its experts, averaged over layers",
    );
    const energy = tile(
        "Tokens per joule",
        "tokens of a step over its energy; below, the mean power",
    );
    const took = tile("Duration");

    function updateSpeed(trial, campaign) {
        speed.set(...speedTexts(trial));
        gain.set(...gainTexts(trial, campaign));
    }

    function updateRest(trial) {
        const ran = ranOf(trial);
        const what = isSmaller(trial) && "of the smaller problem";
        const planned = ran.memory?.planned?.total ?? trial.predicted?.memory_bytes;
        const firstLoss = ran.loss?.first;
        const unknownPeak = ran.tokens_per_s && ran.mfu === null;
        step.set(ms(ran.step_ms?.median), dotted(what, stepNote(ran.step_ms ?? {})));
        mfu.set(percent(ran.mfu), dotted(what, unknownPeak && "device peak unknown"));
        memory.set(bytes(memoryOf(ran)?.total), dotted(what, `planned ${bytes(planned)}`));
        loss.set(
            significant(ran.loss?.last, 4),
            given(firstLoss) ? `from ${significant(firstLoss, 4)}` : "",
        );
        experts.element.hidden = !given(ran.expert_imbalance);
        experts.set(ratio(ran.expert_imbalance), dotted(what, "busiest over mean"));
        energy.element.hidden = !given(ran.tokens_per_joule);
        energy.set(significant(ran.tokens_per_joule), dotted(what, powerNote(ran)));
        took.set(seconds(trial.seconds), tookNote(trial));
    }
    return {
        element: tiles(speed, gain, step, mfu, memory, loss, experts, energy, took),
        update(trial, campaign) {
            updateSpeed(trial, campaign);
            updateRest(trial);
        },
    };
}

/** What went wrong in TRIAL, or null. */
export function failureNotice(trial) {
    const meaning = TRIAL_STATES[trial.state]?.[2];
    if (trial.warning)
        return notice(
            "warn",
            h(
                "h2",
                {},
                trial.state === "ok"
                    ? "disturbed: all its attempts were, the last one counts"
                    : `${trial.state}: ${meaning ?? "warning"}`,
            ),
            h("p", {}, trial.warning),
        );
    if (!trial.failure) return null;
    const { class: kind, detail, rank, exit_code: code, signal } = trial.failure;
    return notice(
        "bad",
        h("h2", {}, `${kind ?? trial.state}: ${meaning ?? "failed"}`),
        h("p", {}, detail ?? ""),
        h(
            "p",
            { class: "soft" },
            dotted(
                given(rank) && `rank ${rank}`,
                given(code) && `exit code ${code}`,
                given(signal) && `signal ${signal}`,
            ),
        ),
    );
}

export const shortMs = (x) => (x > 0 && x < 0.01 ? "< 0.01" : significant(x, 3));

export function moreMs(value) {
    if (Math.abs(value) < 0.01) return "0";
    return value > 0 ? `+${shortMs(value)}` : `−${shortMs(-value)}`;
}

function phaseHead(best) {
    const head = (text, help = null) => h("th", { scope: "col", class: "num", title: help }, text);
    return h(
        "tr",
        {},
        h("th", { scope: "col" }, "phase"),
        head("ms"),
        head("share"),
        best && [
            head(`trial ${best.n}, ms`, "the best trial of the campaign"),
            head("difference, ms", "from the best trial"),
        ],
    );
}

/** Where the time of a step went, and where that differs from the BEST trial's: that is why this one lost. */
function phaseTable(phases, best) {
    const { rows, total } = phaseRows(phases, best?.phases_ms ?? null);
    const number = (text) => h("td", { class: "num" }, text);
    const line = (name, help, { mine, theirs, share }) =>
        h(
            "tr",
            {},
            h("th", { scope: "row", title: help }, name),
            number(shortMs(mine)),
            number(share),
            best?.phases_ms && [number(shortMs(theirs)), number(moreMs(mine - theirs))],
        );
    return h(
        "div",
        {
            class: "scroll",
            tabindex: "0",
            role: "region",
            "aria-label": "table of the median step",
        },
        h(
            "table",
            {},
            h("thead", {}, phaseHead(best?.phases_ms ? best : null)),
            h(
                "tbody",
                {},
                rows.map((row) =>
                    line(row.phase, PHASE_HELP[row.phase] ?? "", {
                        ...row,
                        share: percent(row.share),
                    }),
                ),
                line("step", null, { ...total, share: "" }),
            ),
        ),
    );
}

function withoutPhases(trial) {
    if (isLive(trial)) return "Available when the trial ends.";
    if (ranOf(trial).tokens_per_s === null) return "No result.";
    return "This trainer does not report phase times.";
}

/** The median step by phases, or why it is not known. */
export function medianStep(trial, best) {
    const phases = ranOf(trial).phases_ms ?? {};
    return Object.values(phases).some((value) => value > 0)
        ? phaseTable(phases, isSmaller(trial) ? null : best)
        : h("p", { class: "soft" }, withoutPhases(trial));
}

function kindText(trial) {
    const first = ["campaigns", trial.campaign, "trials", String(trial.repeat_of)];
    return h(
        "span",
        {},
        `${trial.kind}: ${KINDS[trial.kind] ?? ""}`,
        trial.repeat_of && [
            " (of ",
            h("a", { href: href(first) }, `trial ${trial.repeat_of}`),
            ")",
        ],
    );
}

/** What a smaller trial ran, what that gave, and what follows from it. */
function smallerPairs(trial) {
    if (!isSmaller(trial)) return [];
    const how = trial.simulated ? "Simulated" : "Measured";
    return [
        ["Ran", h("span", {}, ranText(trial), h("br"), h("span", { class: "mono" }, trial.run.text))],
        [how, `${rate(trial.run.tokens_per_s)} at that size`],
        ["Inferred", inferredText(trial) ?? NONE],
    ];
}

/** What ran, and why. */
export function layoutPanel(trial, campaign) {
    const keys = Object.keys(LAYOUT_KEYS).filter((key) => given(trial.layout?.[key]));
    const { tokens_per_s: speed, memory_bytes: memory, p_fits: fits } = trial.predicted ?? {};
    return panel(
        "Layout",
        { note: "Keys that differ from the baseline are marked." },
        layoutChips(trial.layout ?? {}, keys, LAYOUT_KEYS, campaign.baseline?.layout),
        pairs([
            ["Kind", kindText(trial)],
            ["Why", trial.why ?? NONE],
            ["Expected", `${rate(speed)}, ${bytes(memory)}, P(fits) ${percent(fits, 0)}`],
            ...smallerPairs(trial),
            !trial.simulated &&
                given(trial.device_s) && [
                    "Cost",
                    `${deviceTime(trial.device_s)} on ${counted(trial.devices, "device")}`,
                ],
        ]),
    );
}

/** How this layout is run again by the bundled trainer: two commands, or its configuration as a file. */
export function reproducePanel({ id, n, trial }, signal) {
    const { simulated } = trial;
    const file = `trial-${id}-${n}.json`;
    const commands = [
        `partune export ${id} --to partune --trial ${n} ${simulated ? "--allow-simulated " : ""}--output ${file}`,
        `mpiexec -n ${trial.layout?.world ?? "RANKS"} partune-train --config ${file}`,
    ].join("\n");
    const code = h("pre", { class: "code commands", tabindex: "0" }, commands);
    const place = h("div", {}, button("Show the configuration", load));

    function show(text) {
        const save = button("Download", () => saveText(text, file, "application/json"));
        const whole = h("pre", { class: "code", tabindex: "0" }, text);
        fill(place, whole, h("p", { class: "actions" }, save));
        if (document.activeElement === document.body) whole.focus();
    }

    async function load() {
        try {
            const query = { trial: n, ...(simulated && { allow_simulated: "true" }) };
            const [text] = await getText(campaignPath(id, "/export/partune"), query, signal);
            show(text);
        } catch (error) {
            if (error.name !== "AbortError") fill(place, failure(error, load));
        }
    }
    return panel(
        simulated ? "Run for real" : "Run again",
        {
            className: "w4",
            note: "With the bundled trainer:",
            tools: button("Copy", () => copyText(commands, code), "quiet"),
        },
        code,
        place,
    );
}

/** Which ranks held the others up, or false. */
export function stragglerNotice(steps, world) {
    const ranks = stragglers(steps, world);
    const one = ranks.length === 1;
    const who = `${one ? "Rank" : "Ranks"} ${ranks.join(", ")}`;
    const what = one ? "is a straggler" : "are stragglers";
    return (
        ranks.length > 0 && notice("warn", `${who} ${what}: slowest far more often than by chance.`)
    );
}

/** What the charts of a long trial leave out. */
export function thinnedNote({ id, n }) {
    return h(
        "p",
        { class: "soft" },
        "Long trial: the charts show a sample of the steps, with the shortest and longest of each interval. ",
        "All steps: ",
        h("code", {}, `partune --json get '/v1/campaigns/${id}/trials/${n}/steps'`),
    );
}
